//! What may a session do: which names, in which direction, in which phase?
//!
//! ```text
//! Early     -> Promised   the slot begins
//! Early     -> Over       the reservation is released before its slot
//! Promised  -> Over       the slot ends, or the reservation is released: nothing more is served
//! Open                    nothing was promised, nothing is
//! ```
//!
//! Pure: nothing is looked at but what was granted.

use base::Nanos;
use policy::share::calendar::BookingId;
use policy::share::{BytesPerSec, Direction, Second, Slot, Terms};
use serde::{Deserialize, Serialize};

use super::error::OperationError;
use crate::qos::book::SYSTEM;
use crate::qos::book::record::Record;

/// Names that begin so are those of virtual disks (extents, maps, dirty bits and guards) and of buckets. For the node key
/// alone.
pub const CLUSTER: [&str; 5] = ["v/", "m/", "d/", "g/", "s3/"];

/// Where a session stands; see the module's arrows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Nothing was promised.
    Open,
    /// Its slot has not begun.
    Early,
    /// It is promised its rate.
    Promised,
    /// Its slot is over, or its reservation released: nothing more is served.
    Over,
}

impl Phase {
    /// The name in metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Open => "open",
            Phase::Early => "early",
            Phase::Promised => "promised",
            Phase::Over => "over",
        }
    }

    /// The phase of a reservation that is opened now.
    pub(super) fn at(slot: Slot, now: Second) -> Phase {
        match slot {
            slot if now < slot.start => Phase::Early,
            slot if now < slot.end => Phase::Promised,
            _ => Phase::Over,
        }
    }

    /// The phase that follows, if the slot began or ended by now.
    pub(super) fn following(self, slot: Slot, now: Second) -> Option<Phase> {
        match (self, Phase::at(slot, now)) {
            (Phase::Early, next @ (Phase::Promised | Phase::Over)) => Some(next),
            (Phase::Promised, Phase::Over) => Some(Phase::Over),
            _ => None,
        }
    }
}

/// What a session may and was promised; none of it for clients that may do everything.
pub(super) struct Granted {
    pub reservation: BookingId,
    pub scope: String,
    pub direction: Direction,
    pub rate: BytesPerSec,
    pub window: Nanos,
    pub slot: Slot,
}

impl Granted {
    /// By a reservation.
    pub fn of(record: &Record) -> Granted {
        let contract = &record.contract;
        Granted {
            reservation: record.id,
            scope: record.scope.clone(),
            direction: contract.direction,
            rate: contract.rate,
            window: contract.window,
            slot: contract.slot,
        }
    }

    /// The terms of its flow while it is promised its rate.
    pub fn terms(&self) -> Terms {
        Terms {
            window: Some(self.window),
            ..Terms::reserved(self.direction, self.rate)
        }
    }

    /// Is this within what was granted?
    ///
    /// # Errors
    /// [`OperationError::Scope`], [`OperationError::Direction`].
    pub fn covers(
        &self,
        what: &'static str,
        object: &str,
        direction: Option<Direction>,
    ) -> Result<(), OperationError> {
        if !object.starts_with(&self.scope) {
            return Err(OperationError::Scope {
                what,
                object: object.to_owned(),
                reservation: self.reservation,
                scope: self.scope.clone(),
            });
        }
        if direction.is_some_and(|direction| direction != self.direction) {
            return Err(OperationError::Direction {
                what,
                object: object.to_owned(),
                reservation: self.reservation,
                direction: self.direction,
            });
        }
        Ok(())
    }
}

/// May a client see objects of this name at all? Only one that is trusted sees what virtual disks consist of.
///
/// # Errors
/// [`OperationError::System`], [`OperationError::Cluster`].
pub(super) fn visible(
    trusted: bool,
    what: &'static str,
    object: &str,
) -> Result<(), OperationError> {
    let object = match hidden(trusted, object) {
        None => return Ok(()),
        Some(_) => object.to_owned(),
    };
    Err(match object.starts_with(SYSTEM) {
        true => OperationError::System { what, object },
        false => OperationError::Cluster { what, object },
    })
}

/// The prefix for which a listing leaves the name out.
pub(super) fn hidden(trusted: bool, object: &str) -> Option<&'static str> {
    let cluster = CLUSTER.iter().copied().filter(|_| !trusted);
    let mut prefixes = cluster.chain([SYSTEM]);
    prefixes.find(|prefix| object.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_follows_its_slot_and_never_goes_back() {
        let slot = Slot::new(Second(100), 10);
        let (early, promised, over) = (Phase::Early, Phase::Promised, Phase::Over);
        for (now, phase) in [(99, early), (100, promised), (109, promised), (110, over)] {
            assert_eq!(Phase::at(slot, Second(now)), phase, "at {now}");
            let next = |from: Phase| from.following(slot, Second(now));
            assert_eq!(next(early), (phase != early).then_some(phase));
            assert_eq!(next(promised), (phase == over).then_some(over));
            assert_eq!((next(over), next(Phase::Open)), (None, None));
        }
    }

    #[test]
    fn only_a_trusted_client_sees_what_virtual_disks_consist_of() {
        assert_eq!(visible(true, "read", "v/1"), Ok(()));
        let refused = visible(false, "read", "v/1");
        assert!(matches!(refused, Err(OperationError::Cluster { .. })));
        for trusted in [false, true] {
            let refused = visible(trusted, "read", ".tanada/keys");
            assert!(matches!(refused, Err(OperationError::System { .. })));
            assert_eq!(visible(trusted, "read", "songs/1"), Ok(()));
        }
    }
}
