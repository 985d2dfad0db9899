//! What will happen in a flash device, and which reads are on their way out of it.
//!
//! Always true: what is due at one moment happens in the order in which it was announced.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use base::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The first row of a read is in the controller.
    Arrived(u32),
    /// A die is free, or has finished a program.
    Die(u32),
    /// A request is complete.
    Done(u64),
}

/// What will happen, by time, then by order of announcement.
#[derive(Default)]
pub(super) struct Events {
    queue: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    sequence: u64,
}

impl Events {
    #[inline]
    pub(super) fn at(&mut self, when: Instant, event: Event) {
        self.queue.push(Reverse((when, self.sequence, event)));
        self.sequence += 1;
    }

    #[inline]
    pub(super) fn next(&self) -> Option<(Instant, Event)> {
        self.queue
            .peek()
            .map(|&Reverse((at, _, event))| (at, event))
    }

    /// The next one has happened.
    #[inline]
    pub(super) fn pop(&mut self) {
        self.queue.pop();
    }
}

/// A read whose first row is on its way.
#[derive(Clone, Copy)]
pub(super) struct Arriving {
    pub(super) id: u64,
    pub(super) bytes: u64,
    pub(super) last_row: Instant,
}

/// The reads whose first row is on its way, by number.
#[derive(Default)]
pub(super) struct Arrivals {
    slots: Vec<Arriving>,
    free: Vec<u32>,
}

impl Arrivals {
    #[inline]
    pub(super) fn put(&mut self, arriving: Arriving) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = arriving;
                index
            }
            None => {
                self.slots.push(arriving);
                (self.slots.len() - 1) as u32
            }
        }
    }

    #[inline]
    pub(super) fn take(&mut self, index: u32) -> Arriving {
        self.free.push(index);
        self.slots[index as usize]
    }
}
