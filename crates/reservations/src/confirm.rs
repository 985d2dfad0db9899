//! A store's parts of reservations, settled by what their records say.
//!
//! ```text
//! each second, of each part that is held, or committed and not confirmed for a minute: what does its record say?
//!   it stands, and lists the part    commit (which confirms)
//!   it stands, and does not          release, if it is not just being changed
//!   aborted, ended, or gone          release
//!   holding                          wait; with its time out abort it first
//!   the meta store does not answer   wait: the part stays promised
//! ```
//!
//! Always true: nothing that may stand is released, whatever time it is.

use std::rc::Rc;

use policy::share::Second;
use store::qos::manager::{Manager, ReserveError, Unconfirmed};
use vdisk::StoreNumber;

use crate::error::ReservationError;
use crate::record::{Part, Phase, Reservation, ReservationId};
use crate::records::Beside;
use crate::service::Service;

/// So long a part stands without another look at its record.
pub const CONFIRM_SECONDS: u64 = 60;

/// What to do about a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Commit,
    Release,
    /// First the record has to say that nothing is promised.
    Abort,
    Wait,
}

/// What the record of a part says of it. Pure.
pub(crate) fn judge(
    record: Option<&Reservation>,
    store: StoreNumber,
    part: &Unconfirmed,
    now: Second,
) -> Verdict {
    let Some(record) = record else {
        return Verdict::Release;
    };
    let time_is_out = |until: u64| now.0 >= until;
    match record.state {
        Phase::Aborted | Phase::Ended => Verdict::Release,
        Phase::Holding if time_is_out(record.hold_until) => Verdict::Abort,
        Phase::Holding => Verdict::Wait,
        Phase::Committed | Phase::Degraded if record.lists(store, part) => Verdict::Commit,
        // Held for a change of the record that may still come, or to be replaced by what is.
        Phase::Committed | Phase::Degraded if record.changing.is_some() => Verdict::Wait,
        Phase::Committed | Phase::Degraded => Verdict::Release,
    }
}

/// Settles the parts that this node's stores have; those with no answer wait for the next time.
pub async fn confirm(service: &Service, stores: &[(StoreNumber, Rc<Manager>)]) {
    for (number, manager) in stores {
        let mut parts = manager.parts().unconfirmed(CONFIRM_SECONDS);
        // What replaces a part is committed before that part is looked at: the two are never gone together.
        parts.sort_by_key(|part| part.held_until.is_none());
        for part in parts {
            if let Err(error) = confirm_part(service, *number, manager, &part).await {
                tracing::debug!(store = %manager.store().name(), part = part.id.0, %error, "a part waits for its record");
            }
        }
    }
}

/// Leaves out of the records what they list of this node's stores and is not there: a sweep makes it anew.
///
/// # Errors
/// [`ReservationError::Meta`].
pub async fn note_lost(
    service: &Service,
    stores: &[(StoreNumber, Rc<Manager>)],
) -> Result<(), ReservationError> {
    for known in service.records.all().await? {
        let record = &known.record;
        if !record.state.stands()
            || record.changing.is_some()
            || service.now().0 + 1 >= record.promise.until
        {
            continue;
        }
        let is_lost = |part: &Part| {
            let mut own = stores.iter().filter(|(number, _)| *number == part.store);
            own.any(|(_, manager)| !manager.parts().has(part.name(known.id)))
        };
        let (lost, parts): (Vec<Part>, Vec<Part>) = record.parts.iter().partition(|it| is_lost(it));
        if lost.is_empty() {
            continue;
        }
        tracing::warn!(reservation = %known.id, parts = lost.len(), "a store lost parts of a reservation; they are made anew");
        let next = Reservation {
            parts,
            state: Phase::Degraded,
            cause: Some("a store lost its part".to_owned()),
            ..record.clone()
        };
        service
            .records
            .swap(&known, &next, Beside::default())
            .await?;
    }
    Ok(())
}

async fn confirm_part(
    service: &Service,
    number: StoreNumber,
    manager: &Rc<Manager>,
    part: &Unconfirmed,
) -> Result<(), ReservationError> {
    let known = service.records.get(ReservationId(part.group)).await?;
    let record = known.as_ref().map(|it| &it.record);
    let verdict = judge(record, number, part, service.now());
    let done = match verdict {
        Verdict::Wait => return Ok(()),
        Verdict::Commit => manager.commit(part.part()).await.map(drop),
        // What is to replace it may have come since the parts were listed: together they are never gone.
        Verdict::Release
            if manager.parts().is_amended(part.id)
                && record.is_some_and(|it| it.state.stands()) =>
        {
            return Ok(());
        }
        Verdict::Release => manager.release(part.part()).await,
        Verdict::Abort => {
            if let Some(known) = &known {
                let over = known
                    .record
                    .clone()
                    .over("its stores were not all held in time", service.now());
                service
                    .records
                    .swap(known, &over, Beside::default())
                    .await?;
            }
            // What the record says now is seen the next time.
            return Ok(());
        }
    };
    match done {
        Ok(()) | Err(ReserveError::NoBooking(_)) => Ok(()),
        Err(error) => {
            tracing::warn!(store = %manager.store().name(), part = part.id.0, %error, "a part cannot be settled yet");
            Ok(())
        }
    }
}
