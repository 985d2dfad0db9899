//! Which reservations are there, held or committed, and what do they take of the calendar?

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::{Bytes, Instant};
use env::sync::Semaphore;
use policy::share::calendar::{BookingId, Calendar, NoBooking, State};
use policy::share::{BytesPerSec, Direction, Probability, Second, Slot};

use crate::qos::book::record::{Group, PartName, Record};
use crate::qos::capability::Grant;

/// So long after its record said last that a reservation stands its capabilities are good. What said so may have been
/// some minutes old.
pub const LAPSE_SECONDS: u64 = 10 * 60;

/// Which reservations are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Whose {
    /// What this holder has reserved here, now or later.
    Holder(String),
    /// The parts of this reservation over several stores, also those made anew by an amendment.
    Whole(u128),
}

impl Whose {
    /// Is it one of them?
    pub fn has(&self, record: &Record) -> bool {
        match self {
            Whose::Holder(holder) => record.holder == *holder,
            Whose::Whole(id) => record.group.as_ref().is_some_and(|it| it.id == *id),
        }
    }
}

/// What is promised, as the book has it.
pub(crate) struct Bookings {
    /// One change at a time.
    pub changing: Rc<Semaphore>,
    pub calendar: RefCell<Calendar>,
    pub records: RefCell<BTreeMap<BookingId, Record>>,
    /// Those that were there when the manager opened and are not settled since.
    adopted: RefCell<BTreeSet<BookingId>>,
    /// Numbers below are set aside.
    pub numbers: Cell<u64>,
    /// The device is taken by a calibration.
    pub calibrating: Cell<Option<Slot>>,
    /// Parts that a record of the meta store decides over are taken: one looks them up there.
    pub by_record: Cell<bool>,
    /// When the record of a part said last that it stands.
    confirmed: RefCell<BTreeMap<BookingId, Second>>,
    /// When something was asked last, of those whose sessions are closed; at first when they were seen to have begun. By the
    /// steady clock: a step of the clock of the day ends nothing that is in use.
    asked: RefCell<BTreeMap<BookingId, Instant>>,
    /// Since when they are here, by the clock of the day.
    pub opened: Second,
}

/// A part as its store sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartState {
    /// The second it is, by the store's clock.
    pub now: Second,
    /// Nothing of it was asked for so many seconds, by a steady clock; at first since it was looked at in its slot. 0 before
    /// that, and while requests are under way.
    pub unused: u64,
}

/// A part of a reservation of which its record of the meta store is to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unconfirmed {
    /// The part.
    pub id: BookingId,
    /// The number of the whole.
    pub group: u128,
    /// Not committed here, and held until then at least.
    pub held_until: Option<Second>,
    /// Which way.
    pub direction: Direction,
    /// How fast.
    pub rate: BytesPerSec,
    /// When.
    pub slot: Slot,
}

impl Unconfirmed {
    /// What it is called.
    pub fn part(&self) -> PartName {
        PartName::of(self.id, self.group)
    }
}

impl Bookings {
    /// What the book says, in an empty calendar.
    pub fn new(
        mut calendar: Calendar,
        records: BTreeMap<BookingId, Record>,
        numbers: u64,
    ) -> Bookings {
        for record in records.values().filter(|it| it.within.is_none()) {
            let adopted = calendar.adopt(record.id, record.booking(), Bytes(0));
            adopted.expect("the calendar keeps no room");
        }
        for record in records.values() {
            if let Some(replaced) = record.replaces {
                calendar.amends(record.id, replaced);
            }
        }
        calendar.number_from(BookingId(numbers));
        Bookings {
            changing: Semaphore::new(1),
            calendar: RefCell::new(calendar),
            adopted: RefCell::new(records.keys().copied().collect()),
            records: RefCell::new(records),
            numbers: Cell::new(numbers),
            calibrating: Cell::new(None),
            by_record: Cell::new(false),
            confirmed: RefCell::default(),
            asked: RefCell::default(),
            opened: Second(env::wall_clock().0 / 1_000_000_000),
        }
    }

    /// One of them.
    ///
    /// # Errors
    /// [`NoBooking`] if there is none of this number.
    pub fn record(&self, id: BookingId) -> Result<Record, NoBooking> {
        self.records.borrow().get(&id).cloned().ok_or(NoBooking(id))
    }

    /// The one of this name.
    ///
    /// # Errors
    /// [`NoBooking`] if there is none of this number, or one of another whole.
    pub fn named(&self, part: PartName) -> Result<Record, NoBooking> {
        let record = self.record(part.id)?;
        match record.part() == part {
            true => Ok(record),
            false => Err(NoBooking(part.id)),
        }
    }

    /// Those that were held too long, and those whose slot is over.
    pub fn over(&self, now: Second) -> Vec<BookingId> {
        let records = self.records.borrow();
        let over = records.values().filter(|record| record.is_over(now));
        over.map(|record| record.id).collect()
    }

    /// When the last of them ends; not before `now`.
    pub fn last_end(&self, now: Second) -> Second {
        let records = self.records.borrow();
        let ends = records.values().map(|record| record.contract.slot.end);
        ends.max().unwrap_or(now).max(now)
    }

    /// The share of windows that the strictest of them promises to keep.
    pub fn surest(&self) -> Probability {
        let records = self.records.borrow();
        let all = records.values().map(|it| it.contract.probability);
        all.max().unwrap_or_default().max(Probability::default())
    }

    /// The one of `whose` that is for `direction` now, or the next one.
    pub fn next_of(&self, whose: &Whose, direction: Direction, now: Second) -> Option<Record> {
        let records = self.records.borrow();
        let fits = records.values().filter(|record| {
            let contract = &record.contract;
            record.state == State::Committed
                && whose.has(record)
                && contract.direction == direction
                && now < contract.slot.end
        });
        fits.min_by_key(|record| (record.contract.slot.start, record.id))
            .cloned()
    }

    /// What took the place of the reservation that `grant` was of at this store, and promises now: of the same lineage, to the
    /// same objects, the same way.
    pub fn successor(&self, grant: &Grant) -> Option<Record> {
        let lineage = grant.lineage();
        let records = self.records.borrow();
        let follows = |it: &&Record| {
            it.state == State::Committed
                && it.scope == grant.scope
                && it.contract.direction == grant.direction
                && it.grant(grant.store).first == Some(lineage)
        };
        records.values().rfind(follows).cloned()
    }

    /// The first that has some of `slot`.
    pub fn first_in(&self, slot: Slot) -> Option<(BookingId, Slot)> {
        let records = self.records.borrow();
        let slots = records.values().map(|it| (it.id, it.contract.slot));
        let overlapping = slots.filter(|(_, taken)| taken.overlaps(slot));
        overlapping.min_by_key(|(_, taken)| taken.start)
    }

    /// The parts of a group.
    pub fn of_group(&self, group: u128) -> Vec<(BookingId, State)> {
        let records = self.records.borrow();
        let of_it = |it: &&Record| it.group.as_ref().is_some_and(|it| it.id == group);
        let parts = records.values().filter(of_it);
        parts.map(|it| (it.id, it.state)).collect()
    }

    /// Parts of groups that were there when the manager opened, and are not settled since.
    pub fn undecided(&self) -> Vec<(BookingId, Group)> {
        let adopted = self.adopted.borrow();
        let records = self.records.borrow();
        let found = adopted.iter().filter_map(|id| records.get(id));
        let found = found.filter(|record| !record.is_by_record());
        found
            .filter_map(|record| Some((record.id, record.group.clone()?)))
            .collect()
    }

    /// Parts that a record decides over: those held, and those committed that it did not confirm for `seconds`.
    pub fn unconfirmed(&self, now: Second, seconds: u64) -> Vec<Unconfirmed> {
        let (records, confirmed) = (self.records.borrow(), self.confirmed.borrow());
        let unconfirmed = |record: &Record| {
            let group = record.group.as_ref().filter(|it| it.is_by_record())?;
            let held_until = match record.state {
                State::Tentative { until } => Some(until),
                State::Committed => None,
            };
            let last = confirmed.get(&record.id);
            let is_fresh = last.is_some_and(|at| now.0 < at.0.saturating_add(seconds));
            (held_until.is_some() || !is_fresh).then_some(Unconfirmed {
                id: record.id,
                group: group.id,
                held_until,
                direction: record.contract.direction,
                rate: record.contract.rate,
                slot: record.contract.slot,
            })
        };
        records.values().filter_map(unconfirmed).collect()
    }

    /// The record of a part says that it stands.
    pub fn confirm(&self, id: BookingId, now: Second) {
        let records = self.records.borrow();
        if records.get(&id).is_some_and(Record::is_by_record) {
            self.confirmed.borrow_mut().insert(id, now);
        }
    }

    /// Are the capabilities of `record` good no more, since it was not confirmed for [`LAPSE_SECONDS`]? It may have been
    /// ended where this store does not hear of it.
    pub fn is_lapsed(&self, record: &Record, now: Second) -> bool {
        let confirmed = self.confirmed.borrow().get(&record.id).copied();
        let last = confirmed.unwrap_or(self.opened.max(record.made));
        record.needs_record() && now.0 >= last.0.saturating_add(LAPSE_SECONDS)
    }

    /// Something was asked of it until then.
    pub fn asked_until(&self, id: BookingId, at: Instant) {
        if self.records.borrow().contains_key(&id) {
            let mut asked = self.asked.borrow_mut();
            let last = asked.entry(id).or_insert(at);
            *last = at.max(*last);
        }
    }

    /// When something was asked of it last by sessions that are closed; if nothing was yet it begins now.
    pub fn asked_or_begun(&self, id: BookingId) -> Instant {
        let mut asked = self.asked.borrow_mut();
        *asked.entry(id).or_insert_with(env::now)
    }

    /// `record` has taken the place of `replaced`, and goes on where that was.
    pub fn take_the_place(&self, record: BookingId, replaced: BookingId) {
        let asked = self.asked.borrow().get(&replaced).copied();
        self.remove(replaced);
        if let Some(at) = asked {
            self.asked_until(record, at);
        }
    }

    /// What of `direction` the whole `group` has here beside what is within it, by number.
    pub fn allotted(&self, group: u128, direction: Direction) -> Vec<Record> {
        let of = |it: &&Record| it.within.is_none() && it.part().group == Some(group);
        self.all_where(direction, of)
    }

    /// What of `direction` is within the whole `group`, by number.
    pub fn within(&self, group: u128, direction: Direction) -> Vec<Record> {
        self.all_where(direction, |it| it.within == Some(group))
    }

    fn all_where(&self, direction: Direction, of: impl Fn(&&Record) -> bool) -> Vec<Record> {
        let records = self.records.borrow();
        let all = records.values().filter(of);
        let all = all.filter(|it| it.contract.direction == direction);
        all.cloned().collect()
    }

    /// A reservation is gone.
    pub fn remove(&self, id: BookingId) -> Option<Record> {
        self.confirmed.borrow_mut().remove(&id);
        self.asked.borrow_mut().remove(&id);
        let _ = self.calendar.borrow_mut().release(id);
        self.records.borrow_mut().remove(&id)
    }

    /// What was decided over a part is carried out.
    pub fn settled(&self, id: BookingId) {
        self.adopted.borrow_mut().remove(&id);
    }
}
