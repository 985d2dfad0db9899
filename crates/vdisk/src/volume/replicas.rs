//! The stores of a volume, by number.
//!
//! A store stays in it: requests hold a [`Replica`] while they wait, and stores that join the cluster meanwhile are added
//! behind.

use std::cell::RefCell;
use std::collections::BTreeMap;

use elsa::FrozenVec;

use super::membership::Replica;
use crate::names::StoreNumber;

#[derive(Default)]
pub(super) struct Replicas {
    all: FrozenVec<Box<Replica>>,
    /// Where in `all`.
    at: RefCell<BTreeMap<StoreNumber, usize>>,
}

impl Replicas {
    /// Adds a store; nothing if it is there.
    pub fn add(&self, replica: Replica) -> bool {
        let number = replica.info.number;
        if self.contains_key(&number) {
            return false;
        }
        self.at.borrow_mut().insert(number, self.all.len());
        self.all.push(Box::new(replica));
        true
    }

    pub fn get(&self, number: &StoreNumber) -> Option<&Replica> {
        let at = self.at.borrow().get(number).copied()?;
        self.all.get(at)
    }

    pub fn contains_key(&self, number: &StoreNumber) -> bool {
        self.at.borrow().contains_key(number)
    }

    /// In the order in which they came.
    pub fn values(&self) -> impl Iterator<Item = &Replica> {
        self.all.iter()
    }

    pub fn keys(&self) -> impl Iterator<Item = &StoreNumber> {
        self.values().map(|replica| &replica.info.number)
    }
}
