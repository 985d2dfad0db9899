//! Does a store still have what it had? The generation of the volume's fence there shows it.
//!
//! A disk that was put back (a snapshot of a virtual machine, an old image) has its identity and its checksums in order, and copies
//! that are out of date. Its fence is older than the record says.
//!
//! Always true: what an [`Age`] says of a store was durable there.

use crate::names::StoreNumber;
use crate::record::VolumeRecord;

/// How far the volume's fence is at a store.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Age {
    least: u64,
    stamped: u64,
    refused: Option<String>,
}

impl Age {
    /// The greatest generation that was durable there; 0: none is known.
    pub fn least(&self) -> u64 {
        self.least
    }

    /// It was at this generation, and durable.
    pub fn reached(&mut self, generation: u64) {
        self.least = self.least.max(generation);
    }

    /// Was something changed since its last stamp was sent?
    pub fn is_due(&self, changes: u64) -> bool {
        self.stamped < changes
    }

    /// It was stamped when so many changes had begun or ended.
    pub fn stamped(&mut self, changes: u64) {
        self.stamped = changes;
    }

    /// It shows less than it reached, and is refused. Is that new?
    pub fn refuse(&mut self, why: String) -> bool {
        self.refused.replace(why).is_none()
    }

    /// It is as it should be.
    pub fn admit(&mut self) {
        self.refused = None;
    }

    /// Why it is refused.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }
}

/// Notes how far fences are, of stores that have something of the volume. Does it say something else now?
pub fn note_ages(
    record: &mut VolumeRecord,
    ages: impl Iterator<Item = (StoreNumber, u64)>,
) -> bool {
    let before = record.seen.clone();
    for (number, least) in ages.filter(|(_, least)| *least > 0) {
        let known = record.seen.entry(number).or_default();
        *known = least.max(*known);
    }
    // Of a store that has nothing of the volume nothing is read.
    if let Some(stores) = &record.stores {
        record.seen.retain(|number, _| stores.contains(number));
    }
    record.seen != before
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{ImageId, VolumeId};

    #[test]
    fn the_record_keeps_the_greatest_age_of_the_stores_it_lists() {
        let mut record = VolumeRecord::new(VolumeId(1), "v".parse().unwrap(), 2, 1, ImageId(1));
        record.stores = Some([StoreNumber(1), StoreNumber(2)].into());
        let ages = |all: &[(u16, u64)]| {
            all.iter()
                .map(|(one, age)| (StoreNumber(*one), *age))
                .collect::<Vec<_>>()
        };
        assert!(note_ages(
            &mut record,
            ages(&[(1, 5), (2, 0), (3, 9)]).into_iter()
        ));
        assert_eq!(record.seen, [(StoreNumber(1), 5)].into());
        assert!(!note_ages(&mut record, ages(&[(1, 4), (3, 9)]).into_iter()));
        assert_eq!(record.seen, [(StoreNumber(1), 5)].into());
    }

    #[test]
    fn a_store_is_due_until_a_stamp_covers_all_changes() {
        let mut age = Age::default();
        assert!(!age.is_due(0) && age.is_due(1));
        age.stamped(1);
        assert!(!age.is_due(1) && age.is_due(2));
    }

    #[test]
    fn a_refusal_is_new_once_until_the_store_is_admitted() {
        let mut age = Age::default();
        assert!(age.refuse("old".to_owned()) && !age.refuse("old".to_owned()));
        age.admit();
        assert_eq!(age.refused(), None);
        assert!(age.refuse("old".to_owned()));
    }
}
