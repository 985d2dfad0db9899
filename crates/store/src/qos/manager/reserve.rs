//! Reservations: offered, held, committed, released; over one store or several.
//!
//! ```text
//! hold     calendar -> room in the store -> the book -> answered
//! commit   calendar -> the book -> answered with the capability
//! release  sessions lose their promise -> the book -> room in the store -> calendar -> answered
//! ```
//!
//! One at a time, and each in a task of its own. The client that asked may be gone; what is half done is done or undone
//! all the same. Cut off before the book is written a hold was never there (its room is found without an owner and
//! given back when the manager opens again); cut off behind it it is there, unanswered, until its time is out.
//!
//! **Over several stores.** The client that reserves holds at all stores, then commits at all in the order of
//! [`Group::stores`]. It hands out the capabilities when all have committed. The last store *decides*: once it has
//! committed, all have. After a crash [`reconcile`] asks the deciding store of each group found: committed there, it
//! stands everywhere; held or unknown there, it is released everywhere. The deciding store releases it first, and then
//! says so. That is presumed abort: no client can have an answer, and none can commit it there any more. Where the
//! deciding store is not at hand nothing is done, since a client may rely on it. To release, begin with the deciding
//! store ([`Group::decider`]): what a crash leaves of it then is released as well.
//!
//! Always true:
//! 1. A hold that was answered has its time and its room until it is released or its own time is out.
//! 2. A capability is given only for what is durably committed.

use std::cell::Ref;
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Bytes, Nanos};
use policy::share::calendar::{Booking, BookingId, Calendar, NoBooking, Refusal, State, Stretch};
use policy::share::{
    BytesPerSec, Contract, Direction, Probability, Second, Share, Slot, SpaceError,
};

use super::Manager;
use crate::object::error::StoreError;
use crate::object::types::NAME_MAX;
use crate::object::types::ReservationId;
use crate::qos::book::{self, Group, Record, SYSTEM};
use crate::qos::capability::{CapabilityError, Grant, Signer};

/// The longest name of a holder in bytes.
const HOLDER_MAX: usize = 256;
/// Stores in one group, at most.
const GROUP_MAX: usize = 64;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationRequest {
    /// Reads or writes.
    pub direction: Direction,
    /// How fast.
    pub rate: BytesPerSec,
    /// The window it is judged by.
    pub window: Nanos,
    /// The share of windows to be kept.
    pub probability: Probability,
    /// When.
    pub slot: Slot,
    /// Room to write in; zero for none.
    pub space: Bytes,
    /// Objects whose names begin with this; empty: all.
    pub scope: String,
    /// The holder's name, for operators.
    pub holder: String,
}

impl ReservationRequest {
    /// A rate in windows of a second, kept in 99 % of them, for all objects, without room.
    pub fn new(direction: Direction, rate: BytesPerSec, slot: Slot) -> ReservationRequest {
        ReservationRequest {
            direction,
            rate,
            window: Nanos::secs(1),
            probability: Probability::default(),
            slot,
            space: Bytes(0),
            scope: String::new(),
            holder: String::new(),
        }
    }

    /// For objects whose names begin with `scope`.
    #[must_use]
    pub fn scope(self, scope: &str) -> ReservationRequest {
        ReservationRequest {
            scope: scope.to_owned(),
            ..self
        }
    }

    /// With room to write in.
    #[must_use]
    pub fn space(self, space: Bytes) -> ReservationRequest {
        ReservationRequest { space, ..self }
    }

    /// For this holder.
    #[must_use]
    pub fn holder(self, holder: &str) -> ReservationRequest {
        ReservationRequest {
            holder: holder.to_owned(),
            ..self
        }
    }

    /// The contract it comes to.
    pub fn contract(&self) -> Contract {
        Contract {
            rate: self.rate,
            direction: self.direction,
            window: self.window,
            probability: self.probability,
            slot: self.slot,
            space: self.space,
        }
    }
}

/// Why nothing was reserved, committed or released.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// It does not fit.
    #[error("{}", with_cause(.0))]
    Refused(#[from] Refusal),
    /// It is not there.
    #[error(transparent)]
    NoBooking(#[from] NoBooking),
    /// The request itself is not one any store could grant.
    #[error("cannot reserve: {why}")]
    Request {
        /// What is wrong with it and what would do.
        why: String,
    },
    /// The store could not write it down.
    #[error("cannot {what} a reservation: {source}")]
    Store {
        /// What was under way.
        what: &'static str,
        /// What the store answered.
        source: Box<StoreError>,
    },
}

/// A refusal for want of room says so in its cause.
fn with_cause(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Space(cause) => format!("{refusal}: {cause}"),
        _ => refusal.to_string(),
    }
}

fn failed(what: &'static str) -> impl Fn(StoreError) -> ReserveError {
    move |source| ReserveError::Store {
        what,
        source: Box::new(source),
    }
}

/// A reservation from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    /// Its number.
    pub id: BookingId,
    /// What was asked for.
    pub request: ReservationRequest,
    /// How far it has come.
    pub state: State,
    /// Of which it is part.
    pub group: Option<Group>,
    /// Room not yet written.
    pub space_left: Bytes,
    /// When it was made.
    pub made: Second,
}

/// What the deciding store of a group says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// All stores committed.
    Committed,
    /// Not all did, and none will: it was held or is unknown where it is decided.
    Aborted,
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

impl Manager {
    // --- asking -----------------------------------------------------------------------------------

    /// Would it fit now? Nothing is set aside.
    ///
    /// # Errors
    /// [`Refusal`] with the earliest slot and the largest rate that would fit.
    pub fn offer(&self, request: &ReservationRequest) -> Result<Contract, Refusal> {
        let contract = request.contract();
        let now = self.now();
        let mut calendar = self.calendar_meanwhile();
        calendar.hold(now, without_room(&contract), Second(u64::MAX))?;
        self.room_for(contract.space)?;
        Ok(contract)
    }

    /// The calendar, with what a calibration takes of it.
    fn calendar_meanwhile(&self) -> Calendar {
        let mut calendar: Calendar = self.calendar.borrow().clone();
        if let Some(slot) = self.calibrating.get() {
            let costs = self.capacity.borrow().costs;
            let rate = costs.rate(Direction::Read, Share::WHOLE, self.unit());
            let whole = Contract::new(rate, Direction::Read, slot);
            let booking = Booking {
                contract: whole,
                state: State::Committed,
            };
            let adopted = calendar.adopt(calendar.next_id(), booking, Bytes(0));
            adopted.expect("the calendar keeps no room");
        }
        calendar
    }

    /// The contract as the calendar knows it would have to be free in the store.
    fn room_for(&self, asked: Bytes) -> Result<(), Refusal> {
        let space = self.store.space();
        let free = Bytes(space.free.0.saturating_sub(space.spare.0));
        // What is so long that its pages cannot be counted has no room anywhere.
        let needed = Bytes(
            asked
                .0
                .checked_next_multiple_of(space.page.0)
                .unwrap_or(u64::MAX),
        );
        if needed.0 == 0 || needed <= free {
            return Ok(());
        }
        Err(Refusal::Space(SpaceError::Full {
            asked: needed,
            free,
            reserved: space.reserved,
            used: space.used,
            total: space.total,
        }))
    }

    /// Every reservation, by number.
    pub fn reservations(&self) -> Vec<Reserved> {
        let rooms: BTreeMap<ReservationId, Bytes> = {
            let rooms = self.store.reservations().into_iter();
            rooms.map(|room| (room.id, room.left)).collect()
        };
        let left = |record: &Record| {
            let left = record.room.and_then(|room| rooms.get(&room));
            left.copied().unwrap_or_default()
        };
        let records = self.records.borrow();
        records.values().map(|it| reserved(it, left(it))).collect()
    }

    /// What is promised in `slot`, stretch by stretch.
    pub fn calendar(&self, slot: Slot) -> Vec<Stretch> {
        self.calendar.borrow().sweep(slot)
    }

    /// The capability of a committed reservation, once more; signed with the key of today.
    pub fn capability(&self, id: BookingId) -> Option<String> {
        let records = self.records.borrow();
        let record = records.get(&id)?;
        (record.state == State::Committed).then(|| self.sign(record))
    }

    fn sign(&self, record: &Record) -> String {
        self.signer.borrow().sign(&self.grant(record))
    }

    pub(crate) fn grant(&self, record: &Record) -> Grant {
        Grant::of(
            record.id,
            self.uuid(),
            record.scope.clone(),
            &record.contract,
        )
    }

    // --- holding, committing, releasing -----------------------------------------------------------

    /// Sets a reservation aside until `until`: its time in the calendar and its room in the store. Durable when
    /// answered.
    ///
    /// # Errors
    /// [`ReserveError::Refused`] with what would fit; [`ReserveError::Request`], [`ReserveError::Store`].
    pub async fn hold(
        &self,
        request: &ReservationRequest,
        group: Option<Group>,
        until: Second,
    ) -> Result<BookingId, ReserveError> {
        let (manager, request) = (self.strong(), request.clone());
        env::spawn(async move { manager.do_hold(request, group, until).await }).await
    }

    async fn do_hold(
        &self,
        request: ReservationRequest,
        group: Option<Group>,
        until: Second,
    ) -> Result<BookingId, ReserveError> {
        self.check(&request, group.as_ref(), until)?;
        let _changing = self.changing.acquire(1).await;
        self.expire().await.map_err(failed("hold"))?;
        let next = self.calendar.borrow().next_id().0;
        if next >= self.numbers.get() {
            let end = book::put_numbers(&self.store, next).await;
            self.numbers.set(end.map_err(failed("hold"))?);
        }
        let contract = request.contract();
        let now = self.now();
        if let Some(taken) = self
            .calibrating
            .get()
            .filter(|it| request.slot.start < it.end.max(Second(now.0 + 1)))
        {
            let end = taken.end;
            return Err(ReserveError::Request {
                why: format!(
                    "the whole device is taken by a calibration until {end} at the latest; ask for a slot that begins then, \
                     or again when it has ended"
                ),
            });
        }
        self.room_for(contract.space)?;
        let id = self
            .calendar
            .borrow_mut()
            .hold(now, without_room(&contract), until)?;
        let mut record = Record {
            id,
            contract,
            state: State::Tentative { until },
            scope: request.scope,
            holder: request.holder,
            group,
            room: None,
            made: now,
        };
        let written = self.write_hold(&mut record).await;
        if written.is_err() {
            let _ = self.calendar.borrow_mut().release(id);
        }
        written.map_err(failed("hold"))?;
        self.records.borrow_mut().insert(id, record);
        Ok(id)
    }

    /// Room first, so that what the book names is there.
    async fn write_hold(&self, record: &mut Record) -> Result<(), StoreError> {
        if record.contract.space.0 > 0 {
            record.room = Some(self.store.reserve(record.contract.space).await?);
        }
        let written = book::put_record(&self.store, record).await;
        if let (Err(_), Some(room)) = (&written, record.room) {
            // If this fails as well, the room is found without an owner at the next open.
            let _ = self.store.release(room).await;
        }
        written
    }

    fn check(
        &self,
        request: &ReservationRequest,
        group: Option<&Group>,
        until: Second,
    ) -> Result<(), ReserveError> {
        let why = if request.window.0 == 0 {
            "a window of no time; give it a second".to_owned()
        } else if request.probability.0 > 1_000_000 {
            "a probability above 100 %".to_owned()
        } else if request.space.0 > 0 && request.direction == Direction::Read {
            "room for what is read; ask for room with writes".to_owned()
        } else if request.scope.len() > NAME_MAX {
            format!("a scope has at most {NAME_MAX} bytes")
        } else if request.scope.starts_with(SYSTEM) {
            format!("names that begin with {SYSTEM:?} are the store's own")
        } else if request.holder.len() > HOLDER_MAX {
            format!("a holder's name has at most {HOLDER_MAX} bytes")
        } else if until <= self.now() {
            format!("it would be held until {until}, which is over")
        } else if let Some(group) = group
            && (group.stores.len() > GROUP_MAX || !group.stores.contains(&self.uuid()))
        {
            format!(
                "a group names its stores, at most {GROUP_MAX}, and this one ({:032x}) among them",
                self.uuid()
            )
        } else {
            return Ok(());
        };
        Err(ReserveError::Request { why })
    }

    /// Promises what was held; answers the capability. Committing twice is committing once. Durable when answered.
    ///
    /// # Errors
    /// [`ReserveError::NoBooking`] if it expired or was never held; [`ReserveError::Store`].
    pub async fn commit(&self, id: BookingId) -> Result<String, ReserveError> {
        let manager = self.strong();
        env::spawn(async move {
            let _changing = manager.changing.acquire(1).await;
            manager.do_commit(id).await
        })
        .await
    }

    async fn do_commit(&self, id: BookingId) -> Result<String, ReserveError> {
        self.expire().await.map_err(failed("commit"))?;
        let mut record = self.record(id)?;
        if record.state != State::Committed {
            record.state = State::Committed;
            let written = book::put_record(&self.store, &record).await;
            written.map_err(failed("commit"))?;
            self.records.borrow_mut().insert(id, record.clone());
            // Between the two the hold may have run out; what is written is promised.
            let mut calendar = self.calendar.borrow_mut();
            let adopted = calendar.adopt(id, record.booking(), Bytes(0));
            adopted.expect("the calendar keeps no room");
        }
        Ok(self.sign(&record))
    }

    /// Ends a reservation: its capability is refused from now on, its sessions do nothing more, what is left of its room
    /// is free. Durable when answered.
    ///
    /// # Errors
    /// [`ReserveError::NoBooking`]; [`ReserveError::Store`].
    pub async fn release(&self, id: BookingId) -> Result<(), ReserveError> {
        let manager = self.strong();
        env::spawn(async move {
            let _changing = manager.changing.acquire(1).await;
            manager.record(id)?;
            manager.end(id, "released").await.map_err(failed("release"))
        })
        .await
    }

    fn record(&self, id: BookingId) -> Result<Record, NoBooking> {
        self.records.borrow().get(&id).cloned().ok_or(NoBooking(id))
    }

    /// Takes a reservation out of everything.
    async fn end(&self, id: BookingId, why: &'static str) -> Result<(), StoreError> {
        let Ok(record) = self.record(id) else {
            return Ok(());
        };
        for session in self.open_sessions() {
            if session.reservation() == Some(id) {
                session.lose_promise(why);
            }
        }
        book::remove_record(&self.store, id).await?;
        self.records.borrow_mut().remove(&id);
        let _ = self.calendar.borrow_mut().release(id);
        if record.state == State::Committed {
            self.note_ended(&record, why);
        }
        match record.room {
            Some(room) => match self.store.release(room).await {
                Err(StoreError::NoReservation { .. }) => Ok(()),
                other => other,
            },
            None => Ok(()),
        }
    }

    /// Drops what was held too long and what is over. The caller has the turn.
    pub(super) async fn expire(&self) -> Result<(), StoreError> {
        let now = self.now();
        let over = |record: &Record| {
            let held_too_long = matches!(record.state, State::Tentative { until } if until <= now);
            held_too_long || record.contract.slot.end <= now
        };
        let gone: Vec<BookingId> = {
            let records = self.records.borrow();
            let gone = records.values().filter(|it| over(it));
            gone.map(|it| it.id).collect()
        };
        for id in gone {
            self.end(id, "its time is out").await?;
        }
        Ok(())
    }

    /// Is anything to be expired?
    pub(super) fn expires(&self, now: Second) -> bool {
        let records = self.records.borrow();
        records.values().any(|record| {
            let held_too_long = matches!(record.state, State::Tentative { until } if until <= now);
            held_too_long || record.contract.slot.end <= now
        })
    }

    // --- keys -------------------------------------------------------------------------------------

    /// Signs with another key from now on. Capabilities signed with the one before are accepted until the last
    /// reservation committed by now ends. Durable when answered.
    ///
    /// # Errors
    /// [`ReserveError::Store`]; then the old key goes on.
    pub async fn rotate_key(&self, secret: [u8; 32]) -> Result<(), ReserveError> {
        self.sign_with(secret, false).await
    }

    /// Signs with another key from now on. What was signed with any before is void at once, also on connections that are
    /// open; [`Manager::capability`] gives holders the new one. Durable when answered.
    ///
    /// # Errors
    /// [`ReserveError::Store`]; then the old key goes on.
    pub async fn replace_key(&self, secret: [u8; 32]) -> Result<(), ReserveError> {
        self.sign_with(secret, true).await
    }

    async fn sign_with(&self, secret: [u8; 32], void: bool) -> Result<(), ReserveError> {
        let signer = Signer::new(&secret);
        self.change_ring(signer.public(), void)
            .await
            .map_err(failed("change the key of"))?;
        *self.signer.borrow_mut() = signer;
        if void {
            self.voided.set(self.voided.get() + 1);
            self.revoked.notify_all();
        }
        Ok(())
    }

    /// The ring accepts `public` for good, and all others only as long as what they may have signed lasts.
    pub(super) async fn accept_signer(&self, public: [u8; 32]) -> Result<(), StoreError> {
        self.change_ring(public, false).await
    }

    /// As [`accept_signer`](Self::accept_signer); with `void`, no others any more.
    async fn change_ring(&self, public: [u8; 32], void: bool) -> Result<(), StoreError> {
        let _changing = self.changing.acquire(1).await;
        let now = self.now();
        let last = {
            let records = self.records.borrow();
            let ends = records.values().map(|record| record.contract.slot.end);
            ends.max().unwrap_or(now).max(now)
        };
        let mut ring = self.keys.borrow().clone();
        if void {
            ring.void_others(&public);
        }
        let others: Vec<[u8; 32]> = {
            let keys = ring.keys().iter().filter(|key| key.public != public);
            keys.map(|key| key.public).collect()
        };
        for other in others {
            ring.retire(&other, last);
        }
        // A clock that was set back must not refuse the key of today.
        ring.accept(public, Second(0), None);
        ring.forget(now, self.options.skew);
        if ring != *self.keys.borrow() {
            book::put_keys(&self.store, &ring).await?;
            *self.keys.borrow_mut() = ring;
        }
        Ok(())
    }

    /// How often keys became void so far.
    pub(crate) fn voided(&self) -> u64 {
        self.voided.get()
    }

    /// Is a capability signed with a key that is accepted here?
    ///
    /// # Errors
    /// [`CapabilityError`] if it is not good any more.
    pub(crate) fn is_signed(&self, token: &str) -> Result<(), CapabilityError> {
        let verified = (self.keys()).verify(token, self.uuid(), self.now(), self.options.skew);
        match verified {
            // It came early, and was good then.
            Err(CapabilityError::NotYet { .. }) => Ok(()),
            other => other.map(drop),
        }
    }

    pub(crate) fn keys(&self) -> Ref<'_, crate::qos::capability::Keyring> {
        self.keys.borrow()
    }

    // --- groups -----------------------------------------------------------------------------------

    /// Parts of groups that this store found when it opened, committed or held, and not settled since.
    pub fn undecided(&self) -> Vec<(BookingId, Group)> {
        let adopted = self.adopted.borrow();
        let records = self.records.borrow();
        let found = adopted.iter().filter_map(|id| records.get(id));
        found
            .filter_map(|record| Some((record.id, record.group.clone()?)))
            .collect()
    }

    /// What this store, which decides over `group`, says of it. Before it says [`Decision::Aborted`] what is held of it
    /// here is released, durably, so that no client can commit it afterwards.
    ///
    /// # Errors
    /// [`ReserveError::Store`] if that cannot be written; then nothing is decided.
    pub async fn decision(&self, group: u128) -> Result<Decision, ReserveError> {
        let manager = self.strong();
        env::spawn(async move {
            let _changing = manager.changing.acquire(1).await;
            let parts: Vec<(BookingId, State)> = {
                let records = manager.records.borrow();
                let of_it = |it: &&Record| it.group.as_ref().is_some_and(|it| it.id == group);
                let parts = records.values().filter(of_it);
                parts.map(|it| (it.id, it.state)).collect()
            };
            if parts.iter().any(|(_, state)| *state == State::Committed) {
                return Ok(Decision::Committed);
            }
            for (id, _) in parts {
                let ended = manager.end(id, "its group is aborted").await;
                ended.map_err(failed("abort"))?;
            }
            Ok(Decision::Aborted)
        })
        .await
    }

    /// Carries out what was decided over a part found by [`undecided`](Self::undecided).
    ///
    /// # Errors
    /// [`ReserveError::Store`]; the part is undecided then, as before.
    pub async fn decide(&self, id: BookingId, decision: Decision) -> Result<(), ReserveError> {
        let done = match decision {
            Decision::Committed => self.commit(id).await.map(drop),
            Decision::Aborted => self.release(id).await,
        };
        match done {
            Err(ReserveError::NoBooking(_)) | Ok(()) => {
                self.adopted.borrow_mut().remove(&id);
                Ok(())
            }
            other => other,
        }
    }
}

fn reserved(record: &Record, space_left: Bytes) -> Reserved {
    let contract = &record.contract;
    Reserved {
        id: record.id,
        request: ReservationRequest {
            direction: contract.direction,
            rate: contract.rate,
            window: contract.window,
            probability: contract.probability,
            slot: contract.slot,
            space: contract.space,
            scope: record.scope.clone(),
            holder: record.holder.clone(),
        },
        state: record.state,
        group: record.group.clone(),
        space_left,
        made: record.made,
    }
}

fn without_room(contract: &Contract) -> Contract {
    Contract {
        space: Bytes(0),
        ..*contract
    }
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
        let found = manager.undecided().into_iter();
        parts.extend(found.map(|(id, group)| (manager, id, group)));
    }
    parts.sort_by_key(|(manager, _, group)| group.decider() == Some(manager.uuid()));
    for (manager, id, group) in parts {
        let decider = nodes.iter().find(|it| Some(it.uuid()) == group.decider());
        let Some(decider) = decider else {
            outcome.undecided += 1;
            continue;
        };
        let decision = decider.decision(group.id).await?;
        manager.decide(id, decision).await?;
        match decision {
            Decision::Committed => outcome.committed += 1,
            Decision::Aborted => outcome.released += 1,
        }
    }
    Ok(outcome)
}
