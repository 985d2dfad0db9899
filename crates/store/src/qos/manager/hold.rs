//! What is to be held, alone, in place of another, or within an allotment.

use policy::share::Second;
use policy::share::calendar::{BookingId, State};

use super::request::{ReservationRequest, ReserveError};
use crate::qos::book::record::{Group, Record};

/// What is to be held.
pub(super) struct Hold {
    pub request: ReservationRequest,
    pub group: Option<Group>,
    pub until: Second,
    /// It is to take the place of this one.
    pub replaces: Option<BookingId>,
    /// It is of what this whole has here.
    pub within: Option<u128>,
}

impl Hold {
    /// The request as it is beside what it is to replace, which keeps its objects, its holder and its room.
    ///
    /// # Errors
    /// [`ReserveError::Request`] if that is not promised itself, or of the other direction.
    pub fn request_beside(
        &self,
        replaced: Option<&Record>,
    ) -> Result<ReservationRequest, ReserveError> {
        let Some(replaced) = replaced else {
            return Ok(self.request.clone());
        };
        let refuse = |why: String| Err(ReserveError::Request { why });
        let number = replaced.id.0;
        if replaced.state != State::Committed {
            return refuse(format!(
                "reservation {number} is only held; commit it first"
            ));
        }
        let (before, after) = (replaced.contract.direction, self.request.direction);
        if before != after {
            return refuse(format!(
                "reservation {number} is of {before}s and cannot become one of {after}s; reserve {after}s beside it"
            ));
        }
        Ok(ReservationRequest {
            space: replaced.contract.space,
            scope: replaced.scope.clone(),
            holder: replaced.holder.clone(),
            ..self.request.clone()
        })
    }
}
