//! How often did a daemon of this data directory begin after one that was not closed, and was something lost then?
//!
//! ```text
//! DATA_DIR/starts.json -> begin: the last one was not closed? one more | another boot, or a log is missing: a loss
//!                      -> describe: each export's description        -> client connect: may it go on?
//! ```
//!
//! A client that comes again learns of it from the export's description: what was answered before a crash and not
//! flushed is lost, unless the export keeps it and nothing of that was lost since.
//!
//! Always true: the counts are durable before the first client is let in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use base::crc::crc32c;
use serde::{Deserialize, Serialize};

use super::whole_file;

const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The counts, in the data directory.
const FILE: &str = "starts.json";

/// That of this process, for what it describes.
static NOW: Mutex<Option<Begun>> = Mutex::new(None);

#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    /// Of the data directory: no other one has it.
    id: u64,
    unclean: u64,
    /// Unclean starts at which an export may not have found all that was answered before.
    losses: u64,
    running: bool,
    /// Which boot of the machine it was.
    boot: String,
    /// At how many starts each hybrid missed a cache that may have had what its disk has not.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    missed_caches: BTreeMap<String, u64>,
}

/// A daemon that has begun.
#[derive(Debug, Clone)]
pub struct Begun {
    path: PathBuf,
    written: Written,
    /// The last one was not closed.
    is_unclean: bool,
    /// Devices that may not have found all.
    lost: BTreeSet<String>,
}

/// Counts one more if the last daemon was not closed.
pub fn begin(data_dir: &Path) -> anyhow::Result<Begun> {
    let boot = fs::read_to_string(BOOT).unwrap_or_default();
    let begun = Begun::of(data_dir.join(FILE), boot.trim_end())?;
    *NOW.lock().unwrap_or_else(PoisonError::into_inner) = Some(begun.clone());
    Ok(begun)
}

/// An export of `device` may not have found all that was answered before: after an unclean start that is a loss, however
/// often it is exported since.
pub fn note_loss(device: &str) {
    let mut now = NOW.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(begun) = now.as_mut().filter(|begun| begun.is_unclean) {
        if !begun.lost.insert(device.to_owned()) {
            return;
        }
        begun.written.losses += 1;
        if let Err(error) = begun.write() {
            tracing::warn!(%error, "cannot write {}", begun.path.display());
        }
    }
}

/// The cache of a hybrid may have what was answered before, and is not there: no client of before goes on, however the last
/// daemon ended.
///
/// # Errors
/// It cannot be written.
pub fn note_missed_cache(hybrid: &str) -> io::Result<()> {
    let mut now = NOW.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(begun) = now.as_mut() else {
        return Ok(());
    };
    let count = begun.written.missed_caches.entry(hybrid.to_owned());
    *count.or_default() += 1;
    begun.write()
}

/// As [`note_missed_cache`], while no daemon runs on `data_dir`.
///
/// # Errors
/// The count cannot be read or written; without a count there is no client of before.
pub fn note_missed_cache_of(data_dir: &Path, hybrid: &str) -> anyhow::Result<()> {
    let path = data_dir.join(FILE);
    let cannot = || format!("cannot note the lost cache in {}", path.display());
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(cannot),
    };
    // What cannot be read is made anew at the next start, and no client of before goes on.
    let Ok(mut written) = serde_json::from_slice::<Written>(&text) else {
        return Ok(());
    };
    let count = written.missed_caches.entry(hybrid.to_owned());
    *count.or_default() += 1;
    whole_file::replace(&path, &serde_json::to_vec(&written)?).with_context(cannot)
}

/// What a hybrid stands on, in words that it has not had before a cache of it was missed; before them those it had.
pub fn since_missed_caches(source: &str, hybrid: &str) -> Vec<String> {
    let now = NOW.lock().unwrap_or_else(PoisonError::into_inner);
    let missed = now
        .as_ref()
        .and_then(|begun| begun.written.missed_caches.get(hybrid));
    let words = |missed| match missed {
        0 => source.to_owned(),
        missed => format!("{source}, caches missed: {missed}"),
    };
    (0..=missed.copied().unwrap_or_default())
        .map(words)
        .collect()
}

/// What an export says of itself to clients; `source`: what it stands on, in words that nothing else has.
pub fn describe(source: &str, crash_keeping: bool) -> String {
    let now = NOW.lock().unwrap_or_else(PoisonError::into_inner);
    let now = now
        .as_ref()
        .map(|begun| begun.written.clone())
        .unwrap_or_default();
    let keeps = if crash_keeping { "yes" } else { "no" };
    let source = crc32c(source.as_bytes());
    format!(
        "Tanada {:016x}-{source:08x}; unclean starts: {}; losses: {}; crash-keeping: {keeps}",
        now.id, now.unclean, now.losses
    )
}

/// The same of a virtual disk, which keeps all that it answered; `openings`: between them no other node had it.
pub fn describe_virtual(number: u32, (first, last): (u64, u64)) -> String {
    let own = describe(&format!("virtual disk {number}"), true);
    // Where programs that know nothing of openings take them for another disk.
    let openings = format!(", openings {first}-{last}; unclean");
    own.replacen("; unclean", &openings, 1)
}

impl Begun {
    fn of(path: PathBuf, boot: &str) -> anyhow::Result<Begun> {
        let cannot = || format!("cannot count the starts in {}", path.display());
        let before = match fs::read(&path) {
            Ok(text) => serde_json::from_slice::<Written>(&text).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(cannot),
        };
        // Without a file that can be read nothing is known: no client of before goes on.
        let before = match before {
            Some(before) => before,
            None => Written {
                id: getrandom::u64()
                    .map_err(io::Error::other)
                    .with_context(cannot)?,
                ..Written::default()
            },
        };
        let is_unclean = before.running;
        let begun = Begun {
            path: path.clone(),
            written: Written {
                unclean: before.unclean + u64::from(is_unclean),
                losses: before.losses + u64::from(is_unclean && before.boot != boot),
                running: true,
                boot: boot.to_owned(),
                ..before
            },
            is_unclean,
            lost: BTreeSet::new(),
        };
        begun.write().with_context(cannot)?;
        Ok(begun)
    }

    /// Everything closed cleanly.
    pub fn end(mut self) -> io::Result<()> {
        let now = NOW.lock().unwrap_or_else(PoisonError::into_inner);
        // Losses and missed caches were noted since.
        if let Some(now) = now.as_ref().filter(|now| now.path == self.path) {
            self.written = now.written.clone();
        }
        self.written.running = false;
        self.write()
    }

    fn write(&self) -> io::Result<()> {
        whole_file::replace(&self.path, &serde_json::to_vec(&self.written)?)
    }
}

/// What an export says of itself, as a client reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Which data directory, and what of it.
    source: String,
    unclean_starts: u64,
    losses: u64,
    /// What was answered outlives a crash of the daemon.
    crash_keeping: bool,
    /// Of a virtual disk: openings, the present one the last, between which no other node had it.
    openings: Option<(u64, u64)>,
}

impl Described {
    /// Of a description; `None`: it says nothing of that.
    pub fn read(text: &str) -> Option<Described> {
        let (source, rest) = text
            .strip_prefix("Tanada ")?
            .split_once("; unclean starts: ")?;
        let (unclean, rest) = rest.split_once("; losses: ")?;
        let (losses, keeps) = rest.split_once("; crash-keeping: ")?;
        let (source, openings) = match source.split_once(", openings ") {
            Some((source, openings)) => {
                let (first, last) = openings.split_once('-')?;
                (source, Some((first.parse().ok()?, last.parse().ok()?)))
            }
            None => (source, None),
        };
        Some(Described {
            source: source.to_owned(),
            unclean_starts: unclean.parse().ok()?,
            losses: losses.parse().ok()?,
            crash_keeping: keeps == "yes",
            openings,
        })
    }

    /// May a client that was connected before go on, where what it finds now is `now`?
    pub fn goes_on_as(&self, now: &Described) -> bool {
        let is_clean = self.unclean_starts == now.unclean_starts;
        let is_kept = self.crash_keeping && now.crash_keeping && self.losses == now.losses;
        self.source == now.source && !self.was_elsewhere(now) && (is_clean || is_kept)
    }

    /// Had another node the disk since, or was it changed while no node had it?
    pub fn was_elsewhere(&self, now: &Described) -> bool {
        match (self.openings, now.openings) {
            (Some((_, last)), Some((first, now))) => !(first..=now).contains(&last),
            (before, now) => before != now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_after_a_crash_counts_and_one_after_an_end_does_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("starts.json");
        let begin = |boot: &str| Begun::of(path.clone(), boot).expect("it is written");
        let counts = |begun: &Begun| (begun.written.unclean, begun.written.losses);
        let first = begin("a");
        let id = first.written.id;
        assert_eq!(counts(&first), (0, 0));
        first.end().expect("it is written");
        // A boot after a stop loses nothing.
        let second = begin("b");
        assert_eq!((counts(&second), second.written.id), ((0, 0), id));
        drop(second);
        assert_eq!(counts(&begin("b")), (1, 0), "it was not ended");
        let fourth = begin("c");
        assert_eq!(
            counts(&fourth),
            (2, 1),
            "nor was that, and the machine began anew"
        );
        fourth.end().expect("it is written");
        assert_eq!(counts(&begin("c")), (2, 1));
        fs::write(&path, "{").expect("it is ours");
        assert_ne!(begin("c").written.id, id, "what it was is not known");
    }

    #[test]
    fn a_description_is_read_back() {
        let own = Described::read(&describe("disk a", true)).expect("it is one");
        let other = Described::read(&describe("disk b", false)).expect("it is one");
        assert!(own.crash_keeping && !other.crash_keeping);
        assert!(
            own.goes_on_as(&own) && !own.goes_on_as(&other),
            "another disk"
        );
        for text in [
            "",
            "a disk",
            "Tanada 0-0; unclean starts: x; losses: 0; crash-keeping: yes",
        ] {
            assert_eq!(Described::read(text), None, "{text}");
        }
    }

    #[test]
    fn a_virtual_disk_goes_on_unless_another_node_had_it() {
        let disk = |number, openings| {
            Described::read(&describe_virtual(number, openings)).expect("it is one")
        };
        let own = disk(1, (4, 9));
        assert!(own.crash_keeping && own.goes_on_as(&disk(1, (4, 12))));
        assert!(own.goes_on_as(&disk(1, (9, 12))), "the one before");
        assert!(!own.goes_on_as(&disk(1, (10, 12))), "10 was another node's");
        assert!(!own.goes_on_as(&disk(2, (4, 12))), "another disk");
        assert!(!own.goes_on_as(&Described::read(&describe("virtual disk 1", true)).unwrap()));
        let torn = describe_virtual(1, (4, 9)).replace("4-9", "4");
        assert_eq!(Described::read(&torn), None);
    }

    #[test]
    fn a_cache_that_is_given_up_without_a_daemon_counts_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        note_missed_cache_of(dir.path(), "vol0").unwrap();
        assert!(
            !dir.path().join(FILE).exists(),
            "there is no client of before"
        );
        Begun::of(dir.path().join(FILE), "boot")
            .unwrap()
            .end()
            .unwrap();
        note_missed_cache_of(dir.path(), "vol0").unwrap();
        let begun = Begun::of(dir.path().join(FILE), "boot").unwrap();
        assert_eq!(begun.written.missed_caches["vol0"], 1);
        assert_eq!(begun.written.unclean, 0);
    }

    #[test]
    fn a_client_goes_on_after_a_clean_stop_or_where_nothing_was_lost() {
        let of = |unclean_starts, losses, crash_keeping| Described {
            source: "1".to_owned(),
            unclean_starts,
            losses,
            crash_keeping,
            openings: None,
        };
        let goes_on = |before: Described, now: Described| before.goes_on_as(&now);
        assert!(goes_on(of(1, 0, false), of(1, 0, false)));
        assert!(goes_on(of(1, 0, true), of(2, 0, true)));
        assert!(!goes_on(of(1, 0, false), of(2, 0, false)));
        assert!(
            !goes_on(of(1, 0, false), of(2, 0, true)),
            "it was lost then"
        );
        assert!(!goes_on(of(1, 0, true), of(2, 0, false)));
        // A clean start since hides no loss.
        assert!(!goes_on(of(1, 0, true), of(2, 1, true)));
        assert!(!of(1, 0, true).goes_on_as(&Described {
            source: "2".to_owned(),
            ..of(1, 0, true)
        }));
    }
}
