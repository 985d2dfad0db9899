//! What may refuse a reservation besides its stores' calendars: a cap, another reservation of its target, a quota.
//!
//! ```text
//! asked for -> caps of the volume -> others of the target, in that time and direction -> the account's quota
//!           -> TxnPart: what is to go through with the record, or not at all
//! ```
//!
//! An offer asks the same as what makes a reservation, so that what is offered is granted.

use policy::share::Slot;
use vdisk::meta::TxnPart;

use crate::allotment::Allotments;
use crate::caps::check_caps;
use crate::error::ReservationError;
use crate::plan::Wanted;
use crate::record::{Promise, Reservation, ReservationId, Target, Terms};
use crate::records::Versioned;
use crate::service::Service;
use crate::stores::Facts;

/// Another reservation that has the target's requests of a direction for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clash {
    /// Which.
    pub id: ReservationId,
    /// When.
    pub slot: Slot,
}

impl Clash {
    /// As an error of what is asked for `target`.
    pub fn error(self, target: &Target) -> ReservationError {
        ReservationError::Clash {
            target: target.label(),
            other: self.id,
            until: self.slot.end,
        }
    }
}

/// The first of `clashes` in `slot`.
pub(crate) fn first_in(clashes: &[Clash], slot: Slot) -> Option<Clash> {
    clashes.iter().find(|it| it.slot.overlaps(slot)).copied()
}

/// The other reservations of the same target and direction, by their begins. Requests of a volume or an export come under
/// one reservation each way: two would not add up. Clients never come under an allotment itself.
fn clashes(
    all: &[Versioned],
    own: ReservationId,
    (target, promise): (&Target, &Promise),
) -> Vec<Clash> {
    let is_same = |other: &Target| match (other, target) {
        // It may have been called otherwise.
        (Target::Volume { id, .. }, Target::Volume { id: own, .. }) => id == own,
        (other, target) => other == target,
    };
    let clashes = |it: &&Versioned| {
        let other = &it.record.promise;
        let same_way = other.read > 0 && promise.read > 0 || other.write > 0 && promise.write > 0;
        let stands = it.record.over_since.is_none() && !it.record.terms.allotment;
        it.id != own && stands && same_way && is_same(&it.record.target)
    };
    let mut found: Vec<Clash> = all
        .iter()
        .filter(clashes)
        .map(|it| Clash {
            id: it.id,
            slot: it.record.promise.slot(),
        })
        .collect();
    found.sort_by_key(|it| (it.slot.start, it.id));
    found
}

/// What a service asks before it makes or changes a reservation.
pub(crate) struct Admission<'a>(pub &'a Service);

impl Admission<'_> {
    /// What is not to be beside `promise` of `target`; empty where all may be.
    pub async fn clashes(
        &self,
        own: ReservationId,
        (target, promise, terms): (&Target, &Promise, &Terms),
    ) -> Result<Vec<Clash>, ReservationError> {
        if terms.allotment || target.key().is_none() {
            return Ok(Vec::new());
        }
        let all = self.0.records.all().await?;
        Ok(clashes(&all, own, (target, promise)))
    }

    /// May it be, as far as caps and other reservations of its target go? What is decided by looking at all of them goes
    /// through if none came in between.
    ///
    /// # Errors
    /// [`ReservationError::Request`] above a cap, [`ReservationError::Clash`], [`ReservationError::Meta`].
    pub async fn alone(
        &self,
        own: ReservationId,
        of: (&Target, &Promise, &Terms),
        facts: &Facts,
    ) -> Result<TxnPart, ReservationError> {
        let (target, promise, terms) = of;
        check_caps(facts, target, promise)?;
        if terms.allotment {
            return Ok(TxnPart::default());
        }
        // Before the others are read: what comes in between is noticed.
        let alone = self.0.records.one_at_a_time(target, own).await?;
        let clashes = self.clashes(own, of).await?;
        match first_in(&clashes, promise.slot()) {
            None => Ok(alone),
            Some(clash) => Err(clash.error(target)),
        }
    }

    /// What is to go through with `next`: the account's use of its quota, and its place in an allotment. The rate of what is
    /// inside one was charged with it; its count and its room are its own.
    pub async fn charge(
        &self,
        id: ReservationId,
        next: &Reservation,
        wanted: &[Wanted],
        facts: &Facts,
    ) -> Result<TxnPart, ReservationError> {
        let charged = self.0.quotas.charge(id, next, self.0.now()).await?;
        let allotments = Allotments(&self.0.records);
        let entered = allotments.enter(id, next, wanted, facts).await?;
        Ok(charged.and(entered))
    }
}
