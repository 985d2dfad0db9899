//! Is what was written still what is there? All data are read over and over, a step at a time.
//!
//! ```text
//! cursor (object, segment) -> read the next segments, in the background -> note bad pages -> cursor, durable
//! ```
//!
//! How fast is the caller's to say: a step takes about as many bytes as it is given. The cursor is kept in the ledger,
//! so a round goes on after a restart. What is found bad stays noted with the object until it is written again.
//!
//! The paper has no scrub.

use std::ops::Range;

use base::{Bytes, crc::crc32c};
use device::{Class, DeviceError};

use crate::object::disk::Disk;
use crate::object::error::StoreError;
use crate::object::finding::BadBlock;
use crate::object::parts::Parts;
use crate::object::read::row;
use crate::object::record::Cursor;
use crate::object::segment::{Entry, PAGES};

/// What one step of the scrub did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScrubStep {
    /// Data read.
    pub read: Bytes,
    /// What was found bad in this step.
    pub bad: Vec<BadBlock>,
    /// The round came to its end; the next step begins another.
    pub round_done: bool,
    /// Rounds finished since the store was made.
    pub rounds: u64,
}

/// Reads all data over and over; see [`crate::Store::scrub_step`].
pub(crate) struct Scrubber<'a>(pub &'a Parts);

impl Scrubber<'_> {
    pub async fn step(&self, bytes: Bytes) -> Result<ScrubStep, StoreError> {
        let (parts, page) = (self.0, self.0.disk.page);
        parts.usable()?;
        let mut cursor = parts.table.borrow().scrub;
        let mut step = ScrubStep::default();
        let most = bytes.0.div_ceil(page).max(1);
        let mut pages = 0;
        while pages < most {
            let Some((id, number)) = self.next_segment(cursor) else {
                step.round_done = true;
                cursor = Cursor {
                    rounds: cursor.rounds + 1,
                    ..Cursor::default()
                };
                break;
            };
            pages += self.segment(id, number, &mut step.bad).await?;
            cursor.object = id;
            cursor.segment = number + 1;
        }
        cursor.pages += pages;
        step.read = Bytes(pages * page);
        step.rounds = cursor.rounds;
        parts.stage(40).await?;
        parts.table.change().set_cursor(cursor);
        parts.commit.note();
        Ok(step)
    }

    /// The first segment from the cursor on.
    fn next_segment(&self, cursor: Cursor) -> Option<(u32, u32)> {
        let table = self.0.table.borrow();
        let mut from = cursor.segment;
        for id in cursor.object..table.objects.len() as u32 {
            let object = table.get(id).filter(|object| !object.deleting);
            if let Some((number, _)) =
                object.and_then(|object| object.segments.range(from..).next())
            {
                return Some((id, *number));
            }
            from = 0;
        }
        None
    }

    /// Reads one segment; how many pages it has. A device that is gone says nothing about its data.
    async fn segment(
        &self,
        id: u32,
        number: u32,
        bad: &mut Vec<BadBlock>,
    ) -> Result<u64, StoreError> {
        let (parts, disk) = (self.0, &self.0.disk);
        let (name, segment, _reading) = {
            let table = parts.table.borrow();
            let Some(object) = table.get(id) else {
                return Ok(0);
            };
            let Some(segment) = object.segment(number) else {
                return Ok(0);
            };
            (object.name.to_string(), segment, parts.reading())
        };
        let mut pages = 0;
        let mut at = 0;
        while at < segment.entries.len() {
            let count = row(&segment.entries[at..], disk.io_pages as usize);
            let from = at;
            at += count;
            if segment.entries[from].is_none() {
                continue;
            }
            pages += count as u64;
            for (place, why) in bad_of_row(disk, &name, &segment.entries, from..at).await? {
                let entry = segment.entries[place].expect("a row is all data or all holes");
                parts.count(|counters| counters.bad_checksums += 1);
                let page = u64::from(number) * PAGES + place as u64;
                parts.note_bad(id, page, entry);
                bad.push(BadBlock {
                    object: name.clone(),
                    offset: page * disk.page,
                    len: Bytes(disk.page),
                    page: entry.place,
                    why,
                });
            }
        }
        parts.count(|counters| counters.pages_scrubbed += pages);
        Ok(pages)
    }
}

/// Which pages of a row of a segment are not what was written, and why. A row that cannot be read as a whole is read page by
/// page: one bad sector says nothing about its neighbours.
async fn bad_of_row(
    disk: &Disk,
    name: &str,
    entries: &[Option<Entry>],
    row: Range<usize>,
) -> Result<Vec<(usize, String)>, StoreError> {
    let mut bad = Vec::new();
    let mut rest = vec![row];
    while let Some(row) = rest.pop() {
        let first = entries[row.start].expect("a row is all data or all holes");
        match disk.read(first.place, row.len(), Class::Background).await {
            Ok(buf) => {
                for (place, bytes) in row.zip(buf.chunks(disk.page as usize)) {
                    if entries[place].is_some_and(|entry| crc32c(bytes) != entry.crc) {
                        bad.push((place, "the checksum differs".to_owned()));
                    }
                }
            }
            Err(source @ DeviceError::Gone { .. }) => {
                return Err(disk.device_error("scrub", name, source));
            }
            Err(error) if row.len() == 1 => bad.push((row.start, error.to_string())),
            Err(_) => rest.extend(row.rev().map(|place| place..place + 1)),
        }
    }
    Ok(bad)
}
