//! The executor: which task runs next, and when does time move on?
//!
//! ```text
//! ready queue (FIFO) -> poll -> due timers -> park in the driver -> ready queue ...
//! ```
//!
//! A waker carries (executor, generation, index) packed into one word instead of a pointer, so cloning
//! one costs nothing and waking a task that has ended does nothing.

#![allow(unsafe_code)] // `RawWaker` has no safe constructor for wakers that own no memory.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use base::{Instant, Map};

/// What moves time on and brings news from outside.
pub(crate) trait Driver {
    /// The present moment.
    fn now(&self) -> Instant;
    /// Nothing is ready: wait until `until` (for ever if `None`), or until something outside happens.
    /// Returns false if nothing can ever happen again.
    fn park(&self, until: Option<Instant>) -> bool;
    /// Called between batches of ready tasks so that completions are not starved; must not wait.
    fn poll(&self) {}
    /// How another thread interrupts `park`.
    fn unparker(&self) -> Box<dyn Fn() + Send + Sync>;
    /// For the parts of this crate that need the concrete driver.
    fn as_any(&self) -> &dyn Any;
}

type BoxedTask = Pin<Box<dyn Future<Output = ()>>>;

struct Slot {
    generation: u32,
    queued: bool,
    live: bool,
    future: Option<BoxedTask>,
}

struct Timer {
    deadline: Instant,
    sequence: u64,
    waker: Waker,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        (self.deadline, self.sequence) == (other.deadline, other.sequence)
    }
}
impl Eq for Timer {}
impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timer {
    /// Reversed: the heap's greatest is the earliest deadline, then the first asked for.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.deadline, other.sequence).cmp(&(self.deadline, self.sequence))
    }
}

/// One executor; lives on one thread.
pub(crate) struct Core {
    // Fixed.
    id: u16,
    seed: u64,
    simulated: bool,
    pub(crate) driver: Box<dyn Driver>,
    inbox: Arc<Inbox>,
    // Per run.
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    ready: RefCell<VecDeque<(u32, u32)>>,
    timers: RefCell<BinaryHeap<Timer>>,
    sequence: Cell<u64>,
    hash: Cell<u64>,
    steps: Cell<u64>,
    streams: RefCell<Map<String, u64>>,
    /// Typed per-run state of other parts of this crate (the simulated network).
    pub(crate) extras: RefCell<Vec<Rc<dyn Any>>>,
}

struct Inbox {
    woken: Mutex<Vec<(u32, u32)>>,
    unpark: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
    static CURRENT_ID: Cell<u16> = const { Cell::new(0) };
}

/// Executors of the process by id, so that a waker used on a foreign thread finds its inbox.
static INBOXES: Mutex<Vec<(u16, Arc<Inbox>)>> = Mutex::new(Vec::new());
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

pub(crate) fn current() -> Rc<Core> {
    CURRENT.with(|current| {
        current
            .borrow()
            .as_ref()
            .map(Rc::clone)
            .expect("called outside a runtime; wrap the call in `Runtime::block_on`")
    })
}

fn with_current<T>(f: impl FnOnce(&Core) -> T) -> T {
    CURRENT.with(|current| {
        let current = current.borrow();
        f(current
            .as_ref()
            .expect("called outside a runtime; wrap the call in `Runtime::block_on`"))
    })
}

// --- wakers ---------------------------------------------------------------------------------------

// Packed word: executor 16 bits, generation 20 bits, index 28 bits.
const INDEX_BITS: u32 = 28;
const GENERATION_BITS: u32 = 20;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;

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

fn waker(executor: u16, generation: u32, index: u32) -> Waker {
    let data = std::ptr::without_provenance(pack(executor, generation, index));
    // SAFETY: the functions of VTABLE treat the pointer as a plain number and own nothing.
    unsafe { Waker::from_raw(RawWaker::new(data, &VTABLE)) }
}

fn wake(packed: usize) {
    let executor = (packed >> (INDEX_BITS + GENERATION_BITS)) as u16;
    let generation = (packed >> INDEX_BITS) as u32 & GENERATION_MASK;
    let index = packed as u32 & ((1 << INDEX_BITS) - 1);
    if CURRENT_ID.get() == executor {
        with_current(|core| core.make_ready(index, generation));
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
        inbox
            .woken
            .lock()
            .expect("no code panics while it holds this lock")
            .push((index, generation));
        if let Some(unpark) = inbox.unpark.get() {
            unpark();
        }
    }
}

impl Core {
    fn make_ready(&self, index: u32, generation: u32) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(index as usize) else {
            return;
        };
        if slot.live && slot.generation == generation && !slot.queued {
            slot.queued = true;
            self.ready.borrow_mut().push_back((index, generation));
        }
    }

    fn insert(&self, future: BoxedTask) -> (u32, u32) {
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
        slot.future = Some(future);
        let generation = slot.generation;
        drop(slots);
        self.ready.borrow_mut().push_back((index, generation));
        (index, generation)
    }

    /// Ends a task; returns its future, to be dropped by the caller with no borrow held.
    fn retire(&self, index: u32, generation: u32) -> Option<BoxedTask> {
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

    fn run_one(&self, index: u32, generation: u32) {
        let future = {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[index as usize];
            if !slot.live || slot.generation != generation {
                return;
            }
            slot.queued = false;
            slot.future.take()
        };
        let Some(mut future) = future else {
            return;
        };
        self.steps.set(self.steps.get() + 1);
        if self.simulated {
            let step = self.driver.now().0 ^ ((index as u64) << 40) ^ generation as u64;
            // One round of a multiply-xorshift mix is enough to tell two runs apart.
            let mixed = (self.hash.get() ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.hash.set(mixed ^ (mixed >> 29));
        }
        let waker = waker(self.id, generation, index);
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(()) => {
                drop(future);
                self.retire(index, generation);
            }
            Poll::Pending => {
                let mut slots = self.slots.borrow_mut();
                let slot = &mut slots[index as usize];
                if slot.live && slot.generation == generation {
                    slot.future = Some(future);
                } else {
                    // Cancelled itself while running.
                    drop(slots);
                    drop(future);
                }
            }
        }
    }

    fn drain_inbox(&self) {
        let woken = std::mem::take(
            &mut *self
                .inbox
                .woken
                .lock()
                .expect("no code panics while it holds this lock"),
        );
        for (index, generation) in woken {
            self.make_ready(index, generation);
        }
    }

    fn fire_due(&self) {
        let now = self.driver.now();
        loop {
            let due = {
                let mut timers = self.timers.borrow_mut();
                match timers.peek() {
                    Some(timer) if timer.deadline <= now => timers.pop(),
                    _ => None,
                }
            };
            match due {
                Some(timer) => timer.waker.wake(),
                None => return,
            }
        }
    }

    /// Registers `waker` to be woken at `deadline`.
    pub(crate) fn at(&self, deadline: Instant, waker: &Waker) {
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        self.timers.borrow_mut().push(Timer {
            deadline,
            sequence,
            waker: waker.clone(),
        });
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// How many generators the named stream has handed out so far.
    pub(crate) fn next_of_stream(&self, stream: &str) -> u64 {
        let mut streams = self.streams.borrow_mut();
        let count = streams.entry(stream.to_owned()).or_insert(0);
        *count += 1;
        *count - 1
    }
}

// --- the runtime ------------------------------------------------------------------------------------

/// An executor with its driver. Make one with [`Runtime::simulated`] or `Runtime::real`.
///
/// # Example
/// ```
/// use base::Nanos;
/// let runtime = env::Runtime::simulated(7);
/// let waited = runtime.block_on(async {
///     let start = env::now();
///     env::sleep(Nanos::secs(3600)).await;
///     env::now().since(start)
/// });
/// assert_eq!(waited, Nanos::secs(3600)); // and no time has passed for you
/// ```
pub struct Runtime {
    core: Rc<Core>,
}

/// Tells an executor from another thread to run something on its own thread.
#[derive(Clone)]
pub struct Remote {
    inbox: Arc<Inbox>,
}

impl Remote {
    /// Interrupts the executor's wait, so that it looks at its channels.
    pub fn unpark(&self) {
        if let Some(unpark) = self.inbox.unpark.get() {
            unpark();
        }
    }
}

impl Runtime {
    /// A runtime in virtual time: the clock starts at zero and moves only when every task waits.
    /// All chance comes from `seed`.
    pub fn simulated(seed: u64) -> Runtime {
        Runtime::with_driver(Box::new(crate::time::VirtualClock::default()), seed, true)
    }

    pub(crate) fn with_driver(driver: Box<dyn Driver>, seed: u64, simulated: bool) -> Runtime {
        // Ids wrap after 65,535 runtimes; zero means "none", and a live one is never reused.
        let inbox = Arc::new(Inbox {
            woken: Mutex::new(Vec::new()),
            unpark: OnceLock::new(),
        });
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
        drop(inboxes);
        let _ = inbox.unpark.set(driver.unparker());
        Runtime {
            core: Rc::new(Core {
                id,
                seed,
                simulated,
                driver,
                inbox,
                slots: RefCell::default(),
                free: RefCell::default(),
                ready: RefCell::default(),
                timers: RefCell::default(),
                sequence: Cell::new(0),
                hash: Cell::new(seed),
                steps: Cell::new(0),
                streams: RefCell::default(),
                extras: RefCell::default(),
            }),
        }
    }

    /// Runs `future` to its end on this thread, with every task it spawns.
    ///
    /// Tasks still waiting when it ends stay where they are; a later `block_on` goes on with them.
    ///
    /// # Panics
    /// If called inside a runtime, or (virtual time) if every task waits for something that can no
    /// longer happen.
    pub fn block_on<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let _entered = Entered::new(&self.core);
        let core = &self.core;
        let result: Rc<RefCell<Option<T>>> = Rc::default();
        let place = Rc::clone(&result);
        core.insert(Box::pin(async move {
            let value = future.await;
            *place.borrow_mut() = Some(value);
        }));
        // A batch bounds how long completions wait behind tasks that keep waking each other.
        const BATCH: usize = 256;
        loop {
            core.drain_inbox();
            let mut ran = 0;
            while ran < BATCH {
                let next = core.ready.borrow_mut().pop_front();
                let Some((index, generation)) = next else {
                    break;
                };
                core.run_one(index, generation);
                ran += 1;
                if let Some(value) = result.borrow_mut().take() {
                    return value;
                }
            }
            core.driver.poll();
            core.fire_due();
            if !core.ready.borrow().is_empty() {
                continue;
            }
            let until = core.timers.borrow().peek().map(|timer| timer.deadline);
            let alive = core.driver.park(until);
            core.fire_due();
            if !alive && core.ready.borrow().is_empty() {
                core.drain_inbox();
                assert!(
                    !core.ready.borrow().is_empty(),
                    "every task waits and no timer is set: nothing can ever happen again \
                     (at {:?}, seed {})",
                    core.driver.now(),
                    core.seed
                );
            }
        }
    }

    /// A digest of every step taken so far: which task ran at which nanosecond. Virtual time only.
    pub fn trace_hash(&self) -> u64 {
        self.core.hash.get()
    }

    /// A handle for other threads.
    pub fn remote(&self) -> Remote {
        Remote {
            inbox: Arc::clone(&self.core.inbox),
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // Futures may touch the runtime while they drop: enter it, and drop them with no borrow held.
        let entered = Entered::new(&self.core);
        let futures: Vec<BoxedTask> = self
            .core
            .slots
            .borrow_mut()
            .iter_mut()
            .filter_map(|slot| {
                slot.live = false;
                slot.future.take()
            })
            .collect();
        drop(futures);
        self.core.timers.borrow_mut().clear();
        self.core.extras.borrow_mut().clear();
        drop(entered);
        INBOXES
            .lock()
            .expect("no code panics while it holds this lock")
            .retain(|(id, _)| *id != self.core.id);
    }
}

struct Entered;

impl Entered {
    fn new(core: &Rc<Core>) -> Entered {
        CURRENT.with(|current| {
            let mut current = current.borrow_mut();
            assert!(
                current.is_none(),
                "a runtime is running on this thread already"
            );
            *current = Some(Rc::clone(core));
        });
        CURRENT_ID.set(core.id);
        Entered
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT_ID.set(0);
        CURRENT.with(|current| *current.borrow_mut() = None);
    }
}

// --- tasks ------------------------------------------------------------------------------------------

struct TaskState<T> {
    value: Option<T>,
    done: bool,
    waiter: Option<Waker>,
}

/// A spawned task. Await it for its result; dropping it lets the task run on alone.
pub struct Task<T> {
    state: Rc<RefCell<TaskState<T>>>,
    index: u32,
    generation: u32,
}

impl<T> Task<T> {
    /// Ends the task where it stands; what it holds is dropped. Ended already: nothing happens.
    pub fn cancel(&self) {
        let future = with_current(|core| core.retire(self.index, self.generation));
        drop(future);
    }

    /// Has the task come to its end?
    pub fn is_done(&self) -> bool {
        self.state.borrow().done
    }
}

impl<T> Future for Task<T> {
    type Output = T;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.state.borrow_mut();
        if let Some(value) = state.value.take() {
            return Poll::Ready(value);
        }
        assert!(!state.done, "a task's result is taken once");
        state.waiter = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Starts `future` as a task of its own on this thread's runtime.
pub fn spawn<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> {
    let state = Rc::new(RefCell::new(TaskState {
        value: None,
        done: false,
        waiter: None,
    }));
    let place = Rc::clone(&state);
    let (index, generation) = with_current(|core| {
        core.insert(Box::pin(async move {
            let value = future.await;
            let waiter = {
                let mut state = place.borrow_mut();
                state.value = Some(value);
                state.done = true;
                state.waiter.take()
            };
            if let Some(waiter) = waiter {
                waiter.wake();
            }
        }))
    });
    Task {
        state,
        index,
        generation,
    }
}

/// Cancels a task when it goes out of scope.
pub struct CancelOnDrop<T>(Task<T>);

impl<T> Drop for CancelOnDrop<T> {
    fn drop(&mut self) {
        let inside = CURRENT_ID.get() != 0;
        if inside {
            self.0.cancel();
        }
    }
}

/// Ties `task` to a scope: when the returned guard drops, the task ends.
pub fn cancel_scope<T>(task: Task<T>) -> CancelOnDrop<T> {
    CancelOnDrop(task)
}

/// The present moment of this thread's runtime.
pub fn now() -> Instant {
    with_current(|core| core.driver.now())
}

/// Does this thread's runtime run in virtual time?
pub fn is_simulated() -> bool {
    with_current(|core| core.simulated)
}

/// How many times a task has been run so far (for benchmarks of the executor).
pub fn events() -> u64 {
    with_current(|core| core.steps.get())
}

/// Lets every task that is ready now run before the caller goes on.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
