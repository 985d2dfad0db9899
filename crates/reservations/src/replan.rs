//! Reservations made anew where their volumes are by now, or where a store lost a part.

use base::Nanos;
use vdisk::meta::TxnPart;

use crate::ask::parts;
use crate::book::Booking;
use crate::error::ReservationError;
use crate::plan::Wanted;
use crate::record::{Phase, Reservation, ReservationId};
use crate::records::Versioned;
use crate::service::Service;
use crate::stores::Facts;

/// So long at most in one sweep; what is left is for the next one.
const MOST: Nanos = Nanos::secs(60);

/// Makes these anew, one at a time: two could keep each other from what one of them would have whole.
///
/// # Errors
/// [`ReservationError::Meta`].
pub(crate) async fn replan_all(
    service: &Service,
    mut ids: Vec<ReservationId>,
) -> Result<(), ReservationError> {
    if ids.is_empty() {
        return Ok(());
    }
    // Those behind a store that does not answer are not always the first.
    let first = env::rng("replan").below(ids.len() as u64);
    ids.rotate_left(first as usize);
    let facts = service.cluster.facts().await?;
    let end = env::now() + MOST;
    for id in ids {
        if env::now() >= end {
            break;
        }
        let known = service.records.get(id).await?;
        let stands = |it: &Versioned| it.record.state.stands() && it.record.changing.is_none();
        let Some(known) = known.filter(stands) else {
            continue;
        };
        let record = &known.record;
        let wanted = parts(&record.target, &record.promise, &record.terms, &facts);
        if let Err(error) = replan(service, &known, &facts, &wanted).await {
            tracing::info!(reservation = %id, %error, "a reservation is made anew with the next sweep");
        }
    }
    Ok(())
}

/// Reserves where the volume is now; where that does not fit, what there is stays and the record says so.
async fn replan(
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
