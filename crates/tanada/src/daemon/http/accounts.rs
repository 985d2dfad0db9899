//! Accounts, their quotas and their tokens over the admin API.
//!
//! ```text
//! request -> names and numbers of users -> registry, in the meta store -> JSON
//! ```
//!
//! Always true: a token's secret is in one answer, that of its making, and in no other.

use std::collections::BTreeSet;
use std::sync::Arc;

use access::account::AccountState;
use access::caller::Caller;
use access::name::AccountName;
use access::registry::Registry;
use access::role::{Action, Role};
use access::token::{LIFETIME, TokenId, TokenRecord};
use access::usage::Usage;
use access::{account, quota, registry};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use vdisk::record::CapRecord;

use super::account_records::Accounts;
use super::charged::Charged;
use super::control::{Answer, Control, Failure, body};
use crate::api::access::{
    Account, AccountChange, AccountsGone, MadeToken, NewAccount, NewToken, Quota, Token, Used,
};
use crate::api::refusal::Refusal;
use crate::daemon::common::users;
use crate::daemon::common::when::unix_seconds;

const EXAMPLE: &str = r#"{"name": "astro", "role": "booker", "users": ["ann"]}"#;

fn unprocessable(error: impl Into<String>, todo: &str) -> Failure {
    Failure::new(StatusCode::UNPROCESSABLE_ENTITY, error, todo)
}

pub(super) fn called(text: &str) -> Result<AccountName, Failure> {
    let name = text.parse();
    name.map_err(|error: access::name::BadAccountName| {
        unprocessable(error.to_string(), "choose another name")
    })
}

fn role(text: &str) -> Result<Role, Failure> {
    let role = text.parse();
    role.map_err(|error: String| unprocessable(error, "name one of them"))
}

/// Numbers of users or groups. The system's name service may take its time.
async fn numbers(
    texts: Vec<String>,
    look_up: fn(&str) -> Result<u32, String>,
) -> Result<BTreeSet<u32>, Failure> {
    let look_up = move || texts.iter().map(|text| look_up(text)).collect();
    let found: Result<Result<_, String>, _> = tokio::task::spawn_blocking(look_up).await;
    let found = found.unwrap_or_else(|error| Err(error.to_string()));
    found.map_err(|error| unprocessable(error, "write a name that it knows, or a number"))
}

impl From<Quota> for quota::Quota {
    fn from(it: Quota) -> quota::Quota {
        quota::Quota {
            rate: it.rate_bytes_per_second,
            booked: it.booked_bytes,
            ahead: it.ahead_seconds,
            length: it.length_seconds,
            count: it.count,
            room: it.room_bytes,
            weight: it.weight,
            caps: CapRecord {
                read: it.max_read_bytes_per_second,
                write: it.max_write_bytes_per_second,
                read_iops: it.max_read_iops,
                write_iops: it.max_write_iops,
            },
        }
    }
}

impl From<quota::Quota> for Quota {
    fn from(it: quota::Quota) -> Quota {
        Quota {
            rate_bytes_per_second: it.rate,
            booked_bytes: it.booked,
            ahead_seconds: it.ahead,
            length_seconds: it.length,
            count: it.count,
            room_bytes: it.room,
            weight: it.weight,
            max_read_bytes_per_second: it.caps.read,
            max_write_bytes_per_second: it.caps.write,
            max_read_iops: it.caps.read_iops,
            max_write_iops: it.caps.write_iops,
        }
    }
}

fn checked(asked: Quota) -> Result<quota::Quota, Failure> {
    let quota = quota::Quota::from(asked);
    quota
        .check()
        .map_err(|why| unprocessable(why, "leave out what is to have no limit"))?;
    Ok(quota)
}

fn used(usage: &Usage, now: u64) -> Used {
    let usage = usage.at(now);
    let running = || usage.commitments().filter(|it| it.from <= now);
    Used {
        count: usage.count(),
        rate_bytes_per_second: running().map(|it| it.rate).fold(0, u64::saturating_add),
        room_bytes: running().map(|it| it.space).fold(0, u64::saturating_add),
    }
}

/// An account with what belongs to it.
type Whole = (account::Account, quota::Quota, Usage);

async fn whole(it: &Registry, account: account::Account) -> Result<Whole, registry::AccessError> {
    let quota = it.quota(&account.name).await?;
    let usage = it.usage(&account.name).await?;
    Ok((account, quota, usage))
}

fn shown((account, quota, usage): &Whole) -> Account {
    let state = match account.state {
        AccountState::On => "on",
        AccountState::Off => "off",
        AccountState::Deleted => "deleted",
    };
    let names = |numbers: &BTreeSet<u32>, name: fn(u32) -> String| {
        numbers.iter().map(|number| name(*number)).collect()
    };
    Account {
        name: account.name.to_string(),
        id: format!("{:016x}", account.id),
        role: account.role.to_string(),
        state: state.to_owned(),
        users: names(&account.users, users::user_name),
        groups: names(&account.groups, users::group_name),
        created_unix_seconds: account.created,
        quota: (*quota).into(),
        used: used(usage, unix_seconds() as u64),
    }
}

/// Answers accounts, with the names of their users.
async fn answer(all: Vec<Whole>) -> Result<Vec<Account>, Failure> {
    let shown = tokio::task::spawn_blocking(move || all.iter().map(shown).collect()).await;
    shown.map_err(|error| {
        let todo = "look at the daemon's log";
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string(), todo)
    })
}

async fn answer_one(one: Whole) -> Answer<Account> {
    let mut all = answer(vec![one]).await?;
    Ok(Json(all.remove(0)))
}

// --- accounts -----------------------------------------------------------------------------------------

/// All accounts.
#[utoipa::path(get, path = "/v1/accounts", responses(
    (status = 200, body = Vec<Account>),
    (status = 403, description = "It takes an admin", body = Refusal),
    (status = 503, description = "The meta store is silent", body = Refusal),
))]
pub(super) async fn get_accounts(State(control): State<Arc<Control>>) -> Answer<Vec<Account>> {
    let found = Accounts(&control).ask(async |it| {
        let mut all = Vec::new();
        for account in it.accounts().await? {
            all.push(whole(it, account).await?);
        }
        Ok(all)
    });
    answer(found.await?).await.map(Json)
}

/// Makes an account.
#[utoipa::path(post, path = "/v1/accounts", request_body = NewAccount, responses(
    (status = 200, body = Account),
    (status = 403, description = "It takes an admin", body = Refusal),
    (status = 409, description = "The name is taken, or waits for bookings of a deleted account", body = Refusal),
    (status = 422, description = "A name, role or user that cannot be", body = Refusal),
    (status = 503, description = "The meta store is silent", body = Refusal),
))]
pub(super) async fn create_account(
    State(control): State<Arc<Control>>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<Account> {
    let ask: NewAccount = body(&headers, &text, EXAMPLE)?;
    let quota = checked(ask.quota)?;
    let new = registry::NewAccount {
        name: called(&ask.name)?,
        role: role(ask.role.as_deref().unwrap_or("reader"))?,
        users: numbers(ask.users, users::user).await?,
        groups: numbers(ask.groups, users::group).await?,
        quota: Some(quota).filter(|quota| *quota != quota::Quota::default()),
    };
    let now = unix_seconds() as u64;
    let made = Accounts(&control).ask(async move |it| {
        let account = it.create(&new, now).await?;
        whole(it, account).await
    });
    answer_one(made.await?).await
}

/// One account: its own, or, for an admin, any.
#[utoipa::path(get, path = "/v1/accounts/{name}", params(("name" = String, Path)), responses(
    (status = 200, body = Account),
    (status = 403, description = "Another's takes an admin", body = Refusal),
    (status = 404, body = Refusal),
    (status = 503, description = "The meta store is silent", body = Refusal),
))]
pub(super) async fn get_account(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Answer<Account> {
    let name = called(&name)?;
    caller.check(Action::Account, Some(&name))?;
    let found = Accounts(&control).ask(async move |it| {
        let account = it.account(&name).await?;
        whole(it, account).await
    });
    answer_one(found.await?).await
}

/// Changes an account. What is switched off is refused from the next request on.
#[utoipa::path(patch, path = "/v1/accounts/{name}", params(("name" = String, Path)),
    request_body = AccountChange, responses(
    (status = 200, description = "The account as it is now", body = Account),
    (status = 403, description = "It takes an admin", body = Refusal),
    (status = 404, body = Refusal),
    (status = 422, description = "A role or user that cannot be", body = Refusal),
    (status = 503, description = "The meta store is silent", body = Refusal),
))]
pub(super) async fn change_account(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<Account> {
    let ask: AccountChange = body(&headers, &text, r#"{"role": "operator"}"#)?;
    let name = called(&name)?;
    let users = match ask.users {
        Some(texts) => Some(numbers(texts, users::user).await?),
        None => None,
    };
    let groups = match ask.groups {
        Some(texts) => Some(numbers(texts, users::group).await?),
        None => None,
    };
    let change = registry::AccountChange {
        role: ask.role.as_deref().map(role).transpose()?,
        on: ask.on,
        users,
        groups,
    };
    let off = (change.on == Some(false)).then(|| name.clone());
    let changed = Accounts(&control).ask(async move |it| {
        let account = it.change(&name, &change).await?;
        whole(it, account).await
    });
    let changed = changed.await?;
    if let Some(off) = off {
        // Elsewhere, and what cannot be reached now, within seconds.
        Charged(&control).end_of_account(&off).await;
    }
    answer_one(changed).await
}

/// Removes an account and its projects, with their tokens: nothing of them is let in from now on.
#[utoipa::path(delete, path = "/v1/accounts/{name}", params(("name" = String, Path)), responses(
    (status = 200, body = AccountsGone),
    (status = 403, description = "It takes an admin", body = Refusal),
    (status = 404, body = Refusal),
    (status = 503, description = "The meta store is silent", body = Refusal),
))]
pub(super) async fn delete_account(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
) -> Answer<AccountsGone> {
    let (name, now) = (called(&name)?, unix_seconds() as u64);
    let deleted = name.clone();
    let gone = Accounts(&control).ask(async move |it| it.delete(&name, now).await);
    let gone = gone.await?;
    Charged(&control).end_of_account(&deleted).await;
    Ok(Json(AccountsGone {
        deleted: gone.iter().map(ToString::to_string).collect(),
    }))
}

/// Sets what an account may have: all of it, so that what is left out has no limit.
#[utoipa::path(put, path = "/v1/accounts/{name}/quota", params(("name" = String, Path)),
    request_body = Quota, responses(
    (status = 200, description = "The account as it is now", body = Account),
    (status = 403, description = "It takes an admin", body = Refusal),
    (status = 404, body = Refusal),
    (status = 422, body = Refusal),
    (status = 503, description = "The meta store is silent", body = Refusal),
))]
pub(super) async fn set_quota(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<Account> {
    let ask: Quota = body(&headers, &text, r#"{"rate_bytes_per_second": 500000000}"#)?;
    let (name, quota) = (called(&name)?, checked(ask)?);
    let set = Accounts(&control).ask(async move |it| {
        it.set_quota(&name, &quota).await?;
        let account = it.account(&name).await?;
        whole(it, account).await
    });
    answer_one(set.await?).await
}

// --- tokens -------------------------------------------------------------------------------------------

fn token(id: TokenId, record: &TokenRecord) -> Token {
    let state = match record.revoked {
        Some(_) => "revoked",
        None if record.expires <= unix_seconds() as u64 => "expired",
        None => "good",
    };
    Token {
        id: id.to_string(),
        account: record.account.to_string(),
        state: state.to_owned(),
        created_unix_seconds: record.created,
        expires_unix_seconds: record.expires,
        revoked_unix_seconds: record.revoked,
        note: record.note.clone(),
    }
}

/// The tokens of the caller's account, or, for an admin, all; without their secrets.
#[utoipa::path(get, path = "/v1/tokens", responses(
    (status = 200, body = Vec<Token>),
    (status = 503, description = "The meta store is silent", body = Refusal),
))]
pub(super) async fn get_tokens(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
) -> Answer<Vec<Token>> {
    let all = Accounts(&control).ask(async |it| it.tokens().await).await?;
    let may_see = all.iter();
    let may_see = may_see.filter(|(_, it)| caller.may(Action::Tokens, Some(&it.account)));
    Ok(Json(may_see.map(|(id, it)| token(*id, it)).collect()))
}

/// Makes a token: the answer shows it, and no other one ever does.
#[utoipa::path(post, path = "/v1/tokens", request_body = NewToken, responses(
    (status = 200, body = MadeToken),
    (status = 403, description = "It takes an admin", body = Refusal),
    (status = 404, description = "No such account", body = Refusal),
    (status = 422, description = "A lifetime or a note that cannot be", body = Refusal),
    (status = 503, description = "The meta store is silent", body = Refusal),
))]
pub(super) async fn create_token(
    State(control): State<Arc<Control>>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<MadeToken> {
    let ask: NewToken = body(
        &headers,
        &text,
        r#"{"account": "astro", "note": "nightly"}"#,
    )?;
    let name = called(&ask.account)?;
    let times = (unix_seconds() as u64, ask.for_seconds.unwrap_or(LIFETIME));
    let made = Accounts(&control).ask(async move |it| it.make_token(&name, times, &ask.note).await);
    let (made, record) = made.await?;
    Ok(Json(MadeToken {
        token: made.reveal(),
        about: token(made.id, &record),
    }))
}

/// Makes a token good for nothing, at once: one of the caller's account, or, for an admin, any.
#[utoipa::path(delete, path = "/v1/tokens/{id}", params(("id" = String, Path)), responses(
    (status = 200, body = Token),
    (status = 403, description = "Another account's takes an admin", body = Refusal),
    (status = 404, body = Refusal),
    (status = 422, description = "Not 16 hexadecimal digits", body = Refusal),
    (status = 503, description = "The meta store is silent", body = Refusal),
))]
pub(super) async fn revoke_token(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer<Token> {
    let id: Result<TokenId, String> = id.parse();
    let id =
        id.map_err(|error| unprocessable(error, "`tanada token list --json` shows them whole"))?;
    let record = Accounts(&control)
        .ask(async move |it| it.token(id).await)
        .await?;
    caller.check(Action::Tokens, Some(&record.account))?;
    let now = unix_seconds() as u64;
    let revoked = Accounts(&control).ask(async move |it| it.revoke(id, now).await);
    Ok(Json(token(id, &revoked.await?)))
}
