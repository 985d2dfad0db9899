//! How many blocks may stay on the fast device, and who waits for room there?
//!
//! ```text
//! slots = spare (writes out of place) + held (reserved for extents) + blocks of the cache
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;

use env::sync::Event;

/// How many blocks `slots` slots give room for, leaving `taken` of them.
pub(crate) fn frames_for(slots: u32, taken: u32, pages_per_block: u64) -> u32 {
    (u64::from(slots - taken) / pages_per_block).max(1) as u32
}

/// Slots held back from residents, for out-of-place writes.
pub(crate) fn spare_for(slots: u32) -> u32 {
    (slots / 50).max(16.min(slots / 4)).max(1)
}

/// The room of one attached fast device.
pub(crate) struct Room {
    slots: Cell<u32>,
    frames_max: Cell<u32>,
    pages_per_block: Cell<u64>,
    /// Slots reserved for extents.
    held: Cell<u64>,
    /// Block frames held ready for writes and fills under way.
    reserved: Cell<u32>,
    /// Slots, frames or the condition changed.
    changed: Event,
    /// Writers waiting for slots, in the order they came.
    takers: RefCell<Turns>,
}

impl Room {
    pub fn new(slots: u32, pages_per_block: u64) -> Room {
        Room {
            slots: Cell::new(slots),
            frames_max: Cell::new(frames_for(slots, spare_for(slots), pages_per_block)),
            pages_per_block: Cell::new(pages_per_block),
            held: Cell::new(0),
            reserved: Cell::new(0),
            changed: Event::default(),
            takers: RefCell::default(),
        }
    }

    /// Other slots or another block size: how many blocks may stay.
    pub fn set(&self, slots: u32, pages_per_block: u64) {
        self.slots.set(slots);
        self.pages_per_block.set(pages_per_block);
        self.hold(self.held.get());
    }

    /// So many slots are reserved for extents from now on; the cache has the rest.
    pub fn hold(&self, held: u64) {
        self.held.set(held);
        self.frames_max.set(self.frames_beside(held));
        self.notify_all();
    }

    /// How many blocks may stay beside `held` slots for extents.
    pub fn frames_beside(&self, held: u64) -> u32 {
        let slots = self.slots.get();
        let taken = u64::from(spare_for(slots)) + held;
        let taken = taken.min(u64::from(slots)) as u32;
        frames_for(slots, taken, self.pages_per_block.get())
    }

    /// How many blocks may stay now.
    pub fn frames_max(&self) -> u32 {
        self.frames_max.get()
    }

    /// Pages that the cache may hold now.
    pub fn cache_pages(&self) -> u64 {
        u64::from(self.frames_max.get()) * self.pages_per_block.get()
    }

    /// Slots that data may stay in: all but the spares.
    pub fn data_slots(&self) -> u64 {
        let slots = self.slots.get();
        u64::from(slots - spare_for(slots))
    }

    /// Slots held back for writes out of place.
    pub fn spare(&self) -> u32 {
        spare_for(self.slots.get())
    }

    /// Pages one write may take at once and still leave room for others.
    pub fn chunk_pages(&self) -> u64 {
        u64::from((self.spare() / 4).clamp(1, 256))
    }

    /// Block frames held ready.
    pub fn reserved(&self) -> u32 {
        self.reserved.get()
    }

    pub fn reserve(&self, frames: u32) {
        self.reserved.set(self.reserved.get() + frames);
    }

    pub fn unreserve(&self, frames: u32) {
        self.reserved.set(self.reserved.get() - frames);
    }

    /// Waits for the next change.
    pub fn wait(&self) -> impl Future<Output = ()> + '_ {
        self.changed.wait()
    }

    /// Slots, frames or the condition changed.
    pub fn notify_all(&self) {
        self.changed.notify_all();
    }

    /// A place in the line of those who take slots.
    pub fn line_up(&self) -> Turn<'_> {
        Turn::new(&self.takers)
    }
}

/// The tasks that wait, in order.
#[derive(Default)]
struct Turns {
    next: u64,
    waiting: VecDeque<u64>,
}

/// A place in a line; left when dropped.
pub(crate) struct Turn<'a> {
    line: &'a RefCell<Turns>,
    number: u64,
}

impl<'a> Turn<'a> {
    fn new(line: &'a RefCell<Turns>) -> Turn<'a> {
        let mut turns = line.borrow_mut();
        let number = turns.next;
        turns.next += 1;
        turns.waiting.push_back(number);
        Turn { line, number }
    }

    pub fn is_first(&self) -> bool {
        self.line.borrow().waiting.front() == Some(&self.number)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.line
            .borrow_mut()
            .waiting
            .retain(|number| *number != self.number);
    }
}
