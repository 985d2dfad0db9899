//! What is remembered of a reservation, and of the device: plain values.

use base::Bytes;
use policy::share::calendar::{Booking, BookingId, State};
use policy::share::{Contract, Costs, Point, Second, Share, Windows};
use serde::{Deserialize, Serialize};

use crate::object::types::ReservationId;
use crate::qos::capability::Grant;

/// A reservation over several stores: all of it or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The whole reservation's number, drawn by the client that makes it.
    pub id: u128,
    /// The stores that are part of it. They are committed in this order, so the last one *decides*: once it has
    /// committed all have.
    pub stores: Vec<u128>,
}

impl Group {
    /// In place of a last store: a record of the cluster's meta store decides.
    pub const BY_RECORD: u128 = u128::MAX;

    /// Among the stores: capabilities are good for as long as the reservation is promised, also at a store that does
    /// not reach the record.
    pub const OFFLINE: u128 = u128::MAX - 1;

    /// The store whose commit is the commit of all.
    pub fn decider(&self) -> Option<u128> {
        self.stores.last().copied()
    }

    /// Does a record of the meta store decide over it, and no store?
    pub fn is_by_record(&self) -> bool {
        self.decider() == Some(Group::BY_RECORD)
    }
}

/// Which reservation is meant: its number, and the whole that it is part of.
///
/// A store put back to an older copy of itself may give a number again: the number alone may be another's by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartName {
    /// Its number.
    pub id: BookingId,
    /// The number of the whole ([`Group::id`]); `None`: it is part of none.
    pub group: Option<u128>,
}

impl PartName {
    /// The part `id` of the whole `group`.
    pub fn of(id: BookingId, group: u128) -> PartName {
        let group = Some(group);
        PartName { id, group }
    }
}

/// It is part of no whole.
impl From<BookingId> for PartName {
    fn from(id: BookingId) -> PartName {
        PartName { id, group: None }
    }
}

/// A reservation as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub id: BookingId,
    /// With its room.
    pub contract: Contract,
    pub state: State,
    pub scope: String,
    pub holder: String,
    pub group: Option<Group>,
    /// Its room in the store.
    pub room: Option<ReservationId>,
    pub made: Second,
    /// Once it is committed it takes the place of this one.
    pub replaces: Option<BookingId>,
    /// What it has in common with those whose place it took, one after the other, where it is no part of a whole; see
    /// [`Grant::first`].
    pub first: Option<u128>,
    /// It is of what the parts of this whole, an allotment, promise here, and takes no time of the device beside them.
    pub within: Option<u128>,
}

impl Record {
    /// What it is called.
    pub fn part(&self) -> PartName {
        PartName {
            id: self.id,
            group: self.group.as_ref().map(|group| group.id),
        }
    }

    /// As the calendar has it: room is the store's concern.
    pub fn booking(&self) -> Booking {
        let contract = self.contract.without_room();
        let state = match self.state {
            // The calendar does not let go of it by itself.
            State::Tentative { .. } if self.is_by_record() => State::Tentative {
                until: Second(u64::MAX),
            },
            state => state,
        };
        Booking { contract, state }
    }

    /// Was it held too long, or is its slot over? What a record decides is held until the record says so.
    pub fn is_over(&self, now: Second) -> bool {
        let held_too_long = matches!(self.state, State::Tentative { until } if until <= now);
        held_too_long && !self.is_by_record() || self.contract.slot.end <= now
    }

    /// Does a record of the meta store decide over it?
    pub fn is_by_record(&self) -> bool {
        self.group.as_ref().is_some_and(Group::is_by_record)
    }

    /// Are its capabilities good no longer than its record is within reach?
    pub fn needs_record(&self) -> bool {
        let offline = |group: &Group| group.stores.contains(&Group::OFFLINE);
        self.is_by_record() && !self.group.as_ref().is_some_and(offline)
    }

    /// Is this what its capability says at that store? Those signed before parts had a lineage of their whole have none.
    pub fn is_of(&self, grant: &Grant) -> bool {
        let own = self.grant(grant.store);
        let first = grant.first.and(own.first);
        Grant { first, ..own } == *grant
    }

    /// What its capability allows at the store of this number.
    pub fn grant(&self, store: u128) -> Grant {
        let (scope, direction) = (&self.scope, self.contract.direction);
        let of_whole = |group: &Group| Grant::of_whole(group.id, store, scope, direction);
        Grant {
            first: self.group.as_ref().map(of_whole).or(self.first),
            ..Grant::of(self.id, store, self.scope.clone(), &self.contract)
        }
    }
}

/// What the device was measured to do; see [`crate::qos::manager::Manager::set_calibration`].
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// What requests cost.
    pub costs: Costs,
    /// What must stay free, as measured.
    pub points: Vec<Point>,
    /// What must stay free where no point was measured.
    pub beyond: Share,
    /// When.
    pub measured: Second,
    /// On which device: its name and size.
    pub device: (String, Bytes),
    /// And what tells it from another one of these, where that is known.
    pub identity: Option<String>,
    /// Whatever else was found, for reports.
    pub surface: serde_json::Value,
}

/// The speed the device was seen to have, as parts of what a model of it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trust {
    /// Of which device, where that is known.
    pub identity: Option<String>,
    /// The model.
    pub costs: Costs,
    /// Of reads, of writes, of both at once.
    pub speeds: [Option<Share>; 3],
    /// It no longer does what it did when it was calibrated.
    pub drifted: bool,
}

/// Windows of a promise, by how they ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WindowsReport {
    /// Delivered what was promised.
    pub kept: u64,
    /// Delivered less, because no more was asked for.
    pub no_demand: u64,
    /// Violated: the device did less than it promised to all.
    pub capacity: u64,
    /// Violated: the device did enough, but for others.
    pub scheduler: u64,
}

impl WindowsReport {
    /// Adds the windows of another session.
    pub(crate) fn add(&mut self, other: &WindowsReport) {
        self.kept += other.kept;
        self.no_demand += other.no_demand;
        self.capacity += other.capacity;
        self.scheduler += other.scheduler;
    }
}

impl From<Windows> for WindowsReport {
    fn from(windows: Windows) -> WindowsReport {
        WindowsReport {
            kept: windows.kept,
            no_demand: windows.no_demand,
            capacity: windows.capacity,
            scheduler: windows.scheduler,
        }
    }
}

/// What closed sessions of a reservation got, which goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveredReport {
    /// Its number.
    pub reservation: u64,
    /// Its holder.
    pub holder: String,
    /// Bytes delivered.
    pub delivered_bytes: u64,
    /// How its windows went.
    pub windows: WindowsReport,
}

/// A reservation that has been, for operators and for the book.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedReport {
    /// Its number.
    pub reservation: u64,
    /// Its holder.
    pub holder: String,
    /// `read` or `write`.
    pub direction: String,
    /// Bytes per second promised.
    pub promised: u64,
    /// Its slot, in seconds since 1970.
    pub from: u64,
    /// And its end.
    pub until: u64,
    /// When it ended.
    pub ended: u64,
    /// Why.
    pub why: String,
    /// Bytes delivered.
    pub delivered_bytes: u64,
    /// How its windows went.
    pub windows: WindowsReport,
}
