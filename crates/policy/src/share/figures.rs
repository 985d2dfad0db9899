//! What was promised to a session, what did it get, and whose fault is the difference?
//!
//! ```text
//! enqueue, completed -> Meter: one window of the session's own time -> kept | violated, and why
//! ```
//!
//! Windows of the contract's length follow each other from the session's first request on. In one that
//! delivered less than promised, the cause is looked for in this order:
//!
//! 1. *no demand*: the session had nothing outstanding for so long, or asked in such small pieces, that
//!    it could not have had more; such a window is not violated;
//! 2. *capacity*: over all sessions the device did less than what was promised to those that asked;
//! 3. *scheduler*: the device did enough, but for others.
//!
//! Always true: kept, no demand, capacity and scheduler add up to the windows that have ended.

use base::{Bytes, Instant, Nanos};

use super::{BytesPerSec, SessionId, Share};

/// Why a window delivered less than promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The session did not ask for more, or in smaller pieces than its promise is reckoned in.
    NoDemand,
    /// The device did less than what was promised in all.
    Capacity,
    /// The device did enough, but for others.
    Scheduler,
}

impl Cause {
    /// The name in metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::NoDemand => "no-demand",
            Cause::Capacity => "capacity",
            Cause::Scheduler => "scheduler",
        }
    }
}

/// Windows that have ended, by how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Windows {
    /// Delivered what was promised.
    pub kept: u64,
    /// Delivered less, because no more was asked for.
    pub no_demand: u64,
    /// Violated: the device did less than promised in all.
    pub capacity: u64,
    /// Violated: the device did enough, but for others.
    pub scheduler: u64,
}

impl Windows {
    /// Windows in which the promise was broken.
    pub fn violated(&self) -> u64 {
        self.capacity + self.scheduler
    }

    /// All that have ended.
    pub fn all(&self) -> u64 {
        self.kept + self.no_demand + self.violated()
    }

    fn add(&mut self, cause: Option<Cause>, windows: u64) {
        match cause {
            None => self.kept += windows,
            Some(Cause::NoDemand) => self.no_demand += windows,
            Some(Cause::Capacity) => self.capacity += windows,
            Some(Cause::Scheduler) => self.scheduler += windows,
        }
    }
}

/// What a session was promised and what it got.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SessionCounters {
    /// Bytes per second promised.
    pub promised: BytesPerSec,
    /// The part of the device's time that takes.
    pub share: Share,
    /// The window it is judged by.
    pub window: Nanos,
    /// Bytes delivered since it opened.
    pub delivered: Bytes,
    /// Requests delivered since it opened.
    pub requests: u64,
    /// Bytes that wait or are at the device.
    pub outstanding: Bytes,
    /// Windows that have ended; none without a promise.
    pub windows: Windows,
}

/// What is given up first where the device cannot do what was promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Shed {
    /// Nothing: promises are on time.
    #[default]
    Nothing,
    /// Whatever nothing is promised to.
    BestEffort,
    /// The floors of background work, too.
    Background,
    /// All promises are scaled in proportion, too.
    Scaled,
}

impl Shed {
    /// The name in metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Shed::Nothing => "nothing",
            Shed::BestEffort => "best-effort",
            Shed::Background => "background",
            Shed::Scaled => "scaled",
        }
    }
}

/// Something worth a line in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A promise was broken.
    Violated {
        /// Whose.
        session: SessionId,
        /// When the first of the windows began.
        from: Instant,
        /// How many windows in a row this stands for.
        windows: u64,
        /// Bytes promised in each.
        promised: Bytes,
        /// Bytes delivered in the first.
        delivered: Bytes,
        /// Why.
        cause: Cause,
    },
    /// What is given up changed.
    Shed {
        /// When.
        at: Instant,
        /// Before.
        from: Shed,
        /// Since.
        to: Shed,
    },
    /// So many earlier events were dropped because they were not taken.
    Lost(u64),
}

/// Device time done and the entitlement of all sessions, both since the start.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Done {
    /// What was delivered, at the model's prices.
    pub work: Nanos,
    /// What was promised to sessions while they had something outstanding.
    pub entitlement: Nanos,
}

/// The window of one session that runs now.
#[derive(Debug, Clone, Default)]
struct Running {
    /// `None` before the first request.
    from: Option<Instant>,
    counted_to: Instant,
    got: Bytes,
    charged: Nanos,
    idle: Nanos,
    held_back: Nanos,
    largest: Bytes,
    done_before: Done,
}

/// The window of one session that runs now, and the sum of those before.
#[derive(Debug, Clone)]
pub(super) struct Meter {
    promised: BytesPerSec,
    share: Share,
    window: Nanos,
    /// Requests smaller than this are small.
    unit: Bytes,
    // Since the session opened.
    delivered: Bytes,
    requests: u64,
    windows: Windows,
    // What it asked for and has not got.
    outstanding: Bytes,
    queued: Bytes,
    running: Running,
}

/// One or more windows that ended in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    pub from: Instant,
    pub windows: u64,
    pub promised: Bytes,
    pub delivered: Bytes,
    pub cause: Cause,
}

impl Meter {
    pub(super) fn new(promised: BytesPerSec, share: Share, window: Nanos, unit: Bytes) -> Meter {
        assert!(window.0 > 0, "a window of no time");
        Meter {
            promised,
            share,
            window,
            unit,
            delivered: Bytes(0),
            requests: 0,
            windows: Windows::default(),
            outstanding: Bytes(0),
            queued: Bytes(0),
            running: Running::default(),
        }
    }

    pub(super) fn set_share(&mut self, share: Share) {
        self.share = share;
    }

    pub(super) fn share(&self) -> Share {
        self.share
    }

    pub(super) fn outstanding(&self) -> Bytes {
        self.outstanding
    }

    /// `bytes` were asked for. Roll first.
    pub(super) fn asked(&mut self, now: Instant, bytes: Bytes, done: Done) {
        if self.running.from.is_none() {
            self.begin(now, done);
        }
        self.outstanding += bytes;
        self.queued += bytes;
        self.running.largest = self.running.largest.max(bytes);
    }

    /// `bytes` went to the device. Roll first.
    pub(super) fn sent(&mut self, bytes: Bytes) {
        self.queued -= bytes;
    }

    /// The device is done with `bytes`, of which `got` arrived. Roll first.
    pub(super) fn answered(&mut self, bytes: Bytes, got: Bytes, charge: Nanos, last: bool) {
        self.outstanding -= bytes;
        self.running.got += got;
        self.delivered += got;
        if got.0 > 0 {
            self.running.charged += charge;
            self.requests += u64::from(last);
        }
    }

    /// Moves the meter to `now`; returns the windows that ended and were violated.
    pub(super) fn roll(&mut self, now: Instant, done: Done) -> Vec<Ended> {
        let mut ended = Vec::new();
        let Some(from) = self.running.from else {
            return ended;
        };
        let over = now.since(from).0 / self.window.0;
        if over == 0 {
            self.count_to(now);
            return ended;
        }
        self.count_to(from + self.window);
        let cause = self.judge(done);
        let mut end = |cause: Option<Cause>, from, windows, delivered, sums: &mut Windows| {
            sums.add(cause, windows);
            if let Some(cause) = cause.filter(|cause| *cause != Cause::NoDemand) {
                ended.push(Ended {
                    from,
                    windows,
                    promised: self.promised.within(self.window),
                    delivered,
                    cause,
                });
            }
        };
        let mut sums = self.windows;
        if self.promised.0 > 0 {
            end(cause, from, 1, self.running.got, &mut sums);
            if over > 1 {
                // Nothing happened in the windows between: asked for and not got, or not asked for.
                let cause = if self.outstanding.0 == 0 {
                    Cause::NoDemand
                } else {
                    self.blame(done)
                };
                let from = from + self.window;
                end(Some(cause), from, over - 1, Bytes(0), &mut sums);
            }
        }
        self.windows = sums;
        self.begin(from + self.window * over, done);
        self.count_to(now);
        ended
    }

    fn begin(&mut self, from: Instant, done: Done) {
        self.running = Running {
            from: Some(from),
            counted_to: from,
            done_before: done,
            ..Running::default()
        };
    }

    fn count_to(&mut self, now: Instant) {
        let passed = now.since(self.running.counted_to);
        if self.outstanding.0 == 0 {
            self.running.idle += passed;
        }
        if self.queued.0 > 0 {
            self.running.held_back += passed;
        }
        self.running.counted_to = now;
    }

    /// How the window that ends now went; `None`: kept.
    fn judge(&self, done: Done) -> Option<Cause> {
        if self.running.got >= self.promised.within(self.window) {
            return None;
        }
        // A request under way at either end of a spell of demand may be counted outside of it. Gaps
        // between one request and the next are no spells.
        let few = Nanos(self.window.0 / 16);
        let grace = if self.running.idle > few {
            self.running.largest
        } else {
            Bytes(0)
        };
        let demanding = self.window.saturating_sub(self.running.idle);
        let asked_less =
            self.running.idle.0 > 0 && self.running.got + grace >= self.promised.within(demanding);
        let time_promised = self.share.0 as u128 * self.window.0 as u128 / 1_000_000_000;
        let got_its_time = u128::from(self.running.charged.0) >= time_promised;
        let one_by_one = self.running.held_back <= few
            && self.running.largest < self.unit
            && self.running.got.0 > 0;
        if asked_less || got_its_time || one_by_one {
            return Some(Cause::NoDemand);
        }
        Some(self.blame(done))
    }

    fn blame(&self, done: Done) -> Cause {
        let work = done.work.saturating_sub(self.running.done_before.work);
        let entitlement = done
            .entitlement
            .saturating_sub(self.running.done_before.entitlement);
        if work < entitlement {
            Cause::Capacity
        } else {
            Cause::Scheduler
        }
    }

    pub(super) fn figures(&self) -> SessionCounters {
        SessionCounters {
            promised: self.promised,
            share: self.share,
            window: self.window,
            delivered: self.delivered,
            requests: self.requests,
            outstanding: self.outstanding,
            windows: self.windows,
        }
    }
}
