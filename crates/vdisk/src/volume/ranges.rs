//! Which requests hold which bytes of a volume?
//!
//! A write has its range alone, reads share theirs; first come, first served among those that overlap. So copies differ
//! only where a write is under way, and no client reads there. Any copy of any range that can be read holds the same.
//!
//! Choice: the paper does not say what a read sees of a write under way. Here it waits for it.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use env::sync::Event;

struct Ticket {
    number: u64,
    range: Range<u64>,
    alone: bool,
}

/// The ranges in use.
#[derive(Default)]
pub(super) struct Ranges {
    /// In the order they came.
    tickets: RefCell<Vec<Ticket>>,
    next: Cell<u64>,
    freed: Event,
}

/// A range in use; given up when dropped.
pub(super) struct RangeLock {
    ranges: Rc<Ranges>,
    number: u64,
}

impl Ranges {
    /// Waits for all that came before, overlap, and cannot share.
    pub async fn take(self: &Rc<Self>, range: Range<u64>, alone: bool) -> RangeLock {
        let number = self.next.get();
        self.next.set(number + 1);
        let ticket = Ticket {
            number,
            range: range.clone(),
            alone,
        };
        self.tickets.borrow_mut().push(ticket);
        let held = RangeLock {
            ranges: Rc::clone(self),
            number,
        };
        let in_the_way = || {
            let tickets = self.tickets.borrow();
            let before = tickets.iter().take_while(|one| one.number != number);
            before
                .filter(|one| one.alone || alone)
                .any(|one| one.range.start < range.end && range.start < one.range.end)
        };
        while in_the_way() {
            self.freed.wait().await;
        }
        held
    }
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        let mut tickets = self.ranges.tickets.borrow_mut();
        tickets.retain(|one| one.number != self.number);
        drop(tickets);
        self.ranges.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_a_range_and_a_writer_has_it_alone_in_the_order_they_came() {
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
            assert!(ranges.tickets.borrow().is_empty());
        });
    }
}
