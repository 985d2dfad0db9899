//! What was set of volumes and lasts, as the daemon has it, and in whose turn it is changed.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::{Arc, Mutex, PoisonError};

use crate::api::settings::KeptValue;
use crate::daemon::common::saved_settings::{SavedFile, SavedSettings};

/// What is kept of settings, and whose turn it is to change them.
pub struct SettingsBook {
    file: SavedFile,
    now: Mutex<SavedSettings>,
    /// What the file says is not sure: it could not be written.
    is_unsure: Mutex<bool>,
    turns: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl SettingsBook {
    /// Those in `data_dir`, which says `kept`.
    pub fn new(data_dir: &FilePath, kept: SavedSettings) -> SettingsBook {
        SettingsBook {
            file: SavedFile::in_dir(data_dir),
            now: Mutex::new(kept),
            is_unsure: Mutex::default(),
            turns: Mutex::default(),
        }
    }

    /// Waits until no other change of `volume` is being made or written.
    pub(super) async fn turn(&self, volume: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(turns.entry(volume.to_owned()).or_default())
        };
        turn.lock_owned().await
    }

    /// The keys of a volume that are kept.
    pub(super) fn keys(&self, volume: &str) -> Vec<String> {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.of(volume).into_keys().collect()
    }

    pub(super) fn of(&self, volume: &str, key: &str) -> Option<KeptValue> {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = now.volume.get(volume)?.get(key)?;
        Some(KeptValue {
            value: entry.value.clone(),
            who: entry.who.clone(),
            when: entry.when.clone(),
        })
    }

    /// Writes down what `change` makes of it.
    pub(super) fn keep(&self, change: impl FnOnce(&mut SavedSettings)) -> std::io::Result<()> {
        // Changes of several volumes are written one after the other.
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = now.clone();
        change(&mut next);
        let mut is_unsure = self
            .is_unsure
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if next != *now || *is_unsure {
            *is_unsure = true;
            self.file.write(&next)?;
            *is_unsure = false;
            *now = next;
        }
        Ok(())
    }

    /// Where they are written.
    pub fn path(&self) -> &FilePath {
        self.file.path()
    }
}
