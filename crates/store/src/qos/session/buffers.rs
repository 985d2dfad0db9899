//! Buffer memory: how is it split among sessions, and which request of one is next to have some?
//!
//! Always true: the parts add up to no more than there is.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use base::Bytes;
use env::sync::Event;
use policy::share::{BytesPerSec, split_memory};

/// A session's part of the buffer memory.
pub(super) struct Buffers {
    part: Cell<Bytes>,
    used: Cell<Bytes>,
    /// The requests that wait for more of it.
    waiting: RefCell<VecDeque<u64>>,
    /// Some of it may be free.
    changed: Rc<Event>,
}

/// A request that waits for buffer memory of a session.
struct Place<'a> {
    buffers: &'a Buffers,
    number: u64,
}

impl Place<'_> {
    fn behind(buffers: &Buffers) -> Place<'_> {
        let mut waiting = buffers.waiting.borrow_mut();
        let number = waiting.back().map_or(0, |last| last + 1);
        waiting.push_back(number);
        Place { buffers, number }
    }

    fn is_first(&self) -> bool {
        self.buffers.waiting.borrow().front() == Some(&self.number)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.buffers.waiting.borrow_mut();
        waiting.retain(|number| *number != self.number);
        drop(waiting);
        self.buffers.changed.notify_all();
    }
}

impl Buffers {
    /// None of it yet; `changed` is notified when memory is split anew.
    pub fn new(changed: Rc<Event>) -> Buffers {
        Buffers {
            part: Cell::default(),
            used: Cell::default(),
            waiting: RefCell::default(),
            changed,
        }
    }

    /// Its part, as of now.
    pub fn part(&self) -> Bytes {
        self.part.get()
    }

    /// From now on.
    pub fn set_part(&self, part: Bytes) {
        self.part.set(part);
    }

    /// Waits for `bytes` of it, first come, first served. What is longer than the part is let through alone.
    pub async fn take(&self, bytes: Bytes) {
        let place = Place::behind(self);
        loop {
            let used = self.used.get();
            if place.is_first() && (used.0 == 0 || used + bytes <= self.part.get()) {
                self.used.set(used + bytes);
                return;
            }
            self.changed.wait().await;
        }
    }

    /// They are free again.
    pub fn give_back(&self, bytes: Bytes) {
        self.used.set(self.used.get() - bytes);
        self.changed.notify_all();
    }
}

/// Parts of `total` by rates; each has room for one longest write, unless there are so many sessions that this would
/// leave nothing to split by rates.
pub(super) fn parts(total: Bytes, write_max: u64, rates: &[BytesPerSec]) -> Vec<Bytes> {
    let floor = Bytes(write_max.min(total.0 / (2 * rates.len() as u64)));
    split_memory(total, floor, rates).expect("floors take half at most")
}
