//! Tasks wait here for their range of bytes; who has its turn [`RangeLocks`] says.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use env::sync::Event;
use replication::lock::{RangeLocks, Ticket};

/// The ranges in use.
#[derive(Default)]
pub(super) struct Ranges {
    locks: RefCell<RangeLocks>,
    freed: Event,
}

/// A range in use; given up when dropped.
pub(super) struct RangeLock {
    ranges: Rc<Ranges>,
    ticket: Ticket,
}

impl Ranges {
    /// Waits for all that came before, overlap, and cannot share.
    pub async fn take(self: &Rc<Self>, range: Range<u64>, alone: bool) -> RangeLock {
        let ticket = self.locks.borrow_mut().ask(range, alone);
        let held = RangeLock {
            ranges: Rc::clone(self),
            ticket,
        };
        while !self.locks.borrow().has_turn(ticket) {
            self.freed.wait().await;
        }
        held
    }
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        self.ranges.locks.borrow_mut().give_up(self.ticket);
        self.ranges.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_get_their_ranges_in_the_order_they_came() {
        env::Runtime::simulated(1).block_on(async {
            let ranges: Rc<Ranges> = Rc::default();
            let order: Rc<RefCell<Vec<u32>>> = Rc::default();
            let first = ranges.take(0..10, false).await;
            let mut tasks = Vec::new();
            for (name, range, alone) in [
                (1, 5..15, false),
                (2, 9..12, true),
                (3, 11..20, false),
                (4, 30..40, true),
            ] {
                let (ranges, order) = (Rc::clone(&ranges), Rc::clone(&order));
                tasks.push(env::spawn(async move {
                    let _held = ranges.take(range, alone).await;
                    order.borrow_mut().push(name);
                    env::yield_now().await;
                }));
            }
            for _ in 0..3 {
                env::yield_now().await;
            }
            assert_eq!(*order.borrow(), [1, 4]);
            drop(first);
            for task in tasks {
                task.await;
            }
            assert_eq!(*order.borrow(), [1, 4, 2, 3]);
            assert!(ranges.locks.borrow().is_empty());
        });
    }
}
