//! An allotment: a standing reservation out of which its account books, without asking stores for room.
//!
//! ```text
//! allotment committed -> its calendar: what each store promises it, and nothing inside yet
//! booked inside       -> checked against that calendar and entered there, in the transaction that commits the record
//! allotment ended     -> the calendar is gone with it: nothing more is committed inside; what was inside ends
//! ```
//!
//! The calendar is a record of its own, `reservation-allotment/<id>`. Stores check the same once more: what is within a part
//! is never more than the part.
//!
//! Always true:
//! 1. What is inside never comes to more than the allotment at any store, at any second, however many book at once.
//! 2. There is a calendar exactly while the allotment stands.

use std::collections::BTreeMap;
#[cfg(test)]
use std::collections::BTreeSet;

use policy::share::{BytesPerSec, Direction, Second, Slot};
use serde::{Deserialize, Serialize};
use store::qos::manager::Quote;
use vdisk::StoreNumber;
use vdisk::meta::{Compare, Op, Revision, TxnPart};

use crate::error::ReservationError;
use crate::plan::Wanted;
use crate::record::{BadRecord, Reservation, ReservationId, Target};
use crate::records::Records;
use crate::stores::Facts;

/// Calendars begin so.
pub(crate) const PREFIX: &str = "reservation-allotment/";
/// The version of calendars.
const VERSION: u32 = 1;
/// What is inside at once, at most.
pub const INSIDE_MAX: usize = 1000;
/// A calendar is one value of the meta store, and goes through with a record.
const BYTES_MAX: usize = 512 * 1024;

/// So much at one store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rate {
    store: StoreNumber,
    reads: bool,
    rate: u64,
}

/// A reservation that is booked inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Inside {
    id: ReservationId,
    from: u64,
    until: u64,
    rates: Vec<Rate>,
}

/// What an allotment has, and what is booked inside. Pure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AllotmentCalendar {
    version: u32,
    from: u64,
    until: u64,
    rates: Vec<Rate>,
    inside: Vec<Inside>,
}

impl Rate {
    fn of(wanted: &Wanted) -> Rate {
        Rate {
            store: wanted.store,
            reads: wanted.direction == Direction::Read,
            rate: wanted.rate,
        }
    }

    fn is_at(&self, other: &Rate) -> bool {
        (self.store, self.reads) == (other.store, other.reads)
    }
}

/// The parts of a record, as they were wanted: what it takes of an allotment, or has as one.
pub(crate) fn wanted_of(record: &Reservation) -> Vec<Wanted> {
    let parts = record.parts.iter().map(|part| Wanted {
        store: part.store,
        direction: part.direction(),
        rate: part.rate,
    });
    parts.collect()
}

impl Inside {
    /// What `record` takes, at `wanted`.
    pub fn of(id: ReservationId, slot: Slot, wanted: &[Wanted]) -> Inside {
        Inside {
            id,
            from: slot.start.0,
            until: slot.end.0,
            rates: wanted.iter().map(Rate::of).collect(),
        }
    }

    fn rate_at(&self, place: &Rate) -> u64 {
        let there = self.rates.iter().filter(|it| it.is_at(place));
        there.map(|it| it.rate).fold(0, u64::saturating_add)
    }
}

/// A stretch in which something has no room at a place.
struct Full {
    from: u64,
    until: u64,
    place: Rate,
    /// What is left there then.
    left: u64,
}

impl AllotmentCalendar {
    /// That of an allotment that is as `record` says, of `wanted`, with what was inside before.
    fn of(record: &Reservation, wanted: &[Wanted], inside: Vec<Inside>) -> AllotmentCalendar {
        AllotmentCalendar {
            version: VERSION,
            from: record.promise.from,
            until: record.promise.until,
            rates: wanted.iter().map(Rate::of).collect(),
            inside,
        }
    }

    /// Where `asked` has no room beside all others that are inside, place by place, each in the order of time.
    fn full(&self, asked: &Inside) -> Vec<Full> {
        // What begins and ends there; all of it is looked at once, however many stretches there are.
        let mut steps: BTreeMap<(StoreNumber, bool), BTreeMap<u64, i128>> = BTreeMap::new();
        for it in self.inside.iter().filter(|it| it.id != asked.id) {
            let asked_for = |it: &&Rate| asked.rates.iter().any(|place| place.is_at(it));
            for rate in it.rates.iter().filter(asked_for) {
                let of_place = steps.entry((rate.store, rate.reads)).or_default();
                *of_place.entry(it.from).or_default() += i128::from(rate.rate);
                *of_place.entry(it.until).or_default() -= i128::from(rate.rate);
            }
        }
        let mut full = Vec::new();
        for place in &asked.rates {
            let (limit, needed) = (self.limit(place), asked.rate_at(place));
            let none = BTreeMap::new();
            let of_place = steps.get(&(place.store, place.reads)).unwrap_or(&none);
            let begins = [0].into_iter().chain(of_place.keys().copied());
            let ends = of_place.keys().copied().chain([u64::MAX]);
            let changes = [0].into_iter().chain(of_place.values().copied());
            let mut sum = 0;
            for ((from, until), change) in begins.zip(ends).zip(changes) {
                sum += change;
                let taken = u64::try_from(sum).unwrap_or(u64::MAX);
                if taken.saturating_add(needed) > limit && from < until {
                    full.push(Full {
                        from,
                        until,
                        place: *place,
                        left: limit.saturating_sub(taken),
                    });
                }
            }
        }
        full
    }

    /// What it has at `place`.
    fn limit(&self, place: &Rate) -> u64 {
        let there = self.rates.iter().filter(|it| it.is_at(place));
        there.map(|it| it.rate).fold(0, u64::saturating_add)
    }

    /// Does `asked` fit beside all others that are inside?
    ///
    /// # Errors
    /// Why not, in words, with what is left.
    pub fn check(
        &self,
        asked: &Inside,
        label: impl Fn(StoreNumber) -> String,
    ) -> Result<(), String> {
        if asked.from < self.from || self.until < asked.until {
            return Err(format!(
                "it is promised from {} until {}; ask for a time within that",
                Second(self.from),
                Second(self.until)
            ));
        }
        let full = self.full(asked);
        let mut within = full
            .iter()
            .filter(|it| it.from < asked.until && asked.from < it.until);
        let Some(full) = within.next() else {
            return Ok(());
        };
        Err(format!(
            "at {} {} of its {} are left at {}, and {} are needed; ask for less or for another time",
            label(full.place.store),
            BytesPerSec(full.left),
            BytesPerSec(self.limit(&full.place)),
            Second(full.from.max(asked.from)),
            BytesPerSec(asked.rate_at(&full.place))
        ))
    }

    /// Would `asked` fit, and when would it at the earliest?
    pub fn quote(&self, asked: &Inside, label: impl Fn(StoreNumber) -> String) -> Quote {
        let seconds = asked.until - asked.from;
        let mut full = self.full(asked);
        full.sort_by_key(|it| it.from);
        let mut from = asked.from.max(self.from);
        for it in full {
            if it.from < from.saturating_add(seconds) && from < it.until {
                from = it.until;
            }
        }
        let is_within = from
            .checked_add(seconds)
            .is_some_and(|until| until <= self.until);
        Quote {
            earliest: is_within.then_some(Second(from)),
            refused: self.check(asked, &label).err(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }

    /// Can it be written down?
    fn is_short(&self) -> bool {
        self.inside.len() <= INSIDE_MAX && self.encode().len() <= BYTES_MAX
    }

    /// With `asked` inside, in place of what it had there before.
    fn with(mut self, asked: Inside) -> AllotmentCalendar {
        self.inside.retain(|it| it.id != asked.id);
        self.inside.push(asked);
        self
    }

    /// Does what is inside still fit where the allotment has less than `before`? A store that has `left` with its volume does
    /// not count: what is inside moves, too.
    fn check_less(
        &self,
        before: &AllotmentCalendar,
        left: impl Fn(StoreNumber) -> bool,
    ) -> Result<(), String> {
        for inside in &self.inside {
            let is_less = |it: &&Rate| !left(it.store) && self.limit(it) < before.limit(it);
            let less = Inside {
                rates: inside.rates.iter().filter(is_less).copied().collect(),
                ..inside.clone()
            };
            let label = |store: StoreNumber| format!("store number {}", store.0);
            if let Err(why) = self.check(&less, label) {
                return Err(format!("{} is booked inside: {why}", inside.id));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
impl AllotmentCalendar {
    /// Is it as the records say: that of `allotment`, with exactly these inside?
    pub fn check_is(
        &self,
        allotment: &Reservation,
        inside: &std::collections::BTreeMap<ReservationId, &Reservation>,
    ) -> Result<(), String> {
        let rates = |rates: &[Rate]| {
            let all = rates.iter().map(|it| (it.store, it.reads, it.rate));
            all.collect::<BTreeSet<_>>()
        };
        let of = |it: &Reservation| {
            let parts: Vec<Rate> = wanted_of(it).iter().map(Rate::of).collect();
            (it.promise.from, it.promise.until, rates(&parts))
        };
        let has = (self.from, self.until, rates(&self.rates));
        if has != of(allotment) {
            return Err(format!("it has {has:?}, its record {:?}", of(allotment)));
        }
        let has = self.inside.iter();
        let has = has.map(|it| (it.id, (it.from, it.until, rates(&it.rates))));
        let has: std::collections::BTreeMap<_, _> = has.collect();
        let wanted = inside.iter().map(|(id, it)| (*id, of(it))).collect();
        match has == wanted {
            true => Ok(()),
            false => Err(format!("{has:?} is inside, by the records {wanted:?}")),
        }
    }
}

fn key(id: ReservationId) -> String {
    format!("{PREFIX}{:032x}", id.0)
}

/// The calendars of allotments, where the records are.
pub(crate) struct Allotments<'a>(pub &'a Records);

/// One as it was read.
type Found = Option<(AllotmentCalendar, Revision)>;

impl Allotments<'_> {
    /// The calendar of an allotment; `None`: it does not stand.
    ///
    /// # Errors
    /// [`ReservationError::Meta`], [`ReservationError::Record`].
    pub async fn get(&self, id: ReservationId) -> Result<Found, ReservationError> {
        let Some(entry) = self.0.0.get(&key(id)).await? else {
            return Ok(None);
        };
        let bad = |why: String| BadRecord { key: key(id), why };
        let read: Result<AllotmentCalendar, _> = serde_json::from_slice(&entry.value);
        let calendar = read.map_err(|error| bad(error.to_string()))?;
        if calendar.version != VERSION {
            let why = format!("it has version {}; use a newer program", calendar.version);
            return Err(bad(why).into());
        }
        Ok(Some((calendar, entry.changed)))
    }

    /// What goes through with `next` of this id: it comes inside its allotment, at `wanted`; or it is an allotment of that.
    ///
    /// # Errors
    /// [`ReservationError::Refused`] where it does not fit inside, or leaves too little for what is inside;
    /// [`ReservationError::Meta`].
    pub async fn enter(
        &self,
        id: ReservationId,
        next: &Reservation,
        wanted: &[Wanted],
        facts: &Facts,
    ) -> Result<TxnPart, ReservationError> {
        if let Some(allotment) = next.terms.within {
            let Some((calendar, changed)) = self.get(allotment).await? else {
                return refuse(format!(
                    "the allotment {allotment} is over; book outside of it"
                ));
            };
            let asked = Inside::of(id, next.promise.slot(), wanted);
            calendar
                .check(&asked, |it| facts.label(it))
                .or_else(refuse)?;
            let calendar = calendar.with(asked);
            if !calendar.is_short() {
                let there = calendar.inside.len() - 1;
                return refuse(format!(
                    "{there} reservations are inside of it, as many as its calendar holds; end some first"
                ));
            }
            return Ok(TxnPart {
                compares: vec![Compare::Unchanged(key(allotment), changed)],
                ops: vec![Op::put(key(allotment), calendar.encode())],
            });
        }
        if !next.terms.allotment {
            return Ok(TxnPart::default());
        }
        let found = self.get(id).await?;
        let (before, changed) = match found {
            Some((before, changed)) => (Some(before), changed),
            None => (None, Revision::default()),
        };
        let inside = before.as_ref().map_or(Vec::new(), |it| it.inside.clone());
        let calendar = AllotmentCalendar::of(next, wanted, inside);
        if let Some(before) = &before {
            let left = |store| has_left(&next.target, store, facts);
            calendar.check_less(before, left).or_else(refuse)?;
        }
        Ok(TxnPart {
            compares: vec![Compare::Unchanged(key(id), changed)],
            ops: vec![Op::put(key(id), calendar.encode())],
        })
    }

    /// What goes through with the end of `record`: it is inside no more; or it is an allotment, and what was inside is answered.
    ///
    /// # Errors
    /// [`ReservationError::Meta`], [`ReservationError::Record`].
    pub async fn leave(
        &self,
        id: ReservationId,
        record: &Reservation,
    ) -> Result<(TxnPart, Vec<ReservationId>), ReservationError> {
        let none = || Ok((TxnPart::default(), Vec::new()));
        let allotment = match (record.terms.within, record.terms.allotment) {
            (Some(allotment), _) => allotment,
            (None, true) => id,
            (None, false) => return none(),
        };
        let Some((mut calendar, changed)) = self.get(allotment).await? else {
            return none();
        };
        let compares = vec![Compare::Unchanged(key(allotment), changed)];
        if allotment == id {
            let ops = vec![Op::Delete { key: key(id) }];
            let inside = calendar.inside.iter().map(|it| it.id).collect();
            return Ok((TxnPart { compares, ops }, inside));
        }
        calendar.inside.retain(|it| it.id != id);
        let ops = vec![Op::put(key(allotment), calendar.encode())];
        Ok((TxnPart { compares, ops }, Vec::new()))
    }
}

/// Has the volume nothing at this store any more? The stores of others were named.
fn has_left(target: &Target, store: StoreNumber, facts: &Facts) -> bool {
    let Target::Volume { id, .. } = target else {
        return false;
    };
    let volume = facts.volumes.get(id);
    volume.is_some_and(|it| !facts.stores_of(it).contains(&store))
}

fn refuse<T>(why: String) -> Result<T, ReservationError> {
    Err(ReservationError::Refused {
        what: "inside the allotment".to_owned(),
        refused: vec![("its calendar".to_owned(), why)],
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(store: u16, rate: u64) -> Rate {
        Rate {
            store: StoreNumber(store),
            reads: true,
            rate,
        }
    }

    fn inside(id: u128, from: u64, until: u64, rates: &[Rate]) -> Inside {
        Inside {
            id: ReservationId(id),
            from,
            until,
            rates: rates.to_vec(),
        }
    }

    fn calendar(inside: Vec<Inside>) -> AllotmentCalendar {
        AllotmentCalendar {
            version: VERSION,
            from: 100,
            until: 200,
            rates: vec![rate(1, 60), rate(2, 30)],
            inside,
        }
    }

    fn label(store: StoreNumber) -> String {
        format!("s{}", store.0)
    }

    #[test]
    fn what_is_inside_fits_at_each_store_in_each_second() {
        let there = calendar(vec![
            inside(1, 100, 150, &[rate(1, 40)]),
            inside(2, 140, 200, &[rate(1, 20), rate(2, 30)]),
        ]);
        let fits = |from, until, rates: &[Rate]| {
            there.check(&inside(3, from, until, rates), label).is_ok()
        };
        assert!(fits(100, 140, &[rate(1, 20), rate(2, 30)]));
        assert!(!fits(100, 141, &[rate(1, 20)]));
        assert!(fits(150, 200, &[rate(1, 40)]));
        assert!(!fits(150, 200, &[rate(2, 1)]));
        assert!(!fits(150, 201, &[rate(1, 1)]));
        assert!(!fits(99, 140, &[rate(1, 1)]));
        assert!(
            !fits(150, 200, &[rate(3, 1)]),
            "it has nothing at that store"
        );
        // In place of itself it may have what it has.
        assert!(
            there
                .check(&inside(1, 100, 150, &[rate(1, 40)]), label)
                .is_ok()
        );
    }

    proptest! {
        #[test]
        fn it_says_of_each_second_what_a_sum_says(
            others in prop::collection::vec((0..3_u16, 90..200_u64, 1..60_u64, 1..40_u64), 0..12),
            from in 95..190_u64,
            seconds in 1..50_u64,
            (one, two) in (1..60_u64, 0..30_u64),
        ) {
            let of = |(nth, (store, from, seconds, it)): (usize, (u16, u64, u64, u64))| {
                inside(nth as u128 + 1, from, from + seconds, &[rate(store + 1, it)])
            };
            let there = calendar(others.into_iter().enumerate().map(of).collect());
            let wanted = [rate(1, one), rate(2, two)];
            let asked = |from: u64| inside(99, from, from + seconds, &wanted);
            let fits = |from: u64| {
                let is_within = from >= there.from && from + seconds <= there.until;
                let has_room = |second: u64| wanted.iter().all(|place| {
                    let then = there.inside.iter().filter(|it| it.from <= second && second < it.until);
                    let taken: u64 = then.map(|it| it.rate_at(place)).sum();
                    taken + place.rate <= there.limit(place)
                });
                is_within && (from..from + seconds).all(has_room)
            };
            prop_assert_eq!(there.check(&asked(from), label).is_ok(), fits(from));
            let earliest = (from..260).find(|at| fits(*at)).map(Second);
            prop_assert_eq!(there.quote(&asked(from), label).earliest, earliest);
        }
    }

    #[test]
    fn the_earliest_is_when_others_leave() {
        let there = calendar(vec![inside(1, 100, 150, &[rate(1, 40)])]);
        let quote = there.quote(&inside(2, 110, 130, &[rate(1, 30)]), label);
        assert_eq!(quote.earliest, Some(Second(150)));
        assert!(
            quote
                .refused
                .unwrap()
                .starts_with("at s1 20 B/s of its 60 B/s are left")
        );
        let never = there.quote(&inside(2, 110, 190, &[rate(1, 30)]), label);
        assert_eq!(never.earliest, None);
    }

    #[test]
    fn a_calendar_is_no_longer_than_a_value_of_the_meta_store() {
        let with = |count: u128, stores: u16| {
            let rates: Vec<Rate> = (0..stores).map(|it| rate(it, u64::MAX)).collect();
            let inside = (0..count).map(|it| inside(u128::MAX - it, u64::MAX, u64::MAX, &rates));
            calendar(inside.collect())
        };
        assert!(with(1000, 6).is_short());
        assert!(!with(1001, 1).is_short(), "too many");
        assert!(!with(1000, 64).is_short(), "too long");
        const { assert!(BYTES_MAX * 2 <= vdisk::meta::VALUE_MAX) };
    }

    #[test]
    fn an_allotment_becomes_no_less_than_what_is_inside() {
        let before = calendar(vec![inside(1, 100, 150, &[rate(1, 40), rate(2, 30)])]);
        let with = |until, rates: Vec<Rate>| AllotmentCalendar {
            until,
            rates,
            ..before.clone()
        };
        let stays = |_| false;
        for (now, fits) in [
            (with(150, vec![rate(1, 40), rate(2, 30)]), true),
            (with(149, vec![rate(1, 60), rate(2, 30)]), false),
            (with(200, vec![rate(1, 39), rate(2, 30)]), false),
            (with(200, vec![rate(1, 60), rate(3, 30)]), false),
            (with(200, vec![rate(2, 30)]), false),
        ] {
            assert_eq!(now.check_less(&before, stays).is_ok(), fits, "{now:?}");
        }
        // Its volume has left store 2, and what is inside moves with it.
        let moved = with(200, vec![rate(1, 60), rate(3, 30)]);
        let left = |store| store == StoreNumber(2);
        assert_eq!(moved.check_less(&before, left), Ok(()));
    }
}
