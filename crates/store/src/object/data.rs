//! The bytes of objects change: write, truncate, punch.
//!
//! ```text
//! write: hold its pages -> read what of the first and last page stays -> take free pages -> data to the device
//!        -> one step in memory: is the condition still true? then the object's pages are there
//! ```
//!
//! A change runs in a task of its own: the client that asked may be gone; the pages it takes are accounted for all the same.
//!
//! Always true:
//! 1. What a page holds behind the end of its object is zero, so an object that grows shows zeroes there.
//! 2. A change that is refused or fails changes nothing but the room it took for a while.

use std::rc::Rc;

use base::{Bytes, View, crc::crc32c};
use device::{Class, DeviceError, WriteFlags};
use env::sync::join_all;

use crate::object::error::StoreError;
use crate::object::open::{Inner, Store};
use crate::object::record::SEGMENTS_MAX;
use crate::object::segment::{Entry, SEGMENT_BYTES_MAX};
use crate::object::space::{Run, Want};
use crate::object::table::{Object, PAGES, Pages, Table};
use crate::object::types::ReservationId;
use crate::object::types::{Change, Condition, Version};

/// Another change came between: the attempt looks again.
enum Attempt {
    Done(u64),
    Again,
}

/// Pages taken for a write; given back unless it was applied.
struct Taken<'a> {
    inner: &'a Inner,
    runs: Vec<Run>,
    pages: u64,
    reservation: Option<u64>,
    used: bool,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.used {
            let mut space = self.inner.space.change();
            for run in &self.runs {
                space.give_back(*run);
            }
        }
        if let Some(number) = self.reservation {
            let mut table = self.inner.table.change();
            table.let_go(number, self.pages, self.used);
        }
        self.inner.room.notify_all();
    }
}

/// Data for some pages in a row: the first page, and the bytes.
type Piece = (u64, View);

impl Store {
    /// Writes `data` at byte `offset` of `object`, which grows as needed; what lies between its old end and
    /// `offset` reads as zeroes. Atomic as a whole. Complete, it can be read; durable with the next flush, or, with
    /// `change.fua`, at completion.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] unless `change.create`; [`StoreError::Condition`]; [`StoreError::NoSpace`],
    /// [`StoreError::Reservation`], [`StoreError::NoReservation`], [`StoreError::TableFull`];
    /// [`StoreError::Request`] if the data are longer than [`Store::write_max`] or reach beyond what an object may
    /// hold; [`StoreError::Damaged`] if a page of which a part stays cannot be read rightly;
    /// [`StoreError::Device`], [`StoreError::Failed`], [`StoreError::Closed`].
    pub async fn write(
        &self,
        object: &str,
        offset: u64,
        data: View,
        change: Change,
    ) -> Result<Version, StoreError> {
        let (inner, name) = (Rc::clone(&self.inner), object.to_owned());
        env::spawn(async move { inner.write(&name, offset, data, change).await }).await
    }

    /// Sets the object's size. What lies behind it is gone: an object that grows again shows zeroes there. Atomic up
    /// to about 100,000 pages; more go in steps, from the end.
    ///
    /// # Errors
    /// As for [`Store::write`].
    pub async fn truncate(
        &self,
        object: &str,
        size: u64,
        change: Change,
    ) -> Result<Version, StoreError> {
        let (inner, name) = (Rc::clone(&self.inner), object.to_owned());
        env::spawn(async move { inner.truncate(&name, size, change).await }).await
    }

    /// Makes `len` bytes from byte `offset` a hole as far as the object reaches: they read as zeroes, whole pages
    /// become free. Atomic within each stretch of some thousand pages.
    ///
    /// # Errors
    /// As for [`Store::write`].
    pub async fn punch(
        &self,
        object: &str,
        offset: u64,
        len: u64,
        change: Change,
    ) -> Result<Version, StoreError> {
        let (inner, name) = (Rc::clone(&self.inner), object.to_owned());
        env::spawn(async move { inner.punch(&name, offset, len, change).await }).await
    }
}

impl Inner {
    pub fn not_found(&self, object: &str) -> StoreError {
        StoreError::NotFound {
            store: self.name.clone(),
            object: object.to_owned(),
        }
    }

    pub fn device_error(
        &self,
        what: &'static str,
        object: &str,
        source: DeviceError,
    ) -> StoreError {
        StoreError::Device {
            store: self.name.clone(),
            what,
            object: object.to_owned(),
            source: Box::new(source),
        }
    }

    /// Is this what the change is to be done on?
    pub fn holds(
        &self,
        name: &str,
        object: Option<&Object>,
        asked: Condition,
    ) -> Result<(), StoreError> {
        let found = object.map_or(0, |object| object.version);
        let stamp = object.map_or(0, |object| object.stamp);
        let holds = match asked {
            Condition::Any => true,
            Condition::Version(version) => version.0 == found,
            Condition::StampAtMost(most) => stamp <= most,
        };
        if holds {
            return Ok(());
        }
        Err(StoreError::Condition {
            store: self.name.clone(),
            object: name.to_owned(),
            asked,
            found: Version(found),
            stamp,
        })
    }

    /// Refuses records that would not fit the ledger.
    pub fn table_has_room(&self, table: &Table, charge: u64) -> Result<(), StoreError> {
        let most = self.superblock.live_max();
        if table.live() + charge <= most {
            return Ok(());
        }
        Err(StoreError::TableFull {
            store: self.name.clone(),
            live: Bytes(table.live()),
            most: Bytes(most),
        })
    }

    async fn finish(&self, version: u64, fua: bool) -> Result<Version, StoreError> {
        if fua {
            self.committed().await?;
        }
        Ok(Version(version))
    }

    // --- writing ----------------------------------------------------------------------------------

    async fn write(
        &self,
        name: &str,
        offset: u64,
        data: View,
        change: Change,
    ) -> Result<Version, StoreError> {
        let len = data.len() as u64;
        let refuse = |why: String| StoreError::Request {
            what: format!(
                "write {} at byte {offset} of {name:?} in {}",
                Bytes(len),
                self.name
            ),
            why,
        };
        let most = self.superblock.write_max();
        if len == 0 || len > most {
            return Err(refuse(format!(
                "one write takes 1 byte to {}; split it",
                Bytes(most)
            )));
        }
        let size_max = SEGMENTS_MAX * PAGES * self.page;
        if offset.checked_add(len).is_none_or(|end| end > size_max) {
            return Err(refuse(format!(
                "an object holds at most {}",
                Bytes(size_max)
            )));
        }
        crate::object::names::check_name(name).map_err(refuse)?;
        loop {
            match self.try_write(name, offset, &data, change).await? {
                Attempt::Done(version) => return self.finish(version, change.fua).await,
                Attempt::Again => {}
            }
        }
    }

    /// The id and birth of the object a change begins with, if it is there; looks at the condition early, so that what
    /// is refused costs nothing.
    fn begin(&self, name: &str, change: Change) -> Result<Option<(u32, u64)>, StoreError> {
        self.usable()?;
        let table = self.table.borrow();
        let found = table.find(name);
        if found.is_none() && !change.create {
            return Err(self.not_found(name));
        }
        self.holds(name, found.map(|(_, object)| object), change.condition)?;
        Ok(found.map(|(id, object)| (id, object.born)))
    }

    /// Is the object still the one the change began with?
    fn same(&self, table: &Table, name: &str, begun: Option<(u32, u64)>) -> bool {
        table.find(name).map(|(id, object)| (id, object.born)) == begun
    }

    async fn try_write(
        &self,
        name: &str,
        offset: u64,
        data: &View,
        change: Change,
    ) -> Result<Attempt, StoreError> {
        let begun = self.begin(name, change)?;
        let end = offset + data.len() as u64;
        let (first, last) = (offset / self.page, end.div_ceil(self.page));
        // The task that makes an object holds nothing of it; another that made it meanwhile is seen at the end.
        let id = begun.map(|(id, _)| id);
        let _held = match id {
            Some(id) => Some(self.locks.acquire(id, first..last).await),
            None => None,
        };
        if !self.same(&self.table.borrow(), name, begun) {
            return Ok(Attempt::Again);
        }
        let pieces = self
            .whole_pages(name, id, offset, data, change.class)
            .await?;
        let (count, growth) = {
            let table = self.table.borrow();
            if !self.same(&table, name, begun) {
                return Ok(Attempt::Again);
            }
            let object = id.and_then(|id| table.get(id));
            let holes = object.map_or(last - first, |object| {
                let entries = object.entries(first, last - first);
                entries.iter().filter(|entry| entry.is_none()).count() as u64
            });
            (last - first, holes)
        };
        let mut taken = self
            .take(count, growth, id, end, change.reservation)
            .await?;
        let put = self
            .write_pages(name, &pieces, &taken.runs, change.class)
            .await?;
        let charge = Table::segments_charge(first, last) + 64 + name.len() as u64;
        self.stage(charge).await?;
        // From here to the end in one step.
        self.usable()?;
        let table = &mut *self.table.change();
        if !self.same(table, name, begun) {
            return Ok(Attempt::Again);
        }
        let found = table.find(name).map(|(_, object)| object);
        self.holds(name, found, change.condition)?;
        self.table_has_room(table, charge)?;
        let size = found.map_or(0, |object| object.size).max(end);
        let version = self.next_generation();
        let id = match id {
            Some(id) => id,
            None => table.create(name, version, change.stamp.unwrap_or(0), Vec::new()),
        };
        let pages = Pages {
            put: &put,
            unmap: 0..0,
        };
        let released = table.remap(id, version, &pages);
        table.stamp(id, version, change.stamp, size);
        taken.used = true;
        self.release(&released);
        self.commit.note();
        self.count(|figures| figures.bytes_written += data.len() as u64);
        #[cfg(test)]
        self.log(crate::tests::Step::write(name, offset, data, change));
        Ok(Attempt::Done(version))
    }

    /// The data in whole pages: what of the first and last page stays is added.
    async fn whole_pages(
        &self,
        name: &str,
        id: Option<u32>,
        offset: u64,
        data: &View,
        class: Class,
    ) -> Result<Vec<Piece>, StoreError> {
        let page = self.page;
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
            let mut buf = self.stays(name, id, at, start..stop, class).await?;
            buf[(start - from) as usize..(stop - from) as usize].copy_from_slice(part);
            pieces.push((at, buf.freeze()));
            at += 1;
        }
        Ok(pieces)
    }

    /// Takes `count` pages, waiting for what commits reclaim.
    async fn take(
        &self,
        count: u64,
        growth: u64,
        id: Option<u32>,
        end: u64,
        reservation: Option<ReservationId>,
    ) -> Result<Taken<'_>, StoreError> {
        // Only what overwrites may take the last pages, since what it replaces comes back.
        let spare = if growth == 0 { 0 } else { self.spare };
        loop {
            self.usable()?;
            if let Some(taken) = self.try_take(count, spare, id, end, reservation)? {
                return Ok(taken);
            }
            self.count(|figures| figures.waits += 1);
            self.room.wait().await;
        }
    }

    /// Takes `count` pages at once; `None` if that many come back with commits and readers under way.
    fn try_take(
        &self,
        count: u64,
        spare: u64,
        id: Option<u32>,
        end: u64,
        reservation: Option<ReservationId>,
    ) -> Result<Option<Taken<'_>>, StoreError> {
        let number = reservation.map(|id| id.0);
        let mut table = self.table.change();
        let mut space = self.space.change();
        let free = u64::from(space.free_count()).saturating_sub(table.promised);
        let enough = match number {
            None => free >= count + spare,
            Some(number) => self.promise_covers(&table, number, count)?,
        };
        if enough {
            if let Some(number) = number {
                table.hold(number, count);
            }
            let stream = end >= self.superblock.unit.0;
            let object = id.and_then(|id| table.get(id));
            let mut want = Want {
                count: count as u32,
                object: id.unwrap_or(u32::MAX),
                next: object.and_then(|object| object.next),
                stream: stream || count >= self.superblock.unit_pages() / 2,
            };
            let mut runs = Vec::new();
            while want.count > 0 {
                let run = space.take(want).expect("free pages were counted");
                want.count -= run.count;
                want.next = run.first.checked_add(run.count);
                runs.push(run);
            }
            return Ok(Some(Taken {
                inner: self,
                runs,
                pages: count,
                reservation: number,
                used: false,
            }));
        }
        if !space.more_to_come() {
            return Err(StoreError::NoSpace {
                store: self.name.clone(),
                asked: Bytes(count * self.page),
                available: Bytes(free.saturating_sub(spare) * self.page),
                total: Bytes(u64::from(space.total()) * self.page),
            });
        }
        // A commit that has nothing to do would only wake us up again, at the same instant.
        if space.needs_commit() {
            self.commit.want();
        }
        Ok(None)
    }

    /// Writes the pieces to the runs; the answer says where each page went.
    async fn write_pages(
        &self,
        name: &str,
        pieces: &[Piece],
        runs: &[Run],
        class: Class,
    ) -> Result<Vec<(u64, Entry)>, StoreError> {
        let page = self.page as usize;
        let flags = WriteFlags { fua: false, class };
        let mut put = Vec::new();
        let mut writes = Vec::new();
        let mut runs = runs.iter().copied();
        let mut run = Run { first: 0, count: 0 };
        for (first, view) in pieces {
            let pages = (view.len() / page) as u64;
            let mut done = 0;
            while done < pages {
                if run.count == 0 {
                    run = runs.next().expect("as many pages were taken");
                }
                let count = u64::from(run.count).min(pages - done).min(self.io_pages);
                let part = view.slice(done as usize * page, count as usize * page);
                for (at, bytes) in part.chunks(page).enumerate() {
                    let entry = Entry {
                        place: run.first + at as u32,
                        crc: crc32c(bytes),
                    };
                    put.push((first + done + at as u64, entry));
                }
                let sector = self.superblock.sector(run.first);
                writes.push(self.device.write(sector, part, flags));
                run.first += count as u32;
                run.count -= count as u32;
                done += count;
            }
        }
        self.count(|figures| {
            figures.device_writes += writes.len() as u64;
            figures.device_bytes_written += (put.len() * page) as u64;
        });
        let answers = join_all(writes).await;
        self.commit.wrote();
        for answer in answers {
            answer.map_err(|source| self.device_error("write", name, source))?;
        }
        Ok(put)
    }

    // --- shorter, longer, emptier -----------------------------------------------------------------

    async fn truncate(&self, name: &str, size: u64, change: Change) -> Result<Version, StoreError> {
        let size_max = SEGMENTS_MAX * PAGES * self.page;
        if size > size_max {
            return Err(StoreError::Request {
                what: format!(
                    "set the size of {name:?} in {} to {}",
                    self.name,
                    Bytes(size)
                ),
                why: format!("an object holds at most {}", Bytes(size_max)),
            });
        }
        let mut change = Change {
            create: false,
            ..change
        };
        loop {
            let Some((id, _)) = self.begin(name, change)? else {
                return Err(self.not_found(name));
            };
            // So far down in this step: the start of the last segment that is still to go after it.
            let step = {
                let table = self.table.borrow();
                let object = table.get(id).expect("found just now");
                let keep = size.div_ceil(PAGES * self.page) as u32;
                let beyond = object
                    .segments
                    .range(keep..)
                    .rev()
                    .nth(self.segments_at_once());
                beyond.map_or(size, |(number, _)| {
                    ((u64::from(*number) + 1) * PAGES * self.page).max(size)
                })
            };
            match self.try_cut(name, step, None, change).await? {
                Attempt::Done(version) if step == size => {
                    return self.finish(version, change.fua).await;
                }
                Attempt::Done(version) => {
                    if matches!(change.condition, Condition::Version(_)) {
                        change.condition = Condition::Version(Version(version));
                    }
                }
                Attempt::Again => {}
            }
        }
    }

    async fn punch(
        &self,
        name: &str,
        offset: u64,
        len: u64,
        change: Change,
    ) -> Result<Version, StoreError> {
        let mut change = Change {
            create: false,
            ..change
        };
        let end = offset.saturating_add(len);
        let mut at = offset;
        loop {
            let Some((id, _)) = self.begin(name, change)? else {
                return Err(self.not_found(name));
            };
            let size = self.table.borrow().get(id).map_or(0, |object| object.size);
            let end = end.min(size);
            at = at.min(end);
            let to = stretch_end(
                at,
                end,
                self.segments_at_once() as u64 / 2 * PAGES * self.page,
            );
            match self.try_cut(name, size, Some(at..to), change).await? {
                Attempt::Done(version) if to == end => {
                    return self.finish(version, change.fua).await;
                }
                Attempt::Done(version) => {
                    if matches!(change.condition, Condition::Version(_)) {
                        change.condition = Condition::Version(Version(version));
                    }
                    at = to;
                }
                Attempt::Again => {}
            }
        }
    }

    /// One step of a truncation to `size` (`hole` is `None`), or one of making `hole` a hole.
    async fn try_cut(
        &self,
        name: &str,
        size: u64,
        hole: Option<std::ops::Range<u64>>,
        change: Change,
    ) -> Result<Attempt, StoreError> {
        let begun = self.begin(name, change)?;
        let Some((id, _)) = begun else {
            return Err(self.not_found(name));
        };
        let page = self.page;
        let old = self.table.borrow().get(id).map_or(0, |object| object.size);
        let zeroes = hole.clone().unwrap_or(size.min(old)..old.max(size));
        // Up to the end of what is held: of a truncation all that follows, whatever is being added to it.
        let held = match &hole {
            Some(hole) => hole.start / page..hole.end.div_ceil(page),
            None => zeroes.start / page..u64::MAX,
        };
        let _held = self.locks.acquire(id, held).await;
        let now = {
            let table = self.table.borrow();
            if !self.same(&table, name, begun) {
                return Ok(Attempt::Again);
            }
            table.get(id).map_or(0, |object| object.size)
        };
        // Others may have made it longer or shorter before the lock was ours.
        if now != old {
            return Ok(Attempt::Again);
        }
        // A hole that reaches the end takes the rest of the last page along.
        let to_end = zeroes.end >= old;
        let inner_first = zeroes.start.div_ceil(page);
        let inner_end = match to_end {
            true => zeroes.end.div_ceil(page),
            false => zeroes.end / page,
        };
        // Pages at the edges of which a part stays.
        let mut edges: Vec<(u64, std::ops::Range<u64>)> = Vec::new();
        if hole.is_some() || size < old {
            for at in [zeroes.start / page, zeroes.end / page] {
                let from = at * page;
                let (start, stop) = (zeroes.start.max(from), zeroes.end.min(from + page));
                let whole = start == from && (stop == from + page || to_end);
                if start < stop && !whole && edges.last().is_none_or(|(last, _)| *last != at) {
                    edges.push((at, start..stop));
                }
            }
        }
        let mut pieces: Vec<Piece> = Vec::new();
        for (at, range) in edges {
            let mapped =
                (self.table.borrow().get(id)).is_some_and(|object| object.entry(at).is_some());
            if mapped {
                let mut buf = self.stays(name, Some(id), at, 0..0, change.class).await?;
                buf[(range.start - at * page) as usize..(range.end - at * page) as usize].fill(0);
                pieces.push((at, buf.freeze()));
            }
        }
        let count = pieces.len() as u64;
        let mut taken = self.take(count, 0, Some(id), 0, None).await?;
        let put = self
            .write_pages(name, &pieces, &taken.runs, change.class)
            .await?;
        let charge = count * SEGMENT_BYTES_MAX + 80 + self.segments_at_once() as u64 * 22;
        self.stage(charge.min(self.superblock.stage_max())).await?;
        // From here to the end in one step.
        self.usable()?;
        let table = &mut *self.table.change();
        if !self.same(table, name, begun) {
            return Ok(Attempt::Again);
        }
        let found = table.get(id);
        if hole.is_none() && found.is_some_and(|object| object.size != old) {
            return Ok(Attempt::Again);
        }
        self.holds(name, found, change.condition)?;
        let now = found.map_or(0, |object| object.size);
        let version = self.next_generation();
        let unmap = match hole.is_some() && inner_first < inner_end {
            true => inner_first..inner_end,
            false => 0..0,
        };
        let mut released = table.remap(id, version, &Pages { put: &put, unmap });
        if hole.is_none() && size < old {
            // Pages behind the end in the segment that stays, then the segments behind it.
            let keep = size.div_ceil(PAGES * page);
            let unmap = inner_first..(keep * PAGES).max(inner_first);
            released.extend(table.remap(id, version, &Pages { put: &[], unmap }));
            released.extend(table.drop_segments(id, keep as u32, usize::MAX));
        }
        let size = if hole.is_some() { now } else { size };
        table.stamp(id, version, change.stamp, size);
        taken.used = true;
        self.release(&released);
        self.commit.note();
        #[cfg(test)]
        self.log(match &hole {
            Some(hole) => crate::tests::Step::punch(name, hole.clone(), change),
            None => crate::tests::Step::truncate(name, size, change),
        });
        Ok(Attempt::Done(version))
    }

    #[cfg(test)]
    pub fn log(&self, step: crate::tests::Step) {
        self.journal.borrow_mut().push((self.version.get(), step));
    }
}

/// Where the step of a hole ends that begins at `at`: at the next border of `stretch`, or at `end` before it.
fn stretch_end(at: u64, end: u64, stretch: u64) -> u64 {
    let border = (at / stretch + 1).saturating_mul(stretch);
    border.min(end)
}
