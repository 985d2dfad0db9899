//! How often did a daemon of this data directory begin after one that was not closed?
//!
//! ```text
//! DATA_DIR/starts.json: {unclean, running} -> begin: running? one more -> running ... end: not running
//! ```
//!
//! A client that comes again learns of it from the export's description: what was answered before a crash and not
//! flushed is lost, unless the export keeps it ([`describe`], [`Described`]).
//!
//! Always true: the count is durable before the first client is let in.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::whole_file;

/// That of this process, for what it describes.
static UNCLEAN: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
struct Written {
    unclean: u64,
    running: bool,
}

/// A daemon that has begun.
#[derive(Debug)]
pub struct Begun {
    path: PathBuf,
    before: Written,
    unclean: u64,
}

/// Counts one more if the last daemon was not closed.
pub fn begin(data_dir: &Path) -> anyhow::Result<Begun> {
    let path = data_dir.join("starts.json");
    let cannot = || format!("cannot count the starts in {}", path.display());
    let before = match fs::read(&path) {
        // One that cannot be read counts as not closed.
        Ok(text) => serde_json::from_slice(&text).unwrap_or(Written {
            unclean: unlike_any(&text),
            running: true,
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Written::default(),
        Err(error) => return Err(error).with_context(cannot),
    };
    let begun = Begun {
        path: path.clone(),
        before,
        unclean: before.unclean + u64::from(before.running),
    };
    let written = begun.write(Written {
        unclean: begun.unclean,
        running: true,
    });
    written.with_context(cannot)?;
    UNCLEAN.store(begun.unclean, Ordering::Relaxed);
    Ok(begun)
}

/// A count that no file had that could be read.
fn unlike_any(text: &[u8]) -> u64 {
    (1 << 40) + u64::from(base::crc::crc32c(text))
}

impl Begun {
    /// Everything closed cleanly.
    pub fn end(self) -> io::Result<()> {
        self.write(Written {
            unclean: self.unclean,
            running: false,
        })
    }

    /// No client was let in: all is as before.
    pub fn undo(self) -> io::Result<()> {
        self.write(self.before)
    }

    fn write(&self, written: Written) -> io::Result<()> {
        whole_file::replace(&self.path, &serde_json::to_vec(&written)?)
    }
}

/// What an export says of itself to clients.
pub fn describe(crash_keeping: bool) -> String {
    let keeps = if crash_keeping { "yes" } else { "no" };
    let unclean = UNCLEAN.load(Ordering::Relaxed);
    format!("Tanada; unclean starts: {unclean}; crash-keeping: {keeps}")
}

/// The same as a client reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Described {
    pub unclean_starts: u64,
    /// What was answered outlives a crash of the daemon.
    pub crash_keeping: bool,
}

impl Described {
    /// Of a description; `None`: it says nothing of that.
    pub fn read(text: &str) -> Option<Described> {
        let (unclean, keeps) = text
            .strip_prefix("Tanada; unclean starts: ")?
            .split_once("; crash-keeping: ")?;
        Some(Described {
            unclean_starts: unclean.parse().ok()?,
            crash_keeping: keeps == "yes",
        })
    }

    /// May a client that was connected before go on, where what it finds now is `now`?
    pub fn goes_on_as(self, now: Described) -> bool {
        self.unclean_starts == now.unclean_starts || self.crash_keeping && now.crash_keeping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_after_a_crash_counts_and_one_after_an_end_does_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let begin = || super::begin(dir.path()).expect("it is written");
        let first = begin();
        assert_eq!(first.unclean, 0);
        first.end().expect("it is written");
        let second = begin();
        assert_eq!(second.unclean, 0);
        drop(second);
        assert_eq!(begin().unclean, 1, "it was not ended");
        let fourth = begin();
        assert_eq!(fourth.unclean, 2);
        fourth.end().expect("it is written");
        let fifth = begin();
        assert_eq!(fifth.unclean, 2);
        fifth.undo().expect("it is written");
        assert_eq!(begin().unclean, 2, "no client saw it");
        fs::write(dir.path().join("starts.json"), "{").expect("it is ours");
        assert!(begin().unclean > 1 << 40, "what it was is not known");
    }

    #[test]
    fn a_description_is_read_back_and_says_whether_a_client_goes_on() {
        let read = |text: &str| Described::read(text);
        let own = read(&describe(true)).expect("it is one");
        assert!(own.crash_keeping && !read(&describe(false)).expect("it is one").crash_keeping);
        assert_eq!(read(""), None);
        assert_eq!(read("Tanada; unclean starts: x; crash-keeping: yes"), None);
        let of = |unclean_starts, crash_keeping| Described {
            unclean_starts,
            crash_keeping,
        };
        assert!(of(1, false).goes_on_as(of(1, false)));
        assert!(of(1, true).goes_on_as(of(2, true)));
        assert!(!of(1, false).goes_on_as(of(2, false)));
        assert!(!of(1, false).goes_on_as(of(2, true)), "it was lost then");
        assert!(!of(1, true).goes_on_as(of(2, false)));
    }
}
