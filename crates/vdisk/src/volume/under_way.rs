//! Changes under way: each is counted until it is dropped.

use std::cell::RefCell;
use std::rc::Rc;

use env::sync::Semaphore;
use replication::stamps::{self, Stamps};

use crate::names::Generation;

/// Changes under way.
pub(super) struct StampState {
    pub now: RefCell<Stamps>,
    /// One task stamps fences at a time.
    pub one: Rc<Semaphore>,
}

impl Default for StampState {
    fn default() -> StampState {
        StampState {
            now: RefCell::default(),
            one: Semaphore::new(1),
        }
    }
}

impl StampState {
    /// A change begins in this generation.
    pub fn begin(&self, generation: Generation) -> UnderWay<'_> {
        let change = self.now.borrow_mut().begin(generation);
        let stamps = &self.now;
        UnderWay { stamps, change }
    }
}

/// A change under way: its stamp is remembered until it is over.
pub(super) struct UnderWay<'a> {
    stamps: &'a RefCell<Stamps>,
    change: stamps::UnderWay,
}

impl UnderWay<'_> {
    pub fn stamp(&self) -> Generation {
        self.change.stamp
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.stamps.borrow_mut().end(self.change);
    }
}
