//! How requests of S3 clients are served, by the admin API: reservations and caps of keys and buckets, temporary keys.
//!
//! ```text
//! change: texts -> is the reservation the account's, of stores, of those of a gateway here? -> record -> gateways look at once
//! credentials: reservation -> its capability set is the session token of a key that is good for a time
//! ```
//!
//! Always true:
//! 1. A key or a bucket comes under reservations of its own account alone.
//! 2. Caps are set by who may set those of accounts. What an account gets whatever its keys is the cap of the account.
//! 3. A temporary key is made by its own account alone.

use std::sync::Arc;

use access::caller::Caller;
use access::name::AccountName;
use access::role::{Action, Whose};
use access::s3_buckets::S3Buckets;
use access::s3_keys::{S3Key as Record, S3Keys, S3Terms as Terms, Temporary};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use reservations::capability::encode_set;
use reservations::record::Target;
use reservations::records::Versioned;
use ring::digest::{SHA256, digest};
use vdisk::cluster::set::CapChange;

use super::account_records::Accounts;
use super::cluster_thread::ClusterThread;
use super::control::{Answer, Control, Failure, body, unprocessable};
use super::disk_terms::cap_change;
use super::reservations::{allowed, failure, meant};
use super::s3_keys::{all_keys, fresh, look, shown};
use crate::api::refusal::Refusal;
use crate::api::s3::{MadeS3Key, NewS3Credentials, S3Bucket, S3Change, S3Gateway, S3Key, S3Terms};
use crate::daemon::common::when::unix_seconds;

/// A temporary key is good for at most so many seconds.
const LASTS_MAX: u64 = 12 * 3600;

/// As the API shows them.
pub(super) fn terms_shown(terms: &Terms) -> S3Terms {
    S3Terms {
        reservation: terms.reservation.clone(),
        max_read: terms.caps.read,
        max_write: terms.caps.write,
        max_read_iops: terms.caps.read_iops,
        max_write_iops: terms.caps.write_iops,
    }
}

/// A change, checked: what is `None` stays.
#[derive(Debug, Clone, Default)]
pub(super) struct TermsChange {
    reservation: Option<Option<String>>,
    caps: CapChange,
}

impl TermsChange {
    pub(super) fn apply(&self, terms: &mut Terms) {
        if let Some(reservation) = &self.reservation {
            terms.reservation.clone_from(reservation);
        }
        terms.caps = self.caps.applied(terms.caps);
    }
}

/// What is asked of caps; who may not set those is refused.
fn caps_of(asked: &S3Change, caller: &Caller) -> Result<CapChange, Failure> {
    let texts = [
        asked.max_read.as_deref(),
        asked.max_write.as_deref(),
        asked.max_read_iops.as_deref(),
        asked.max_write_iops.as_deref(),
    ];
    if texts.iter().all(Option::is_none) {
        return Ok(CapChange::default());
    }
    caller.check(Action::Accounts, None)?;
    cap_change(texts)
}

/// What is asked, for a key or a bucket of `account`.
pub(super) async fn change_of(
    control: &Control,
    caller: &Caller,
    account: Option<&AccountName>,
    asked: &S3Change,
) -> Result<TermsChange, Failure> {
    let caps = caps_of(asked, caller)?;
    let reservation = match asked.reservation.as_deref() {
        None => None,
        Some("") => {
            caller.check(Action::Book, account)?;
            Some(None)
        }
        Some(name) => {
            let account = account.map(ToString::to_string).unwrap_or_default();
            let known = found(control, (caller, Action::Book), (&account, name)).await?;
            Some(Some(known.0.id.to_string()))
        }
    };
    Ok(TermsChange { reservation, caps })
}

/// The reservation of stores that is meant, which is the account's own and of all stores of a gateway here; and its
/// capability set, if it can be had.
async fn found(
    control: &Control,
    (caller, action): (&Caller, Action),
    (account, name): (&str, &str),
) -> Result<(Versioned, Option<String>), Failure> {
    let (who, whose, named) = (caller.clone(), account.to_owned(), name.to_owned());
    let asked = ClusterThread(control).at_open(async move |open| {
        let service = &open.reservations.service;
        let known = allowed(service, &who, action, (&whose, &named)).await?;
        let facts = service.facts().await.map_err(|error| failure(&error))?;
        let set = service.capabilities(&known).await.ok();
        let labels = match &known.record.target {
            Target::Stores { stores, .. } => stores.iter().map(|it| facts.label(*it)).collect(),
            _ => Vec::new(),
        };
        Ok::<_, Failure>((known, set.as_deref().and_then(encode_set), labels))
    });
    let (known, set, labels) = asked.await??;
    if known.record.account != account {
        return Err(unprocessable(
            format!("reservation {name} is another account's"),
            "reserve in the account of the key or the bucket",
        ));
    }
    let gateways = control.s3.gateways();
    let over_stores = gateways.iter().filter(|it| !it.stores.is_empty());
    let mut over_stores = over_stores.peekable();
    if over_stores.peek().is_none() && !gateways.is_empty() {
        return Err(unprocessable(
            "keys and buckets of a gateway on a volume have caps, and no reservations of their own"
                .to_owned(),
            "reserve for the volume, and so for all of them together: `tanada reservation create NAME --volume VOLUME`",
        ));
    }
    let is_of_all = |it: &S3Gateway| it.stores.iter().all(|it| labels.contains(it));
    if known.record.terms.allotment || !over_stores.any(is_of_all) {
        return Err(unprocessable(
            format!("reservation {name} is not of the stores of a gateway of this daemon"),
            "reserve with `tanada reservation create NAME --store` for each store that `tanada s3 list` shows",
        ));
    }
    Ok((known, set))
}

/// Changes under which reservation requests with a key come, and what they get at most.
#[utoipa::path(patch, path = "/v1/s3/keys/{id}", params(("id" = String, Path)), request_body = S3Change, responses(
    (status = 200, body = S3Key),
    (status = 403, description = "Another account's, or a cap, takes an admin", body = Refusal),
    (status = 404, description = "No such key or reservation", body = Refusal),
    (status = 422, description = "A reservation or a cap that cannot be", body = Refusal),
    (status = 503, description = "The meta store is silent", body = Refusal),
))]
pub(super) async fn set_key(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<S3Key> {
    let asked: S3Change = body(&headers, &text, r#"{"reservation": "gold"}"#)?;
    let all = all_keys(&control).await?;
    let known = all.into_iter().find(|it| it.0 == id);
    let account = known.as_ref().and_then(|it| it.1.account.clone());
    let change = match known {
        Some(_) => {
            caller.check(Action::Tokens, account.as_ref())?;
            change_of(&control, &caller, account.as_ref(), &asked).await?
        }
        // The answer says that there is none.
        None => TermsChange::default(),
    };
    let name = id.clone();
    let set = Accounts(&control)
        .ask(async move |it| S3Keys(it).set(&name, |terms| change.apply(terms)).await);
    let key = set.await?;
    look(&control).await;
    Ok(Json(shown(id, &key, true)))
}

/// The buckets of all gateways of this daemon: those of the caller's account, or, for an admin, all.
#[utoipa::path(get, path = "/v1/s3/buckets", responses(
    (status = 200, body = Vec<S3Bucket>),
    (status = 503, description = "The meta store is silent, or a store", body = Refusal),
))]
pub(super) async fn get_buckets(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
) -> Answer<Vec<S3Bucket>> {
    let said = Accounts(&control)
        .ask(async |it| S3Buckets(it).all().await)
        .await?;
    let mut all = Vec::new();
    for (gateway, index) in control.s3.indexes() {
        let buckets = tokio::task::spawn_blocking(move || index.buckets(None)).await;
        let buckets = buckets.map_err(silent)?.map_err(silent)?;
        for (name, bucket) in buckets {
            let account = account_of(&bucket.owner)?;
            let is_it = |it: &&(String, String, access::s3_buckets::S3Bucket)| {
                (&it.0, &it.1, it.2.bucket) == (&gateway, &name, bucket.id)
            };
            if caller.may(Action::Tokens, account.as_ref()) {
                let terms = said.iter().find(is_it).map(|it| terms_shown(&it.2.terms));
                all.push(S3Bucket {
                    gateway: gateway.clone(),
                    name,
                    account: account.map(|it| it.to_string()),
                    created_unix_seconds: bucket.created / 1000,
                    terms: terms.unwrap_or_default(),
                });
            }
        }
    }
    Ok(Json(all))
}

fn silent(error: impl std::fmt::Display) -> Failure {
    let todo = "look at the daemon's log, and at its stores";
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string(), todo)
}

/// Whose it is, as gateways call accounts: a name, and what tells it from a later one of that name.
fn account_of(owner: &str) -> Result<Option<AccountName>, Failure> {
    let Some((name, _)) = owner.rsplit_once('.') else {
        return Ok(None);
    };
    super::accounts::called(name).map(Some)
}

/// Changes under which reservation requests to a bucket come, and what they get at most.
#[utoipa::path(patch, path = "/v1/s3/buckets/{gateway}/{bucket}",
    params(("gateway" = String, Path), ("bucket" = String, Path)), request_body = S3Change, responses(
    (status = 200, body = S3Bucket),
    (status = 403, description = "Another account's, or a cap, takes an admin", body = Refusal),
    (status = 404, description = "No such gateway, bucket or reservation", body = Refusal),
    (status = 422, description = "A reservation or a cap that cannot be", body = Refusal),
    (status = 503, description = "The meta store is silent, or a store", body = Refusal),
))]
pub(super) async fn set_bucket(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path((gateway, name)): Path<(String, String)>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<S3Bucket> {
    let asked: S3Change = body(&headers, &text, r#"{"max_read": "20MB/s"}"#)?;
    let index = control.s3.indexes().into_iter().find(|it| it.0 == gateway);
    let bucket = match index {
        Some((_, index)) => {
            let named = name.clone();
            let read = tokio::task::spawn_blocking(move || index.bucket(&named)).await;
            read.map_err(silent)?.map_err(silent)?
        }
        None => None,
    };
    let Some(bucket) = bucket else {
        return Err(Failure::new(
            StatusCode::NOT_FOUND,
            format!("there is no bucket {name} at a gateway {gateway}"),
            "`tanada s3 bucket list` shows what there is",
        ));
    };
    let account = account_of(&bucket.owner)?;
    caller.check(Action::Tokens, account.as_ref())?;
    let change = change_of(&control, &caller, account.as_ref(), &asked).await?;
    let (at, named, id) = (gateway.clone(), name.clone(), bucket.id);
    let set = Accounts(&control).ask(async move |it| {
        let bucket = (&*at, &*named, id);
        S3Buckets(it).set(bucket, |terms| change.apply(terms)).await
    });
    let terms = set.await?;
    look(&control).await;
    Ok(Json(S3Bucket {
        gateway,
        name,
        account: account.map(|it| it.to_string()),
        created_unix_seconds: bucket.created / 1000,
        terms: terms_shown(&terms),
    }))
}

/// Makes a temporary access key of a reservation's account: requests with it come under the reservation, and show its
/// capability set as their session token.
#[utoipa::path(post, path = "/v1/s3/credentials", request_body = NewS3Credentials, responses(
    (status = 200, body = MadeS3Key),
    (status = 403, description = "Another account's reservation", body = Refusal),
    (status = 404, description = "No such reservation", body = Refusal),
    (status = 409, description = "This daemon has no gateway", body = Refusal),
    (status = 422, description = "A time or a reservation that cannot be", body = Refusal),
    (status = 503, description = "The meta store is silent, or a store", body = Refusal),
))]
pub(super) async fn create_credentials(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<MadeS3Key> {
    let asked: NewS3Credentials = body(&headers, &text, r#"{"reservation": "gold", "for": "1h"}"#)?;
    let lasts = seconds(&asked.span)?;
    let account = meant(&caller, asked.account.as_deref());
    let owner = account_name(&account)?;
    // A key opens all that its account has: to be the agent of one of its reservations is not enough.
    if caller.whose(owner.as_ref()) != Whose::Own {
        return Err(caller.denied(Action::Capability, Whose::Other).into());
    }
    let action = (&caller, Action::Capability);
    let (known, token) = found(&control, action, (&account, &asked.reservation)).await?;
    let Some(token) = token else {
        return Err(silent(
            "the stores of the reservation do not give its capability now",
        ));
    };
    let (id, secret, sealed) = fresh(&control)?;
    let session = digest(&SHA256, token.as_bytes());
    let hex: String = session
        .as_ref()
        .iter()
        .map(|it| format!("{it:02x}"))
        .collect();
    let now = unix_seconds() as u64;
    let until = (now + lasts).min(known.record.promise.until);
    let wanted = Record {
        version: 1,
        account: owner,
        account_id: 0,
        sealed,
        created: now,
        note: String::new(),
        terms: Terms {
            reservation: Some(known.id.to_string()),
            ..Terms::default()
        },
        lasts: Some(Temporary {
            until,
            session: hex,
        }),
    };
    let name = id.clone();
    let made = Accounts(&control).ask(async move |it| S3Keys(it).make(&name, wanted).await);
    let key = made.await?;
    look(&control).await;
    Ok(Json(MadeS3Key {
        secret,
        session_token: Some(token),
        about: shown(id, &key, true),
    }))
}

/// How long a temporary key is to be good, in seconds.
fn seconds(span: &str) -> Result<u64, Failure> {
    let lasts = config::read_span(span)
        .map_err(|why| unprocessable(format!("for: {why}"), "write a time such as 1h"))?;
    let lasts = lasts.0.div_ceil(1_000_000_000);
    if !(1..=LASTS_MAX).contains(&lasts) {
        return Err(unprocessable(
            format!("a temporary key is good for 1 s to {LASTS_MAX} s"),
            "ask for less, and anew before it is over",
        ));
    }
    Ok(lasts)
}

fn account_name(account: &str) -> Result<Option<AccountName>, Failure> {
    match account {
        "" => Ok(None),
        name => super::accounts::called(name).map(Some),
    }
}
