//! What lies on the devices of a configuration, before any of them is used?
//!
//! ```text
//! each part of a hybrid, each store's device -> its first MiB, read only \
//! the record of pairs, the caches given up                               -> what `serve` would make of it
//! ```
//!
//! `serve --check` and `doctor` tell it. A device that is not here, or that this user may not read, is no mistake of the
//! configuration: it may be meant for another machine.
//!
//! Always true: nothing is written, and nothing is locked.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use base::Bytes;
use hybrid::inspect::{Offered, START, Start, look, refusal};
use hybrid::{MadeIn, OpenError, PairBook};

use crate::assemble::ends_with_us;
use crate::config::{Backing, Config, DeviceConfig, HybridConfig, Kind, StoreConfig};
use crate::pairs::PairFile;
use crate::registry::Registry;
use crate::table::size;
use crate::volume_mode;

/// What was seen of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The device's name and path.
    pub what: String,
    /// `serve` would refuse it, or do harm.
    pub bad: bool,
    /// What is there.
    pub found: String,
    /// What to do about it; empty if nothing.
    pub todo: String,
}

/// The start of an object store.
const STORE: &[u8] = b"TANADAst";

/// Looks at every device that a hybrid or a store of `config` uses by itself.
pub fn devices(config: &Config) -> Vec<Seen> {
    let mut seen = Vec::new();
    for hybrid in &config.hybrids {
        let slow = find(config, &hybrid.slow).and_then(read);
        let fast = find(config, &hybrid.fast);
        let slow_size = slow.as_ref().map(|it| it.size);
        seen.extend(slow.map(|it| of_slow(hybrid, &it)));
        let there = fast.and_then(read);
        let blank = fast.and_then(to_be_made);
        let missed = there.as_ref().or(blank.as_ref());
        match missed.and_then(|it| of_pair(config, hybrid, it)) {
            Some(bad) => seen.push(bad),
            None => seen.extend(there.map(|it| with_mode(config, hybrid, slow_size, &it))),
        }
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

/// A fast device whose file is not here, as a start makes it.
fn to_be_made(device: &DeviceConfig) -> Option<There> {
    let (path, size) = match &device.kind {
        Kind::Path {
            path,
            create: Some(size),
            ..
        } => (path, *size),
        Kind::Model {
            backing: Backing::File(file),
            size,
            ..
        } => (file, *size),
        _ => return None,
    };
    let missing = path.try_exists().is_ok_and(|there| !there);
    missing.then(|| There {
        what: format!("{} ({}, not made yet)", device.name, path.display()),
        size,
        start: vec![0; size.min(START).usize()],
    })
}

fn start_of(path: &Path) -> std::io::Result<(Vec<u8>, Bytes)> {
    let mut file = File::open(path)?;
    // A block device tells its length by its end, too.
    let size = Bytes(file.seek(SeekFrom::End(0))?);
    file.seek(SeekFrom::Start(0))?;
    let mut start = Vec::new();
    file.take(START.0).read_to_end(&mut start)?;
    Ok((start, size))
}

fn good(there: &There, found: String) -> Seen {
    Seen {
        what: there.what.clone(),
        bad: false,
        found,
        todo: String::new(),
    }
}

fn bad(there: &There, found: String, todo: String) -> Seen {
    Seen {
        what: there.what.clone(),
        bad: true,
        found,
        todo,
    }
}

fn of_slow(hybrid: &HybridConfig, there: &There) -> Seen {
    if there.start.starts_with(STORE) {
        let todo = format!(
            "name another device as slow of {}; `tanada store check` looks into this one",
            hybrid.name()
        );
        return bad(there, "holds an object store".to_owned(), todo);
    }
    match look(&there.start, there.size) {
        Start::Cache { name, .. } => {
            let todo = format!(
                "are slow = \"{}\" and fast = \"{}\" swapped in the configuration? The slow device carries no label",
                hybrid.slow, hybrid.fast
            );
            bad(there, format!("begins with the cache of {name}"), todo)
        }
        Start::Unreadable => bad(
            there,
            "begins with the label of a cache".to_owned(),
            "are slow and fast swapped in the configuration? The slow device carries no label"
                .to_owned(),
        ),
        Start::Blank => good(there, "begins with zeroes".to_owned()),
        Start::Other => good(there, "holds data, which stay".to_owned()),
    }
}

/// What the record of pairs and the label say together, if a start would be refused for it.
fn of_pair(config: &Config, hybrid: &HybridConfig, there: &There) -> Option<Seen> {
    let name = hybrid.name();
    let refused = |why: String| Some(bad(there, format!("is refused as fast of {name}"), why));
    let kept = !ends_with_us(&hybrid.slow, &config.devices, &config.hybrids);
    let record = match kept {
        true => PairFile::in_dir(&config.data_dir, name).read(),
        false => Ok(None),
    };
    let record = match record {
        Ok(record) => record,
        Err(why) => return refused(why),
    };
    let abandoned = match Registry::in_dir(&config.data_dir).read() {
        Ok(abandoned) => abandoned,
        Err(error) => return refused(crate::said::words(&error)),
    };
    let offered = Offered {
        name,
        slow: &hybrid.slow,
        fast: &hybrid.fast,
        start: &there.start,
        size: there.size,
    };
    match refusal(&offered, record, &abandoned, hybrid.force)? {
        // Told in other words below: it may be meant.
        OpenError::Foreign { .. } | OpenError::Version { .. } => None,
        error => refused(error.to_string()),
    }
}

/// What [`of_fast`] says, and the mode that a start would give the volume, where that is known.
fn with_mode(
    config: &Config,
    hybrid: &HybridConfig,
    slow_size: Option<Bytes>,
    there: &There,
) -> Seen {
    let mut seen = of_fast(hybrid, slow_size, there);
    let record = PairFile::in_dir(&config.data_dir, hybrid.name());
    let made = record.kept_mode().unwrap_or(MadeIn::Nothing);
    let blank = look(&there.start, there.size) == Start::Blank;
    // Without a record the label alone tells, which is read at the start.
    if !seen.bad && (hybrid.mode_named || made != MadeIn::Nothing || blank) {
        let chosen = volume_mode::choose(&hybrid.settings, hybrid.mode_named, made);
        seen.found.push_str(&format!(", mode {}", chosen.mode));
    }
    seen
}

fn of_fast(hybrid: &HybridConfig, slow_size: Option<Bytes>, there: &There) -> Seen {
    let name = hybrid.name();
    match look(&there.start, there.size) {
        Start::Blank => good(
            there,
            format!("blank: {name} begins with an empty cache on it"),
        ),
        Start::Cache { counts: false, .. } => good(
            there,
            format!("a cache that was detached or given up: {name} begins with an empty one on it"),
        ),
        Start::Cache {
            name: other,
            slow_size: wanted,
            ..
        } => match slow_size {
            Some(has) if has != wanted => bad(
                there,
                format!(
                    "the cache of a slow device of {} ({other}), and {} has {}",
                    size(wanted.0),
                    hybrid.slow,
                    size(has.0)
                ),
                format!(
                    "attach it to the slow device that it belongs to, or name another fast device for {name}"
                ),
            ),
            _ => good(there, format!("the cache of {other}")),
        },
        Start::Unreadable => bad(
            there,
            "the label of a cache of another version".to_owned(),
            format!("start the version of Tanada that made it; {name} is refused with this one"),
        ),
        Start::Other if hybrid.force => good(
            there,
            format!(
                "holds data that are no cache; they are lost when {name} starts (force = true)"
            ),
        ),
        Start::Other => bad(
            there,
            "holds data that are no cache".to_owned(),
            format!(
                "is it the right device for {name}? If its data may go: wipefs -a on a device, or another file"
            ),
        ),
    }
}

/// A store is made on what is blank alone.
fn of_store(store: &StoreConfig, there: &There) -> Option<Seen> {
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
