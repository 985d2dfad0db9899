//! Block traces: what was asked of a disk, when and where.
//!
//! ```text
//! file (plain, gzip, zstd) -> decoder of its format -> batches of requests -> statistics, simulators, writers
//! generator (generate)  -----------------------------^
//! a running volume -> tap -> recorder (record) -> file
//! a program that reads Parquet: provide_parquet, once at its start (columnar)
//! ```
//!
//! What decoders do with hostile files is tested in `crates/lab/tests/traces`, beside Parquet's.
//!
//! Always true:
//! 1. Requests come in order of time, the first at 0.
//! 2. Memory is bounded, whatever the length of the trace.

mod ascii;
mod blkparse;
mod blktrace;
mod cache_csv;
mod cloud;
mod columnar;
mod decoders;
mod detect;
mod error;
mod fields;
mod fio;
mod format;
pub mod generate;
mod input;
mod lines;
mod lis;
mod msr;
mod normal;
mod object;
mod options;
mod oracle;
mod order;
mod output;
mod read;
pub mod record;
mod records;
mod sink;
mod source;
mod spc;
mod srt;
pub mod stat;
pub mod tap;
mod vscsi;
pub mod write;

pub use columnar::{Columnar, PARQUET_MAGIC, REMARK, RowReader, RowWriter, provide_parquet};
pub use error::{BadRecord, Malformed, Place, Reason, TraceError};
pub use format::{Format, UnknownFormat};
pub use input::BLOCK;
pub use normal::{GENERATED, HEADER};
pub use options::{Bad, ReadOptions};
pub use order::{Disorder, REORDER};
pub use output::Output;
pub use read::{BATCH, Trace, open, open_many};
pub use records::time;
pub use sink::{Decoder, Sink};

use base::{Bytes, Nanos};

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Data were read.
    Read,
    /// Data were written.
    Write,
    /// A range was given up.
    Discard,
    /// Everything written had to be durable.
    Flush,
}

/// One request of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    /// When, since the first request of the trace.
    pub at: Nanos,
    /// Where its first byte lies on its device.
    pub offset: Bytes,
    /// How much; 0 for a flush.
    pub size: Bytes,
    /// On which device; traces of one disk say 0.
    pub device: u32,
    /// What.
    pub op: Op,
}

impl Request {
    /// Its time in whole microseconds, the nearest: the normal form counts no finer.
    #[must_use]
    pub fn micros(&self) -> u64 {
        self.at.0 / 1_000 + u64::from(self.at.0 % 1_000 >= 500)
    }
}

/// Whatever hands out the requests of a trace: a file, a generator.
pub trait Requests {
    /// Puts the next requests, some thousands, into `batch`, which is emptied first; `false` at the end,
    /// with `batch` empty.
    ///
    /// # Errors
    /// [`TraceError`] when the trace cannot be read on.
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<bool, TraceError>;

    /// The remark that says the requests were generated, not recorded; it begins with [`GENERATED`] and is
    /// known once the first batch was taken.
    fn generated(&self) -> Option<&str> {
        None
    }
}

#[cfg(test)]
mod tests;
