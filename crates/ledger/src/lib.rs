//! A durable map on a region of a device: every answered change is found again after any crash.
//!
//! ```text
//! superblock A | superblock B | log: batch batch batch ...   (circular, 4 KiB blocks)
//!
//! prepare (decide, in order) -> commit (one write for all that wait) -> durable
//! open -> replay from the tail to the last whole batch -> the owner has its map again
//! ```
//!
//! Records are `key: u64 -> value: 0..=1024 bytes`; the latest wins. The [`Owner`] keeps the live map in
//! memory, in whatever shape suits it; the ledger keeps only the log. [`Map`] is a ready-made owner for
//! small maps. The bytes are described in `docs/formats/ledger.md`.
//!
//! An owner whose records name data beside the log, many callers of which wait for the same commit, has a [`GroupCommit`];
//! what such commits forget becomes free by a [`Reclaim`].
//!
//! Always true:
//! 1. What a reopened ledger shows is the state after some batch; no batch whose commit was answered is
//!    missing, none is there in part, none without all before it.
//! 2. The log never grows beyond its region: each batch carries along a share of the live records
//!    ([`Owner::sweep`]), and what lies before a finished sweep is dead.
//! 3. Damage to a batch that was durable is distinguished from a batch that a crash cut off, and located.
//! 4. After a failed commit nothing more is taken until the ledger is opened again.

mod batch;
mod compaction;
mod error;
mod group_commit;
mod layout;
mod ledger;
mod log;
mod map;
mod queue;
mod reader;
mod reclaim;
mod replay;
mod report;
mod salvage;
mod superblocks;
mod sweep;
mod track;
mod writer;

pub use batch::{Batch, Record, VALUE_MAX};
pub use error::LedgerError;
pub use group_commit::{CommitCounters, CommitError, CommitSource, Cut, GroupCommit};
pub use ledger::{Counters, Identity, Ledger, PAYLOAD_MAX, Prepared};
pub use map::Map;
pub use reclaim::{Epoch, Reclaim};
pub use report::{Loss, Replay, Salvaged};
pub use sweep::Owner;
