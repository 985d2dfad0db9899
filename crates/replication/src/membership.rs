//! What does the record say of a store that leaves the in-sync set, or joins it?
//!
//! ```text
//! leaves -> out, since a generation before every change it may have missed   unless it has the last in-sync copy of something
//! joins  -> out no more
//! ```
//!
//! The *redundancy floor* is the least number of in-sync copies of anything, by the record. Where it is asked for, `floor` says what it is
//! with these stores out.
//!
//! Always true:
//! 1. The redundancy floor of the record is never greater than the truth.
//! 2. A store that was out stays out since when it was.

use std::collections::BTreeMap;

use crate::names::{Generation, StoreNumber};
use crate::record::VolumeRecord;

/// What became of a record that stores are to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shrunk {
    /// All of them were out before.
    Nothing,
    /// One of them has the last in-sync copy of something: the record is not to be used.
    LastCopy,
    /// They are out.
    Out,
}

/// Stores may have missed changes `since` then. `floor` is told the record with them out, and how many are out newly.
pub fn shrink(
    record: &mut VolumeRecord,
    stores: &[StoreNumber],
    since: Generation,
    floor: impl FnOnce(&VolumeRecord, usize) -> u8,
) -> Shrunk {
    let before = record.out.len();
    for store in stores {
        record.out.entry(*store).or_insert(since);
    }
    let newly = record.out.len() - before;
    let floor = floor(record, newly);
    record.redundancy_floor = record.redundancy_floor.min(floor);
    match (newly, floor) {
        (0, _) => Shrunk::Nothing,
        (_, 0) => Shrunk::LastCopy,
        _ => Shrunk::Out,
    }
}

/// Stores that cannot be sealed are out `since` then: as many copies fewer, at the most. Does it say something else now?
pub fn go_on_without(
    record: &mut VolumeRecord,
    missing: &[StoreNumber],
    since: Generation,
) -> bool {
    let before = record.out.len();
    for store in missing {
        record.out.entry(*store).or_insert(since);
    }
    let newly = record.out.len() > before;
    if newly {
        record.redundancy_floor -= missing.len() as u8;
    }
    newly
}

/// A store is in sync, if it still `joins`. While it is not known what older images have the redundancy floor does not grow. Was it
/// out?
pub fn expand(
    record: &mut VolumeRecord,
    store: StoreNumber,
    joins: bool,
    all_known: bool,
    floor: impl FnOnce(&BTreeMap<StoreNumber, Generation>, u8) -> u8,
) -> bool {
    let was_out = joins && record.out.remove(&store).is_some();
    let floor = floor(&record.out, record.copies).max(1);
    record.redundancy_floor = match all_known {
        true => floor,
        false => floor.min(record.redundancy_floor),
    };
    was_out
}

/// Something has so few in-sync copies; 0 is not noted, for then nothing can be done. Does it say less now?
pub fn lower_floor(record: &mut VolumeRecord, floor: u8) -> bool {
    let less = 0 < floor && floor < record.redundancy_floor;
    record.redundancy_floor = record.redundancy_floor.min(floor);
    less
}

/// Everything has at least so many in-sync copies. Does it say more now?
pub fn raise_floor(record: &mut VolumeRecord, floor: u8) -> bool {
    let more = floor > record.redundancy_floor;
    record.redundancy_floor = record.redundancy_floor.max(floor);
    more
}

/// Do all of these count as stores that may have something of the volume?
pub fn lists(record: &VolumeRecord, stores: &[StoreNumber]) -> bool {
    let listed = record.stores.as_ref();
    listed.is_none_or(|it| stores.iter().all(|one| it.contains(one)))
}

/// The least number of in-sync copies of anything: `counts` are those of extents, of map nodes and of what older images have. As many as
/// there should be, `copies`, if there is nothing; no more than the in-sync bitmap replicas, if those were chosen: the next opening
/// must find one.
pub fn floor(
    copies: u8,
    counts: impl IntoIterator<Item = u8>,
    bitmap_replicas: Option<usize>,
) -> u8 {
    let least = counts.into_iter().fold(copies, u8::min);
    match bitmap_replicas {
        Some(bitmap_replicas) if copies > 1 => least.min(bitmap_replicas as u8),
        _ => least,
    }
}

/// These stores may have something of the volume from now on. Does it say something else now?
pub fn list(record: &mut VolumeRecord, stores: &[StoreNumber]) -> bool {
    let lacks = !lists(record, stores);
    if let Some(listed) = &mut record.stores {
        listed.extend(stores);
    }
    lacks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{ImageId, VolumeId};

    const ONE: StoreNumber = StoreNumber(1);
    const TWO: StoreNumber = StoreNumber(2);

    fn record() -> VolumeRecord {
        VolumeRecord::new(VolumeId(1), "v".parse().unwrap(), 3, 1, ImageId(1))
    }

    #[test]
    fn a_store_that_was_out_stays_out_since_then() {
        let mut record = record();
        assert_eq!(
            shrink(&mut record, &[ONE], Generation(5), |_, _| 2),
            Shrunk::Out
        );
        let again = shrink(&mut record, &[ONE, TWO], Generation(9), |_, newly| {
            2 - newly as u8
        });
        assert_eq!((again, record.redundancy_floor), (Shrunk::Out, 1));
        assert_eq!(
            record.out,
            [(ONE, Generation(5)), (TWO, Generation(9))].into()
        );
        assert_eq!(
            shrink(&mut record, &[ONE], Generation(9), |_, _| 1),
            Shrunk::Nothing
        );
    }

    #[test]
    fn the_last_copy_of_something_does_not_leave() {
        let shrunk = shrink(&mut record(), &[ONE], Generation(5), |record, _| {
            u8::from(record.out.is_empty())
        });
        assert_eq!(shrunk, Shrunk::LastCopy);
    }

    #[test]
    fn a_store_that_joins_is_out_no_more_and_the_floor_grows_only_if_all_is_known() {
        let mut record = record();
        record.out.insert(ONE, Generation(5));
        record.redundancy_floor = 2;
        assert!(!expand(&mut record, ONE, false, true, |out, _| 3 - out.len() as u8));
        assert!(expand(&mut record, ONE, true, false, |out, _| 3 - out.len() as u8));
        assert_eq!(record.redundancy_floor, 2);
        assert!(!expand(&mut record, ONE, true, true, |out, _| 3 - out.len() as u8));
        assert_eq!(record.redundancy_floor, 3);
    }

    #[test]
    fn stores_that_cannot_be_sealed_cost_a_copy_each() {
        let mut record = record();
        assert!(go_on_without(&mut record, &[ONE, TWO], Generation(4)));
        assert_eq!((record.out.len(), record.redundancy_floor), (2, 1));
        assert!(!go_on_without(&mut record, &[ONE], Generation(4)));
        assert_eq!(record.redundancy_floor, 1);
    }

    #[test]
    fn the_floor_is_lowered_and_raised_to_what_is_found() {
        let mut record = record();
        assert!(lower_floor(&mut record, 2) && !lower_floor(&mut record, 2));
        assert!(raise_floor(&mut record, 3) && !raise_floor(&mut record, 2));
        assert_eq!(record.redundancy_floor, 3);
    }

    #[test]
    fn the_floor_is_that_of_the_least_copied_thing_and_of_the_bitmap_replicas() {
        assert_eq!(floor(3, [], None), 3);
        assert_eq!(floor(3, [3, 2], None), 2);
        assert_eq!(floor(3, [3, 2], Some(1)), 1);
        assert_eq!(
            floor(1, [1], Some(0)),
            1,
            "a single copy has no bits to be compared by"
        );
    }

    #[test]
    fn a_store_is_listed_once_and_where_any_may_have_something_all_are() {
        let mut record = record();
        assert!(
            list(&mut record, &[ONE]) && lists(&record, &[ONE]) && !lists(&record, &[ONE, TWO])
        );
        assert!(!list(&mut record, &[ONE]));
        record.stores = None;
        assert!(lists(&record, &[TWO]) && !list(&mut record, &[TWO]));
    }
}
