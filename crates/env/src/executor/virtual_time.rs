//! Clocks in virtual time: the one that jumps, and what the clocks of simulated hosts show beside it.
//!
//! Always true: no clock goes backwards.

use std::cell::{Cell, RefCell};

use base::{Instant, Map, Nanos};

/// Virtual time: stands still while a task can run, then jumps to the next timer.
#[derive(Default)]
pub(crate) struct VirtualClock {
    now: Cell<Instant>,
}

impl VirtualClock {
    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    /// Never goes back.
    pub(crate) fn advance_to(&self, moment: Instant) {
        self.now.set(moment.max(self.now.get()));
    }
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

/// What the clocks of a simulated host show beyond the one its timers go by.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ahead {
    pub boot: Nanos,
    pub wall: Nanos,
}

/// The clocks of all simulated hosts that are not the virtual one.
#[derive(Default)]
pub(super) struct HostClocks {
    /// By host.
    clocks: RefCell<Map<u32, HostClock>>,
    /// Are there any?
    drifts: Cell<bool>,
    /// What other clocks of hosts show beyond that.
    ahead: RefCell<Map<u32, Ahead>>,
}

impl HostClocks {
    /// What the clock of `host` shows.
    #[inline]
    pub(super) fn shown(&self, host: u32, now: Instant) -> Instant {
        if !self.drifts.get() {
            return now;
        }
        let clocks = self.clocks.borrow();
        clocks.get(&host).map_or(now, |clock| clock.shown(now))
    }

    /// When the clock of `host` will show `moment`.
    #[inline]
    pub(super) fn truly(&self, host: u32, moment: Instant) -> Instant {
        if !self.drifts.get() {
            return moment;
        }
        let clocks = self.clocks.borrow();
        clocks
            .get(&host)
            .map_or(moment, |clock| clock.truly(moment))
    }

    /// From `now` on the clock of `host` goes so much faster than it should, in parts per million.
    pub(super) fn set_drift(&self, host: u32, parts_per_million: i32, now: Instant) {
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

    /// A host stood still for `span`: its clocks show so much more, but for the one its timers go by.
    pub(super) fn stood_still(&self, host: u32, span: Nanos, boot: bool) {
        let mut all = self.ahead.borrow_mut();
        let mut ahead = all.get(&host).copied().unwrap_or_default();
        ahead.wall += span;
        if boot {
            ahead.boot += span;
        }
        all.insert(host, ahead);
    }

    /// What other clocks of `host` show beyond the one its timers go by.
    pub(super) fn ahead(&self, host: u32) -> Ahead {
        let all = self.ahead.borrow();
        all.get(&host).copied().unwrap_or_default()
    }
}
