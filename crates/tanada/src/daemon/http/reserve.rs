//! Stores over the admin API: looked at, commanded, and reserved.
//!
//! ```text
//! reserve: ask -> hold at every store -> commit at every store, the deciding one last -> capabilities
//!                    \ one refuses: release what is held, say what would fit
//! start:   parts a crash left -> what did the deciding store say? -> commit | release
//! ```
//!
//! Always true:
//! 1. A reservation over several stores is answered only when all have committed.
//! 2. Where one store refuses, the others keep nothing; if they cannot be reached, their hold runs out by itself.

use std::rc::Rc;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State, rejection::QueryRejection};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base::{Bytes, Nanos};
use config::store::unknown_store;
use policy::share::calendar::{BookingId, Refusal as Refuse};
use policy::share::{BytesPerSec, Direction, Probability, Second, Slot};
use report::terminal::said;
use store::qos::manager::{Decision, Group, ReservationRequest, ReserveError};
use tokio::sync::oneshot;

use super::control::{Answer, Control, Failure, body, gone};
use super::reserve_words::{instead, said, shown};
use crate::api::refusal::Refusal;
use crate::api::store::{
    Calendar, CalendarAsk, CalibrateAsk, Offer, Reservation, ReserveAsk, ReserveRefusal, RotateAsk,
    Store, StoreRefusal,
};
use crate::daemon::common::secrets;
use crate::daemon::thread::command::{Command, ThreadHandle};
use crate::daemon::thread::refused::Refused;
use crate::daemon::thread::store::OpenStore;

/// How long a hold waits for the rest of its reservation.
const HOLD_SECONDS: u64 = 30;
/// A calendar shows a day at least.
const DAY: u64 = 24 * 3600;
/// Several stores agree on a slot within so many rounds of asking, or on none.
const ROUNDS_MAX: usize = 100;

impl Control {
    fn store_names(&self) -> impl Iterator<Item = &str> {
        let threads = self.threads.iter();
        threads.flat_map(|thread| thread.stores.iter().map(String::as_str))
    }

    /// Has `work` done with a store, on the thread it lives on.
    async fn at_store<T: Send + 'static>(
        &self,
        name: &str,
        work: impl AsyncFnOnce(Rc<OpenStore>) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let lives = |it: &&ThreadHandle| it.stores.iter().any(|known| known == name);
        let thread = self.threads.iter().find(lives).ok_or_else(|| {
            let known: Vec<&str> = self.store_names().collect();
            let todo = match known.is_empty() {
                true => "this daemon has no stores: its configuration has no [[store]]".to_owned(),
                false => format!("the stores are {}", known.join(", ")),
            };
            Failure::new(
                StatusCode::NOT_FOUND,
                unknown_store(name, known.iter().copied()),
                todo,
            )
        })?;
        let (reply, answer) = oneshot::channel();
        let job = move |store: Rc<OpenStore>| {
            env::spawn(async move {
                // The client may be gone; what was asked is done all the same.
                let _ = reply.send(work(store).await);
            });
        };
        let command = Command::Store {
            store: name.to_owned(),
            job: Box::new(job),
        };
        thread.post(command).map_err(|_| gone(thread))?;
        answer.await.map_err(|_| gone(thread))
    }

    /// Settles what a crash left of reservations over several stores. What cannot be settled is logged and left.
    pub async fn reconcile(&self) {
        let names: Vec<String> = self.store_names().map(str::to_owned).collect();
        let mut uuids: Vec<(u128, String)> = Vec::new();
        let mut parts = Vec::new();
        for name in &names {
            let found = self.at_store(name, async |store| {
                (store.node.uuid(), store.node.undecided())
            });
            if let Ok((uuid, found)) = found.await {
                uuids.push((uuid, name.clone()));
                parts.extend(found.into_iter().map(|(id, group)| (name, uuid, id, group)));
            }
        }
        // What decides must be there until all have asked.
        parts.sort_by_key(|(_, uuid, _, group)| group.decider() == Some(*uuid));
        for (name, _, id, group) in parts {
            let decider = uuids
                .iter()
                .find(|(uuid, _)| Some(*uuid) == group.decider());
            let Some((_, decider)) = decider else {
                tracing::warn!(
                    store = name,
                    reservation = id.0,
                    "part of a reservation whose deciding store is not here; it is kept as it is"
                );
                continue;
            };
            let number = group.id;
            let said = self.at_store(decider, async move |store| {
                store.node.decision(number).await
            });
            let decision = match said.await {
                Ok(Ok(decision)) => decision,
                Ok(Err(error)) => {
                    tracing::error!(store = name, reservation = id.0, %error,
                        "part of a reservation over several stores is left undecided");
                    continue;
                }
                Err(_) => continue,
            };
            let done = self.at_store(name, async move |store| {
                store.node.decide(id, decision).await
            });
            let word = match decision {
                Decision::Committed => "stands",
                Decision::Aborted => "is released",
            };
            match done.await {
                Ok(Ok(())) => tracing::info!(
                    store = name,
                    reservation = id.0,
                    "part of a reservation over several stores {word}"
                ),
                _ => tracing::error!(
                    store = name,
                    reservation = id.0,
                    "part of a reservation over several stores is left undecided"
                ),
            }
        }
    }

    /// Would it fit, and what would instead?
    async fn offer(&self, asked: &ReserveAsk) -> Result<Offer, Failure> {
        let (ask, slot) = self.ask(asked).await?;
        let mut refused = Vec::new();
        let mut largest = Some(ask.rate);
        for (name, refusal) in self.refusals(asked, &ask).await? {
            let Some(refusal) = refusal else { continue };
            let fits = match &refusal {
                Refuse::Full { offer, .. } => offer.largest,
                _ => None,
            };
            largest = largest.and_then(|known| Some(known.min(fits?)));
            refused.push(StoreRefusal {
                error: said(&name, &refusal),
                store: name,
            });
        }
        let earliest = match refused.is_empty() {
            true => Some(slot.start),
            false => self.earliest(asked, &ask).await?,
        };
        Ok(Offer {
            fits: refused.is_empty(),
            from_unix_seconds: slot.start.0,
            until_unix_seconds: slot.end.0,
            earliest_unix_seconds: earliest.map(|at| at.0),
            largest_bytes_per_second: largest.map(|rate| rate.0),
            refused,
        })
    }

    /// Each store with why it refuses, if it does.
    async fn refusals(
        &self,
        asked: &ReserveAsk,
        ask: &ReservationRequest,
    ) -> Result<Vec<(String, Option<Refuse>)>, Failure> {
        let mut all = Vec::new();
        for name in &asked.stores {
            let ask = ask.clone();
            let offer = self.at_store(name, async move |store| store.node.offer(&ask).err());
            all.push((name.clone(), offer.await?));
        }
        Ok(all)
    }

    /// The first slot of this length, from the asked one on, that suits all stores.
    async fn earliest(
        &self,
        asked: &ReserveAsk,
        ask: &ReservationRequest,
    ) -> Result<Option<Second>, Failure> {
        let mut ask = ask.clone();
        for _ in 0..ROUNDS_MAX {
            let mut next = ask.slot.start;
            for (_, refusal) in self.refusals(asked, &ask).await? {
                let start = match refusal {
                    None => continue,
                    Some(Refuse::Full { offer, .. }) => offer.earliest.map(|slot| slot.start),
                    Some(_) => None,
                };
                let Some(start) = start else { return Ok(None) };
                next = next.max(start);
            }
            if next == ask.slot.start {
                return Ok(Some(next));
            }
            ask.slot = Slot::new(next, asked.for_seconds);
        }
        Ok(None)
    }

    /// What is asked for, in the words of a node; stores and figures are checked.
    async fn ask(&self, asked: &ReserveAsk) -> Result<(ReservationRequest, Slot), Failure> {
        let invalid = |error: String, todo: &str| {
            Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, error, todo))
        };
        let Some(first) = asked.stores.first() else {
            return invalid("no store is named".to_owned(), "name at least one");
        };
        if let Some(twice) = twice(&asked.stores) {
            return invalid(format!("{twice} is named twice"), "name each store once");
        }
        let direction = match asked.direction.as_str() {
            "read" => Direction::Read,
            "write" => Direction::Write,
            other => {
                let error = format!("'{other}' is no direction");
                return invalid(error, "write read or write");
            }
        };
        if asked.for_seconds == 0 {
            return invalid("it lasts no time".to_owned(), "give for_seconds at least 1");
        }
        if asked.rate_bytes_per_second == 0 {
            let todo = "give a rate; without a promise no reservation is needed";
            return invalid("it promises nothing".to_owned(), todo);
        }
        let percent = asked.probability_percent.unwrap_or(99.0);
        if !(percent > 0.0 && percent <= 100.0) {
            let error = format!("a probability of {percent} % makes no sense");
            return invalid(error, "write more than 0 and at most 100");
        }
        let Some(scope) = asked.scope.clone() else {
            let todo = "give scope: the names of its objects begin with it; \"\" is for all but those of virtual disks";
            return invalid("no scope is given".to_owned(), todo);
        };
        let now = self.at_store(first, async |store| store.node.now()).await?;
        let start = asked.from_unix_seconds.map_or(now, Second);
        let slot = Slot::new(start, asked.for_seconds);
        let ask = ReservationRequest {
            direction,
            rate: BytesPerSec(asked.rate_bytes_per_second),
            window: asked.window_ns.map_or(Nanos::secs(1), Nanos),
            probability: Probability((percent * 10_000.0).round() as u32),
            slot,
            space: Bytes(asked.space_bytes),
            scope,
            holder: asked.holder.clone(),
        };
        Ok((ask, slot))
    }

    /// Reserves at all stores, or at none.
    async fn reserve(&self, asked: &ReserveAsk) -> Result<Vec<Reservation>, NotReserved> {
        let (ask, _) = self.ask(asked).await?;
        let group = self.group(asked).await?;
        let mut held: Vec<(String, BookingId)> = Vec::new();
        for name in &asked.stores {
            let (ask, group) = (ask.clone(), group.clone());
            let hold = self.at_store(name, async move |store| {
                let until = Second(store.node.now().0 + HOLD_SECONDS);
                store.node.hold(&ask, group, until).await
            });
            match flat(hold.await) {
                Ok(id) => held.push((name.clone(), id)),
                Err(error) => {
                    self.release(held).await;
                    return Err(self.not_reserved(asked, name, error).await);
                }
            }
        }
        let mut capabilities = Vec::new();
        for (name, id) in &held {
            let id = *id;
            let commit = self.at_store(name, async move |store| store.node.commit(id).await);
            match flat(commit.await) {
                Ok(capability) => capabilities.push(capability),
                Err(error) => {
                    let name = name.clone();
                    self.release(held).await;
                    return Err(self.not_reserved(asked, &name, error).await);
                }
            }
        }
        let mut made = Vec::new();
        for ((name, id), capability) in held.into_iter().zip(capabilities) {
            let mut reservation = self.reservation(&name, id).await?;
            reservation.capability = Some(capability);
            made.push(reservation);
        }
        Ok(made)
    }

    /// Of several stores, who belongs together; the last decides.
    async fn group(&self, asked: &ReserveAsk) -> Result<Option<Group>, Failure> {
        if asked.stores.len() < 2 {
            return Ok(None);
        }
        let mut stores = Vec::new();
        for name in &asked.stores {
            stores.push(self.at_store(name, async |store| store.node.uuid()).await?);
        }
        let id = secrets::fresh().map_err(|error| {
            Failure::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                error.to_string(),
                "try again",
            )
        })?;
        let id = u128::from_le_bytes(*id.first_chunk().expect("32 bytes"));
        Ok(Some(Group { id, stores }))
    }

    /// Gives back what is held or committed, the deciding store first.
    async fn release(&self, held: Vec<(String, BookingId)>) {
        for (name, id) in held.into_iter().rev() {
            let release = self.at_store(&name, async move |store| store.node.release(id).await);
            if let Err(error) = flat(release.await) {
                let error = match error {
                    NotDone::Reserve(error) => error.to_string(),
                    NotDone::Failure(failure) => failure.refusal.error,
                };
                tracing::error!(store = name, reservation = id.0, "cannot release: {error}");
            }
        }
    }

    async fn not_reserved(&self, asked: &ReserveAsk, name: &str, error: NotDone) -> NotReserved {
        let refusal = match error {
            NotDone::Failure(failure) => return NotReserved::Failure(failure),
            NotDone::Reserve(ReserveError::Refused(refusal)) => refusal,
            NotDone::Reserve(error) => {
                return NotReserved::Failure(failed(name, &error));
            }
        };
        let offer = self.offer(asked).await.ok();
        NotReserved::Refused(Box::new(ReserveRefusal {
            error: said(name, &refusal),
            what_to_do: offer.as_ref().map_or(String::new(), instead),
            offer,
        }))
    }

    /// One reservation, without its capability.
    async fn reservation(&self, store: &str, id: BookingId) -> Result<Reservation, Failure> {
        let name = store.to_owned();
        let found = self.at_store(store, async move |store| {
            let mut all = store.node.reservations().into_iter();
            all.find(|it| it.id == id).map(|it| shown(&name, &it))
        });
        found.await?.ok_or_else(|| no_reservation(store, id))
    }

    async fn reservations(&self) -> Result<Vec<Reservation>, Failure> {
        let mut all = Vec::new();
        for name in self.store_names().map(str::to_owned).collect::<Vec<_>>() {
            let store = name.clone();
            let of = self.at_store(&name, async move |at| {
                let all = at.node.reservations();
                all.iter().map(|it| shown(&store, it)).collect::<Vec<_>>()
            });
            all.extend(of.await?);
        }
        Ok(all)
    }
}

fn twice(names: &[String]) -> Option<&String> {
    let mut earlier = names.iter().enumerate();
    let found = earlier.find(|(at, name)| names[..*at].contains(name))?;
    Some(found.1)
}

/// Why a step at a store was not done.
enum NotDone {
    Failure(Failure),
    Reserve(ReserveError),
}

fn flat<T>(done: Result<Result<T, ReserveError>, Failure>) -> Result<T, NotDone> {
    match done {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(NotDone::Reserve(error)),
        Err(failure) => Err(NotDone::Failure(failure)),
    }
}

/// Why nothing was reserved.
pub enum NotReserved {
    Failure(Failure),
    Refused(Box<ReserveRefusal>),
}

impl From<Failure> for NotReserved {
    fn from(failure: Failure) -> NotReserved {
        NotReserved::Failure(failure)
    }
}

impl IntoResponse for NotReserved {
    fn into_response(self) -> Response {
        match self {
            NotReserved::Failure(failure) => failure.into_response(),
            NotReserved::Refused(refusal) => (StatusCode::CONFLICT, Json(refusal)).into_response(),
        }
    }
}

fn failed(store: &str, error: &ReserveError) -> Failure {
    let status = match error {
        ReserveError::Request { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        ReserveError::NoBooking(_) => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Failure::new(status, format!("{store}: {error}"), "")
}

fn no_reservation(store: &str, id: BookingId) -> Failure {
    Failure::new(
        StatusCode::NOT_FOUND,
        format!("there is no reservation {store}/{}", id.0),
        "`tanada reserve list` shows what there is; what is over is forgotten",
    )
}

// --- routes -----------------------------------------------------------------------------------------

/// The stores, with their sessions and figures.
#[utoipa::path(get, path = "/v1/stores", responses((status = 200, body = Vec<Store>)))]
pub(super) async fn get_stores(State(control): State<Arc<Control>>) -> Answer<Vec<Store>> {
    Ok(Json(control.status().await?.stores))
}

/// One store.
#[utoipa::path(get, path = "/v1/stores/{name}", params(("name" = String, Path)), responses(
    (status = 200, body = Store),
    (status = 404, body = Refusal),
))]
pub(super) async fn get_store(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
) -> Answer<Store> {
    let report = control.at_store(&name, async |store| store.report());
    Ok(Json(report.await?))
}

/// Begins to read all data and compare them with their checksums, in the background. Answers at once.
#[utoipa::path(post, path = "/v1/stores/{name}/scrub", params(("name" = String, Path)), responses(
    (status = 200, body = Store),
    (status = 404, body = Refusal),
    (status = 409, description = "It runs already", body = Refusal),
))]
pub(super) async fn scrub_store(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
) -> Answer<Store> {
    let begun = control.at_store(&name, async |store| {
        store.begin_scrub().map(|()| store.report())
    });
    Ok(Json(begun.await??))
}

/// Measures the device below the store, where nothing is reserved for so long. Answers at once; `calibrating` of the store says how far.
#[utoipa::path(post, path = "/v1/stores/{name}/calibrate", params(("name" = String, Path)),
    request_body = CalibrateAsk, responses(
    (status = 200, body = Store),
    (status = 404, body = Refusal),
    (status = 409, description = "It runs already, or something is reserved for as long as it may take", body = Refusal),
))]
pub(super) async fn calibrate_store(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<Store> {
    let ask: CalibrateAsk = body(&headers, &text, r#"{"full": false}"#)?;
    let begun = control.at_store(&name, async move |store| {
        store
            .begin_calibration(ask.full)
            .await
            .map(|()| store.report())
    });
    Ok(Json(begun.await??))
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
    let surface = control.at_store(&name, async |store| store.surface());
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
    let Query(ask) = query.map_err(|error| {
        Failure::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            error.body_text(),
            "the key is keep_old, true or false",
        )
    })?;
    let rotated = control.at_store(&name, async move |store| {
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
    Path(name): Path<String>,
    query: Result<Query<CalendarAsk>, QueryRejection>,
) -> Answer<Calendar> {
    let Query(ask) = query.map_err(|error| {
        Failure::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            error.body_text(),
            "the keys are from_unix_seconds and for_seconds, each a number",
        )
    })?;
    let store = name.clone();
    let calendar = control.at_store(&name, async move |at| {
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
    Ok(Json(calendar.await?))
}

/// Every reservation in every store.
#[utoipa::path(get, path = "/v1/reservations", responses((status = 200, body = Vec<Reservation>)))]
pub(super) async fn get_reservations(
    State(control): State<Arc<Control>>,
) -> Answer<Vec<Reservation>> {
    Ok(Json(control.reservations().await?))
}

/// Reserves throughput and room at every one of the stores, or at none; answers a reservation with its capability for each.
#[utoipa::path(post, path = "/v1/reservations", request_body = ReserveAsk, responses(
    (status = 200, body = Vec<Reservation>),
    (status = 404, description = "No such store", body = Refusal),
    (status = 409, description = "It does not fit; `offer` says what would", body = ReserveRefusal),
    (status = 422, body = Refusal),
))]
pub(super) async fn add_reservation(
    State(control): State<Arc<Control>>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Result<Json<Vec<Reservation>>, NotReserved> {
    let asked: ReserveAsk = body(&headers, &text, ASK)?;
    // The client may hang up in between: what is begun is done or undone all the same.
    let done = tokio::spawn(async move { control.reserve(&asked).await }).await;
    let done = done.map_err(|_| {
        Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the reservation was cut off",
            "`tanada reserve list` tells whether it was made",
        )
    })?;
    done.map(Json)
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
    Ok(Json(control.offer(&asked).await?))
}

const ASK: &str = r#"{"stores": ["s0"], "direction": "read", "rate_bytes_per_second": 85000000, "for_seconds": 7200}"#;

/// One reservation, with its capability once more.
#[utoipa::path(get, path = "/v1/reservations/{store}/{number}",
    params(("store" = String, Path), ("number" = u64, Path)), responses(
    (status = 200, body = Reservation),
    (status = 404, body = Refusal),
))]
pub(super) async fn get_reservation(
    State(control): State<Arc<Control>>,
    Path((store, number)): Path<(String, u64)>,
) -> Answer<Reservation> {
    let id = BookingId(number);
    let mut reservation = control.reservation(&store, id).await?;
    let capability = control.at_store(&store, async move |store| store.node.capability(id));
    reservation.capability = capability.await?;
    Ok(Json(reservation))
}

/// Gives a reservation up, at all stores it is over; answers what was given up.
#[utoipa::path(delete, path = "/v1/reservations/{store}/{number}",
    params(("store" = String, Path), ("number" = u64, Path)), responses(
    (status = 200, body = Vec<Reservation>),
    (status = 404, body = Refusal),
))]
pub(super) async fn cancel_reservation(
    State(control): State<Arc<Control>>,
    Path((store, number)): Path<(String, u64)>,
) -> Answer<Vec<Reservation>> {
    let named = control.reservation(&store, BookingId(number)).await?;
    let parts = match &named.group {
        None => vec![named],
        Some(group) => {
            let all = control.reservations().await?.into_iter();
            all.filter(|it| it.group.as_ref() == Some(group)).collect()
        }
    };
    // The store that decides first: what a crash leaves then is released as well.
    let mut ordered = Vec::new();
    for part in parts {
        let number: u64 = part
            .id
            .rsplit('/')
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        let id = BookingId(number);
        let decides = control.at_store(&part.store, async move |at| {
            let all = at.node.reservations().into_iter();
            let group = all.filter(|it| it.id == id).find_map(|it| it.group);
            group.is_none_or(|group| group.decider() == Some(at.node.uuid()))
        });
        ordered.push((!decides.await?, id, part));
    }
    ordered.sort_by_key(|(later, id, _)| (*later, *id));
    let mut released = Vec::new();
    let mut trouble = None;
    for (_, id, part) in ordered {
        let release = control.at_store(&part.store, async move |at| at.node.release(id).await);
        match release.await {
            // What ended by itself a moment ago needs no release.
            Ok(Ok(()) | Err(ReserveError::NoBooking(_))) => released.push(part),
            Ok(Err(error)) => drop(trouble.get_or_insert(failed(&part.store, &error))),
            Err(failure) => drop(trouble.get_or_insert(failure)),
        }
    }
    // The other parts are gone whatever stood in the way of one.
    trouble.map_or(Ok(Json(released)), Err)
}
