//! Reservations of a store somewhere else; for connections with the node key.

use policy::share::Second;
use policy::share::calendar::BookingId;

use super::{Client, ClientError};
use crate::net::wire::{Request, Response};
use crate::qos::manager::{Group, PartName, PartState, Quote, ReservationRequest, Reserved};

impl Client {
    /// As [`crate::qos::manager::Manager::offer`].
    ///
    /// # Errors
    /// [`ClientError::Refused`] with what would fit; else as for [`Client::read_into`].
    pub async fn offer(&self, wanted: &ReservationRequest) -> Result<(), ClientError> {
        self.shared().done(Request::Offer(wanted.clone())).await
    }

    /// As [`crate::qos::manager::Manager::quote`].
    ///
    /// # Errors
    /// As for [`Client::read_into`]; [`ClientError::Refused`] by a server that does not know it.
    pub async fn quote(&self, wanted: &[ReservationRequest]) -> Result<Quote, ClientError> {
        let request = Request::Quote(wanted.to_vec());
        match self.shared().answer(request).await? {
            Response::Quote(quote) => Ok(quote),
            other => Err(self.shared().unfit(&other)),
        }
    }

    /// As [`crate::qos::manager::Manager::hold`].
    ///
    /// # Errors
    /// As for [`Client::offer`].
    pub async fn hold(
        &self,
        wanted: &ReservationRequest,
        group: Option<Group>,
        until: Second,
    ) -> Result<BookingId, ClientError> {
        let request = Request::Hold {
            wanted: wanted.clone(),
            group,
            until,
        };
        match self.shared().answer(request).await? {
            Response::Booking(id) => Ok(id),
            other => Err(self.shared().unfit(&other)),
        }
    }

    /// As [`crate::qos::manager::Parts::hold_within`].
    ///
    /// # Errors
    /// As for [`Client::amend`].
    pub async fn hold_within(
        &self,
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
        match self.shared().answer(request).await? {
            Response::Booking(id) => Ok(id),
            other => Err(self.shared().unfit(&other)),
        }
    }

    /// As [`crate::qos::manager::Parts::look`].
    ///
    /// # Errors
    /// As for [`Client::commit`].
    pub async fn look(&self, part: PartName) -> Result<PartState, ClientError> {
        match self.shared().answer(Request::Look(part)).await? {
            Response::Look(state) => Ok(state),
            other => Err(self.shared().unfit(&other)),
        }
    }

    /// As [`crate::qos::manager::Manager::amend`].
    ///
    /// # Errors
    /// As for [`Client::offer`]; [`ClientError::Refused`] by a server that does not know it.
    pub async fn amend(
        &self,
        replaced: BookingId,
        wanted: &ReservationRequest,
        group: Option<Group>,
        until: Second,
    ) -> Result<BookingId, ClientError> {
        let request = Request::Amend {
            id: replaced,
            wanted: wanted.clone(),
            group,
            until,
        };
        match self.shared().answer(request).await? {
            Response::Booking(id) => Ok(id),
            other => Err(self.shared().unfit(&other)),
        }
    }

    /// As [`crate::qos::manager::Manager::commit`]: the capability.
    ///
    /// # Errors
    /// As for [`Client::read_into`]; [`ClientError::Refused`] by a server that knows no part by its whole.
    pub async fn commit(&self, part: impl Into<PartName>) -> Result<String, ClientError> {
        match self.shared().answer(Request::Commit(part.into())).await? {
            Response::Capability(Some(token)) => Ok(token),
            other => Err(self.shared().unfit(&other)),
        }
    }

    /// As [`crate::qos::manager::Manager::release`].
    ///
    /// # Errors
    /// As for [`Client::commit`].
    pub async fn release(&self, part: impl Into<PartName>) -> Result<(), ClientError> {
        self.shared().done(Request::Release(part.into())).await
    }

    /// As [`crate::qos::manager::Manager::capability`].
    ///
    /// # Errors
    /// As for [`Client::read_into`].
    pub async fn capability(&self, id: BookingId) -> Result<Option<String>, ClientError> {
        match self.shared().answer(Request::Capability(id)).await? {
            Response::Capability(token) => Ok(token),
            other => Err(self.shared().unfit(&other)),
        }
    }

    /// As [`crate::qos::manager::Manager::reservations`].
    ///
    /// # Errors
    /// As for [`Client::read_into`].
    pub async fn reservations(&self) -> Result<Vec<Reserved>, ClientError> {
        let mut all: Vec<Reserved> = Vec::new();
        loop {
            let after = all.last().map(|last| last.id);
            match self
                .shared()
                .answer(Request::Reservations { after })
                .await?
            {
                Response::Reservations { reservations, more } => {
                    let more = more && !reservations.is_empty();
                    all.extend(reservations);
                    if !more {
                        return Ok(all);
                    }
                }
                other => return Err(self.shared().unfit(&other)),
            }
        }
    }

    /// How the manager is ([`crate::qos::manager::ManagerReport`]), as JSON.
    ///
    /// # Errors
    /// As for [`Client::read_into`].
    pub async fn report(&self) -> Result<serde_json::Value, ClientError> {
        let answer = self.shared().answer(Request::Report).await?;
        let Response::Report(json) = &answer else {
            return Err(self.shared().unfit(&answer));
        };
        serde_json::from_slice(json).map_err(|error| {
            self.shared()
                .broken(format!("its report is no JSON ({error})"))
        })
    }
}
