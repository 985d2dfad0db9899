//! Why a reservation does not fit, and what would instead.

use std::fmt;

use super::{BytesPerSec, Contract, Second, Share, Slot, SpaceError};

/// What would fit instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The earliest slot of the same length from the asked start on; `None`: never.
    pub earliest: Option<Slot>,
    /// The largest rate in the asked slot; `None`: none.
    pub largest: Option<BytesPerSec>,
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Typed back it is to be granted.
        let largest = self.largest.map(BytesPerSec::floored);
        match (self.earliest, largest) {
            (Some(slot), Some(rate)) => write!(f, "ask for {slot} or for at most {rate}"),
            (Some(slot), None) => write!(f, "ask for {slot}"),
            (None, Some(rate)) => write!(f, "ask for at most {rate}"),
            (None, None) => f.write_str("this device cannot do it at any time"),
        }
    }
}

/// Why a reservation was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The device is promised to others.
    #[error(
        "cannot reserve {} of {}s in {}: at {at} {promised} of the device is promised to {sessions} \
         others, {headroom} must stay free and {floors} is for background work, which leaves {left} \
         where {needed} is needed; {offer}", .asked.rate, .asked.direction, .asked.slot
    )]
    Full {
        /// What was asked for.
        asked: Box<Contract>,
        /// The first second at which it does not fit.
        at: Second,
        /// What is promised then.
        promised: Share,
        /// To how many.
        sessions: u32,
        /// What must stay free then, the newcomer counted.
        headroom: Share,
        /// What background work is promised.
        floors: Share,
        /// What is left then.
        left: Share,
        /// What the newcomer takes.
        needed: Share,
        /// What would fit.
        offer: Offer,
    },
    /// There is no room for what it would write.
    #[error("cannot reserve room for what is written")]
    Space(#[from] SpaceError),
    /// It promises nothing.
    #[error("cannot reserve a rate of zero; without a promise no reservation is needed")]
    NoRate,
    /// It lasts no time, or is over.
    #[error("cannot reserve {slot}: it is {now} now; give it an end after its start and after now")]
    NoTime {
        /// As asked.
        slot: Slot,
        /// The time.
        now: Second,
    },
    /// The calendar has no more lines.
    #[error("cannot reserve: the calendar holds {0} reservations, which is the most; release some")]
    TooMany(usize),
}
