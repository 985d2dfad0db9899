//! One fast disk of a slow one and a fast one: a block cache that survives crashes.
//!
//! ```text
//!        Device: read, write, flush, discard, write zeroes
//!   __________________________|___________________________
//!  |   policy::cache: what stays, goes, is worth it         |   decide
//!  |   slots, map, intents --> ledger (group commit)        |   do
//!  |__________________________ ____________________________|
//!       fast device: slots, out of place      slow device: the disk itself, no header
//! ```
//!
//! Data go to free slots of the fast device, never over mapped ones; the map changes at the commit. So a
//! page is atomic and checksummed, a crash finds the last committed map, and the cache comes back warm.
//!
//! Source: DMSSD 4 (one virtual disk of the slow device's size and contents); the crash safety is ours.
//!
//! Always true:
//! 1. After a crash each sector holds its last flushed contents or those of a later write.
//! 2. A page on the fast device is whole or not there.
//! 3. Stale data never come back: what recovery shows stays until the next write.
//!
//! A hybrid of several [`Lanes`] is several of these side by side, each on its part of both devices.

mod attach;
mod cache;
mod cached;
#[cfg(test)]
mod crash_run;
mod destage;
mod durable;
mod engine;
mod fast;
mod fill;
mod health;
mod hold;
mod index;
mod interpose;
mod lanes;
mod limits;
mod moving;
#[cfg(test)]
mod mutation;
mod past;
mod payload;
mod room;
mod settings;
mod slow;
mod stats;
mod tier;
mod trouble;
mod volume;
mod writeback;

pub use attach::error::OpenError;
pub use attach::inspect;
pub use attach::made::{AttachmentId, MadeIn, kept_mode};
pub use attach::pair::{Pair, PairBook, Unwritten};
pub use durable::restart::{RESTART_LOG, RestartPlace};
pub use engine::Ties;
pub use engine::rescue;
pub use engine::{Hybrid, SetError};
pub use health::Abandon;
pub use lanes::Lanes;
pub use settings::{
    Admission, Buffer, CopyBack, Demotion, Energy, Mode, Mover, Settings, SettingsError, Tier,
    TierError, UnknownWord, WriteMode,
};
pub use stats::{
    Health, LedgerUse, NanosOf, Occupancy, Recovered, Share, Status, Traffic, Upkeep, UserRequests,
    Written,
};
pub use tier::{Heat, HeatInterval, MoveEnd, MoveRecord, TierMoves, TierRoom, TierStatus};
