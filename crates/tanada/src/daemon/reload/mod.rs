//! The configuration, and what is different where it is read anew: `http::reload` does that.

pub mod diff;
pub mod exports;
pub mod lines;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde_json::Value;

use config::Config;
use lines::Written;

#[derive(Default)]
struct InForce {
    written: Written,
    /// The same, read; none without a file.
    config: Option<Config>,
}

/// The configuration as it is in force, and where it is read anew.
#[derive(Default)]
pub struct Loaded {
    /// Where it came from, for people.
    pub origin: String,
    /// None: it is built in, or made of a command line.
    pub file: Option<PathBuf>,
    /// What stands before the file's `data_dir`.
    pub data_dir: Option<PathBuf>,
    /// What is in force, beside settings.
    in_force: Mutex<InForce>,
    /// Held while it is read anew.
    pub turn: tokio::sync::Mutex<()>,
}

impl Loaded {
    /// One that no file has.
    pub fn built_in(origin: impl Into<String>) -> Loaded {
        Loaded {
            origin: origin.into(),
            ..Loaded::default()
        }
    }

    /// That of a file, which says `text`.
    pub fn of_file(
        file: &Path,
        (text, config): (&str, &Config),
        data_dir: Option<PathBuf>,
    ) -> Loaded {
        let in_force = InForce {
            written: Written::of(text, modified(file)),
            config: Some(config.clone()),
        };
        Loaded {
            origin: file.display().to_string(),
            file: Some(file.to_owned()),
            data_dir,
            in_force: Mutex::new(in_force),
            ..Loaded::default()
        }
    }

    /// What is in force.
    pub fn written(&self) -> Written {
        self.in_force().written.clone()
    }

    /// The same, read; none without a file.
    pub fn config(&self) -> Option<Config> {
        self.in_force().config.clone()
    }

    fn in_force(&self) -> MutexGuard<'_, InForce> {
        let in_force = self.in_force.lock();
        in_force.unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Written::hidden`].
    pub fn hidden(&self, volume: &str, key: &str, value: &Value, set_at: u64) -> Option<String> {
        let in_force = self.in_force();
        let hidden = in_force.written.hidden(volume, key, value, set_at);
        hidden.map(str::to_owned)
    }

    /// This is in force from now on.
    pub fn set(&self, written: Written, config: Config) {
        *self.in_force() = InForce {
            written,
            config: Some(config),
        };
    }
}

/// When a file was last changed, in seconds since 1970.
pub fn modified(file: &Path) -> u64 {
    let modified = std::fs::metadata(file).and_then(|meta| meta.modified());
    let since = modified
        .ok()
        .and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map_or(0, |at| at.as_secs())
}
