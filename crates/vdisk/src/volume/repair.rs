//! Damage that stores know of is repaired from other copies, whether or not a read meets it.
//!
//! ```text
//! scrubs, reads -> stores' lists of damage -> whose is it? -> another in-sync copy, written over it
//!                                              |             '-- no copy has it: named, until it is written over
//!                                              '-- extent of the head | of older images | node of a map | dirty bits
//! ```
//!
//! Always true:
//! 1. A page is written over with what an in-sync copy of the same object has, or not at all.
//! 2. No store leaves the in-sync set for damage, whatever becomes of its repair; one that lacks a copy as a whole is.
//! 3. What no copy has is named as long as a store says that it is damaged.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use base::{Buf, Bytes, View};
use env::sync::Semaphore;
use replication::bitmap;
use store::{Change, Damage};

use super::io::ExtentRange;
use super::membership::{Replica, SyncState};
use super::reconcile::{CHUNK, Copy, CopyError, PAGE, stamped};
use super::repairs::{Repairs, Unrepaired};
use super::{Core, ExtentEntry, Volume, VolumeError, dirty};
use crate::map::NodeRef;
use crate::names::{EXTENT, ExtentName, NodeName, StoreNumber};
use crate::replica::connect::{Connection, ConnectionError};

/// Ticks between two looks at what stores found damaged.
const LOOK_EVERY: u64 = 10;

/// What is remembered between two looks.
pub(super) struct Repairing {
    one: Rc<Semaphore>,
    last: RefCell<Repairs>,
}

impl Default for Repairing {
    fn default() -> Repairing {
        Repairing {
            one: Semaphore::new(1),
            last: RefCell::default(),
        }
    }
}

/// What of a volume an object is.
enum Part {
    /// An extent of the head, or what lies below it.
    Head(u32, Rc<ExtentEntry>),
    /// Of older images alone.
    Older(Rc<ExtentEntry>),
    Node(NodeRef),
    Bits,
}

/// What became of a stretch of one copy.
#[derive(Default)]
struct Rewritten {
    bytes: u64,
    /// Pages that no other copy has.
    lost: Vec<(u64, Lost)>,
}

/// Why no in-sync copy has a page.
#[derive(Clone, PartialEq, Eq)]
struct Lost {
    why: String,
    /// No store that is out may have it.
    surely: bool,
}

/// A stretch of one store's copy that is to be written anew.
struct Stretch {
    range: Range<u64>,
    /// What lies behind the end of the other copies are zeroes.
    to_its_end: bool,
}

impl Volume {
    /// Repairs all that its stores know to be damaged, and says what could not be.
    pub async fn repair_damage(&self) -> Repairs {
        let core = Rc::clone(&self.core);
        // To its end, whether or not the caller waits: writes under way are not given up.
        env::spawn(async move { core.repair_damage().await }).await
    }

    /// How many in-sync copies extents lack, by the in-sync set of the record.
    pub fn missing_copies(&self) -> u64 {
        let core = &self.core;
        let (out, copies) = {
            let record = &core.record.borrow().0;
            (record.out.clone(), u64::from(record.copies))
        };
        let extents = core.extents.borrow();
        let layers = extents.values().flat_map(ExtentEntry::layers);
        let lacks = |layer: Rc<ExtentEntry>| {
            let stores = layer.stores.borrow();
            let there = stores.iter().filter(|one| !out.contains_key(one)).count();
            copies.saturating_sub(there as u64)
        };
        layers.map(lacks).sum()
    }

    /// Goes on without a store that is gone for good: it is out of sync from here on. `false`: it has the last in-sync copy of
    /// something, or it still answers, and nothing was done.
    ///
    /// # Errors
    /// [`VolumeError`] if the record could not be changed.
    pub async fn give_up(&self, store: StoreNumber) -> Result<bool, VolumeError> {
        let core = Rc::clone(&self.core);
        env::spawn(async move { core.give_up(store).await }).await
    }

    /// What no in-sync copy has, as of the last look.
    pub fn lost_pages(&self) -> Vec<Unrepaired> {
        self.core.lost_pages()
    }
}

impl Core {
    async fn give_up(&self, store: StoreNumber) -> Result<bool, VolumeError> {
        let Some(replica) = self.replica(store).filter(|it| it.is_needed()) else {
            return Ok(true);
        };
        // A connection that just broke may be there again in a moment.
        let (until, mut tries) = (env::now() + self.settings.timeout, 0);
        while replica.connection().is_none() && env::now() < until {
            self.usable()?;
            self.pause(&mut tries).await;
        }
        if let Some(connection) = replica.connection() {
            match self.within(connection.space()).await {
                Ok(_) => return Ok(false),
                Err(ConnectionError::Fenced { why, .. }) => return Err(self.fence(why)),
                Err(error) if error.ends_connection() => replica.lose(&connection, false),
                Err(_) => {}
            }
        }
        self.shrink_set(&[store]).await
    }

    /// Repairs what stores find damaged, as long as the volume is open.
    pub(super) async fn keep_repaired(self: Rc<Self>) {
        let mut turn = 0_u64;
        while self.usable().is_ok() {
            if turn.is_multiple_of(LOOK_EVERY) {
                self.repair_damage().await;
            }
            turn += 1;
            env::sleep(self.settings.tick).await;
        }
    }

    fn lost_pages(&self) -> Vec<Unrepaired> {
        let last = self.repairing.last.borrow();
        last.left.iter().filter(|it| it.lost).cloned().collect()
    }

    /// The first of what no in-sync copy has, in words; `None`: there is nothing.
    pub(super) fn lost_in_words(&self) -> Option<String> {
        self.repairing.last.borrow().lost_in_words()
    }

    async fn repair_damage(&self) -> Repairs {
        let _one = self.repairing.one.acquire(1).await;
        let (mut repairs, mut looked) = (Repairs::default(), false);
        let in_sync = |it: &&Replica| it.sync_state.get() == SyncState::InSync;
        for replica in self.replicas.values().filter(in_sync) {
            match self.damage_of(replica).await {
                Ok(found) => {
                    if !found.is_empty()
                        && !self.older_images.is_known()
                        && !std::mem::replace(&mut looked, true)
                        && let Err(error) = self.read_older_images().await
                    {
                        tracing::debug!(volume = %self.id, %error, "what older images have is not known");
                    }
                    for damage in found {
                        self.repair_one(replica, damage, &mut repairs).await;
                    }
                }
                Err(error) => repairs
                    .silent
                    .push((replica.info.number, error.to_string())),
            }
        }
        if repairs.repaired > Bytes(0) {
            tracing::info!(volume = %self.id, bytes = %repairs.repaired, "damage was repaired from other copies");
        }
        self.remember(&repairs);
        repairs
    }

    /// What is left is known from here on; what is lost is reported once.
    fn remember(&self, repairs: &Repairs) {
        let before = self.repairing.last.replace(repairs.clone());
        if repairs.beyond() > 0 && repairs.count != before.count {
            let (all, lost) = (repairs.count, repairs.lost);
            tracing::error!(volume = %self.id, all, lost, "more damage than is named one by one");
        }
        let before: BTreeSet<&Damage> = before.left.iter().map(|it| &it.damage).collect();
        for left in repairs.left.iter().filter(|it| it.lost) {
            if !before.contains(&left.damage) {
                let Unrepaired { damage, why, .. } = left;
                tracing::error!(
                    volume = %self.id, object = %damage.object, offset = damage.offset, len = damage.len, why,
                    "damage that no in-sync copy can repair"
                );
            }
        }
    }

    /// All that a store knows to be damaged and that may be the volume's.
    async fn damage_of(&self, replica: &Replica) -> Result<Vec<Damage>, ConnectionError> {
        let gone = || ConnectionError::Gone("there is no link to it".to_owned());
        let connection = replica.connection().ok_or_else(gone)?;
        let bits = dirty::object(self.id);
        let mut all = Vec::new();
        for prefix in ["v/", "m/", &bits] {
            match self.within(connection.damage(prefix)).await {
                Ok(found) => all.extend(found),
                Err(error) => {
                    if error.ends_connection() {
                        replica.lose(&connection, false);
                    }
                    return Err(error);
                }
            }
        }
        Ok(all)
    }

    /// What of this volume an object is that a store has, and should have.
    fn part_of(&self, store: StoreNumber, object: &str) -> Option<Part> {
        if object == dirty::object(self.id) {
            return Some(Part::Bits);
        }
        if let Some(name) = NodeName::parse(object) {
            let all = [self.nodes.get(&name), self.older_images.nodes().get(&name)];
            let its = |node: &NodeRef| node.stores.contains(store);
            return all.into_iter().flatten().find(its).map(Part::Node);
        }
        let name = ExtentName::parse(object)?;
        let top = self.placed(name.index);
        let mut layers = top.iter().flat_map(ExtentEntry::layers);
        if let Some(layer) = layers.find(|layer| layer.name == name) {
            let has = layer.stores.borrow().contains(&store);
            return has.then_some(Part::Head(name.index, layer));
        }
        let stores = self.older_images.stores_of(&name)?;
        let has = stores.contains(&store);
        has.then(|| Part::Older(ExtentEntry::new(name, stores, false)))
    }

    async fn repair_one(&self, replica: &Replica, damage: Damage, repairs: &mut Repairs) {
        let Some(part) = self.part_of(replica.info.number, &damage.object) else {
            // Another volume's, or of no use to any.
            return;
        };
        let Some(end) = damage.offset.checked_add(damage.len) else {
            return;
        };
        let stretch = Stretch {
            range: damage.offset..end.min(EXTENT),
            to_its_end: true,
        };
        let rewritten = match part {
            Part::Head(index, layer) => self.repair_head(&layer, replica, index, stretch).await,
            Part::Older(placed) => self.repair_older(&placed, replica, stretch).await,
            Part::Node(node) => self.repair_node(&node, replica, damage.len).await,
            Part::Bits => self.repair_bits(replica, &damage).await,
        };
        let left = |offset, len, why, lost| Unrepaired {
            damage: Damage {
                object: damage.object.clone(),
                offset,
                len,
            },
            store: replica.info.number,
            why,
            lost,
        };
        match rewritten {
            Ok(done) => {
                repairs.repaired.0 += done.bytes;
                self.count(|counters| counters.repaired_bytes += done.bytes);
                for (at, len, lost) in in_rows(done.lost) {
                    repairs.leave(left(at, len, lost.why, lost.surely));
                }
            }
            Err(error) => {
                let why = error.to_string();
                repairs.leave(left(damage.offset, damage.len, why, false));
            }
        }
    }

    // --- the parts ----------------------------------------------------------------------------------------

    /// A copy could not be read there: what another one has is written over it, in a while.
    pub(super) fn repair_later(
        self: &Rc<Self>,
        placed: &Rc<ExtentEntry>,
        store: StoreNumber,
        piece: ExtentRange,
    ) {
        let (core, placed) = (Rc::clone(self), Rc::clone(placed));
        let end = (piece.from + piece.len).next_multiple_of(PAGE).min(EXTENT);
        let stretch = Stretch {
            range: piece.from / PAGE * PAGE..end,
            to_its_end: false,
        };
        env::spawn(async move {
            let Some(replica) = core.needed(&[store]).pop() else {
                return;
            };
            match core
                .repair_head(&placed, replica, piece.index, stretch)
                .await
            {
                Ok(done) if done.bytes > 0 => core.count(|counters| {
                    counters.read_repairs += 1;
                    counters.repaired_bytes += done.bytes;
                }),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(volume = %core.id, store = %core.label(store), %error, "a damaged copy is not repaired yet");
                }
            }
        });
    }

    /// One layer of an extent of the head, with its range alone.
    async fn repair_head(
        &self,
        placed: &ExtentEntry,
        replica: &Replica,
        index: u32,
        stretch: Stretch,
    ) -> Result<Rewritten, VolumeError> {
        let start = u64::from(index) * EXTENT;
        let bytes = start + stretch.range.start..start + stretch.range.end;
        #[cfg(test)]
        let loose = self.mutated(super::Mutation::LooseRepair);
        #[cfg(not(test))]
        let loose = false;
        let _held = match loose {
            true => None,
            false => Some(self.ranges.take(bytes, true).await),
        };
        self.usable()?;
        let numbers = placed.stores.borrow().clone();
        let layers = self.placed(index).into_iter();
        let mut layers = layers.flat_map(|placed| placed.layers());
        let there = layers.any(|layer| layer.name == placed.name);
        let counts = there && numbers.contains(&replica.info.number) && replica.is_needed();
        if !counts || self.is_unreconciled(index) {
            return Ok(Rewritten::default());
        }
        let under_way = self.begin();
        let change = match self.is_shared(placed) {
            true => Change::FUA,
            false => stamped(under_way.stamp(), true),
        };
        let done = self.copy_over(placed, replica, change, stretch).await;
        self.judged(index, replica, done).await
    }

    /// What older images alone have. It never changes; it may be deleted meanwhile.
    async fn repair_older(
        &self,
        placed: &ExtentEntry,
        replica: &Replica,
        stretch: Stretch,
    ) -> Result<Rewritten, VolumeError> {
        let index = placed.name.index;
        if !self.is_shared(placed) && self.is_heads(placed) {
            // It became the head's meanwhile: the next look finds it there.
            return Ok(Rewritten::default());
        }
        let done = self.copy_over(placed, replica, Change::FUA, stretch).await;
        match done {
            Err(
                CopyError::To(ConnectionError::Absent(_))
                | CopyError::From(ConnectionError::Absent(_)),
            ) => Ok(Rewritten::default()),
            done => self.judged(index, replica, done).await,
        }
    }

    /// A node of a map, as a whole: it never changes, and its reference has its checksum.
    async fn repair_node(
        &self,
        node: &NodeRef,
        replica: &Replica,
        bytes: u64,
    ) -> Result<Rewritten, VolumeError> {
        let failed = |why: String| VolumeError::Map {
            volume: self.id,
            why,
        };
        let read = self.read_node(node).await;
        let (Some(view), Some(connection)) = (
            read.map_err(|it| failed(it.to_string()))?,
            replica.connection(),
        ) else {
            return Err(failed(format!("no copy of {} can be read", node.name())));
        };
        let name = node.name().to_string();
        let write = self.within(connection.write(&name, 0, view, Change::FUA));
        match write.await {
            Ok(()) => Ok(Rewritten {
                bytes,
                lost: Vec::new(),
            }),
            // It was replaced meanwhile.
            Err(ConnectionError::Absent(_)) => Ok(Rewritten::default()),
            Err(error) => {
                if error.ends_connection() {
                    replica.lose(&connection, error.is_indeterminate());
                }
                Err(failed(error.to_string()))
            }
        }
    }

    /// Pages of the dirty bits, from memory.
    async fn repair_bits(
        &self,
        replica: &Replica,
        damage: &Damage,
    ) -> Result<Rewritten, VolumeError> {
        let number = replica.info.number;
        if !self.dirty.is_bitmap_replica(number) {
            let _one = self.dirty.alone().await;
            if !self.dirty.is_bitmap_replica(number) {
                self.delete_bits(number).await;
            }
            return Ok(Rewritten::default());
        }
        let first = (damage.offset / bitmap::PAGE) as u32;
        let end = (damage.offset + damage.len).div_ceil(bitmap::PAGE) as u32;
        let pages: BTreeSet<u32> = (first..end).collect();
        let written = self.rewrite_bits(number, pages).await;
        written.map_err(|error| self.no_copy(0, &error))?;
        Ok(Rewritten {
            bytes: damage.len,
            lost: Vec::new(),
        })
    }

    // --- one copy from the others ---------------------------------------------------------------------------

    /// What stood in the way, in the words of a volume. No store leaves the in-sync set for it.
    async fn judged(
        &self,
        index: u32,
        replica: &Replica,
        done: Result<Rewritten, CopyError>,
    ) -> Result<Rewritten, VolumeError> {
        match done {
            Ok(done) => Ok(done),
            Err(
                CopyError::From(ConnectionError::Fenced { why, .. })
                | CopyError::To(ConnectionError::Fenced { why, .. }),
            ) => Err(self.fence(why)),
            // Resync would delete what is good of the copy: it stays in sync, and the next look tries again.
            Err(CopyError::From(error)) => Err(self.no_copy(index, &error)),
            // There is nothing good of it, so resync may make it.
            Err(CopyError::To(error @ ConnectionError::Absent(_))) => {
                self.shrink_set(&[replica.info.number]).await?;
                Err(self.no_copy(index, &error))
            }
            Err(CopyError::To(error)) => {
                let store = replica.info.number;
                tracing::warn!(volume = %self.id, store = %self.label(store), %error, "a damaged copy cannot be written anew");
                // A write that may still come is over before the range is free.
                self.renew().await?;
                Err(self.no_copy(index, &error))
            }
        }
    }

    /// Writes a stretch of one copy anew, from the others.
    async fn copy_over(
        &self,
        placed: &ExtentEntry,
        replica: &Replica,
        change: Change,
        stretch: Stretch,
    ) -> Result<Rewritten, CopyError> {
        let mut done = Rewritten::default();
        let numbers = placed.stores.borrow().clone();
        let mut others: Vec<Copy<'_>> = Vec::new();
        let gone = |it: &Replica| {
            let why = format!("there is no link to store {}", it.info.name);
            CopyError::From(ConnectionError::Gone(why))
        };
        let connection = replica.connection().ok_or_else(|| gone(replica))?;
        for other in self.needed(&numbers) {
            if other.info.number != replica.info.number {
                others.push((other, other.connection().ok_or_else(|| gone(other))?));
            }
        }
        let Range { start: mut at, end } = stretch.range;
        // Below this it goes page by page.
        let mut fine = at;
        while at < end {
            let most = if at < fine { PAGE } else { CHUNK };
            let len = most.min(end - at).min(self.write_max.get());
            match self.read_whole(&placed.object, &others, at, len).await {
                Ok(data) if data.is_empty() && !stretch.to_its_end => break,
                Ok(data) => {
                    let data = padded(data, len, stretch.to_its_end);
                    let write = connection.write(&placed.object, at, data, change);
                    let written = self.of(replica, &connection, write).await;
                    written.map_err(CopyError::To)?;
                    done.bytes += len;
                }
                // What is wrong is wrong with some page of it.
                Err(_) if len > PAGE => {
                    fine = at + len;
                    continue;
                }
                Err(ConnectionError::Damaged(why)) => {
                    if !self
                        .reads_well_now(replica, &connection, placed, (at, len), change)
                        .await?
                    {
                        done.lost.push((at, self.why_lost(&numbers, why)));
                    } else {
                        done.bytes += len;
                    }
                }
                Err(error) => return Err(CopyError::From(error)),
            }
            at += len;
        }
        Ok(done)
    }

    /// A page that no other copy has, and that was noted as damaged, may be read rightly after all: the read may have failed for
    /// a while. Written over with itself it counts as whole.
    async fn reads_well_now(
        &self,
        replica: &Replica,
        connection: &Rc<dyn Connection>,
        placed: &ExtentEntry,
        (at, len): (u64, u64),
        change: Change,
    ) -> Result<bool, CopyError> {
        let Ok(data) = self.within(connection.read(&placed.object, at, len)).await else {
            return Ok(false);
        };
        if data.is_empty() {
            return Ok(false);
        }
        let data = padded(data.freeze(), len, true);
        let write = connection.write(&placed.object, at, data, change);
        let written = self.of(replica, connection, write).await;
        written.map(|()| true).map_err(CopyError::To)
    }

    /// Why a page is on no in-sync copy, and whether one that is out may have it.
    fn why_lost(&self, numbers: &[StoreNumber], why: String) -> Lost {
        let out = numbers.iter().filter_map(|one| self.replica(*one));
        let mut out = out.filter(|it| !it.is_needed() && !self.has_left(it.info.number));
        match out.next() {
            Some(replica) => Lost {
                why: format!(
                    "waits for store {}, which is out of sync: {why}",
                    replica.info.name
                ),
                surely: false,
            },
            None => Lost { why, surely: true },
        }
    }

    /// From the first of `copies` that has all of it. [`ConnectionError::Damaged`]: none of them has, and each said so.
    async fn read_whole(
        &self,
        object: &str,
        copies: &[Copy<'_>],
        at: u64,
        len: u64,
    ) -> Result<View, ConnectionError> {
        let mut failed = ConnectionError::Damaged("no other copy is in sync".to_owned());
        for (_, connection) in copies {
            match self.within(connection.read(object, at, len)).await {
                Ok(data) => return Ok(data.freeze()),
                Err(error @ ConnectionError::Damaged(_)) => {
                    if matches!(failed, ConnectionError::Damaged(_)) {
                        failed = error;
                    }
                }
                // Clients use the connection, too: it is for them to find out whether it is of use.
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Each copy has damage somewhere in the piece: page by page from any that has the page.
    pub(super) async fn read_by_pages(
        &self,
        placed: &ExtentEntry,
        piece: ExtentRange,
    ) -> Result<Buf, ConnectionError> {
        let numbers = placed.stores.borrow().clone();
        let in_sync = |it: &&Replica| it.sync_state.get() == SyncState::InSync;
        let replicas = numbers.iter().filter_map(|number| self.replica(*number));
        let copies: Vec<Copy<'_>> = (replicas.filter(in_sync))
            .filter_map(|replica| Some((replica, replica.connection()?)))
            .collect();
        let mut whole = Buf::zeroed(piece.len as usize);
        let end = piece.from + piece.len;
        let mut at = piece.from;
        while at < end {
            let len = (PAGE - at % PAGE).min(end - at);
            let data = self.read_whole(&placed.object, &copies, at, len).await?;
            let from = (at - piece.from) as usize;
            whole[from..from + data.len()].copy_from_slice(&data);
            at += len;
        }
        Ok(whole)
    }
}

/// Neighbouring lost pages as one, with the reason of the first.
fn in_rows(pages: Vec<(u64, Lost)>) -> Vec<(u64, u64, Lost)> {
    let mut rows: Vec<(u64, u64, Lost)> = Vec::new();
    for (at, lost) in pages {
        match rows.last_mut() {
            Some((from, len, _)) if *from + *len == at => *len += PAGE,
            _ => rows.push((at, PAGE, lost)),
        }
    }
    rows
}

/// With zeroes behind it, up to `len`, if that is wanted.
fn padded(data: View, len: u64, wanted: bool) -> View {
    if !wanted || data.len() as u64 == len {
        return data;
    }
    let mut whole = Buf::zeroed(len as usize);
    whole[..data.len()].copy_from_slice(&data);
    whole.freeze()
}
