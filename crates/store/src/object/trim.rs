//! Freed room goes back to the device: a discard, which makes a hole in a file.
//!
//! ```text
//! last page of a unit free again -> rest -> units in a row lent by the space -> discard -> given back, free -> pause -> the next
//! ```
//!
//! A unit is discarded as a whole: what is free beside data stays with the device. The rest lets a unit that is soon written
//! again be so without a discard. What was freed before the store was opened is discarded when it was written and freed
//! again.
//!
//! Always true:
//! 1. A unit is discarded only when no durable record names a page of it, no read of it is under way, and it cannot be taken.
//! 2. It is taken again only when the device has answered.
//! 3. Discards take no more than half of the device's time, and what was freed late in a rest waits for the next one.
//! 4. A discard that fails costs room of the device, never the store.

use std::cell::Cell;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::{Class, Device, Info, Pending, Power, Spindle, WriteFlags};
use env::sync::Event;

use crate::object::parts::Parts;
use crate::object::space::Run;

/// From the first unit that is free to the trim; each unit rests half as long at least.
pub(crate) const TRIM_AFTER: Nanos = Nanos::secs(10);
/// Between two discards, at least: 64 MiB each time are 1.3 GiB/s at most.
const PAUSE_MIN: Nanos = Nanos::millis(50);
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

/// Gives freed room back to the device.
pub(crate) struct Trimmer(pub Rc<Parts>);

impl Trimmer {
    /// The task, as long as the store is open and its device takes discards.
    pub async fn run(self) {
        if !self.0.disk.device.info().discards {
            return;
        }
        while !self.0.commit.is_stopped() {
            if !self.0.space.borrow().is_stale(false) {
                self.0.trim.work.wait().await;
                continue;
            }
            let half = Nanos(self.0.trim.after.get().0 / 2);
            self.rest(half).await;
            self.0.space.change().ripen();
            self.rest(half).await;
            self.trim_all().await;
            if self.0.space.borrow().is_stale(true) {
                // What is left is promised, or the device refused.
                self.rest(TRIM_AFTER).await;
            }
        }
    }

    /// Waits so long, or until the store is stopped.
    async fn rest(&self, time: Nanos) {
        let due = env::now() + time;
        while !self.0.commit.is_stopped() && env::now() < due {
            let left = due.since(env::now());
            let _ = env::timeout(left, self.0.trim.work.wait()).await;
        }
    }

    /// Discards what is ripe, with pauses for the requests of clients: each as long as the discard before it took.
    async fn trim_all(&self) {
        let most = (LENGTH_MAX.0 / self.0.disk.superblock.unit.0).max(1) as u32;
        while !self.0.commit.is_stopped() {
            let keep = self.0.table.borrow().promised() + self.0.disk.spare;
            let lent = self.0.space.change().lend(keep, most);
            let Some(run) = lent else { return };
            let begun = env::now();
            if !self.discard(run).await {
                return;
            }
            let took = env::now().since(begun);
            if self.0.space.borrow().is_stale(true) {
                self.rest(took.max(PAUSE_MIN)).await;
            }
        }
    }

    /// One discard. `false`: the device did not do it.
    async fn discard(&self, run: Run) -> bool {
        let span = self.0.disk.superblock.span(run.first, u64::from(run.count));
        let answer = self.0.disk.device.discard(span).await;
        self.0.space.change().returned(run);
        self.0.room.notify_all();
        match answer {
            Ok(()) => {
                self.0
                    .count(|counters| counters.bytes_discarded += span.len.0);
                true
            }
            Err(error) => {
                tracing::warn!(store = %self.0.disk.name, %error, "freed room was not given back to the device");
                false
            }
        }
    }

    /// Waits until no discard is under way: a later one must not meet what is written after the store was closed.
    pub async fn trimmed(&self) {
        while self.0.space.borrow().lent() > 0 {
            self.0.room.wait().await;
        }
    }
}

/// A device whose blocks are kept: a store on it gives no freed room back, such as on a file whose blocks were preallocated.
pub struct KeepsBlocks(pub Rc<dyn Device>);

impl Device for KeepsBlocks {
    fn info(&self) -> Info {
        Info {
            discards: false,
            ..self.0.info()
        }
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        self.0.read(at, buf, class)
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        self.0.write(at, data, flags)
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.0.flush()
    }

    /// Nothing is given back.
    fn discard(&self, _span: Span) -> Pending<'_, ()> {
        device::ready(Ok(()))
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.0.write_zeroes(span, flags)
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        self.0.allocation(span)
    }

    fn power(&self) -> Option<Power> {
        self.0.power()
    }

    fn prepare_sleep(&self) -> Pending<'_, ()> {
        self.0.prepare_sleep()
    }

    fn spindle(&self) -> Option<Spindle> {
        self.0.spindle()
    }

    fn standby(&self) -> bool {
        self.0.standby()
    }

    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }
}
