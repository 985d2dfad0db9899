//! Who says how much an account may reserve.

use policy::share::Second;

use crate::error::ReservationError;
use crate::record::{Reservation, ReservationId};
use crate::stores::Pending;
use vdisk::meta::TxnPart;

/// What accounts may. Held as `Rc<dyn Quotas>`. What it answers goes through in the transaction that commits or ends the
/// reservation, or not at all.
pub trait Quotas {
    /// The account is to have `record` from now on, in place of what it had under this id.
    ///
    /// # Errors
    /// [`ReservationError::Quota`] with what it has and what is left; [`ReservationError::Meta`].
    fn charge<'a>(
        &'a self,
        id: ReservationId,
        record: &'a Reservation,
        now: Second,
    ) -> Pending<'a, TxnPart, ReservationError>;

    /// What this account may have now, for many questions at once.
    ///
    /// # Errors
    /// As for [`charge`](Self::charge).
    fn limits<'a>(&'a self, account: &'a str) -> Pending<'a, Box<dyn Limits>, ReservationError>;

    /// Is this account let in still? What it has reserved ends when it is not.
    ///
    /// # Errors
    /// [`ReservationError::Meta`].
    fn is_on<'a>(&'a self, account: &'a str) -> Pending<'a, bool, ReservationError>;

    /// The account no longer has `record`.
    ///
    /// # Errors
    /// [`ReservationError::Meta`].
    fn refund<'a>(
        &'a self,
        id: ReservationId,
        record: &'a Reservation,
        now: Second,
    ) -> Pending<'a, TxnPart, ReservationError>;
}

/// What one account may have beside what it has, at one moment.
pub trait Limits {
    /// May it have `record`, too?
    ///
    /// # Errors
    /// [`ReservationError::Quota`] with what it has and what is left.
    fn check(&self, record: &Reservation, now: Second) -> Result<(), ReservationError>;
}

/// As much as the stores have, for every account.
pub struct Unlimited;

impl Limits for Unlimited {
    fn check(&self, _: &Reservation, _: Second) -> Result<(), ReservationError> {
        Ok(())
    }
}

impl Quotas for Unlimited {
    fn limits<'a>(&'a self, _: &'a str) -> Pending<'a, Box<dyn Limits>, ReservationError> {
        Box::pin(async { Ok(Box::new(Unlimited) as Box<dyn Limits>) })
    }

    fn is_on<'a>(&'a self, _: &'a str) -> Pending<'a, bool, ReservationError> {
        Box::pin(async { Ok(true) })
    }

    fn charge<'a>(
        &'a self,
        _: ReservationId,
        _: &'a Reservation,
        _: Second,
    ) -> Pending<'a, TxnPart, ReservationError> {
        Box::pin(async { Ok(TxnPart::default()) })
    }

    fn refund<'a>(
        &'a self,
        _: ReservationId,
        _: &'a Reservation,
        _: Second,
    ) -> Pending<'a, TxnPart, ReservationError> {
        Box::pin(async { Ok(TxnPart::default()) })
    }
}
