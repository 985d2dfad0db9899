//! One executor: what it knows, and what it does at each step.
//!
//! ```text
//! ready queue (FIFO) -> poll -> due timers -> park in the driver -> ready queue ...
//! ```

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::{Instant, Map, Nanos};

use super::catch::Catch;
use super::current::{Inbox, waker};
use super::slots::Slots;
use super::timers::{TimerId, Timers};
use super::virtual_time::{Ahead, HostClocks, VirtualClock};
use crate::real::Reactor;

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

/// One executor; lives on one thread.
pub(crate) struct Core {
    // Fixed.
    id: u16,
    seed: u64,
    simulated: bool,
    driver: Driver,
    inbox: Arc<Inbox>,
    // Per run.
    pub(super) tasks: Slots,
    timers: RefCell<Timers<Waker>>,
    /// Tasks of other threads, to be woken when the turn ends.
    wakes: RefCell<Vec<Waker>>,
    hash: Cell<u64>,
    steps: Cell<u64>,
    streams: RefCell<Map<String, u64>>,
    clocks: HostClocks,
    /// Does [`crate::caught`] catch? In virtual time only when asked to, so that no test misses a panic.
    pub(crate) catch: Cell<Catch>,
    /// Typed per-run state of other parts of this crate (the simulated network).
    pub(crate) extras: RefCell<Vec<Rc<dyn Any>>>,
}

impl Core {
    /// A new executor.
    pub(super) fn new(driver: Driver, seed: u64) -> Core {
        let (simulated, wake) = match &driver {
            Driver::Virtual(_) => (true, None),
            Driver::Real(reactor) => (false, Some(reactor.wake())),
        };
        let (id, inbox) = Inbox::register(wake);
        Core {
            id,
            seed,
            simulated,
            driver,
            inbox,
            tasks: Slots::default(),
            timers: RefCell::default(),
            wakes: RefCell::default(),
            hash: Cell::new(seed),
            steps: Cell::new(0),
            streams: RefCell::default(),
            clocks: HostClocks::default(),
            catch: Cell::new(Catch::at_first(simulated)),
            extras: RefCell::default(),
        }
    }

    /// What moves it.
    pub(super) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Its way in for other threads.
    pub(super) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// A digest of every step taken so far.
    pub(super) fn hash(&self) -> u64 {
        self.hash.get()
    }

    /// How many times a task has been run so far.
    pub(super) fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Takes away what waits for time, and what other parts of the crate keep here.
    pub(super) fn clear(&self) {
        let wakers = self.timers.borrow_mut().clear();
        drop(wakers);
        let extras = std::mem::take(&mut *self.extras.borrow_mut());
        drop(extras);
    }

    /// Adds something that happened to the trace hash.
    #[inline]
    pub(crate) fn mix(&self, step: u64) {
        // One round of a multiply-xorshift mix is enough to distinguish two runs.
        let mixed = (self.hash.get() ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.hash.set(mixed ^ (mixed >> 29));
    }

    #[inline]
    pub(super) fn drain_inbox(&self) {
        for (index, generation) in self.inbox.take().into_iter().flatten() {
            self.tasks.make_ready(index, generation);
        }
    }

    /// `waker` is to be woken when this turn ends.
    pub(super) fn keep_wake(&self, waker: Waker) {
        self.wakes.borrow_mut().push(waker);
    }

    /// Ends the turn: wakes those kept for it.
    #[inline]
    pub(super) fn wake_kept(&self) {
        if self.wakes.borrow().is_empty() {
            return;
        }
        let mut kept = self.wakes.take();
        for waker in kept.drain(..) {
            waker.wake();
        }
        // Keeps the list's memory, unless a foreign waker kept others meanwhile.
        let mut wakes = self.wakes.borrow_mut();
        if wakes.is_empty() {
            *wakes = kept;
        }
    }

    /// Runs one task; did it come to its end?
    #[inline]
    pub(super) fn run_one(&self, index: u32, generation: u32) -> bool {
        let Some(mut future) = self.tasks.take(index, generation) else {
            return false;
        };
        self.steps.set(self.steps.get() + 1);
        if self.simulated {
            self.mix(self.driver.now().0 ^ (u64::from(index) << 40) ^ u64::from(generation));
        }
        let waker = waker(self.id, generation, index);
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(()) => {
                drop(future);
                self.tasks.retire(index, generation);
                true
            }
            Poll::Pending => {
                self.tasks.put_back(index, generation, future);
                false
            }
        }
    }

    #[inline]
    pub(super) fn fire_due(&self) {
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
    pub(super) fn advance(&self) {
        let until = self.timers.borrow_mut().next();
        match &self.driver {
            Driver::Real(reactor) => reactor.park(until),
            Driver::Virtual(clock) => match until {
                Some(until) => clock.advance_to(until),
                None => {
                    self.drain_inbox();
                    assert!(
                        self.tasks.any_ready(),
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
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.clocks.shown(self.host(), self.driver.now())
    }

    /// The moment itself, whatever hosts' clocks show.
    #[inline]
    pub(crate) fn true_now(&self) -> Instant {
        self.driver.now()
    }

    /// When the clock of the present host will show `moment`.
    #[inline]
    pub(crate) fn true_moment(&self, moment: Instant) -> Instant {
        self.clocks.truly(self.host(), moment)
    }

    /// From now on the clock of `host` goes so much faster than it should, in parts per million.
    pub(crate) fn set_drift(&self, host: u32, parts_per_million: i32) {
        let now = self.driver.now();
        self.clocks.set_drift(host, parts_per_million, now);
    }

    /// A host stood still for `span`: from now on its clocks show so much more, but for the one its timers go by.
    pub(crate) fn stood_still(&self, host: u32, span: Nanos, boot: bool) {
        self.clocks.stood_still(host, span, boot);
    }

    /// What other clocks of the present host show beyond the one its timers go by.
    pub(crate) fn ahead(&self) -> Ahead {
        self.clocks.ahead(self.host())
    }

    #[inline]
    pub(crate) fn id(&self) -> u16 {
        self.id
    }

    /// Registers `waker` to be woken at `deadline`.
    #[inline]
    pub(crate) fn at(&self, deadline: Instant, waker: &Waker) -> TimerId {
        self.timers.borrow_mut().insert(deadline, waker.clone())
    }

    /// Timer `id` shall wake `waker` from now on.
    #[inline]
    pub(crate) fn rewaken(&self, id: TimerId, waker: &Waker) {
        if let Some(kept) = self.timers.borrow_mut().get_mut(id) {
            kept.clone_from(waker);
        }
    }

    /// Takes timer `id` away if it still waits.
    #[inline]
    pub(crate) fn forget(&self, id: TimerId) {
        let waker = self.timers.borrow_mut().cancel(id);
        // With no borrow held: a foreign waker may do anything when it drops.
        drop(waker);
    }

    /// The simulated host of the task that runs now.
    #[inline]
    pub(crate) fn host(&self) -> u32 {
        self.tasks.host.get()
    }

    /// What runs now, and what it spawns, is on `host`; the host before.
    #[inline]
    pub(crate) fn enter_host(&self, host: u32) -> u32 {
        self.tasks.host.replace(host)
    }

    /// Ends every task of `host` where it stands.
    pub(crate) fn retire_host(&self, host: u32) {
        for (index, generation) in self.tasks.of_host(host) {
            drop(self.tasks.retire(index, generation));
        }
    }

    /// The driver of a real runtime.
    #[inline]
    pub(crate) fn reactor(&self) -> Option<&Rc<Reactor>> {
        match &self.driver {
            Driver::Real(reactor) => Some(reactor),
            Driver::Virtual(_) => None,
        }
    }

    #[inline]
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
