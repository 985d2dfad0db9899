//! A bounded ring with one producer and one consumer, without locks, and a bell at each end.
//!
//! ```text
//! producer: write slot -> tail += 1 -> fence -> did the consumer leave its waker? take it: the caller wakes it
//! consumer: leave waker -> fence -> look at the tail again -> wait
//!           read slot  -> head += 1 -> fence -> did the producer leave its waker (full)? take it
//! ```
//!
//! Nothing here wakes by itself: wakers are handed to the caller, who wakes them when its turn ends. `loom` walks through the
//! interleavings of both ends (`tests/handover_ring.rs`).
//!
//! Always true:
//! 1. A slot belongs to the producer while it is outside `head..tail`, to the consumer while it is within.
//! 2. What is pushed comes out once, in order, or is dropped with the ring.
//! 3. An end that leaves its waker and then finds nothing new is woken by the next change, or by the other end's drop.

#![allow(unsafe_code)] // Slots and wakers change owner by the counters and states beside them; see the rules.

use std::mem::MaybeUninit;
use std::task::Waker;

use super::atomics::{Arc, AtomicBool, AtomicU8, AtomicUsize, Ordering, UnsafeCell, fence};

/// The waiter may leave its waker.
const FREE: u8 = 0;
/// The waker is there: each end may take it.
const ARMED: u8 = 1;
/// The other end takes it.
const RINGING: u8 = 2;

/// Where one end leaves its waker, and the other takes it.
struct Bell {
    state: AtomicU8,
    waker: UnsafeCell<Option<Waker>>,
}

// SAFETY: the states say which end may touch the waker, and a waker may be used on any thread.
unsafe impl Sync for Bell {}

impl Bell {
    fn new() -> Bell {
        Bell {
            state: AtomicU8::new(FREE),
            waker: UnsafeCell::new(None),
        }
    }

    /// The waiter's: leaves `waker`. False if the other end takes an older one at this moment: ask again.
    fn arm(&self, waker: &Waker) -> bool {
        let taken_back = self.disarm();
        if taken_back == RINGING {
            return false;
        }
        self.waker.with_mut(|place| {
            // SAFETY: FREE, or ARMED and taken back just now: until ARMED is stored below only the waiter touches it.
            let place = unsafe { &mut *place };
            if !place.as_ref().is_some_and(|old| old.will_wake(waker)) {
                *place = Some(waker.clone());
            }
        });
        self.state.store(ARMED, Ordering::Release);
        // Either the waiter sees the other end's change after this, or the other end sees ARMED.
        fence(Ordering::SeqCst);
        true
    }

    /// The waiter's: takes the waker back; the state before.
    fn disarm(&self) -> u8 {
        match self
            .state
            .compare_exchange(ARMED, FREE, Ordering::Acquire, Ordering::Acquire)
        {
            Ok(before) | Err(before) => before,
        }
    }

    /// The other end's, after a change: the waker, if the waiter left one.
    fn take(&self) -> Option<Waker> {
        fence(Ordering::SeqCst);
        // A look costs less than an exchange, and mostly there is none.
        if self.state.load(Ordering::Relaxed) != ARMED {
            return None;
        }
        self.state
            .compare_exchange(ARMED, RINGING, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        // SAFETY: RINGING: the waiter stays away until FREE is stored.
        let waker = self.waker.with_mut(|place| unsafe { (*place).take() });
        self.state.store(FREE, Ordering::Release);
        waker
    }
}

/// On a cache line pair of its own, so that the ends do not disturb each other.
#[repr(align(128))]
struct Apart<T>(T);

struct Shared<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// How many were taken so far, wrapping; only the consumer stores it.
    head: Apart<AtomicUsize>,
    /// How many were put in so far, wrapping; only the producer stores it.
    tail: Apart<AtomicUsize>,
    /// The consumer waits for items.
    items: Apart<Bell>,
    /// The producer waits for room.
    room: Apart<Bell>,
    producer_gone: AtomicBool,
    consumer_gone: AtomicBool,
}

// SAFETY: items move from one end to the other, which is what `T: Send` allows; slots change owner by head and tail.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above; no end ever lends an item out while it is in the ring.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    #[inline]
    fn slot(&self, count: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[count & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let tail = self.tail.0.load(Ordering::Acquire);
        let mut head = self.head.0.load(Ordering::Acquire);
        while head != tail {
            // SAFETY: within head..tail, and no end is left.
            self.slot(head)
                .with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            head = head.wrapping_add(1);
        }
    }
}

/// Why an item was not taken; here it is again.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused<T> {
    /// The ring is full.
    Full(T),
    /// The consumer is gone.
    Closed(T),
}

/// What a look into the ring found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<T> {
    Item(T),
    Nothing,
    /// Nothing, and the producer is gone.
    Closed,
}

/// The end that puts items in.
pub(super) struct In<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    /// The head as last seen: the ring has at least the room that follows from it.
    head: usize,
}

/// The end that takes items out.
pub(super) struct Out<T> {
    shared: Arc<Shared<T>>,
    head: usize,
    /// The tail as last seen.
    tail: usize,
}

/// A ring for `capacity` items, rounded up to a power of two.
pub(super) fn ring<T>(capacity: usize) -> (In<T>, Out<T>) {
    let capacity = capacity.max(1).next_power_of_two();
    let shared = Arc::new(Shared {
        slots: (0..capacity)
            .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
            .collect(),
        head: Apart(AtomicUsize::new(0)),
        tail: Apart(AtomicUsize::new(0)),
        items: Apart(Bell::new()),
        room: Apart(Bell::new()),
        producer_gone: AtomicBool::new(false),
        consumer_gone: AtomicBool::new(false),
    });
    let into = In {
        shared: Arc::clone(&shared),
        tail: 0,
        head: 0,
    };
    let out = Out {
        shared,
        head: 0,
        tail: 0,
    };
    (into, out)
}

impl<T> In<T> {
    /// Puts `item` in; the consumer's waker if it waits.
    pub(super) fn push(&mut self, item: T) -> Result<Option<Waker>, Refused<T>> {
        if self.shared.consumer_gone.load(Ordering::Acquire) {
            return Err(Refused::Closed(item));
        }
        if !self.has_room() {
            return Err(Refused::Full(item));
        }
        self.shared.slot(self.tail).with_mut(|slot| {
            // SAFETY: outside head..tail, so the slot is ours, and empty.
            unsafe { (*slot).write(item) };
        });
        self.tail = self.tail.wrapping_add(1);
        self.shared.tail.0.store(self.tail, Ordering::Release);
        Ok(self.shared.items.0.take())
    }

    /// Leaves `waker` for the next room; false if there is room now, the consumer is gone, or it has to be asked again.
    pub(super) fn wait_for_room(&mut self, waker: &Waker) -> bool {
        if !self.shared.room.0.arm(waker) {
            return false;
        }
        if self.has_room() || self.shared.consumer_gone.load(Ordering::Acquire) {
            self.shared.room.0.disarm();
            return false;
        }
        true
    }

    fn has_room(&mut self) -> bool {
        let capacity = self.shared.slots.len();
        if self.tail.wrapping_sub(self.head) == capacity {
            self.head = self.shared.head.0.load(Ordering::Acquire);
        }
        self.tail.wrapping_sub(self.head) < capacity
    }

    /// Nothing more will come; the consumer's waker if it waits. To be called before the drop.
    pub(super) fn close(&mut self) -> Option<Waker> {
        self.shared.producer_gone.store(true, Ordering::Release);
        self.shared.items.0.take()
    }
}

impl<T> Out<T> {
    /// Takes an item out; with the producer's waker if it waits for room.
    pub(super) fn pop(&mut self) -> (Found<T>, Option<Waker>) {
        if self.head == self.tail {
            // Before the tail: what was put in before the producer went is seen.
            let gone = self.shared.producer_gone.load(Ordering::Acquire);
            self.tail = self.shared.tail.0.load(Ordering::Acquire);
            if self.head == self.tail {
                return match gone {
                    true => (Found::Closed, None),
                    false => (Found::Nothing, None),
                };
            }
        }
        // SAFETY: within head..tail, so the slot is ours, and full; the new head makes it empty.
        let item = self
            .shared
            .slot(self.head)
            .with_mut(|slot| unsafe { (*slot).assume_init_read() });
        self.head = self.head.wrapping_add(1);
        self.shared.head.0.store(self.head, Ordering::Release);
        (Found::Item(item), self.shared.room.0.take())
    }

    /// Leaves `waker` for the next item; false if there is one now, the producer is gone, or it has to be asked again.
    pub(super) fn wait_for_item(&mut self, waker: &Waker) -> bool {
        if !self.shared.items.0.arm(waker) {
            return false;
        }
        let gone = self.shared.producer_gone.load(Ordering::Acquire);
        self.tail = self.shared.tail.0.load(Ordering::Acquire);
        if gone || self.head != self.tail {
            self.shared.items.0.disarm();
            return false;
        }
        true
    }

    /// Nothing more will be taken out; the producer's waker if it waits. To be called before the drop.
    pub(super) fn close(&mut self) -> Option<Waker> {
        self.shared.consumer_gone.store(true, Ordering::Release);
        self.shared.room.0.take()
    }
}
