//! What the hybrid keeps in its ledger: the map, the write-intent marks and the fingerprints.
//!
//! | key | value |
//! |---|---|
//! | page << 2 | slot u32, CRC-32C u32, flags u8, and for a partial page its sector mask u8 |
//! | region << 2 + 1 | none: the region is marked |
//! | sample << 2 + 2 | CRC-32C u32 of the sampled page of the slow device |
//!
//! Little-endian; byte by byte in `docs/formats.md`.

use base::{Bytes, Map};
use ledger::{Batch, Owner, Record};

use crate::map::{Entry, FULL, PageMap};
use crate::marks::Marks;

const PAGE: u64 = 0;
const MARK: u64 = 1;
const SAMPLE: u64 = 2;
const FLAG_DIRTY: u8 = 1;
const FLAG_PARTIAL: u8 = 2;

/// One record, understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    Page(u64, Option<Entry>),
    Mark(u64, bool),
    Sample(u64, Option<u32>),
}

pub(crate) fn put_page(batch: &mut Batch, page: u64, entry: &Entry) {
    let mut value = [0; 10];
    value[..4].copy_from_slice(&entry.slot.to_le_bytes());
    value[4..8].copy_from_slice(&entry.crc.to_le_bytes());
    value[8] = if entry.dirty { FLAG_DIRTY } else { 0 };
    if entry.mask == FULL {
        batch.put(page << 2 | PAGE, &value[..9]);
    } else {
        value[8] |= FLAG_PARTIAL;
        value[9] = entry.mask;
        batch.put(page << 2 | PAGE, &value);
    }
}

/// The present state of `page`, whatever it is.
pub(crate) fn page(batch: &mut Batch, page: u64, map: &PageMap) {
    match map.get(page) {
        Some(entry) => put_page(batch, page, &entry),
        None => batch.remove(page << 2 | PAGE),
    }
}

pub(crate) fn mark(batch: &mut Batch, region: u64, marked: bool) {
    if marked {
        batch.put(region << 2 | MARK, &[]);
    } else {
        batch.remove(region << 2 | MARK);
    }
}

pub(crate) fn sample(batch: &mut Batch, number: u64, crc: Option<u32>) {
    match crc {
        Some(crc) => batch.put(number << 2 | SAMPLE, &crc.to_le_bytes()),
        None => batch.remove(number << 2 | SAMPLE),
    }
}

/// Understands a record; `None` if it is none of ours.
pub(crate) fn understand(record: Record<'_>) -> Option<Fact> {
    let (key, value) = match record {
        Record::Put { key, value } => (key, Some(value)),
        Record::Remove { key } => (key, None),
    };
    let number = key >> 2;
    match (key & 3, value) {
        (PAGE, None) => Some(Fact::Page(number, None)),
        (PAGE, Some(value)) => {
            let (flags, mask) = match value {
                [.., flags] if value.len() == 9 => (*flags, FULL),
                [.., flags, mask] if value.len() == 10 => (*flags, *mask),
                _ => return None,
            };
            let word = |at: usize| {
                let bytes = value[at..at + 4].try_into().expect("four bytes");
                u32::from_le_bytes(bytes)
            };
            let partial = flags & FLAG_PARTIAL != 0;
            if partial != (value.len() == 10) || mask == 0 || flags > 3 {
                return None;
            }
            let entry = Entry {
                slot: word(0),
                crc: word(4),
                dirty: flags & FLAG_DIRTY != 0,
                mask,
            };
            Some(Fact::Page(number, Some(entry)))
        }
        (MARK, value) => Some(Fact::Mark(number, value.is_some())),
        (SAMPLE, None) => Some(Fact::Sample(number, None)),
        (SAMPLE, Some(value)) => {
            let crc = u32::from_le_bytes(value.try_into().ok()?);
            Some(Fact::Sample(number, Some(crc)))
        }
        _ => None,
    }
}

/// Lends the live records to the ledger's compaction: slots in order, then marks and fingerprints.
pub(crate) struct Live<'a> {
    pub map: &'a PageMap,
    pub slots: u32,
    pub marks: &'a Marks,
    pub samples: &'a Map<u64, Option<u32>>,
}

impl Owner for Live<'_> {
    fn sweep(&mut self, cursor: u64, max: usize, out: &mut Batch) -> Option<u64> {
        let end = out.len() + max;
        for slot in cursor..u64::from(self.slots) {
            if out.len() >= end {
                return Some(slot);
            }
            if let Some((page, entry)) = self.map.in_slot(slot as u32) {
                put_page(out, page, &entry);
            }
        }
        // Few enough to go at once.
        for region in self.marks.regions() {
            mark(out, region, true);
        }
        let mut numbers: Vec<u64> = self.samples.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            sample(out, number, self.samples[&number]);
        }
        None
    }

    fn live(&self) -> Option<Bytes> {
        let top = u64::MAX >> 24; // Keys of pages fit five bytes and two bits.
        let pages = Batch::record_bytes(top, 10) * u64::from(self.map.resident());
        let marks = Batch::record_bytes(top, 0) * self.marks.len() as u64;
        let samples = Batch::record_bytes(top, 4) * self.samples.len() as u64;
        Some(pages + marks + samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_come_back_as_they_were_written() {
        let full = Entry {
            slot: 7,
            dirty: true,
            mask: FULL,
            crc: 99,
        };
        let part = Entry {
            slot: 8,
            dirty: false,
            mask: 3,
            crc: 1,
        };
        let mut batch = Batch::new();
        put_page(&mut batch, 5, &full);
        put_page(&mut batch, 6, &part);
        mark(&mut batch, 9, true);
        mark(&mut batch, 9, false);
        sample(&mut batch, 2, Some(4));
        let facts: Vec<Fact> = batch
            .records()
            .map(|record| understand(record).unwrap())
            .collect();
        assert_eq!(
            facts,
            [
                Fact::Page(5, Some(full)),
                Fact::Page(6, Some(part)),
                Fact::Mark(9, true),
                Fact::Mark(9, false),
                Fact::Sample(2, Some(4)),
            ]
        );
    }

    #[test]
    fn a_record_that_is_none_of_ours_is_not_misread() {
        for (key, value) in [(0, &[1, 2][..]), (3, &[]), (0, &[0; 11]), (2, &[1])] {
            assert_eq!(understand(Record::Put { key, value }), None);
        }
    }
}
