//! What makes changes durable, all since the last time together.
//!
//! ```text
//! change in memory -> touched -> cut -> flush the device -> one ledger batch -> durable
//!                                 |                             |
//!                     released pages wait here        and are free again here
//! ```
//!
//! One commit carries every change since the last ([`ledger::GroupCommit`]), so a flush costs one flush of the device and one
//! ledger write however many changes and callers it covers. After a failed one changes are refused and reads go on.
//!
//! Always true:
//! 1. A batch names only pages whose data were complete before the cut and flushed before the commit.
//! 2. The state at the cut is the durable state plus the batch.
//! 3. A page is used again only after the commit that forgets it.

use std::rc::Rc;

use base::Nanos;
use ledger::{CommitError, CommitSource, Cut, Ledger, Prepared};

use crate::object::error::StoreError;
use crate::object::open::{Inner, Store};
use crate::object::table::Table;

impl CommitSource for Inner {
    fn pending(&self) -> bool {
        self.table.borrow().anything_touched()
    }

    fn cut(&self, ledger: &Ledger) -> Prepared {
        let prepared = {
            let mut table = self.table.change();
            let mut batch = ledger.batch();
            let leave = None;
            #[cfg(test)]
            let leave = match self.planted(crate::object::open::Mutation::LateRecord) {
                true => Some(crate::object::record::SEGMENT),
                false => leave,
            };
            table.take_touched(&mut batch, leave);
            self.space.change().cut();
            ledger.prepare(batch, &mut *table)
        };
        self.room.notify_all();
        prepared
    }

    fn durable(&self, _cut: Cut) {
        self.space.change().committed();
        if self.space.borrow().is_stale(false) {
            self.trim.work.notify_all();
        }
    }
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
    fn not_durable(&self, why: &CommitError) -> StoreError {
        match why {
            CommitError::Closed => StoreError::Closed {
                store: self.name.clone(),
            },
            why => self.failed(why.to_string()),
        }
    }

    /// The store takes nothing more.
    pub fn failed(&self, why: String) -> StoreError {
        StoreError::Failed {
            store: self.name.clone(),
            why,
        }
    }

    /// Refuses changes to a store that failed or was closed.
    pub fn usable(&self) -> Result<(), StoreError> {
        self.commit.usable().map_err(|why| self.not_durable(&why))
    }

    /// Waits until everything changed before this call is durable.
    pub async fn committed(&self) -> Result<(), StoreError> {
        self.usable()?;
        let committed = self.commit.committed(self).await;
        committed.map_err(|why| self.not_durable(&why))
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
            self.commit.want();
            self.room.wait().await;
        }
    }

    /// The committer's task: one commit after the other, as asked or after `commit_after`.
    pub async fn commit_loop(self: Rc<Self>, commit_after: Nanos) {
        while self.commit.due(commit_after).await {
            if let Err(why) = self.commit.round(&*self).await {
                self.commit_failed(&why);
            }
            self.commit.wake();
            self.room.notify_all();
        }
    }

    fn commit_failed(&self, why: &CommitError) {
        tracing::error!(store = %self.name, %why, "a commit failed");
        self.commit.wake();
        self.room.notify_all();
    }

    /// Takes no more changes; those that came in until now are made durable.
    pub async fn last_commit(&self) -> Result<(), StoreError> {
        self.commit.close();
        self.room.notify_all();
        let last = self.commit.last(self).await;
        last.map_err(|why| {
            self.commit_failed(&why);
            self.not_durable(&why)
        })
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
        while !self.commit.is_stopped() {
            let first = self.table.borrow().deleting.first().copied();
            let Some(id) = first else {
                self.reap.wait().await;
                continue;
            };
            if self.stage(self.superblock.stage_max() / 2).await.is_err() {
                return;
            }
            if self.commit.is_stopped() {
                return;
            }
            let released = {
                let mut table = self.table.change();
                self.take_apart(&mut table, id)
            };
            self.release(&released);
            self.commit.note();
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
