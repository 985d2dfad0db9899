//! Where are the copies of an object, and which extents' copies may differ?
//!
//! Always true: of an extent that is unreconciled nothing is read or written before its copies were made equal.

use std::collections::BTreeMap;

use crate::names::{Generation, StoreNumber};

/// The copies of one object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Copies {
    /// The stores that have one.
    pub stores: Vec<StoreNumber>,
    /// Those of them that no root in the meta store names yet.
    pub uncommitted: Vec<StoreNumber>,
    /// No change of it was answered, nor anything of it read: copies may lack the object.
    pub unacknowledged: bool,
    /// It came after the record's redundancy floor was last known to hold for it: no change of it is sent before that is so again.
    pub uncounted: bool,
}

impl Copies {
    /// In these stores, all of them named by a root.
    pub fn new(stores: Vec<StoreNumber>, unacknowledged: bool) -> Copies {
        Copies {
            stores,
            unacknowledged,
            ..Copies::default()
        }
    }

    /// How many the next opening finds in sync, with these stores out.
    pub fn in_sync(&self, out: &BTreeMap<StoreNumber, Generation>) -> u8 {
        let counts = |one: &&StoreNumber| !out.contains_key(one) && !self.uncommitted.contains(one);
        self.stores.iter().filter(counts).count() as u8
    }
}

/// Extents whose copies may differ, and how many pieces say so.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Unreconciled(BTreeMap<u32, u64>);

impl Unreconciled {
    /// These are, for one reason each, and no others.
    pub fn preset(&mut self, extents: impl IntoIterator<Item = u32>) {
        self.0 = extents.into_iter().map(|index| (index, 1)).collect();
    }

    /// One more piece of an extent may differ from copy to copy.
    pub fn add(&mut self, index: u32) {
        *self.0.entry(index).or_default() += 1;
    }

    /// One piece that said so does not differ any more.
    pub fn remove(&mut self, index: u32) {
        let count = self.0.get_mut(&index).expect("it was unreconciled");
        *count -= 1;
        if *count == 0 {
            self.0.remove(&index);
        }
    }

    /// The copies of an extent are equal, whichever pieces said that they are not.
    pub fn reconciled(&mut self, index: u32) {
        self.0.remove(&index);
    }

    /// May the copies of an extent differ?
    pub fn contains(&self, index: u32) -> bool {
        self.0.contains_key(&index)
    }

    /// Are the copies of all extents equal?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those from `first` on, in order.
    pub fn from(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        self.0.range(first..).map(|(index, _)| *index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_counts_when_its_store_is_in_and_a_root_names_it() {
        let numbers = |all: &[u16]| all.iter().map(|one| StoreNumber(*one)).collect::<Vec<_>>();
        let mut copies = Copies::new(numbers(&[1, 2, 3]), false);
        copies.uncommitted = numbers(&[2]);
        let out = BTreeMap::from([(StoreNumber(3), Generation(1))]);
        assert_eq!(copies.in_sync(&out), 1);
    }

    #[test]
    fn an_extent_is_unreconciled_until_no_piece_says_so_or_its_copies_are_equal() {
        let mut unreconciled = Unreconciled::default();
        unreconciled.add(4);
        unreconciled.add(4);
        unreconciled.remove(4);
        assert!(unreconciled.contains(4));
        unreconciled.remove(4);
        assert!(unreconciled.is_empty());
        unreconciled.add(5);
        unreconciled.add(5);
        unreconciled.reconciled(5);
        assert!(!unreconciled.contains(5));
    }
}
