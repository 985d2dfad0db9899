//! Which cache does each hybrid have? A record for each, which outlasts the loss of the fast device.
//!
//! One JSON file for each hybrid, `DATA_DIR/pairs/NAME.json` (`docs/formats.md`). What it allows and when it is written
//! is the engine's to say: `hybrid::pair`.
//!
//! Always true:
//! 1. The file is replaced as a whole: after a crash it is the old one or the new one.
//! 2. A file that cannot be understood stops its volume: nothing is guessed about data that may be missing.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{anyhow, bail};
use hybrid::{Mode, Pair, PairBook, Ties, Unwritten};
use serde::{Deserialize, Serialize};

use super::registry::Registry;
use super::restart::RestartFile;

/// Version 1 may lack the mode. The programs that wrote none call a record with one damaged, since they look at keys before
/// the version.
const VERSION: u32 = 2;
const VERSION_MIN: u32 = 1;

/// What every version has.
#[derive(Debug, Deserialize)]
struct Versioned {
    version: u32,
}

/// The file's contents.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    volume: String,
    /// 32 hexadecimal digits; absent if the slow device stands alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cache: Option<String>,
    generation: u64,
    dirty: bool,
    failing: bool,
    /// Absent in what an earlier version wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    /// Absent unless an earlier attachment is the right one, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    accepted: bool,
}

/// The record of one hybrid, by its place.
#[derive(Debug, Clone)]
pub struct PairFile {
    pub volume: String,
    pub path: PathBuf,
}

impl PairFile {
    pub fn in_dir(data_dir: &Path, volume: &str) -> PairFile {
        PairFile {
            volume: volume.to_owned(),
            path: data_dir.join("pairs").join(format!("{volume}.json")),
        }
    }

    fn load(&self) -> Result<Option<Written>, String> {
        match fs::read_to_string(&self.path) {
            Ok(text) => self.parse(&text).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot read {}: {error}", self.path.display())),
        }
    }

    fn damaged(&self, why: String) -> String {
        format!(
            "{} is damaged: {why}; it says which cache {} has, so restore it, or, if the right fast device is \
             connected, move it away and start again",
            self.path.display(),
            self.volume
        )
    }

    fn parse(&self, text: &str) -> Result<Written, String> {
        let damaged = |error: serde_json::Error| self.damaged(error.to_string());
        let Versioned { version } = serde_json::from_str(text).map_err(damaged)?;
        if !(VERSION_MIN..=VERSION).contains(&version) {
            return Err(format!(
                "{} is of version {version}, and this program knows {VERSION_MIN} to {VERSION}: use the program that \
                 wrote it",
                self.path.display()
            ));
        }
        let written: Written = serde_json::from_str(text).map_err(damaged)?;
        if written.volume != self.volume {
            return Err(self.damaged(format!("it is of a volume '{}'", written.volume)));
        }
        Ok(written)
    }

    /// The record of another volume than this one that names `cache`.
    ///
    /// # Errors
    /// In words, if the records beside this one cannot be read: then the cache may be of any of their volumes.
    pub fn other_with(&self, cache: u128) -> Result<Option<PairFile>, String> {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        let cannot = |error: io::Error| format!("cannot read {}: {error}", dir.display());
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot(error)),
        };
        for entry in entries {
            let path = entry.map_err(cannot)?.path();
            let volume = path.file_stem().and_then(|stem| stem.to_str());
            let Some(volume) = volume.filter(|_| path.extension().is_some_and(|it| it == "json"))
            else {
                continue;
            };
            let other = PairFile {
                volume: volume.to_owned(),
                path: path.clone(),
            };
            if path != self.path && other.read()?.is_some_and(|pair| pair.cache == Some(cache)) {
                return Ok(Some(other));
            }
        }
        Ok(None)
    }

    /// Writes the new record beside the old one.
    fn write_beside(&self, text: &str) -> io::Result<PathBuf> {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        if !dir.is_dir() {
            fs::create_dir_all(dir)?;
            if let Some(above) = dir.parent().filter(|above| !above.as_os_str().is_empty()) {
                File::open(above)?.sync_all()?;
            }
        }
        let new = self.path.with_extension("json.new");
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        Ok(new)
    }

    /// Puts the new record, which lies beside the old one, in its place.
    fn replace_by(&self, new: &Path) -> io::Result<()> {
        fs::rename(new, &self.path)?;
        File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl PairBook for PairFile {
    fn read(&self) -> Result<Option<Pair>, String> {
        let Some(written) = self.load()? else {
            return Ok(None);
        };
        let cache = written.cache.as_deref().map(identity).transpose();
        Ok(Some(Pair {
            cache: cache.map_err(|why| self.damaged(why))?,
            generation: written.generation,
            dirty: written.dirty,
            failing: written.failing,
            accepted: written.accepted,
            mode: written.mode,
        }))
    }

    fn write(&self, pair: &Pair) -> Result<(), Unwritten> {
        let failed = |error: &dyn std::fmt::Display, untouched| Unwritten {
            why: format!("cannot write {}: {error}", self.path.display()),
            untouched,
        };
        let written = Written {
            version: VERSION,
            volume: self.volume.clone(),
            cache: pair.cache.map(|cache| format!("{cache:032x}")),
            generation: pair.generation,
            dirty: pair.dirty,
            failing: pair.failing,
            mode: pair.mode,
            accepted: pair.accepted,
        };
        let text = serde_json::to_string_pretty(&written);
        let text = text.map_err(|error| failed(&error, true))?;
        let beside = self.write_beside(&(text + "\n"));
        let new = beside.map_err(|error| failed(&error, true))?;
        self.replace_by(&new).map_err(|error| failed(&error, false))
    }
}

/// The identity of a cache, as it is shown.
pub fn identity(text: &str) -> Result<u128, String> {
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(text, 16)
        .ok()
        .filter(|_| digits)
        .ok_or_else(|| {
            format!("'{text}' is not the identity of a cache, which has 32 hexadecimal digits")
        })
}

/// What is known of a hybrid's caches beside their labels.
#[derive(Debug, Clone)]
pub struct Memory {
    pub registry: Registry,
    /// None where the slow device itself is gone when the daemon ends.
    pub pair: Option<PairFile>,
    /// Is every clean page to be compared at the start?
    pub verify: bool,
    /// The mode that label and record keep; `None`: that of the settings.
    pub mode: Option<Mode>,
    /// Where changes between two commits outlive the daemon, if they do.
    pub restart: Option<RestartFile>,
    /// May the daemon run without the cache, while the hybrid answers nothing? Not where a store or hybrid stands on it.
    pub missable: bool,
}

impl Memory {
    /// The record of pairs; `None` if there is none, or none is kept.
    pub fn record(&self) -> anyhow::Result<Option<Pair>> {
        let record = self.pair.as_ref().map(|file| file.read());
        let record = record.transpose().map_err(|why| anyhow!(why))?;
        Ok(record.flatten())
    }

    /// As [`Memory::ties`], to attach an empty cache in place of the one that the record names: that counts no more as soon as
    /// something else is to be recorded, and until then nothing is lost. `may_lose`: also if it may hold what the slow device has
    /// not.
    ///
    /// # Errors
    /// What it may hold is not to be lost, it is another volume's, or the record cannot be read.
    pub fn ties_without_its_cache(&self, force: bool, may_lose: bool) -> anyhow::Result<Ties> {
        let mut ties = self.ties(force)?;
        let Some(file) = &self.pair else {
            return Ok(ties);
        };
        let Some((pair, cache)) = self.record()?.and_then(|pair| Some((pair, pair.cache?))) else {
            return Ok(ties);
        };
        if pair.dirty && !may_lose {
            bail!(
                "cache {cache:032x} may hold what the slow device has not: connect its device and start the daemon again, or add \
                 --lose-dirty to give that up"
            );
        }
        let other = file.other_with(cache).map_err(|why| anyhow!(why))?;
        if let Some(other) = other {
            bail!(
                "cache {cache:032x} is the one of volume {} ({}), too: connect its device there first",
                other.volume,
                other.path.display()
            );
        }
        ties.abandoned.push(cache);
        ties.pairs = Some(Rc::new(WithoutItsCache {
            file: file.clone(),
            registry: self.registry.clone(),
            cache,
        }));
        Ok(ties)
    }

    /// How a pair is to be opened: which caches count no more, where to write down the next one, and which cache
    /// there was.
    pub fn ties(&self, force: bool) -> anyhow::Result<Ties> {
        let abandoned = self.registry.read()?;
        let registry = self.registry.clone();
        let pairs = self.pair.clone();
        Ok(Ties {
            force,
            abandoned,
            on_abandon: Some(Rc::new(move |identity| {
                registry.add(identity).map_err(|error| error.to_string())
            })),
            pairs: pairs.map(|file| Rc::new(file) as Rc<dyn PairBook>),
            verify: self.verify,
            mode: self.mode,
            restart: self.restart.as_ref().map(|file| file.place.clone()),
        })
    }
}

/// The record of a hybrid whose cache is given up with the first thing that is recorded.
struct WithoutItsCache {
    file: PairFile,
    registry: Registry,
    cache: u128,
}

impl PairBook for WithoutItsCache {
    fn read(&self) -> Result<Option<Pair>, String> {
        let pair = self.file.read()?;
        Ok(pair.map(|pair| match pair.cache == Some(self.cache) {
            true => pair.alone(),
            false => pair,
        }))
    }

    fn write(&self, pair: &Pair) -> Result<(), Unwritten> {
        // The list first: what is on it counts no more, whatever the record says.
        self.registry.add(self.cache).map_err(|error| Unwritten {
            why: format!("cannot write the list of abandoned caches: {error}"),
            untouched: true,
        })?;
        self.file.write(pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = PairFile::in_dir(dir.path(), "vol0");
        assert_eq!(file.read(), Ok(None));
        let pair = Pair {
            cache: Some(0xabc),
            generation: 7,
            dirty: true,
            mode: Some(Mode::Both),
            ..Pair::default()
        };
        let accepted = Pair {
            accepted: true,
            failing: true,
            ..pair
        };
        for pair in [pair, accepted, pair.alone()] {
            file.write(&pair).unwrap();
            assert_eq!(file.read(), Ok(Some(pair)));
            let text = fs::read_to_string(&file.path).unwrap();
            assert_eq!(text.contains("accepted"), pair.accepted, "{text}");
        }
        let other = PairFile::in_dir(dir.path(), "vol1");
        assert_eq!(other.read(), Ok(None), "each volume has its own");
    }

    #[test]
    fn a_record_of_version_1_is_read_with_or_without_a_mode_and_written_as_2() {
        let dir = tempfile::tempdir().unwrap();
        let file = PairFile::in_dir(dir.path(), "vol0");
        fs::create_dir(dir.path().join("pairs")).unwrap();
        let old = r#"{"version":1,"volume":"vol0","generation":3,"dirty":false,"failing":false}"#;
        let with_mode = old.replace("}", r#","mode":"tier"}"#);
        for (text, mode) in [(old, None), (&*with_mode, Some(Mode::Tier))] {
            fs::write(&file.path, text).unwrap();
            let pair = file.read().unwrap().unwrap();
            assert_eq!((pair.generation, pair.mode), (3, mode));
            file.write(&pair.alone()).unwrap();
            let text = fs::read_to_string(&file.path).unwrap();
            assert!(text.contains("\"version\": 2"), "{text}");
            assert_eq!(file.read(), Ok(Some(pair)), "the mode stays");
        }
    }

    #[test]
    fn a_cache_is_found_in_the_records_of_other_volumes() {
        let dir = tempfile::tempdir().unwrap();
        let [mine, other] = ["vol0", "vol1"].map(|name| PairFile::in_dir(dir.path(), name));
        assert!(mine.other_with(0xb).unwrap().is_none(), "no record at all");
        let with = |cache| Pair {
            cache: Some(cache),
            generation: 1,
            ..Pair::default()
        };
        mine.write(&with(0xa)).unwrap();
        other.write(&with(0xb)).unwrap();
        fs::write(dir.path().join("pairs/vol2.json.new"), "{").unwrap();
        assert!(mine.other_with(0xa).unwrap().is_none(), "it is its own");
        let found = mine.other_with(0xb).unwrap().unwrap();
        assert_eq!((found.volume, found.path), (other.volume, other.path));
        fs::write(dir.path().join("pairs/vol2.json"), "{").unwrap();
        let said = mine.other_with(0xc).unwrap_err();
        assert!(said.contains("vol2.json is damaged"), "{said}");
    }

    #[test]
    fn a_torn_new_record_leaves_the_old_one_in_force() {
        let dir = tempfile::tempdir().unwrap();
        let file = PairFile::in_dir(dir.path(), "vol0");
        let pair = Pair {
            generation: 3,
            ..Pair::default()
        };
        file.write(&pair).unwrap();
        fs::write(dir.path().join("pairs/vol0.json.new"), "{\"vers").unwrap();
        assert_eq!(file.read(), Ok(Some(pair)));
        file.write(&Pair::default()).unwrap();
        assert_eq!(file.read(), Ok(Some(Pair::default())));
    }

    #[test]
    fn a_record_that_cannot_be_understood_is_reported_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let file = PairFile::in_dir(dir.path(), "vol0");
        fs::create_dir(dir.path().join("pairs")).unwrap();
        let path = dir.path().join("pairs/vol0.json");
        let good = r#"{"version":1,"volume":"vol0","generation":1,"dirty":false,"failing":false}"#;
        for (text, says) in [
            ("", "damaged"),
            (&good.replace("vol0", "vol1"), "of a volume 'vol1'"),
            // Told also where a later version has keys that this one does not know.
            (
                &good
                    .replace(":1,\"vol", ":3,\"vol")
                    .replace("}", ",\"later\":1}"),
                "is of version 3, and this program knows 1 to 2",
            ),
            (
                &good.replace("\"dirty\"", "\"cache\":\"12\",\"dirty\""),
                "32 hexadecimal",
            ),
        ] {
            fs::write(&path, text).unwrap();
            let said = file.read().unwrap_err();
            assert!(said.contains(says) && said.contains("vol0.json"), "{said}");
        }
        fs::write(&path, good).unwrap();
        assert_eq!(file.read().unwrap().unwrap().generation, 1);
    }
}
