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

use base::{Buf, Bytes, crc::crc32c};
use device::{Class, DeviceError};

use crate::object::error::StoreError;
use crate::object::finding::BadBlock;
use crate::object::open::{Inner, Store};
use crate::object::segment::Entry;
use crate::object::table::{Cursor, PAGES};

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

impl Store {
    /// Reads about the next `bytes` of all data and compares them with their checksums. One step at a time.
    ///
    /// # Errors
    /// [`StoreError::Failed`], [`StoreError::Closed`], and [`StoreError::Device`] if the device is gone. Data that cannot be
    /// read are no error, but found bad.
    pub async fn scrub_step(&self, bytes: Bytes) -> Result<ScrubStep, StoreError> {
        let inner = &self.inner;
        inner.usable()?;
        let mut cursor = inner.table.borrow().scrub;
        let mut step = ScrubStep::default();
        let most = bytes.0.div_ceil(inner.page).max(1);
        let mut pages = 0;
        while pages < most {
            let Some((id, number)) = inner.next_segment(cursor) else {
                step.round_done = true;
                cursor = Cursor {
                    rounds: cursor.rounds + 1,
                    ..Cursor::default()
                };
                break;
            };
            pages += inner.scrub_segment(id, number, &mut step.bad).await?;
            cursor.object = id;
            cursor.segment = number + 1;
        }
        cursor.pages += pages;
        step.read = Bytes(pages * inner.page);
        step.rounds = cursor.rounds;
        inner.stage(40).await?;
        inner.table.change().set_cursor(cursor);
        inner.commit.note();
        Ok(step)
    }
}

impl Inner {
    /// The first segment from the cursor on.
    fn next_segment(&self, cursor: Cursor) -> Option<(u32, u32)> {
        let table = self.table.borrow();
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
    async fn scrub_segment(
        &self,
        id: u32,
        number: u32,
        bad: &mut Vec<BadBlock>,
    ) -> Result<u64, StoreError> {
        let (name, segment, _reading) = {
            let table = self.table.borrow();
            let Some(object) = table.get(id) else {
                return Ok(0);
            };
            let Some(segment) = object.segment(number) else {
                return Ok(0);
            };
            (object.name.to_string(), segment, self.reading())
        };
        let mut pages = 0;
        let mut at = 0;
        while at < segment.entries.len() {
            let count = crate::object::read::row(&segment.entries[at..], self.io_pages as usize);
            let from = at;
            at += count;
            if segment.entries[from].is_none() {
                continue;
            }
            pages += count as u64;
            for (place, why) in bad_of_row(self, &name, &segment.entries, from..at).await? {
                let entry = segment.entries[place].expect("a row is all data or all holes");
                self.count(|figures| figures.bad_checksums += 1);
                let page = u64::from(number) * PAGES + place as u64;
                self.note_bad(id, page, entry);
                bad.push(BadBlock {
                    object: name.clone(),
                    offset: page * self.page,
                    len: Bytes(self.page),
                    page: entry.place,
                    why,
                });
            }
        }
        self.count(|figures| figures.pages_scrubbed += pages);
        Ok(pages)
    }

    /// Notes with the object that a page is bad, if it is still there.
    pub fn note_bad(&self, id: u32, page: u64, entry: Entry) {
        let mut table = self.table.change();
        let number = (page / PAGES) as u32;
        let segment = table.get(id).and_then(|object| object.segment(number));
        let place = (page % PAGES) as usize;
        if let Some(segment) = segment.filter(|segment| segment.entries[place] == Some(entry)) {
            table.set_bad(id, number, segment.bad | 1 << place);
            drop(table);
            self.commit.note();
        }
    }
}

/// Which pages of a row of a segment are not what was written, and why. A row that cannot be read as a whole is read page by
/// page: one bad sector says nothing about its neighbours.
async fn bad_of_row(
    inner: &Inner,
    name: &str,
    entries: &[Option<Entry>],
    row: Range<usize>,
) -> Result<Vec<(usize, String)>, StoreError> {
    let page = inner.page as usize;
    let mut bad = Vec::new();
    let mut rest = vec![row];
    while let Some(row) = rest.pop() {
        let first = entries[row.start].expect("a row is all data or all holes");
        let sector = inner.superblock.sector(first.place);
        let buf = Buf::for_read(row.len() * page);
        match inner.device.read(sector, buf, Class::Background).await {
            Ok(buf) => {
                for (place, bytes) in row.zip(buf.chunks(page)) {
                    if entries[place].is_some_and(|entry| crc32c(bytes) != entry.crc) {
                        bad.push((place, "the checksum differs".to_owned()));
                    }
                }
            }
            Err(source @ DeviceError::Gone { .. }) => {
                return Err(inner.device_error("scrub", name, source));
            }
            Err(error) if row.len() == 1 => bad.push((row.start, error.to_string())),
            Err(_) => rest.extend(row.rev().map(|place| place..place + 1)),
        }
    }
    Ok(bad)
}
