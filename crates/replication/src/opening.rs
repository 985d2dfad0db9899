//! A volume gets a new writer: what does the record say, which stores must be sealed, and how long does a lease count?
//!
//! ```text
//! take -> the record has a new epoch -> every in-sync store is sealed with it, or can be spared (`can_open`)
//!   -> what there is of the volume is known -> recovered -> the lease of the writer before is over -> open
//! ```
//!
//! Always true:
//! 1. Every change that was ever answered is on a store that is sealed.
//! 2. A lease counts for its holder by a margin less than for the node that waits for its end.

use base::Nanos;

use crate::record::{VolumeRecord, Writer};

/// The record of a volume that `writer` has from now on.
pub fn take(before: &VolumeRecord, writer: Writer) -> VolumeRecord {
    let mut record = before.clone();
    record.older_than = None;
    record.generation = before.generation.next();
    record.epoch = record.generation;
    record.writer = Some(writer);
    record
}

/// Can a volume be opened of which so many stores were sealed, and so many that may have something of it were not? `before` is its
/// record before the opening, `redundancy_floor` what it says now.
pub fn can_open(
    before: &VolumeRecord,
    redundancy_floor: u8,
    sealed: usize,
    missing: usize,
) -> bool {
    let has_something = before.stores.as_ref().is_none_or(|it| !it.is_empty());
    missing < usize::from(redundancy_floor) && (sealed > 0 || !has_something)
}

/// What was found on sealed stores has so many in-sync copies, `floor`. It grows when the bitmap replicas have the bits of what is
/// unreconciled. Does the record say something else now?
pub fn recovered(record: &mut VolumeRecord, floor: u8) -> bool {
    let floor = floor.max(1).min(record.redundancy_floor.max(1));
    let changes = record.redundancy_floor != floor;
    record.redundancy_floor = floor;
    changes
}

/// How long a lease of `ttl` counts for its holder, from before it was asked for. Leases last `lease` at most.
pub fn counted(ttl: Nanos, lease: Nanos, margin: Nanos) -> Nanos {
    ttl.min(lease).saturating_sub(margin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{Generation, ImageId, StoreNumber, VolumeId};

    fn record() -> VolumeRecord {
        VolumeRecord::new(VolumeId(1), "v".parse().unwrap(), 2, 1, ImageId(1))
    }

    #[test]
    fn a_taken_record_has_an_epoch_of_its_own() {
        let mut before = record();
        before.generation = Generation(7);
        before.older_than = Some(Generation(6));
        let writer = Writer {
            node: "n".to_owned(),
            lease: 3,
            waits: true,
        };
        let taken = take(&before, writer.clone());
        assert_eq!(
            (taken.generation, taken.epoch),
            (Generation(8), Generation(8))
        );
        assert_eq!((taken.writer, taken.older_than), (Some(writer), None));
    }

    #[test]
    fn fewer_stores_may_be_missing_than_anything_has_copies() {
        let mut before = record();
        assert!(can_open(&before, 2, 0, 1), "it has nothing yet");
        before.stores = Some([StoreNumber(1), StoreNumber(2)].into());
        assert!(can_open(&before, 2, 1, 1));
        assert!(!can_open(&before, 2, 1, 2) && !can_open(&before, 1, 1, 1));
        assert!(!can_open(&before, 2, 0, 0), "none is sealed");
    }

    #[test]
    fn the_floor_of_what_was_found_is_no_greater_than_before() {
        let mut record = record();
        assert!(!recovered(&mut record, 3));
        assert!(recovered(&mut record, 1) && !recovered(&mut record, 0));
        assert_eq!(record.redundancy_floor, 1);
    }

    #[test]
    fn a_lease_counts_less_for_its_holder() {
        let all = [9, 10, 20].map(|ttl| counted(Nanos(ttl), Nanos(10), Nanos(4)));
        assert_eq!(all, [Nanos(5), Nanos(6), Nanos(6)]);
    }
}
