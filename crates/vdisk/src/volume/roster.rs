//! The stores of a volume, by number.
//!
//! A store stays in it: requests hold a [`Member`] while they wait, and stores that join the cluster meanwhile are added
//! behind.

use std::cell::RefCell;
use std::collections::BTreeMap;

use elsa::FrozenVec;

use super::members::Member;
use crate::names::StoreNumber;

#[derive(Default)]
pub(super) struct Roster {
    all: FrozenVec<Box<Member>>,
    /// Where in `all`.
    at: RefCell<BTreeMap<StoreNumber, usize>>,
}

impl Roster {
    /// Adds a store; nothing if it is there.
    pub fn add(&self, member: Member) -> bool {
        let number = member.site.number;
        if self.contains_key(&number) {
            return false;
        }
        self.at.borrow_mut().insert(number, self.all.len());
        self.all.push(Box::new(member));
        true
    }

    pub fn get(&self, number: &StoreNumber) -> Option<&Member> {
        let at = self.at.borrow().get(number).copied()?;
        self.all.get(at)
    }

    pub fn contains_key(&self, number: &StoreNumber) -> bool {
        self.at.borrow().contains_key(number)
    }

    /// In the order in which they came.
    pub fn values(&self) -> impl Iterator<Item = &Member> {
        self.all.iter()
    }

    pub fn keys(&self) -> impl Iterator<Item = &StoreNumber> {
        self.values().map(|member| &member.site.number)
    }
}
