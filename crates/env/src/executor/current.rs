//! Which executor runs on this thread, and how does a waker find the one it belongs to?
//!
//! A waker carries (executor, generation, index) packed into one word instead of a pointer, so cloning
//! one costs nothing and waking a task that has ended does nothing.

#![allow(unsafe_code)] // `RawWaker` has no safe constructor for wakers that own no memory.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::core::Core;
use crate::real::wake::Wake;

thread_local! {
    /// The executor that runs on this thread, or null. [`Entered`] keeps it alive.
    static CURRENT: Cell<*const Core> = const { Cell::new(std::ptr::null()) };
}

/// Executors of the process by id, so that a waker used on a foreign thread finds its inbox.
static INBOXES: Mutex<Vec<(u16, Arc<Inbox>)>> = Mutex::new(Vec::new());
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Calls `f` with the executor that runs on this thread, if one does.
pub(crate) fn try_current<T>(f: impl FnOnce(&Core) -> T) -> Option<T> {
    let core = CURRENT.get();
    // SAFETY: null, or set by `Entered` on this thread, which owns a count of the `Rc` and lives on the
    // stack below this call.
    unsafe { core.as_ref() }.map(f)
}

/// Calls `f` with the executor that runs on this thread.
pub(crate) fn with_current<T>(f: impl FnOnce(&Core) -> T) -> T {
    try_current(f).expect("called outside a runtime; wrap the call in `Runtime::block_on`")
}

/// Wakes a task that is likely another thread's, when the turn of this thread's executor ends: what is said to it within one
/// turn costs one wake. In virtual time, where there is no other thread, and outside a runtime: now.
pub(crate) fn wake_at_turn_end(waker: Waker) {
    let mut waker = Some(waker);
    try_current(|core| {
        if !core.is_simulated()
            && let Some(waker) = waker.take()
        {
            core.keep_wake(waker);
        }
    });
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Makes an executor this thread's current one, until dropped.
pub(super) struct Entered {
    before: *const Core,
    _core: Rc<Core>,
}

impl Entered {
    pub(super) fn new(core: &Rc<Core>) -> Entered {
        Entered {
            before: CURRENT.replace(Rc::as_ptr(core)),
            _core: Rc::clone(core),
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

/// Is no executor running on this thread?
pub(super) fn is_free() -> bool {
    CURRENT.get().is_null()
}

/// Wakes from other threads.
pub(super) struct Inbox {
    woken: Mutex<Vec<(u32, u32)>>,
    /// Spares the executor the lock while nothing is there.
    any: AtomicBool,
    /// Virtual time has none: it never waits.
    wake: Option<Arc<Wake>>,
}

impl Inbox {
    /// A new executor's, with its number.
    pub(super) fn register(wake: Option<Arc<Wake>>) -> (u16, Arc<Inbox>) {
        let inbox = Arc::new(Inbox {
            woken: Mutex::new(Vec::new()),
            any: AtomicBool::new(false),
            wake,
        });
        // Ids wrap after 65,535 runtimes; zero means "none", and a live one is never reused.
        let mut inboxes = INBOXES
            .lock()
            .expect("no code panics while it holds this lock");
        let id = loop {
            let id = NEXT_ID.fetch_add(1, Ordering::Relaxed) as u16;
            if id != 0 && inboxes.iter().all(|(other, _)| *other != id) {
                break id;
            }
        };
        inboxes.push((id, Arc::clone(&inbox)));
        (id, inbox)
    }

    /// Executor `id` has ended.
    pub(super) fn unregister(id: u16) {
        INBOXES
            .lock()
            .expect("no code panics while it holds this lock")
            .retain(|(other, _)| *other != id);
    }

    /// What was woken from other threads since the last look.
    #[inline]
    pub(super) fn take(&self) -> Option<Vec<(u32, u32)>> {
        // A load costs far less than a swap, and there is seldom anything.
        if !self.any.load(Ordering::Acquire) || !self.any.swap(false, Ordering::Acquire) {
            return None;
        }
        let mut woken = self
            .woken
            .lock()
            .expect("no code panics while it holds this lock");
        Some(std::mem::take(&mut *woken))
    }

    fn put(&self, index: u32, generation: u32) {
        self.woken
            .lock()
            .expect("no code panics while it holds this lock")
            .push((index, generation));
        self.any.store(true, Ordering::Release);
        self.unpark();
    }

    pub(super) fn unpark(&self) {
        if let Some(wake) = &self.wake {
            wake.notify();
        }
    }
}

// Packed word: executor 16 bits, generation 20 bits, index 28 bits.
pub(super) const INDEX_BITS: u32 = 28;
const GENERATION_BITS: u32 = 20;
pub(super) const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;

fn pack(executor: u16, generation: u32, index: u32) -> usize {
    ((executor as usize) << (INDEX_BITS + GENERATION_BITS))
        | ((generation as usize) << INDEX_BITS)
        | index as usize
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(
    |data| RawWaker::new(data, &VTABLE),
    |data| wake(data as usize),
    |data| wake(data as usize),
    |_| {},
);

#[inline]
pub(super) fn waker(executor: u16, generation: u32, index: u32) -> Waker {
    let data = std::ptr::without_provenance(pack(executor, generation, index));
    // SAFETY: the functions of VTABLE treat the pointer as a plain number and own nothing.
    unsafe { Waker::from_raw(RawWaker::new(data, &VTABLE)) }
}

fn wake(packed: usize) {
    let executor = (packed >> (INDEX_BITS + GENERATION_BITS)) as u16;
    let generation = (packed >> INDEX_BITS) as u32 & GENERATION_MASK;
    let index = packed as u32 & ((1 << INDEX_BITS) - 1);
    let here = try_current(|core| {
        let ours = core.id() == executor;
        if ours {
            core.tasks.make_ready(index, generation);
        }
        ours
    });
    if here == Some(true) {
        return;
    }
    let inbox = {
        let inboxes = INBOXES
            .lock()
            .expect("no code panics while it holds this lock");
        inboxes
            .iter()
            .find(|(id, _)| *id == executor)
            .map(|(_, inbox)| Arc::clone(inbox))
    };
    if let Some(inbox) = inbox {
        inbox.put(index, generation);
    }
}
