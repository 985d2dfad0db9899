//! What would fit instead of what was asked for, over all stores together?
//!
//! ```text
//! earliest   each store says its earliest begin; the latest of them is asked about next, until all agree
//! largest    bisection over parts of the asked rates, in permille
//! longest    bisection over seconds, from the asked begin on
//! ```
//!
//! Other reservations of the same target and the account's quota are asked with the stores.
//!
//! Always true: what is offered would have been made when it was asked, with just the parts that it would have; but for
//! parts at several stores of one node, which share its link and are asked about one by one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use env::sync::{Permit, Semaphore};
use policy::share::{Second, Slot};
use store::qos::manager::Quote;
use vdisk::StoreNumber;

use crate::admission::{Admission, Clash, first_in};
use crate::allotment::{Allotments, Inside};
use crate::ask::{Ask, Planned};
use crate::book::{request, what, within};
use crate::error::ReservationError;
use crate::quota::Limits;
use crate::record::{Promise, Reservation, ReservationId, Terms};
use crate::service::Service;
use crate::stores::Facts;

/// Stores agree on a begin within so many rounds, or on none.
const ROUNDS_MAX: usize = 100;

/// What would fit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Offer {
    /// Does it fit as asked?
    pub fits: bool,
    /// The earliest begin, from the asked one on, at which it fits; `None`: never.
    pub earliest: Option<Second>,
    /// The largest part of the asked rates that fits in the asked time, in permille; `None`: none.
    pub largest_permille: Option<u32>,
    /// From the asked begin on it fits for so many seconds; `None`: not for one.
    pub longest_seconds: Option<u64>,
    /// Stores by their names, its target or its account, and why it does not fit there as asked.
    pub refused: Vec<(String, String)>,
}

impl Offer {
    /// It fits as it is asked for.
    pub(crate) fn as_asked(promise: &Promise) -> Offer {
        Offer {
            fits: true,
            earliest: Some(Second(promise.from)),
            largest_permille: Some(1000),
            longest_seconds: Some(promise.until - promise.from),
            refused: Vec::new(),
        }
    }
}

/// What of `ask` would be made.
///
/// # Errors
/// [`ReservationError::Unreachable`] if a store does not answer; [`ReservationError::Meta`].
pub(crate) async fn find(
    service: &Service,
    facts: &Facts,
    (ask, terms): (&Ask, &Terms),
    planned: &Planned,
) -> Result<Offer, ReservationError> {
    let none_yet = ReservationId(0);
    let of = (&planned.target, &planned.promise, terms);
    // Both are looked at once: an offer is some dozens of questions.
    let limits = match service.quotas.limits(&ask.account).await {
        Ok(limits) => Ok(limits),
        Err(ReservationError::Quota(why)) => Err(why),
        Err(error) => return Err(error),
    };
    let asking = Asking {
        service,
        facts,
        ask,
        terms,
        clashes: Admission(service).clashes(none_yet, of).await?,
        limits,
    };
    let quotes = asking.quotes(planned).await?;
    let mut refused: Vec<_> = quotes
        .iter()
        .filter_map(|(store, quote)| Some((facts.label(*store), quote.refused.clone()?)))
        .collect();
    refused.extend(asking.beside(planned));
    let promise = &planned.promise;
    let seconds = promise.until - promise.from;
    if refused.is_empty() {
        return Ok(Offer::as_asked(promise));
    }
    let largest = most(1000, async |permille| {
        asking
            .fits(&ask.with(promise.from, seconds, permille))
            .await
    });
    let largest = largest.await?;
    let longest = most(seconds, async |seconds| {
        asking.fits(&ask.with(promise.from, seconds, 1000)).await
    });
    Ok(Offer {
        fits: false,
        earliest: asking.earliest(quotes, seconds).await?,
        largest_permille: u32::try_from(largest).ok().filter(|it| *it > 0),
        longest_seconds: Some(longest.await?).filter(|it| *it > 0),
        refused,
    })
}

/// The greatest number below `over` for which `fits`; `over` itself does not. 0: none.
async fn most(
    over: u64,
    fits: impl AsyncFn(u64) -> Result<bool, ReservationError>,
) -> Result<u64, ReservationError> {
    let (mut low, mut high) = (0, over);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle).await? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// Offers at one node: some dozens of questions to each store. So many are made at a time, of one account one.
pub(crate) struct Turns {
    all: Rc<Semaphore>,
    of: RefCell<BTreeMap<String, Weak<Semaphore>>>,
}

/// So many at a time.
const AT_ONCE: u64 = 4;

impl Default for Turns {
    fn default() -> Self {
        Turns {
            all: Semaphore::new(AT_ONCE),
            of: RefCell::default(),
        }
    }
}

impl Turns {
    /// Waits for the turn of `account`, which ends when this is dropped.
    pub async fn turn(&self, account: &str) -> [Permit; 2] {
        let own = self.own(account).acquire(1).await;
        [own, self.all.acquire(1).await]
    }

    /// The turn of `account`, if it may have it now.
    pub fn try_turn(&self, account: &str) -> Option<[Permit; 2]> {
        let own = self.own(account).try_acquire(1)?;
        Some([own, self.all.try_acquire(1)?])
    }

    fn own(&self, account: &str) -> Rc<Semaphore> {
        let mut of = self.of.borrow_mut();
        of.retain(|_, it| it.strong_count() > 0);
        let own = of.get(account).and_then(Weak::upgrade);
        own.unwrap_or_else(|| {
            let own = Semaphore::new(1);
            of.insert(account.to_owned(), Rc::downgrade(&own));
            own
        })
    }
}

struct Asking<'a> {
    service: &'a Service,
    facts: &'a Facts,
    ask: &'a Ask,
    terms: &'a Terms,
    /// Times that other reservations of the target have.
    clashes: Vec<Clash>,
    /// What the account may have besides.
    limits: Result<Box<dyn Limits>, String>,
}

impl Asking<'_> {
    /// What each store says of its parts together.
    async fn quotes(
        &self,
        planned: &Planned,
    ) -> Result<Vec<(StoreNumber, Quote)>, ReservationError> {
        if let Some(allotment) = self.terms.within {
            let quote = self.inside(allotment, planned).await?;
            return Ok(vec![(planned.wanted[0].store, quote)]);
        }
        let record = self.record(planned);
        let mut by_store: BTreeMap<StoreNumber, Vec<_>> = BTreeMap::new();
        for wanted in &planned.wanted {
            let parts = by_store.entry(wanted.store).or_default();
            parts.push(request(&record, wanted));
        }
        let asked = by_store.iter().map(async |(store, parts)| {
            let quote = async {
                let place = planned.target.place(*store);
                let calendar = self.service.cluster.calendar(place).await?;
                calendar.quote(parts).await
            };
            let quote = within(quote);
            let failed = |error| {
                let what = what(&planned.promise);
                ReservationError::of_part(&what, self.facts.label(*store), error)
            };
            quote.await.map(|it| (*store, it)).map_err(failed)
        });
        env::sync::join_all(asked).await.into_iter().collect()
    }

    /// What the calendar of an allotment says.
    async fn inside(
        &self,
        allotment: ReservationId,
        planned: &Planned,
    ) -> Result<Quote, ReservationError> {
        let Some((calendar, _)) = Allotments(&self.service.records).get(allotment).await? else {
            return Err(ReservationError::Absent(allotment.to_string()));
        };
        let slot = planned.promise.slot();
        // It is not made yet: nothing inside is its own.
        let asked = Inside::of(ReservationId(0), slot, &planned.wanted);
        Ok(calendar.quote(&asked, |store| self.facts.label(store)))
    }

    /// As its record would be.
    fn record(&self, planned: &Planned) -> Reservation {
        let whose = (&*self.ask.name, &*self.ask.account);
        let (target, promise) = (planned.target.clone(), planned.promise.clone());
        Reservation {
            terms: self.terms.clone(),
            ..Reservation::holding(whose, target, promise, "", Second(0))
        }
    }

    /// What else than a calendar is in the way.
    fn beside(&self, planned: &Planned) -> Option<(String, String)> {
        if let Some(clash) = first_in(&self.clashes, planned.promise.slot()) {
            let why = format!(
                "it has the reservation {} until {}",
                clash.id, clash.slot.end
            );
            return Some((planned.target.label(), why));
        }
        let now = self.service.now();
        let checked = match &self.limits {
            Ok(limits) => limits.check(&self.record(planned), now),
            Err(why) => Err(ReservationError::Quota(why.clone())),
        };
        let why = checked.err()?;
        Some((format!("account {}", self.ask.account), why.to_string()))
    }

    async fn fits(&self, ask: &Ask) -> Result<bool, ReservationError> {
        let planned = ask.plan(self.facts)?;
        if self.beside(&planned).is_some() {
            return Ok(false);
        }
        let quotes = self.quotes(&planned).await?;
        Ok(quotes.iter().all(|(_, quote)| quote.refused.is_none()))
    }

    /// The earliest begin that suits all stores, the first of which said `quotes`, and the target's other reservations.
    /// None where the account's quota is in the way then: when it will not be, depends on what ends before its time.
    async fn earliest(
        &self,
        mut quotes: Vec<(StoreNumber, Quote)>,
        seconds: u64,
    ) -> Result<Option<Second>, ReservationError> {
        let mut from = Second(self.ask.promise.from);
        for _ in 0..ROUNDS_MAX {
            let mut next = from;
            for (_, quote) in &quotes {
                let Some(earliest) = quote.earliest else {
                    return Ok(None);
                };
                next = next.max(earliest);
            }
            while let Some(clash) = first_in(&self.clashes, Slot::new(next, seconds)) {
                next = clash.slot.end;
            }
            let planned = self.ask.with(next.0, seconds, 1000).plan(self.facts)?;
            if next == from {
                let is_free = self.beside(&planned).is_none();
                return Ok(is_free.then_some(from));
            }
            from = next;
            quotes = self.quotes(&planned).await?;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use base::Nanos;

    use super::*;

    #[test]
    fn one_offer_of_an_account_is_made_at_a_time_and_four_of_all() {
        env::Runtime::simulated(1).block_on(async {
            let turns = Turns::default();
            let first = turns.try_turn("a").unwrap();
            assert!(turns.try_turn("a").is_none());
            let others = ["b", "c", "d"].map(|it| turns.try_turn(it).unwrap());
            assert!(turns.try_turn("e").is_none());
            drop(first);
            assert!(turns.try_turn("a").is_some());
            // Its own is under way, though there is a place.
            let waits = |account| env::timeout(Nanos::secs(1), turns.turn(account));
            assert!(waits("b").await.is_err());
            assert!(waits("e").await.is_ok());
            drop(others);
            assert!(waits("b").await.is_ok());
        });
    }
}
