//! The bytes of objects as they are: read and verified.
//!
//! ```text
//! one step in memory: where are the pages? -> device -> checksums -> data
//! ```
//!
//! Always true:
//! 1. A read sees the object at one moment: of any change all or nothing.
//! 2. No byte of a page whose checksum differs is given out.

use std::ops::Range;

use base::{Buf, Bytes, crc::crc32c};
use device::Class;
use env::sync::join_all;
use ledger::CommitError;

use crate::object::error::StoreError;
use crate::object::parts::Parts;
use crate::object::segment::Entry;

/// The longest single read in bytes.
pub(crate) const READ_MAX: u64 = 64 << 20;

/// Reads objects.
pub(crate) struct Reader<'a>(pub &'a Parts);

impl Reader<'_> {
    /// Up to `len` bytes from byte `offset` on; see [`crate::Store::read`].
    pub async fn read(
        &self,
        name: &str,
        offset: u64,
        len: u64,
        class: Class,
    ) -> Result<Buf, StoreError> {
        let (parts, page) = (self.0, self.0.disk.page);
        if parts.commit.usable() == Err(CommitError::Closed) {
            parts.usable()?;
        }
        if len > READ_MAX {
            let what = format!("read {} at byte {offset} of", Bytes(len));
            let why = format!("one read takes at most {}; split it", Bytes(READ_MAX));
            return Err(parts.disk.refuse(&what, name, why));
        }
        let first = offset / page;
        let (id, entries, len, _reading) = {
            let table = parts.table.borrow();
            let (id, object) = table.find(name).ok_or_else(|| parts.disk.not_found(name))?;
            let len = len.min(object.size.saturating_sub(offset));
            if len == 0 {
                return Ok(Buf::zeroed(0));
            }
            let count = (offset + len).div_ceil(page) - first;
            let entries = object.entries(first, count);
            (id, entries, len, parts.reading())
        };
        let mut whole = self.read_pages(name, &entries, class).await?;
        self.verify(name, id, first, &entries, &whole)?;
        parts.count(|counters| counters.bytes_read += len);
        let skip = (offset - first * page) as usize;
        if skip == 0 {
            whole.truncate(len as usize);
            return Ok(whole);
        }
        Ok(whole.copy_range(skip, len as usize))
    }

    /// Reads pages of an object; their places stay meanwhile.
    async fn read_pages(
        &self,
        name: &str,
        entries: &[Option<Entry>],
        class: Class,
    ) -> Result<Buf, StoreError> {
        let disk = &self.0.disk;
        let page = disk.page as usize;
        let mut rest = Buf::for_read(entries.len() * page);
        let mut at = 0;
        let mut reads = Vec::new();
        while at < entries.len() {
            let count = row(&entries[at..], disk.io_pages as usize);
            let mut piece = rest;
            rest = piece.split_off(count * page);
            let place = entries[at].map(|entry| disk.superblock.sector(entry.place));
            reads.push(async move {
                match place {
                    Some(sector) => disk.device.read(sector, piece, class).await,
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
            let piece = piece.map_err(|source| disk.device_error("read", name, source))?;
            match &mut whole {
                None => whole = Some(piece),
                Some(whole) => whole.join(piece),
            }
        }
        Ok(whole.expect("something was asked for"))
    }

    /// Compares pages from page `first` of an object on with their checksums. All that differ are noted, the first is the
    /// answer.
    fn verify(
        &self,
        name: &str,
        id: u32,
        first: u64,
        entries: &[Option<Entry>],
        whole: &Buf,
    ) -> Result<(), StoreError> {
        let mut bad = None;
        let pages = whole.chunks(self.0.disk.page as usize);
        for (at, (entry, bytes)) in entries.iter().zip(pages).enumerate() {
            if let Some(entry) = entry
                && crc32c(bytes) != entry.crc
            {
                let error = self.damaged(name, id, first + at as u64, *entry);
                bad.get_or_insert(error);
            }
        }
        bad.map_or(Ok(()), Err)
    }

    /// Page `at` of an object as it is, for one who will write `replaced` of it; the page is held.
    pub async fn stays(
        &self,
        name: &str,
        id: Option<u32>,
        at: u64,
        replaced: Range<u64>,
        class: Class,
    ) -> Result<Buf, StoreError> {
        let (parts, page) = (self.0, self.0.disk.page);
        let zeroes = || Ok(Buf::zeroed(page as usize));
        let Some(id) = id else { return zeroes() };
        let (entry, reading) = {
            let table = parts.table.borrow();
            let Some(object) = table.get(id) else {
                return zeroes();
            };
            let from = at * page;
            let all = replaced.start == from && replaced.end >= object.size.min(from + page);
            match object.entry(at).filter(|_| !all) {
                None => return zeroes(),
                Some(entry) => (entry, parts.reading()),
            }
        };
        let read = parts.disk.read(entry.place, 1, class).await;
        drop(reading);
        let buf = read.map_err(|source| parts.disk.device_error("read", name, source))?;
        if crc32c(&buf) != entry.crc {
            return Err(self.damaged(name, id, at, entry));
        }
        Ok(buf)
    }

    /// The page is not what was written: noted for [`crate::Store::bad_blocks`].
    fn damaged(&self, name: &str, id: u32, page: u64, entry: Entry) -> StoreError {
        let disk = &self.0.disk;
        self.0.count(|counters| counters.bad_checksums += 1);
        self.0.note_bad(id, page, entry);
        StoreError::Damaged {
            store: disk.name.clone(),
            object: name.to_owned(),
            offset: page * disk.page,
            len: Bytes(disk.page),
            device: disk.device_name.clone(),
            span: disk.superblock.span(entry.place, 1),
        }
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
