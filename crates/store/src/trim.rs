//! Freed room goes back to the device: a discard, which makes a hole in a file.
//!
//! ```text
//! last page of a unit free again -> rest -> units in a row lent by the space -> discard -> given back, free
//! ```
//!
//! A unit is told of as a whole: what is free beside data stays with the device. The rest lets a unit that is soon written
//! again be so without a discard. What was freed before the store was opened is told of when it was written and freed again.
//!
//! Always true:
//! 1. A unit is discarded only when no durable record names a page of it, no read of it is under way, and it cannot be taken.
//! 2. It is taken again only when the device has answered.
//! 3. A discard that fails costs room of the device, never the store.

use std::cell::Cell;
use std::rc::Rc;

use base::{Bytes, Nanos};
use env::sync::Event;

use crate::open::Inner;
use crate::space::Run;

/// A unit rests for so long at least.
pub(crate) const TRIM_AFTER: Nanos = Nanos::secs(10);
/// One discard is at most as long as this: a write that lacks pages waits for it.
const LENGTH_MAX: Bytes = Bytes::mib(64);

/// The trim's own.
pub(crate) struct Trim {
    /// Something may be stale.
    pub work: Event,
    pub after: Cell<Nanos>,
}

impl Default for Trim {
    fn default() -> Trim {
        Trim {
            work: Event::default(),
            after: Cell::new(TRIM_AFTER),
        }
    }
}

impl Inner {
    /// The trim's task, as long as the store is open and its device takes discards.
    pub async fn trim_loop(self: Rc<Self>) {
        if !self.device.info().discards {
            return;
        }
        while !self.stopped.get() {
            if !self.space.borrow().is_stale() {
                self.trim.work.wait().await;
                continue;
            }
            self.rest(self.trim.after.get()).await;
            self.trim_all().await;
            if self.space.borrow().is_stale() {
                // What is left is promised, or the device refused.
                self.rest(TRIM_AFTER).await;
            }
        }
    }

    /// Waits so long, or until the store is stopped.
    async fn rest(&self, time: Nanos) {
        let due = env::now() + time;
        while !self.stopped.get() && env::now() < due {
            let left = due.since(env::now());
            let _ = env::timeout(left, self.trim.work.wait()).await;
        }
    }

    async fn trim_all(&self) {
        let most = (LENGTH_MAX.0 / self.superblock.unit.0).max(1) as u32;
        while !self.stopped.get() {
            let keep = self.table.borrow().promised + self.spare;
            let lent = self.space.borrow_mut().lend(keep, most);
            let Some(run) = lent else { return };
            if !self.discard(run).await {
                return;
            }
        }
    }

    /// One discard. `false`: the device did not do it.
    async fn discard(&self, run: Run) -> bool {
        let span = self.superblock.span(run.first, u64::from(run.count));
        #[cfg(test)]
        if self.planted(crate::open::Bug::LooseTrim) {
            self.space.borrow_mut().returned(run);
            self.room.notify_all();
            return self.device.discard(span).await.is_ok();
        }
        let answer = self.device.discard(span).await;
        self.space.borrow_mut().returned(run);
        self.room.notify_all();
        match answer {
            Ok(()) => {
                self.count(|figures| figures.bytes_discarded += span.len.0);
                true
            }
            Err(error) => {
                tracing::warn!(store = %self.name, %error, "freed room was not given back to the device");
                false
            }
        }
    }

    /// Waits until no discard is under way: a later one must not meet what is written after the store was closed.
    pub async fn trimmed(&self) {
        while self.space.borrow().lent() > 0 {
            self.room.wait().await;
        }
    }
}
