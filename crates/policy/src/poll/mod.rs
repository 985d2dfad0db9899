//! How long should a thread look for work before it sleeps?
//!
//! ```text
//! requests that ended, waits of the past -> spin(now) -> how long to look; 0: sleep at once
//!                                              wait, its outcome -> waited
//! ```
//!
//! A thread that sleeps wakes late: tens of microseconds on a virtual machine. One that looks instead ("spins") answers at
//! once and keeps a processor. It spins where a request of a client ended a short time ago and the wait is expected to be
//! short, and pays for what it spun in vain out of a budget.
//!
//! Pure: no clock and no thread. `env` carries it out on each data thread.
//!
//! Source: the smoothed wait is that of TCP's round-trip time (Jacobson, SIGCOMM 1988), 1/8; growing and shrinking with the
//! waits as in QEMU's `poll-max-ns` (`util/aio-posix.c`). The bound is ours.
//!
//! Always true:
//! 1. In no second, wherever it begins, more than [`VAIN_SHARE`] percent of it are granted in vain.
//! 2. Nothing is granted beyond [`RECENT`] after the last request of a client ended.
//! 3. Nothing is granted within [`PREEMPTED_PAUSE`] after the thread lost its processor to another one.

use std::fmt;
use std::str::FromStr;

use base::{Instant, Nanos};

#[cfg(test)]
mod tests;

/// A request of a client that ended longer ago says nothing about the next one.
pub const RECENT: Nanos = Nanos::millis(10);
/// A wait that is expected to be longer is slept through.
pub const EXPECTED_MAX: Nanos = Nanos::micros(50);
/// How long nothing is granted after another thread took the processor.
pub const PREEMPTED_PAUSE: Nanos = Nanos::millis(100);
/// Percent of any second that may be spun in vain.
pub const VAIN_SHARE: u64 = 5;

/// The budget holds so much, and grows by [`PERCENT`] of the time: together [`VAIN_SHARE`] percent of a second.
const BURST: Nanos = Nanos::millis(10);
/// See [`BURST`].
const PERCENT: u64 = 4;
/// The least to look, where waits are expected to be very short: their ends are not that regular.
const LOOK_MIN: Nanos = Nanos::micros(20);
/// A longer wait counts as this long: one silence does not outweigh many short waits after it.
const WAIT_MAX: Nanos = Nanos::millis(1);
/// So many times in a row nothing came: the waits are not what they seem to be.
const VAIN_IN_A_ROW: u32 = 4;
/// How long to hold back then, at first; each further time in vain doubles it, up to 2^[`HOLD_DOUBLINGS`] times.
const HOLD: Nanos = Nanos::millis(1);
/// See [`HOLD`].
const HOLD_DOUBLINGS: u32 = 7;

/// What a data thread does while it has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Setting {
    /// It sleeps at once.
    Off,
    /// It looks for a short while where that pays, as [`Adaptive`] says.
    #[default]
    Adaptive,
    /// It never sleeps, and keeps a processor busy for ever.
    Always,
}

impl Setting {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Setting::Off => "off",
            Setting::Adaptive => "adaptive",
            Setting::Always => "always",
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Setting {
    type Err = String;
    fn from_str(text: &str) -> Result<Setting, String> {
        [Setting::Off, Setting::Adaptive, Setting::Always]
            .into_iter()
            .find(|setting| setting.name() == text)
            .ok_or_else(|| format!("'{text}' is no way to wait; write off, adaptive or always"))
    }
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
    /// Requests of clients were under way at devices.
    pub under_way: bool,
}

/// What is known of one kind of waits.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    /// Smoothed.
    expected: Nanos,
    /// Times in a row that nothing came while the thread looked.
    in_vain: u32,
    /// Nothing is granted before.
    held_until: Instant,
}

/// The rule of [`Setting::Adaptive`]; see the module's head. One per thread.
///
/// Waits for clients and waits for devices are told apart: a fast client of a slow disk is waited for awake, its disk is not.
///
/// Choice: a wait that was slept through was longer for it, by what the processor took to wake. So a smoothed wait beyond
/// [`EXPECTED_MAX`] does not end the matter: now and then one wait is looked through, and counts by itself if it was short.
/// Each such trial that fails doubles the time to the next, from 1 ms to 128 ms.
///
/// Choice: four times in a row in vain where short waits were expected hold the rule back in the same way. So it is where
/// client and thread share one processor: the client cannot go on before the thread sleeps.
///
/// # Example
/// ```
/// use base::{Instant, Nanos};
/// use policy::poll::Adaptive;
/// let mut rule = Adaptive::default();
/// let now = Instant(1_000_000_000);
/// assert_eq!(rule.spin(now, false), Nanos(0), "no client asked for anything yet");
/// rule.request_ended(now);
/// assert!(rule.spin(now, false) > Nanos(0));
/// assert_eq!(rule.spin(now + Nanos::millis(10), false), Nanos(0), "silence");
/// ```
#[derive(Clone, Debug)]
pub struct Adaptive {
    /// When the last request of a client ended.
    last_request: Option<Instant>,
    paused_until: Instant,
    /// What may be spun in vain, at `filled`.
    budget: Nanos,
    filled: Instant,
    /// For clients, for devices.
    waits: [Waits; 2],
}

impl Default for Adaptive {
    fn default() -> Adaptive {
        Adaptive {
            last_request: None,
            paused_until: Instant(0),
            budget: BURST,
            filled: Instant(0),
            waits: [Waits::default(); 2],
        }
    }
}

impl Adaptive {
    /// A request of a client ended at `now`.
    pub fn request_ended(&mut self, now: Instant) {
        self.last_request = Some(now);
    }

    /// Another thread took this one's processor, which was noticed at `now`.
    pub fn preempted(&mut self, now: Instant) {
        self.paused_until = now + PREEMPTED_PAUSE;
    }

    /// The thread has nothing to do at `now`: how long to look before it sleeps. `under_way`: requests of clients wait for
    /// devices. [`Adaptive::waited`] hears how it went before the next question.
    pub fn spin(&mut self, now: Instant, under_way: bool) -> Nanos {
        let Some(last_request) = self.last_request else {
            return Nanos(0);
        };
        let rest = (last_request + RECENT).since(now);
        let waits = self.waits[usize::from(under_way)];
        if rest == Nanos(0) || now < self.paused_until || now < waits.held_until {
            return Nanos(0);
        }
        self.fill(now);
        let look = match waits.expected > EXPECTED_MAX {
            // A trial.
            true => EXPECTED_MAX,
            false => Nanos((waits.expected.0 * 2).max(LOOK_MIN.0)),
        };
        let look = look.min(rest);
        match look <= self.budget {
            true => look,
            false => Nanos(0),
        }
    }

    /// How the wait went that [`Adaptive::spin`] was asked about.
    pub fn waited(&mut self, wait: &Wait) {
        let time = wait.ended.since(wait.began);
        let waits = &mut self.waits[usize::from(wait.under_way)];
        if wait.found {
            waits.in_vain = 0;
        } else if wait.spun > Nanos(0) {
            self.budget = self.budget.saturating_sub(wait.spun);
            waits.in_vain += 1;
            let trial = waits.expected > EXPECTED_MAX;
            let free = if trial { 0 } else { VAIN_IN_A_ROW - 1 };
            if waits.in_vain > free {
                let doublings = (waits.in_vain - free - 1).min(HOLD_DOUBLINGS);
                waits.held_until = wait.ended + HOLD * (1 << doublings);
            }
        }
        waits.smooth(time, wait);
    }

    /// The budget grows with time.
    fn fill(&mut self, now: Instant) {
        let time = now.since(self.filled).min(Nanos::secs(1));
        // Rounded down: the budget never grows too fast.
        let grown = Nanos(time.0 / 100 * PERCENT);
        if grown > Nanos(0) {
            self.budget = (self.budget + grown).min(BURST);
            self.filled = now;
        }
    }
}

impl Waits {
    fn smooth(&mut self, time: Nanos, wait: &Wait) {
        let time = time.min(WAIT_MAX);
        if wait.found && self.expected > EXPECTED_MAX {
            // Earlier ones had the processor's waking in them.
            self.expected = time;
        } else if wait.came || time > self.expected {
            // A timer that ends a wait early says nothing of how long it would have been.
            self.expected = Nanos((self.expected.0 * 7 + time.0) / 8);
        }
    }
}
