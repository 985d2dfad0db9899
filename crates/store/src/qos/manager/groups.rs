//! Reservations over several stores: all of it or none, also after a crash.
//!
//! The client that reserves holds at all stores, then commits at all in the order of
//! [`Group::stores`]. It hands out the capabilities when all have committed. The last store *decides*: once it has
//! committed, all have. After a crash [`reconcile`] asks the deciding store of each group found: committed there, it
//! stands everywhere; held or unknown there, it is released everywhere. The deciding store releases it first, and then
//! says so. That is presumed abort: no client can have an answer, and none can commit it there any more. Where the
//! deciding store is not at hand nothing is done, since a client may rely on it. To release, begin with the deciding
//! store ([`Group::decider`]): what a crash leaves of it then is released as well.

use std::rc::Rc;

use policy::share::Second;
use policy::share::calendar::{BookingId, NoBooking};

use super::Manager;
use super::request::{Decision, ReservationRequest, ReserveError};
use super::reserve::Reserver;
use crate::qos::book::record::{Group, PartName};
use crate::qos::state::bookings::{PartState, Unconfirmed};

/// Parts of reservations over several stores, at one of them; see the module's head.
#[derive(Clone, Copy)]
pub struct Parts<'a>(pub(super) &'a Reserver);

impl Parts<'_> {
    /// Parts of groups that this store found when it opened, committed or held, and not settled since.
    pub fn undecided(self) -> Vec<(BookingId, Group)> {
        self.0.core().bookings.undecided()
    }

    /// What this store, which decides over `group`, says of it. Before it says [`Decision::Aborted`] what is held of it
    /// here is released, durably, so that no client can commit it afterwards.
    ///
    /// # Errors
    /// [`ReserveError::Store`] if that cannot be written; then nothing is decided.
    pub async fn decision(self, group: u128) -> Result<Decision, ReserveError> {
        self.0.decision(group).await
    }

    /// Carries out what was decided over a part found by [`undecided`](Self::undecided).
    ///
    /// # Errors
    /// [`ReserveError::Store`]; the part is undecided then, as before.
    pub async fn decide(self, id: BookingId, decision: Decision) -> Result<(), ReserveError> {
        self.0.decide(id, decision).await
    }

    /// Is there this part?
    pub fn has(self, part: PartName) -> bool {
        self.0.core().bookings.named(part).is_ok()
    }

    /// Sets aside until `until` what is within the allotment `within`, a whole that has committed parts here: no time of
    /// the device, but of what that was promised. It ends with it at the latest. Durable when answered.
    ///
    /// # Errors
    /// [`ReserveError::Request`] with what is left of the allotment; else as for [`Manager::hold`].
    pub async fn hold_within(
        self,
        within: u128,
        request: &ReservationRequest,
        group: Group,
        until: Second,
    ) -> Result<BookingId, ReserveError> {
        let held = self.0.hold_within(within, request.clone(), group, until);
        held.await
    }

    /// The part as this store sees it: its clock, and for how long nothing of it was asked.
    ///
    /// # Errors
    /// [`NoBooking`] if there is none, or it is over.
    pub fn look(self, part: PartName) -> Result<PartState, NoBooking> {
        self.0.look(part)
    }

    /// Is there one that is held to take its place?
    pub fn is_amended(self, id: BookingId) -> bool {
        let records = self.0.core().bookings.records.borrow();
        records.values().any(|it| it.replaces == Some(id))
    }

    /// From now on parts are taken of reservations that a record of a meta store decides over ([`Group::BY_RECORD`]). The
    /// caller asks that record about each [`unconfirmed`](Self::unconfirmed) part.
    pub fn take_by_record(self) {
        self.0.core().bookings.by_record.set(true);
    }

    /// Parts of reservations that a record decides over: all that are held, and committed ones that the record did not
    /// confirm since the store was opened, or for `seconds`. They are promised meanwhile. Committing one confirms it.
    pub fn unconfirmed(self, seconds: u64) -> Vec<Unconfirmed> {
        let core = self.0.core();
        core.bookings.unconfirmed(core.now(), seconds)
    }
}

/// What [`reconcile`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Parts of groups that stand.
    pub committed: usize,
    /// Parts that were released.
    pub released: usize,
    /// Parts whose deciding store is not at hand.
    pub undecided: usize,
}

/// Settles what a crash left of reservations over several stores; see the module's head. Call it with all stores at
/// hand before any client reserves, and again when more come.
///
/// # Errors
/// [`ReserveError`] of the first store that failed; the rest is settled by calling it again.
pub async fn reconcile(nodes: &[Rc<Manager>]) -> Result<Outcome, ReserveError> {
    let mut outcome = Outcome::default();
    // Those that do not decide first: what decides must be there until all have asked.
    let mut parts: Vec<(&Rc<Manager>, BookingId, Group)> = Vec::new();
    for manager in nodes {
        let found = manager.parts().undecided().into_iter();
        parts.extend(found.map(|(id, group)| (manager, id, group)));
    }
    parts.sort_by_key(|(manager, _, group)| group.decider() == Some(manager.uuid()));
    for (manager, id, group) in parts {
        let decider = nodes.iter().find(|it| Some(it.uuid()) == group.decider());
        let Some(decider) = decider else {
            outcome.undecided += 1;
            continue;
        };
        let decision = decider.parts().decision(group.id).await?;
        manager.parts().decide(id, decision).await?;
        match decision {
            Decision::Committed => outcome.committed += 1,
            Decision::Aborted => outcome.released += 1,
        }
    }
    Ok(outcome)
}
