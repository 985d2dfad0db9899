//! Whose are the sessions of a store, and what does each account weigh?
//!
//! ```text
//! holder of a reservation | certificate of an account | holder attached to a volume's requests -> name -> Account at the queue
//! ```
//!
//! What has no account is the daemon's owner's: clients that show the node key or nothing, and holders that only say for
//! which volume or export something is reserved.
//!
//! Always true:
//! 1. Sessions with one name have one number at the queue, as long as one of them is open.
//! 2. Names that no session has and that weigh as usual are forgotten.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use policy::share::Account;

/// An account that has sessions here.
pub(crate) struct Named {
    name: String,
    id: u64,
}

impl Named {
    /// What it is called; empty: the daemon's owner.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The accounts of a store's sessions.
pub(crate) struct Accounts {
    owner: Rc<Named>,
    in_use: RefCell<BTreeMap<String, Weak<Named>>>,
    /// Those that do not weigh 1.
    weights: RefCell<BTreeMap<String, u32>>,
    next: Cell<u64>,
}

impl Default for Accounts {
    fn default() -> Self {
        let owner = Named {
            name: String::new(),
            id: Account::OWNER.id,
        };
        Accounts {
            owner: Rc::new(owner),
            in_use: RefCell::default(),
            weights: RefCell::default(),
            next: Cell::new(Account::OWNER.id + 1),
        }
    }
}

/// Can it be the name of an account, `astro` or `astro/lsst`? Holders that say for which volume, export or allotment
/// something is reserved, or that it has no account, have a colon or a space in them.
fn is_account(holder: &str) -> bool {
    let plain = |it: u8| it.is_ascii_alphanumeric() || b"._-/".contains(&it);
    !holder.is_empty() && holder.bytes().all(plain)
}

impl Accounts {
    /// The account of a holder, or of what has none.
    pub fn of(&self, holder: Option<&str>) -> Rc<Named> {
        let Some(name) = holder.filter(|it| is_account(it)) else {
            return Rc::clone(&self.owner);
        };
        let mut in_use = self.in_use.borrow_mut();
        if let Some(named) = in_use.get(name).and_then(Weak::upgrade) {
            return named;
        }
        in_use.retain(|_, named| named.strong_count() > 0);
        let id = self.next.get();
        self.next.set(id + 1);
        let named = Rc::new(Named {
            name: name.to_owned(),
            id,
        });
        in_use.insert(name.to_owned(), Rc::downgrade(&named));
        named
    }

    /// As the queue knows it.
    pub fn at_queue(&self, named: &Named) -> Account {
        let weight = self.weights.borrow().get(&named.name).map_or(1, |it| *it);
        Account {
            id: named.id,
            // A record may say anything.
            weight: weight.clamp(1, Account::WEIGHT_MAX),
        }
    }

    /// All accounts weigh as `weights` say, and 1 where it says nothing. Those in use that weigh something else than before.
    pub fn set_weights(&self, weights: BTreeMap<String, u32>) -> Vec<Account> {
        let before = self.weights.replace(weights);
        let in_use = self.in_use.borrow();
        let open = in_use.values().filter_map(Weak::upgrade);
        let changed = open.filter_map(|named| {
            let was = before.get(&named.name);
            let is = self.weights.borrow().get(&named.name).copied();
            (is.unwrap_or(1) != was.map_or(1, |it| *it)).then(|| self.at_queue(&named))
        });
        changed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number_while_it_is_used_and_targets_are_the_owners() {
        let accounts = Accounts::default();
        let astro = accounts.of(Some("astro"));
        assert!(Rc::ptr_eq(&astro, &accounts.of(Some("astro"))));
        let id = |holder| accounts.at_queue(&accounts.of(holder)).id;
        for owners in [
            None,
            Some(""),
            Some("volume:7"),
            Some("export:vm1"),
            Some("allotment:pool"),
            Some("nightly (no account)"),
        ] {
            assert_eq!(id(owners), Account::OWNER.id, "{owners:?}");
        }
        assert_ne!(id(Some("astro")), id(Some("astro/lsst")));
        drop(astro);
        for nth in 0..1000 {
            accounts.of(Some(&format!("{nth}")));
        }
        assert_eq!(accounts.in_use.borrow().len(), 1);
    }

    #[test]
    fn a_weight_that_changes_is_answered_for_accounts_in_use() {
        let accounts = Accounts::default();
        let astro = accounts.of(Some("astro"));
        let weights = |all: &[(&str, u32)]| {
            let all = all.iter();
            accounts.set_weights(all.map(|(name, it)| ((*name).to_owned(), *it)).collect())
        };
        let changed = weights(&[("astro", 4), ("other", 2)]);
        assert_eq!(changed, [accounts.at_queue(&astro)]);
        assert_eq!(changed[0].weight, 4);
        assert_eq!(weights(&[("astro", 4)]), []);
        assert_eq!(
            weights(&[("astro", u32::MAX)])[0].weight,
            Account::WEIGHT_MAX
        );
        assert_eq!(weights(&[])[0].weight, 1);
    }
}
