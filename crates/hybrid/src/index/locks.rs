//! Which tasks may change which pages at the same time?
//!
//! | under way | cache write | cleaning | exclusive |
//! |---|---|---|---|
//! | cache write | waits | goes on | waits |
//! | cleaning | goes on | waits | waits |
//! | exclusive | waits | waits | waits |
//!
//! A cache write goes out of place, so the cleaner may copy the old slot meanwhile; a write that goes past
//! the cache must meet neither. Reads take no lock. First come, first served among those that overlap.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// What the holder does; two holders of overlapping ranges must share no bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode(u8);

impl Mode {
    pub const CACHE_WRITE: Mode = Mode(1);
    pub const CLEANING: Mode = Mode(2);
    pub const EXCLUSIVE: Mode = Mode(3);
}

struct Entry {
    id: u64,
    first: u64,
    end: u64,
    mode: Mode,
    held: bool,
    waker: Option<Waker>,
}

impl Entry {
    fn conflicts(&self, other: &Entry) -> bool {
        self.first < other.end && other.first < self.end && self.mode.0 & other.mode.0 != 0
    }
}

#[derive(Default)]
struct Table {
    /// In the order they came.
    entries: Vec<Entry>,
    next_id: u64,
}

/// The pages under change.
#[derive(Default)]
pub(crate) struct PageLocks {
    table: RefCell<Table>,
}

/// Pages held; given up when dropped.
pub(crate) struct PageLock {
    locks: Rc<PageLocks>,
    id: u64,
}

impl PageLocks {
    /// Takes `pages` in `mode` if no holder is in the way; those who only wait may themselves be waiting
    /// for what the caller is about to do, so they do not count.
    pub fn try_acquire(self: &Rc<Self>, first: u64, end: u64, mode: Mode) -> Option<PageLock> {
        let held = self.enter(first, end, mode, true);
        let free = self
            .table
            .borrow()
            .entries
            .last()
            .is_some_and(|entry| entry.held);
        free.then_some(held)
    }

    fn enter(self: &Rc<Self>, first: u64, end: u64, mode: Mode, overtake: bool) -> PageLock {
        let mut table = self.table.borrow_mut();
        let id = table.next_id;
        table.next_id += 1;
        let mut entry = Entry {
            id,
            first,
            end,
            mode,
            held: false,
            waker: None,
        };
        entry.held = !table
            .entries
            .iter()
            .any(|earlier| (earlier.held || !overtake) && earlier.conflicts(&entry));
        table.entries.push(entry);
        PageLock {
            locks: Rc::clone(self),
            id,
        }
    }

    /// Waits until `pages` may be changed in `mode`.
    pub async fn acquire(self: &Rc<Self>, first: u64, end: u64, mode: Mode) -> PageLock {
        let held = self.enter(first, end, mode, false);
        std::future::poll_fn(|cx| {
            let mut table = held.locks.table.borrow_mut();
            let entry = table
                .entries
                .iter_mut()
                .find(|entry| entry.id == held.id)
                .expect("an entry stays until its holder drops");
            if entry.held {
                return Poll::Ready(());
            }
            entry.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        held
    }
}

impl Drop for PageLock {
    fn drop(&mut self) {
        let mut table = self.locks.table.borrow_mut();
        let place = table
            .entries
            .iter()
            .position(|entry| entry.id == self.id)
            .expect("an entry is removed once");
        let gone = table.entries.remove(place);
        for place in 0..table.entries.len() {
            // Blocked by those that came earlier, and by those that hold (an overtaker may have come later).
            let entry = &table.entries[place];
            // Only a task that waited for what is gone may have waited for it alone.
            let blocked = entry.held
                || !gone.conflicts(entry)
                || table.entries.iter().enumerate().any(|(at, other)| {
                    (at < place || at > place && other.held) && other.conflicts(entry)
                });
            if blocked {
                continue;
            }
            let entry = &mut table.entries[place];
            entry.held = true;
            if let Some(waker) = entry.waker.take() {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn order_of(asks: Vec<(u64, u64, Mode)>) -> Vec<usize> {
        env::Runtime::simulated(1).block_on(async move {
            let locks = Rc::new(PageLocks::default());
            let order = Rc::new(RefCell::new(Vec::new()));
            let left = Rc::new(Cell::new(asks.len()));
            let mut tasks = Vec::new();
            for (number, (first, end, mode)) in asks.into_iter().enumerate() {
                let (locks, order, left) = (Rc::clone(&locks), Rc::clone(&order), Rc::clone(&left));
                tasks.push(env::spawn(async move {
                    let _held = locks.acquire(first, end, mode).await;
                    order.borrow_mut().push(number);
                    env::sleep(base::Nanos(10)).await;
                    left.set(left.get() - 1);
                }));
            }
            for task in tasks {
                task.await;
            }
            assert!(locks.table.borrow().entries.is_empty());
            order.take()
        })
    }

    #[test]
    fn overlapping_writers_go_in_turn_and_strangers_at_once() {
        let w = Mode::CACHE_WRITE;
        assert_eq!(order_of(vec![(0, 4, w), (2, 6, w), (6, 8, w)]), [0, 2, 1]);
    }

    #[test]
    fn a_cache_write_does_not_wait_for_the_cleaner_but_a_bypass_does() {
        let asks = vec![
            (0, 4, Mode::CLEANING),
            (0, 4, Mode::EXCLUSIVE),
            (8, 9, Mode::CACHE_WRITE),
        ];
        assert_eq!(order_of(asks), [0, 2, 1]);
        assert_eq!(
            order_of(vec![(0, 4, Mode::CLEANING), (0, 4, Mode::CACHE_WRITE)]),
            [0, 1]
        );
    }

    #[test]
    fn a_waiter_does_not_overtake_an_earlier_one_that_conflicts() {
        let asks = vec![
            (0, 1, Mode::CACHE_WRITE),
            (0, 9, Mode::EXCLUSIVE),
            (5, 6, Mode::CACHE_WRITE),
        ];
        assert_eq!(order_of(asks), [0, 1, 2]);
    }
}
