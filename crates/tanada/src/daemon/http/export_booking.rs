//! Reservations of exports of hybrids that have a queue: made, looked at, cancelled.
//!
//! ```text
//! request -> the thread that has the export -> the manager of its hybrid's queue: hold, commit | release
//! ```
//!
//! Always true: what is answered as made is durable.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use policy::share::calendar::BookingId;
use policy::share::{BytesPerSec, Direction, Second, Slot};
use reservations::book::HOLD_SECONDS;
use store::qos::manager::{ReservationRequest, ReserveError, Reserved};

use super::cluster_thread::ClusterThread;
use super::control::{Answer, Control, Failure, body, gone};
use super::reserve_words::{said, shown};
use crate::api::refusal::Refusal;
use crate::api::store::{ExportReserveAsk, Reservation};
use crate::daemon::thread::command::{QueueOf, ThreadHandle};
use crate::daemon::thread::export_calendars::{ExportCalendars, above_cap, at_queue, beside};
use crate::daemon::thread::queued::{Queued, holder_of};

/// Why nothing was made or ended.
enum Trouble {
    /// Asked for what cannot be; the sentence ends with what to do.
    Invalid(String),
    /// Another one is in the way; the sentence ends with what to do.
    Beside(String),
    /// It is a part of this reservation over the cluster, which ends as a whole.
    Part(u128),
    /// Refused by the manager.
    Refused(ReserveError),
}

async fn at_thread<T: Send + 'static>(
    thread: &ThreadHandle,
    export: &str,
    work: impl AsyncFnOnce(QueueOf) -> T + Send + 'static,
) -> Result<Option<T>, Failure> {
    let done = at_queue(&thread.poster(), export, work).await;
    done.map_err(|_| gone(thread))
}

async fn at_export<T: Send + 'static>(
    control: &Control,
    export: &str,
    work: impl AsyncFnOnce(QueueOf) -> T + Send + 'static,
) -> Result<T, Failure> {
    let none = || {
        Failure::new(
            StatusCode::NOT_FOUND,
            format!(
                "no rate can be promised to an export '{export}': there is none of a hybrid with a queue"
            ),
            "write queue = true in its [[hybrid]] and start again; `tanada status` shows the exports",
        )
    };
    for thread in &control.threads {
        let is_here = at_thread(thread, export, async |_| ()).await?;
        if is_here.is_some() {
            return at_thread(thread, export, work).await?.ok_or_else(none);
        }
    }
    Err(none())
}

/// Lets this node's cluster, if there is one, reserve for the exports of these names that have a queue.
pub async fn join_cluster(control: &Control, exports: &[String]) {
    let cluster = ClusterThread(control);
    if !cluster.has_cluster() {
        return;
    }
    let calendars = ExportCalendars::find(&control.threads, exports).await;
    let taken = cluster.at_open(async move |open| open.reservations.take_exports(calendars));
    if taken.await.is_err() {
        tracing::warn!(
            "no reservation over the cluster is made for an export: the cluster's thread has ended"
        );
    }
}

fn failure(export: &str, trouble: Trouble) -> Failure {
    match trouble {
        Trouble::Invalid(said) => Failure::of_sentence(
            StatusCode::UNPROCESSABLE_ENTITY,
            &said,
            "ask for something else",
        ),
        Trouble::Beside(said) => {
            Failure::of_sentence(StatusCode::CONFLICT, &said, "ask for another time")
        }
        Trouble::Part(whole) => Failure::new(
            StatusCode::CONFLICT,
            format!("it is the part of the reservation r-{whole:032x} at this export"),
            format!("end the whole: `tanada reservation delete r-{whole:032x}`"),
        ),
        Trouble::Refused(ReserveError::Refused(refusal)) => {
            let todo = match &refusal {
                policy::share::calendar::Refusal::Full { offer, .. } => offer.to_string(),
                _ => "ask for less, or later".to_owned(),
            };
            Failure::new(StatusCode::CONFLICT, said(export, &refusal), todo)
        }
        Trouble::Refused(error @ ReserveError::NoBooking(_)) => Failure::new(
            StatusCode::NOT_FOUND,
            error.to_string(),
            format!("GET /v1/exports/{export}/reservations shows what there is"),
        ),
        Trouble::Refused(error @ ReserveError::Request { .. }) => Failure::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            error.to_string(),
            "ask for something else",
        ),
        Trouble::Refused(error) => Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            error.to_string(),
            "look whether DATA_DIR/bookings can be written, and try again",
        ),
    }
}

/// Those of one export, by number.
fn of_export(queued: &Queued, export: &str) -> Vec<Reserved> {
    let holder = holder_of(export);
    let all = queued.manager().reservations().into_iter();
    all.filter(|it| it.request.holder == holder).collect()
}

/// The reservations of an export.
#[utoipa::path(get, path = "/v1/exports/{name}/reservations", params(("name" = String, Path)), responses(
    (status = 200, body = Vec<Reservation>),
    (status = 404, description = "No export of a hybrid with a queue is called so", body = Refusal),
))]
pub(super) async fn get_reservations(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
) -> Answer<Vec<Reservation>> {
    let export = name.clone();
    let found = at_export(&control, &name, async move |behind| {
        let all = of_export(&behind.queued, &export);
        all.iter().map(|it| shown(&export, it)).collect()
    });
    found.await.map(Json)
}

/// Promises a rate to an export.
#[utoipa::path(post, path = "/v1/exports/{name}/reservations", params(("name" = String, Path)),
    request_body = ExportReserveAsk, responses(
    (status = 200, body = Reservation),
    (status = 404, description = "No export of a hybrid with a queue is called so", body = Refusal),
    (status = 409, description = "It does not fit; says what would", body = Refusal),
    (status = 422, body = Refusal),
))]
pub(super) async fn add_reservation(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<Reservation> {
    let ask: ExportReserveAsk = body(
        &headers,
        &text,
        r#"{"direction": "read", "rate_bytes_per_second": 10000000, "for_seconds": 7200}"#,
    )?;
    let export = name.clone();
    let made = at_export(&control, &name, async move |behind| {
        make(&behind, &export, &ask).await
    });
    made.await?
        .map(Json)
        .map_err(|trouble| failure(&name, trouble))
}

async fn make(
    QueueOf {
        queued,
        write,
        caps,
    }: &QueueOf,
    export: &str,
    ask: &ExportReserveAsk,
) -> Result<Reservation, Trouble> {
    let manager = queued.manager();
    let request = request_of(ask, manager.now())?;
    let refused = Queued::refusal(request.direction, *write);
    if let Some(why) = refused.or_else(|| above_cap(caps, &request)) {
        return Err(Trouble::Invalid(why));
    }
    let request = Queued::request(export, request);
    // What is in the way is looked at and held in one turn.
    let turn = queued.turn().await;
    if let Some(other) = beside(manager, &request, None) {
        return Err(Trouble::Beside(other.to_string()));
    }
    let until = Second(manager.now().0 + HOLD_SECONDS);
    let id = manager.hold(&request, None, until).await;
    drop(turn);
    let id = id.map_err(Trouble::Refused)?;
    manager.commit(id).await.map_err(Trouble::Refused)?;
    let all = of_export(queued, export);
    let made = all.iter().find(|it| it.id == id);
    // Its slot may be over already.
    made.map(|it| shown(export, it))
        .ok_or(Trouble::Refused(ReserveError::NoBooking(
            policy::share::calendar::NoBooking(id),
        )))
}

fn request_of(ask: &ExportReserveAsk, now: Second) -> Result<ReservationRequest, Trouble> {
    let invalid = |said: &str| Err(Trouble::Invalid(said.to_owned()));
    let direction = match ask.direction.as_str() {
        "read" => Direction::Read,
        "write" => Direction::Write,
        other => return invalid(&format!("'{other}' is no direction; write read or write")),
    };
    if ask.rate_bytes_per_second == 0 || ask.for_seconds == 0 {
        return invalid("it promises nothing; give rate_bytes_per_second and for_seconds");
    }
    let start = ask.from_unix_seconds.map_or(now, Second);
    let slot = Slot::new(start, ask.for_seconds);
    let rate = BytesPerSec(ask.rate_bytes_per_second);
    Ok(ReservationRequest::new(direction, rate, slot))
}

/// Ends a reservation of an export.
#[utoipa::path(delete, path = "/v1/exports/{name}/reservations/{number}",
    params(("name" = String, Path), ("number" = u64, Path)), responses(
    (status = 200, description = "What was ended", body = Reservation),
    (status = 404, body = Refusal),
))]
pub(super) async fn cancel_reservation(
    State(control): State<Arc<Control>>,
    Path((name, number)): Path<(String, u64)>,
) -> Answer<Reservation> {
    let (export, id) = (name.clone(), BookingId(number));
    let ended = at_export(&control, &name, async move |behind| {
        let all = of_export(&behind.queued, &export);
        let named = all.iter().find(|it| it.id == id);
        let none = || {
            Trouble::Refused(ReserveError::NoBooking(policy::share::calendar::NoBooking(
                id,
            )))
        };
        let named = named.ok_or_else(none)?;
        if let Some(group) = named.group.as_ref() {
            return Err(Trouble::Part(group.id));
        }
        let released = behind.queued.manager().release(id).await;
        released.map_err(Trouble::Refused)?;
        Ok(shown(&export, named))
    });
    ended
        .await?
        .map(Json)
        .map_err(|trouble| failure(&name, trouble))
}
