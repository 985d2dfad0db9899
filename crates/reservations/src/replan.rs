//! A reservation made anew where its volume is by now.

use vdisk::meta::TxnPart;

use crate::book::Booking;
use crate::error::ReservationError;
use crate::plan::Wanted;
use crate::record::{Phase, Reservation};
use crate::records::Versioned;
use crate::service::Service;
use crate::stores::Facts;

/// Reserves where the volume is now; where that does not fit, what there is stays and the record says so.
pub(crate) async fn replan(
    service: &Service,
    known: &Versioned,
    facts: &Facts,
    wanted: &[Wanted],
) -> Result<(), ReservationError> {
    let next = Reservation {
        state: Phase::Committed,
        cause: None,
        ..known.record.clone()
    };
    let booking = Booking {
        service,
        facts,
        id: known.id,
        target: &known.record.target,
        offline: known.record.terms.offline,
    };
    let cause = match booking
        .change(known, next, wanted, TxnPart::default())
        .await
    {
        Ok(_) => {
            tracing::info!(reservation = %known.id, "a reservation was made anew where its volume is now");
            return Ok(());
        }
        Err(error @ (ReservationError::Refused { .. } | ReservationError::Unreachable { .. })) => {
            format!("capacity: {error}")
        }
        Err(other) => return Err(other),
    };
    if known.record.state == Phase::Degraded && known.record.cause.as_ref() == Some(&cause) {
        return Ok(());
    }
    // Being changed and not changed, it is another version of the same.
    let Some(known) = service
        .records
        .get(known.id)
        .await?
        .filter(|it| it.record.state.stands())
    else {
        return Ok(());
    };
    let next = Reservation {
        state: Phase::Degraded,
        cause: Some(cause),
        ..known.record.clone()
    };
    service
        .records
        .swap(&known, &next, TxnPart::default())
        .await?;
    Ok(())
}
