//! Looking for work before sleeping: for how long, and what came of it?
//!
//! ```text
//! nothing ready -> look(now) -> 0: sleep | else spin: ring, other threads, watched queues -> found | give up: sleep
//!                     ^                                                                        |
//!                     '------------------------- SpinPolicy::waited <--------------------------'
//! ```
//!
//! Always true:
//! 1. A policy is asked at each wait (again, if it hears meanwhile that the thread was preempted), and hears once how
//!    that wait went.
//! 2. What is watched is told of the begin and of the end of each spin; what came in between counts as found.

#![allow(unsafe_code)] // getrusage(2) fills a structure that is this function's own.

use std::cell::{Cell, RefCell};
use std::rc::Weak;

use base::{Instant, Nanos};

/// Involuntary switches of the thread are counted at most so often.
const LOOK_AT_SWITCHES: Nanos = Nanos::millis(1);
/// A count older than this is too old to say when the switches were.
const SWITCHES_STALE: Nanos = Nanos::millis(10);

/// What a real runtime does while it has nothing to do.
#[derive(Clone, Copy, Debug, Default)]
pub enum Polling {
    /// It sleeps at once.
    #[default]
    Off,
    /// It looks for work for so long before each sleep. `Nanos(u64::MAX)`: it never sleeps.
    UpTo(Nanos),
    /// As a policy says, which is made on the runtime's thread.
    By(fn() -> Box<dyn SpinPolicy>),
}

/// Decides how long to look for work before sleeping.
pub trait SpinPolicy {
    /// Requests of clients ended, the last of them at `now` (see [`crate::client_request`]).
    fn request_ended(&mut self, now: Instant);

    /// The thread has nothing to do at `now`: how long to look before it sleeps. `under_way`: requests of clients are.
    fn spin(&mut self, now: Instant, under_way: bool) -> Nanos;

    /// How the wait went that [`SpinPolicy::spin`] was asked about.
    fn waited(&mut self, wait: &Wait);

    /// Another thread took this one's processor, not long before `now`.
    fn preempted(&mut self, now: Instant);
}

/// How one wait went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// When the thread had nothing to do.
    pub began: Instant,
    /// When it had again, or a timer was due.
    pub ended: Instant,
    /// How long it looked, from `began` on.
    pub spun: Nanos,
    /// Something came while it looked. Else all that was spun was spun in vain.
    pub found: bool,
    /// Something came; else a timer ended the wait.
    pub came: bool,
    /// Requests of clients were under way.
    pub under_way: bool,
}

/// What a runtime's thread spun since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpinCounters {
    /// Waits that began with looking.
    pub spins: u64,
    /// Those of them in which something came.
    pub found: u64,
    /// Time spent looking.
    pub spun: Nanos,
    /// The part of it in which nothing came.
    pub in_vain: Nanos,
}

/// Something that a spinning thread looks at by itself, so that its other side need not wake the thread meanwhile: a queue
/// in memory shared with a guest, whose kicks are suppressed as long as the thread spins.
pub trait Watched {
    /// The thread looks from now on.
    fn spin_begins(&self);

    /// Has something come? Wakes the task that waits for it. Called again and again.
    fn look(&self) -> bool;

    /// The thread is about to work or to sleep. True, with the task woken, if something came since the last look.
    fn spin_ends(&self) -> bool;
}

enum Rule {
    UpTo(Nanos),
    By(RefCell<Box<dyn SpinPolicy>>),
}

/// See the module's head. One per runtime that may spin.
pub(crate) struct Spinner {
    rule: Rule,
    /// Requests of clients under way.
    under_way: Cell<u64>,
    /// One has ended since the last wait.
    ended: Cell<bool>,
    /// Involuntary switches, and when they were counted.
    switches: Cell<Option<(Instant, i64)>>,
    counters: Cell<SpinCounters>,
    spinning: Cell<bool>,
    watched: RefCell<Vec<Weak<dyn Watched>>>,
}

impl Spinner {
    /// `None`: never spin.
    pub(super) fn new(polling: Polling) -> Option<Spinner> {
        let rule = match polling {
            Polling::Off | Polling::UpTo(Nanos(0)) => return None,
            Polling::UpTo(span) => Rule::UpTo(span),
            Polling::By(make) => Rule::By(RefCell::new(make())),
        };
        Some(Spinner {
            rule,
            under_way: Cell::default(),
            ended: Cell::default(),
            switches: Cell::default(),
            counters: Cell::default(),
            spinning: Cell::default(),
            watched: RefCell::default(),
        })
    }

    /// One more request of a client is under way.
    pub(crate) fn request_begins(&self) {
        self.under_way.set(self.under_way.get() + 1);
    }

    /// One fewer.
    pub(crate) fn request_ends(&self) {
        self.under_way.set(self.under_way.get() - 1);
        self.ended.set(true);
    }

    pub(crate) fn counters(&self) -> SpinCounters {
        self.counters.get()
    }

    pub(crate) fn is_spinning(&self) -> bool {
        self.spinning.get()
    }

    pub(crate) fn watch(&self, watched: Weak<dyn Watched>) {
        self.watched.borrow_mut().push(watched);
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.get() > 0
    }

    /// How long to look, with nothing to do at `now`.
    pub(super) fn time_to_look(&self, now: Instant) -> Nanos {
        let policy = match &self.rule {
            Rule::UpTo(span) => return *span,
            Rule::By(policy) => &mut *policy.borrow_mut(),
        };
        if self.ended.replace(false) {
            policy.request_ended(now);
        }
        let look = policy.spin(now, self.is_under_way());
        if look > Nanos(0) && self.was_preempted(now) {
            policy.preempted(now);
            return policy.spin(now, self.is_under_way());
        }
        look
    }

    /// Has this thread lost its processor since it last looked, and not long ago?
    fn was_preempted(&self, now: Instant) -> bool {
        let last = self.switches.get();
        if last.is_some_and(|(at, _)| now.since(at) < LOOK_AT_SWITCHES) {
            return false;
        }
        let count = involuntary_switches();
        self.switches.set(Some((now, count)));
        last.is_some_and(|(at, before)| now.since(at) < SWITCHES_STALE && count != before)
    }

    /// How the wait went that [`Spinner::time_to_look`] began.
    pub(super) fn waited(&self, wait: &Wait) {
        if wait.spun > Nanos(0) {
            let mut counters = self.counters.get();
            counters.spins += 1;
            counters.spun += wait.spun;
            match wait.found {
                true => counters.found += 1,
                false => counters.in_vain += wait.spun,
            }
            self.counters.set(counters);
        }
        if let Rule::By(policy) = &self.rule {
            policy.borrow_mut().waited(wait);
        }
    }

    pub(super) fn begin(&self) {
        self.spinning.set(true);
        self.each(|watched| {
            watched.spin_begins();
            false
        });
    }

    /// Has something come that is watched?
    pub(super) fn sees(&self) -> bool {
        self.each(|watched| watched.look())
    }

    /// Has something come that is watched since the last look?
    pub(super) fn end(&self) -> bool {
        self.spinning.set(false);
        self.each(|watched| watched.spin_ends())
    }

    /// Calls `each` for all that is watched; did one of them say so?
    fn each(&self, each: impl Fn(&dyn Watched) -> bool) -> bool {
        let mut any = false;
        self.watched.borrow_mut().retain(|watched| {
            let Some(watched) = watched.upgrade() else {
                return false;
            };
            any |= each(&*watched);
            true
        });
        any
    }
}

/// How often the system took the processor from this thread.
fn involuntary_switches() -> i64 {
    // SAFETY: all zeros is a valid rusage, a structure of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: it is ours to fill. The call fails only for bad arguments.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nivcsw
}
