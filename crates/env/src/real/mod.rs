//! The real driver: files and sockets through io_uring, or through threads and poll(2).
//!
//! ```text
//! Operation (owns its buffer and descriptor) -> slot -> ring | threads | poll list
//!                    Completion (future)  <- result <-
//! ```
//!
//! Always true:
//! 1. The kernel and the threads touch only memory and descriptors that a slot owns.
//! 2. A slot is freed only when its operation has ended: a dropped future orphans the slot, and the
//!    reactor does not go before the last operation has ended, but for commands to drivers, which touch no memory.
//! 3. One call of the kernel per turn of the executor submits what is new and waits for what comes.

#![allow(unsafe_code)] // The kernel reads and writes memory behind the compiler's back; see the rules.

mod exchange;
mod leave;
mod operation;
mod pool;
mod ring;
mod slots;
mod spin;
pub(crate) mod wake;

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use base::{Instant, Nanos};
use rustix::event::{PollFd, PollFlags, Timespec};

pub(crate) use exchange::{Answered, Exchange};
pub(crate) use operation::{Message, Operation, Scatter};
pub(crate) use spin::Spinner;
pub use spin::{Polling, SpinCounters, SpinPolicy, Wait, Watched};

use pool::Pool;
use ring::Ring;
use slots::{Slots, State};
use wake::Wake;

/// When to use threads instead of io_uring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Choice {
    /// Where io_uring is refused (an old kernel, a container's rules).
    #[default]
    Auto,
    /// Always.
    Always,
}

/// How to make a real runtime.
///
/// # Example
/// ```
/// let config = env::RealConfig { seed: Some(7), ..env::RealConfig::default() };
/// let runtime = env::Runtime::real(config)?;
/// assert!(["io_uring", "thread pool"].contains(&runtime.driver_name()));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RealConfig {
    /// Seed of all chance; drawn from the system if absent.
    pub seed: Option<u64>,
    /// Entries of the submission ring: how many operations one call can submit. Rounded up to a power
    /// of two.
    pub ring_entries: u32,
    /// Threads and poll(2) instead of io_uring?
    pub thread_pool: Choice,
    /// Whether to look for completions before each sleep. A processor that is not asleep answers sooner,
    /// and never rests; off by default.
    pub polling: Polling,
}

impl Default for RealConfig {
    fn default() -> RealConfig {
        RealConfig {
            seed: None,
            ring_entries: 256,
            thread_pool: Choice::Auto,
            polling: Polling::Off,
        }
    }
}

/// 64 random bits of the system's.
pub(crate) fn system_seed() -> io::Result<u64> {
    let file = std::fs::File::open("/dev/urandom")?;
    let mut bytes = [0; 8];
    io::Read::read_exact(&mut &file, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// See the module's head. One per real runtime, on its thread.
pub(crate) struct Reactor {
    // Fixed.
    origin: std::time::Instant,
    wake: Arc<Wake>,
    ring: Option<RefCell<Ring>>,
    pool: Pool,
    /// Without: it never spins.
    spinner: Option<Spinner>,
    // Per operation.
    slots: RefCell<Slots>,
    /// Without a ring: slots that wait for a socket.
    polled: RefCell<Vec<u32>>,
    /// Reused from turn to turn.
    ended: RefCell<Vec<(u32, i32)>>,
}

fn clock() -> std::time::Instant {
    #[allow(clippy::disallowed_methods)] // The driver is where real time comes from.
    std::time::Instant::now()
}

impl Reactor {
    pub(crate) fn new(config: &RealConfig) -> io::Result<Rc<Reactor>> {
        let wake = Arc::new(Wake::new()?);
        let ring = match config.thread_pool {
            Choice::Always => None,
            // Any refusal means the same: there are threads.
            Choice::Auto => Ring::new(config.ring_entries, Arc::clone(&wake)).ok(),
        };
        // Waits end within a nanosecond of their deadline instead of the default 50 us: modelled
        // devices answer in less. Where refused, timers are late by that much.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        Ok(Rc::new(Reactor {
            origin: clock(),
            spinner: Spinner::new(config.polling),
            pool: Pool::new(Arc::clone(&wake)),
            ring: ring.map(RefCell::new),
            wake,
            slots: RefCell::default(),
            polled: RefCell::default(),
            ended: RefCell::default(),
        }))
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.ring {
            Some(_) => "io_uring",
            None => "thread pool",
        }
    }

    pub(crate) fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    pub(crate) fn wake(&self) -> Arc<Wake> {
        Arc::clone(&self.wake)
    }

    pub(crate) fn now(&self) -> Instant {
        // 2^64 ns are 584 years.
        Instant(clock().duration_since(self.origin).as_nanos() as u64)
    }

    /// Starts `operation`; the future ends with its result, negative errno or what the call returns.
    pub(crate) fn start(self: &Rc<Self>, operation: Operation) -> io::Result<Completion> {
        if self.ring.is_none() && matches!(operation, Operation::Command { .. }) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "commands of a driver go through io_uring, which is refused here",
            ));
        }
        let mut slots = self.slots.borrow_mut();
        let index = slots.insert(operation);
        let slot = slots.get(index);
        let name = slot.name(index);
        let started = match (&self.ring, &mut slot.operation) {
            (None, Operation::Ready { .. }) => {
                self.polled.borrow_mut().push(index);
                Ok(())
            }
            // SAFETY (both): the slot keeps the operation, with all it points to, until its result has come.
            (None, operation)
            | (_, operation @ (Operation::Discard { .. } | Operation::Scsi { .. })) => unsafe {
                self.pool.start(index, operation)
            },
            (Some(ring), operation) => {
                unsafe { ring.borrow_mut().start(name, operation) };
                Ok(())
            }
        };
        if let Err(error) = started {
            slots.under_way -= 1;
            let slot = slots.remove(index);
            drop(slots);
            drop(slot);
            return Err(error);
        }
        Ok(Completion {
            reactor: Rc::clone(self),
            slot: Some(index),
        })
    }

    /// Submits and collects what is there without waiting; how much was there.
    pub(crate) fn poll(&self) -> usize {
        self.wake.turn();
        match &self.ring {
            Some(ring) => ring.borrow_mut().turn(None, &mut self.ended.borrow_mut()),
            None => self.poll_sockets(Some(Nanos(0))),
        }
        self.finish()
    }

    pub(crate) fn spinner(&self) -> Option<&Spinner> {
        self.spinner.as_ref()
    }

    /// Submits, and waits until `until` (for ever if `None`) or until something happens.
    pub(crate) fn park(&self, until: Option<Instant>) {
        let Some(spinner) = &self.spinner else {
            self.sleep(until);
            return;
        };
        let began = self.now();
        let under_way = spinner.is_under_way();
        let (found, looked) = match spinner.time_to_look(began) {
            Nanos(0) => (false, began),
            look => self.spin(spinner, began, look, until),
        };
        let due = until.is_some_and(|until| until <= looked);
        let came = found || (due && self.poll() > 0) || (!due && self.sleep(until));
        let ended = match found || due {
            true => looked,
            false => self.now(),
        };
        spinner.waited(&Wait {
            began,
            ended,
            spun: looked.since(began),
            found,
            came,
            under_way,
        });
    }

    /// Submits, and sleeps until `until` or until something happens; has something?
    fn sleep(&self, until: Option<Instant>) -> bool {
        let free = self.wake.park();
        let span = match free {
            true => until.map_or(Nanos(u64::MAX), |until| until.since(self.now())),
            false => Nanos(0),
        };
        match &self.ring {
            Some(ring) => ring.borrow_mut().turn(
                (span > Nanos(0)).then_some(span),
                &mut self.ended.borrow_mut(),
            ),
            None => self.poll_sockets((span < Nanos(u64::MAX)).then_some(span)),
        }
        let notified = !free || self.wake.was_notified();
        self.wake.turn();
        self.finish() > 0 || notified
    }

    /// Looks for completions until `began + look` or `until`: was there one, and when was the last look?
    fn spin(
        &self,
        spinner: &Spinner,
        began: Instant,
        look: Nanos,
        until: Option<Instant>,
    ) -> (bool, Instant) {
        let end = began + look;
        let end = until.map_or(end, |until| end.min(until));
        spinner.begin();
        let found = loop {
            match &self.ring {
                Some(ring) => ring.borrow_mut().turn(None, &mut self.ended.borrow_mut()),
                None => self.poll_sockets(Some(Nanos(0))),
            }
            if self.finish() > 0 || self.wake.was_notified() || spinner.sees() {
                break true;
            }
            if self.now() >= end {
                break false;
            }
            std::hint::spin_loop();
        };
        let found = spinner.end() || found;
        if found {
            self.wake.turn();
        }
        (found, self.now())
    }

    /// Hands the results collected to the tasks that wait; how many there were.
    fn finish(&self) -> usize {
        self.pool.collect(&mut self.ended.borrow_mut());
        let mut ended = std::mem::take(&mut *self.ended.borrow_mut());
        let count = ended.len();
        for (index, result) in ended.drain(..) {
            let mut slots = self.slots.borrow_mut();
            slots.under_way -= 1;
            let slot = slots.get(index);
            match std::mem::replace(&mut slot.state, State::Ended(result)) {
                State::Waiting(waker) => {
                    drop(slots);
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                }
                State::Orphaned => {
                    let slot = slots.remove(index);
                    drop(slots);
                    drop(slot);
                }
                State::Ended(_) => unreachable!("an operation ends once"),
            }
        }
        // Keeps the list's memory for the next turn.
        *self.ended.borrow_mut() = ended;
        count
    }

    /// Without a ring: waits for sockets, threads and other threads' wakes in poll(2).
    fn poll_sockets(&self, span: Option<Nanos>) {
        let polled = std::mem::take(&mut *self.polled.borrow_mut());
        let mut slots = self.slots.borrow_mut();
        let sockets: Vec<(Rc<OwnedFd>, PollFlags)> = polled
            .iter()
            .map(|&index| match &slots.get(index).operation {
                Operation::Ready { socket, events } => (Rc::clone(socket), *events),
                _ => unreachable!("only waits for sockets are polled"),
            })
            .collect();
        drop(slots);
        let event = self.wake.event();
        let mut set: Vec<PollFd<'_>> = sockets
            .iter()
            .map(|(socket, events)| PollFd::from_borrowed_fd(socket.as_fd(), *events))
            .chain([PollFd::from_borrowed_fd(event, PollFlags::IN)])
            .collect();
        let span = span.map(|span| Timespec {
            tv_sec: (span.0 / 1_000_000_000) as i64,
            tv_nsec: (span.0 % 1_000_000_000) as i64,
        });
        // Interrupted by a signal, or out of memory: the executor turns and comes back.
        let count = rustix::event::poll(&mut set, span.as_ref()).unwrap_or(0);
        let mut still = Vec::with_capacity(polled.len());
        let mut ended = self.ended.borrow_mut();
        for (index, socket) in polled.into_iter().zip(&set) {
            if count > 0 && !socket.revents().is_empty() {
                ended.push((index, i32::from(socket.revents().bits() as i16)));
            } else {
                still.push(index);
            }
        }
        if set.last().is_some_and(|event| !event.revents().is_empty()) {
            self.wake.clear();
        }
        *self.polled.borrow_mut() = still;
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        // No task waits any more (each `Completion` holds a count of us), but the kernel and the threads
        // may still fill buffers: wait for them. What waits for a peer was cancelled as it was dropped.
        // A driver heeds no cancellation, and has no memory of ours: its commands end when the ring closes,
        // by which it learns that this server is gone. That has to be true by then: see `leave`.
        loop {
            let slots = self.slots.borrow();
            let commands = slots.commands();
            if slots.under_way <= commands {
                if commands > 0
                    && let Some(ring) = &self.ring
                {
                    // Without a further descriptor or thread it closes now: a request that comes just then may be lost.
                    let _ = ring.borrow().close_behind();
                }
                return;
            }
            drop(slots);
            self.park(None);
        }
    }
}

/// An operation under way. Dropped early, the operation is cancelled if it waits for a peer, and runs
/// to its end unseen otherwise.
pub(crate) struct Completion {
    reactor: Rc<Reactor>,
    slot: Option<u32>,
}

/// What the operation's system call answered, and the operation itself with its buffers.
pub(crate) type Outcome = (io::Result<usize>, Operation);

impl Future for Completion {
    type Output = Outcome;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let index = self.slot.expect("an operation's outcome is taken once");
        let mut slots = self.reactor.slots.borrow_mut();
        let slot = slots.get(index);
        match &mut slot.state {
            State::Waiting(Some(waker)) => waker.clone_from(cx.waker()),
            State::Waiting(waker) => *waker = Some(cx.waker().clone()),
            State::Ended(result) => {
                let result = match *result {
                    result if result < 0 => Err(io::Error::from_raw_os_error(-result)),
                    result => Ok(result as usize),
                };
                let slot = slots.remove(index);
                drop(slots);
                self.slot = None;
                return Poll::Ready((result, slot.operation));
            }
            State::Orphaned => unreachable!("its future is here"),
        }
        Poll::Pending
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        let Some(index) = self.slot else { return };
        let reactor = &self.reactor;
        let mut slots = reactor.slots.borrow_mut();
        let slot = slots.get(index);
        let ended = matches!(slot.state, State::Ended(_));
        if !ended {
            slot.state = State::Orphaned;
            if !slot.operation.waits_for_a_peer() {
                return;
            }
            if let Some(ring) = &reactor.ring {
                ring.borrow_mut().cancel(slot.name(index));
                return;
            }
            // A socket on the poll list: nothing but the list knows of it.
            reactor.polled.borrow_mut().retain(|&other| other != index);
            slots.under_way -= 1;
        }
        let slot = slots.remove(index);
        drop(slots);
        // With no borrow held.
        drop(slot);
    }
}
