//! Bytes are written to an object.
//!
//! ```text
//! hold its pages -> read what of the first and last page stays -> take free pages -> data to the device
//!   -> one step in memory: is the condition still true? then the object's pages are there
//! ```
//!
//! Always true: a write that is refused or fails changes nothing but the room it took for a while.

use std::ops::Range;
use std::rc::Rc;

use base::{Bytes, View};
use device::Class;

use crate::object::allocate::{Need, Piece, Taken};
use crate::object::error::StoreError;
use crate::object::names::check_name;
use crate::object::parts::Parts;
use crate::object::read::Reader;
use crate::object::segment::{self, Entry};
use crate::object::table::Pages;
use crate::object::target::{Attempt, Target};
use crate::object::types::{Change, Version};

/// Writes objects.
pub(crate) struct Writer(pub Rc<Parts>);

impl Writer {
    /// Writes `data` from byte `offset` on; see [`crate::Store::write`].
    pub async fn write(
        &self,
        name: &str,
        offset: u64,
        data: View,
        change: Change,
    ) -> Result<Version, StoreError> {
        let disk = &self.0.disk;
        let len = data.len() as u64;
        let refuse = |why: String| {
            let what = format!("write {} at byte {offset} of", Bytes(len));
            disk.refuse(&what, name, why)
        };
        let most = disk.superblock.write_max();
        if len == 0 || len > most {
            return Err(refuse(format!(
                "one write takes 1 byte to {}; split it",
                Bytes(most)
            )));
        }
        let size_max = disk.size_max();
        if offset.checked_add(len).is_none_or(|end| end > size_max) {
            return Err(refuse(format!(
                "an object holds at most {}",
                Bytes(size_max)
            )));
        }
        check_name(name).map_err(refuse)?;
        loop {
            match self.attempt(name, offset, &data, change).await? {
                Attempt::Done(version) => return self.0.finish(version, change.fua).await,
                Attempt::Again => {}
            }
        }
    }

    async fn attempt(
        &self,
        name: &str,
        offset: u64,
        data: &View,
        change: Change,
    ) -> Result<Attempt, StoreError> {
        let (parts, page) = (&*self.0, self.0.disk.page);
        let target = Target::find(parts, name, change)?;
        let end = offset + data.len() as u64;
        let pages = offset / page..end.div_ceil(page);
        // The task that makes an object holds nothing of it; another that made it meanwhile is seen at the end.
        let _held = match target.id() {
            Some(id) => Some(parts.locks.acquire(id, pages.clone()).await),
            None => None,
        };
        if !target.is_same(&parts.table.borrow()) {
            return Ok(Attempt::Again);
        }
        let pieces = self.whole_pages(target, offset, data, change.class).await?;
        let Some(growth) = self.growth(target, pages.clone()) else {
            return Ok(Attempt::Again);
        };
        let need = Need {
            pages: pages.end - pages.start,
            growth,
            object: target.id(),
            end,
            reservation: change.reservation,
        };
        let mut taken = Taken::wait(parts, need).await?;
        let put = taken.write(name, &pieces, change.class).await?;
        let charge = segment::charge(pages.start, pages.end) + 64 + name.len() as u64;
        parts.stage(charge).await?;
        let attempt = self.apply(target, end, &put, charge, change)?;
        if let Attempt::Done(_) = attempt {
            taken.used = true;
            parts.count(|counters| counters.bytes_written += data.len() as u64);
            #[cfg(test)]
            parts.log(crate::tests::Step::write(name, offset, data, change));
        }
        Ok(attempt)
    }

    /// Of `pages`, those that replace none; `None` if the object is another one now.
    fn growth(&self, target: Target<'_>, pages: Range<u64>) -> Option<u64> {
        let table = self.0.table.borrow();
        if !target.is_same(&table) {
            return None;
        }
        let count = pages.end - pages.start;
        Some(target.object(&table).map_or(count, |object| {
            let entries = object.entries(pages.start, count);
            entries.iter().filter(|entry| entry.is_none()).count() as u64
        }))
    }

    /// The object's pages are where the data were written: one step.
    fn apply(
        &self,
        target: Target<'_>,
        end: u64,
        put: &[(u64, Entry)],
        charge: u64,
        change: Change,
    ) -> Result<Attempt, StoreError> {
        let parts = &*self.0;
        parts.usable()?;
        let table = &mut *parts.table.change();
        if !target.is_same(table) {
            return Ok(Attempt::Again);
        }
        let found = table.find(target.name).map(|(_, object)| object);
        parts.holds(target.name, found, change.condition)?;
        parts.table_has_room(table, charge)?;
        let size = found.map_or(0, |object| object.size).max(end);
        let version = parts.next_version();
        let id = match target.id() {
            Some(id) => id,
            None => {
                let stamp = change.stamp.unwrap_or(0);
                table.create(target.name, version, stamp, Vec::new())
            }
        };
        let unmap = 0..0;
        let released = table.remap(id, version, &Pages { put, unmap });
        table.stamp(id, version, change.stamp, size);
        parts.space.change().release(&released);
        parts.commit.note();
        Ok(Attempt::Done(version))
    }

    /// The data in whole pages: what of the first and last page stays is added.
    async fn whole_pages(
        &self,
        target: Target<'_>,
        offset: u64,
        data: &View,
        class: Class,
    ) -> Result<Vec<Piece>, StoreError> {
        let page = self.0.disk.page;
        let end = offset + data.len() as u64;
        let (first, last) = (offset / page, end.div_ceil(page));
        let mut pieces = Vec::with_capacity(3);
        let mut at = first;
        while at < last {
            let from = at * page;
            let whole_end = end / page;
            if offset <= from && at < whole_end {
                let count = whole_end - at;
                let view = data.slice((from - offset) as usize, (count * page) as usize);
                pieces.push((at, view));
                at = whole_end;
                continue;
            }
            let (start, stop) = (offset.max(from), end.min(from + page));
            let part = &data[(start - offset) as usize..(stop - offset) as usize];
            let reader = Reader(&self.0);
            let stays = reader.stays(target.name, target.id(), at, start..stop, class);
            let mut buf = stays.await?;
            buf[(start - from) as usize..(stop - from) as usize].copy_from_slice(part);
            pieces.push((at, buf.freeze()));
            at += 1;
        }
        Ok(pieces)
    }
}
