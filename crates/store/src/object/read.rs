//! The bytes of objects as they are: read, and which stretches hold data.
//!
//! ```text
//! one step in memory: where are the pages? -> device -> checksums -> data
//! ```
//!
//! Always true:
//! 1. A read sees the object at one moment: of any change all or nothing.
//! 2. No byte of a page whose checksum differs is given out.

use base::{Buf, Bytes, crc::crc32c};
use device::Class;
use env::sync::join_all;
use ledger::{CommitError, Epoch};

use crate::object::error::StoreError;
use crate::object::open::{Inner, Store};
use crate::object::record::SEGMENTS_MAX;
use crate::object::segment::Entry;
use crate::object::table::{Object, PAGES};
use crate::object::types::{AllocatedRange, Version};

/// The longest single read in bytes.
const READ_MAX: u64 = 64 << 20;

/// A read of mapped pages is under way: they stay.
pub(crate) struct Reading<'a>(&'a Inner, Epoch);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.space.change().leave(self.1);
        self.0.room.notify_all();
    }
}

impl Store {
    /// Reads up to `len` bytes from byte `offset` of `object`: fewer where it ends before, none behind its end.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Damaged`] if a page is not what was written;
    /// [`StoreError::Request`] for more than 64 MiB; [`StoreError::Device`], [`StoreError::Closed`].
    pub async fn read(
        &self,
        object: &str,
        offset: u64,
        len: u64,
        class: Class,
    ) -> Result<Buf, StoreError> {
        self.inner.read(object, offset, len, class).await
    }

    /// The stretches of `len` bytes from `offset`, in order and without gaps, as far as the object reaches: data or
    /// hole, and since which version at the latest they are so. A client that copied the object at version `g`
    /// need copy only stretches later than `g` (the resolution is 32 pages).
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub fn allocated_ranges(
        &self,
        object: &str,
        offset: u64,
        len: u64,
    ) -> Result<Vec<AllocatedRange>, StoreError> {
        #[cfg(test)]
        assert!(
            !self
                .inner
                .planted(crate::object::open::Mutation::PanickingLook),
            "planted"
        );
        let table = self.inner.table.borrow();
        let (_, found) = table
            .find(object)
            .ok_or_else(|| self.inner.not_found(object))?;
        Ok(allocated_ranges(found, self.inner.page, offset, len))
    }
}

fn allocated_ranges(object: &Object, page: u64, offset: u64, len: u64) -> Vec<AllocatedRange> {
    let end = object.size.min(offset.saturating_add(len));
    if offset >= end {
        return Vec::new();
    }
    let mut allocated_ranges: Vec<AllocatedRange> = Vec::new();
    let mut add = |from: u64, to: u64, data: bool, version: u64| {
        let (from, to) = (from.max(offset), to.min(end));
        if from >= to {
            return;
        }
        let version = Version(version);
        if let Some(last) = allocated_ranges.last_mut()
            && last.data == data
            && last.version == version
        {
            last.len += to - from;
            return;
        }
        allocated_ranges.push(AllocatedRange {
            offset: from,
            len: to - from,
            data,
            version,
        });
    };
    // A stretch without a record has been a hole since the object was made, or since it was last cut off.
    let hole = |add: &mut dyn FnMut(u64, u64, bool, u64), from: u64, to: u64| {
        let cut = object.cut_offset.clamp(from, to.max(from));
        add(from, cut, false, object.born);
        add(cut, to, false, object.cut_generation);
    };
    let span = PAGES * page;
    let mut at = offset / span * span;
    let last = end.div_ceil(span).min(SEGMENTS_MAX) as u32;
    for number in object
        .segments
        .range((offset / span) as u32..last)
        .map(|(number, _)| *number)
    {
        let segment = object.segment(number).expect("just listed");
        let start = u64::from(number) * span;
        hole(&mut add, at, start);
        for (place, entry) in segment.entries.iter().enumerate() {
            let from = start + place as u64 * page;
            add(from, from + page, entry.is_some(), segment.version);
        }
        at = start + span;
    }
    hole(&mut add, at, end);
    allocated_ranges
}

impl Inner {
    /// Whatever is mapped now stays until the answer is dropped.
    pub fn reading(&self) -> Reading<'_> {
        Reading(self, self.space.change().enter())
    }

    /// The page is not what was written: noted for [`Store::bad_blocks`].
    fn damaged(&self, name: &str, id: Option<u32>, page: u64, entry: Entry) -> StoreError {
        self.count(|figures| figures.bad_checksums += 1);
        if let Some(id) = id {
            self.note_bad(id, page, entry);
        }
        StoreError::Damaged {
            store: self.name.clone(),
            object: name.to_owned(),
            offset: page * self.page,
            len: Bytes(self.page),
            device: self.device_name.clone(),
            span: self.superblock.span(entry.place, 1),
        }
    }

    async fn read(
        &self,
        name: &str,
        offset: u64,
        len: u64,
        class: Class,
    ) -> Result<Buf, StoreError> {
        if self.commit.usable() == Err(CommitError::Closed) {
            self.usable()?;
        }
        if len > READ_MAX {
            return Err(StoreError::Request {
                what: format!(
                    "read {} at byte {offset} of {name:?} in {}",
                    Bytes(len),
                    self.name
                ),
                why: format!("one read takes at most {}; split it", Bytes(READ_MAX)),
            });
        }
        let (id, entries, len, _reading) = {
            let table = self.table.borrow();
            let (id, object) = table.find(name).ok_or_else(|| self.not_found(name))?;
            let len = len.min(object.size.saturating_sub(offset));
            if len == 0 {
                return Ok(Buf::zeroed(0));
            }
            let first = offset / self.page;
            let count = (offset + len).div_ceil(self.page) - first;
            let entries = object.entries(first, count);
            (id, entries, len, self.reading())
        };
        let first = offset / self.page;
        let whole = self.read_pages(name, id, first, &entries, class).await?;
        self.count(|figures| figures.bytes_read += len);
        let skip = (offset - first * self.page) as usize;
        let mut whole = whole;
        if skip == 0 {
            whole.truncate(len as usize);
            return Ok(whole);
        }
        Ok(whole.copy_range(skip, len as usize))
    }

    /// Reads and verifies pages of an object; their places stay meanwhile.
    async fn read_pages(
        &self,
        name: &str,
        id: u32,
        first: u64,
        entries: &[Option<Entry>],
        class: Class,
    ) -> Result<Buf, StoreError> {
        let page = self.page as usize;
        let mut rest = Buf::for_read(entries.len() * page);
        let mut at = 0;
        let mut reads = Vec::new();
        while at < entries.len() {
            let count = row(&entries[at..], self.io_pages as usize);
            let mut piece = rest;
            rest = piece.split_off(count * page);
            let place = entries[at].map(|entry| self.superblock.sector(entry.place));
            let device = &self.device;
            reads.push(async move {
                match place {
                    Some(sector) => device.read(sector, piece, class).await,
                    None => {
                        piece.zero();
                        Ok(piece)
                    }
                }
            });
            at += count;
        }
        let mut whole: Option<Buf> = None;
        for piece in join_all(reads).await {
            let piece = piece.map_err(|source| self.device_error("read", name, source))?;
            match &mut whole {
                None => whole = Some(piece),
                Some(whole) => whole.join(piece),
            }
        }
        let whole = whole.expect("something was asked for");
        #[cfg(test)]
        if self.planted(crate::object::open::Mutation::UncheckedRead) {
            return Ok(whole);
        }
        let mut bad = None;
        for (at, (entry, bytes)) in entries.iter().zip(whole.chunks(page)).enumerate() {
            if let Some(entry) = entry
                && crc32c(bytes) != entry.crc
            {
                let error = self.damaged(name, Some(id), first + at as u64, *entry);
                bad.get_or_insert(error);
            }
        }
        bad.map_or(Ok(whole), Err)
    }

    /// Page `at` of an object as it is, for one who will write `replaced` of it; the page is held.
    pub async fn stays(
        &self,
        name: &str,
        id: Option<u32>,
        at: u64,
        replaced: std::ops::Range<u64>,
        class: Class,
    ) -> Result<Buf, StoreError> {
        let zeroes = || Ok(Buf::zeroed(self.page as usize));
        let (entry, reading) = {
            let table = self.table.borrow();
            let Some(object) = id.and_then(|id| table.get(id)) else {
                return zeroes();
            };
            let from = at * self.page;
            let all = replaced.start == from && replaced.end >= object.size.min(from + self.page);
            match object.entry(at).filter(|_| !all) {
                None => return zeroes(),
                Some(entry) => (entry, self.reading()),
            }
        };
        let buf = Buf::for_read(self.page as usize);
        let read = self
            .device
            .read(self.superblock.sector(entry.place), buf, class)
            .await;
        drop(reading);
        let buf = read.map_err(|source| self.device_error("read", name, source))?;
        if crc32c(&buf) != entry.crc {
            return Err(self.damaged(name, id, at, entry));
        }
        Ok(buf)
    }
}

/// How many of `entries` lie in a row on the device, or are holes like the first.
pub(crate) fn row(entries: &[Option<Entry>], most: usize) -> usize {
    let first = entries[0].map(|entry| entry.place);
    let mut count = 1;
    while count < entries.len().min(most) {
        let next = entries[count].map(|entry| entry.place);
        let goes_on = match (first, next) {
            (None, None) => true,
            (Some(first), Some(next)) => first.checked_add(count as u32) == Some(next),
            _ => false,
        };
        if !goes_on {
            break;
        }
        count += 1;
    }
    count
}
