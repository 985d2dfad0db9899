//! What a calendar keeps of one reservation, and what it shows of a stretch of time.

use super::demand::Demand;
use super::{Contract, Second, Share, Slot};

/// A reservation's number; they rise and never come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BookingId(pub u64);

/// How far a booking has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Set aside until then, in case the rest of a larger reservation works out.
    Tentative {
        /// Gone from this second on.
        until: Second,
    },
    /// Promised.
    Committed,
}

/// One reservation in the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Booking {
    /// What is promised.
    pub contract: Contract,
    /// How far it has come.
    pub state: State,
}

impl Booking {
    /// Was it held too long, or is its slot over?
    pub(super) fn is_over(&self, now: Second) -> bool {
        let held_too_long = matches!(self.state, State::Tentative { until } if until <= now);
        held_too_long || self.contract.slot.end <= now
    }
}

/// A stretch of time in which nothing begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// When.
    pub slot: Slot,
    /// What is promised in it.
    pub demand: Demand,
    /// The part of the device's time that takes.
    pub promised: Share,
    /// What must stay free for it.
    pub headroom: Share,
}

/// A number that is no booking's (any more).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no reservation {}: it was released, expired, or never made", .0.0)]
pub struct NoBooking(pub BookingId);
