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

mod cache;
mod compare;
#[cfg(test)]
mod crash_run;
mod destage;
mod engine;
pub mod inspect;
mod intents;
mod label;
mod locks;
mod made;
mod map;
mod open;
mod open_error;
mod pair;
mod read;
mod record;
mod refuse;
mod relabel;
pub mod rescue;
mod settings;
mod slots;
mod slow;
mod stats;
mod tier;
mod trouble;
mod write;

pub use cache::Abandon;
pub use engine::{Hybrid, SetError};
pub use made::{AttachmentId, MadeIn, kept_mode};
pub use open::Ties;
pub use open_error::OpenError;
pub use pair::{Pair, PairBook, Unwritten};
pub use settings::{Admission, Energy, Settings, SettingsError, UnknownWord, WriteMode};
pub use stats::{Health, NanosOf, Share, Status, Written};
pub use tier::{
    Buffer, CopyBack, Heat, HeatInterval, Mode, MoveEnd, MoveRecord, Mover, Tier, TierError,
    TierStatus,
};
