//! Pages for a change: taken, written, and then the object's, or free again.
//!
//! ```text
//! free pages, or a reservation's -> taken -> data on the device -> used: the object's
//!                                                              \-> dropped: given back
//! ```
//!
//! Always true: whatever becomes of the change, pages it took are in use or given back, and a reservation is charged for those
//! in use alone.

use base::{Bytes, View, crc::crc32c};
use device::{Class, WriteFlags};
use env::sync::join_all;

use crate::object::disk::Disk;
use crate::object::error::StoreError;
use crate::object::parts::Parts;
use crate::object::reserve::Reserver;
use crate::object::segment::Entry;
use crate::object::space::{Run, Space, Want};
use crate::object::types::ReservationId;

/// Data for some pages in a row: the first page, and the bytes.
pub(crate) type Piece = (u64, View);

/// Data for some pages of the device in a row: the first place, and the bytes.
type Write = (u32, View);

/// The pages a change needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    pub pages: u64,
    /// Of these, pages that replace none.
    pub growth: u64,
    /// For which object, if it is there already.
    pub object: Option<u32>,
    /// Byte of the object behind the last one written.
    pub end: u64,
    pub reservation: Option<ReservationId>,
}

/// Pages taken for a change; given back unless it was applied.
pub(crate) struct Taken<'a> {
    parts: &'a Parts,
    runs: Vec<Run>,
    pages: u64,
    reservation: Option<u64>,
    /// The change was applied.
    pub used: bool,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.used {
            let mut space = self.parts.space.change();
            for run in &self.runs {
                space.give_back(*run);
            }
        }
        if let Some(number) = self.reservation {
            let mut table = self.parts.table.change();
            table.let_go(number, self.pages, self.used);
        }
        self.parts.room.notify_all();
    }
}

impl<'a> Taken<'a> {
    /// Takes pages, waiting for what commits reclaim.
    pub async fn wait(parts: &'a Parts, need: Need) -> Result<Taken<'a>, StoreError> {
        loop {
            parts.usable()?;
            if let Some(taken) = Taken::now(parts, need)? {
                return Ok(taken);
            }
            parts.count(|counters| counters.waits += 1);
            parts.room.wait().await;
        }
    }

    /// Takes pages at once; `None` if that many come back with commits and readers under way.
    fn now(parts: &'a Parts, need: Need) -> Result<Option<Taken<'a>>, StoreError> {
        // Only what overwrites may take the last pages, since what it replaces comes back.
        let spare = if need.growth == 0 {
            0
        } else {
            parts.disk.spare
        };
        let number = need.reservation.map(|id| id.0);
        let mut table = parts.table.change();
        let mut space = parts.space.change();
        let free = u64::from(space.free_count()).saturating_sub(table.promised());
        let enough = match number {
            None => free >= need.pages + spare,
            Some(number) => Reserver(parts).covers(&table, number, need.pages)?,
        };
        if enough {
            if let Some(number) = number {
                table.promises.hold(number, need.pages);
            }
            let object = need.object.and_then(|id| table.get(id));
            let next = object.and_then(|object| object.next);
            return Ok(Some(Taken {
                parts,
                runs: choose(&mut space, &parts.disk, need, next),
                pages: need.pages,
                reservation: number,
                used: false,
            }));
        }
        if !space.more_to_come() {
            let asked = Bytes(need.pages * parts.disk.page);
            let available = free.saturating_sub(spare);
            return Err(parts.disk.no_space(asked, available));
        }
        // A commit that has nothing to do would only wake us up again, at the same instant.
        if space.needs_commit() {
            parts.commit.want();
        }
        Ok(None)
    }

    /// Writes the pieces to the pages; the answer says where each page of the object went.
    pub async fn write(
        &self,
        name: &str,
        pieces: &[Piece],
        class: Class,
    ) -> Result<Vec<(u64, Entry)>, StoreError> {
        let disk = &self.parts.disk;
        let flags = WriteFlags { fua: false, class };
        let (put, requests) = lay_out(disk, pieces, &self.runs);
        self.parts.count(|counters| {
            counters.device_writes += requests.len() as u64;
            counters.device_bytes_written += put.len() as u64 * disk.page;
        });
        let writes = requests.into_iter().map(|(place, part)| {
            let sector = disk.superblock.sector(place);
            disk.device.write(sector, part, flags)
        });
        let answers = join_all(writes.collect::<Vec<_>>()).await;
        self.parts.commit.wrote();
        for answer in answers {
            answer.map_err(|source| disk.device_error("write", name, source))?;
        }
        Ok(put)
    }
}

/// Takes the pages needed, which are free: behind the object's last one (`next`) if it goes on there.
fn choose(space: &mut Space, disk: &Disk, need: Need, next: Option<u32>) -> Vec<Run> {
    let superblock = &disk.superblock;
    let stream = need.end >= superblock.unit.0 || need.pages >= superblock.unit_pages() / 2;
    let mut want = Want {
        count: need.pages as u32,
        object: need.object.unwrap_or(u32::MAX),
        next,
        stream,
    };
    let mut runs = Vec::new();
    while want.count > 0 {
        let run = space.take(want).expect("free pages were counted");
        want.count -= run.count;
        want.next = run.first.checked_add(run.count);
        runs.push(run);
    }
    runs
}

/// Which piece goes to which page? Returns the entry of each page of the object, and what to write from which place on.
fn lay_out(disk: &Disk, pieces: &[Piece], runs: &[Run]) -> (Vec<(u64, Entry)>, Vec<Write>) {
    let page = disk.page as usize;
    let (mut put, mut requests) = (Vec::new(), Vec::new());
    let mut runs = runs.iter().copied();
    let mut run = Run { first: 0, count: 0 };
    for (first, view) in pieces {
        let pages = (view.len() / page) as u64;
        let mut done = 0;
        while done < pages {
            if run.count == 0 {
                run = runs.next().expect("as many pages were taken");
            }
            let count = u64::from(run.count).min(pages - done).min(disk.io_pages);
            let part = view.slice(done as usize * page, count as usize * page);
            for (at, bytes) in part.chunks(page).enumerate() {
                let entry = Entry {
                    place: run.first + at as u32,
                    crc: crc32c(bytes),
                };
                put.push((first + done + at as u64, entry));
            }
            requests.push((run.first, part));
            run.first += count as u32;
            run.count -= count as u32;
            done += count;
        }
    }
    (put, requests)
}
