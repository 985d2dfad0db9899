//! The end of a reservation: at all its stores, the deciding one first.
//!
//! Always true: what a crash leaves in between is released as well, since the store that decides has it no more.

use policy::share::calendar::BookingId;
use store::qos::manager::{PartName, ReserveError};

use super::booking::{Stores, failed};
use super::control::Failure;
use crate::api::store::Reservation;

fn number(it: &Reservation) -> BookingId {
    let digits = it.id.rsplit('/').next();
    BookingId(digits.and_then(|digits| digits.parse().ok()).unwrap_or(0))
}

/// The whole that a part is of, from the digits it is shown with.
fn whole_of(digits: &str) -> Option<u128> {
    u128::from_str_radix(digits, 16).ok()
}

/// Releases the parts of a reservation; answers those that are gone.
///
/// # Errors
/// What stood in the way of one of them; the others are gone.
pub(super) async fn end(
    stores: Stores<'_>,
    parts: Vec<Reservation>,
) -> Result<Vec<Reservation>, Failure> {
    let mut ordered = Vec::new();
    let mut trouble = None;
    for part in parts {
        let id = number(&part);
        let decides = stores.at_store(&part.store, async move |at| {
            let all = at.node.reservations().into_iter();
            let group = all.filter(|it| it.id == id).find_map(|it| it.group);
            group.is_none_or(|group| group.decider() == Some(at.node.store().uuid()))
        });
        match decides.await {
            Ok(decides) => ordered.push((!decides, id, part)),
            Err(failure) => drop(trouble.get_or_insert(failure)),
        }
    }
    ordered.sort_by_key(|(later, id, _)| (*later, *id));
    let mut released = Vec::new();
    for (_, id, part) in ordered {
        let group = part.group.as_deref().and_then(whole_of);
        let named = PartName { id, group };
        let release = stores.at_store(&part.store, async move |at| at.node.release(named).await);
        match release.await {
            // What ended by itself a moment ago needs no release.
            Ok(Ok(()) | Err(ReserveError::NoBooking(_))) => released.push(part),
            Ok(Err(error)) => drop(trouble.get_or_insert(failed(&part.store, &error))),
            Err(failure) => drop(trouble.get_or_insert(failure)),
        }
    }
    trouble.map_or(Ok(released), Err)
}
