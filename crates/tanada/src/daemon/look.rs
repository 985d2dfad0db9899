//! What lies on the devices of a configuration, before any of them is used?
//!
//! ```text
//! each part of a hybrid, each store's device -> its first MiB, read only \
//! the record of pairs, the caches given up                               -> what `serve` would make of it
//! ```
//!
//! `config check` and `doctor` report it, in the words that the start itself uses ([`hybrid::inspect::outlook`]). A device that
//! is not here, or that this user may not read, is no mistake of the configuration: it may be meant for another machine. Nor
//! is a data directory that this user may not read: what it says is then not known.
//!
//! Always true: nothing is written, and nothing is locked.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use base::Bytes;
use config::{Backing, Config, DeviceConfig, HybridConfig, Kind, StoreConfig};
use hybrid::PairBook;
use hybrid::inspect::{Beside, Offered, Outlook, START, Start, kept_mode, look, outlook};
use report::terminal::said;
use serde::Serialize;
use utoipa::ToSchema;

use super::assemble::ends_with_us;
use super::common::pairs::PairFile;
use super::common::registry::Registry;
use super::common::volume_mode;

/// Can `serve` use a device?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = DeviceVerdict)]
pub enum Verdict {
    Good,
    /// This user may not look.
    Unknown,
    /// `serve` would refuse it, or do harm.
    Bad,
}

/// What was seen of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DeviceFound)]
pub struct Finding {
    /// The device's name and path.
    pub what: String,
    pub verdict: Verdict,
    /// What is there.
    pub found: String,
    /// What to do about it; empty if nothing.
    pub todo: String,
}

impl Finding {
    /// In one line; what to do stands there where no other place says it.
    pub fn line(&self) -> String {
        match self.verdict {
            Verdict::Unknown => format!("{}: {}: {}", self.what, self.found, self.todo),
            Verdict::Good | Verdict::Bad => format!("{}: {}", self.what, self.found),
        }
    }
}

/// A configuration that was checked, for programs.
#[derive(Debug, Serialize, ToSchema)]
pub struct CheckedConfig {
    /// Where it came from.
    pub configuration: String,
    /// Are its devices what it says? One that makes no sense by itself is an error instead.
    pub good: bool,
    pub devices: Vec<Finding>,
}

/// The start of an object store.
const STORE: &[u8] = b"TANADAst";

/// Looks at every device that a hybrid or a store of `config` uses by itself.
pub fn devices(config: &Config) -> Vec<Finding> {
    let mut seen = Vec::new();
    for hybrid in &config.hybrids {
        let slow = find(config, &hybrid.slow).and_then(read);
        let fast = find(config, &hybrid.fast);
        seen.extend(slow.as_ref().map(|it| of_slow(hybrid, it)));
        let there = fast.and_then(|it| read(it).or_else(|| to_be_made(it)));
        seen.extend(there.map(|it| of_fast(config, hybrid, slow.as_ref(), &it)));
    }
    for store in &config.stores {
        let device = find(config, &store.device).and_then(read);
        seen.extend(device.and_then(|it| of_store(store, &it)));
    }
    seen
}

/// A device that was read.
struct There {
    what: String,
    size: Bytes,
    start: Vec<u8>,
}

fn find<'a>(config: &'a Config, name: &str) -> Option<&'a DeviceConfig> {
    config.devices.iter().find(|device| device.name == name)
}

/// Its first MiB; none if it is in memory, is made at the start, or cannot be read here.
fn read(device: &DeviceConfig) -> Option<There> {
    let path = match &device.kind {
        Kind::Path { path, .. } => path,
        Kind::Model {
            backing: Backing::File(file),
            ..
        } => file,
        _ => return None,
    };
    let (start, size) = start_of(path).ok()?;
    Some(There {
        what: format!("{} ({})", device.name, path.display()),
        size,
        start,
    })
}

/// A fast device that a start makes, blank: in memory, or a file that is not here.
fn to_be_made(device: &DeviceConfig) -> Option<There> {
    let (path, size) = match &device.kind {
        Kind::Path {
            path,
            create: Some(size),
            ..
        } => (Some(path), *size),
        Kind::Model {
            backing: Backing::File(file),
            size,
            ..
        } => (Some(file), *size),
        Kind::Model {
            backing: Backing::Memory,
            size,
            ..
        }
        | Kind::Memory { size } => (None, *size),
        _ => return None,
    };
    let missing = path.is_none_or(|path| path.try_exists().is_ok_and(|there| !there));
    let place = match path {
        Some(path) => format!("{}, not made yet", path.display()),
        None => "in memory".to_owned(),
    };
    missing.then(|| There {
        what: format!("{} ({place})", device.name),
        size,
        start: vec![0; size.min(START).usize()],
    })
}

fn start_of(path: &Path) -> io::Result<(Vec<u8>, Bytes)> {
    let mut file = File::open(path)?;
    // A block device shows its length by its end, too.
    let size = Bytes(file.seek(SeekFrom::End(0))?);
    file.seek(SeekFrom::Start(0))?;
    let mut start = Vec::new();
    file.take(START.0).read_to_end(&mut start)?;
    Ok((start, size))
}

fn good(there: &There, found: String) -> Finding {
    Finding {
        what: there.what.clone(),
        verdict: Verdict::Good,
        found,
        todo: String::new(),
    }
}

fn bad(there: &There, found: String, todo: String) -> Finding {
    Finding {
        what: there.what.clone(),
        verdict: Verdict::Bad,
        found,
        todo,
    }
}

/// Whether a label on it matters depends on the fast device, and is reported with that one.
fn of_slow(hybrid: &HybridConfig, there: &There) -> Finding {
    if there.start.starts_with(STORE) {
        let todo = format!(
            "name another device as slow of {}; `tanada store check` looks into this one",
            hybrid.name()
        );
        return bad(there, "holds an object store".to_owned(), todo);
    }
    let found = match look(&there.start, there.size) {
        Start::Cache { name, .. } => format!("begins with the label of a cache of {name}"),
        Start::Unreadable => "begins with the label of a cache".to_owned(),
        Start::Blank => "begins with zeroes".to_owned(),
        Start::Other => "holds data, which stay".to_owned(),
    };
    good(there, found)
}

/// What a start would make of the fast device, and the mode that it would give the volume.
fn of_fast(config: &Config, hybrid: &HybridConfig, slow: Option<&There>, there: &There) -> Finding {
    let name = hybrid.name();
    let refused = |why: String| bad(there, format!("is refused as fast of {name}"), why);
    let pair = PairFile::in_dir(&config.data_dir, name);
    if let Some(seen) = may_not_read(&config.data_dir, &pair.path, there) {
        return seen;
    }
    let record = match ends_with_us(&hybrid.slow, &config.devices, &config.hybrids) {
        true => Ok(None),
        false => pair.read(),
    };
    let record = match record {
        Ok(record) => record,
        Err(why) => return refused(why),
    };
    let abandoned = match Registry::in_dir(&config.data_dir).read() {
        Ok(abandoned) => abandoned,
        Err(error) => return refused(said::words(&error)),
    };
    let offered = Offered {
        name,
        slow: &hybrid.slow,
        fast: &hybrid.fast,
        slow_start: slow.map(|it| (&*it.start, it.size)),
        start: &there.start,
        size: there.size,
    };
    let beside = Beside {
        record,
        abandoned: &abandoned,
        force: hybrid.force,
    };
    let words = match outlook(&offered, &beside) {
        Outlook::Opens(of) => format!("the cache of {of}"),
        Outlook::Makes(words) | Outlook::Loses(words) => words,
        Outlook::Refused(error) => return refused(error.to_string()),
    };
    let made = kept_mode(&offered, &beside);
    let chosen = volume_mode::choose(&hybrid.settings, hybrid.mode_named, made);
    good(there, format!("{words}, mode {}", chosen.mode))
}

/// That this user may not read what the data directory says of a fast device, if that is so.
fn may_not_read(data_dir: &Path, pair: &Path, there: &There) -> Option<Finding> {
    let denied = |path: &Path| {
        let error = File::open(path).err()?;
        (error.kind() == io::ErrorKind::PermissionDenied).then(|| path.to_owned())
    };
    let path = denied(pair).or_else(|| denied(&data_dir.join("abandoned")))?;
    Some(Finding {
        what: there.what.clone(),
        verdict: Verdict::Unknown,
        found: format!(
            "not known to this user, who may not read {}",
            path.display()
        ),
        todo: by_whom("the same command", data_dir),
    })
}

/// What to do about a data directory `dir` that cannot be used; `denied`: by this user.
pub fn unusable(command: &str, dir: &Path, denied: bool) -> String {
    match denied {
        true => by_whom(command, dir),
        false => "choose another one with --data-dir, or change its owner".to_owned(),
    }
}

/// What to do where this user may not use the data directory `dir`; `command` is to be run again.
fn by_whom(command: &str, dir: &Path) -> String {
    let owner = nearest(dir).map_or(String::new(), |(dir, user)| {
        format!(", such as user {user}, who owns {}", dir.display())
    });
    format!(
        "this is a matter of permissions, not of the configuration: run {command} with sudo, or as the user that runs the \
         daemon{owner}"
    )
}

/// The part of a path that can be looked at, and the user who owns it.
fn nearest(path: &Path) -> Option<(&Path, u32)> {
    let mut parts = path.ancestors();
    parts.find_map(|part| Some((part, part.metadata().ok()?.uid())))
}

/// A store is made on what is blank alone.
fn of_store(store: &StoreConfig, there: &There) -> Option<Finding> {
    if there.start.starts_with(STORE) {
        return Some(good(there, "an object store".to_owned()));
    }
    match look(&there.start, there.size) {
        Start::Blank => None,
        Start::Cache { name, .. } => Some(bad(
            there,
            format!("the cache of {name}"),
            format!("name another device for the store {}", store.name),
        )),
        Start::Unreadable | Start::Other => Some(bad(
            there,
            "holds data that are no object store".to_owned(),
            format!("is it the right device for the store {}?", store.name),
        )),
    }
}
