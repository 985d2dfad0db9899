//! Which reservations are there, held or committed, and what do they take of the calendar?

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::Bytes;
use env::sync::Semaphore;
use policy::share::calendar::{BookingId, Calendar, NoBooking, State};
use policy::share::{Direction, Probability, Second, Slot};

use crate::qos::book::record::{Group, Record};

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
}

impl Bookings {
    /// What the book says, in an empty calendar.
    pub fn new(
        mut calendar: Calendar,
        records: BTreeMap<BookingId, Record>,
        numbers: u64,
    ) -> Bookings {
        for record in records.values() {
            let adopted = calendar.adopt(record.id, record.booking(), Bytes(0));
            adopted.expect("the calendar keeps no room");
        }
        calendar.number_from(BookingId(numbers));
        Bookings {
            changing: Semaphore::new(1),
            calendar: RefCell::new(calendar),
            adopted: RefCell::new(records.keys().copied().collect()),
            records: RefCell::new(records),
            numbers: Cell::new(numbers),
            calibrating: Cell::new(None),
        }
    }

    /// One of them.
    ///
    /// # Errors
    /// [`NoBooking`] if there is none of this number.
    pub fn record(&self, id: BookingId) -> Result<Record, NoBooking> {
        self.records.borrow().get(&id).cloned().ok_or(NoBooking(id))
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

    /// The one that `holder` has for `direction` now, or the next one.
    pub fn next_of(&self, holder: &str, direction: Direction, now: Second) -> Option<Record> {
        let records = self.records.borrow();
        let fits = records.values().filter(|record| {
            let contract = &record.contract;
            record.state == State::Committed
                && record.holder == holder
                && contract.direction == direction
                && now < contract.slot.end
        });
        fits.min_by_key(|record| (record.contract.slot.start, record.id))
            .cloned()
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
        found
            .filter_map(|record| Some((record.id, record.group.clone()?)))
            .collect()
    }

    /// What was decided over a part is carried out.
    pub fn settled(&self, id: BookingId) {
        self.adopted.borrow_mut().remove(&id);
    }
}
