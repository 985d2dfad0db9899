//! Reservations at this daemon's stores, each of them or several together (`booking`), over the admin API.

use std::sync::Arc;

use access::caller::Caller;
use access::role::Action;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use policy::share::calendar::BookingId;
use store::qos::manager::Group;

use super::booking::{NotReserved, Stores};
use super::charged::{self, Charged, Payer, Taken};
use super::control::{Answer, Control, Failure, body};
use super::names;
use super::release::end;
use crate::api::refusal::Refusal;
use crate::api::store::{Offer, Reservation, ReserveAsk, ReserveRefusal};

/// Every reservation in every store.
#[utoipa::path(get, path = "/v1/reservations", responses((status = 200, body = Vec<Reservation>)))]
pub(super) async fn get_reservations(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
) -> Answer<Vec<Reservation>> {
    let mut all = Stores(&control).reservations().await?;
    let mine = names::mine(&control, &caller).await;
    for it in &mut all {
        names::hide_in_reservation(&caller, &mine, it);
    }
    Ok(Json(all))
}

/// Reserves throughput and room at every one of the stores, or at none; answers a reservation with its capability for each.
#[utoipa::path(post, path = "/v1/reservations", request_body = ReserveAsk, responses(
    (status = 200, body = Vec<Reservation>),
    (status = 404, description = "No such store", body = Refusal),
    (status = 409, description = "It does not fit; `offer` says what would. Or the account's quota does not allow it", body = ReserveRefusal),
    (status = 422, body = Refusal),
))]
pub(super) async fn add_reservation(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Result<Json<Vec<Reservation>>, NotReserved> {
    let mut asked: ReserveAsk = body(&headers, &text, ASK)?;
    asked.holder = names::holder(&control, &caller, &asked.holder).await?;
    let owner = names::owner(&control, &caller, &asked.holder).await;
    let shows = caller.may(Action::Capability, owner.as_ref());
    let payer = owner.map(|account| Payer {
        id: caller
            .account_id
            .filter(|_| caller.account.as_ref() == Some(&account)),
        account,
    });
    // The client may hang up in between: what is begun is done or undone all the same.
    let done =
        tokio::spawn(async move { Stores(&control).reserve(&asked, payer.as_ref()).await }).await;
    let done = done.map_err(|_| {
        Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the reservation was cut off",
            "`tanada reservation list --parts` tells whether it was made",
        )
    })?;
    let mut made = done?;
    for it in made.iter_mut().filter(|_| !shows) {
        it.given.capability = None;
    }
    Ok(Json(made))
}

/// What would come of it: nothing is set aside.
#[utoipa::path(post, path = "/v1/reservations/offer", request_body = ReserveAsk, responses(
    (status = 200, body = Offer),
    (status = 404, body = Refusal),
    (status = 422, body = Refusal),
))]
pub(super) async fn offer_reservation(
    State(control): State<Arc<Control>>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<Offer> {
    let asked: ReserveAsk = body(&headers, &text, ASK)?;
    Ok(Json(Stores(&control).offer(&asked).await?))
}

const ASK: &str = r#"{"stores": ["s0"], "direction": "read", "rate_bytes_per_second": 85000000, "for_seconds": 7200}"#;

/// One reservation, without its capability.
#[utoipa::path(get, path = "/v1/reservations/{store}/{number}",
    params(("store" = String, Path), ("number" = u64, Path)), responses(
    (status = 200, body = Reservation),
    (status = 404, body = Refusal),
))]
pub(super) async fn get_reservation(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path((store, number)): Path<(String, u64)>,
) -> Answer<Reservation> {
    let id = BookingId(number);
    let mut reservation = Stores(&control).reservation(&store, id).await?;
    let mine = names::mine(&control, &caller).await;
    names::hide_in_reservation(&caller, &mine, &mut reservation);
    Ok(Json(reservation))
}

/// One reservation with its capability once more, for the account that owns it; for the daemon's owner if none does.
#[utoipa::path(post, path = "/v1/reservations/{store}/{number}/capability",
    params(("store" = String, Path), ("number" = u64, Path)), responses(
    (status = 200, description = "`capability` is absent if there is none yet", body = Reservation),
    (status = 403, description = "It is another account's", body = Refusal),
    (status = 404, body = Refusal),
))]
pub(super) async fn capability(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path((store, number)): Path<(String, u64)>,
) -> Answer<Reservation> {
    let (id, stores) = (BookingId(number), Stores(&control));
    let mut reservation = stores.reservation(&store, id).await?;
    names::check_capability(&control, &caller, &reservation).await?;
    let capability = stores.at_store(&store, async move |store| store.node.capability(id));
    reservation.given.capability = capability.await?;
    Ok(Json(reservation))
}

/// A part of a reservation over the cluster ends with the whole alone.
async fn refuse_part(control: &Control, store: &str, number: u64) -> Result<(), Failure> {
    let whole = Stores(control).at_store(store, async move |at| {
        let all = at.node.reservations().into_iter();
        let mut one = all.filter(|it| it.id == BookingId(number));
        one.find_map(|it| it.group).filter(Group::is_by_record)
    });
    match whole.await? {
        None => Ok(()),
        Some(group) => Err(Failure::new(
            StatusCode::CONFLICT,
            format!(
                "{store}/{number} is a part of the reservation r-{:032x}",
                group.id
            ),
            format!(
                "end the whole: `tanada reservation delete r-{:032x}`",
                group.id
            ),
        )),
    }
}

/// Gives a reservation up, at all stores it is over; answers what was given up.
#[utoipa::path(delete, path = "/v1/reservations/{store}/{number}",
    params(("store" = String, Path), ("number" = u64, Path)), responses(
    (status = 200, body = Vec<Reservation>),
    (status = 404, body = Refusal),
))]
pub(super) async fn cancel_reservation(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path((store, number)): Path<(String, u64)>,
) -> Answer<Vec<Reservation>> {
    let named = Stores(&control)
        .reservation(&store, BookingId(number))
        .await?;
    let owner = names::check_book(&control, &caller, &named).await?;
    refuse_part(&control, &store, number).await?;
    let parts = match &named.group {
        None => vec![named],
        Some(group) => {
            let all = Stores(&control).reservations().await?.into_iter();
            all.filter(|it| it.group.as_ref() == Some(group)).collect()
        }
    };
    let id = parts.first().and_then(charged::id_of);
    let released = end(Stores(&control), parts).await;
    if let (Some(id), Some(owner)) = (id, owner) {
        Charged(&control).settle(&owner, id, Taken::UntilNow).await;
    }
    released.map(Json)
}
