//! Which changes may touch which pages of an object at the same time?
//!
//! A change that keeps a part of a page reads it, adds to it and writes it elsewhere; no other change may touch that
//! page meanwhile. So every change holds its pages. First come, first served among those that overlap. Reads hold
//! nothing: the pages they saw stay until they are done (`space.rs`).

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use env::sync::Event;

struct Ticket {
    number: u64,
    object: u32,
    pages: Range<u64>,
}

/// The pages under change.
#[derive(Default)]
pub(crate) struct Locks {
    /// In the order they came.
    tickets: RefCell<Vec<Ticket>>,
    next: Cell<u64>,
    freed: Event,
}

/// Pages held; given up when dropped.
pub(crate) struct PageLock {
    locks: Rc<Locks>,
    number: u64,
}

impl Locks {
    /// Waits for all that came before and overlap.
    pub async fn acquire(self: &Rc<Self>, object: u32, pages: Range<u64>) -> PageLock {
        let number = self.next.get();
        self.next.set(number + 1);
        let ticket = Ticket {
            number,
            object,
            pages: pages.clone(),
        };
        self.tickets.borrow_mut().push(ticket);
        let held = PageLock {
            locks: Rc::clone(self),
            number,
        };
        let in_the_way = || {
            let tickets = self.tickets.borrow();
            tickets
                .iter()
                .take_while(|one| one.number != number)
                .any(|one| {
                    one.object == object
                        && one.pages.start < pages.end
                        && pages.start < one.pages.end
                })
        };
        while in_the_way() {
            self.freed.wait().await;
        }
        held
    }
}

impl Drop for PageLock {
    fn drop(&mut self) {
        let mut tickets = self.locks.tickets.borrow_mut();
        tickets.retain(|one| one.number != self.number);
        drop(tickets);
        self.locks.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_changes_go_one_by_one_in_the_order_they_came() {
        env::Runtime::simulated(1).block_on(async {
            let locks: Rc<Locks> = Rc::default();
            let order: Rc<RefCell<Vec<u32>>> = Rc::default();
            let first = locks.acquire(1, 0..4).await;
            let mut tasks = Vec::new();
            for (name, object, pages) in [(1, 1, 3..9), (2, 1, 8..9), (3, 2, 0..9), (4, 1, 20..30)]
            {
                let (locks, order) = (Rc::clone(&locks), Rc::clone(&order));
                tasks.push(env::spawn(async move {
                    let _held = locks.acquire(object, pages).await;
                    order.borrow_mut().push(name);
                    env::yield_now().await;
                }));
            }
            env::yield_now().await;
            env::yield_now().await;
            assert_eq!(*order.borrow(), [3, 4]);
            drop(first);
            for task in tasks {
                task.await;
            }
            assert_eq!(*order.borrow(), [3, 4, 1, 2]);
            assert!(locks.tickets.borrow().is_empty());
        });
    }
}
