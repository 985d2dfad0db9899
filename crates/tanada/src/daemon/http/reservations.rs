//! Reservations over the cluster by the admin API: made, asked about, changed, released.
//!
//! ```text
//! request: texts -> Ask -> the service on the cluster's thread -> WholeReservation | why not, and what would fit
//! ```
//!
//! An account sees and changes its own; an operator those of all, but a capability is its account's alone.
//!
//! Always true: what was begun is done or undone, whether or not the client waits for its answer.

use std::sync::Arc;

use access::caller::Caller;
use access::name::AccountName;
use access::role::Action;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use policy::share::{BytesPerSec, Second};
use reservations::ReservationError;
use reservations::ask::{Ask, TargetAsk};
use reservations::offer::Offer;
use reservations::record::{PlanKind, Promise, Reservation, Target};
use reservations::records::Versioned;
use reservations::service::{Change, Service, StoreCapability};
use reservations::stores::Facts;
use reservations::sweep::promised_now;
use vdisk::meta::MetaError;

use super::cluster_thread::ClusterThread;
use super::control::{Answer, Control, Failure, body};
use crate::api::refusal::Refusal;
use crate::api::reservation::{
    PromisedNow, ReservationAsk, ReservationChange, ReservationOffer, ReservationPart,
    ReservationQuery, ReservationRefusal, ReservationTarget, WholeReservation,
};
use crate::daemon::common::when;

const ASK: &str = r#"{"name": "nightly", "target": {"volume": "vm1"}, "read": "200MB/s", "from": "20:00", "for": "2h"}"#;
const CHANGE: &str = r#"{"read": "100MB/s", "for": "2h"}"#;
/// What a capability set begins with: its form and version.
const SET: &str = "tanadaset1.";

/// What is not made or changed.
pub enum NotDone {
    Failure(Failure),
    Refused(Box<ReservationRefusal>),
}

impl From<Failure> for NotDone {
    fn from(failure: Failure) -> NotDone {
        NotDone::Failure(failure)
    }
}

impl IntoResponse for NotDone {
    fn into_response(self) -> Response {
        match self {
            NotDone::Failure(failure) => failure.into_response(),
            NotDone::Refused(refusal) => (StatusCode::CONFLICT, Json(refusal)).into_response(),
        }
    }
}

fn unprocessable(error: impl Into<String>, todo: impl Into<String>) -> Failure {
    Failure::new(StatusCode::UNPROCESSABLE_ENTITY, error, todo)
}

/// A sentence whose second half says what to do, as a failure of this status.
fn failure(error: &ReservationError) -> Failure {
    let status = match error {
        ReservationError::Request(_) => StatusCode::UNPROCESSABLE_ENTITY,
        ReservationError::Absent(_) => StatusCode::NOT_FOUND,
        ReservationError::Unreachable { .. }
        | ReservationError::Meta(MetaError::Unavailable { .. } | MetaError::Unknown { .. }) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        ReservationError::Meta(_) | ReservationError::Record(_) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        _ => StatusCode::CONFLICT,
    };
    let said = error.to_string();
    let (error, todo) = said.rsplit_once("; ").unwrap_or((
        said.as_str(),
        "`tanada reservation list` shows what there is",
    ));
    Failure::new(status, error, todo)
}

// --- whose it is ------------------------------------------------------------------------------------------

/// The account of a record; `None`: the daemon's owner.
fn owner(account: &str) -> Result<Option<AccountName>, Failure> {
    let name = (!account.is_empty()).then(|| account.parse::<AccountName>());
    let name = name.transpose();
    name.map_err(|error| {
        unprocessable(
            error.to_string(),
            "`tanada account list` shows what there is",
        )
    })
}

/// Whose reservation a request means: the account it names, or the caller's own.
fn meant(caller: &Caller, named: Option<&str>) -> String {
    let own = || caller.account.as_ref().map(AccountName::to_string);
    let named = named.filter(|it| !it.is_empty()).map(str::to_owned);
    named.or_else(own).unwrap_or_default()
}

fn check(caller: &Caller, action: Action, account: &str) -> Result<(), Failure> {
    Ok(caller.check(action, owner(account)?.as_ref())?)
}

/// Takes from an answer what the caller may not see of others.
fn hide(caller: &Caller, it: &mut WholeReservation) {
    let seen = owner(&it.account).is_ok_and(|owner| caller.may(Action::Names, owner.as_ref()));
    if !seen {
        it.name.clear();
        it.account.clear();
        it.target.scope = None;
    }
}

// --- texts ----------------------------------------------------------------------------------------------

fn rate(text: Option<&String>) -> Result<u64, Failure> {
    let Some(text) = text else { return Ok(0) };
    let rate: Result<BytesPerSec, _> = text.parse();
    rate.map(|it| it.0).map_err(|why| {
        unprocessable(
            format!("'{text}' is no rate: {why}"),
            "write such as 200MB/s",
        )
    })
}

fn seconds(text: &str) -> Result<u64, Failure> {
    let span = config::read_span(text).map_err(|why| unprocessable(why, "write such as 2h"))?;
    match span.0.div_ceil(1_000_000_000) {
        0 => Err(unprocessable(
            "it lasts no time",
            "give it a second at least",
        )),
        seconds => Ok(seconds),
    }
}

fn target(asked: &ReservationTarget) -> Result<TargetAsk, Failure> {
    match (&asked.volume, &asked.stores[..], &asked.export) {
        (Some(volume), [], None) => Ok(TargetAsk::Volume(volume.clone())),
        (None, [_, ..], None) => Ok(TargetAsk::Stores {
            stores: asked.stores.clone(),
            stripe: asked.stripe,
            scope: asked.scope.clone().unwrap_or_default(),
        }),
        (None, [], Some(_)) => Err(unprocessable(
            "exports cannot be reserved for yet",
            "reserve for a volume or for stores",
        )),
        _ => Err(unprocessable(
            "a target is exactly one of volume, stores and export",
            format!("send such as {ASK}"),
        )),
    }
}

fn plan_kind(text: Option<&str>) -> Result<PlanKind, Failure> {
    match text {
        None | Some("any") => Ok(PlanKind::Any),
        Some("spread") => Ok(PlanKind::Spread),
        Some(other) => Err(unprocessable(
            format!("'{other}' is no plan"),
            "write any or spread",
        )),
    }
}

/// What is asked for, the second being `now`.
fn ask(asked: &ReservationAsk, account: String, now: Second) -> Result<Ask, Failure> {
    let from = match asked.from.as_deref() {
        None | Some("now") => now,
        Some(text) => when::read(text, now)
            .map_err(|why| unprocessable(why, "say when it begins, or leave it out for now"))?,
    };
    let window = asked.window.as_deref().unwrap_or("1s");
    let window = config::read_span(window).map_err(|why| unprocessable(why, "write such as 1s"))?;
    let percent = asked.probability_percent.unwrap_or(99.0);
    if !(percent > 0.0 && percent <= 100.0) {
        let error = format!("a probability of {percent} % makes no sense");
        return Err(unprocessable(error, "write more than 0 and at most 100"));
    }
    let space = match &asked.space {
        None => 0,
        Some(text) => {
            let space: Result<base::Bytes, _> = text.parse();
            let odd = |why| {
                unprocessable(
                    format!("'{text}' is no size: {why}"),
                    "write such as 100GiB",
                )
            };
            space.map_err(odd)?.0
        }
    };
    let span = match asked.span.as_str() {
        "" => {
            return Err(unprocessable(
                "it lasts no time",
                "say for how long: \"for\": \"2h\"",
            ));
        }
        text => seconds(text)?,
    };
    if asked.idle.is_some() {
        return Err(unprocessable(
            "a reservation does not end by itself yet where nothing is asked under it",
            "leave idle out, and release it when it is not needed any more",
        ));
    }
    Ok(Ask {
        name: asked.name.clone(),
        account,
        target: target(&asked.target)?,
        promise: Promise {
            read: rate(asked.read.as_ref())?,
            write: rate(asked.write.as_ref())?,
            from: from.0,
            until: from.0.saturating_add(span),
            tolerate: asked.tolerate.unwrap_or(1),
            plan: plan_kind(asked.plan.as_deref())?,
            window_ns: window.0,
            probability_ppm: (percent * 10_000.0).round() as u32,
            space,
        },
        tolerate_said: asked.tolerate.is_some(),
        from_said: !matches!(asked.from.as_deref(), None | Some("now")),
    })
}

// --- answers --------------------------------------------------------------------------------------------

/// A reservation as it is shown.
fn whole(known: &Versioned, facts: &Facts) -> WholeReservation {
    let Reservation {
        name,
        account,
        target,
        promise,
        state,
        cause,
        parts,
        ..
    } = &known.record;
    let target = match target {
        Target::Volume { name, .. } => ReservationTarget {
            volume: Some(name.clone()),
            ..ReservationTarget::default()
        },
        Target::Stores {
            stores,
            stripe,
            scope,
        } => ReservationTarget {
            stores: stores.iter().map(|it| facts.label(*it)).collect(),
            stripe: *stripe,
            scope: Some(scope.clone()),
            ..ReservationTarget::default()
        },
    };
    let (read, write) = promised_now(&known.record, facts);
    let part = |it: &reservations::record::Part| ReservationPart {
        store: facts.label(it.store),
        number: it.number,
        direction: it.direction().name().to_owned(),
        rate_bytes_per_second: it.rate,
    };
    WholeReservation {
        id: known.id.to_string(),
        name: name.clone(),
        account: account.clone(),
        target,
        state: state.name().to_owned(),
        cause: cause.clone(),
        read_bytes_per_second: promise.read,
        write_bytes_per_second: promise.write,
        promised_now: PromisedNow {
            read_bytes_per_second: read,
            write_bytes_per_second: write,
        },
        from_unix_seconds: promise.from,
        until_unix_seconds: promise.until,
        tolerate: promise.tolerate,
        plan: match promise.plan {
            PlanKind::Any => "any",
            PlanKind::Spread => "spread",
        }
        .to_owned(),
        parts: parts.iter().map(part).collect(),
        capability: None,
    }
}

/// `tanadaset1.` and the capabilities in base64url; nothing where there are none.
fn capability_set(all: &[StoreCapability]) -> Option<String> {
    let json = serde_json::to_vec(all).expect("plain texts");
    (!all.is_empty()).then(|| format!("{SET}{}", URL_SAFE_NO_PAD.encode(json)))
}

/// What would fit, in numbers and texts.
fn offered(offer: &Offer, promise: &Promise) -> ReservationOffer {
    let of = match promise.read {
        0 => promise.write,
        read => read,
    };
    let part = |permille: u32| u128::from(of) * u128::from(permille) / 1000;
    ReservationOffer {
        fits: offer.fits,
        earliest_unix_seconds: offer.earliest.map(|at| at.0),
        largest_permille: offer.largest_permille,
        largest: offer
            .largest_permille
            .map(|it| BytesPerSec(part(it) as u64).to_string()),
        longest_seconds: offer.longest_seconds,
        refused: offer
            .refused
            .iter()
            .map(|(store, why)| format!("on {store}: {why}"))
            .collect(),
    }
}

/// What would fit, in a sentence.
fn instead(offer: &ReservationOffer) -> String {
    let mut ways = Vec::new();
    if let Some(at) = offer.earliest_unix_seconds {
        ways.push(format!("the time from {} on", when::utc(Second(at))));
    }
    if let Some(rate) = &offer.largest {
        ways.push(format!("at most {rate}"));
    }
    if let Some(seconds) = offer.longest_seconds {
        ways.push(format!("at most {seconds} s"));
    }
    match ways.is_empty() {
        true => "it fits at no time: ask for less".to_owned(),
        false => format!("ask for {}", ways.join(", or for ")),
    }
}

/// Why it was not made; where it does not fit, with what would.
async fn refused(service: &Service, ask: &Ask, error: ReservationError) -> NotDone {
    if !matches!(error, ReservationError::Refused { .. }) {
        return NotDone::Failure(failure(&error));
    }
    let offer = service.quote(ask).await.ok();
    let offer = offer.map(|it| offered(&it, &ask.promise));
    NotDone::Refused(Box::new(ReservationRefusal {
        error: error.to_string(),
        what_to_do: offer.as_ref().map_or_else(String::new, instead),
        offer,
    }))
}

async fn shown(service: &Service, known: &Versioned) -> Result<WholeReservation, ReservationError> {
    Ok(whole(known, &service.facts().await?))
}

// --- requests -------------------------------------------------------------------------------------------

/// Reserves for a volume, or for a set of stores; where the account has one of this name on the same terms, that one.
#[utoipa::path(post, path = "/v2/reservations", request_body = ReservationAsk,
    params(ReservationQuery), responses(
    (status = 200, description = "It was there already; with dry_run: what would fit", body = WholeReservation),
    (status = 201, description = "It was made", body = WholeReservation),
    (status = 404, description = "This daemon is in no cluster", body = Refusal),
    (status = 409, description = "It does not fit; `offer` says what would", body = ReservationRefusal),
    (status = 422, body = Refusal),
    (status = 503, description = "A store or the meta store does not answer", body = Refusal),
))]
pub(super) async fn create(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    query: Result<Query<ReservationQuery>, QueryRejection>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Result<Response, NotDone> {
    let query = read_query(query)?;
    let asked: ReservationAsk = body(&headers, &text, ASK)?;
    let account = meant(&caller, asked.account.as_deref());
    check(&caller, Action::Book, &account)?;
    let shows = check(&caller, Action::Capability, &account).is_ok();
    let done = ClusterThread(&control).at_open(async move |open| {
        let service = &open.reservations.service;
        let ask = ask(&asked, account, service.now())?;
        if query.dry_run {
            let offer = service.quote(&ask).await.map_err(|error| failure(&error))?;
            return Ok((None, offered(&offer, &ask.promise)));
        }
        let (known, is_new) = match service.create(ask.clone()).await {
            Ok(made) => made,
            Err(error) => return Err(refused(service, &ask, error).await),
        };
        let mut made = shown(service, &known)
            .await
            .map_err(|error| failure(&error))?;
        if shows {
            let capabilities = service.capabilities(&known).await;
            made.capability = capability_set(&capabilities.map_err(|error| failure(&error))?);
        }
        Ok::<_, NotDone>((Some((made, is_new)), ReservationOffer::default()))
    });
    Ok(match done.await?? {
        (Some((made, true)), _) => (StatusCode::CREATED, Json(made)).into_response(),
        (Some((made, false)), _) => Json(made).into_response(),
        (None, offer) => Json(offer).into_response(),
    })
}

fn read_query(
    query: Result<Query<ReservationQuery>, QueryRejection>,
) -> Result<ReservationQuery, Failure> {
    let query = query.map_err(|error| {
        unprocessable(
            error.body_text(),
            "the keys are account, and dry_run with true or false",
        )
    });
    query.map(|Query(query)| query)
}

/// All reservations over the cluster, those lately over among them.
#[utoipa::path(get, path = "/v2/reservations", responses((status = 200, body = Vec<WholeReservation>)))]
pub(super) async fn list(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
) -> Answer<Vec<WholeReservation>> {
    let all = ClusterThread(&control).at_open(async |open| {
        let service = &open.reservations.service;
        let facts = service.facts().await?;
        let mut all = service.all().await?;
        all.sort_by_key(|it| (it.record.promise.from, it.id));
        Ok::<_, ReservationError>(all.iter().map(|it| whole(it, &facts)).collect::<Vec<_>>())
    });
    let mut all = all.await?.map_err(|error| failure(&error))?;
    all.iter_mut().for_each(|it| hide(&caller, it));
    Ok(Json(all))
}

/// One of them, by its id, or by its name in `account`.
#[utoipa::path(get, path = "/v2/reservations/{name}", params(("name" = String, Path), ReservationQuery), responses(
    (status = 200, body = WholeReservation),
    (status = 404, body = Refusal),
))]
pub(super) async fn show(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    query: Result<Query<ReservationQuery>, QueryRejection>,
) -> Answer<WholeReservation> {
    let account = meant(&caller, Some(&read_query(query)?.account));
    let one = ClusterThread(&control).at_open(async move |open| {
        let service = &open.reservations.service;
        shown(service, &service.find(&account, &name).await?).await
    });
    let mut one = one.await?.map_err(|error| failure(&error))?;
    hide(&caller, &mut one);
    Ok(Json(one))
}

/// Its capability once more, for its holder; none of a volume, whose clients need none.
#[utoipa::path(post, path = "/v2/reservations/{name}/capability", params(("name" = String, Path), ReservationQuery), responses(
    (status = 200, body = WholeReservation),
    (status = 404, body = Refusal),
    (status = 409, description = "It is over", body = Refusal),
))]
pub(super) async fn capability(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    query: Result<Query<ReservationQuery>, QueryRejection>,
) -> Answer<WholeReservation> {
    let account = meant(&caller, Some(&read_query(query)?.account));
    let one = ClusterThread(&control).at_open(async move |open| {
        let service = &open.reservations.service;
        let known = service.find(&account, &name).await;
        let known = known.map_err(|error| failure(&error))?;
        check(&caller, Action::Capability, &known.record.account)?;
        let whole = async {
            let capability = capability_set(&service.capabilities(&known).await?);
            Ok(WholeReservation {
                capability,
                ..shown(service, &known).await?
            })
        };
        whole
            .await
            .map_err(|error: ReservationError| failure(&error))
    });
    one.await?.map(Json)
}

/// Changes its rates or its end without a gap.
#[utoipa::path(patch, path = "/v2/reservations/{name}", request_body = ReservationChange,
    params(("name" = String, Path), ReservationQuery), responses(
    (status = 200, body = WholeReservation),
    (status = 404, body = Refusal),
    (status = 409, description = "It does not fit, is over, or is being changed; it stays as it was", body = Refusal),
    (status = 422, body = Refusal),
))]
pub(super) async fn change(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    query: Result<Query<ReservationQuery>, QueryRejection>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<WholeReservation> {
    let account = meant(&caller, Some(&read_query(query)?.account));
    let asked: ReservationChange = body(&headers, &text, CHANGE)?;
    let rates = |text: &Option<String>| text.as_ref().map(|it| rate(Some(it))).transpose();
    let (read, write) = (rates(&asked.read)?, rates(&asked.write)?);
    let span = asked.span.as_deref().map(seconds).transpose()?;
    let one = ClusterThread(&control).at_open(async move |open| {
        let service = &open.reservations.service;
        let known = service.find(&account, &name).await;
        let known = known.map_err(|error| failure(&error))?;
        check(&caller, Action::Book, &known.record.account)?;
        let change = Change {
            read,
            write,
            until: span.map(|it| service.now().0.max(known.record.promise.from) + it),
        };
        let done = async { shown(service, &service.amend(known, change).await?).await };
        done.await.map_err(|error| failure(&error))
    });
    one.await?.map(Json)
}

/// Ends it. Answered when all stores in reach have cut its clients off.
#[utoipa::path(delete, path = "/v2/reservations/{name}", params(("name" = String, Path), ReservationQuery), responses(
    (status = 200, body = WholeReservation),
    (status = 404, body = Refusal),
))]
pub(super) async fn release(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    query: Result<Query<ReservationQuery>, QueryRejection>,
) -> Answer<WholeReservation> {
    let account = meant(&caller, Some(&read_query(query)?.account));
    let one = ClusterThread(&control).at_open(async move |open| {
        let service = &open.reservations.service;
        let known = service.find(&account, &name).await;
        let known = known.map_err(|error| failure(&error))?;
        check(&caller, Action::Book, &known.record.account)?;
        let done = async { shown(service, &service.release(known, "released").await?).await };
        done.await.map_err(|error| failure(&error))
    });
    one.await?.map(Json)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> ReservationAsk {
        serde_json::from_str(ASK).unwrap()
    }

    #[test]
    fn the_example_is_read_as_it_is_meant() {
        let read = ask(&asked(), String::new(), Second(1_795_345_200))
            .ok()
            .unwrap();
        assert_eq!(read.target, TargetAsk::Volume("vm1".to_owned()));
        assert_eq!((read.promise.read, read.promise.write), (200_000_000, 0));
        assert_eq!(read.promise.until - read.promise.from, 7200);
        assert!(read.from_said && !read.tolerate_said);
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_what_can() {
        let with = |change: fn(&mut ReservationAsk)| {
            let mut it = asked();
            change(&mut it);
            match ask(&it, String::new(), Second(1_795_345_200)) {
                Ok(_) => panic!("{it:?} was taken"),
                Err(failure) => (failure.refusal.error, failure.refusal.what_to_do),
            }
        };
        for (error, todo) in [
            with(|it| it.read = Some("fast".to_owned())),
            with(|it| it.span = String::new()),
            with(|it| it.span = "0s".to_owned()),
            with(|it| it.from = Some("yesteryear".to_owned())),
            with(|it| it.plan = Some("best".to_owned())),
            with(|it| it.probability_percent = Some(0.0)),
            with(|it| it.space = Some("much".to_owned())),
            with(|it| it.target = ReservationTarget::default()),
            with(|it| it.target.stores = vec!["s0".to_owned()]),
        ] {
            assert!(!error.is_empty() && !todo.is_empty(), "{error}: {todo}");
        }
    }

    #[test]
    fn a_capability_set_is_read_back() {
        let one = StoreCapability {
            store: "00".to_owned(),
            address: "127.0.0.1:1".to_owned(),
            token: "tanada1.x.y".to_owned(),
        };
        let set = capability_set(std::slice::from_ref(&one)).unwrap();
        let json = URL_SAFE_NO_PAD
            .decode(set.strip_prefix(SET).unwrap())
            .unwrap();
        assert_eq!(
            serde_json::from_slice::<Vec<StoreCapability>>(&json).unwrap(),
            [one]
        );
        assert_eq!(capability_set(&[]), None);
    }
}
