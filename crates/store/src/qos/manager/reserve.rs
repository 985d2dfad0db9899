//! Reservations of one store: offered, held, committed, released.
//!
//! ```text
//! hold     calendar -> room in the store -> the book -> answered
//! amend    as hold, beside what it is to replace; its commit takes the place: sessions go on under the new terms
//! commit   calendar -> the book -> answered with the capability
//! release  sessions lose their promise -> the book -> room in the store -> calendar -> answered
//! ```
//!
//! One at a time, and each in a task of its own. The client that asked may be gone; what is half done is done or undone
//! all the same. Cut off before the book is written a hold was never there (its room is found without an owner and
//! given back when the manager opens again); cut off behind it it is there, unanswered, until its time is out.
//!
//! Always true:
//! 1. A hold that was answered has its time and its room until it is released or its own time is out.
//! 2. A capability is given only for what is durably committed.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::Bytes;
use policy::share::calendar::{Booking, BookingId, Calendar, NoBooking, Refusal, State};
use policy::share::{Contract, Direction, Second, Share};

use super::hold::Hold;
use super::request::{
    Decision, Quote, ReservationRequest, ReserveError, Reserved, check, check_beside,
    check_calibration, check_promises, check_room, check_within, failed,
};
use crate::object::error::StoreError;
use crate::object::types::ReservationId;
use crate::qos::book;
use crate::qos::book::record::{Group, PartName, Record};
use crate::qos::session::table::Sessions;
use crate::qos::state::Core;
use crate::qos::state::bookings::PartState;

/// What makes, keeps and ends reservations.
#[derive(Clone)]
pub(super) struct Reserver(pub Rc<Sessions>);

impl Reserver {
    pub(super) fn core(&self) -> &Core {
        &self.0.core
    }

    // --- asking -----------------------------------------------------------------------------------

    /// Would it fit now? Nothing is set aside.
    pub fn offer(&self, request: &ReservationRequest) -> Result<Contract, Refusal> {
        let contract = request.contract();
        self.by_calendar(|calendar, now| calendar.admits(now, &[contract.without_room()]))?;
        check_room(&self.core().store.space(), contract.space)?;
        Ok(contract)
    }

    /// Would these fit together now, and when would they?
    pub fn quote(&self, wanted: &[ReservationRequest]) -> Quote {
        let core = self.core();
        let space = core.store.space();
        let mut quote = self.by_calendar(|calendar, now| Quote::of(calendar, wanted, &space, now));
        for request in wanted {
            if let Err(full) = core.check_link(&request.contract(), None) {
                // Both must have room: that begin is asked about again.
                quote.earliest = quote.earliest.zip(full.earliest).map(|(a, b)| a.max(b));
                quote.refused.get_or_insert(full.why);
            }
        }
        quote
    }

    /// What `asked` says of the calendar as it is now, without what is over and with what a calibration takes of it. That is
    /// a copy: to drop something of the calendar itself is for the one whose turn it is, together with its record.
    fn by_calendar<T>(&self, asked: impl FnOnce(&Calendar, Second) -> T) -> T {
        let (core, now) = (self.core(), self.core().now());
        let calendar = core.bookings.calendar.borrow();
        let calibrating = core.bookings.calibrating.get();
        if calibrating.is_none() && !calendar.has_over(now) {
            return asked(&calendar, now);
        }
        let mut meanwhile = calendar.clone();
        meanwhile.expire(now);
        let Some(slot) = calibrating else {
            return asked(&meanwhile, now);
        };
        let costs = core.capacity.borrow().costs;
        let rate = costs.rate(Direction::Read, Share::WHOLE, core.options.unit());
        let booking = Booking {
            contract: Contract::new(rate, Direction::Read, slot),
            state: State::Committed,
        };
        let adopted = meanwhile.adopt(meanwhile.next_id(), booking, Bytes(0));
        adopted.expect("the calendar keeps no room");
        asked(&meanwhile, now)
    }

    /// Every reservation, by number.
    pub fn all(&self) -> Vec<Reserved> {
        let core = self.core();
        let rooms: BTreeMap<ReservationId, Bytes> = {
            let rooms = core.store.reservations().into_iter();
            rooms.map(|room| (room.id, room.left)).collect()
        };
        let left = |record: &Record| {
            let left = record.room.and_then(|room| rooms.get(&room));
            left.copied().unwrap_or_default()
        };
        let records = core.bookings.records.borrow();
        let all = records.values();
        all.map(|it| Reserved::of(it, left(it))).collect()
    }

    /// The capability of a committed reservation, once more; signed with the key of today.
    pub fn capability(&self, id: BookingId) -> Option<String> {
        let record = self.core().bookings.record(id).ok()?;
        (record.state == State::Committed).then(|| self.sign(&record))
    }

    fn sign(&self, record: &Record) -> String {
        let core = self.core();
        core.keys.sign(&record.grant(core.store.uuid()))
    }

    // --- holding, committing, releasing -----------------------------------------------------------

    /// Sets a reservation aside until `until`: its time in the calendar and its room in the store.
    pub async fn hold(
        &self,
        request: ReservationRequest,
        group: Option<Group>,
        until: Second,
    ) -> Result<BookingId, ReserveError> {
        let (replaces, within) = (None, None);
        let hold = Hold {
            request,
            group,
            until,
            replaces,
            within,
        };
        self.hold_it(hold).await
    }

    /// Sets aside until `until` what is within the whole `within`: no time of the device, but of what that has here.
    pub async fn hold_within(
        &self,
        within: u128,
        request: ReservationRequest,
        group: Group,
        until: Second,
    ) -> Result<BookingId, ReserveError> {
        let hold = Hold {
            request,
            group: Some(group),
            until,
            replaces: None,
            within: Some(within),
        };
        self.hold_it(hold).await
    }

    async fn hold_it(&self, hold: Hold) -> Result<BookingId, ReserveError> {
        let reserver = self.clone();
        env::spawn(async move { reserver.do_hold(hold).await }).await
    }

    /// Sets aside until `until` what is to replace `replaced`; room, scope and holder stay as they are.
    pub async fn amend(
        &self,
        replaced: BookingId,
        request: ReservationRequest,
        group: Option<Group>,
        until: Second,
    ) -> Result<BookingId, ReserveError> {
        let (replaces, within) = (Some(replaced), None);
        let hold = Hold {
            request,
            group,
            until,
            replaces,
            within,
        };
        self.hold_it(hold).await
    }

    async fn do_hold(&self, hold: Hold) -> Result<BookingId, ReserveError> {
        let core = self.core();
        let bookings = &core.bookings;
        let _changing = bookings.changing.acquire(1).await;
        self.expire().await.map_err(failed("hold"))?;
        let group = hold.group.as_ref().map(|group| group.id);
        let named = |id| bookings.named(PartName { id, group });
        let replaced = hold.replaces.map(named).transpose()?;
        let (request, until) = (hold.request_beside(replaced.as_ref())?, hold.until);
        let here = (core.now(), core.store.uuid(), bookings.by_record.get());
        check(&request, hold.group.as_ref(), until, here)?;
        check_beside(core.beside, request.space)?;
        check_promises(core.options.best_effort_only.as_ref())?;
        self.set_numbers_aside().await.map_err(failed("hold"))?;
        let contract = request.contract();
        let now = core.now();
        check_calibration(bookings.calibrating.get(), request.slot.start, now)?;
        let mut record = Record {
            id: BookingId(0),
            contract,
            state: State::Tentative { until },
            scope: request.scope,
            holder: request.holder,
            group: hold.group,
            room: None,
            made: now,
            replaces: hold.replaces,
            first: replaced
                .as_ref()
                .map(|it| it.grant(core.store.uuid()).lineage()),
            within: hold.within.or(replaced.as_ref().and_then(|it| it.within)),
        };
        if record.within.is_none() {
            core.check_link(&record.contract, hold.replaces)
                .map_err(|full| ReserveError::Request { why: full.why })?;
        }
        if replaced.is_none() {
            check_room(&core.store.space(), contract.space)?;
        }
        let id = self.place(&record, replaced.as_ref())?;
        record.id = id;
        let written = self.write_hold(&mut record).await;
        if written.is_err() {
            let _ = bookings.calendar.borrow_mut().release(id);
        }
        written.map_err(failed("hold"))?;
        bookings.records.borrow_mut().insert(id, record);
        Ok(id)
    }

    /// Finds its place in the calendar, or in what it is within; answers its number.
    fn place(&self, record: &Record, replaced: Option<&Record>) -> Result<BookingId, ReserveError> {
        let bookings = &self.core().bookings;
        let Booking { contract, state } = record.booking();
        let State::Tentative { until } = state else {
            unreachable!("what is held is tentative")
        };
        let now = record.made;
        // What is within an allotment is no booking of the calendar, and takes a record as well.
        let there = bookings.records.borrow().len();
        if there >= Calendar::BOOKINGS_MAX {
            return Err(Refusal::TooMany(Calendar::BOOKINGS_MAX).into());
        }
        if let Some(group) = record.within {
            check_within(bookings, record, group)?;
            let mut calendar = bookings.calendar.borrow_mut();
            let id = calendar.next_id();
            calendar.number_from(BookingId(id.0 + 1));
            return Ok(id);
        }
        let mut calendar = bookings.calendar.borrow_mut();
        Ok(match replaced {
            Some(replaced) => calendar.amend(now, replaced.id, contract, until)?,
            None => calendar.hold(now, contract, until)?,
        })
    }

    /// A number is given only after it was set aside, so that it is given once.
    async fn set_numbers_aside(&self) -> Result<(), StoreError> {
        let bookings = &self.core().bookings;
        let next = bookings.calendar.borrow().next_id().0;
        if next >= bookings.numbers.get() {
            let end = book::put_numbers(&self.core().store, next).await?;
            bookings.numbers.set(end);
        }
        Ok(())
    }

    /// Room first, so that what the book names is there.
    async fn write_hold(&self, record: &mut Record) -> Result<(), StoreError> {
        let store = &self.core().store;
        // What is replaced keeps its room until then.
        if record.contract.space.0 > 0 && record.replaces.is_none() {
            record.room = Some(store.reserve(record.contract.space).await?);
        }
        let written = book::put_record(store, record).await;
        if let (Err(_), Some(room)) = (&written, record.room) {
            // If this fails as well, the room is found without an owner at the next open.
            let _ = store.release(room).await;
        }
        written
    }

    /// Promises what was held; answers the capability.
    pub async fn commit(&self, part: PartName) -> Result<String, ReserveError> {
        let reserver = self.clone();
        env::spawn(async move {
            let _changing = reserver.core().bookings.changing.acquire(1).await;
            reserver.do_commit(part).await
        })
        .await
    }

    async fn do_commit(&self, part: PartName) -> Result<String, ReserveError> {
        self.expire().await.map_err(failed("commit"))?;
        let bookings = &self.core().bookings;
        let (mut record, id) = (bookings.named(part)?, part.id);
        if record.state != State::Committed {
            let replaced = record.replaces.and_then(|id| bookings.record(id).ok());
            if let (None, Some(gone)) = (&replaced, record.replaces)
                && record.contract.space.0 > 0
            {
                // Its room ended with it.
                return Err(NoBooking(gone).into());
            }
            record.state = State::Committed;
            record.room = match &replaced {
                Some(replaced) => replaced.room,
                None => record.room,
            };
            let written = book::put_record(&self.core().store, &record).await;
            written.map_err(failed("commit"))?;
            bookings.records.borrow_mut().insert(id, record.clone());
            // Between the two the hold may have run out; what is written is promised.
            if record.within.is_none() {
                let booking = record.booking();
                let adopted = bookings.calendar.borrow_mut().adopt(id, booking, Bytes(0));
                adopted.expect("the calendar keeps no room");
            }
            if let Some(replaced) = &replaced {
                self.take_the_place(&record, replaced).await;
            }
        }
        bookings.confirm(id, self.core().now());
        Ok(self.sign(&record))
    }

    /// What was replaced is gone, and its sessions go on under the terms of what replaced it.
    async fn take_the_place(&self, record: &Record, replaced: &Record) {
        let core = self.core();
        core.bookings.take_the_place(record.id, replaced.id);
        self.0.replaced(replaced.id, record);
        // Opening leaves it out, too, if it cannot be removed now.
        if let Err(error) = self.forget(replaced).await {
            tracing::warn!(store = %core.store.name(), reservation = replaced.id.0, %error,
                "a reservation that was replaced cannot be forgotten yet");
        }
    }

    /// Ends a reservation.
    pub async fn release(&self, part: PartName) -> Result<(), ReserveError> {
        let reserver = self.clone();
        env::spawn(async move {
            let bookings = &reserver.core().bookings;
            let _changing = bookings.changing.acquire(1).await;
            bookings.named(part)?;
            reserver
                .end(part.id, "released")
                .await
                .map_err(failed("release"))
        })
        .await
    }

    /// Removes what is written of a reservation. First what it replaced itself, if that is still there: nothing would leave
    /// it out any more.
    async fn forget(&self, record: &Record) -> Result<(), StoreError> {
        let store = &self.core().store;
        if let Some(replaced) = record.replaces
            && record.state == State::Committed
        {
            book::remove_record(store, replaced).await?;
        }
        book::remove_record(store, record.id).await
    }

    /// Takes a reservation out of everything; with the last of an allotment also what is within it.
    async fn end(&self, id: BookingId, why: &'static str) -> Result<(), StoreError> {
        let bookings = &self.core().bookings;
        if let Ok(record) = bookings.record(id)
            && let (None, Some(group)) = (record.within, record.part().group)
        {
            let direction = record.contract.direction;
            if bookings.allotted(group, direction).len() == 1 {
                for inside in bookings.within(group, direction) {
                    self.end_one(inside.id, "what it was within is over")
                        .await?;
                }
            }
        }
        self.end_one(id, why).await
    }

    async fn end_one(&self, id: BookingId, why: &'static str) -> Result<(), StoreError> {
        let core = self.core();
        let Ok(record) = core.bookings.record(id) else {
            return Ok(());
        };
        for session in self.0.open() {
            if session.reservation() == Some(id) {
                session.lose_promise(why);
            }
        }
        self.forget(&record).await?;
        core.bookings.remove(id);
        if record.state == State::Committed {
            self.0.ended(&record, why);
        }
        match record.room {
            Some(room) => match core.store.release(room).await {
                Err(StoreError::NoReservation { .. }) => Ok(()),
                other => other,
            },
            None => Ok(()),
        }
    }

    /// Drops what was held too long and what is over. The caller has the turn.
    pub async fn expire(&self) -> Result<(), StoreError> {
        for id in self.core().bookings.over(self.core().now()) {
            self.end(id, "its time is out").await?;
        }
        Ok(())
    }

    /// After opening: drops what is over or replaced, and frees room that no reservation has.
    pub async fn settle(&self, replaced: Vec<BookingId>) -> Result<(), StoreError> {
        let core = self.core();
        for id in replaced {
            book::remove_record(&core.store, id).await?;
        }
        let _changing = core.bookings.changing.acquire(1).await;
        self.expire().await?;
        let owned: Vec<_> = {
            let records = core.bookings.records.borrow();
            records.values().filter_map(|it| it.room).collect()
        };
        for room in core.store.reservations() {
            if !owned.contains(&room.id) {
                tracing::info!(store = %core.store.name(), room = %room.id, left = %room.left,
                    "room of a reservation that was never answered is free again");
                core.store.release(room.id).await?;
            }
        }
        Ok(())
    }

    /// The part as it is here, and for how long nothing was asked of it.
    pub fn look(&self, part: PartName) -> Result<PartState, NoBooking> {
        let bookings = &self.core().bookings;
        let (record, now) = (bookings.named(part)?, self.core().now());
        if now < record.contract.slot.start {
            return Ok(PartState { now, unused: 0 });
        }
        let open = self.0.open().into_iter();
        let open = open.filter(|it| it.reservation() == Some(part.id));
        let asked = open.filter_map(|it| it.asked()).max();
        let before = bookings.asked_or_begun(part.id);
        let unused = env::now().since(asked.map_or(before, |at| at.max(before)));
        Ok(PartState {
            now,
            unused: unused.0 / 1_000_000_000,
        })
    }

    // --- groups -----------------------------------------------------------------------------------

    /// What this store, which decides over `group`, says of it. What is held of it here is released before it is aborted.
    pub async fn decision(&self, group: u128) -> Result<Decision, ReserveError> {
        let reserver = self.clone();
        env::spawn(async move {
            let bookings = &reserver.core().bookings;
            let _changing = bookings.changing.acquire(1).await;
            let parts = bookings.of_group(group);
            if parts.iter().any(|(_, state)| *state == State::Committed) {
                return Ok(Decision::Committed);
            }
            for (id, _) in parts {
                let ended = reserver.end(id, "its group is aborted").await;
                ended.map_err(failed("abort"))?;
            }
            Ok(Decision::Aborted)
        })
        .await
    }

    /// Carries out what was decided over a part.
    pub async fn decide(&self, id: BookingId, decision: Decision) -> Result<(), ReserveError> {
        let part = match self.core().bookings.record(id) {
            Ok(record) => record.part(),
            Err(_) => id.into(),
        };
        let done = match decision {
            Decision::Committed => self.commit(part).await.map(drop),
            Decision::Aborted => self.release(part).await,
        };
        match done {
            Err(ReserveError::NoBooking(_)) | Ok(()) => {
                self.core().bookings.settled(id);
                Ok(())
            }
            other => other,
        }
    }
}
