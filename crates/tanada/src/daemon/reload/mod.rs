//! The configuration, and what is different where it is read anew: `http::reload` does that.

pub mod diff;
pub mod lines;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde_json::Value;

use lines::Written;

/// The configuration as it is in force, and where it is read anew.
#[derive(Default)]
pub struct Loaded {
    /// None: it is built in, or made of a command line.
    pub file: Option<PathBuf>,
    /// What stands before the file's `data_dir`.
    pub data_dir: Option<PathBuf>,
    /// What is in force, beside settings.
    in_force: Mutex<Written>,
    /// Held while it is read anew.
    pub turn: tokio::sync::Mutex<()>,
}

impl Loaded {
    /// One that no file has.
    pub fn built_in() -> Loaded {
        Loaded::default()
    }

    /// That of a file, which says `text`.
    pub fn of_file(file: &Path, text: &str, data_dir: Option<PathBuf>) -> Loaded {
        Loaded {
            file: Some(file.to_owned()),
            data_dir,
            in_force: Mutex::new(Written::of(text, modified(file))),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// What is in force.
    pub fn written(&self) -> Written {
        let in_force = self.in_force.lock();
        in_force.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// As [`Written::hidden`].
    pub fn hidden(&self, volume: &str, key: &str, value: &Value, set_at: u64) -> Option<String> {
        let in_force = self.in_force.lock();
        let in_force = in_force.unwrap_or_else(PoisonError::into_inner);
        in_force
            .hidden(volume, key, value, set_at)
            .map(str::to_owned)
    }

    /// This is in force from now on.
    pub fn set(&self, written: Written) {
        *self.in_force.lock().unwrap_or_else(PoisonError::into_inner) = written;
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
