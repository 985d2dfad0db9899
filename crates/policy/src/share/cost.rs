//! How much of the device's time does a request take?
//!
//! ```text
//! request -> fixed (+ jump) + bytes / rate = device time;  a promise -> device time per second = Share
//! ```
//!
//! Bytes alone cannot be added up where reads and writes mix: a device that reads 256 MB/s and writes
//! 170 gives neither 256 of both nor 170 of both. Time can. A reservation is paced by its *share* of the
//! device's time, and since a promised byte and a served byte are both valued by this model, an error of
//! the model that is the same for all drops out of the pace.
//!
//! Choice: fixed cost and rate per direction; the paper counts tokens in I/Os of one size and never
//! mixes directions in its measurements.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use base::{Bytes, Nanos};

use super::BytesPerSec;

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

impl Direction {
    /// Both.
    pub const ALL: [Direction; 2] = [Direction::Read, Direction::Write];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Read => "read",
            Direction::Write => "write",
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A part of the device's time, in parts per billion: nanoseconds of device time per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Share(pub u64);

impl Share {
    /// All of it.
    pub const WHOLE: Share = Share(1_000_000_000);
    /// None of it.
    pub const NONE: Share = Share(0);

    /// So many percent.
    pub const fn percent(n: u64) -> Share {
        Share(n * 10_000_000)
    }

    /// The part in percent.
    pub fn as_percent(self) -> f64 {
        self.0 as f64 / 1e7
    }

    /// What is left of it, or none.
    pub const fn saturating_sub(self, other: Share) -> Share {
        Share(self.0.saturating_sub(other.0))
    }
}

impl Add for Share {
    type Output = Share;
    /// What is more than can be counted stays that: nothing has so much time.
    fn add(self, other: Share) -> Share {
        Share(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Share {
    fn add_assign(&mut self, other: Share) {
        *self = *self + other;
    }
}

impl Sub for Share {
    type Output = Share;
    fn sub(self, other: Share) -> Share {
        Share(self.0 - other.0)
    }
}

impl std::iter::Sum for Share {
    fn sum<I: Iterator<Item = Share>>(shares: I) -> Share {
        shares.fold(Share::NONE, Share::add)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.1} %", self.as_percent()))
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What requests of one direction cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Every request.
    pub fixed: Nanos,
    /// On top for one that does not follow on the one before; zero on most SSDs.
    pub jump: Nanos,
    /// The bytes.
    pub rate: BytesPerSec,
}

/// What a device costs, per direction.
///
/// # Example
/// ```
/// use base::{Bytes, Nanos};
/// use policy::share::{Approach, BytesPerSec, Cost, Costs, Direction, Share};
/// let costs = Costs {
///     read: Cost { fixed: Nanos::micros(100), jump: Nanos(0), rate: BytesPerSec(1 << 30) },
///     write: Cost { fixed: Nanos::micros(300), jump: Nanos(0), rate: BytesPerSec(1 << 29) },
/// };
/// assert_eq!(costs.of(Direction::Read, Bytes::mib(1), Approach::Follows), Nanos(1_076_563));
/// // 256 MiB/s of reads in units of 1 MiB take 256 times that per second.
/// let share = costs.share(Direction::Read, BytesPerSec(256 << 20), Bytes::mib(1));
/// assert_eq!(share, Share(275_600_128));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// Reads.
    pub read: Cost,
    /// Writes.
    pub write: Cost,
}

/// How the device comes to a request from the end of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approach {
    /// It is there.
    Follows,
    /// So many bytes are passed over, as where a cache answered them.
    Over(Bytes),
    /// It begins elsewhere.
    Jump,
}

impl Costs {
    /// A device without fixed costs that is as fast both ways.
    pub const fn flat(rate: BytesPerSec) -> Costs {
        let cost = Cost {
            fixed: Nanos(0),
            jump: Nanos(0),
            rate,
        };
        Costs {
            read: cost,
            write: cost,
        }
    }

    /// One direction.
    pub const fn direction(&self, direction: Direction) -> &Cost {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    /// The device time of one request.
    pub fn of(&self, direction: Direction, bytes: Bytes, approach: Approach) -> Nanos {
        let cost = self.direction(direction);
        cost.fixed + self.approach(direction, approach) + cost.rate.time_for(bytes)
    }

    /// The device time until a request begins: what is passed over takes as long as if it was asked for, a jump at most.
    pub fn approach(&self, direction: Direction, approach: Approach) -> Nanos {
        let cost = self.direction(direction);
        match approach {
            Approach::Follows => Nanos(0),
            Approach::Over(gap) => cost.rate.time_for(gap).min(cost.jump),
            Approach::Jump => cost.jump,
        }
    }

    /// The share of the device's time that `rate` takes in sequential requests of `unit` bytes.
    ///
    /// # Panics
    /// If `unit` is zero.
    pub fn share(&self, direction: Direction, rate: BytesPerSec, unit: Bytes) -> Share {
        assert!(unit.0 > 0, "requests of zero bytes");
        let each = u128::from(self.of(direction, unit, Approach::Follows).0);
        let share = u128::from(rate.0) * each / u128::from(unit.0);
        Share(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// The rate that a share of the device's time gives in sequential requests of `unit` bytes.
    pub fn rate(&self, direction: Direction, share: Share, unit: Bytes) -> BytesPerSec {
        let each = self.of(direction, unit, Approach::Follows).0.max(1);
        let rate = u128::from(share.0) * u128::from(unit.0) / u128::from(each);
        BytesPerSec(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}
