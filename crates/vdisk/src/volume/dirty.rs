//! Which extents' copies may differ after a crash?
//!
//! ```text
//! before a change: the extent's bit, durable on the bitmap replicas       some seconds after the last: the bit goes again
//! d/<volume>: one bit for each extent, in pages of 4 KiB
//! ```
//!
//! The *bitmap replicas* are as many in-sync stores as extents have copies. So a node that can open the volume
//! can seal one of them. Volumes of one copy need it for new extents alone: a single copy differs from nothing, but may not
//! be there.
//!
//! Always true:
//! 1. While a change of an extent is under way, or its copies are unreconciled, its bit is durable on all bitmap
//!    replicas.
//! 2. An extent that no store may have, since no change of it was answered, has its bit before the map has it.
//! 3. A bitmap replica that misses a bit leaves the in-sync set before the change goes on.
//! 4. `redundancy_floor` is no greater than the number of bitmap replicas in sync.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::{Buf, Instant, View};
use env::sync::{Permit, Semaphore, join_all};
use store::Change;

use super::membership::{Replica, SyncState};
use super::{Core, VolumeError};
use crate::names::{EXTENT, Generation, StoreNumber, VolumeId};
use crate::replica::connect::{Connection, ConnectionError};

/// Bytes written at once.
pub(super) const PAGE: u64 = 4096;
/// Extents in a page.
pub(super) const BITS: u32 = 32_768;
/// Extents behind one that is written in order whose bits are set with its own: 32 MiB, of which at most so much more is compared
/// after a crash.
const AHEAD: usize = 8;
/// Bytes of a bitmap read at once.
const BITMAP_CHUNK: u64 = 1 << 20;

/// The object of a volume.
pub(super) fn object(volume: VolumeId) -> String {
    format!("d/{volume}")
}

/// How many changes use an extent, and when it was last used.
#[derive(Default)]
struct Use {
    under_way: u64,
    last: Instant,
}

pub(super) struct Dirty {
    /// Durable on all bitmap replicas.
    bits: RefCell<BTreeSet<u32>>,
    /// To be durable next.
    wanted: RefCell<BTreeSet<u32>>,
    used: RefCell<BTreeMap<u32, Use>>,
    bitmap_replicas: RefCell<Vec<StoreNumber>>,
    one: Rc<Semaphore>,
}

impl Dirty {
    pub fn new(bits: BTreeSet<u32>) -> Dirty {
        Dirty {
            bits: RefCell::new(bits),
            wanted: RefCell::default(),
            used: RefCell::default(),
            bitmap_replicas: RefCell::default(),
            one: Semaphore::new(1),
        }
    }

    /// What the bitmaps of the writer before said: set, and to be written to the bitmap replicas of this one.
    pub fn preset(&self, bits: BTreeSet<u32>) {
        *self.bits.borrow_mut() = bits;
    }

    /// No task writes bits while this is held.
    pub async fn alone(&self) -> Permit {
        self.one.acquire(1).await
    }

    /// Does a store have all bits?
    pub fn is_bitmap_replica(&self, store: StoreNumber) -> bool {
        self.bitmap_replicas.borrow().contains(&store)
    }

    /// What pages of a bitmap say.
    pub fn parse(bytes: &[u8], from: u64) -> impl Iterator<Item = u32> + '_ {
        let set = bytes.iter().enumerate().filter(|(_, byte)| **byte != 0);
        set.flat_map(move |(at, byte)| {
            let first = (from + at as u64) * 8;
            (0..8_u64)
                .filter(move |bit| byte & (1 << bit) != 0)
                .map(move |bit| (first + bit) as u32)
        })
    }
}

/// A change of an extent under way.
pub(super) struct InUse<'a>(&'a Dirty, u32);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        let mut used = self.0.used.borrow_mut();
        let it = used.get_mut(&self.1).expect("counted when it began");
        it.under_way -= 1;
        it.last = env::now();
    }
}

impl Core {
    /// Notes durably that the copies of `index` may differ from now on, for as long as the answer lives and a while longer.
    pub(super) async fn note_dirty(&self, index: u32) -> Result<InUse<'_>, VolumeError> {
        let dirty = &self.dirty;
        dirty.used.borrow_mut().entry(index).or_default().under_way += 1;
        let in_use = InUse(dirty, index);
        #[cfg(test)]
        if self.mutated(super::Mutation::NoDirtyBit) {
            return Ok(in_use);
        }
        if dirty.bits.borrow().contains(&index) {
            return Ok(in_use);
        }
        dirty.wanted.borrow_mut().insert(index);
        let _one = dirty.one.acquire(1).await;
        if dirty.bits.borrow().contains(&index) {
            return Ok(in_use);
        }
        // All that wait, in one write.
        let mut wanted = std::mem::take(&mut *dirty.wanted.borrow_mut());
        // Also if the task that took it with its own gave up.
        wanted.insert(index);
        wanted.extend(self.next_in_order(&wanted));
        let mut bits = dirty.bits.borrow().clone();
        bits.extend(&wanted);
        let written = self.write_bits(&bits, &wanted).await;
        if let Err(error) = written {
            dirty.wanted.borrow_mut().extend(wanted);
            return Err(error);
        }
        *dirty.bits.borrow_mut() = bits;
        Ok(in_use)
    }

    /// What will be changed next if a client writes in order: a bit for each extent would hold up every fourth write of 1 MiB.
    fn next_in_order(&self, wanted: &BTreeSet<u32>) -> Vec<u32> {
        let mut used = self.dirty.used.borrow_mut();
        let bits = self.dirty.bits.borrow();
        let end = self.size().0.div_ceil(EXTENT) as u32;
        let before = |index: &u32| index.checked_sub(1).is_some_and(|one| bits.contains(&one));
        let in_order = wanted.iter().filter(|index| before(index));
        let next = in_order.flat_map(|index| (index + 1..end).take(AHEAD));
        let copied = self.record.borrow().0.copies > 1;
        // Of one copy the bit says that it may not be there: none is set where it is.
        let wants = |index: &u32| copied || self.placed(*index).is_none();
        let next = next.filter(|index| !bits.contains(index) && wants(index));
        let next: Vec<u32> = next.collect();
        for index in &next {
            // They go as others do when no write came.
            used.entry(*index).or_default().last = env::now();
        }
        next
    }

    /// Makes the pages with these extents durable on all bitmap replicas; new ones get all pages.
    async fn write_bits(
        &self,
        bits: &BTreeSet<u32>,
        changed: &BTreeSet<u32>,
    ) -> Result<(), VolumeError> {
        let pages =
            |of: &BTreeSet<u32>| -> BTreeSet<u32> { of.iter().map(|it| it / BITS).collect() };
        loop {
            self.usable()?;
            let copies = usize::from(self.record.borrow().0.copies);
            let (bitmap_replicas, old) = self.next_bitmap_replicas(copies);
            self.list_stores(&bitmap_replicas).await?;
            let writes = bitmap_replicas.iter().enumerate().map(|(at, number)| {
                let pages = pages(if at < old { changed } else { bits });
                async move { (*number, self.write_pages(*number, bits, pages).await) }
            });
            let answers = join_all(writes.collect::<Vec<_>>()).await;
            let mut failed = Vec::new();
            // Those that have what is set, if not what is to be set.
            let mut have = bitmap_replicas.clone();
            for (at, (number, answer)) in answers.into_iter().enumerate() {
                match answer {
                    Ok(()) => {}
                    Err(ConnectionError::Fenced { why, .. }) => return Err(self.fence(why)),
                    Err(error) => {
                        if at >= old {
                            have.retain(|one| *one != number);
                        }
                        failed.push((number, error));
                    }
                }
            }
            // New ones count before an old one goes: else the last of the old ones would never be spared.
            *self.dirty.bitmap_replicas.borrow_mut() = have;
            if failed.is_empty() {
                return Ok(());
            }
            let numbers: Vec<StoreNumber> = failed.iter().map(|(number, _)| *number).collect();
            if !self.shrink_set(&numbers).await? {
                // The last copy of something: wait for it to come back.
                self.renew().await?;
                return Err(self.no_copy(0, &failed[0].1));
            }
        }
    }

    /// The bitmap replicas that are in sync, with more of other failure domains if they can be had; and how many were there
    /// before.
    fn next_bitmap_replicas(&self, copies: usize) -> (Vec<StoreNumber>, usize) {
        let fit = |it: &&Replica| {
            it.sync_state.get() == SyncState::InSync && !self.is_cordoned(it.info.number)
        };
        let fit: Vec<&Replica> = self.replicas.values().filter(fit).collect();
        let mut bitmap_replicas = self.dirty.bitmap_replicas.borrow().clone();
        bitmap_replicas.retain(|number| fit.iter().any(|it| it.info.number == *number));
        let stays = |it: &&&Replica| !self.is_drained(it.info.number);
        let there =
            |it: &&&Replica| bitmap_replicas.contains(&it.info.number) && it.connection().is_some();
        if fit.iter().filter(stays).filter(there).count() >= copies {
            // The others have all bits.
            bitmap_replicas.retain(|number| !self.is_drained(*number));
        }
        let old = bitmap_replicas.len();
        loop {
            let (own, left): (Vec<&Replica>, Vec<&Replica>) =
                (fit.iter()).partition(|it| bitmap_replicas.contains(&it.info.number));
            let domains: Vec<_> = own.iter().map(|it| it.info.domain).collect();
            let cost = |it: &&Replica| {
                let drained = self.is_drained(it.info.number);
                (
                    drained,
                    it.connection().is_none(),
                    domains.contains(&it.info.domain),
                )
            };
            let Some(next) = left.into_iter().min_by_key(cost) else {
                return (bitmap_replicas, old);
            };
            // One that cannot be reached does not do in place of one that can.
            // Nor one that is about to go in place of one that stays.
            let counts = |it: &&&Replica| stays(it) || !stays(&&next);
            let own = || own.iter().filter(counts);
            let enough = match next.connection() {
                Some(_) => own().filter(|it| it.connection().is_some()).count() >= copies,
                None => own().count() >= copies,
            };
            if enough {
                return (bitmap_replicas, old);
            }
            bitmap_replicas.push(next.info.number);
        }
    }

    async fn write_pages(
        &self,
        number: StoreNumber,
        bits: &BTreeSet<u32>,
        pages: BTreeSet<u32>,
    ) -> Result<(), ConnectionError> {
        let replica = self.replica(number).expect("a bitmap replica is a member");
        let Some(connection) = replica.connection() else {
            return Err(ConnectionError::Gone(format!(
                "there is no link to store {}",
                replica.info.name
            )));
        };
        let object = object(self.id);
        for page in pages {
            let mut bytes = Buf::zeroed(PAGE as usize);
            let first = page * BITS;
            for bit in bits.range(first..first.saturating_add(BITS)) {
                let at = bit - first;
                bytes[at as usize / 8] |= 1 << (at % 8);
            }
            let data: View = bytes.freeze();
            let write = connection.write(
                &object,
                u64::from(page) * PAGE,
                data,
                Change::FUA.creating(),
            );
            if let Err(error) = self.within(write).await {
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
        &self,
        store: StoreNumber,
        pages: BTreeSet<u32>,
    ) -> Result<(), ConnectionError> {
        let _one = self.dirty.alone().await;
        let bits = self.dirty.bits.borrow().clone();
        self.write_pages(store, &bits, pages).await
    }

    /// Writes what is set to the bitmap replicas, before anything else.
    pub(super) async fn write_all_bits(&self) -> Result<(), VolumeError> {
        let _one = self.dirty.one.acquire(1).await;
        let bits = self.dirty.bits.borrow().clone();
        self.write_bits(&bits, &bits).await
    }

    /// How many bitmap replicas there are besides these; `None`: none were chosen yet.
    pub(super) fn bitmap_replicas_without(
        &self,
        out: &BTreeMap<StoreNumber, Generation>,
    ) -> Option<usize> {
        let bitmap_replicas = self.dirty.bitmap_replicas.borrow();
        let left = bitmap_replicas
            .iter()
            .filter(|number| !out.contains_key(number))
            .count();
        (!bitmap_replicas.is_empty()).then_some(left)
    }

    /// Chooses further bitmap replicas if too many are out, and puts there what is set.
    pub(super) async fn choose_bitmap_replicas(&self) -> Result<(), VolumeError> {
        let in_sync = |number: &StoreNumber| {
            let replica = self.replica(*number);
            replica.is_some_and(|it| it.sync_state.get() == SyncState::InSync)
        };
        let copies = usize::from(self.record.borrow().0.copies);
        let stays = |number: &StoreNumber| in_sync(number) && !self.is_drained(*number);
        let (most, stay) = {
            let all = || self.replicas.keys();
            let most = all().filter(|one| in_sync(one)).count();
            (most, all().filter(|one| stays(one)).count())
        };
        let few = || {
            let bitmap_replicas = self.dirty.bitmap_replicas.borrow();
            let drained = bitmap_replicas.iter().any(|one| self.is_drained(*one));
            let in_sync = bitmap_replicas.iter().filter(|one| in_sync(one)).count();
            in_sync < copies.min(most) || (drained && stay >= copies)
        };
        if few() {
            self.write_all_bits().await?;
        }
        // A drained one goes when the others have all bits.
        match few() {
            true => self.write_all_bits().await,
            false => Ok(()),
        }
    }

    /// The extents that a store's bitmap names; of a page that cannot be read, all.
    pub(super) async fn bitmap(
        &self,
        connection: &Rc<dyn Connection>,
        most: u32,
    ) -> Result<BTreeSet<u32>, ConnectionError> {
        let name = object(self.id);
        let mut set = BTreeSet::new();
        let end = u64::from(most).div_ceil(8);
        let mut at = 0;
        let mut chunk = BITMAP_CHUNK;
        while at < end {
            let read = connection.read(&name, at, chunk.min(end - at));
            match self.within(read).await {
                Ok(bytes) => {
                    set.extend(Dirty::parse(&bytes, at).filter(|index| *index < most));
                }
                Err(ConnectionError::Absent(_)) => return Ok(set),
                Err(ConnectionError::Damaged(_)) if chunk > PAGE => {
                    chunk = PAGE;
                    continue;
                }
                Err(ConnectionError::Damaged(why)) => {
                    tracing::warn!(volume = %self.id, why, "a page of a bitmap: all its extents are unreconciled");
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
    pub(super) async fn clear_dirty(&self, all: bool) -> Result<(), VolumeError> {
        let _one = self.dirty.one.acquire(1).await;
        let now = env::now();
        let clean: BTreeSet<u32> = {
            let used = self.dirty.used.borrow();
            let bits = self.dirty.bits.borrow();
            let clean = bits.iter().filter(|index| {
                let quiet = used.get(index).is_none_or(|it| {
                    let old = now.since(it.last) >= self.settings.clean_after;
                    it.under_way == 0 && (all || old)
                });
                // An unacknowledged extent may be on no store: its bit says so to the next opening.
                let unacknowledged = self
                    .placed(**index)
                    .is_some_and(|it| it.unacknowledged.get());
                let unacknowledged = unacknowledged || self.is_forgotten(**index);
                quiet && !unacknowledged && !self.is_unreconciled(**index)
            });
            clean.copied().collect()
        };
        if clean.is_empty() {
            return Ok(());
        }
        // A change that begins from here on finds no bit, and waits for this.
        self.dirty
            .bits
            .borrow_mut()
            .retain(|it| !clean.contains(it));
        self.dirty
            .used
            .borrow_mut()
            .retain(|it, _| !clean.contains(it));
        let bits = self.dirty.bits.borrow().clone();
        self.write_bits(&bits, &clean).await
    }
}
