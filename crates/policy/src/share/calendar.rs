//! Does this reservation fit beside all others, at every moment of its slot?
//!
//! ```text
//! contract -> sweep over the slots it meets -> fits everywhere -> Tentative -> Committed -> gone
//!                                         '-> no: where, why, the earliest slot, the largest rate
//! ```
//!
//! ```text
//! (nothing)  -> Tentative  hold       room in time and space is set aside until `until`
//! Tentative  -> Committed  commit
//! Tentative  -> (nothing)  release, expire (at `until`)
//! Committed  -> (nothing)  release, expire (when its slot has ended)
//! ```
//!
//! Promised device time, headroom for the sessions there would be, and background's floors may together
//! never exceed the device. A reservation over several stores is held at each and committed when all
//! hold; a client that dies in between holds nothing for longer than `until`.
//!
//! Source: PROBS 3.1 (the storage manager allots resources when it accepts a reservation), 3.3
//! (achieved throughput is to decide over new reservations).
//!
//! Choice: the condition. At every second of the slot, with `R` the sums of promised rates,
//! `R_read / C_read + R_write / C_write <= 1 - headroom(N, mix, W, p) - floors`, where `N` counts the
//! newcomer, `W` is the shortest window and `p` the surest probability among all.
//!
//! Always true:
//! 1. As long as costs, headroom and floors stay, the condition holds at every second.
//! 2. An offer, asked for in the same second, is accepted.
//! 3. Room booked is the sum over bookings, and free + reserved + used = total.

use std::collections::BTreeMap;
use std::fmt;

use base::{Bytes, Nanos};

pub use super::demand::Demand;

use super::demand::Open;
use super::{
    BytesPerSec, Contract, Costs, Direction, Headroom, Mix, Probability, Second, Share, Slot,
    Space, SpaceError,
};

/// A reservation's number; they rise and never come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BookingId(pub u64);

/// How far a booking has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Set aside until then, in case the rest of a larger reservation works out.
    Tentative {
        /// Gone from this second on.
        until: Second,
    },
    /// Promised.
    Committed,
}

/// One reservation in the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Booking {
    /// What is promised.
    pub contract: Contract,
    /// How far it has come.
    pub state: State,
}

/// A stretch of time in which nothing begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// When.
    pub slot: Slot,
    /// What is promised in it.
    pub demand: Demand,
    /// The part of the device's time that takes.
    pub promised: Share,
    /// What must stay free for it.
    pub headroom: Share,
}

/// What would fit instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The earliest slot of the same length from the asked start on; `None`: never.
    pub earliest: Option<Slot>,
    /// The largest rate in the asked slot; `None`: none.
    pub largest: Option<BytesPerSec>,
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.earliest, self.largest) {
            (Some(slot), Some(rate)) => write!(f, "ask for {slot} or for at most {rate}"),
            (Some(slot), None) => write!(f, "ask for {slot}"),
            (None, Some(rate)) => write!(f, "ask for at most {rate}"),
            (None, None) => f.write_str("this device cannot do it at any time"),
        }
    }
}

/// Why a reservation was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The device is promised to others.
    #[error(
        "cannot reserve {} of {}s in {}: at {at} {promised} of the device is promised to {sessions} \
         others, {headroom} must stay free and {floors} is for background work, which leaves {left} \
         where {needed} is needed; {offer}", .asked.rate, .asked.direction, .asked.slot
    )]
    Full {
        /// What was asked for.
        asked: Box<Contract>,
        /// The first second at which it does not fit.
        at: Second,
        /// What is promised then.
        promised: Share,
        /// To how many.
        sessions: u32,
        /// What must stay free then, the newcomer counted.
        headroom: Share,
        /// What background work is promised.
        floors: Share,
        /// What is left then.
        left: Share,
        /// What the newcomer takes.
        needed: Share,
        /// What would fit.
        offer: Offer,
    },
    /// There is no room for what it would write.
    #[error("cannot reserve room for what is written")]
    Space(#[from] SpaceError),
    /// It promises nothing.
    #[error("cannot reserve a rate of zero; without a promise no reservation is needed")]
    NoRate,
    /// It lasts no time, or is over.
    #[error("cannot reserve {slot}: it is {now} now; give it an end after its start and after now")]
    NoTime {
        /// As asked.
        slot: Slot,
        /// The time.
        now: Second,
    },
    /// The calendar has no more lines.
    #[error("cannot reserve: the calendar holds {0} reservations, which is the most; release some")]
    TooMany(usize),
}

/// A number that is no booking's (any more).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no reservation {}: it was released, expired, or never made", .0.0)]
pub struct NoBooking(pub BookingId);

/// The reservations of one device.
///
/// # Example
/// ```
/// use base::{Bytes, Nanos};
/// use policy::share::*;
/// use policy::share::calendar::{Calendar, Refusal};
/// let costs = Costs::flat(BytesPerSec::mb(100));
/// let mut calendar = Calendar::new(costs, Bytes::mib(1), Headroom::flat(Share::percent(10)), Space::new(Bytes(0), Bytes(0)));
/// let (now, until) = (Second(0), Second(30));
/// let ask = |mb, start| {
///     Contract::new(BytesPerSec::mb(mb), Direction::Read, Slot::new(Second(start), 100))
/// };
/// let first = calendar.hold(now, ask(60, 0), until)?;
/// calendar.commit(now, first).unwrap();
/// let Err(Refusal::Full { offer, .. }) = calendar.hold(now, ask(40, 50), until) else { panic!() };
/// assert_eq!(offer.earliest, Some(Slot::new(Second(100), 100)));
/// assert_eq!(offer.largest.unwrap().to_string(), "30 MB/s");
/// # Ok::<(), Refusal>(())
/// ```
#[derive(Debug, Clone)]
pub struct Calendar {
    // What the device can do.
    costs: Costs,
    unit: Bytes,
    headroom: Headroom,
    floors: Share,
    // What is promised.
    bookings: BTreeMap<BookingId, Booking>,
    space: Space,
    next_id: u64,
    bookings_max: usize,
}

impl Calendar {
    /// Bookings at once, unless changed.
    pub const BOOKINGS_MAX: usize = 10_000;

    /// An empty calendar; rates are reckoned in requests of `unit` bytes.
    pub fn new(costs: Costs, unit: Bytes, headroom: Headroom, space: Space) -> Calendar {
        Calendar {
            costs,
            unit,
            headroom,
            floors: Share::NONE,
            bookings: BTreeMap::new(),
            space,
            next_id: 1,
            bookings_max: Calendar::BOOKINGS_MAX,
        }
    }

    /// Sets a reservation aside until `until`.
    ///
    /// # Errors
    /// [`Refusal`], with what would fit instead.
    pub fn hold(
        &mut self,
        now: Second,
        contract: Contract,
        until: Second,
    ) -> Result<BookingId, Refusal> {
        self.expire(now);
        let slot = contract.slot;
        if contract.rate.0 == 0 {
            return Err(Refusal::NoRate);
        }
        if slot.end <= slot.start || slot.end <= now {
            return Err(Refusal::NoTime { slot, now });
        }
        if self.bookings.len() >= self.bookings_max {
            return Err(Refusal::TooMany(self.bookings_max));
        }
        let stretches = self.sweep(slot);
        if let Some(stretch) = stretches
            .iter()
            .find(|it| !self.fits(it.demand.with(&contract)))
        {
            return Err(self.refuse(contract, stretch, &stretches));
        }
        let id = BookingId(self.next_id);
        self.space.reserve(id, contract.space)?;
        self.next_id += 1;
        let state = State::Tentative { until };
        self.bookings.insert(id, Booking { contract, state });
        Ok(id)
    }

    /// Promises what was held. Committing twice is committing once.
    ///
    /// # Errors
    /// [`NoBooking`] if it has expired or was never held.
    pub fn commit(&mut self, now: Second, id: BookingId) -> Result<(), NoBooking> {
        self.expire(now);
        let booking = self.bookings.get_mut(&id).ok_or(NoBooking(id))?;
        booking.state = State::Committed;
        Ok(())
    }

    /// Ends a booking, held or committed; what it was is answered.
    ///
    /// # Errors
    /// [`NoBooking`] if there is none.
    pub fn release(&mut self, id: BookingId) -> Result<Booking, NoBooking> {
        let booking = self.bookings.remove(&id).ok_or(NoBooking(id))?;
        self.space.release(id);
        Ok(booking)
    }

    /// Drops what was held too long and what is over; answers their numbers.
    pub fn expire(&mut self, now: Second) -> Vec<BookingId> {
        let over = |booking: &Booking| {
            let held_too_long = matches!(booking.state, State::Tentative { until } if until <= now);
            held_too_long || booking.contract.slot.end <= now
        };
        let bookings = self.bookings.iter();
        let gone: Vec<BookingId> = bookings
            .filter(|(_, it)| over(it))
            .map(|(id, _)| *id)
            .collect();
        for id in &gone {
            self.bookings.remove(id);
            self.space.release(*id);
        }
        gone
    }

    /// After a restart: takes over a booking as it was recorded, `space` being what it has left. It was
    /// promised, so it is not asked whether it fits; see [`overcommitted`](Self::overcommitted).
    ///
    /// # Errors
    /// [`SpaceError`] if there is no room for what it has left.
    pub fn adopt(
        &mut self,
        id: BookingId,
        booking: Booking,
        space: Bytes,
    ) -> Result<(), SpaceError> {
        self.space.reserve(id, space)?;
        self.next_id = self.next_id.max(id.0 + 1);
        self.bookings.insert(id, booking);
        Ok(())
    }

    /// The number the next booking gets.
    pub fn next_id(&self) -> BookingId {
        BookingId(self.next_id)
    }

    /// After a restart: numbers below `next` were given, to bookings that may be gone.
    pub fn number_from(&mut self, next: BookingId) {
        self.next_id = self.next_id.max(next.0);
    }

    /// The device can do this from now on. Nothing is taken back; see
    /// [`overcommitted`](Self::overcommitted).
    pub fn set_capacity(&mut self, costs: Costs, headroom: Headroom) {
        self.costs = costs;
        self.headroom = headroom;
    }

    /// The floors of background work; reservations get what is left.
    pub fn set_floors(&mut self, floors: Share) {
        self.floors = floors;
    }

    /// At most so many bookings at once.
    pub fn set_bookings_max(&mut self, most: usize) {
        self.bookings_max = most;
    }

    /// Every booking, by number.
    pub fn bookings(&self) -> impl Iterator<Item = (BookingId, &Booking)> {
        self.bookings.iter().map(|(id, booking)| (*id, booking))
    }

    /// One booking.
    pub fn get(&self, id: BookingId) -> Option<&Booking> {
        self.bookings.get(&id)
    }

    /// The room, to read.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The room, to write and delete in.
    pub fn space_mut(&mut self) -> &mut Space {
        &mut self.space
    }

    /// What is promised in `slot`, stretch by stretch, without gaps.
    pub fn sweep(&self, slot: Slot) -> Vec<Stretch> {
        let mut edges = vec![slot.start, slot.end];
        let mut begins: BTreeMap<Second, Vec<&Contract>> = BTreeMap::new();
        let mut ends: BTreeMap<Second, Vec<&Contract>> = BTreeMap::new();
        for booking in self.bookings.values() {
            let contract = &booking.contract;
            if contract.slot.overlaps(slot) {
                let from = contract.slot.start.max(slot.start);
                let to = contract.slot.end.min(slot.end);
                begins.entry(from).or_default().push(contract);
                ends.entry(to).or_default().push(contract);
                edges.extend([from, to]);
            }
        }
        edges.sort_unstable();
        edges.dedup();
        let mut open = Open::default();
        let mut stretches = Vec::new();
        for pair in edges.windows(2) {
            for contract in ends.get(&pair[0]).into_iter().flatten() {
                open.remove(contract);
            }
            for contract in begins.get(&pair[0]).into_iter().flatten() {
                open.add(contract);
            }
            let demand = open.demand();
            stretches.push(Stretch {
                slot: Slot {
                    start: pair[0],
                    end: pair[1],
                },
                demand,
                promised: self.share(&demand),
                headroom: self.headroom(&demand),
            });
        }
        stretches
    }

    /// The stretches from `now` on in which more is promised than fits, since the device became slower.
    pub fn overcommitted(&self, now: Second) -> Vec<Stretch> {
        let last = self.bookings.values().map(|it| it.contract.slot.end).max();
        let end = last.unwrap_or(now).max(now);
        let mut stretches = self.sweep(Slot { start: now, end });
        stretches.retain(|stretch| stretch.demand.sessions > 0 && !self.fits(stretch.demand));
        stretches
    }

    /// What would fit in place of `contract` (which may fit as it is).
    pub fn offer(&self, contract: &Contract) -> Offer {
        self.offer_by(contract, &self.sweep(contract.slot))
    }

    fn share(&self, demand: &Demand) -> Share {
        let Demand { reads, writes, .. } = *demand;
        self.costs.share(Direction::Read, reads, self.unit)
            + self.costs.share(Direction::Write, writes, self.unit)
    }

    fn headroom(&self, demand: &Demand) -> Share {
        let mix = match (demand.reads.0 > 0, demand.writes.0 > 0) {
            (true, true) => Mix::Mixed,
            (false, true) => Mix::Writes,
            _ => Mix::Reads,
        };
        let window = demand.window.unwrap_or(Nanos(u64::MAX));
        let probability = demand.probability.unwrap_or(Probability(0));
        self.headroom.at(mix, demand.sessions, window, probability)
    }

    fn fits(&self, demand: Demand) -> bool {
        let Share(promised) = self.share(&demand);
        let aside = self.headroom(&demand) + self.floors;
        promised.saturating_add(aside.0) <= Share::WHOLE.0
    }

    fn refuse(&self, asked: Contract, at: &Stretch, stretches: &[Stretch]) -> Refusal {
        let headroom = self.headroom(&at.demand.with(&asked));
        let aside = at.promised + headroom + self.floors;
        Refusal::Full {
            at: at.slot.start,
            promised: at.promised,
            sessions: at.demand.sessions,
            headroom,
            floors: self.floors,
            left: Share::WHOLE.saturating_sub(aside),
            needed: self.costs.share(asked.direction, asked.rate, self.unit),
            offer: self.offer_by(&asked, stretches),
            asked: Box::new(asked),
        }
    }

    fn offer_by(&self, contract: &Contract, stretches: &[Stretch]) -> Offer {
        Offer {
            earliest: self.earliest(contract),
            largest: self.largest(contract, stretches),
        }
    }

    /// The first run of stretches, from the asked start on, that takes the contract for its whole length.
    fn earliest(&self, contract: &Contract) -> Option<Slot> {
        let seconds = contract.slot.seconds();
        let ever = Slot {
            start: contract.slot.start,
            end: Second(u64::MAX),
        };
        let mut run = ever.start;
        for stretch in self.sweep(ever) {
            if !self.fits(stretch.demand.with(contract)) {
                run = stretch.slot.end;
            } else if stretch.slot.end.0 - run.0 >= seconds {
                return Some(Slot::new(run, seconds));
            }
        }
        None
    }

    /// The largest rate, up to the asked one, that fits in every stretch.
    fn largest(&self, contract: &Contract, stretches: &[Stretch]) -> Option<BytesPerSec> {
        let fits = |rate| {
            let contract = Contract {
                rate: BytesPerSec(rate),
                ..*contract
            };
            stretches
                .iter()
                .all(|it| self.fits(it.demand.with(&contract)))
        };
        if fits(contract.rate.0) {
            return Some(contract.rate);
        }
        // `low` fits or is zero, `high` does not fit.
        let (mut low, mut high) = (0, contract.rate.0);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        (low > 0).then_some(BytesPerSec(low))
    }
}
