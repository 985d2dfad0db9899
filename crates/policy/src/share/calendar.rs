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

use base::Bytes;

pub use super::booking::{Booking, BookingId, NoBooking, State, Stretch};
pub use super::demand::Demand;
pub use super::refusal::{Offer, Refusal};

use super::demand::both;
use super::promisable::Promisable;
use super::stretches::Stretches;
use super::{BytesPerSec, Contract, Costs, Headroom, Second, Share, Slot, Space, SpaceError};

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
    device: Promisable,
    // What is promised.
    bookings: BTreeMap<BookingId, Booking>,
    /// Amendments that are held, and what each is to replace.
    amending: BTreeMap<BookingId, BookingId>,
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
            device: Promisable {
                costs,
                unit,
                headroom,
                floors: Share::NONE,
            },
            bookings: BTreeMap::new(),
            amending: BTreeMap::new(),
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
        self.admits(now, std::slice::from_ref(&contract))?;
        self.enter(contract, until)
    }

    /// Would all of `contracts`, which are asked for in one slot, be held now, one after the other? Nothing is set aside,
    /// and room is not asked about. What is over counts until it is [dropped](Self::expire).
    ///
    /// # Errors
    /// [`Refusal`] of the first that would not be; the offered begin is one for all of them together.
    ///
    /// # Panics
    /// If they are asked for in several slots.
    pub fn admits(&self, now: Second, contracts: &[Contract]) -> Result<(), Refusal> {
        for (before, contract) in contracts.iter().enumerate() {
            assert_eq!(contract.slot, contracts[0].slot, "asked for in one slot");
            check(now, contract)?;
            let with_those_before = |mut stretch: Stretch| {
                stretch.demand = contracts[..before]
                    .iter()
                    .fold(stretch.demand, Demand::with);
                stretch.promised = self.device.share(&stretch.demand);
                stretch.headroom = self.device.headroom(&stretch.demand);
                stretch
            };
            let mut stretches = self.stretches(contract.slot).map(with_those_before);
            let full = stretches.find(|it| !self.device.fits(it.demand.with(contract)));
            if let Some(full) = full {
                let all: Vec<Stretch> = self
                    .stretches(contract.slot)
                    .map(with_those_before)
                    .collect();
                return Err(self.refuse(*contract, &full, &all, self.earliest(contracts)));
            }
        }
        self.check_lines(contracts.len())
    }

    /// Are there lines for so many more?
    fn check_lines(&self, more: usize) -> Result<(), Refusal> {
        match self.bookings.len() + more > self.bookings_max {
            true => Err(Refusal::TooMany(self.bookings_max)),
            false => Ok(()),
        }
    }

    /// Gives it a number and a line.
    fn enter(&mut self, contract: Contract, until: Second) -> Result<BookingId, Refusal> {
        self.check_lines(1)?;
        let id = BookingId(self.next_id);
        self.space.reserve(id, contract.space)?;
        self.next_id += 1;
        let state = State::Tentative { until };
        self.bookings.insert(id, Booking { contract, state });
        Ok(id)
    }

    /// Sets `contract` aside to replace `booking`: while both are there the greater of the two counts at each second,
    /// and releasing the one or the other leaves the other. What is no more than `booking` at any second is granted.
    /// Without such a booking, or of another direction, as [`hold`](Self::hold).
    ///
    /// # Errors
    /// As for [`hold`](Self::hold); the offer counts `booking` as gone.
    ///
    /// # Example
    /// ```
    /// use base::Bytes;
    /// use policy::share::*;
    /// use policy::share::calendar::Calendar;
    /// let costs = Costs::flat(BytesPerSec::mb(100));
    /// let mut calendar = Calendar::new(costs, Bytes::mib(1), Headroom::flat(Share::NONE), Space::new(Bytes(0), Bytes(0)));
    /// let ask = |mb, seconds| Contract::new(BytesPerSec::mb(mb), Direction::Read, Slot::new(Second(0), seconds));
    /// let before = calendar.hold(Second(0), ask(60, 100), Second(30))?;
    /// let longer = calendar.amend(Second(0), before, ask(70, 200), Second(30))?;
    /// calendar.release(before).unwrap();
    /// assert_eq!(calendar.get(longer).unwrap().contract, ask(70, 200));
    /// # Ok::<(), calendar::Refusal>(())
    /// ```
    pub fn amend(
        &mut self,
        now: Second,
        booking: BookingId,
        contract: Contract,
        until: Second,
    ) -> Result<BookingId, Refusal> {
        self.expire(now);
        let before = self.bookings.get(&booking).map(|it| it.contract);
        let Some(before) = before.filter(|it| it.direction == contract.direction) else {
            return self.hold(now, contract, until);
        };
        check(now, &contract)?;
        let mut others = self.clone();
        others.amending.retain(|_, replaced| *replaced != booking);
        let _ = others.release(booking);
        for piece in both(&before, &contract) {
            let is_new = !before.contains(&piece);
            let stretches = others.sweep(piece.slot);
            let full = |it: &&Stretch| is_new && !others.device.fits(it.demand.with(&piece));
            if let Some(stretch) = stretches.iter().find(full) {
                let all = others.sweep(contract.slot);
                let earliest = others.earliest(std::slice::from_ref(&contract));
                return Err(others.refuse(contract, stretch, &all, earliest));
            }
        }
        let id = self.enter(contract, until)?;
        self.amending.insert(id, booking);
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
        self.forget(id);
        Ok(booking)
    }

    /// Was something held too long, or is over?
    pub fn has_over(&self, now: Second) -> bool {
        self.bookings.values().any(|it| it.is_over(now))
    }

    /// Drops what was held too long and what is over; answers their numbers.
    pub fn expire(&mut self, now: Second) -> Vec<BookingId> {
        let bookings = self.bookings.iter();
        let gone: Vec<BookingId> = bookings
            .filter(|(_, it)| it.is_over(now))
            .map(|(id, _)| *id)
            .collect();
        for id in &gone {
            self.bookings.remove(id);
            self.forget(*id);
        }
        gone
    }

    /// What else was kept of a booking that is gone.
    fn forget(&mut self, id: BookingId) {
        self.space.release(id);
        self.amending.retain(|new, old| *new != id && *old != id);
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

    /// After a restart: `booking` was set aside to replace `replaced`, as by [`amend`](Self::amend).
    pub fn amends(&mut self, booking: BookingId, replaced: BookingId) {
        let direction = |id| self.bookings.get(&id).map(|it| it.contract.direction);
        if booking != replaced
            && let (Some(new), Some(old)) = (direction(booking), direction(replaced))
            && new == old
        {
            self.amending.insert(booking, replaced);
        }
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
        self.device.costs = costs;
        self.device.headroom = headroom;
    }

    /// The floors of background work; reservations get what is left.
    pub fn set_floors(&mut self, floors: Share) {
        self.device.floors = floors;
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
        self.stretches(slot).collect()
    }

    /// The same, as far as they are asked for.
    fn stretches(&self, slot: Slot) -> impl Iterator<Item = Stretch> {
        let demands = Stretches::new(self.contracts(slot), slot);
        demands.map(|(slot, demand)| Stretch {
            slot,
            demand,
            promised: self.device.share(&demand),
            headroom: self.device.headroom(&demand),
        })
    }

    /// What counts in `slot`: of a booking and what is to replace it, the greater at each second.
    fn contracts(&self, slot: Slot) -> Vec<Contract> {
        let within = self.bookings.iter();
        let within = within.filter(|(_, it)| it.contract.slot.overlaps(slot));
        if self.amending.is_empty() {
            return within.map(|(_, it)| it.contract).collect();
        }
        let paired = |id: &BookingId| {
            self.amending.contains_key(id) || self.amending.values().any(|old| old == id)
        };
        let alone = within.filter(|(id, _)| !paired(id));
        let mut all: Vec<Contract> = alone.map(|(_, it)| it.contract).collect();
        for (new, old) in &self.amending {
            all.extend(both(
                &self.bookings[old].contract,
                &self.bookings[new].contract,
            ));
        }
        all
    }

    /// The stretches from `now` on in which more is promised than fits, since the device became slower.
    pub fn overcommitted(&self, now: Second) -> Vec<Stretch> {
        let last = self.bookings.values().map(|it| it.contract.slot.end).max();
        let end = last.unwrap_or(now).max(now);
        let mut stretches = self.sweep(Slot { start: now, end });
        stretches
            .retain(|stretch| stretch.demand.sessions > 0 && !self.device.fits(stretch.demand));
        stretches
    }

    /// What would fit in place of `contract` (which may fit as it is).
    pub fn offer(&self, contract: &Contract) -> Offer {
        Offer {
            earliest: self.earliest(std::slice::from_ref(contract)),
            largest: self.largest(contract, &self.sweep(contract.slot)),
        }
    }

    /// `asked` does not fit beside what is promised `at` one of all `stretches`; there is room for it at `earliest`.
    fn refuse(
        &self,
        asked: Contract,
        at: &Stretch,
        stretches: &[Stretch],
        earliest: Option<Slot>,
    ) -> Refusal {
        let headroom = self.device.headroom(&at.demand.with(&asked));
        let aside = at.promised + headroom + self.device.floors;
        Refusal::Full {
            at: at.slot.start,
            promised: at.promised,
            sessions: at.demand.sessions,
            headroom,
            floors: self.device.floors,
            left: Share::WHOLE.saturating_sub(aside),
            needed: self
                .device
                .costs
                .share(asked.direction, asked.rate, self.device.unit),
            offer: Offer {
                earliest,
                largest: self.largest(&asked, stretches),
            },
            asked: Box::new(asked),
        }
    }

    /// The first run of stretches, from the asked start on, that takes all of `contracts` together for their whole length;
    /// all are asked for in one slot.
    pub fn earliest(&self, contracts: &[Contract]) -> Option<Slot> {
        let asked = contracts.first()?.slot;
        let seconds = asked.seconds();
        let ever = Slot {
            start: asked.start,
            end: Second(u64::MAX),
        };
        let mut run = ever.start;
        for stretch in self.stretches(ever) {
            if !self
                .device
                .fits(contracts.iter().fold(stretch.demand, Demand::with))
            {
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
                .all(|it| self.device.fits(it.demand.with(&contract)))
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

/// Is it one that any calendar could hold?
fn check(now: Second, contract: &Contract) -> Result<(), Refusal> {
    let slot = contract.slot;
    if contract.rate.0 == 0 {
        return Err(Refusal::NoRate);
    }
    match slot.end <= slot.start || slot.end <= now {
        true => Err(Refusal::NoTime { slot, now }),
        false => Ok(()),
    }
}
