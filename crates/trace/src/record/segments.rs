//! The files of a recording: FILE, FILE.1, FILE.2 and so on.
//!
//! ```text
//! batch -> FILE -> full, or a lower bound? -> look: all ours? -> each moves on, the oldest go -> a new FILE
//! ```
//!
//! Always true: only recordings are ever moved or removed; where anything else lies, nothing is touched.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use base::{Bytes, Nanos};

use crate::HEADER;

/// The least that can be asked for.
pub const LEAST_MAX: Bytes = Bytes::mib(1);
/// Files of a recording: the one being written and those before it.
///
/// Choice: eight, so that at least seven eighths of the bound hold the latest past.
pub const FILES: u64 = 8;
/// Begins the second line of every file: the mark of a recording.
const MARK: &str = "# recorded by tanada";
/// The two first lines are shorter.
const HEAD_MAX: u64 = 256;

/// Why a recording cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Too little to hold anything.
    #[error("a recording of at most {asked} is too small; ask for {LEAST_MAX} at least")]
    TooSmall {
        /// What was asked for.
        asked: Bytes,
    },
    /// Something else lies there.
    #[error(
        "{file} is there already and was not recorded by tanada; move it away or name another file"
    )]
    NotATrace {
        /// The file in the way.
        file: String,
    },
    /// Another recording writes there.
    #[error("{file} is being recorded to already; name another file or stop that recording")]
    InUse {
        /// The file.
        file: String,
    },
    /// The system refused.
    #[error("cannot record to {file}")]
    Io {
        /// The file.
        file: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Lines on their way to the file.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) lines: Vec<u8>,
    pub(super) requests: u64,
    /// Requests that were dropped before these.
    pub(super) missing: u64,
}

pub(super) fn io_error(file: &Path) -> impl Fn(io::Error) -> RecordError {
    let file = file.display().to_string();
    move |source| RecordError::Io {
        file: file.clone(),
        source,
    }
}

/// FILE, FILE.1, ...
#[derive(Debug)]
pub(super) struct Segments {
    file: PathBuf,
    open: File,
    pub(super) written: u64,
    /// What all files may hold.
    max: u64,
    /// The first lines of every file.
    head: String,
}

impl Segments {
    /// Makes an empty FILE, after what lies there was moved on. The recording begins at `wall`.
    pub(super) fn open(file: &Path, max: Bytes, wall: Nanos) -> Result<Segments, RecordError> {
        check_max(max)?;
        // First of all: only a file that is one can be opened without waiting.
        look(file)?;
        match File::open(file).map(|old| old.try_lock()) {
            Ok(Err(fs::TryLockError::WouldBlock)) => {
                let file = file.display().to_string();
                return Err(RecordError::InUse { file });
            }
            // A file system without locks, or no file yet.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error(file)(error)),
        }
        const SECOND: u64 = Nanos::secs(1).0;
        let head = format!(
            "{HEADER}\n{MARK}: times count from {}.{:09} (seconds since 1970); a file with another start is another trace\n",
            wall.0 / SECOND,
            wall.0 % SECOND,
        );
        let open = rotate(file, max.0, &head)?;
        Ok(Segments {
            file: file.to_owned(),
            open,
            written: head.len() as u64,
            max: max.0,
            head,
        })
    }

    /// Writes a batch, into a new file if this one would grow too long for files of together `max`; says
    /// how many bytes that took.
    pub(super) fn write(&mut self, batch: &Batch, max: u64) -> Result<u64, RecordError> {
        let mut bytes = 0;
        let full = self.written + batch.lines.len() as u64 + REMARK_MAX > max / FILES;
        if full || max < self.max {
            self.open = rotate(&self.file, max, &self.head)?;
            self.written = self.head.len() as u64;
            bytes += self.written;
        }
        self.max = max;
        let remark = match batch.missing {
            0 => String::new(),
            missing => format!(
                "# {missing} requests before this line are missing: the file could not be written fast enough\n"
            ),
        };
        let mut write = || {
            self.open.write_all(remark.as_bytes())?;
            self.open.write_all(&batch.lines)
        };
        if let Err(error) = write() {
            // Nothing of the batch counts as written. Where it cannot be taken back, the file ends in half a line.
            let _ = self.open.set_len(self.written);
            return Err(io_error(&self.file)(error));
        }
        let added = (remark.len() + batch.lines.len()) as u64;
        self.written += added;
        Ok(bytes + added)
    }
}

/// Refuses a bound that holds next to nothing.
///
/// # Errors
/// [`RecordError::TooSmall`].
pub fn check_max(max: Bytes) -> Result<(), RecordError> {
    match max < LEAST_MAX {
        true => Err(RecordError::TooSmall { asked: max }),
        false => Ok(()),
    }
}

/// A remark is shorter.
const REMARK_MAX: u64 = 128;

/// Moves files one on, up to the first gap, removes the oldest that do not fit beside a new one, and begins
/// FILE anew with `head`.
fn rotate(file: &Path, max: u64, head: &str) -> Result<File, RecordError> {
    let mut lengths = look(file)?;
    let io = io_error(file);
    let gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(&io),
    };
    if lengths[0] == Some(0) {
        gone(fs::remove_file(file))?;
        lengths[0] = None;
    }
    let mut room = Some(max - max / FILES);
    let gap = lengths.iter().position(Option::is_none);
    let mut kept = Vec::new();
    for (n, length) in (0..FILES).zip(lengths) {
        let Some(length) = length else { continue };
        // What is older than one without room goes too: no holes.
        room = room.and_then(|room| room.checked_sub(length));
        match room.is_some() && (n + 1 < FILES || gap.is_some()) {
            true => kept.push(n),
            false => gone(fs::remove_file(numbered(file, n)))?,
        }
    }
    for n in kept.into_iter().rev() {
        if gap.is_none_or(|gap| n < gap as u64) {
            gone(fs::rename(numbered(file, n), numbered(file, n + 1)))?;
        }
    }
    let begin = OpenOptions::new().write(true).create_new(true).open(file);
    let mut open = begin.map_err(&io)?;
    // So that no second recording takes the same file; a file system without locks has to do without.
    let _ = open.try_lock();
    if let Err(error) = open.write_all(head.as_bytes()) {
        // Half a head would be a file of no recording.
        let _ = fs::remove_file(file);
        return Err(io(error));
    }
    Ok(open)
}

/// FILE for 0, else FILE.n.
pub(super) fn numbered(file: &Path, n: u64) -> PathBuf {
    match n {
        0 => file.to_owned(),
        n => {
            let mut name = file.as_os_str().to_owned();
            name.push(format!(".{n}"));
            name.into()
        }
    }
}

/// How long FILE, FILE.1 and so on are, those without requests 0; none where nothing lies.
///
/// # Errors
/// [`RecordError::NotATrace`] where something lies that no recorder wrote.
pub(super) fn look(file: &Path) -> Result<Vec<Option<u64>>, RecordError> {
    let one = |n| {
        let one = numbered(file, n);
        match length(&one) {
            Ok(Some(length)) => Ok(Some(length)),
            Ok(None) => Err(RecordError::NotATrace {
                file: one.display().to_string(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error(&one)(error)),
        }
    };
    (0..FILES).map(one).collect()
}

/// How long the recorded file is, 0 if it has no requests; none if it was not recorded. An empty file is
/// taken for a recorded one: a loss of power leaves such.
fn length(file: &Path) -> io::Result<Option<u64>> {
    let meta = fs::metadata(file)?;
    if !meta.is_file() {
        return Ok(None);
    }
    let mut start = Vec::new();
    File::open(file)?.take(HEAD_MAX).read_to_end(&mut start)?;
    if start.is_empty() {
        return Ok(Some(0));
    }
    let behind_header = start.strip_prefix(HEADER.as_bytes());
    let behind_break = behind_header.and_then(|rest| rest.strip_prefix(b"\n"));
    let Some(rest) = behind_break.and_then(|rest| rest.strip_prefix(MARK.as_bytes())) else {
        return Ok(None);
    };
    let only_head = rest.iter().position(|&byte| byte == b'\n') == Some(rest.len() - 1)
        && meta.len() == start.len() as u64;
    Ok(Some(if only_head { 0 } else { meta.len() }))
}
