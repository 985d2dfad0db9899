//! Reservations ended: by their users, and by what became of them.
//!
//! ```text
//! record over, its place in a quota and an allotment given back -> what was inside it ends -> parts released at stores
//! ```
//!
//! Always true: what was judged by a record ends that version of it alone; only a user's own word ends whatever there is.

use vdisk::meta::TxnPart;

use crate::allotment::Allotments;
use crate::book::{Booking, HOLD_SECONDS};
use crate::error::ReservationError;
use crate::record::{Part, Phase, QUEUE, Reservation, ReservationId};
use crate::records::{Swapped, Versioned, again};
use crate::service::{Service, account_off};
use crate::stores::Facts;

/// How often a release is tried again that another change came before.
const RELEASE_TRIES: u64 = 200;

/// Why one that was begun is over.
pub(crate) const OUT_OF_TIME: &str = "its stores were not all held in time";

/// The ends of a service's reservations.
pub(crate) struct Endings<'a>(pub &'a Service);

impl Endings<'_> {
    /// As [`Service::release`].
    pub async fn release(
        &self,
        known: Versioned,
        why: &str,
    ) -> Result<Versioned, ReservationError> {
        let mut known = known;
        for tried in 1.. {
            if known.record.over_since.is_some() {
                return Ok(known);
            }
            if let Some(inside) = self.end_once(&known, why).await? {
                self.end_rest(&known, inside).await?;
                break;
            }
            if tried == RELEASE_TRIES {
                return Err(ReservationError::Changing(known.record.name));
            }
            again(tried).await;
            // Another change came first: what it left is released.
            known = self.0.get(known.id).await?;
        }
        self.0.get(known.id).await
    }

    /// Ends what was judged by `known`: is it over? Where another change came first it is left as it is: that was not judged.
    pub async fn end_judged(&self, known: &Versioned, why: &str) -> Result<bool, ReservationError> {
        if known.record.over_since.is_some() {
            return Ok(true);
        }
        for tried in 1..RELEASE_TRIES {
            if let Some(inside) = self.end_once(known, why).await? {
                return self.end_rest(known, inside).await.map(|()| true);
            }
            again(tried).await;
            // Another one of the account or the allotment may have come first, which is no hindrance.
            if self.0.records.get(known.id).await?.as_ref() != Some(known) {
                break;
            }
        }
        Ok(false)
    }

    /// The record of one of an account that is let in no longer says so, unless it is again. Answers what is to be released:
    /// the record of before, and what is inside it.
    pub async fn end_of_account(
        &self,
        known: Versioned,
    ) -> Result<Option<(Versioned, Vec<ReservationId>)>, ReservationError> {
        let why = account_off(&known.record.account);
        let mut known = known;
        for tried in 1..RELEASE_TRIES {
            let is_on = self.0.quotas.is_on(&known.record.account).await?;
            if is_on || known.record.over_since.is_some() {
                break;
            }
            if let Some(inside) = self.end_once(&known, &why).await? {
                return Ok(Some((known, inside)));
            }
            again(tried).await;
            known = self.0.get(known.id).await?;
        }
        Ok(None)
    }

    /// The record says that it is over; answers what is inside it. `None`: it was changed before.
    async fn end_once(
        &self,
        known: &Versioned,
        why: &str,
    ) -> Result<Option<Vec<ReservationId>>, ReservationError> {
        let over = known.record.clone().over(why, self.0.now());
        let (beside, inside) = self.refund(known).await?;
        let swapped = self.0.records.swap(known, &over, beside).await?;
        Ok((swapped == Swapped::Done).then_some(inside))
    }

    /// Ends what was inside of what is over, and releases its parts. Where this fails a sweep goes on.
    pub async fn end_rest(
        &self,
        known: &Versioned,
        inside: Vec<ReservationId>,
    ) -> Result<(), ReservationError> {
        // First what is inside: at no time is more promised than there is.
        for id in inside {
            if let Some(inside) = self.0.records.get(id).await? {
                let why = format!("its allotment {} is over", known.record.name);
                Box::pin(self.release(inside, &why)).await?;
            }
        }
        let facts = self.0.facts().await?;
        let over = self.0.get(known.id).await?;
        self.release_parts(&over, &facts).await
    }

    /// As `Admission::charge`, for what is over; also what was inside.
    async fn refund(
        &self,
        known: &Versioned,
    ) -> Result<(TxnPart, Vec<ReservationId>), ReservationError> {
        if known.record.state == Phase::Holding {
            // It is charged in the transaction that commits it, and nothing is inside before.
            return Ok((TxnPart::default(), Vec::new()));
        }
        let allotments = Allotments(&self.0.records);
        let (left, inside) = allotments.leave(known.id, &known.record).await?;
        let refunded = self.0.quotas.refund(known.id, &known.record, self.0.now());
        let refunded = match refunded.await {
            // An account whose use cannot be read keeps nothing from ending.
            Err(ReservationError::Quota(why)) => {
                tracing::warn!(reservation = %known.id, why, "what it took of its quota is not given back");
                TxnPart::default()
            }
            other => other?,
        };
        Ok((refunded.and(left), inside))
    }

    /// Releases the parts of what is over; the record lists those left.
    pub async fn release_parts(
        &self,
        known: &Versioned,
        facts: &Facts,
    ) -> Result<(), ReservationError> {
        let booking = Booking {
            service: self.0,
            facts,
            id: known.id,
            target: &known.record.target,
            offline: known.record.terms.offline,
        };
        // A store that left the cluster took its part along.
        let there = known.record.parts.iter();
        let there = there.filter(|it| it.store == QUEUE || facts.stores.contains_key(&it.store));
        let there: Vec<Part> = there.copied().collect();
        // Some time after a change its parts are settled, one way or the other.
        let is_settled = self.0.now().0 > known.record.hold_until + HOLD_SECONDS;
        let left = match is_settled {
            true => booking.release(there.into_iter()).await,
            false => booking.end(there).await,
        };
        if left != known.record.parts {
            let next = Reservation {
                parts: left,
                ..known.record.clone()
            };
            // Another node may have done the same.
            self.0
                .records
                .swap(known, &next, TxnPart::default())
                .await?;
        }
        Ok(())
    }
}
