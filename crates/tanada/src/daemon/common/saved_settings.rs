//! What `tanada volume set` changed, kept in a file of the data directory and in force at every start.
//!
//! ```text
//! built in < configuration < DATA_DIR/settings.toml < until the restart
//! ```
//!
//! Always true:
//! 1. The file is replaced as a whole: after a crash it is the old one or the new one.
//! 2. A file that cannot be understood stops the start: no setting is dropped in silence.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::whole_file;
use crate::api::volume::Change;

const VERSION: u32 = 1;
/// What the file begins with, for people.
const HEAD: &str = "\
# What `tanada volume set` changed; it stands before the configuration. `tanada config diff` shows it,
# `tanada config reset` takes it back.
";
/// What is begun and ended, not set: the configuration alone begins it at a start.
const NOT_KEPT: [&str; 2] = ["trace", "trace_max"];

/// Settings of one volume by their keys; those of its tier as `tier.period`.
pub type Keys = BTreeMap<String, Value>;

/// What a change names and what lasts.
pub fn keys_of(change: &Change) -> Keys {
    let whole = serde_json::to_value(change).unwrap_or_default();
    let mut keys = Keys::new();
    for (key, value) in whole.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            ("tier", Value::Object(tier)) => keys.extend(
                tier.iter()
                    .map(|(key, value)| (format!("tier.{key}"), value.clone())),
            ),
            (key, _) if NOT_KEPT.contains(&key) => {}
            (key, value) => drop(keys.insert(key.to_owned(), value.clone())),
        }
    }
    keys
}

/// The change that sets all of them.
///
/// # Errors
/// A key that is none, or whose value is of another kind, in words.
pub fn change_of(keys: &Keys) -> Result<Change, String> {
    let (mut whole, mut tier) = (serde_json::Map::new(), serde_json::Map::new());
    for (key, value) in keys {
        match key.strip_prefix("tier.") {
            Some(key) => tier.insert(key.to_owned(), value.clone()),
            None => whole.insert(key.clone(), value.clone()),
        };
    }
    if !tier.is_empty() {
        whole.insert("tier".to_owned(), Value::Object(tier));
    }
    serde_json::from_value(Value::Object(whole)).map_err(|error| error.to_string())
}

/// One setting that is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub value: Value,
    /// By whom.
    pub who: String,
    /// Such as `2026-11-26T19:10:00Z`.
    pub when: String,
}

/// All of them, by volume and key.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedSettings {
    version: u32,
    #[serde(default)]
    pub volume: BTreeMap<String, BTreeMap<String, Entry>>,
}

impl SavedSettings {
    /// The settings of a volume.
    pub fn of(&self, volume: &str) -> Keys {
        let entries = self.volume.get(volume).into_iter().flatten();
        entries
            .map(|(key, entry)| (key.clone(), entry.value.clone()))
            .collect()
    }

    /// `who` set these.
    pub fn set(&mut self, volume: &str, keys: Keys, (who, when): (&str, &str)) {
        if keys.is_empty() {
            return;
        }
        let entries = self.volume.entry(volume.to_owned()).or_default();
        for (key, value) in keys {
            let (who, when) = (who.to_owned(), when.to_owned());
            entries.insert(key, Entry { value, who, when });
        }
    }

    /// These are as the configuration says again.
    pub fn reset(&mut self, volume: &str, keys: &[String]) {
        if let Some(entries) = self.volume.get_mut(volume) {
            entries.retain(|key, _| !keys.contains(key));
            if entries.is_empty() {
                self.volume.remove(volume);
            }
        }
    }
}

/// The file, by its place.
#[derive(Debug, Clone)]
pub struct SavedFile(PathBuf);

impl SavedFile {
    pub fn in_dir(data_dir: &Path) -> SavedFile {
        SavedFile(data_dir.join("settings.toml"))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What it says.
    ///
    /// # Errors
    /// It cannot be read or understood, and what to do.
    pub fn read(&self) -> anyhow::Result<SavedSettings> {
        let shown = self.0.display();
        let text = match fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(SavedSettings::default());
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {shown}")),
        };
        let damaged = |why: String| {
            anyhow!(
                "{shown} cannot be understood: {why}; correct it, or move it away to start with what the configuration says"
            )
        };
        let version: toml::Table = text
            .parse()
            .map_err(|error: toml::de::Error| damaged(error.message().to_owned()))?;
        let version = version.get("version").and_then(toml::Value::as_integer);
        match version {
            Some(1) => {}
            Some(other) => {
                return Err(anyhow!(
                    "{shown} is of version {other}, and this program knows {VERSION}: use the program that wrote it"
                ));
            }
            None => return Err(damaged("it has no version".to_owned())),
        }
        toml::from_str(&text).map_err(|error: toml::de::Error| damaged(error.message().to_owned()))
    }

    /// Replaces it, durably.
    pub fn write(&self, kept: &SavedSettings) -> io::Result<()> {
        let kept = SavedSettings {
            version: VERSION,
            ..kept.clone()
        };
        let text = toml::to_string(&kept).map_err(io::Error::other)?;
        whole_file::replace(&self.0, [HEAD, &text].concat().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(json: &str) -> Change {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_change_and_its_keys_are_the_same_but_for_what_is_begun() {
        let said = r#"{"write": "through", "dirty_low": 20, "energy": true, "trace": "a.trace",
            "tier": {"period": "10s", "streak_min": 3, "pinned": ["1GiB+1MiB"]}}"#;
        let keys = keys_of(&change(said));
        let names: Vec<&str> = keys.keys().map(String::as_str).collect();
        let tier = ["tier.period", "tier.pinned", "tier.streak_min"];
        assert_eq!(
            names,
            [&["dirty_low", "energy"], &tier[..], &["write"]].concat()
        );
        let again = change_of(&keys).unwrap();
        assert_eq!(keys_of(&again), keys);
        let without = Change {
            trace: None,
            ..change(said)
        };
        assert_eq!(again, without);
        let none = [("warp".to_owned(), Value::from(9))].into();
        assert!(change_of(&none).unwrap_err().contains("warp"));
    }

    #[test]
    fn what_was_set_is_read_back_and_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = SavedFile::in_dir(dir.path());
        let mut kept = file.read().unwrap();
        assert_eq!(kept.of("vol0"), Keys::new());
        let by = ("user 0", "2026-11-26T19:10:00Z");
        let all = keys_of(&change(
            r#"{"write": "through", "dirty_high": 40, "tier": {"share_min": 62.5, "barred": ["0+4KiB"]}}"#,
        ));
        kept.set("vol0", all.clone(), by);
        kept.set("vol1", keys_of(&change(r#"{"energy": false}"#)), by);
        file.write(&kept).unwrap();
        let read = file.read().unwrap();
        assert_eq!(read.of("vol0"), all);
        assert_eq!(read.volume["vol1"]["energy"].who, "user 0");
        let text = fs::read_to_string(file.path()).unwrap();
        assert!(
            text.starts_with("# What `tanada volume set` changed"),
            "{text}"
        );
        kept.reset("vol0", &["write".to_owned(), "policy".to_owned()]);
        assert_eq!(kept.of("vol0").len(), all.len() - 1);
        let left: Vec<String> = kept.of("vol0").into_keys().collect();
        kept.reset("vol0", &left);
        assert_eq!(kept.volume.keys().collect::<Vec<_>>(), ["vol1"]);
        assert!(!dir.path().join("settings.toml.new").exists());
    }

    #[test]
    fn a_file_that_is_none_stops_the_start_and_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = SavedFile::in_dir(dir.path());
        for (text, said) in [
            ("", "no version"),
            ("version = 1\n[volume", "move it away"),
            ("version = 1\nspeed = 9\n", "speed"),
            ("version = 1\n[volume.a.write]\nvalue = \"back\"\n", "who"),
            ("version = 2\n[new]\n", "use the program that wrote it"),
        ] {
            fs::write(file.path(), text).unwrap();
            let refusal = file.read().unwrap_err().to_string();
            assert!(refusal.contains(said), "{text:?}: {refusal}");
        }
    }
}
