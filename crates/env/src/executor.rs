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
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use base::{Instant, Map, Nanos};

use crate::clocks::Ahead;
use crate::real::wake::Wake;
use crate::real::{Reactor, RealConfig};
use crate::time::VirtualClock;
use crate::timers::{TimerId, Timers};

/// What moves time on and takes in events from outside.
pub(crate) enum Driver {
    /// Nothing is outside; time jumps.
    Virtual(VirtualClock),
    /// The kernel's clock, files and sockets.
    Real(Rc<Reactor>),
}

impl Driver {
    fn now(&self) -> Instant {
        match self {
            Driver::Virtual(clock) => clock.now(),
            Driver::Real(reactor) => reactor.now(),
        }
    }
}

type BoxedTask = Pin<Box<dyn Future<Output = ()>>>;

struct Slot {
    generation: u32,
    /// The simulated host the task runs on.
    host: u32,
    queued: bool,
    live: bool,
    future: Option<BoxedTask>,
}

/// A host's clock: right at one moment, and faster or slower from there on.
#[derive(Clone, Copy)]
struct HostClock {
    from: Instant,
    shown: Instant,
    /// What it moves on while a million nanoseconds pass.
    rate: u64,
}

impl HostClock {
    fn shown(self, now: Instant) -> Instant {
        let passed = u128::from(now.since(self.from).0) * u128::from(self.rate) / 1_000_000;
        self.shown + Nanos(passed as u64)
    }

    /// The first moment at which it shows `moment`.
    fn truly(self, moment: Instant) -> Instant {
        let left = u128::from(moment.since(self.shown).0) * 1_000_000;
        self.from + Nanos(left.div_ceil(u128::from(self.rate)) as u64)
    }
}

/// One executor; lives on one thread.
pub(crate) struct Core {
    // Fixed.
    id: u16,
    seed: u64,
    simulated: bool,
    driver: Driver,
    inbox: Arc<Inbox>,
    // Per run.
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    ready: RefCell<VecDeque<(u32, u32)>>,
    timers: RefCell<Timers<Waker>>,
    hash: Cell<u64>,
    steps: Cell<u64>,
    streams: RefCell<Map<String, u64>>,
    /// The host of the task that runs now; tasks it spawns are born there.
    host: Cell<u32>,
    /// Clocks that are not the virtual one, by host.
    clocks: RefCell<Map<u32, HostClock>>,
    /// Are there any?
    drifts: Cell<bool>,
    /// Does [`crate::caught`] catch? In virtual time only when asked to, so that no test misses a panic.
    pub(crate) catch: Cell<crate::catch::Catch>,
    /// What other clocks of hosts show beyond that.
    ahead: RefCell<Map<u32, Ahead>>,
    /// Typed per-run state of other parts of this crate (the simulated network).
    pub(crate) extras: RefCell<Vec<Rc<dyn Any>>>,
}

/// Wakes from other threads.
struct Inbox {
    woken: Mutex<Vec<(u32, u32)>>,
    /// Spares the executor the lock while nothing is there.
    any: AtomicBool,
    /// Virtual time has none: it never waits.
    wake: Option<Arc<Wake>>,
}

impl Inbox {
    fn unpark(&self) {
        if let Some(wake) = &self.wake {
            wake.notify();
        }
    }
}

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
    let here = try_current(|core| {
        let ours = core.id == executor;
        if ours {
            core.make_ready(index, generation);
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
        inbox
            .woken
            .lock()
            .expect("no code panics while it holds this lock")
            .push((index, generation));
        inbox.any.store(true, Ordering::Release);
        inbox.unpark();
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

    /// Runs one task; did it come to its end?
    fn run_one(&self, index: u32, generation: u32) -> bool {
        let mut future = {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[index as usize];
            if !slot.live || slot.generation != generation {
                return false;
            }
            slot.queued = false;
            self.host.set(slot.host);
            match slot.future.take() {
                Some(future) => future,
                None => return false,
            }
        };
        self.steps.set(self.steps.get() + 1);
        if self.simulated {
            self.mix(self.driver.now().0 ^ (u64::from(index) << 40) ^ u64::from(generation));
        }
        let waker = waker(self.id, generation, index);
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(()) => {
                drop(future);
                self.retire(index, generation);
                true
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
                false
            }
        }
    }

    /// Adds something that happened to the trace hash.
    pub(crate) fn mix(&self, step: u64) {
        // One round of a multiply-xorshift mix is enough to distinguish two runs.
        let mixed = (self.hash.get() ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.hash.set(mixed ^ (mixed >> 29));
    }

    fn drain_inbox(&self) {
        // A load costs far less than a swap, and there is seldom anything.
        if !self.inbox.any.load(Ordering::Acquire) || !self.inbox.any.swap(false, Ordering::Acquire)
        {
            return;
        }
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
        if self.timers.borrow().is_empty() {
            return;
        }
        let now = self.driver.now();
        loop {
            let due = self.timers.borrow_mut().pop_due(now);
            match due {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }

    /// Nothing is ready: moves on to the next thing that happens.
    fn advance(&self) {
        let until = self.timers.borrow_mut().next();
        match &self.driver {
            Driver::Real(reactor) => reactor.park(until),
            Driver::Virtual(clock) => match until {
                Some(until) => clock.advance_to(until),
                None => {
                    self.drain_inbox();
                    assert!(
                        !self.ready.borrow().is_empty(),
                        "every task waits and no timer is set: nothing can ever happen again \
                         (at {:?}, seed {})",
                        clock.now(),
                        self.seed
                    );
                }
            },
        }
    }

    /// What the clock of the host shows whose task runs now.
    pub(crate) fn now(&self) -> Instant {
        let now = self.driver.now();
        if !self.drifts.get() {
            return now;
        }
        let clocks = self.clocks.borrow();
        clocks
            .get(&self.host.get())
            .map_or(now, |clock| clock.shown(now))
    }

    /// The moment itself, whatever hosts' clocks show.
    pub(crate) fn true_now(&self) -> Instant {
        self.driver.now()
    }

    /// When the clock of the present host will show `moment`.
    pub(crate) fn true_moment(&self, moment: Instant) -> Instant {
        if !self.drifts.get() {
            return moment;
        }
        let clocks = self.clocks.borrow();
        clocks
            .get(&self.host.get())
            .map_or(moment, |clock| clock.truly(moment))
    }

    /// From now on the clock of `host` goes so much faster than it should, in parts per million.
    pub(crate) fn set_drift(&self, host: u32, parts_per_million: i32) {
        let now = self.driver.now();
        let mut clocks = self.clocks.borrow_mut();
        let shown = clocks.get(&host).map_or(now, |clock| clock.shown(now));
        let rate = 1_000_000 + i64::from(parts_per_million);
        assert!(rate > 0, "a clock that stands still or goes backwards");
        let clock = HostClock {
            from: now,
            shown,
            rate: rate as u64,
        };
        clocks.insert(host, clock);
        self.drifts.set(true);
    }

    /// A host stood still for `span`: from now on its clocks show so much more, but for the one its timers go by.
    pub(crate) fn stood_still(&self, host: u32, span: Nanos, boot: bool) {
        let mut all = self.ahead.borrow_mut();
        let mut ahead = all.get(&host).copied().unwrap_or_default();
        ahead.wall += span;
        if boot {
            ahead.boot += span;
        }
        all.insert(host, ahead);
    }

    /// What other clocks of the present host show beyond the one its timers go by.
    pub(crate) fn ahead(&self) -> Ahead {
        let all = self.ahead.borrow();
        all.get(&self.host.get()).copied().unwrap_or_default()
    }

    pub(crate) fn id(&self) -> u16 {
        self.id
    }

    /// Registers `waker` to be woken at `deadline`.
    pub(crate) fn at(&self, deadline: Instant, waker: &Waker) -> TimerId {
        self.timers.borrow_mut().insert(deadline, waker.clone())
    }

    /// Timer `id` shall wake `waker` from now on.
    pub(crate) fn rewaken(&self, id: TimerId, waker: &Waker) {
        if let Some(kept) = self.timers.borrow_mut().get_mut(id) {
            kept.clone_from(waker);
        }
    }

    /// Takes timer `id` away if it still waits.
    pub(crate) fn forget(&self, id: TimerId) {
        let waker = self.timers.borrow_mut().cancel(id);
        // With no borrow held: a foreign waker may do anything when it drops.
        drop(waker);
    }

    /// The simulated host of the task that runs now.
    pub(crate) fn host(&self) -> u32 {
        self.host.get()
    }

    /// What runs now, and what it spawns, is on `host`; the host before.
    pub(crate) fn enter_host(&self, host: u32) -> u32 {
        self.host.replace(host)
    }

    /// Ends every task of `host` where it stands.
    pub(crate) fn retire_host(&self, host: u32) {
        let tasks: Vec<(u32, u32)> = {
            let slots = self.slots.borrow();
            (0u32..)
                .zip(slots.iter())
                .filter(|(_, slot)| slot.live && slot.host == host)
                .map(|(index, slot)| (index, slot.generation))
                .collect()
        };
        for (index, generation) in tasks {
            drop(self.retire(index, generation));
        }
    }

    /// The driver of a real runtime.
    pub(crate) fn reactor(&self) -> Option<&Rc<Reactor>> {
        match &self.driver {
            Driver::Real(reactor) => Some(reactor),
            Driver::Virtual(_) => None,
        }
    }

    pub(crate) fn is_simulated(&self) -> bool {
        self.simulated
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

/// Asks an executor from another thread to run something on its own thread.
#[derive(Clone)]
pub struct Remote {
    inbox: Arc<Inbox>,
}

impl Remote {
    /// Interrupts the executor's wait, so that it looks at its channels.
    pub fn unpark(&self) {
        self.inbox.unpark();
    }
}

impl Runtime {
    /// A runtime in virtual time: the clock starts at zero and moves only when every task waits.
    /// All chance comes from `seed`.
    pub fn simulated(seed: u64) -> Runtime {
        Runtime::with_driver(Driver::Virtual(VirtualClock::default()), seed)
    }

    /// A runtime in real time, on io_uring, or on a thread pool where io_uring is refused.
    ///
    /// # Errors
    /// If the system gives no descriptor or thread, or no random seed.
    pub fn real(config: RealConfig) -> io::Result<Runtime> {
        let seed = match config.seed {
            Some(seed) => seed,
            None => crate::real::system_seed()?,
        };
        let reactor = Reactor::new(&config)?;
        Ok(Runtime::with_driver(Driver::Real(reactor), seed))
    }

    fn with_driver(driver: Driver, seed: u64) -> Runtime {
        let (simulated, wake) = match &driver {
            Driver::Virtual(_) => (true, None),
            Driver::Real(reactor) => (false, Some(reactor.wake())),
        };
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
        drop(inboxes);
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
                hash: Cell::new(seed),
                steps: Cell::new(0),
                streams: RefCell::default(),
                host: Cell::new(0),
                clocks: RefCell::default(),
                drifts: Cell::new(false),
                catch: Cell::new(crate::catch::Catch::at_first(simulated)),
                ahead: RefCell::default(),
                extras: RefCell::default(),
            }),
        }
    }

    /// What moves this runtime: `virtual`, `io_uring` or `thread pool`.
    pub fn driver_name(&self) -> &'static str {
        match &self.core.driver {
            Driver::Virtual(_) => "virtual",
            Driver::Real(reactor) => reactor.name(),
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
        assert!(
            CURRENT.get().is_null(),
            "a runtime is running on this thread already"
        );
        let _entered = Entered::new(&self.core);
        let core = &*self.core;
        let result: Rc<RefCell<Option<T>>> = Rc::default();
        let place = Rc::clone(&result);
        core.host.set(0);
        let root = core.insert(Box::pin(async move {
            let value = future.await;
            *place.borrow_mut() = Some(value);
        }));
        // A batch bounds how long completions wait behind tasks that keep waking each other.
        const BATCH: usize = 256;
        loop {
            core.drain_inbox();
            for _ in 0..BATCH {
                let next = core.ready.borrow_mut().pop_front();
                let Some((index, generation)) = next else {
                    break;
                };
                if core.run_one(index, generation)
                    && (index, generation) == root
                    && let Some(value) = result.borrow_mut().take()
                {
                    return value;
                }
            }
            if core.ready.borrow().is_empty() {
                core.advance();
            } else if let Driver::Real(reactor) = &core.driver {
                reactor.poll();
            }
            core.fire_due();
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
        // Futures may touch the runtime while they drop, and even spawn: enter it, and drop them with
        // no borrow held.
        let entered = Entered::new(&self.core);
        loop {
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
            if futures.is_empty() {
                break;
            }
            for future in futures {
                // One that panics while it is dropped must not end the process: others are behind it.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(future)));
            }
        }
        let wakers = self.core.timers.borrow_mut().clear();
        drop(wakers);
        let extras = std::mem::take(&mut *self.core.extras.borrow_mut());
        drop(extras);
        drop(entered);
        INBOXES
            .lock()
            .expect("no code panics while it holds this lock")
            .retain(|(id, _)| *id != self.core.id);
    }
}

/// Makes an executor this thread's current one, until dropped.
struct Entered {
    before: *const Core,
    _core: Rc<Core>,
}

impl Entered {
    fn new(core: &Rc<Core>) -> Entered {
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
        let (index, generation) = (self.0.index, self.0.generation);
        // Outside a runtime every task has ended with it.
        let future = try_current(|core| core.retire(index, generation));
        drop(future);
    }
}

/// Ties `task` to a scope: when the returned guard drops, the task ends.
pub fn cancel_scope<T>(task: Task<T>) -> CancelOnDrop<T> {
    CancelOnDrop(task)
}

/// The present moment of this thread's runtime: what the clock of this host shows.
pub fn now() -> Instant {
    with_current(|core| core.now())
}

/// The present moment whatever the clock of this host shows; the same as [`now`] unless clocks were made to drift
/// ([`crate::net::sim::set_drift`]). For what stands beside all hosts: measures, and meta stores of simulations.
pub fn true_now() -> Instant {
    with_current(|core| core.true_now())
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
