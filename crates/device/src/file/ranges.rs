//! Which writes must wait for each other, because they rewrite the same blocks?

use std::cell::{Cell, RefCell};

use env::sync::Event;

/// Bytes that one write has to itself while it reads and rewrites whole blocks. First come, first
/// served: a span waits for every earlier one it overlaps.
#[derive(Default)]
pub(super) struct RangeLocks {
    next: Cell<u64>,
    /// Waiting and held: (number, first byte, end).
    spans: RefCell<Vec<(u64, u64, u64)>>,
    changed: Event,
}

pub(super) struct RangeGuard<'a> {
    locks: &'a RangeLocks,
    own: u64,
}

impl RangeLocks {
    /// Waits until every earlier span that overlaps `start..end` is gone.
    pub(super) async fn lock(&self, start: u64, end: u64) -> RangeGuard<'_> {
        let own = self.next.get();
        self.next.set(own + 1);
        self.spans.borrow_mut().push((own, start, end));
        let guard = RangeGuard { locks: self, own };
        while self.is_blocked(own, start, end) {
            self.changed.wait().await;
        }
        guard
    }

    fn is_blocked(&self, own: u64, start: u64, end: u64) -> bool {
        let spans = self.spans.borrow();
        spans
            .iter()
            .any(|&(other, from, to)| other < own && from < end && start < to)
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut spans = self.locks.spans.borrow_mut();
        spans.retain(|&(number, ..)| number != self.own);
        drop(spans);
        self.locks.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn range_locks_are_served_in_order_and_let_strangers_pass() {
        env::Runtime::simulated(1).block_on(async {
            let locks = Rc::new(RangeLocks::default());
            let order: Rc<RefCell<Vec<u32>>> = Rc::default();
            let task = |who: u32, start: u64, end: u64| {
                let (locks, order) = (Rc::clone(&locks), Rc::clone(&order));
                env::spawn(async move {
                    let _guard = locks.lock(start, end).await;
                    env::sleep(base::Nanos(10)).await;
                    order.borrow_mut().push(who);
                })
            };
            let tasks = [
                task(1, 0, 8),
                task(2, 4, 12),
                task(3, 8, 16),
                task(4, 20, 30),
            ];
            for task in tasks {
                task.await;
            }
            // 3 overlaps only 2, but 2 came first; 4 overlaps none of them.
            assert_eq!(*order.borrow(), [1, 4, 2, 3]);
            assert!(locks.spans.borrow().is_empty());
        });
    }

    #[test]
    fn a_cancelled_waiter_leaves_the_line() {
        env::Runtime::simulated(1).block_on(async {
            let locks = RangeLocks::default();
            let held = locks.lock(0, 8).await;
            let waited = env::timeout(base::Nanos(5), locks.lock(0, 8)).await;
            assert!(waited.is_err());
            drop(held);
            drop(locks.lock(0, 8).await);
            assert!(locks.spans.borrow().is_empty());
        });
    }
}
