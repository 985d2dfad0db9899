//! What would fit instead of what was asked for, over all stores together?
//!
//! ```text
//! earliest   each store says its earliest begin; the latest of them is asked about next, until all agree
//! largest    bisection over parts of the asked rates, in permille
//! longest    bisection over seconds, from the asked begin on
//! ```
//!
//! Always true: what is offered fitted at all stores when it was asked, with just the parts that it would have.

use std::collections::BTreeMap;

use policy::share::Second;
use store::qos::manager::Quote;
use vdisk::StoreNumber;

use crate::allotment::Inside;
use crate::ask::{Ask, Planned};
use crate::book::{request, what};
use crate::error::ReservationError;
use crate::record::{Reservation, ReservationId};
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
    /// Stores by their names, and why it does not fit there as asked.
    pub refused: Vec<(String, String)>,
}

/// What of `ask` would fit.
///
/// # Errors
/// [`ReservationError::Unreachable`] if a store does not answer.
pub(crate) async fn find(
    service: &Service,
    facts: &Facts,
    ask: &Ask,
    planned: &Planned,
) -> Result<Offer, ReservationError> {
    let asking = Asking {
        service,
        facts,
        ask,
    };
    let quotes = asking.quotes(planned).await?;
    let refused: Vec<_> = quotes
        .iter()
        .filter_map(|(store, quote)| Some((facts.label(*store), quote.refused.clone()?)))
        .collect();
    let promise = &planned.promise;
    let seconds = promise.until - promise.from;
    if refused.is_empty() {
        return Ok(Offer {
            fits: true,
            earliest: Some(Second(promise.from)),
            largest_permille: Some(1000),
            longest_seconds: Some(seconds),
            refused,
        });
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

struct Asking<'a> {
    service: &'a Service,
    facts: &'a Facts,
    ask: &'a Ask,
}

impl Asking<'_> {
    /// What each store says of its parts together.
    async fn quotes(
        &self,
        planned: &Planned,
    ) -> Result<Vec<(StoreNumber, Quote)>, ReservationError> {
        if let Some(allotment) = &self.ask.terms.within {
            let quote = self.inside(allotment, planned).await?;
            return Ok(vec![(planned.wanted[0].store, quote)]);
        }
        let whose = (&*self.ask.name, &*self.ask.account);
        let (target, promise) = (planned.target.clone(), planned.promise.clone());
        let mut record = Reservation::holding(whose, target, promise, "", Second(0));
        record.terms.allotment = self.ask.terms.allotment;
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
            let failed = |error| {
                let what = what(&planned.promise);
                ReservationError::of_part(&what, self.facts.label(*store), error)
            };
            quote.await.map(|it| (*store, it)).map_err(failed)
        });
        env::sync::join_all(asked).await.into_iter().collect()
    }

    /// What the calendar of an allotment says.
    async fn inside(&self, allotment: &str, planned: &Planned) -> Result<Quote, ReservationError> {
        let allotment = self.service.allotment(&self.ask.account, allotment).await?;
        let Some((calendar, _)) = self.service.records.allotment(allotment).await? else {
            return Err(ReservationError::Absent(allotment.to_string()));
        };
        let slot = planned.promise.slot();
        // It is not made yet: nothing inside is its own.
        let asked = Inside::of(ReservationId(0), slot, &planned.wanted);
        Ok(calendar.quote(&asked, |store| self.facts.label(store)))
    }

    async fn fits(&self, ask: &Ask) -> Result<bool, ReservationError> {
        let planned = ask.plan(self.facts)?;
        let quotes = self.quotes(&planned).await?;
        Ok(quotes.iter().all(|(_, quote)| quote.refused.is_none()))
    }

    /// The earliest begin that suits all stores, the first of which said `quotes`.
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
            if next == from {
                return Ok(Some(from));
            }
            from = next;
            let planned = self.ask.with(from.0, seconds, 1000).plan(self.facts)?;
            quotes = self.quotes(&planned).await?;
        }
        Ok(None)
    }
}
