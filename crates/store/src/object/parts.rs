//! What the jobs of a store share: its disk, its objects and room in memory, and what wakes which task.
//!
//! ```text
//! Names, Reader, Writer, Cutter, Reserver, Scrubber, BadPages: what clients ask for
//! Committer, Reaper, Trimmer: tasks, as long as the store is open
//! ```
//!
//! Each job is a type of its own over these parts; a change of the table is one step without an await.

use std::cell::Cell;
#[cfg(test)]
use std::cell::RefCell;
use std::rc::Rc;

use base::Bytes;
use env::Critical;
use env::sync::Event;
use ledger::{CommitError, Epoch, GroupCommit, Ledger};

use crate::object::disk::Disk;
use crate::object::error::StoreError;
use crate::object::load::Loaded;
use crate::object::locks::Locks;
use crate::object::objects::Object;
use crate::object::segment::{Entry, PAGES};
use crate::object::space::Space;
use crate::object::table::Table;
use crate::object::trim::Trim;
use crate::object::types::{Condition, Counters, Version};

/// Mistakes that tests plant to see that the checkers catch them.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A seal answers while operations of the fenced are under way.
    HastySeal,
}

/// See the module's head.
pub(crate) struct Parts {
    pub disk: Disk,
    // What is there.
    pub table: Critical<Table>,
    pub space: Critical<Space>,
    pub locks: Rc<Locks>,
    /// The last version given, and the last reservation.
    version: Cell<u64>,
    reservation: Cell<u64>,
    // What is under way.
    pub commit: GroupCommit,
    /// Pages became free, or a commit was cut or done, or the store takes nothing more.
    pub room: Event,
    /// An object is to be deleted.
    pub reap: Event,
    pub trim: Trim,
    pub counters: Cell<Counters>,
    #[cfg(test)]
    pub planted: Cell<Option<Mutation>>,
    #[cfg(test)]
    pub journal: RefCell<Vec<(u64, crate::tests::Step)>>,
}

/// A read of mapped pages is under way: they stay.
pub(crate) struct Reading<'a>(&'a Parts, Epoch);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.space.change().leave(self.1);
        self.0.room.notify_all();
    }
}

impl Parts {
    /// What was found on `disk`, at work from now on.
    pub fn new(disk: Disk, ledger: Ledger, loaded: Loaded) -> Parts {
        let epoch = disk.superblock.epoch;
        Parts {
            table: Critical::new(loaded.table),
            space: Critical::new(loaded.space),
            locks: Rc::default(),
            version: Cell::new(epoch << 40),
            reservation: Cell::new(epoch << 24),
            commit: GroupCommit::new(ledger, Rc::clone(&disk.device)),
            disk,
            room: Event::default(),
            reap: Event::default(),
            trim: Trim::default(),
            counters: Cell::default(),
            #[cfg(test)]
            planted: Cell::new(None),
            #[cfg(test)]
            journal: RefCell::default(),
        }
    }

    /// Ends the store's tasks.
    pub fn stop(&self) {
        self.commit.stop();
        self.reap.notify_all();
        self.trim.work.notify_all();
        self.room.notify_all();
    }

    pub fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// The next version.
    pub fn next_version(&self) -> u64 {
        self.version.set(self.version.get() + 1);
        self.version.get()
    }

    /// The number of the next reservation.
    pub fn next_reservation(&self) -> u64 {
        self.reservation.set(self.reservation.get() + 1);
        self.reservation.get()
    }

    // --- may it be done? --------------------------------------------------------------------------

    /// Refuses changes to a store that failed or was closed.
    pub fn usable(&self) -> Result<(), StoreError> {
        self.commit.usable().map_err(|why| self.not_durable(&why))
    }

    pub fn not_durable(&self, why: &CommitError) -> StoreError {
        match why {
            CommitError::Closed => StoreError::Closed {
                store: self.disk.name.clone(),
            },
            why => self.disk.failed(why.to_string()),
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
            store: self.disk.name.clone(),
            object: name.to_owned(),
            asked,
            found: Version(found),
            stamp,
        })
    }

    /// Refuses records that would not fit the ledger.
    pub fn table_has_room(&self, table: &Table, charge: u64) -> Result<(), StoreError> {
        let most = self.disk.superblock.live_max();
        if table.live() + charge <= most {
            return Ok(());
        }
        Err(StoreError::TableFull {
            store: self.disk.name.clone(),
            live: Bytes(table.live()),
            most: Bytes(most),
        })
    }

    /// Waits until `charge` more bytes of records fit the next commit.
    pub async fn stage(&self, charge: u64) -> Result<(), StoreError> {
        loop {
            self.usable()?;
            let staged = self.table.borrow().staged();
            if staged == 0 || staged + charge <= self.disk.superblock.stage_max() {
                return Ok(());
            }
            self.count(|counters| counters.waits += 1);
            self.commit.want();
            self.room.wait().await;
        }
    }

    // --- and then ---------------------------------------------------------------------------------

    /// Waits until everything changed before this call is durable.
    pub async fn committed(&self) -> Result<(), StoreError> {
        self.usable()?;
        let committed = self.commit.committed(self).await;
        committed.map_err(|why| self.not_durable(&why))
    }

    /// A change is done: with `fua` complete only when it is durable.
    pub async fn finish(&self, version: u64, fua: bool) -> Result<Version, StoreError> {
        if fua {
            self.committed().await?;
        }
        Ok(Version(version))
    }

    /// Whatever is mapped now stays until the answer is dropped.
    pub fn reading(&self) -> Reading<'_> {
        Reading(self, self.space.change().enter())
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

    #[cfg(test)]
    pub fn planted(&self, mutation: Mutation) -> bool {
        self.planted.get() == Some(mutation)
    }

    /// A change was made in this step: its place among all.
    #[cfg(test)]
    pub fn log(&self, step: crate::tests::Step) {
        self.journal.borrow_mut().push((self.version.get(), step));
    }
}
