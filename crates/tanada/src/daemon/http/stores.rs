//! Stores over the admin API: looked at, scrubbed, calibrated, and what they have promised.

use std::sync::Arc;

use access::caller::Caller;
use axum::extract::{Path, Query, State, rejection::QueryRejection};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use policy::share::{Second, Slot};
use report::terminal::said;

use super::booking::Stores;
use super::control;
use super::control::{Answer, Control, Failure, body};
use super::jobs;
use super::names;
use super::reserve_words::shown;
use crate::api::refusal::Refusal;
use crate::api::store::{Calendar, CalendarAsk, CalibrateAsk, RotateAsk, Store};
use crate::daemon::jobs::{Kind, Work};
use crate::daemon::thread::refused::Refused;

/// A calendar shows a day at least.
const DAY: u64 = 24 * 3600;

/// The stores, with their sessions and figures.
#[utoipa::path(get, path = "/v1/stores", responses((status = 200, body = Vec<Store>)))]
pub(super) async fn get_stores(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
) -> Answer<Vec<Store>> {
    let mut stores = control.status().await?.stores;
    names::hide_in_stores(&caller, &mut stores);
    Ok(Json(stores))
}

/// One store.
#[utoipa::path(get, path = "/v1/stores/{name}", params(("name" = String, Path)), responses(
    (status = 200, body = Store),
    (status = 404, body = Refusal),
))]
pub(super) async fn get_store(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Answer<Store> {
    let report = Stores(&control).at_store(&name, async |store| store.report());
    let mut report = report.await?;
    names::hide_in_store(&caller, &mut report);
    Ok(Json(report))
}

/// Begins to read all data and compare them with their checksums, in the background. Answers at once.
#[utoipa::path(post, path = "/v1/stores/{name}/scrub", params(("name" = String, Path)), responses(
    (status = 200, body = Store),
    (status = 404, body = Refusal),
    (status = 409, description = "It runs already", body = Refusal),
))]
pub(super) async fn scrub_store(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Answer<Store> {
    let begun = Stores(&control).at_store(&name, async |store| {
        store.scrub.begin().map(|()| store.report())
    });
    begun_job(&control, Kind::Scrub, (&name, &caller), begun).await
}

/// What began work on a store, with the work's job.
async fn begun_job(
    control: &Control,
    kind: Kind,
    (name, caller): (&str, &Caller),
    begun: impl Future<Output = Result<Result<Store, Refused>, Failure>>,
) -> Answer<Store> {
    let begun = async { Ok(begun.await??) };
    let work = Work::new(kind, name);
    let (store, job) = jobs::begin(control, work, caller, begun).await?;
    let job = Some(job);
    Ok(Json(Store { job, ..store }))
}

/// Measures the device below the store, where nothing is reserved for so long. Answers at once; `job` and `calibrating` of the store say how far.
#[utoipa::path(post, path = "/v1/stores/{name}/calibrate", params(("name" = String, Path)),
    request_body = CalibrateAsk, responses(
    (status = 200, body = Store),
    (status = 404, body = Refusal),
    (status = 409, description = "It runs already, or something is reserved for as long as it may take", body = Refusal),
))]
pub(super) async fn calibrate_store(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<Store> {
    let ask: CalibrateAsk = body(&headers, &text, r#"{"full": false}"#)?;
    let begun = Stores(&control).at_store(&name, async move |store| {
        store
            .begin_calibration(ask.full)
            .await
            .map(|()| store.report())
    });
    begun_job(&control, Kind::Calibrate, (&name, &caller), begun).await
}

/// What the device below a store was measured to do: costs, and what must stay free by direction and number of sessions.
#[utoipa::path(get, path = "/v1/stores/{name}/calibration", params(("name" = String, Path)), responses(
    (status = 200, body = Object),
    (status = 404, description = "No such store, or it was never calibrated", body = Refusal),
))]
pub(super) async fn get_calibration(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
) -> Answer<serde_json::Value> {
    let surface = Stores(&control).at_store(&name, async |store| store.surface());
    surface.await?.map(Json).ok_or_else(|| {
        Failure::new(
            StatusCode::NOT_FOUND,
            format!("{name} was never calibrated"),
            format!("`tanada store calibrate {name}` does it"),
        )
    })
}

/// Signs capabilities with a new key from now on. Those signed before are accepted as long as their reservations last.
#[utoipa::path(post, path = "/v1/stores/{name}/rotate-key", params(("name" = String, Path), RotateAsk), responses(
    (status = 200, body = Store),
    (status = 404, body = Refusal),
    (status = 422, body = Refusal),
    (status = 500, body = Refusal),
))]
pub(super) async fn rotate_key(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
    query: Result<Query<RotateAsk>, QueryRejection>,
) -> Answer<Store> {
    let ask = control::query(query, "the key is keep_old, true or false")?;
    let rotated = Stores(&control).at_store(&name, async move |store| {
        let rotated = store.rotate_key(ask.keep_old).await;
        rotated.map(|()| store.report()).map_err(|error| {
            Refused::Failed(Refusal {
                error: format!("cannot change the key: {}", said::words(&error)),
                what_to_do: "the old key goes on; repair that and try again".to_owned(),
            })
        })
    });
    Ok(Json(rotated.await??))
}

/// What a store has promised, over time.
#[utoipa::path(get, path = "/v1/stores/{name}/calendar", params(("name" = String, Path), CalendarAsk), responses(
    (status = 200, body = Calendar),
    (status = 404, body = Refusal),
    (status = 422, body = Refusal),
))]
pub(super) async fn get_calendar(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    query: Result<Query<CalendarAsk>, QueryRejection>,
) -> Answer<Calendar> {
    let ask = control::query(
        query,
        "the keys are from_unix_seconds and for_seconds, each a number",
    )?;
    let store = name.clone();
    let calendar = Stores(&control).at_store(&name, async move |at| {
        let node = &at.node;
        let now = node.now();
        let all = node.reservations();
        let start = ask.from_unix_seconds.map_or(now, Second);
        let ends = all.iter().map(|it| it.request.slot.end.0);
        let upto_last = ends.max().unwrap_or(0).saturating_sub(start.0);
        let length = ask.for_seconds.unwrap_or(upto_last.max(DAY)).max(1);
        let slot = Slot::new(start, length);
        let within = all.iter().filter(|it| it.request.slot.overlaps(slot));
        let mut reservations: Vec<_> = within.map(|it| shown(&store, it)).collect();
        reservations.sort_by_key(|it| it.from_unix_seconds);
        let stretches = node.calendar(slot);
        Calendar {
            now_unix_seconds: now.0,
            stretches: stretches.iter().map(Into::into).collect(),
            reservations,
            store,
        }
    });
    let mut calendar = calendar.await?;
    let mine = names::mine(&control, &caller).await;
    for it in &mut calendar.reservations {
        names::hide_in_reservation(&caller, &mine, it);
    }
    Ok(Json(calendar))
}
