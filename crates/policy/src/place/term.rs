//! What does one request cost behind another?
//!
//! ```text
//! c_r = a_r * l_r  +  q(r, p) * b * min(1, |o_r - (o_p + l_p)|)
//!       transfer      who was before   one seek, unless it follows on
//! ```
//!
//! | symbol | here | unit |
//! |---|---|---|
//! | a_r | [`Weights::local`], [`Weights::remote`] | picoseconds per byte |
//! | b | [`Weights::seek`] | nanoseconds |
//! | q | [`Penalties`] | thousandths |
//! | l_r | [`Request::bytes`] | bytes |
//! | o_r | [`At`] | a byte of an object |
//! | h' = o_p + l_p | [`Tail`] | a byte of an object |
//!
//! Source: COST 3.1 (table 1, the cost function, the penalty function).
//!
//! Always true: a request that follows on costs its transfer, whichever client was before.

use std::fmt;

use base::{Bytes, Nanos};

use super::{At, Class, Origin, Request};
use crate::rate::BytesPerSec;

/// No cost nor time is longer than this: sums of them stay far from overflow.
pub(super) const LONGEST: Nanos = Nanos::secs(3_600);

fn believable(nanos: u128) -> Nanos {
    let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
    Nanos(nanos).min(LONGEST)
}

/// Picoseconds per byte: 100 MB/s are 10,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PerByte(pub u64);

impl PerByte {
    /// What a byte takes at `rate`; a rate of zero counts as one byte a second.
    pub fn at(rate: BytesPerSec) -> PerByte {
        PerByte(1_000_000_000_000 / rate.0.max(1))
    }

    /// What `bytes` take, rounded down; at most an hour.
    pub fn times(self, bytes: Bytes) -> Nanos {
        believable(u128::from(self.0) * u128::from(bytes.0) / 1_000)
    }
}

/// Thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Permille(pub u32);

impl Permille {
    /// All of it.
    pub const WHOLE: Permille = Permille(1_000);

    /// So much of `time`, rounded down; at most an hour.
    pub fn of(self, time: Nanos) -> Nanos {
        believable(u128::from(time.0) * u128::from(self.0) / 1_000)
    }

    /// As a number: 1.0 is all.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1_000.0
    }
}

impl fmt::Display for Permille {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_f64())
    }
}

/// What requests cost on one disk.
///
/// Source: COST 3.1 table 1 (a_r by the disk's speed and the client's distance; b), 4.1 (a is smaller for the local
/// disk).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weights {
    /// a for a client in the disk's own node.
    pub local: PerByte,
    /// a for all others.
    pub remote: PerByte,
    /// b.
    pub seek: Nanos,
}

impl Default for Weights {
    /// A disk of 100 MB/s with 8 ms to position, a fifth dearer from afar.
    ///
    /// Choice: the paper gives no values, and one b for all; each disk has its own.
    fn default() -> Self {
        Weights {
            local: PerByte(10_000),
            remote: PerByte(12_000),
            seek: Nanos::millis(8),
        }
    }
}

impl Weights {
    /// a of a client.
    pub fn per_byte(&self, local: bool) -> PerByte {
        if local { self.local } else { self.remote }
    }

    /// The same, no byte dearer than a microsecond and no seek than ten seconds.
    pub fn bounded(self) -> Weights {
        let most = PerByte(1_000_000);
        Weights {
            local: self.local.min(most),
            remote: self.remote.min(most),
            seek: self.seek.min(Nanos::secs(10)),
        }
    }
}

/// q: how the seek from one client's request to another's is weighed. A client after itself weighs 1.
///
/// Source: COST 3.1 (q for bandwidth fairness; large from high to low priority, small from low to high).
///
/// Choice: q is that of the request that is added, not of the one before. Between unlike classes `other` is not looked
/// at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Penalties {
    /// Another client of the same class is before; above 1 clients are spread over the disks.
    pub other: Permille,
    /// A client of a higher class is.
    pub from_higher: Permille,
    /// A client of a lower class is.
    pub from_lower: Permille,
}

impl Default for Penalties {
    /// No fairness among equals; a seek behind a preferred client counts 20 times, one behind a lesser half.
    ///
    /// Choice: the paper gives no values.
    fn default() -> Self {
        Penalties {
            other: Permille(1_000),
            from_higher: Permille(20_000),
            from_lower: Permille(500),
        }
    }
}

impl Penalties {
    /// q = 1 for all: no fairness, no priorities.
    pub const NONE: Penalties = Penalties {
        other: Permille::WHOLE,
        from_higher: Permille::WHOLE,
        from_lower: Permille::WHOLE,
    };

    /// Equals are kept apart: a seek behind another client counts four times.
    pub fn fair() -> Penalties {
        Penalties {
            other: Permille(4_000),
            ..Penalties::default()
        }
    }

    /// q(next, before).
    ///
    /// Choice: with no request before (the first one, or after the head was reset) q is 1.
    pub fn weigh(&self, before: Option<Origin>, next: Origin) -> Permille {
        let class_before: Class = match before {
            None => return Permille::WHOLE,
            Some(before) if before.client == next.client => return Permille::WHOLE,
            Some(before) => before.class,
        };
        match class_before.cmp(&next.class) {
            std::cmp::Ordering::Greater => self.from_higher,
            std::cmp::Ordering::Less => self.from_lower,
            std::cmp::Ordering::Equal => self.other,
        }
    }
}

/// The end of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// h': where the head will be, if that is known.
    pub end: Option<At>,
    /// Whose request is the last.
    pub last: Option<Origin>,
}

impl Tail {
    /// The head is at `start`, and no request was before.
    pub const fn start(start: At) -> Tail {
        Tail {
            end: Some(start),
            last: None,
        }
    }

    /// The tail with one more request behind it.
    pub fn behind(request: &Request, at: Option<At>) -> Tail {
        Tail {
            end: at.map(|at| at.after(request.bytes)),
            last: Some(request.origin),
        }
    }

    /// `min(1, |o_r - h'|)`: how many seeks it takes to get from here to `at`.
    ///
    /// Choice: where a place is not known, a request that follows on its own client's last one takes none.
    pub fn seeks(&self, request: &Request, at: Option<At>) -> u64 {
        match (self.end, at) {
            (Some(end), Some(at)) => at.distance(end).min(1),
            _ => {
                let own = self
                    .last
                    .is_some_and(|last| last.client == request.origin.client);
                u64::from(!(own && request.sequential))
            }
        }
    }
}

/// c_r: what `request` at `at` costs behind `tail`.
///
/// Source: COST 3.1, `a_r*l_r + q(r, r-1)*b*min(1, |o_r - (o_{r-1} + l_{r-1})|)`.
///
/// # Example
/// ```
/// use base::{Bytes, Nanos};
/// use policy::place::*;
/// let weights = Weights { local: PerByte(10_000), remote: PerByte(12_000), seek: Nanos::millis(8) };
/// let origin = Origin { client: ClientId(1), class: Class::Normal };
/// let request = Request {
///     origin,
///     op: Op::Read,
///     bytes: Bytes(1_000_000),
///     sequential: false,
///     penalties: Penalties::NONE,
/// };
/// let tail = Tail { end: Some(At { object: 0, byte: 4096 }), last: Some(origin) };
/// let cost = |byte, local| term(&weights, &request, local, Some(At { object: 0, byte }), &tail);
/// assert_eq!(cost(4096, true), Nanos::millis(10));
/// assert_eq!(cost(4096, false), Nanos::millis(12));
/// assert_eq!(cost(0, true), Nanos::millis(18));
/// ```
pub fn term(
    weights: &Weights,
    request: &Request,
    local: bool,
    at: Option<At>,
    tail: &Tail,
) -> Nanos {
    let transfer = weights.per_byte(local).times(request.bytes);
    let q = request.penalties.weigh(tail.last, request.origin);
    transfer + q.of(weights.seek) * tail.seeks(request, at)
}
