//! Why a volume did not do what it was asked.
//!
//! Always true: an error names the volume, what stood in the way, and what to do next.

use base::Nanos;

use crate::meta::MetaError;
use crate::names::{Generation, VolumeId};
use crate::record::RecordError;

/// Why a volume did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// There is no record of it.
    #[error("there is no volume {0}; list shows what there is")]
    Missing(VolumeId),
    /// Its record cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The settings do not fit the volume.
    #[error("cannot open volume {volume}: {why}")]
    Settings {
        /// Which.
        volume: VolumeId,
        /// What is wrong and what would do.
        why: String,
    },
    /// The meta store did not answer, or refused.
    #[error("volume {volume} needs the meta store: {source}")]
    Meta {
        /// Which.
        volume: VolumeId,
        /// What it said.
        source: MetaError,
    },
    /// Another writer has it now.
    #[error(
        "volume {volume} was taken over ({why}); nothing is done here any more: open it again if it should be here"
    )]
    Fenced {
        /// Which.
        volume: VolumeId,
        /// How that was seen.
        why: String,
    },
    /// Too few stores can be reached to know what was written last.
    #[error(
        "volume {volume} is offline: an extent may have only {redundancy_floor} in-sync copies, and {} cannot be sealed: {why}; \
         bring them back",
        in_words(missing)
    )]
    Offline {
        /// Which.
        volume: VolumeId,
        /// The least number of in-sync copies of any extent.
        redundancy_floor: u8,
        /// The stores that do not answer.
        missing: Vec<String>,
        /// What the first said.
        why: String,
    },
    /// The record is older than the stores.
    #[error(
        "volume {volume} is not opened: its record is at generation {generation}, and store {store} was used in {found} \
         already; the meta store is older than the stores: bring back the newer one"
    )]
    OldMeta {
        /// Which.
        volume: VolumeId,
        /// Of the record.
        generation: Generation,
        /// A store that is ahead of it.
        store: String,
        /// Where that is.
        found: u64,
    },
    /// A store is sealed for a generation that no writer ever had.
    #[error(
        "volume {volume} is not opened: its record is at generation {generation}, and store {store} is sealed for {found}, \
         where no writer of it was ever; `tanada volume repair` puts the stores right"
    )]
    Sealed {
        /// Which.
        volume: VolumeId,
        /// Of the record.
        generation: Generation,
        /// The store.
        store: String,
        /// What it is sealed for.
        found: u64,
    },
    /// Too few in-sync copies to write.
    #[error(
        "volume {volume} takes no writes there: {copies} of the extent's copies are in sync, it asks for at least {least}; \
         bring back {}",
        in_words(out)
    )]
    ReadOnly {
        /// Which.
        volume: VolumeId,
        /// In-sync copies.
        copies: usize,
        /// The volume's `min_isr`.
        least: u8,
        /// The stores that are out.
        out: Vec<String>,
    },
    /// The map cannot be read or written.
    #[error("volume {volume} cannot use its map: {why}")]
    Map {
        /// Which.
        volume: VolumeId,
        /// What stood in the way.
        why: String,
    },
    /// What is asked of its images cannot be.
    #[error("volume {volume}: {why}")]
    Image {
        /// Which.
        volume: VolumeId,
        /// What stood in the way.
        why: String,
    },
    /// It became smaller.
    #[error("volume {volume} ends at byte {size} now; ask for what lies before")]
    Beyond {
        /// Which.
        volume: VolumeId,
        /// Its size in bytes.
        size: u64,
    },
    /// Nowhere to put a new extent.
    #[error("volume {volume} has no room for a new extent: {why}")]
    NoRoom {
        /// Which.
        volume: VolumeId,
        /// What the policy or the stores said.
        why: String,
    },
    /// No copy does it.
    #[error("no copy of extent {index} of volume {volume} answers: {why}")]
    NoCopy {
        /// Which.
        volume: VolumeId,
        /// The extent.
        index: u32,
        /// What the last one said.
        why: String,
    },
    /// The lease could not be kept.
    #[error(
        "volume {0} cannot keep its lease: the meta store does not answer, and another writer may have the volume"
    )]
    NoLease(VolumeId),
    /// It was closed while requests were under way.
    #[error(
        "volume {volume} was closed, but requests were still under way after {waited}; the next opening reconciles what \
         they left"
    )]
    Busy {
        /// Which.
        volume: VolumeId,
        /// How long they were waited for.
        waited: Nanos,
    },
    /// It was closed.
    #[error("volume {0} is closed; open it again")]
    Closed(VolumeId),
}

pub(super) fn in_words(names: &[String]) -> String {
    let all: Vec<String> = names.iter().map(|one| format!("store {one}")).collect();
    match all.is_empty() {
        true => "no store".to_owned(),
        false => all.join(", "),
    }
}

impl VolumeError {
    /// Is it transient: may a later try succeed?
    pub(super) fn passes(&self) -> bool {
        !matches!(
            self,
            VolumeError::Fenced { .. }
                | VolumeError::Closed(_)
                | VolumeError::Record(_)
                | VolumeError::Beyond { .. }
        )
    }
}
