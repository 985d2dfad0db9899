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

/// A store as [`reconcile`] asks it, wherever it is.
pub trait Reconciled {
    /// Its identity.
    fn uuid(&self) -> u128;

    /// As [`Parts::undecided`]; none if it cannot be asked.
    fn undecided(&self) -> impl Future<Output = Vec<(BookingId, Group)>>;

    /// As [`Parts::decision`].
    ///
    /// # Errors
    /// Why it cannot say, in words.
    fn decision(&self, group: u128) -> impl Future<Output = Result<Decision, String>>;

    /// As [`Parts::decide`].
    ///
    /// # Errors
    /// Why it is not done, in words.
    fn decide(&self, id: BookingId, decision: Decision)
    -> impl Future<Output = Result<(), String>>;
}

impl Reconciled for Rc<Manager> {
    fn uuid(&self) -> u128 {
        self.store().uuid()
    }

    async fn undecided(&self) -> Vec<(BookingId, Group)> {
        self.parts().undecided()
    }

    async fn decision(&self, group: u128) -> Result<Decision, String> {
        let said = self.parts().decision(group).await;
        said.map_err(|error| error.to_string())
    }

    async fn decide(&self, id: BookingId, decision: Decision) -> Result<(), String> {
        let done = self.parts().decide(id, decision).await;
        done.map_err(|error| error.to_string())
    }
}

/// What [`reconcile`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Parts of groups that stand.
    pub committed: usize,
    /// Parts that were released.
    pub released: usize,
    /// Parts whose deciding store is not at hand; they are kept as they are.
    pub undecided: usize,
    /// Parts that could not be settled, and why; they are kept as they are.
    pub failed: Vec<(BookingId, String)>,
}

/// Settles what a crash left of reservations over several stores; see the module's head. Call it with all stores at
/// hand before any client reserves, and again when more come.
pub async fn reconcile<S: Reconciled>(stores: &[S]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut parts: Vec<(&S, BookingId, Group)> = Vec::new();
    for store in stores {
        let found = store.undecided().await.into_iter();
        parts.extend(found.map(|(id, group)| (store, id, group)));
    }
    // Those that do not decide first: what decides must be there until all have asked.
    parts.sort_by_key(|(store, _, group)| group.decider() == Some(store.uuid()));
    for (store, id, group) in parts {
        let decider = stores.iter().find(|it| Some(it.uuid()) == group.decider());
        let Some(decider) = decider else {
            outcome.undecided += 1;
            continue;
        };
        let settled = async {
            let decision = decider.decision(group.id).await?;
            store.decide(id, decision).await.map(|()| decision)
        };
        match settled.await {
            Ok(Decision::Committed) => outcome.committed += 1,
            Ok(Decision::Aborted) => outcome.released += 1,
            Err(why) => outcome.failed.push((id, why)),
        }
    }
    outcome
}
