//! Whose request is it, and may it do this?
//!
//! ```text
//! Unix socket: root, the daemon's user    -> admin, no account
//!              another user               -> the account that names the user or a group of it
//! TCP:         the token of DATA_DIR      -> admin, no account
//!              a token of an account      -> that account
//! TLS:         a certificate of an account, where no token is shown -> that account
//!              nothing                    -> no role
//! ```
//!
//! Pure. Always true: a caller without a role may nothing but [`Action::Look`], and that only where `looks` says so.

use std::fmt;

use crate::account::Account;
use crate::name::AccountName;
use crate::role::{Action, Role, Whose};
use crate::token::TokenId;

/// How a caller showed who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// Root, or the daemon's own user, at the Unix socket.
    Local(u32),
    /// The token in the daemon's data directory.
    AdminToken,
    /// A token of an account.
    Token(TokenId),
    /// The certificate of an account, with this serial number.
    Certificate(String),
    /// A user of this machine whom an account names.
    User(u32),
    /// It showed nothing.
    Nothing,
}

/// Whose request it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// For which account; the daemon's owner has none.
    pub account: Option<AccountName>,
    /// Which one of that name: an earlier or later one has another identity.
    pub account_id: Option<u64>,
    /// How far it may go; none without a token or a user that is known.
    pub role: Option<Role>,
    /// How it showed that.
    pub how: How,
}

/// Why a caller may not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("to {what} takes {takes}, and this is asked by {caller}")]
pub struct Denied {
    what: &'static str,
    takes: String,
    caller: String,
    /// What to do.
    pub what_to_do: String,
}

impl Caller {
    /// The daemon's owner, or root, at the Unix socket.
    pub fn local(user: u32) -> Caller {
        Caller {
            account: None,
            account_id: None,
            role: Some(Role::Admin),
            how: How::Local(user),
        }
    }

    /// An account, which showed itself like that.
    pub fn of(account: Account, how: How) -> Caller {
        Caller {
            account: Some(account.name),
            account_id: Some(account.id),
            role: Some(account.role),
            how,
        }
    }

    /// Shows nothing.
    pub fn nothing() -> Caller {
        Caller {
            account: None,
            account_id: None,
            role: None,
            how: How::Nothing,
        }
    }

    /// Is it the daemon's owner, by the socket or by the token of the data directory?
    pub fn is_owner(&self) -> bool {
        matches!(self.how, How::Local(_) | How::AdminToken)
    }

    /// Is what belongs to `owner` its own? What belongs to no account is the daemon's owner's.
    pub fn whose(&self, owner: Option<&AccountName>) -> Whose {
        let own = match owner {
            Some(_) => self.account.as_ref() == owner,
            None => self.is_owner(),
        };
        match own {
            true => Whose::Own,
            false => Whose::Other,
        }
    }

    /// May it do this with what belongs to `owner`? `None` belongs to no account.
    pub fn may(&self, action: Action, owner: Option<&AccountName>) -> bool {
        let whose = self.whose(owner);
        self.role.is_some_and(|role| role.may(action, whose))
    }

    /// May it do this at all, be it with its own things only?
    pub fn may_ever(&self, action: Action) -> bool {
        let role = self.role;
        role.is_some_and(|role| role.may(action, Whose::Own) || role.may(action, Whose::Other))
    }

    /// Refuses what it may not.
    ///
    /// # Errors
    /// Which role it takes, and who can give it.
    pub fn check(&self, action: Action, owner: Option<&AccountName>) -> Result<(), Denied> {
        match self.may(action, owner) {
            true => Ok(()),
            false => Err(self.denied(action, self.whose(owner))),
        }
    }

    /// Why it may not.
    pub fn denied(&self, action: Action, whose: Whose) -> Denied {
        let least = action.least(whose);
        let takes = match (least, whose) {
            (None, _) => "the account that owns it".to_owned(),
            (Some(role), Whose::Other) if action.least(Whose::Own) != least => {
                format!("the role {role} where it is not the account's own")
            }
            (Some(role), _) => format!("the role {role}"),
        };
        let name = self.account.as_ref().map_or("NAME", AccountName::as_str);
        let what_to_do = match least {
            None => "ask as that account: no other role has it".to_owned(),
            Some(role) => format!(
                "an admin gives it with `tanada account set {name} --role {role}`; the daemon's owner and root are admins"
            ),
        };
        Denied {
            what: action.words(),
            takes,
            caller: self.to_string(),
            what_to_do,
        }
    }
}

/// For people and the audit log: no secret.
impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.account, self.role) {
            (Some(account), Some(role)) => write!(f, "account {account}, {role}")?,
            (Some(account), None) => write!(f, "account {account}")?,
            (None, _) => {}
        }
        let apart = if self.account.is_some() { ", by " } else { "" };
        f.write_str(apart)?;
        match &self.how {
            How::Local(user) | How::User(user) => write!(f, "user {user}"),
            How::AdminToken => f.write_str("the daemon's admin token"),
            How::Token(id) => write!(f, "token {}", id.shown()),
            How::Certificate(serial) => write!(f, "certificate {serial}"),
            How::Nothing => f.write_str("a client without a token"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(account: &str, role: Role) -> Caller {
        Caller {
            account: Some(account.parse().unwrap()),
            role: Some(role),
            how: How::Token(TokenId(0xabcd)),
            ..Caller::nothing()
        }
    }

    #[test]
    fn what_is_another_accounts_takes_more_and_a_capability_is_out_of_reach() {
        let (astro, bio) = ("astro".parse().unwrap(), "bio".parse().unwrap());
        let booker = of("astro", Role::Booker);
        assert!(booker.may(Action::Book, Some(&astro)));
        assert!(!booker.may(Action::Book, Some(&bio)));
        assert!(
            !booker.may(Action::Book, None),
            "the owner's is not its own"
        );
        let admin = of("astro", Role::Admin);
        assert!(admin.may(Action::Book, Some(&bio)));
        assert!(admin.may(Action::Capability, Some(&astro)));
        assert!(!admin.may(Action::Capability, Some(&bio)));
        assert!(!admin.may(Action::Capability, None));
        let owner = Caller::local(0);
        assert!(owner.may(Action::Capability, None));
        assert!(!owner.may(Action::Capability, Some(&bio)));
        assert!(!Caller::nothing().may_ever(Action::Look));
    }

    #[test]
    fn a_refusal_says_which_role_it_takes_and_who_gives_it() {
        let bio = "bio".parse().unwrap();
        let reader = of("astro", Role::Reader);
        let denied = reader.check(Action::Operate, None).unwrap_err();
        assert_eq!(
            denied.to_string(),
            "to command volumes, stores and clients takes the role operator, and this is asked by account astro, reader, by \
             token ..abcd"
        );
        assert!(
            denied
                .what_to_do
                .contains("tanada account set astro --role operator")
        );
        let denied = of("astro", Role::Admin).check(Action::Capability, Some(&bio));
        assert!(
            denied
                .unwrap_err()
                .to_string()
                .contains("the account that owns it")
        );
    }
}
