//! Parts of reservations over several stores, at a store somewhere else; for connections with the node key.

use policy::share::Second;
use policy::share::calendar::BookingId;

use super::{Client, ClientError};
use crate::net::wire::{Request, Response};
use crate::qos::manager::{Group, PartName, PartState, ReservationRequest};

/// As [`crate::qos::manager::Parts`], over a connection.
#[derive(Clone, Copy)]
pub struct Parts<'a>(pub(super) &'a Client);

impl Parts<'_> {
    /// As [`crate::qos::manager::Parts::hold_within`].
    ///
    /// # Errors
    /// As for [`Client::amend`].
    pub async fn hold_within(
        self,
        within: u128,
        wanted: &ReservationRequest,
        group: Group,
        until: Second,
    ) -> Result<BookingId, ClientError> {
        let request = Request::HoldWithin {
            within,
            wanted: wanted.clone(),
            group,
            until,
        };
        match self.0.shared().answer(request).await? {
            Response::Booking(id) => Ok(id),
            other => Err(self.0.shared().unfit(&other)),
        }
    }

    /// As [`crate::qos::manager::Parts::look`].
    ///
    /// # Errors
    /// As for [`Client::commit`].
    pub async fn look(self, part: PartName) -> Result<PartState, ClientError> {
        match self.0.shared().answer(Request::Look(part)).await? {
            Response::Look(state) => Ok(state),
            other => Err(self.0.shared().unfit(&other)),
        }
    }
}
