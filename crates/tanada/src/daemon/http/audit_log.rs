//! The audit log of the daemon, open: lines from the door.
//!
//! ```text
//! door -> append: one line, durable -> answer
//! ```
//!
//! Files are waited for on threads of tokio's own, one line at a time.
//!
//! Always true: clients without a role write at most [`STRANGERS`] lines in [`STRANGERS_EVERY`], so none fills the disk.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use access::audit::{Audit, AuditError, Event};
use anyhow::Context;

use crate::daemon::common::when::unix_seconds;

/// What the file is called, in the data directory.
pub const FILE: &str = "audit.jsonl";
/// Lines of clients without a role.
const STRANGERS: u32 = 20;
/// In this time.
const STRANGERS_EVERY: Duration = Duration::from_secs(10);

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

    /// Where it is.
    pub fn path(&self) -> PathBuf {
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
