//! The volume's record as its writer knows it: what may be asked of the meta store, and what do its answers mean?
//!
//! ```text
//! propose -> compare-and-swap with the next generation -> swapped
//!                                 refused, or read -> learn -> propose again
//!                                 no answer -> lost: it may yet come about, until a later revision is seen
//! ```
//!
//! Always true:
//! 1. Each change has a new generation, and compares with the revision that is known here.
//! 2. While a change may yet come about, the next one is asked for even if it would change nothing: that makes the other void.
//! 3. A record of another epoch is never taken: another writer has the volume.

use std::fmt;

use crate::names::ImageId;
use crate::record::VolumeRecord;

/// Counts the transactions of the meta store that changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The record, as it was last known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecordState {
    record: VolumeRecord,
    revision: Revision,
    /// A change was asked for, and may yet come about.
    indeterminate: bool,
}

impl RecordState {
    /// As the writer that opened the volume wrote it.
    pub fn new(record: VolumeRecord, revision: Revision) -> RecordState {
        RecordState {
            record,
            revision,
            indeterminate: false,
        }
    }

    /// What it says.
    pub fn get(&self) -> &VolumeRecord {
        &self.record
    }

    /// With which revision a change compares.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// What to ask the meta store for, where `next` is wanted, or nothing is; `None`: nothing.
    pub fn propose(&self, next: Option<VolumeRecord>) -> Option<VolumeRecord> {
        let void = || self.indeterminate.then(|| self.record.clone());
        let mut next = next.or_else(void)?;
        next.generation = next.generation.next();
        Some(next)
    }

    /// The meta store has what was asked for.
    pub fn swapped(&mut self, record: VolumeRecord, revision: Revision) {
        *self = RecordState::new(record, revision);
    }

    /// Whether it has, or will have, is not known.
    pub fn lost(&mut self) {
        self.indeterminate = true;
    }

    /// May a change that was asked for yet come about?
    pub fn is_indeterminate(&self) -> bool {
        self.indeterminate
    }

    /// A transaction beside changes of the record gave the volume a new head.
    pub fn goes_on_with(&mut self, head: ImageId, revision: Revision) {
        self.record.head = head;
        self.revision = revision;
    }

    /// The meta store holds this now. `false`: another writer has the volume, and nothing was taken.
    #[must_use]
    pub fn learn(&mut self, found: VolumeRecord, changed: Revision) -> bool {
        let ours = found.epoch == self.record.epoch;
        if ours {
            self.indeterminate &= changed == self.revision;
            (self.record, self.revision) = (found, changed);
        }
        ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{Generation, VolumeId};

    fn known() -> RecordState {
        let record = VolumeRecord::new(VolumeId(1), "v".parse().unwrap(), 2, 1, ImageId(1));
        RecordState::new(record, Revision(4))
    }

    #[test]
    fn what_may_yet_come_about_is_made_void_by_the_next_change() {
        let mut state = known();
        assert_eq!(state.propose(None), None);
        state.lost();
        let next = state.propose(None).unwrap();
        assert_eq!(next.generation, Generation(1));
        // The same revision: it may still be under way.
        assert!(state.learn(state.get().clone(), Revision(4)));
        assert!(state.propose(None).is_some());
        assert!(state.learn(next, Revision(5)));
        assert_eq!(state.propose(None), None);
        assert_eq!(state.get().generation, Generation(1));
    }

    #[test]
    fn a_record_of_another_epoch_is_not_taken() {
        let mut state = known();
        let mut other = state.get().clone();
        other.epoch = Generation(9);
        assert!(!state.learn(other, Revision(7)));
        assert_eq!(state, known());
    }
}
