//! The tasks of an executor: which are ready, in which order, and which slots are free?
//!
//! Always true:
//! 1. A task is in the ready queue at most once.
//! 2. A slot's generation changes when its task ends: what names the ended one names nothing.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;

use super::current::{GENERATION_MASK, INDEX_BITS};

pub(super) type BoxedTask = Pin<Box<dyn Future<Output = ()>>>;

struct Slot {
    generation: u32,
    /// The simulated host the task runs on.
    host: u32,
    queued: bool,
    live: bool,
    future: Option<BoxedTask>,
}

/// All tasks.
#[derive(Default)]
pub(super) struct Slots {
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    ready: RefCell<VecDeque<(u32, u32)>>,
    /// The host of the task that runs now; tasks it spawns are born there.
    pub(super) host: Cell<u32>,
}

impl Slots {
    #[inline]
    pub(super) fn make_ready(&self, index: u32, generation: u32) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(index as usize) else {
            return;
        };
        if slot.live && slot.generation == generation && !slot.queued {
            slot.queued = true;
            self.ready.borrow_mut().push_back((index, generation));
        }
    }

    #[inline]
    pub(super) fn insert(&self, future: BoxedTask) -> (u32, u32) {
        let mut slots = self.slots.borrow_mut();
        let index = match self.free.borrow_mut().pop() {
            Some(index) => index,
            None => {
                assert!(
                    slots.len() < 1 << INDEX_BITS,
                    "more than 2^28 tasks at once"
                );
                slots.push(Slot {
                    generation: 0,
                    host: 0,
                    queued: false,
                    live: false,
                    future: None,
                });
                (slots.len() - 1) as u32
            }
        };
        let slot = &mut slots[index as usize];
        slot.live = true;
        slot.queued = true;
        slot.host = self.host.get();
        slot.future = Some(future);
        let generation = slot.generation;
        drop(slots);
        self.ready.borrow_mut().push_back((index, generation));
        (index, generation)
    }

    /// Ends a task; returns its future, to be dropped by the caller with no borrow held.
    #[inline]
    pub(super) fn retire(&self, index: u32, generation: u32) -> Option<BoxedTask> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(index as usize)?;
        if !slot.live || slot.generation != generation {
            return None;
        }
        slot.live = false;
        slot.queued = false;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        self.free.borrow_mut().push(index);
        slot.future.take()
    }

    /// The next task in the queue.
    #[inline]
    pub(super) fn next_ready(&self) -> Option<(u32, u32)> {
        self.ready.borrow_mut().pop_front()
    }

    /// Does a task wait in the queue?
    #[inline]
    pub(super) fn any_ready(&self) -> bool {
        !self.ready.borrow().is_empty()
    }

    /// A task that was ready runs now: gives its future out, until [`Slots::put_back`] or [`Slots::retire`].
    #[inline]
    pub(super) fn take(&self, index: u32, generation: u32) -> Option<BoxedTask> {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[index as usize];
        if !slot.live || slot.generation != generation {
            return None;
        }
        slot.queued = false;
        self.host.set(slot.host);
        slot.future.take()
    }

    /// A task that ran waits. One that cancelled itself while it ran is dropped.
    #[inline]
    pub(super) fn put_back(&self, index: u32, generation: u32, future: BoxedTask) {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[index as usize];
        if slot.live && slot.generation == generation {
            slot.future = Some(future);
        } else {
            drop(slots);
            drop(future);
        }
    }

    /// The tasks of `host` that have not ended.
    pub(super) fn of_host(&self, host: u32) -> Vec<(u32, u32)> {
        let slots = self.slots.borrow();
        (0u32..)
            .zip(slots.iter())
            .filter(|(_, slot)| slot.live && slot.host == host)
            .map(|(index, slot)| (index, slot.generation))
            .collect()
    }

    /// Ends every task; their futures, to be dropped with no borrow held.
    pub(super) fn retire_all(&self) -> Vec<BoxedTask> {
        let mut slots = self.slots.borrow_mut();
        slots
            .iter_mut()
            .filter_map(|slot| {
                slot.live = false;
                slot.future.take()
            })
            .collect()
    }
}
