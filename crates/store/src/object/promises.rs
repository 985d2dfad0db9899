//! What is left of reservations of room, and how many free pages that takes from others.

use std::collections::BTreeMap;

/// What is left of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Promise {
    /// Pages not yet written.
    pub left: u64,
    /// Of these, pages being written.
    pub held: u64,
}

/// All of them, by number.
#[derive(Default)]
pub(crate) struct Promises {
    all: BTreeMap<u64, Promise>,
    /// Pages that are neither written nor being written.
    free: u64,
}

impl Promises {
    pub fn get(&self, number: u64) -> Option<Promise> {
        self.all.get(&number).copied()
    }

    /// All, the oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, Promise)> {
        self.all.iter().map(|(number, promise)| (*number, *promise))
    }

    /// Pages of all promises that are neither written nor being written.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Sets what a reservation has left; `None`: it is gone.
    pub fn put(&mut self, number: u64, promise: Option<Promise>) {
        let free = |promise: Option<Promise>| promise.map_or(0, |one| one.left - one.held);
        let before = match promise {
            Some(promise) => self.all.insert(number, promise),
            None => self.all.remove(&number),
        };
        self.free = self.free + free(promise) - free(before);
    }

    /// Sets `pages` of a reservation aside for a write under way.
    pub fn hold(&mut self, number: u64, pages: u64) {
        let mut promise = self.get(number).expect("the caller has seen it");
        promise.held += pages;
        assert!(promise.held <= promise.left, "only what is left is held");
        self.put(number, Some(promise));
    }
}
