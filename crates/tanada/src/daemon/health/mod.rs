//! Is the daemon well? The rules, and what is remembered between two looks.
//!
//! ```text
//! http::health observes -> Watch -> rules (codes, recent) -> checks: log of changes -> mutes -> verdict
//! ```
//!
//! Always true: rules do no I/O; mutes alone are written to a file.

pub mod codes;
pub mod mutes;
pub mod recent;
pub mod rules;
mod store_rules;
mod volume_rules;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::api::health::{Health, HealthCheck, Severity};
use crate::daemon::common::when::unix_seconds;
use mutes::Mutes;
use recent::Recent;
use rules::Observed;

/// A reason for the verdict: its code, and what it is about.
type Raised = (String, Option<String>);

/// What is remembered between two looks.
pub struct Watch {
    mutes: Mutex<Mutes>,
    recent: Mutex<Recent>,
    /// What was wrong when it was last looked, by code and by what it is about.
    raised: Mutex<BTreeSet<Raised>>,
    /// The verdict then.
    last: Mutex<Health>,
    log_lines_lost: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl Watch {
    /// Of the daemon of a data directory; `log_lines_lost` counts.
    pub fn new(data_dir: &Path, log_lines_lost: impl Fn() -> u64 + Send + Sync + 'static) -> Watch {
        Watch {
            mutes: Mutex::new(Mutes::open(data_dir)),
            recent: Mutex::new(Recent::new(Instant::now())),
            raised: Mutex::default(),
            last: Mutex::default(),
            log_lines_lost: Box::new(log_lines_lost),
        }
    }

    /// Of nothing.
    #[cfg(test)]
    pub fn unwatched() -> Watch {
        Watch::new("no-such-folder".as_ref(), || 0)
    }

    /// The verdict on what was observed.
    pub fn judge(&self, observed: &Observed<'_>) -> Health {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let checks = rules::checks(observed, recent.at(Instant::now()));
        self.log_changes(&checks);
        let mut mutes = self.mutes.lock().unwrap_or_else(PoisonError::into_inner);
        let health = mutes.judge(checks, unix_seconds() as u64);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone_from(&health);
        health
    }

    /// The verdict when it was last looked, a few seconds ago at most.
    pub fn last(&self) -> Health {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone()
    }

    /// A line for each reason that came or went.
    fn log_changes(&self, checks: &[HealthCheck]) {
        let id = |check: &HealthCheck| (check.code.clone(), check.about.clone());
        let mut raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        for check in checks.iter().filter(|check| !raised.contains(&id(check))) {
            let about = check.about.as_deref().unwrap_or("the daemon");
            let (code, message, todo) = (&check.code, &check.message, &check.what_to_do);
            match check.severity {
                Severity::Error => tracing::error!(code, "{about}: {message}; {todo}"),
                Severity::Warning => tracing::warn!(code, "{about}: {message}; {todo}"),
            }
        }
        let now: BTreeSet<Raised> = checks.iter().map(id).collect();
        for (code, about) in raised.difference(&now) {
            let about = about.as_deref().unwrap_or("the daemon");
            tracing::info!(code, "{about}: that is over");
        }
        *raised = now;
    }

    /// Lines of the log that were lost.
    pub fn log_lines_lost(&self) -> u64 {
        (self.log_lines_lost)()
    }

    /// Mutes, or counts again.
    pub fn change_mutes<T>(&self, work: impl FnOnce(&mut Mutes) -> io::Result<T>) -> io::Result<T> {
        work(&mut self.mutes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests;
