//! The audit log of the daemon: lines from the door, and what of it the API shows.
//!
//! ```text
//! door -> append: one line, durable -> answer       GET /v1/audit -> the file, from its beginning
//! ```
//!
//! Files are waited for on threads of tokio's own, one line at a time.
//!
//! Always true: clients without a role write at most [`STRANGERS`] lines in [`STRANGERS_EVERY`], so none fills the disk.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use access::audit::{self, Audit, AuditError, Event, Line};
use anyhow::Context;
use axum::Json;
use axum::extract::{Query, State, rejection::QueryRejection};
use axum::http::StatusCode;
use report::terminal::said;

use super::control::{Answer, Control, Failure};
use crate::api::access::{AuditAsk, AuditLine, AuditPage};
use crate::api::refusal::Refusal;

/// What the file is called, in the data directory.
pub const FILE: &str = "audit.jsonl";
/// Lines of clients without a role.
const STRANGERS: u32 = 20;
/// In this time.
const STRANGERS_EVERY: Duration = Duration::from_secs(10);
/// Lines of a page unless asked otherwise, and the most.
const PAGE: usize = 200;
const PAGE_MAX: usize = 1000;

/// The log, open.
pub struct AuditLog {
    file: Arc<Mutex<Audit>>,
    state: Mutex<Standing>,
}

#[derive(Default)]
struct Standing {
    /// Why the last line could not be written.
    trouble: Option<String>,
    /// When the count of strangers' lines began, and the count.
    strangers: Option<(tokio::time::Instant, u32)>,
}

impl AuditLog {
    /// Opens the log of a data directory. One that is no log is moved aside, and a new one says so.
    ///
    /// # Errors
    /// The file system's.
    pub fn open(data_dir: &Path) -> anyhow::Result<AuditLog> {
        let path = data_dir.join(FILE);
        let audit = match Audit::open(&path, unix_seconds()) {
            Err(error @ AuditError::NotOurs { .. }) => begin_anew(&path, &error)?,
            other => other?,
        };
        Ok(AuditLog {
            file: Arc::new(Mutex::new(audit)),
            state: Mutex::default(),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, Standing> {
        // Plain values, whole between any two of their changes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the last line could not be written.
    pub fn trouble(&self) -> Option<String> {
        self.state().trouble.clone()
    }

    /// May a client without a role write one more line now?
    pub fn has_room_for_a_stranger(&self) -> bool {
        let now = tokio::time::Instant::now();
        let mut state = self.state();
        let (since, count) = state.strangers.unwrap_or((now, 0));
        let (since, count) = match now.duration_since(since) > STRANGERS_EVERY {
            true => (now, 0),
            false => (since, count),
        };
        state.strangers = Some((since, count + u32::from(count < STRANGERS)));
        count < STRANGERS
    }

    /// Writes a line, and waits until it is durable.
    ///
    /// # Errors
    /// Why it is not there.
    pub async fn append(&self, event: Event) -> Result<(), String> {
        let file = Arc::clone(&self.file);
        let write = move || {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            file.append(&event).map(drop)
        };
        let done = tokio::task::spawn_blocking(write).await;
        let done = done.map_err(|error| error.to_string());
        let done = done.and_then(|done| done.map_err(|error| error.to_string()));
        if let Err(error) = &done {
            tracing::error!(error, "the audit log cannot be written");
        }
        self.state().trouble = done.as_ref().err().cloned();
        done
    }

    fn path(&self) -> PathBuf {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.path().to_owned()
    }
}

/// Moves a file aside that does not end as a log does.
fn begin_anew(path: &Path, error: &AuditError) -> anyhow::Result<Audit> {
    let now = unix_seconds();
    let aside = path.with_file_name(format!("audit-{}.jsonl", now as u64));
    std::fs::rename(path, &aside)
        .with_context(|| format!("cannot move {} aside", path.display()))?;
    let why = error.to_string();
    tracing::error!(
        why,
        "a new audit log is begun; the file is {}",
        aside.display()
    );
    let mut audit = Audit::open(path, now)?;
    let event = Event {
        at: now,
        who: "the daemon".to_owned(),
        from: "its start".to_owned(),
        what: format!("began anew; what was there is {}", aside.display()),
        answer: 0,
    };
    audit
        .append(&event)
        .context("the audit log cannot be written")?;
    Ok(audit)
}

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
    let Query(ask) = query.map_err(|error| {
        let todo = "the keys are after and limit, each a number";
        Failure::new(StatusCode::UNPROCESSABLE_ENTITY, error.body_text(), todo)
    })?;
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

/// Seconds since 1970.
pub(super) fn unix_seconds() -> f64 {
    env::wall_clock().0 as f64 / 1e9
}
