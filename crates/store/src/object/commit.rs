//! What makes changes durable, all since the last time together.
//!
//! ```text
//! change in memory -> touched -> cut -> flush the device -> one ledger batch -> durable
//!                                 |                             |
//!                     released pages wait here        and are free again here
//! ```
//!
//! One commit carries every change since the last (group commit), so a flush costs one flush of the device and one
//! ledger write however many changes and callers it covers.
//!
//! ```text
//! Running -> Failed    a flush or a commit failed: changes are refused, reads go on
//! Running -> Closed    close
//! ```
//!
//! Always true:
//! 1. A batch names only pages whose data were complete before the cut and flushed before the commit.
//! 2. The state at the cut is the durable state plus the batch.
//! 3. A page is used again only after the commit that forgets it.

use std::cell::Cell;
use std::rc::Rc;

use base::{Instant, Nanos};
use env::sync::Event;

use crate::object::error::StoreError;
use crate::object::open::{Inner, Store};
use crate::object::table::Table;

/// Where the store stands; see the module's arrows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    Running,
    Failed(String),
    Closed,
}

/// The cut and commit numbers, and the tasks that wait for them.
#[derive(Default)]
pub(crate) struct Commits {
    cut: Cell<u64>,
    done: Cell<u64>,
    wanted: Cell<bool>,
    under_way: Cell<bool>,
    /// Wakes the committer.
    pub work: Event,
    /// Wakes the tasks that wait for a commit.
    changed: Event,
    first_pending: Cell<Option<Instant>>,
    /// Data writes completed, and how many of them the device has flushed.
    writes: Cell<u64>,
    flushed: Cell<u64>,
}

impl Store {
    /// Makes every change completed before this call durable.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if that is impossible, now and from now on; [`StoreError::Closed`].
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.inner.committed().await
    }
}

impl Inner {
    /// Refuses changes to a store that failed or was closed.
    pub fn usable(&self) -> Result<(), StoreError> {
        match &*self.condition.borrow() {
            Condition::Running => Ok(()),
            Condition::Failed(why) => Err(StoreError::Failed {
                store: self.name.clone(),
                why: why.clone(),
            }),
            Condition::Closed => Err(StoreError::Closed {
                store: self.name.clone(),
            }),
        }
    }

    pub fn set_condition(&self, condition: Condition) {
        *self.condition.borrow_mut() = condition;
        self.commits.work.notify_all();
        self.commits.changed.notify_all();
        self.room.notify_all();
    }

    /// The store takes nothing more.
    pub fn failed(&self, why: &str) -> StoreError {
        if *self.condition.borrow() == Condition::Running {
            tracing::error!(store = %self.name, why, "a commit failed");
            self.set_condition(Condition::Failed(why.to_owned()));
        }
        StoreError::Failed {
            store: self.name.clone(),
            why: why.to_owned(),
        }
    }

    /// Data reached the device.
    pub fn note_write(&self) {
        self.commits.writes.set(self.commits.writes.get() + 1);
    }

    /// The table changed: a commit is due in a while.
    pub fn note_change(&self) {
        if self.commits.first_pending.get().is_none() {
            self.commits.first_pending.set(Some(env::now()));
            self.commits.work.notify_all();
        }
    }

    /// Waits until everything changed before this call is durable.
    pub async fn committed(&self) -> Result<(), StoreError> {
        self.usable()?;
        let pending = self.table.borrow().anything_touched();
        let number = self.commits.cut.get() + u64::from(pending);
        loop {
            if self.commits.done.get() >= number {
                return Ok(());
            }
            self.usable()?;
            if self.commits.cut.get() < number {
                self.want_commit();
            }
            self.commits.changed.wait().await;
        }
    }

    /// Asks for a commit soon, without waiting.
    pub fn want_commit(&self) {
        if !self.commits.wanted.replace(true) {
            self.commits.work.notify_all();
        }
    }

    /// Waits until `charge` more bytes of records fit the next commit.
    pub async fn stage(&self, charge: u64) -> Result<(), StoreError> {
        loop {
            self.usable()?;
            let staged = self.table.borrow().staged();
            if staged == 0 || staged + charge <= self.superblock.stage_max() {
                return Ok(());
            }
            self.count(|figures| figures.waits += 1);
            self.want_commit();
            self.room.wait().await;
        }
    }

    /// The committer's task: one commit after the other, as asked or after `commit_after`.
    pub async fn commit_loop(self: Rc<Self>, commit_after: Nanos) {
        while !self.stopped.get() {
            if !self.commits.wanted.get() {
                match self.commits.first_pending.get() {
                    None => self.commits.work.wait().await,
                    Some(since) => {
                        let due = since + commit_after;
                        let left = due.since(env::now());
                        if left > Nanos(0) {
                            let _ = env::timeout(left, self.commits.work.wait()).await;
                        }
                        if env::now() >= due {
                            self.commits.wanted.set(true);
                        }
                    }
                }
                continue;
            }
            self.commits.wanted.set(false);
            if *self.condition.borrow() == Condition::Running {
                self.commit_round().await;
            } else {
                self.commits.first_pending.set(None);
            }
            self.commits.changed.notify_all();
            self.room.notify_all();
        }
    }

    /// What came in while the store was being closed.
    pub async fn last_commit(&self) -> Result<(), StoreError> {
        while self.commits.under_way.get() {
            self.commits.changed.wait().await;
        }
        self.commit_round().await;
        match &*self.condition.borrow() {
            Condition::Failed(why) => Err(StoreError::Failed {
                store: self.name.clone(),
                why: why.clone(),
            }),
            _ => Ok(()),
        }
    }

    async fn commit_round(&self) {
        self.commits.first_pending.set(None);
        if !self.table.borrow().anything_touched() {
            return;
        }
        self.commits.under_way.set(true);
        let prepared = self.cut();
        let number = self.commits.cut.get();
        let writes = self.commits.writes.get();
        self.room.notify_all();
        let answer = async {
            let must_flush = self.volatile && self.commits.flushed.get() != writes;
            #[cfg(test)]
            let must_flush =
                must_flush && !self.planted(crate::object::open::Mutation::SkippedFlush);
            if must_flush {
                let flushed = self.device.flush().await;
                flushed.map_err(|error| error.to_string())?;
                self.count(|figures| figures.flushes += 1);
            }
            let committed = self.ledger.commit(prepared).await;
            committed.map_err(|error| error.to_string())
        }
        .await;
        self.commits.under_way.set(false);
        match answer {
            Ok(()) => {
                self.commits.flushed.set(writes);
                self.space.change().committed();
                if self.space.borrow().is_stale(false) {
                    self.trim.work.notify_all();
                }
                self.commits.done.set(number);
                self.count(|figures| figures.commits += 1);
            }
            Err(why) => {
                // Also of a store that is being closed.
                *self.condition.borrow_mut() = Condition::Running;
                self.failed(&why);
            }
        }
    }

    /// Takes every change since the last cut as one batch. No await between here and `prepare`: the state in
    /// memory at this moment is what the batch and its swept records describe.
    fn cut(&self) -> ledger::Prepared {
        self.commits.cut.set(self.commits.cut.get() + 1);
        let mut table = self.table.change();
        let mut batch = self.ledger.batch();
        let leave = None;
        #[cfg(test)]
        let leave = match self.planted(crate::object::open::Mutation::LateRecord) {
            true => Some(crate::object::record::SEGMENT),
            false => leave,
        };
        table.take_touched(&mut batch, leave);
        self.space.change().cut();
        self.ledger.prepare(batch, &mut *table)
    }

    /// Nothing in memory names these pages any longer.
    pub fn release(&self, pages: &[u32]) {
        let mut space = self.space.change();
        #[cfg(test)]
        if self.planted(crate::object::open::Mutation::EarlyFree) {
            for page in pages {
                let run = crate::object::space::Run {
                    first: *page,
                    count: 1,
                };
                space.give_back(run);
            }
            return;
        }
        #[cfg(test)]
        if self.planted(crate::object::open::Mutation::EarlyTrim) {
            for page in pages {
                let discard = (Rc::clone(&self.device), self.superblock.span(*page, 1));
                env::spawn(async move { discard.0.discard(discard.1).await });
            }
        }
        space.release(pages);
    }

    /// Takes deleted objects apart, a share with each commit.
    pub async fn reap_loop(self: Rc<Self>) {
        while !self.stopped.get() {
            let first = self.table.borrow().deleting.first().copied();
            let Some(id) = first else {
                self.reap.wait().await;
                continue;
            };
            if self.stage(self.superblock.stage_max() / 2).await.is_err() {
                return;
            }
            if self.stopped.get() {
                return;
            }
            let released = {
                let mut table = self.table.change();
                self.take_apart(&mut table, id)
            };
            self.release(&released);
            self.note_change();
            env::yield_now().await;
        }
    }

    /// Drops a share of the segments of an object under deletion, and the object with the last of them.
    pub fn take_apart(&self, table: &mut Table, id: u32) -> Vec<u32> {
        let released = table.drop_segments(id, 0, self.segments_at_once());
        if table
            .get(id)
            .is_some_and(|object| object.segments.is_empty())
        {
            table.bury(id);
        }
        released
    }

    /// How many segments one step may empty or drop: 32 bytes each, half of a commit.
    pub fn segments_at_once(&self) -> usize {
        (self.superblock.stage_max() / 64).min(4096) as usize
    }
}
