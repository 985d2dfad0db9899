//! The report on a log that was read: how much was found, and what is missing.
//!
//! ```text
//! replay -> Replay { records, what could not be read behind the last batch }
//! salvage -> the same, with a Loss for each gap; Salvaged::Gap among the records
//! ```

use base::{Bytes, Sector};

use crate::batch::Record;
use crate::layout::Superblock;

/// What replay found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replay {
    /// Records shown.
    pub records: u64,
    /// Batches they were in.
    pub batches: u64,
    /// Bytes of the log they took.
    pub bytes: Bytes,
    /// Was the ledger closed, and nothing written since?
    pub clean: bool,
    /// A batch was begun at the end and is not whole: a crash cut it off.
    pub torn_tail: bool,
    /// Blocks behind the last batch that the device could not read, if they may have held one that was durable.
    pub unreadable: u64,
    /// Where the first of them lies, from the start of the device. There may be none any more: an earlier opening found them,
    /// and wrote over them, and nothing was committed since.
    pub unreadable_at: Option<Sector>,
    /// What a salvage could not read; empty otherwise.
    pub losses: Vec<Loss>,
}

/// Batches that were durable once and cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The first batch lost.
    pub first: u64,
    /// The last batch lost.
    pub last: u64,
    /// Where the first one should begin, from the start of the device.
    pub sector: Sector,
}

/// What a salvage shows, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Salvaged<'a> {
    /// A record of a whole batch.
    Record(Record<'a>),
    /// Here batches are missing that were durable, or may have been. They may have held a record of any key.
    Gap,
}

/// Blocks behind the head that could not be read. They count as cut off, and must not come back if they can be read
/// again one day: they are written over before the next batch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unreadable {
    pub positions: Vec<u64>,
    /// The next batch, if it belongs where one of them is, or was: it may have been durable, and others behind it. 0: none.
    pub doubted: u64,
}

impl Unreadable {
    /// What an earlier opening left: until the next commit the indeterminate batch stays noted.
    pub fn noted(superblock: &Superblock) -> Unreadable {
        Unreadable {
            positions: Vec::new(),
            doubted: superblock.doubted,
        }
    }
}
