//! What exactly is promised, and when?

use std::fmt;

use base::{Bytes, Nanos};
use jiff::Timestamp;

use super::{BytesPerSec, Direction};

/// A moment of the calendar: seconds since 1970-01-01 00:00 UTC. Where within a second a reservation
/// begins does not matter; a moment of the data path is a [`base::Instant`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Second(pub u64);

impl Second {
    /// As a moment, if it is one of the present: tests and models count from zero.
    fn utc(self) -> Option<Timestamp> {
        let seconds = i64::try_from(self.0).ok()?;
        let moment = Timestamp::from_second(seconds).ok()?;
        (self.0 >= PRESENT).then_some(moment)
    }
}

/// The first second that is shown as a moment: 2001-09-09T01:46:40Z.
const PRESENT: u64 = 1_000_000_000;

impl fmt::Display for Second {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.utc() {
            Some(at) => write!(f, "{at}"),
            None => write!(f, "second {}", self.0),
        }
    }
}

/// From `start` to just before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// The first second in it.
    pub start: Second,
    /// The first second behind it.
    pub end: Second,
}

impl Slot {
    /// From `start` for `seconds`.
    pub const fn new(start: Second, seconds: u64) -> Slot {
        Slot {
            start,
            end: Second(start.0.saturating_add(seconds)),
        }
    }

    /// Its length in seconds.
    pub const fn seconds(self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }

    /// Do the two share a second?
    pub const fn overlaps(self, other: Slot) -> bool {
        self.start.0 < other.end.0 && other.start.0 < self.end.0
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.start.utc(), self.end.utc()) {
            (Some(start), Some(end)) => write!(f, "{start} to {end}"),
            _ => write!(f, "seconds {}..{}", self.start.0, self.end.0),
        }
    }
}

/// How sure a promise is, in parts per million: this share of its windows is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probability(pub u32);

impl Probability {
    /// So many percent.
    pub const fn percent(n: u32) -> Probability {
        Probability(n * 10_000)
    }

    /// As a number from 0 to 1.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

impl Default for Probability {
    /// 99 %.
    fn default() -> Self {
        Probability::percent(99)
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", f64::from(self.0) / 10_000.0)
    }
}

impl fmt::Debug for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A reservation: this rate, this way, in this share of windows, from then to then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contract {
    /// Bytes per second; not zero.
    pub rate: BytesPerSec,
    /// Reads or writes.
    pub direction: Direction,
    /// The window it is judged by.
    pub window: Nanos,
    /// The share of windows that keep it.
    pub probability: Probability,
    /// When.
    pub slot: Slot,
    /// Room for what is written, booked until the slot ends; zero for none.
    pub space: Bytes,
}

impl Contract {
    /// With the default window of a second, kept in 99 % of them, without space.
    pub fn new(rate: BytesPerSec, direction: Direction, slot: Slot) -> Contract {
        Contract {
            rate,
            direction,
            window: Nanos::secs(1),
            probability: Probability::default(),
            slot,
            space: Bytes(0),
        }
    }

    /// The same as the calendar has it where room is another's concern.
    pub fn without_room(&self) -> Contract {
        Contract {
            space: Bytes(0),
            ..*self
        }
    }

    /// Is `other` granted wherever this one is? Room apart.
    pub fn contains(&self, other: &Contract) -> bool {
        self.direction == other.direction
            && other.rate <= self.rate
            && other.window >= self.window
            && other.probability <= self.probability
            && self.slot.start <= other.slot.start
            && other.slot.end <= self.slot.end
    }
}
