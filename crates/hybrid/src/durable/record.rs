//! What the hybrid keeps in its ledger: the map, the write intents and the fingerprints.
//!
//! | key | value |
//! |---|---|
//! | page << 2 | slot u32, CRC-32C u32, flags u8, and for a partial page its sector mask u8 |
//! | region << 2 + 1 | none: the region is marked |
//! | sample << 2 + 2 | CRC-32C u32 of the sampled page of the slow device |
//! | extent << 2 + 3 | state u8, pages of an extent as a power of two u8: the extent is not on the slow device |
//!
//! Little-endian; byte by byte in `docs/formats.md`.

use base::{Bytes, Map};
use ledger::{Batch, Owner, Record};

use crate::durable::intent::WriteIntents;
use crate::index::extents::{ExtentRecord, ExtentTable};
use crate::index::page_map::{Entry, FULL, PageMap};

const PAGE: u64 = 0;
const INTENT: u64 = 1;
const SAMPLE: u64 = 2;
const EXTENT: u64 = 3;
const STATE_UP: u8 = 1;
const STATE_DEMOTING: u8 = 2;
/// Extents have 2^8 to 2^18 pages: 1 MiB to 1 GiB.
const SHIFTS: std::ops::RangeInclusive<u8> = 8..=18;
const FLAG_DIRTY: u8 = 1;
const FLAG_PARTIAL: u8 = 2;

/// One record, understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    Page(u64, Option<Entry>),
    Intent(u64, bool),
    Sample(u64, Option<u32>),
    Extent(u32, Option<ExtentRecord>),
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

pub(crate) fn intent(batch: &mut Batch, region: u64, marked: bool) {
    if marked {
        batch.put(region << 2 | INTENT, &[]);
    } else {
        batch.remove(region << 2 | INTENT);
    }
}

pub(crate) fn sample(batch: &mut Batch, number: u64, crc: Option<u32>) {
    match crc {
        Some(crc) => batch.put(number << 2 | SAMPLE, &crc.to_le_bytes()),
        None => batch.remove(number << 2 | SAMPLE),
    }
}

pub(crate) fn extent(batch: &mut Batch, extent: u32, kept: Option<ExtentRecord>) {
    let key = u64::from(extent) << 2 | EXTENT;
    match kept {
        Some(kept) => {
            let state = if kept.demoting {
                STATE_DEMOTING
            } else {
                STATE_UP
            };
            batch.put(key, &[state, kept.shift]);
        }
        None => batch.remove(key),
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
        (INTENT, value) => Some(Fact::Intent(number, value.is_some())),
        (SAMPLE, None) => Some(Fact::Sample(number, None)),
        (SAMPLE, Some(value)) => {
            let crc = u32::from_le_bytes(value.try_into().ok()?);
            Some(Fact::Sample(number, Some(crc)))
        }
        (EXTENT, None) => Some(Fact::Extent(number.try_into().ok()?, None)),
        (EXTENT, Some(&[state, shift]))
            if matches!(state, STATE_UP | STATE_DEMOTING) && SHIFTS.contains(&shift) =>
        {
            let kept = ExtentRecord {
                demoting: state == STATE_DEMOTING,
                shift,
            };
            Some(Fact::Extent(number.try_into().ok()?, Some(kept)))
        }
        _ => None,
    }
}

/// Lends the live records to the ledger's compaction: slots in order, then intents, fingerprints and extents.
pub(crate) struct Live<'a> {
    pub map: &'a PageMap,
    pub slots: u32,
    pub intents: &'a WriteIntents,
    pub samples: &'a Map<u64, Option<u32>>,
    pub table: &'a ExtentTable,
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
        for region in self.intents.regions() {
            intent(out, region, true);
        }
        let mut numbers: Vec<u64> = self.samples.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            sample(out, number, self.samples[&number]);
        }
        for (number, kept) in self.table.all_kept() {
            extent(out, number, Some(kept));
        }
        None
    }

    fn live(&self) -> Option<Bytes> {
        let top = u64::MAX >> 24; // Keys of pages fit five bytes and two bits.
        let pages = Batch::record_bytes(top, 10) * u64::from(self.map.resident());
        let intents = Batch::record_bytes(top, 0) * self.intents.len() as u64;
        let samples = Batch::record_bytes(top, 4) * self.samples.len() as u64;
        let extents = Batch::record_bytes(top, 2) * self.table.len() as u64;
        Some(pages + intents + samples + extents)
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
        intent(&mut batch, 9, true);
        intent(&mut batch, 9, false);
        sample(&mut batch, 2, Some(4));
        let kept = ExtentRecord {
            demoting: true,
            shift: 12,
        };
        extent(&mut batch, 7, Some(kept));
        extent(&mut batch, 8, None);
        let facts: Vec<Fact> = batch
            .records()
            .map(|record| understand(record).unwrap())
            .collect();
        assert_eq!(
            facts,
            [
                Fact::Page(5, Some(full)),
                Fact::Page(6, Some(part)),
                Fact::Intent(9, true),
                Fact::Intent(9, false),
                Fact::Sample(2, Some(4)),
                Fact::Extent(7, Some(kept)),
                Fact::Extent(8, None),
            ]
        );
    }

    #[test]
    fn a_record_that_is_none_of_ours_is_not_misread() {
        let not_ours: [(u64, &[u8]); 7] = [
            (0, &[1, 2]),
            (0, &[0; 11]),
            (2, &[1]),
            (3, &[]),
            (3, &[3, 12]),
            (3, &[1, 7]),
            (u64::MAX, &[1, 12]),
        ];
        for (key, value) in not_ours {
            assert_eq!(understand(Record::Put { key, value }), None);
        }
    }
}
