//! What accounts may reserve over the cluster, by the records that the admin API keeps.
//!
//! ```text
//! reservation -> commitment: rate, slot, room -> access::charge: quota and usage of the account and its project -> TxnPart
//! ```
//!
//! Always true: what is charged is what was promised, not what stores set aside for it.

use std::rc::Rc;

use access::charge::{QuotaError, charge, is_on, limits, refund};
use access::name::AccountName;
use access::quota::Commitment;
use policy::share::Second;
use vdisk::meta::{MetaStore, TxnPart};

use crate::error::ReservationError;
use crate::quota::{Limits, Quotas};
use crate::record::{Reservation, ReservationId, Target};
use crate::stores::Pending;

/// What accounts may, by the records that the admin API keeps.
pub struct AccountQuotas(pub Rc<dyn MetaStore>);

/// What a reservation takes of its account's quota: what was promised, not what stores set aside for it.
pub(crate) fn commitment(id: ReservationId, record: &Reservation) -> Commitment {
    let promise = &record.promise;
    let stores = match &record.target {
        Target::Volume { .. } | Target::Export { .. } => 0,
        Target::Stores { stores, .. } => stores.len() as u64,
    };
    // Inside an allotment its rate was charged with that.
    let rate = match record.terms.within {
        Some(_) => 0,
        None => promise.read.saturating_add(promise.write),
    };
    Commitment {
        id: id.0,
        rate,
        from: promise.from,
        until: promise.until,
        space: promise.space.saturating_mul(stores),
    }
}

fn refused(error: QuotaError) -> ReservationError {
    match error {
        QuotaError::Meta(error) => ReservationError::Meta(error),
        other => ReservationError::Quota(other.to_string()),
    }
}

/// The account of a record; none where it is the daemon's owner's.
fn account(text: &str) -> Result<Option<AccountName>, ReservationError> {
    let name = (!text.is_empty()).then(|| text.parse::<AccountName>());
    let name = name.transpose();
    name.map_err(|error| ReservationError::Request(error.to_string()))
}

/// What one account may; none where it is the daemon's owner.
struct AccountLimits(Option<access::charge::Limits>);

impl Limits for AccountLimits {
    fn check(&self, record: &Reservation, now: Second) -> Result<(), ReservationError> {
        let Some(limits) = &self.0 else {
            return Ok(());
        };
        // It is not made yet: nothing of what the account has is its own.
        let asked = commitment(ReservationId(0), record);
        limits.charge(&asked, now.0).map(drop).map_err(refused)
    }
}

impl Quotas for AccountQuotas {
    fn limits<'a>(&'a self, text: &'a str) -> Pending<'a, Box<dyn Limits>, ReservationError> {
        Box::pin(async move {
            let read = match account(text)? {
                Some(account) => Some(limits(&*self.0, &account).await.map_err(refused)?),
                None => None,
            };
            Ok(Box::new(AccountLimits(read)) as Box<dyn Limits>)
        })
    }

    fn charge<'a>(
        &'a self,
        id: ReservationId,
        record: &'a Reservation,
        now: Second,
    ) -> Pending<'a, TxnPart, ReservationError> {
        Box::pin(async move {
            let Some(account) = account(&record.account)? else {
                return Ok(TxnPart::default());
            };
            let commitment = commitment(id, record);
            let charged = charge(&*self.0, &account, &commitment, now.0);
            charged.await.map_err(refused)
        })
    }

    fn is_on<'a>(&'a self, text: &'a str) -> Pending<'a, bool, ReservationError> {
        Box::pin(async move {
            let Some(account) = account(text)? else {
                return Ok(true);
            };
            is_on(&*self.0, &account).await.map_err(refused)
        })
    }

    fn refund<'a>(
        &'a self,
        id: ReservationId,
        record: &'a Reservation,
        now: Second,
    ) -> Pending<'a, TxnPart, ReservationError> {
        Box::pin(async move {
            let Some(account) = account(&record.account)? else {
                return Ok(TxnPart::default());
            };
            let refunded = refund(&*self.0, &account, id.0, now.0);
            refunded.await.map_err(refused)
        })
    }
}

#[cfg(test)]
mod tests {
    use vdisk::StoreNumber;

    use super::*;
    use crate::record::{PlanKind, Promise, Terms};

    #[test]
    fn what_is_inside_an_allotment_takes_its_room_and_no_rate() {
        let promise = Promise {
            read: 10,
            write: 20,
            from: 100,
            until: 200,
            tolerate: 0,
            plan: PlanKind::Any,
            window_ns: 1,
            probability_ppm: 1,
            space: 64,
        };
        let target = Target::Stores {
            stores: [1, 2].map(StoreNumber).into(),
            stripe: false,
            scope: "a/".to_owned(),
        };
        let outside = Reservation::holding(("job", "astro"), target, promise, "n1", Second(30));
        let mut inside = outside.clone();
        inside.terms = Terms {
            within: Some(ReservationId(9)),
            ..Terms::default()
        };
        let taken = |record: &Reservation| {
            let it = commitment(ReservationId(1), record);
            (it.rate, it.space)
        };
        assert_eq!(taken(&outside), (30, 128));
        assert_eq!(taken(&inside), (0, 128));
    }
}
