//! Why a ledger did not do what it was asked.

use base::{Bytes, Sector, Span};
use device::DeviceError;

/// Why a ledger did not do what it was asked. Cheap to clone: a group of commits shares one failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The region cannot hold a ledger, or not this one.
    #[error("cannot keep a ledger in {region} of {device}: {why}")]
    Region {
        /// The device's name.
        device: String,
        /// What was asked for.
        region: Span,
        /// What is wrong with it and what would do.
        why: String,
    },
    /// The device failed.
    #[error("cannot {doing} the ledger in {region} of {device}: {source}")]
    Device {
        /// The device's name.
        device: String,
        /// What the ledger was about to do.
        doing: &'static str,
        /// The ledger's region.
        region: Span,
        /// What the device answered.
        source: Box<DeviceError>,
    },
    /// Neither superblock is whole.
    #[error(
        "no ledger in {region} of {device}: superblock A {a}, superblock B {b}; \
         name the right region, or format it if nothing in it is needed"
    )]
    NoLedger {
        /// The device's name.
        device: String,
        /// Where one was looked for.
        region: Span,
        /// What is wrong with the first superblock.
        a: &'static str,
        /// What is wrong with the second.
        b: &'static str,
    },
    /// A whole superblock of a version this program does not know. Nothing was written.
    #[error(
        "the ledger in {region} of {device} has format version {found}, this program knows {known}; \
         use the program that wrote it, or wipe the region if nothing in it is needed"
    )]
    Version {
        /// The device's name.
        device: String,
        /// The ledger's region.
        region: Span,
        /// The version found.
        found: u32,
        /// The version this program writes.
        known: u32,
    },
    /// A batch that was durable cannot be read, and later ones or the superblock prove it was there.
    #[error(
        "the ledger on {device} is damaged at {sector}: batch {sequence} should be there ({why}), since \
         batches up to {durable} were durable; open it with salvage to go on with what is readable"
    )]
    Damaged {
        /// The device's name.
        device: String,
        /// Where the bad batch begins, counted from the start of the device.
        sector: Sector,
        /// The batch that should be there.
        sequence: u64,
        /// The last batch that was durable at least: a later one is there, or the superblock says so.
        durable: u64,
        /// What is wrong with the bad one.
        why: &'static str,
    },
    /// The live records do not fit: the log must hold them twice while it is compacted.
    #[error(
        "the ledger on {device} is full: {needed} are needed for its live records and this batch, {free} of \
         {log} are free; a log holds live records up to half its size: give it a larger region"
    )]
    Full {
        /// The device's name.
        device: String,
        /// What the last compaction would have written.
        needed: Bytes,
        /// What is free in the log.
        free: Bytes,
        /// The log's size.
        log: Bytes,
    },
    /// The payload is longer than a superblock holds.
    #[error("a payload of {asked} does not fit a ledger's superblock, which holds {most}")]
    Payload {
        /// Its length.
        asked: Bytes,
        /// The longest.
        most: Bytes,
    },
    /// An earlier commit failed, so what is in memory and what is on the device may differ.
    #[error("the ledger takes nothing more, because it failed before ({first}); open it again")]
    Failed {
        /// The first failure.
        first: Box<LedgerError>,
    },
    /// A prepared batch was dropped instead of committed, so later ones would leave a hole.
    #[error("a prepared batch was dropped before it was committed; open the ledger again")]
    Dropped,
    /// `close` was asked for while batches were prepared and not committed.
    #[error(
        "cannot close the ledger: {prepared} batches are prepared and not durable; commit them first"
    )]
    Unfinished {
        /// How many.
        prepared: usize,
    },
    /// The ledger was closed.
    #[error("the ledger is closed; open it again")]
    Closed,
}
