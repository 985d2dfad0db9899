//! One store's calendar, here or somewhere else: what it is asked about parts, and what it answers.
//!
//! ```text
//! PartRequest -> Calendar: the manager of this node | a client with the node key | another thread -> PartAnswer
//! ```
//!
//! Always true: a part is named with the reservation it is of, so that no other reservation's is touched.

use std::rc::Rc;

use policy::share::Second;
use policy::share::calendar::{BookingId, NoBooking};
use store::net::client::{Client, ClientError};
use store::net::wire::RefusedKind;
use store::qos::manager::{
    Group, Manager, PartName, PartState, Quote, ReservationRequest, ReserveError, Unconfirmed,
};

use crate::stores::Pending;

/// Why a store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// It will not, and nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// It has no such part.
    #[error("{0}")]
    Absent(String),
    /// No answer: it may or may not have done it.
    #[error("{0}")]
    Unreachable(String),
}

/// What a calendar is asked; all is as [`Manager`] has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartRequest {
    /// Would these fit together? Answers [`PartAnswer::Quote`].
    Quote(Vec<ReservationRequest>),
    /// Answers [`PartAnswer::Number`].
    Hold {
        /// What is wanted.
        wanted: ReservationRequest,
        /// Of which it is to be part.
        group: Group,
        /// Held until then at least.
        until: Second,
    },
    /// As `Hold`, of what the allotment `within` has there.
    HoldWithin {
        /// The whole that is the allotment.
        within: u128,
        /// What is wanted.
        wanted: ReservationRequest,
        /// Of which it is to be part.
        group: Group,
        /// Held until then at least.
        until: Second,
    },
    /// Answers [`PartAnswer::Number`].
    Amend {
        /// What is to be replaced, of the same group.
        replaced: BookingId,
        /// By what.
        wanted: ReservationRequest,
        /// Of which it is part.
        group: Group,
        /// Held until then at least.
        until: Second,
    },
    /// Answers [`PartAnswer::Capability`].
    Commit(PartName),
    /// Answers [`PartAnswer::Done`].
    Release(PartName),
    /// How is it there? Answers [`PartAnswer::State`].
    Look(PartName),
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartAnswer {
    /// What would fit.
    Quote(Quote),
    /// The number that it is held under.
    Number(BookingId),
    /// What its holder shows.
    Capability(String),
    /// It is done.
    Done,
    /// How it is there.
    State(PartState),
}

/// One store's calendar. Held as `Rc<dyn Calendar>`.
pub trait Calendar {
    /// Does what is asked.
    ///
    /// # Errors
    /// [`PartError`].
    fn ask(&self, request: PartRequest) -> Pending<'_, PartAnswer>;
}

/// A calendar of this very node, whose parts are settled here.
pub trait OwnCalendar: Calendar {
    /// As [`store::qos::manager::Parts::unconfirmed`].
    ///
    /// # Errors
    /// [`PartError::Unreachable`].
    fn unconfirmed(&self, seconds: u64) -> Pending<'_, Vec<Unconfirmed>>;

    /// Is there this part?
    ///
    /// # Errors
    /// [`PartError::Unreachable`].
    fn has(&self, part: PartName) -> Pending<'_, bool>;

    /// Releases a part, unless another is held to take its place.
    ///
    /// # Errors
    /// As for [`Calendar::ask`].
    fn release_alone(&self, part: PartName) -> Pending<'_, ()>;

    /// The same, to be asked.
    fn as_calendar(&self) -> &dyn Calendar;
}

impl dyn Calendar + '_ {
    /// As [`Manager::quote`].
    pub(crate) async fn quote(&self, wanted: &[ReservationRequest]) -> Result<Quote, PartError> {
        match self.ask(PartRequest::Quote(wanted.to_vec())).await? {
            PartAnswer::Quote(quote) => Ok(quote),
            other => Err(unfit(&other)),
        }
    }

    /// As [`Manager::hold`] and [`Manager::amend`].
    pub(crate) async fn hold(&self, request: PartRequest) -> Result<BookingId, PartError> {
        match self.ask(request).await? {
            PartAnswer::Number(id) => Ok(id),
            other => Err(unfit(&other)),
        }
    }

    /// As [`Manager::commit`].
    pub(crate) async fn commit(&self, part: PartName) -> Result<String, PartError> {
        match self.ask(PartRequest::Commit(part)).await? {
            PartAnswer::Capability(token) => Ok(token),
            other => Err(unfit(&other)),
        }
    }

    /// As [`store::qos::manager::Parts::look`].
    pub(crate) async fn look(&self, part: PartName) -> Result<PartState, PartError> {
        match self.ask(PartRequest::Look(part)).await? {
            PartAnswer::State(state) => Ok(state),
            other => Err(unfit(&other)),
        }
    }

    /// As [`Manager::release`].
    pub(crate) async fn release(&self, part: PartName) -> Result<(), PartError> {
        self.ask(PartRequest::Release(part)).await.map(drop)
    }
}

fn unfit(answer: &PartAnswer) -> PartError {
    PartError::Unreachable(format!("it answered something else: {answer:?}"))
}

// --- here -----------------------------------------------------------------------------------------------

fn here(error: ReserveError) -> PartError {
    match error {
        ReserveError::NoBooking(absent) => PartError::Absent(absent.to_string()),
        ReserveError::Store { .. } => PartError::Unreachable(error.to_string()),
        other => PartError::Refused(other.to_string()),
    }
}

/// Has `manager` do what is asked.
///
/// # Errors
/// [`PartError::Refused`], [`PartError::Absent`]; [`PartError::Unreachable`] if it cannot be written down.
pub async fn carry_out(manager: &Manager, request: PartRequest) -> Result<PartAnswer, PartError> {
    let done = async {
        Ok(match request {
            PartRequest::Quote(wanted) => PartAnswer::Quote(manager.quote(&wanted)),
            PartRequest::Hold {
                wanted,
                group,
                until,
            } => PartAnswer::Number(manager.hold(&wanted, Some(group), until).await?),
            PartRequest::HoldWithin {
                within,
                wanted,
                group,
                until,
            } => {
                let held = manager.parts().hold_within(within, &wanted, group, until);
                PartAnswer::Number(held.await?)
            }
            PartRequest::Look(part) => PartAnswer::State(manager.parts().look(part)?),
            PartRequest::Amend {
                replaced,
                wanted,
                group,
                until,
            } => {
                let amended = manager.amend(replaced, &wanted, Some(group), until);
                PartAnswer::Number(amended.await?)
            }
            PartRequest::Commit(part) => PartAnswer::Capability(manager.commit(part).await?),
            PartRequest::Release(part) => {
                manager.release(part).await?;
                PartAnswer::Done
            }
        })
    };
    done.await.map_err(here)
}

/// The calendar of a store of this very node.
pub struct LocalCalendar(pub Rc<Manager>);

impl Calendar for LocalCalendar {
    fn ask(&self, request: PartRequest) -> Pending<'_, PartAnswer> {
        Box::pin(carry_out(&self.0, request))
    }
}

/// As [`OwnCalendar::release_alone`], of `manager`.
///
/// # Errors
/// As for [`carry_out`].
pub async fn release_alone(manager: &Manager, part: PartName) -> Result<(), PartError> {
    match manager.parts().is_amended(part.id) {
        true => Ok(()),
        false => manager.release(part).await.map_err(here),
    }
}

impl OwnCalendar for LocalCalendar {
    fn unconfirmed(&self, seconds: u64) -> Pending<'_, Vec<Unconfirmed>> {
        Box::pin(async move { Ok(self.0.parts().unconfirmed(seconds)) })
    }

    fn has(&self, part: PartName) -> Pending<'_, bool> {
        Box::pin(async move { Ok(self.0.parts().has(part)) })
    }

    fn release_alone(&self, part: PartName) -> Pending<'_, ()> {
        Box::pin(release_alone(&self.0, part))
    }

    fn as_calendar(&self) -> &dyn Calendar {
        self
    }
}

// --- somewhere else ---------------------------------------------------------------------------------------

/// The calendar of a store behind a server, with the node key.
pub struct RemoteCalendar(pub Client);

/// The wire has one number for all that a calendar refuses; what is not there has its own words.
fn there(named: Option<BookingId>) -> impl Fn(ClientError) -> PartError {
    move |error| {
        let text = error.to_string();
        let absent = named.map(|id| NoBooking(id).to_string());
        match error {
            // An older program does not know the operation: its store asks the record itself.
            ClientError::Refused {
                kind: RefusedKind::ShuttingDown | RefusedKind::Unknown,
                ..
            } => PartError::Unreachable(text),
            ClientError::Refused { .. } if absent.as_ref() == Some(&text) => {
                PartError::Absent(text)
            }
            ClientError::Refused { .. } => PartError::Refused(text),
            _ => PartError::Unreachable(text),
        }
    }
}

impl Calendar for RemoteCalendar {
    fn ask(&self, request: PartRequest) -> Pending<'_, PartAnswer> {
        let client = &self.0;
        Box::pin(async move {
            let named = match &request {
                PartRequest::Quote(_)
                | PartRequest::Hold { .. }
                | PartRequest::HoldWithin { .. } => None,
                PartRequest::Amend { replaced, .. } => Some(*replaced),
                PartRequest::Commit(part)
                | PartRequest::Release(part)
                | PartRequest::Look(part) => Some(part.id),
            };
            let done = async {
                Ok(match request {
                    PartRequest::Quote(wanted) => PartAnswer::Quote(client.quote(&wanted).await?),
                    PartRequest::Hold {
                        wanted,
                        group,
                        until,
                    } => PartAnswer::Number(client.hold(&wanted, Some(group), until).await?),
                    PartRequest::HoldWithin {
                        within,
                        wanted,
                        group,
                        until,
                    } => {
                        let held = client.parts().hold_within(within, &wanted, group, until);
                        PartAnswer::Number(held.await?)
                    }
                    PartRequest::Look(part) => PartAnswer::State(client.parts().look(part).await?),
                    PartRequest::Amend {
                        replaced,
                        wanted,
                        group,
                        until,
                    } => {
                        let amended = client.amend(replaced, &wanted, Some(group), until);
                        PartAnswer::Number(amended.await?)
                    }
                    PartRequest::Commit(part) => PartAnswer::Capability(client.commit(part).await?),
                    PartRequest::Release(part) => {
                        client.release(part).await?;
                        PartAnswer::Done
                    }
                })
            };
            done.await.map_err(there(named))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_said_in_the_words_that_nodes_of_all_versions_know() {
        let said = "there is no reservation 7: it was released, expired, or never made";
        assert_eq!(NoBooking(BookingId(7)).to_string(), said);
    }
}
