//! Reservations over the cluster by the admin API: made, asked about, changed, released.
//!
//! ```text
//! request: texts -> Ask -> the service on the cluster's thread -> WholeReservation | why not, and what would fit
//! ```
//!
//! An account sees and changes its own; an operator those of all, but a capability is its account's alone.
//!
//! Always true: what was begun is done or undone, whether or not the client waits for its answer.

use std::rc::Rc;
use std::sync::Arc;

use access::caller::Caller;
use access::name::AccountName;
use access::role::Action;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use reservations::ReservationError;
use reservations::ask::Ask;
use reservations::capability::encode_set;
use reservations::record::ReservationId;
use reservations::records::Versioned;
use reservations::service::{Change, Service};
use vdisk::meta::MetaError;

use super::cluster_thread::ClusterThread;
use super::control;
use super::control::{Answer, Control, Failure, NotMade, body};
use super::reservation_words::{
    ASK, CHANGE, ask, instead, offered, rate, seconds, unprocessable, whole,
};
use crate::api::refusal::Refusal;
use crate::api::reservation::{
    RELEASED, ReservationAsk, ReservationChange, ReservationOffer, ReservationQuery,
    ReservationRefusal, WholeReservation,
};

type NotDone = NotMade<ReservationRefusal>;

/// Why it was not done, and what to do.
pub(super) fn failure(error: &ReservationError) -> Failure {
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
    let todo = match error {
        ReservationError::Refused { .. } => {
            "ask for less or for another time; `tanada reservation create --dry-run` says what would fit"
        }
        ReservationError::Meta(_) => "look at the meta store (`tanada node list`), and try again",
        ReservationError::Record(_) => "use the program that wrote it, or remove the record",
        _ => {
            let todo = "`tanada reservation list` shows what there is";
            return Failure::of_sentence(status, &said, todo);
        }
    };
    Failure::new(status, said.as_str(), todo)
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
pub(super) fn meant(caller: &Caller, named: Option<&str>) -> String {
    let own = || caller.account.as_ref().map(AccountName::to_string);
    let named = named.filter(|it| !it.is_empty()).map(str::to_owned);
    named.or_else(own).unwrap_or_default()
}

fn check(caller: &Caller, action: Action, account: &str) -> Result<(), Failure> {
    Ok(caller.check(action, owner(account)?.as_ref())?)
}

/// The reservation of this id, or of this name in `account`, where the caller may do `action` to it.
pub(super) async fn allowed(
    service: &Service,
    caller: &Caller,
    action: Action,
    (account, name): (&str, &str),
) -> Result<Versioned, Failure> {
    let known = service.find(account, name).await;
    let known = known.map_err(|error| failure(&error))?;
    let is_agent =
        action == Action::Capability && is_agent(caller, known.record.terms.agent.as_deref());
    if !is_agent {
        check(caller, action, &known.record.account)?;
    }
    Ok(known)
}

/// Is the caller the agent that was named with the reservation?
fn is_agent(caller: &Caller, agent: Option<&str>) -> bool {
    let own = caller.account.as_ref().map(AccountName::to_string);
    own.is_some() && own.as_deref() == agent
}

/// Takes from an answer what the caller may not see of others.
fn hide(caller: &Caller, it: &mut WholeReservation) {
    let seen = owner(&it.account).is_ok_and(|owner| caller.may(Action::Names, owner.as_ref()));
    if !seen {
        it.name.clear();
        it.account.clear();
        it.target.scope = None;
        it.terms.agent = None;
        // It may name an account, an allotment, another reservation.
        it.cause = None;
    }
}

/// Why it was not made; where it does not fit, with what would.
async fn refused(service: &Service, ask: &Ask, error: ReservationError) -> NotDone {
    let may_fit_otherwise = matches!(
        error,
        ReservationError::Refused { .. }
            | ReservationError::Clash { .. }
            | ReservationError::Quota(_)
    );
    if !may_fit_otherwise {
        return NotDone::Failure(failure(&error));
    }
    let offer = service.quote_now(ask).await.and_then(Result::ok);
    let offer = offer.filter(|it| !it.fits);
    let offer = offer.map(|it| offered(&it, &ask.promise));
    let is_of_room = matches!(error, ReservationError::Refused { .. });
    let Refusal { error, what_to_do } = failure(&error).refusal;
    NotDone::Refused(Box::new(ReservationRefusal {
        error,
        // A quota that leaves nothing says itself what helps.
        what_to_do: match offer.as_ref().filter(|it| is_of_room || it.has_some()) {
            Some(offer) => instead(offer),
            None => what_to_do,
        },
        offer,
    }))
}

async fn shown(service: &Service, known: &Versioned) -> Result<WholeReservation, ReservationError> {
    Ok(whole(known, &service.facts().await?))
}

/// Puts in its capability set. It is made or changed all the same: else the answer says why there is none.
async fn put_capability(service: &Service, known: &Versioned, made: &mut WholeReservation) {
    match service.capabilities(known).await {
        Ok(all) => made.capability = encode_set(&all),
        Err(error) => made.lacks.capability_error = Some(error.to_string()),
    }
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
    if !shows && is_agent(&caller, asked.agent.as_deref()) {
        // Who books for others would have their capabilities so.
        return Err(NotDone::Failure(unprocessable(
            "the agent is the account that books for another one",
            "name an account of its own as agent, whose token the agent alone has",
        )));
    }
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
        made.lacks.links_not_booked = open.reservations.links_not_booked(&known.record);
        if shows {
            put_capability(service, &known, &mut made).await;
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
    control::query(
        query,
        "the keys are account, and dry_run with true or false",
    )
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
    let sees_names = caller.may(Action::Names, owner(&account)?.as_ref());
    let one = ClusterThread(&control).at_open(async move |open| {
        let service = &open.reservations.service;
        if ReservationId::parse(&name).is_none() && !sees_names {
            // Whether there is one of this name is not told either.
            return Err(ReservationError::Absent(name));
        }
        shown(service, &service.find(&account, &name).await?).await
    });
    let mut one = one.await?.map_err(|error| failure(&error))?;
    hide(&caller, &mut one);
    Ok(Json(one))
}

/// Has `work` done with the one of this name, or id, that the caller may do `action` to.
async fn with_one(
    control: &Control,
    caller: Caller,
    (name, query): (String, Result<Query<ReservationQuery>, QueryRejection>),
    action: Action,
    work: impl AsyncFnOnce(Rc<Service>, Caller, Versioned) -> Result<WholeReservation, ReservationError>
    + Send
    + 'static,
) -> Answer<WholeReservation> {
    let account = meant(&caller, Some(&read_query(query)?.account));
    let one = ClusterThread(control).at_open(async move |open| {
        let service = Rc::clone(&open.reservations.service);
        let known = allowed(&service, &caller, action, (&account, &name)).await?;
        let done = work(service, caller, known).await;
        done.map_err(|error| failure(&error))
    });
    one.await?.map(Json)
}

/// Its capability once more, for its holder; none of a volume or an export, whose clients need none.
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
    let work = async |service: Rc<Service>, _, known: Versioned| {
        let capability = encode_set(&service.capabilities(&known).await?);
        Ok(WholeReservation {
            capability,
            ..shown(&service, &known).await?
        })
    };
    with_one(&control, caller, (name, query), Action::Capability, work).await
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
    let asked: ReservationChange = body(&headers, &text, CHANGE)?;
    let rates = |text: &Option<String>| text.as_ref().map(|it| rate(Some(it))).transpose();
    let (read, write) = (rates(&asked.read)?, rates(&asked.write)?);
    let span = asked.span.as_deref().map(seconds).transpose()?;
    let work = async move |service: Rc<Service>, caller: Caller, known: Versioned| {
        let shows = check(&caller, Action::Capability, &known.record.account).is_ok();
        let change = Change {
            read,
            write,
            until: span.map(|it| service.now().0.max(known.record.promise.from) + it),
        };
        let amended = service.amend(known, change).await?;
        let mut changed = shown(&service, &amended).await?;
        if shows {
            // Those of before are good, but for a part that was made anew.
            put_capability(&service, &amended, &mut changed).await;
        }
        Ok(changed)
    };
    with_one(&control, caller, (name, query), Action::Book, work).await
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
    let work = async |service: Rc<Service>, _, known: Versioned| {
        shown(&service, &service.release(known, RELEASED).await?).await
    };
    with_one(&control, caller, (name, query), Action::Book, work).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_the_account_that_was_named_and_no_other() {
        let of = |account: Option<&str>| Caller {
            account: account.map(|it| it.parse().unwrap()),
            ..Caller::nothing()
        };
        assert!(is_agent(&of(Some("slurm-agent")), Some("slurm-agent")));
        assert!(!is_agent(&of(Some("slurm")), Some("slurm-agent")));
        assert!(!is_agent(&of(Some("slurm")), None));
        // The daemon's owner is no account, and nothing is named after it.
        assert!(!is_agent(&of(None), None));
    }
}
