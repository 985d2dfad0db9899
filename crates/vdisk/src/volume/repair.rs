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

use std::collections::BTreeSet;
use std::rc::Rc;

use base::Bytes;
use replication::bitmap;
use store::{Change, Damage};

use super::bitmap_io::BitmapIo;
use super::copies::{CopyError, PAGE, stamped};
use super::dirty;
use super::error::VolumeError;
use super::extent::ExtentEntry;
use super::image_io::ImageIo;
#[cfg(test)]
use super::life::Mutation;
use super::membership::Membership;
use super::node_io::NodeIo;
use super::pieces::ExtentRange;
use super::record_io::RecordIo;
use super::repairs::{Repairs, Unrepaired};
use super::replica::{Replica, SyncState};
use super::rewrite::{Lost, Rewrite, Rewritten, Stretch};
use super::state::Core;
use crate::map::NodeRef;
use crate::names::{EXTENT, ExtentName, NodeName, StoreNumber};
use crate::replica::connect::ConnectionError;

/// Ticks between two looks at what stores found damaged.
const LOOK_EVERY: u64 = 10;

/// What of a volume an object is.
enum Part {
    /// An extent of the head, or what lies below it.
    Head(u32, Rc<ExtentEntry>),
    /// Of older images alone.
    Older(Rc<ExtentEntry>),
    Node(NodeRef),
    Bits,
}

/// Repairs what stores find damaged.
#[derive(Clone, Copy)]
pub(super) struct Repair<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Repair<'a> {
    pub fn of(core: &'a Rc<Core>) -> Repair<'a> {
        Repair { core }
    }

    /// Repairs what stores find damaged, as long as the volume is open.
    pub(super) async fn keep_repaired(self) {
        let mut turn = 0_u64;
        while self.core.usable().is_ok() {
            if turn.is_multiple_of(LOOK_EVERY) {
                self.repair_damage().await;
            }
            turn += 1;
            env::sleep(self.core.settings.tick).await;
        }
    }

    pub(super) async fn repair_damage(self) -> Repairs {
        let _one = self.core.repairing.one.acquire(1).await;
        let (mut repairs, mut looked) = (Repairs::default(), false);
        let in_sync = |it: &&Replica| it.sync_state() == SyncState::InSync;
        for replica in self.core.replicas.values().filter(in_sync) {
            match self.damage_of(replica).await {
                Ok(found) => {
                    if !found.is_empty()
                        && !self.core.maps.older.is_known()
                        && !std::mem::replace(&mut looked, true)
                        && let Err(error) = ImageIo::of(self.core).read_older_images().await
                    {
                        tracing::debug!(volume = %self.core.id, %error, "what older images have is not known");
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
            tracing::info!(volume = %self.core.id, bytes = %repairs.repaired, "damage was repaired from other copies");
        }
        self.remember(&repairs);
        repairs
    }

    /// What is left is known from here on; what is lost is reported once.
    fn remember(self, repairs: &Repairs) {
        let before = self.core.repairing.last.replace(repairs.clone());
        if repairs.beyond() > 0 && repairs.count != before.count {
            let (all, lost) = (repairs.count, repairs.lost);
            tracing::error!(volume = %self.core.id, all, lost, "more damage than is named one by one");
        }
        let before: BTreeSet<&Damage> = before.left.iter().map(|it| &it.damage).collect();
        for left in repairs.left.iter().filter(|it| it.lost) {
            if !before.contains(&left.damage) {
                let Unrepaired { damage, why, .. } = left;
                tracing::error!(
                    volume = %self.core.id, object = %damage.object, offset = damage.offset, len = damage.len, why,
                    "damage that no in-sync copy can repair"
                );
            }
        }
    }

    /// All that a store knows to be damaged and that may be the volume's.
    async fn damage_of(self, replica: &Replica) -> Result<Vec<Damage>, ConnectionError> {
        let gone = || ConnectionError::Gone("there is no link to it".to_owned());
        let connection = replica.connection().ok_or_else(gone)?;
        let bits = dirty::object(self.core.id);
        let mut all = Vec::new();
        for prefix in ["v/", "m/", &bits] {
            match self.core.within(connection.damage(prefix)).await {
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
    fn part_of(self, store: StoreNumber, object: &str) -> Option<Part> {
        if object == dirty::object(self.core.id) {
            return Some(Part::Bits);
        }
        if let Some(name) = NodeName::parse(object) {
            let all = [
                self.core.maps.nodes.get(&name),
                self.core.maps.older.nodes().get(&name),
            ];
            let its = |node: &NodeRef| node.stores.contains(store);
            return all.into_iter().flatten().find(its).map(Part::Node);
        }
        let name = ExtentName::parse(object)?;
        let top = self.core.extents.placed(name.index);
        let mut layers = top.iter().flat_map(ExtentEntry::layers);
        if let Some(layer) = layers.find(|layer| layer.name == name) {
            let has = layer.copies.borrow().stores.contains(&store);
            return has.then_some(Part::Head(name.index, layer));
        }
        let stores = self.core.maps.older.stores_of(&name)?;
        let has = stores.contains(&store);
        has.then(|| Part::Older(ExtentEntry::new(name, stores, false)))
    }

    async fn repair_one(self, replica: &Replica, damage: Damage, repairs: &mut Repairs) {
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
                self.core
                    .count(|counters| counters.repaired_bytes += done.bytes);
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

    /// A copy could not be read there: what another one has is written over it, in a while.
    pub(super) fn repair_later(
        self,
        placed: &Rc<ExtentEntry>,
        store: StoreNumber,
        piece: ExtentRange,
    ) {
        let (core, placed) = (Rc::clone(self.core), Rc::clone(placed));
        let end = (piece.from + piece.len).next_multiple_of(PAGE).min(EXTENT);
        let stretch = Stretch {
            range: piece.from / PAGE * PAGE..end,
            to_its_end: false,
        };
        env::spawn(async move {
            let Some(replica) = core.replicas.needed(&[store]).pop() else {
                return;
            };
            match Repair::of(&core)
                .repair_head(&placed, replica, piece.index, stretch)
                .await
            {
                Ok(done) if done.bytes > 0 => core.count(|counters| {
                    counters.read_repairs += 1;
                    counters.repaired_bytes += done.bytes;
                }),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(volume = %core.id, store = %core.replicas.label(store), %error, "a damaged copy is not repaired yet");
                }
            }
        });
    }

    /// One layer of an extent of the head, with its range alone.
    async fn repair_head(
        self,
        placed: &ExtentEntry,
        replica: &Replica,
        index: u32,
        stretch: Stretch,
    ) -> Result<Rewritten, VolumeError> {
        let start = u64::from(index) * EXTENT;
        let bytes = start + stretch.range.start..start + stretch.range.end;
        #[cfg(test)]
        let loose = self.core.mutated(Mutation::LooseRepair);
        #[cfg(not(test))]
        let loose = false;
        let _held = match loose {
            true => None,
            false => Some(self.core.locks.ranges.take(bytes, true).await),
        };
        self.core.usable()?;
        let numbers = placed.stores();
        let layers = self.core.extents.placed(index).into_iter();
        let mut layers = layers.flat_map(|placed| placed.layers());
        let there = layers.any(|layer| layer.name == placed.name);
        let counts = there && numbers.contains(&replica.info.number) && replica.is_needed();
        if !counts || self.core.is_unreconciled(index) {
            return Ok(Rewritten::default());
        }
        let under_way = self.core.begin();
        let change = match self.core.is_shared(placed) {
            true => Change::FUA,
            false => stamped(under_way.stamp(), true),
        };
        let done = Rewrite::of(self.core)
            .copy_over(placed, replica, change, stretch)
            .await;
        self.judged(index, replica, done).await
    }

    /// What older images alone have. It never changes; it may be deleted meanwhile.
    async fn repair_older(
        self,
        placed: &ExtentEntry,
        replica: &Replica,
        stretch: Stretch,
    ) -> Result<Rewritten, VolumeError> {
        let index = placed.name.index;
        if !self.core.is_shared(placed) && self.core.extents.is_heads(placed) {
            // It became the head's meanwhile: the next look finds it there.
            return Ok(Rewritten::default());
        }
        let done = Rewrite::of(self.core)
            .copy_over(placed, replica, Change::FUA, stretch)
            .await;
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
        self,
        node: &NodeRef,
        replica: &Replica,
        bytes: u64,
    ) -> Result<Rewritten, VolumeError> {
        let failed = |why: String| VolumeError::Map {
            volume: self.core.id,
            why,
        };
        let read = NodeIo::of(self.core).read_node(node).await;
        let (Some(view), Some(connection)) = (
            read.map_err(|it| failed(it.to_string()))?,
            replica.connection(),
        ) else {
            return Err(failed(format!("no copy of {} can be read", node.name())));
        };
        let name = node.name().to_string();
        let write = self
            .core
            .within(connection.write(&name, 0, view, Change::FUA));
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
        self,
        replica: &Replica,
        damage: &Damage,
    ) -> Result<Rewritten, VolumeError> {
        let number = replica.info.number;
        if !self.core.is_bitmap_replica(number) {
            let _one = self.core.locks.bits.acquire(1).await;
            if !self.core.is_bitmap_replica(number) {
                BitmapIo::of(self.core).delete_bits(number).await;
            }
            return Ok(Rewritten::default());
        }
        let first = (damage.offset / bitmap::PAGE) as u32;
        let end = (damage.offset + damage.len).div_ceil(bitmap::PAGE) as u32;
        let pages: BTreeSet<u32> = (first..end).collect();
        let written = BitmapIo::of(self.core).rewrite_bits(number, pages).await;
        written.map_err(|error| self.core.no_copy(0, &error))?;
        Ok(Rewritten {
            bytes: damage.len,
            lost: Vec::new(),
        })
    }

    /// What stood in the way, in the words of a volume. No store leaves the in-sync set for it.
    async fn judged(
        self,
        index: u32,
        replica: &Replica,
        done: Result<Rewritten, CopyError>,
    ) -> Result<Rewritten, VolumeError> {
        match done {
            Ok(done) => Ok(done),
            Err(
                CopyError::From(ConnectionError::Fenced { why, .. })
                | CopyError::To(ConnectionError::Fenced { why, .. }),
            ) => Err(self.core.fence(why)),
            // Resync would delete what is good of the copy: it stays in sync, and the next look tries again.
            Err(CopyError::From(error)) => Err(self.core.no_copy(index, &error)),
            // There is nothing good of it, so resync may make it.
            Err(CopyError::To(error @ ConnectionError::Absent(_))) => {
                Membership::of(self.core)
                    .shrink_set(&[replica.info.number])
                    .await?;
                Err(self.core.no_copy(index, &error))
            }
            Err(CopyError::To(error)) => {
                let store = replica.info.number;
                tracing::warn!(volume = %self.core.id, store = %self.core.replicas.label(store), %error, "a damaged copy cannot be written anew");
                // A write that may still come is over before the range is free.
                RecordIo::of(self.core).renew().await?;
                Err(self.core.no_copy(index, &error))
            }
        }
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
