//! Why a trace, or one record of it, cannot be read.
//!
//! A bad record is the world's, not ours: it is named by file, place and [`Reason`], and then ends the
//! reading or is counted, as [`super::Bad`] says.

use std::path::PathBuf;
use std::{fmt, io};

use base::{Bytes, Nanos};

use super::Format;

/// Where a record stands in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// A line of a text, the first being 1.
    Line(u64),
    /// A record of a binary file, the first being 1.
    Record(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(n) => write!(f, "line {n}"),
            Place::Record(n) => write!(f, "record {n}"),
        }
    }
}

/// What is wrong with one record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The line has too few or too many columns.
    #[error("{found} columns where {wanted} belong")]
    Columns {
        /// How many stand there.
        found: usize,
        /// What belongs there, such as "time,obj,size" or "7".
        wanted: &'static str,
    },
    /// A column holds no whole number that fits in 64 bits.
    #[error("'{text}' in the place of the {column} is no whole number from 0 to 2^64 - 1")]
    Number {
        /// What the column means.
        column: &'static str,
        /// What stands there, shortened.
        text: String,
    },
    /// A column holds no time.
    #[error(
        "'{text}' is no time of 0 or later, or one later than a 64-bit count of nanoseconds can tell"
    )]
    Time {
        /// What stands there, shortened.
        text: String,
    },
    /// A column holds no known operation.
    #[error("'{text}' is no operation of this format; it knows {known}")]
    Operation {
        /// What stands there, shortened.
        text: String,
        /// What could have stood there.
        known: &'static str,
    },
    /// A read, write or discard of nothing.
    #[error("a request of 0 bytes")]
    ZeroSize,
    /// The request lies where no device reaches.
    #[error(
        "a request of {size} bytes at byte {offset} ends beyond 2^63, farther than any device reaches"
    )]
    Beyond {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        size: u64,
    },
    /// A time lies before an earlier record's, by more than is put right.
    #[error(
        "time runs backwards by {}, from {latest} ns to {at} ns; at most {window} of disorder is put right; \
         sort the trace by time, or allow more with --reorder", Nanos(.latest - .at)
    )]
    Backwards {
        /// The time of this record, as the file counts.
        at: u64,
        /// The greatest time before it.
        latest: u64,
        /// How much would have been put right.
        window: Nanos,
    },
    /// The record is longer than any of its format.
    #[error("longer than {limit}, the most a record of this format may have")]
    TooLong {
        /// The limit.
        limit: Bytes,
    },
    /// The file ends within the record.
    #[error("the file ends within this record")]
    Truncated,
    /// Whatever else.
    #[error("{0}")]
    Other(String),
}

impl Reason {
    /// The text of a column as a message shows it: what is no UTF-8 replaced, what is long cut.
    pub fn shown(text: &[u8]) -> String {
        const SHOWN: usize = 40;
        let cut = &text[..text.len().min(SHOWN)];
        let mut shown: String = String::from_utf8_lossy(cut).escape_debug().collect();
        if cut.len() < text.len() {
            shown.push_str("...");
        }
        shown
    }
}

/// A record that could not be read: which, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRecord {
    /// The file as it was named.
    pub file: String,
    /// Which record.
    pub place: Place,
    /// Where it begins: bytes from the start of the file, as it is uncompressed.
    pub byte: u64,
    /// What is wrong.
    pub reason: Reason,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} (byte {}): {}",
            self.file, self.place, self.byte, self.reason
        )
    }
}

/// The records of a trace that were left out: how many, and the first few.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Malformed {
    /// How many in all.
    pub count: u64,
    /// The first [`Malformed::KEPT`].
    pub first: Vec<BadRecord>,
}

impl Malformed {
    /// How many are kept for a message.
    pub const KEPT: usize = 10;

    pub(crate) fn add(&mut self, record: BadRecord) {
        self.count += 1;
        if self.first.len() < Malformed::KEPT {
            self.first.push(record);
        }
    }
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened or read.
    #[error("cannot read the trace {file}")]
    Io {
        /// The file.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// What the file is packed with does not unpack.
    #[error(
        "cannot unpack the trace {file}: its {packing} data are cut off or damaged after {unpacked} bytes of trace"
    )]
    Packing {
        /// The file.
        file: String,
        /// `gzip` or `zstd`.
        packing: &'static str,
        /// How much could be unpacked.
        unpacked: u64,
        /// What the unpacker said.
        source: std::io::Error,
    },
    /// There is nothing in it.
    #[error("the trace {file} holds no request{}", skipped(.malformed))]
    Empty {
        /// The file, or the files.
        file: String,
        /// What was left out, if anything.
        malformed: Malformed,
    },
    /// Nothing lies in the span of time, or on the devices, that were asked for.
    #[error(
        "the trace {file} holds no request in what was asked for ({asked}): of its {requests}, {elsewhere} are on \
         other devices, and the others end {latest} after the first"
    )]
    NothingLeft {
        /// The file, or the files.
        file: String,
        /// The span of time and the devices asked for.
        asked: String,
        /// How many requests there are.
        requests: u64,
        /// How many of them are on devices that were not asked for.
        elsewhere: u64,
        /// When the last of the others comes, since the first of them.
        latest: Nanos,
    },
    /// A record is malformed, and that was to be fatal.
    #[error("{0}; to leave such records out and count them, ask with --bad count")]
    Malformed(Box<BadRecord>),
    /// The format cannot be recognized.
    #[error(
        "cannot tell the format of {file}: {why}; name it with --format, one of {}",
        Format::list()
    )]
    Unknown {
        /// The file.
        file: String,
        /// What it might be.
        why: String,
    },
    /// The file is not what its format says, as a whole.
    #[error("{file} cannot be read as {format}: {why}")]
    Unsupported {
        /// The file.
        file: String,
        /// The format.
        format: Format,
        /// What stands in the way, and what to do.
        why: String,
    },
    /// The options contradict each other.
    #[error("{0}")]
    Options(String),
}

fn skipped(malformed: &Malformed) -> String {
    match malformed.first.first() {
        None => String::new(),
        Some(first) => format!(
            "; {} malformed records were left out, the first: {first}",
            malformed.count
        ),
    }
}

/// Why a trace cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// There is such a file.
    #[error("{} is there already; name another, or overwrite it with --force", file.display())]
    Exists {
        /// The file.
        file: PathBuf,
    },
    /// Parquet is not packed once more.
    #[error("Parquet packs its own columns: name {} without its last ending", file.display())]
    Packed {
        /// The file.
        file: PathBuf,
    },
    /// The system refuses.
    #[error("cannot write the trace {}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}
