//! Changes under way: each is counted until it is dropped.

use replication::stamps;

use super::replica::Shared;
use crate::names::Generation;

/// A change under way: its stamp is remembered until it is over.
pub(super) struct UnderWay<'a> {
    replication: &'a Shared,
    change: stamps::UnderWay,
}

impl UnderWay<'_> {
    /// A change begins, in the generation of now.
    pub fn of(replication: &Shared) -> UnderWay<'_> {
        let change = replication.borrow_mut().begin_change();
        UnderWay {
            replication,
            change,
        }
    }

    pub fn stamp(&self) -> Generation {
        self.change.stamp
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.replication.borrow_mut().stamps.end(self.change);
    }
}
