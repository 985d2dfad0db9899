//! What is asked of reservations, and what is answered.

use std::collections::BTreeMap;

use base::{Bytes, Nanos};
use policy::share::calendar::{BookingId, Calendar, NoBooking, Refusal, State};
use policy::share::{BytesPerSec, Contract, Direction, Probability, Second, Slot, SpaceError};

use crate::object::error::StoreError;
use crate::object::types::{NAME_MAX, SpaceFigures};
use crate::qos::book::SYSTEM;
use crate::qos::book::record::{Group, Record};
use crate::qos::state::bookings::Bookings;

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

/// Would reservations for one slot fit at a store together, and when would they?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quote {
    /// The earliest begin, from the asked one on, at which all fit at their rates for their length; `None`: never.
    pub earliest: Option<Second>,
    /// Why they do not fit as asked; `None`: they do.
    pub refused: Option<String>,
}

impl Quote {
    /// What a calendar says of requests for one slot together.
    pub(super) fn of(
        calendar: &Calendar,
        wanted: &[ReservationRequest],
        space: &SpaceFigures,
        now: Second,
    ) -> Quote {
        let contracts = wanted.iter().map(|it| it.contract().without_room());
        let contracts: Vec<Contract> = contracts.collect();
        let room = wanted.iter().map(|it| it.space.0);
        let room = check_room(space, Bytes(room.fold(0, u64::saturating_add)));
        let refused = room.and_then(|()| calendar.admits(now, &contracts)).err();
        let earliest = match &refused {
            None => contracts.first().map(|it| it.slot),
            Some(Refusal::Full { offer, .. }) => offer.earliest,
            Some(_) => None,
        };
        Quote {
            earliest: earliest.map(|slot| slot.start),
            refused: refused.as_ref().map(with_cause),
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

/// The store could not do it while this was under way.
pub(super) fn failed(what: &'static str) -> impl Fn(StoreError) -> ReserveError {
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

impl Reserved {
    /// As seen from outside.
    pub(super) fn of(record: &Record, space_left: Bytes) -> Reserved {
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
}

/// What the deciding store of a group says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// All stores committed.
    Committed,
    /// Not all did, and none will: it was held or is unknown where it is decided.
    Aborted,
}

/// Is it a request that the store of this number could grant?
///
/// # Errors
/// [`ReserveError::Request`] with what would do.
pub(super) fn check(
    request: &ReservationRequest,
    group: Option<&Group>,
    until: Second,
    (now, store, by_record): (Second, u128, bool),
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
    } else if until <= now {
        format!("it would be held until {until}, which is over")
    } else if group.is_some_and(Group::is_by_record) && !by_record {
        "a record of a meta store is to decide over it, and this store belongs to no cluster; name its \
         node's [cluster] in the configuration, or reserve on this store alone"
            .to_owned()
    } else if let Some(group) = group
        && (group.stores.len() > GROUP_MAX || !group.stores.contains(&store))
    {
        format!(
            "a group names its stores, at most {GROUP_MAX}, and this one ({store:032x}) among them"
        )
    } else {
        return Ok(());
    };
    Err(ReserveError::Request { why })
}

/// Is no room asked for on a device that holds no objects?
///
/// # Errors
/// [`ReserveError::Request`] if some is.
pub(super) fn check_beside(beside: bool, asked: Bytes) -> Result<(), ReserveError> {
    match beside && asked.0 > 0 {
        true => Err(ReserveError::Request {
            why: "room on a device that holds no objects; ask for a rate alone".to_owned(),
        }),
        false => Ok(()),
    }
}

/// Can anything be promised here?
///
/// # Errors
/// [`ReserveError::Request`] with why not, and the cure.
pub(super) fn check_promises(best_effort_only: Option<&String>) -> Result<(), ReserveError> {
    best_effort_only.map_or(Ok(()), |why| {
        Err(ReserveError::Request { why: why.clone() })
    })
}

/// Is a slot that begins in `start` free of the calibration that has taken the device?
///
/// # Errors
/// [`ReserveError::Request`] with when it ends at the latest.
pub(super) fn check_calibration(
    taken: Option<Slot>,
    start: Second,
    now: Second,
) -> Result<(), ReserveError> {
    match taken {
        Some(taken) if start < taken.end.max(Second(now.0 + 1)) => Err(ReserveError::Request {
            why: format!(
                "the whole device is taken by a calibration until {} at the latest; ask for a slot that begins then, \
                 or again when it has ended",
                taken.end
            ),
        }),
        _ => Ok(()),
    }
}

/// Does what is to be within the allotment `group` fit into what that has here, beside all else that is within it?
///
/// # Errors
/// [`ReserveError::Request`] with what is left, and when.
pub(super) fn check_within(
    bookings: &Bookings,
    record: &Record,
    group: u128,
) -> Result<(), ReserveError> {
    let contract = &record.contract;
    let refuse = |why: String| Err(ReserveError::Request { why });
    let has = |it: &&Record| {
        let slot = it.contract.slot;
        it.state == State::Committed
            && slot.start <= contract.slot.start
            && contract.slot.end <= slot.end
    };
    let allotted = bookings.allotted(group, contract.direction);
    // One that is held may be the greater: it does not count before it is committed.
    let Some(rate) = allotted.iter().filter(has).map(|it| it.contract.rate).max() else {
        return refuse(format!(
            "no allotment has {}s here from {} until {}; ask for a slot within its own",
            contract.direction, contract.slot.start, contract.slot.end
        ));
    };
    let mut inside = bookings.within(group, contract.direction);
    inside.retain(|it| record.replaces != Some(it.id) && it.contract.slot.overlaps(contract.slot));
    let begins = inside.iter().map(|it| it.contract.slot.start);
    for at in begins.chain([contract.slot.start]) {
        let at = at.max(contract.slot.start);
        let is_then = |it: &&Record| {
            let slot = it.contract.slot;
            slot.start <= at && at < slot.end
        };
        // Of what is held and what it is to replace one is there in the end: the greater counts.
        let mut rates: BTreeMap<BookingId, u64> = BTreeMap::new();
        for it in inside.iter().filter(is_then) {
            let replaced = it.replaces.filter(|_| it.state != State::Committed);
            let rate = rates.entry(replaced.unwrap_or(it.id)).or_default();
            *rate = it.contract.rate.0.max(*rate);
        }
        let taken = rates.into_values().fold(0, u64::saturating_add);
        if taken.saturating_add(contract.rate.0) > rate.0 {
            let left = BytesPerSec(rate.0.saturating_sub(taken)).floored();
            return refuse(format!(
                "{left} of the allotment's {rate} are left at {at}; ask for at most that, or for another time"
            ));
        }
    }
    Ok(())
}

/// Is so much room free in the store?
///
/// # Errors
/// [`Refusal::Space`] with what is.
pub(super) fn check_room(space: &SpaceFigures, asked: Bytes) -> Result<(), Refusal> {
    let free = Bytes(space.free.0.saturating_sub(space.spare.0));
    // What is so long that its pages cannot be counted has no room anywhere.
    let pages = asked.0.checked_next_multiple_of(space.page.0);
    let needed = Bytes(pages.unwrap_or(u64::MAX));
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
