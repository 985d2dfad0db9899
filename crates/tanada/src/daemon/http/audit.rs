//! What of the audit log the API shows.
//!
//! ```text
//! GET /v1/audit -> the file, from its beginning -> lines
//! ```

use std::sync::Arc;

use access::audit::{self, Line};
use axum::Json;
use axum::extract::{Query, State, rejection::QueryRejection};
use axum::http::StatusCode;
use report::terminal::said;

use super::control;
use super::control::{Answer, Control, Failure};
use crate::api::access::{AuditAsk, AuditLine, AuditPage};
use crate::api::refusal::Refusal;

/// Lines of a page unless asked otherwise, and the most.
const PAGE: usize = 200;
const PAGE_MAX: usize = 1000;

/// The record of what was done, oldest first: at most `limit` lines (200, at most 1000) with a number greater than `after`.
#[utoipa::path(get, path = "/v1/audit", params(AuditAsk), responses(
    (status = 200, body = AuditPage),
    (status = 403, description = "It takes an admin", body = Refusal),
    (status = 422, body = Refusal),
))]
pub(super) async fn get_audit(
    State(control): State<Arc<Control>>,
    query: Result<Query<AuditAsk>, QueryRejection>,
) -> Answer<AuditPage> {
    let ask = control::query(query, "the keys are after and limit, each a number")?;
    let Some(log) = &control.audit else {
        let error = "this daemon has no audit log";
        return Err(Failure::new(
            StatusCode::NOT_FOUND,
            error,
            "start it with a data directory",
        ));
    };
    let limit = ask.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let (path, after) = (log.path(), ask.after.unwrap_or(0));
    let read = tokio::task::spawn_blocking(move || audit::read(&path, after, limit + 1));
    let read = read.await.map_err(anyhow::Error::from);
    let read = read.and_then(|read| read.map_err(anyhow::Error::from));
    let mut lines = read.map_err(|error| {
        let error = format!("the audit log cannot be read: {}", said::words(&error));
        let todo = "look at the file in the data directory";
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error, todo)
    })?;
    let more = lines.len() > limit;
    lines.truncate(limit);
    Ok(Json(AuditPage {
        next: lines.last().filter(|_| more).map(|line| line.n),
        lines: lines.into_iter().map(shown).collect(),
    }))
}

fn shown(line: Line) -> AuditLine {
    AuditLine {
        number: line.n,
        at_unix_seconds: line.at,
        who: line.who,
        from: line.from,
        what: line.what,
        answer: line.answer,
    }
}
