//! What may which role do? One table.
//!
//! ```text
//! (action, whose) -> the least role that may, or none at all
//! reader < booker < operator < admin
//! ```
//!
//! Pure. Always true:
//! 1. A greater role may all that a lesser one may.
//! 2. A capability is its owner's alone: no role opens that of another account.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How far an account may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Figures of its account, and the calendar without names.
    Reader,
    /// Books, amends and cancels its own.
    Booker,
    /// All bookings, also for others; caps, drain, calibration and all else that loses no data.
    Operator,
    /// Also accounts, keys, deletions and what belongs to the configuration.
    Admin,
}

/// All roles, the least first.
pub const ROLES: [Role; 4] = [Role::Reader, Role::Booker, Role::Operator, Role::Admin];

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Health, metrics and status: pages without secrets. On loopback they need no role.
    Look,
    /// Figures, states, and the calendar without names.
    Read,
    /// The names of who booked, and what for.
    Names,
    /// What would a booking come to? Nothing is set aside.
    Offer,
    /// Bookings: made, amended, cancelled.
    Book,
    /// The capability of a booking.
    Capability,
    /// Settings, snapshots, scrubs, calibration, caps, drain, clients: what loses no data.
    Operate,
    /// What loses data: volumes, snapshots, stores that go.
    Destroy,
    /// What belongs to the configuration: stores that come, keys of stores.
    Configure,
    /// An account and its quota, looked at.
    Account,
    /// Accounts and quotas: made, changed, switched off. Tokens: made.
    Accounts,
    /// Tokens: listed, revoked.
    Tokens,
    /// The record of what was done.
    Audit,
}

/// All actions.
pub const ACTIONS: [Action; 13] = [
    Action::Look,
    Action::Read,
    Action::Names,
    Action::Offer,
    Action::Book,
    Action::Capability,
    Action::Operate,
    Action::Destroy,
    Action::Configure,
    Action::Account,
    Action::Accounts,
    Action::Tokens,
    Action::Audit,
];

/// Whose thing it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Whose {
    /// The caller's own account's. What belongs to no account is the daemon's owner's.
    Own,
    /// Another account's.
    Other,
}

impl Action {
    /// The least role that may do this; `None`: no role may.
    pub fn least(self, whose: Whose) -> Option<Role> {
        use Role::{Admin, Booker, Operator, Reader};
        let (own, other) = match self {
            Action::Look | Action::Read => (Reader, Some(Reader)),
            Action::Names => (Reader, Some(Operator)),
            Action::Offer => (Booker, Some(Booker)),
            Action::Book => (Booker, Some(Operator)),
            Action::Capability => (Booker, None),
            Action::Operate => (Operator, Some(Operator)),
            Action::Destroy | Action::Configure | Action::Accounts | Action::Audit => {
                (Admin, Some(Admin))
            }
            Action::Account | Action::Tokens => (Reader, Some(Admin)),
        };
        match whose {
            Whose::Own => Some(own),
            Whose::Other => other,
        }
    }

    /// What it is, behind "to": `to book`.
    pub fn words(self) -> &'static str {
        match self {
            Action::Look => "look at the status",
            Action::Read => "read figures and calendars",
            Action::Names => "see who booked",
            Action::Offer => "ask for an offer",
            Action::Book => "book, amend or cancel",
            Action::Capability => "have the capability of a booking",
            Action::Operate => "command volumes, stores and clients",
            Action::Destroy => "do what loses data",
            Action::Configure => "change what belongs to the configuration",
            Action::Account => "look at an account",
            Action::Accounts => "change accounts, quotas and tokens",
            Action::Tokens => "list and revoke tokens",
            Action::Audit => "read the audit log",
        }
    }
}

impl Role {
    /// May it do this?
    ///
    /// # Example
    /// ```
    /// use access::role::{Action, Role, Whose};
    /// assert!(Role::Booker.may(Action::Book, Whose::Own));
    /// assert!(!Role::Booker.may(Action::Book, Whose::Other));
    /// assert!(!Role::Admin.may(Action::Capability, Whose::Other));
    /// ```
    pub fn may(self, action: Action, whose: Whose) -> bool {
        action.least(whose).is_some_and(|least| self >= least)
    }

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Reader => "reader",
            Role::Booker => "booker",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Role, String> {
        let found = ROLES.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| {
            format!("'{text}' is no role; the roles are reader, booker, operator and admin")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_what_the_page_says() {
        // docs/access.md: what each role adds to the one before, own and other.
        let page = "\
reader   own   Look Read Names Account Tokens
reader   other Look Read
booker   own   Offer Book Capability
booker   other Offer
operator own   Operate
operator other Names Book Operate
admin    own   Destroy Configure Accounts Audit
admin    other Destroy Configure Account Accounts Tokens Audit
";
        let mut right = Vec::new();
        for line in page.lines() {
            let mut words = line.split_whitespace();
            let role: Role = words.next().unwrap().parse().unwrap();
            let whose = match words.next().unwrap() {
                "own" => Whose::Own,
                _ => Whose::Other,
            };
            for word in words {
                let greater = ROLES.into_iter().filter(|it| *it >= role);
                right.extend(greater.map(|role| (role, whose, word.to_owned())));
            }
        }
        for role in ROLES {
            for whose in [Whose::Own, Whose::Other] {
                for action in ACTIONS {
                    let expected = right.contains(&(role, whose, format!("{action:?}")));
                    assert_eq!(
                        role.may(action, whose),
                        expected,
                        "{role} {action:?} {whose:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_role_is_read_as_it_is_written() {
        for role in ROLES {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        assert!("root".parse::<Role>().unwrap_err().contains("operator"));
    }
}
