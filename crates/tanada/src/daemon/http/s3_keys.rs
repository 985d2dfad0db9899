//! Gateways and access keys of S3 clients over the admin API.
//!
//! Always true: a secret is in one answer, that of its making, and in no other.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use access::caller::Caller;
use access::name::AccountName;
use access::registry::{AccessError, Registry};
use access::role::Action;
use access::s3_buckets::S3Buckets;
use access::s3_keys::{S3Key as Record, S3Keys, S3Terms as Terms};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};

use super::account_records::Accounts;
use super::control::{Answer, Control, Failure, body};
use super::s3_terms::{change_of, terms_shown};
use crate::api::refusal::Refusal;
use crate::api::s3::{MadeS3Key, NewS3Key, S3Gateway, S3Key};
use crate::daemon::common::when::unix_seconds;
use crate::daemon::s3::keys::AllTerms;
use reservations::record::ReservationId;
use reservations::records::Records as Reservations;

/// How often is looked which keys are good.
const EVERY: Duration = Duration::from_secs(1);

/// Tells gateways which keys are good.
pub async fn look(control: &Control) {
    if !control.s3.keys.is_used() || control.records.were_never_made() {
        return;
    }
    let now = unix_seconds() as u64;
    let found = control.records.with(&control.threads, async move |meta| {
        let reservations = Reservations(Rc::clone(&meta));
        all_of(&Registry::new(meta), &reservations, now).await
    });
    match found.await {
        Ok(Ok(all)) => control.s3.keys.take_over(all),
        Ok(Err(error)) => tracing::warn!("access keys stay as they were: {error}"),
        Err(silent) => tracing::warn!("access keys stay as they were: {silent}"),
    }
}

/// Keys and buckets, and the reservations that they name.
async fn all_of(
    registry: &Registry,
    reservations: &Reservations,
    now: u64,
) -> Result<AllTerms, AccessError> {
    let keys = S3Keys(registry).all(now).await?;
    let buckets = S3Buckets(registry).all().await?;
    let of_keys = keys.iter().filter_map(|it| it.1.terms.reservation.clone());
    let of_buckets = buckets.iter().map(|it| it.2.terms.reservation.clone());
    let named: BTreeSet<String> = of_keys.chain(of_buckets.flatten()).collect();
    let mut found = BTreeMap::new();
    for id in named {
        let known = match ReservationId::parse(&id) {
            Some(id) => reservations.get(id).await,
            None => Ok(None),
        };
        match known {
            Ok(Some(known)) if known.record.state.stands() => {
                found.insert(id, known);
            }
            // It is over: its keys go on, and are promised nothing.
            Ok(_) => {}
            Err(error) => tracing::warn!("a reservation of access keys is left alone: {error}"),
        }
    }
    Ok(AllTerms {
        keys,
        buckets,
        reservations: found,
    })
}

/// Keeps gateways to what is so; until it is given up.
pub async fn keep(control: Arc<Control>) {
    loop {
        look(&control).await;
        tokio::time::sleep(EVERY).await;
    }
}

pub(super) fn shown(id: String, key: &Record, good: bool) -> S3Key {
    S3Key {
        id,
        account: key.account.as_ref().map(ToString::to_string),
        good,
        created_unix_seconds: key.created,
        note: key.note.clone(),
        terms: terms_shown(&key.terms),
        until_unix_seconds: key.lasts.as_ref().map(|it| it.until),
    }
}

/// All keys, by name, and whether each is good now.
pub(super) async fn all_keys(control: &Control) -> Result<Vec<(String, Record, bool)>, Failure> {
    let now = unix_seconds() as u64;
    let all = Accounts(control).ask(async move |it| S3Keys(it).all(now).await);
    all.await
}

/// A new name and secret, and the secret sealed.
pub(super) fn fresh(control: &Control) -> Result<(String, String, String), Failure> {
    let fresh = control.s3.keys.fresh().map_err(|error| {
        let todo = "look at the daemon's log";
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string(), todo)
    })?;
    fresh.ok_or_else(|| {
        Failure::new(
            StatusCode::CONFLICT,
            "this daemon has no gateway for S3 clients",
            "add an [[s3]] to its configuration, and start it anew",
        )
    })
}

/// May the caller see and delete the keys of this account? Those of the owner are an admin's.
fn may(caller: &Caller, account: Option<&AccountName>) -> bool {
    caller.may(Action::Tokens, account)
}

/// The gateways of this daemon.
#[utoipa::path(get, path = "/v1/s3", responses((status = 200, body = Vec<S3Gateway>)))]
pub(super) async fn get_gateways(State(control): State<Arc<Control>>) -> Json<Vec<S3Gateway>> {
    Json(control.s3.gateways())
}

/// The access keys of the caller's account, or, for an admin, all; without their secrets.
#[utoipa::path(get, path = "/v1/s3/keys", responses(
    (status = 200, body = Vec<S3Key>),
    (status = 503, description = "The meta store is silent", body = Refusal),
))]
pub(super) async fn get_keys(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
) -> Answer<Vec<S3Key>> {
    let all = all_keys(&control).await?;
    let may_see = all
        .into_iter()
        .filter(|(_, key, _)| may(&caller, key.account.as_ref()));
    Ok(Json(
        may_see
            .map(|(id, key, good)| shown(id, &key, good))
            .collect(),
    ))
}

/// Makes an access key: the answer shows its secret, and no other one ever does.
#[utoipa::path(post, path = "/v1/s3/keys", request_body = NewS3Key, responses(
    (status = 200, body = MadeS3Key),
    (status = 403, description = "It takes an admin", body = Refusal),
    (status = 404, description = "No such account", body = Refusal),
    (status = 409, description = "This daemon has no gateway", body = Refusal),
    (status = 422, description = "A name or a note that cannot be", body = Refusal),
    (status = 503, description = "The meta store is silent", body = Refusal),
))]
pub(super) async fn create_key(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<MadeS3Key> {
    let ask: NewS3Key = body(
        &headers,
        &text,
        r#"{"account": "astro", "note": "backups"}"#,
    )?;
    let account = ask
        .account
        .as_deref()
        .map(super::accounts::called)
        .transpose()?;
    let (id, secret, sealed) = fresh(&control)?;
    let mut terms = Terms::default();
    if let Some(asked) = &ask.terms {
        let change = change_of(&control, &caller, account.as_ref(), asked).await?;
        change.apply(&mut terms);
    }
    let wanted = Record {
        version: 1,
        account,
        account_id: 0,
        sealed,
        created: unix_seconds() as u64,
        note: ask.note,
        terms,
        lasts: None,
    };
    let name = id.clone();
    let made = Accounts(&control).ask(async move |it| S3Keys(it).make(&name, wanted).await);
    let key = made.await?;
    look(&control).await;
    Ok(Json(MadeS3Key {
        secret,
        session_token: None,
        about: shown(id, &key, true),
    }))
}

/// Deletes an access key: one of the caller's account, or, for an admin, any. It is let in no more.
#[utoipa::path(delete, path = "/v1/s3/keys/{id}", params(("id" = String, Path)), responses(
    (status = 200, body = S3Key),
    (status = 403, description = "Another account's takes an admin", body = Refusal),
    (status = 404, body = Refusal),
    (status = 503, description = "The meta store is silent", body = Refusal),
))]
pub(super) async fn delete_key(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer<S3Key> {
    let all = all_keys(&control).await?;
    let found = all.iter().find(|it| it.0 == id);
    if let Some((_, key, _)) = found {
        caller.check(Action::Tokens, key.account.as_ref())?;
    }
    let name = id.clone();
    let gone = Accounts(&control).ask(async move |it| S3Keys(it).delete(&name).await);
    let key = gone.await?;
    control.s3.keys.end(&id);
    Ok(Json(shown(id, &key, false)))
}
