//! Which extents' copies may differ after a crash?
//!
//! ```text
//! before a change: the extent's bit, durable on the bitmap replicas       some seconds after the last: the bit goes again
//! d/<volume>: one bit for each extent, in pages of 4 KiB
//! ```
//!
//! Which bits are set, and which stores keep them, [`DirtyBitmap`] decides.
//!
//! Always true:
//! 1. While a change of an extent is under way, or its copies are unreconciled, its bit is durable on all bitmap
//!    replicas.
//! 2. An extent that no store may have, since no change of it was answered, has its bit before the map has it.
//! 3. A bitmap replica that misses a bit leaves the in-sync set before the change goes on.
//! 4. `redundancy_floor` is no greater than the number of bitmap replicas in sync.

use std::collections::BTreeSet;
use std::rc::Rc;

use base::{Buf, View};
use env::sync::join_all;
use replication::bitmap::{self, BITS, Keeper, PAGE};
use store::Change;

use super::dirty::{self, InUse};
use super::error::VolumeError;
#[cfg(test)]
use super::life::Mutation;
use super::membership::Membership;
use super::record_io::RecordIo;
use super::replica::{Replica, SyncState};
use super::state::Core;
use crate::names::{EXTENT, StoreNumber};
use crate::replica::connect::{Connection, ConnectionError};

/// Bytes of a bitmap read at once.
const BITMAP_CHUNK: u64 = 1 << 20;

/// Writes and reads the dirty bits at the bitmap replicas.
#[derive(Clone, Copy)]
pub(super) struct BitmapIo<'a> {
    core: &'a Rc<Core>,
}

impl<'a> BitmapIo<'a> {
    pub fn of(core: &'a Rc<Core>) -> BitmapIo<'a> {
        BitmapIo { core }
    }

    /// Notes durably that the copies of `index` may differ from now on, for as long as the answer lives and a while longer.
    pub(super) async fn note_dirty(self, index: u32) -> Result<InUse<'a>, VolumeError> {
        let replication = &self.core.replication;
        let in_use = InUse::of(replication, index);
        #[cfg(test)]
        if self.core.mutated(Mutation::NoDirtyBit) {
            return Ok(in_use);
        }
        if replication.borrow().bitmap.is_set(index) {
            return Ok(in_use);
        }
        replication.borrow_mut().bitmap.want(index);
        let _one = self.core.locks.bits.acquire(1).await;
        if replication.borrow().bitmap.is_set(index) {
            return Ok(in_use);
        }
        let wanted = self.wanted_bits(index);
        let mut bits = replication.borrow().bitmap.bits().clone();
        bits.extend(&wanted);
        let written = self.write_bits(&bits, &wanted).await;
        let bitmap = &mut replication.borrow_mut().bitmap;
        match written {
            Ok(()) => bitmap.set(&wanted),
            Err(error) => {
                bitmap.want_again(wanted);
                return Err(error);
            }
        }
        Ok(in_use)
    }

    /// The bits to be set with that of `index`.
    fn wanted_bits(self, index: u32) -> BTreeSet<u32> {
        let end = self.core.size().0.div_ceil(EXTENT) as u32;
        let copied = self.core.volume_record().copies > 1;
        // Of one copy the bit says that it may not be there: none is set where it is.
        let wants = |index| copied || self.core.extents.placed(index).is_none();
        let bitmap = &mut self.core.replication.borrow_mut().bitmap;
        bitmap.take_wanted(index, end, env::now(), wants)
    }

    /// Makes the pages with these extents durable on all bitmap replicas; new ones get all pages.
    async fn write_bits(
        self,
        bits: &BTreeSet<u32>,
        changed: &BTreeSet<u32>,
    ) -> Result<(), VolumeError> {
        loop {
            self.core.usable()?;
            let copies = usize::from(self.core.volume_record().copies);
            let (bitmap_replicas, old) = self.next_bitmap_replicas(copies);
            RecordIo::of(self.core)
                .list_stores(&bitmap_replicas)
                .await?;
            let writes = bitmap_replicas.iter().enumerate().map(|(at, number)| {
                let pages = bitmap::pages(if at < old { changed } else { bits });
                async move { (*number, self.write_pages(*number, bits, pages).await) }
            });
            let answers = join_all(writes.collect::<Vec<_>>()).await;
            let mut failed = Vec::new();
            // Those that have what is set, if not what is to be set.
            let mut have = bitmap_replicas.clone();
            for (at, (number, answer)) in answers.into_iter().enumerate() {
                match answer {
                    Ok(()) => {}
                    Err(ConnectionError::Fenced { why, .. }) => return Err(self.core.fence(why)),
                    Err(error) => {
                        if at >= old {
                            have.retain(|one| *one != number);
                        }
                        failed.push((number, error));
                    }
                }
            }
            // New ones count before an old one goes: else the last of the old ones would never be spared.
            self.core.replication.borrow_mut().bitmap.set_replicas(have);
            if failed.is_empty() {
                return Ok(());
            }
            let numbers: Vec<StoreNumber> = failed.iter().map(|(number, _)| *number).collect();
            if !Membership::of(self.core).shrink_set(&numbers).await? {
                // The last copy of something: wait for it to come back.
                RecordIo::of(self.core).renew().await?;
                return Err(self.core.no_copy(0, &failed[0].1));
            }
        }
    }

    /// The bitmap replicas from now on, and how many of them were so before.
    fn next_bitmap_replicas(self, copies: usize) -> (Vec<StoreNumber>, usize) {
        let fit = |it: &&Replica| {
            it.sync_state() == SyncState::InSync && !self.core.replicas.is_cordoned(it.info.number)
        };
        let keeper = |it: &Replica| Keeper {
            store: it.info.number,
            domain: it.info.domain,
            linked: it.connection().is_some(),
            drained: self.core.replicas.is_drained(it.info.number),
        };
        let keepers: Vec<Keeper> = self
            .core
            .replicas
            .values()
            .filter(fit)
            .map(keeper)
            .collect();
        self.core
            .replication
            .borrow()
            .bitmap
            .next_replicas(copies, &keepers)
    }

    async fn write_pages(
        self,
        number: StoreNumber,
        bits: &BTreeSet<u32>,
        pages: BTreeSet<u32>,
    ) -> Result<(), ConnectionError> {
        let replica = self
            .core
            .replicas
            .get(number)
            .expect("a bitmap replica is a member");
        let Some(connection) = replica.connection() else {
            return Err(ConnectionError::Gone(format!(
                "there is no link to store {}",
                replica.info.name
            )));
        };
        let object = dirty::object(self.core.id);
        for page in pages {
            let mut bytes = Buf::zeroed(PAGE as usize);
            bitmap::fill(&mut bytes, page, bits);
            let data: View = bytes.freeze();
            let write = connection.write(
                &object,
                u64::from(page) * PAGE,
                data,
                Change::FUA.creating(),
            );
            if let Err(error) = self.core.within(write).await {
                if error.ends_connection() {
                    replica.lose(&connection, error.is_indeterminate());
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes pages of one store's bits anew.
    pub(super) async fn rewrite_bits(
        self,
        store: StoreNumber,
        pages: BTreeSet<u32>,
    ) -> Result<(), ConnectionError> {
        let _one = self.core.locks.bits.acquire(1).await;
        let bits = self.core.replication.borrow().bitmap.bits().clone();
        self.write_pages(store, &bits, pages).await
    }

    /// Writes what is set to the bitmap replicas, before anything else.
    pub(super) async fn write_all_bits(self) -> Result<(), VolumeError> {
        let _one = self.core.locks.bits.acquire(1).await;
        let bits = self.core.replication.borrow().bitmap.bits().clone();
        self.write_bits(&bits, &bits).await
    }

    /// Chooses further bitmap replicas if too many are out, and puts there what is set.
    pub(super) async fn choose_bitmap_replicas(self) -> Result<(), VolumeError> {
        let in_sync = |it: &&Replica| it.sync_state() == SyncState::InSync;
        let stays = |it: &&Replica| !self.core.replicas.is_drained(it.info.number);
        let all = || self.core.replicas.values().filter(in_sync);
        let counts = (all().count(), all().filter(stays).count());
        if self.lacks_bitmap_replicas(counts) {
            self.write_all_bits().await?;
        }
        // A drained one goes when the others have all bits.
        match self.lacks_bitmap_replicas(counts) {
            true => self.write_all_bits().await,
            false => Ok(()),
        }
    }

    /// Of so many stores in sync, and of so many of them that are to stay.
    fn lacks_bitmap_replicas(self, counts: (usize, usize)) -> bool {
        let replicas = &self.core.replicas;
        let copies = usize::from(self.core.volume_record().copies);
        let in_sync = |one| {
            let replica = replicas.get(one);
            replica.is_some_and(|it| it.sync_state() == SyncState::InSync)
        };
        let bitmap = &self.core.replication.borrow().bitmap;
        bitmap.lacks_replicas(copies, counts, in_sync, |one| replicas.is_drained(one))
    }

    /// The extents that a store's bitmap names; of a page that cannot be read, all.
    pub(super) async fn bitmap(
        self,
        connection: &Rc<dyn Connection>,
        most: u32,
    ) -> Result<BTreeSet<u32>, ConnectionError> {
        let name = dirty::object(self.core.id);
        let mut set = BTreeSet::new();
        let end = u64::from(most).div_ceil(8);
        let mut at = 0;
        let mut chunk = BITMAP_CHUNK;
        while at < end {
            let read = connection.read(&name, at, chunk.min(end - at));
            match self.core.within(read).await {
                Ok(bytes) => {
                    set.extend(bitmap::parse(&bytes, at).filter(|index| *index < most));
                }
                Err(ConnectionError::Absent(_)) => return Ok(set),
                Err(ConnectionError::Damaged(_)) if chunk > PAGE => {
                    chunk = PAGE;
                    continue;
                }
                Err(ConnectionError::Damaged(why)) => {
                    tracing::warn!(volume = %self.core.id, why, "a page of a bitmap: all its extents are unreconciled");
                    let first = (at * 8) as u32;
                    set.extend(first..most.min(first + BITS));
                }
                Err(error) => return Err(error),
            }
            at += chunk;
        }
        Ok(set)
    }

    /// Clears what was not used for a while; `all`: all that no change uses now.
    pub(super) async fn clear_dirty(self, all: bool) -> Result<(), VolumeError> {
        let _one = self.core.locks.bits.acquire(1).await;
        // A change that begins from here on finds no bit, and waits for this.
        let clean = {
            let is_unacknowledged = |index| {
                let placed = self.core.extents.placed(index);
                placed.is_some_and(|it| it.is_unacknowledged())
            };
            let after = self.core.settings.clean_after;
            let replication = &mut self.core.replication.borrow_mut();
            replication.take_clean(env::now(), after, all, is_unacknowledged)
        };
        if clean.is_empty() {
            return Ok(());
        }
        let bits = self.core.replication.borrow().bitmap.bits().clone();
        self.write_bits(&bits, &clean).await
    }

    /// Deletes the bits of a store that has none any more, or that are of no account: the bitmap replicas have them
    /// all.
    pub(super) async fn delete_bits(self, store: StoreNumber) {
        let there = self
            .core
            .replicas
            .get(store)
            .and_then(|it| Some((it, it.connection()?)));
        let Some((replica, connection)) = there else {
            return;
        };
        let object = dirty::object(self.core.id);
        match self
            .core
            .within(connection.delete(&object, Change::default()))
            .await
        {
            Ok(()) | Err(ConnectionError::Absent(_)) => {}
            Err(ConnectionError::Fenced { why, .. }) => drop(self.core.fence(why)),
            Err(error) => {
                tracing::debug!(volume = %self.core.id, store = %self.core.replicas.label(store), %error, "no bits were deleted");
                if error.ends_connection() {
                    // It may come later: whatever is asked of the store from here on is asked under a greater token.
                    replica.lose(&connection, error.is_indeterminate());
                }
            }
        }
    }
}
