//! What leaves stores that are being drained, or that left the cluster, while the volume is in use.
//!
//! ```text
//! extents   another store gets a copy -> the map has it there -> the drained one's goes, extent by extent
//! nodes     written anew elsewhere, with the next commit
//! bitmap    replicas of the dirty bits: others are chosen, and have all bits, before a drained one is none any more
//! older images   their maps are written anew, with what they say in other places (`relocate`)
//! record    lists the store no more, when nothing of the above is there
//! ```
//!
//! Nothing of it is remembered: how far it came is what the maps and the record say. So after a crash it goes on. The same task
//! gives older images copies that they lack, now and then.
//!
//! Always true:
//! 1. The record lists a store until the meta store has no root of the volume that names it.
//! 2. Nothing goes to a store from before it is taken from the record until it is known whether it was, and what is deleted
//!    there is; what was on its way there before keeps it in the record.
//! 3. An extent has as many copies as it should have elsewhere before the one on a drained store goes.

use std::collections::BTreeSet;
use std::rc::Rc;

use base::Nanos;
use env::sync::join_all;

use super::bitmap_io::BitmapIo;
use super::commit::MapIo;
use super::elsewhere::Wanted;
use super::error::VolumeError;
use super::extent::ExtentEntry;
use super::image_io::ImageIo;
use super::layer_copies::LayerCopies;
use super::node_io::NodeIo;
use super::record_io::RecordIo;
use super::relocate::Relocate;
use super::state::Core;
use crate::names::StoreNumber;

/// Between two looks at what is still there; more where the last ones changed nothing.
const LOOK: Nanos = Nanos::millis(500);

const LONGEST: Nanos = Nanos::secs(10);

/// Between two looks whether older images lack copies; more where nothing could be done about it.
const SELDOM: Nanos = Nanos::secs(5);

const MOST_SELDOM: Nanos = Nanos::secs(60);

/// What a volume still has on a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Left {
    /// Extents, and what older images have of them.
    pub extents: u64,
    /// Nodes of its maps.
    pub nodes: u64,
}

/// Empties stores that are to be empty.
#[derive(Clone, Copy)]
pub(super) struct Drain<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Drain<'a> {
    pub fn of(core: &'a Rc<Core>) -> Drain<'a> {
        Drain { core }
    }

    /// Empties drained stores, and gives older images the copies they lack, as long as the volume is open.
    pub(super) async fn keep_drained(self) {
        let mut pause = LOOK;
        let (mut seldom, mut look_at) = (SELDOM, env::now());
        while self.core.usable().is_ok() {
            if !self.core.replication.borrow().record.is_indeterminate() {
                // What was to be taken from the record is, or never will be.
                self.core.replicas.cordoned.borrow_mut().clear();
            }
            if env::now() >= look_at {
                seldom = match self.try_to_rereplicate_older().await {
                    true => SELDOM,
                    false => MOST_SELDOM.min(Nanos(seldom.0 * 2)),
                };
                look_at = env::now() + seldom;
            }
            if self.to_empty().is_empty() {
                let _ = env::timeout(self.core.settings.tick, self.core.life.changed.wait()).await;
                env::sleep(Nanos::millis(10)).await;
                pause = LOOK;
                continue;
            }
            match self.empty().await {
                Ok(true) => pause = LOOK,
                Ok(false) => pause = LONGEST.min(Nanos(pause.0 * 2)),
                Err(error) => {
                    tracing::debug!(volume = %self.core.id, %error, "a drained store is not empty yet");
                    pause = LONGEST.min(Nanos(pause.0 * 2));
                }
            }
            if !self.to_empty().is_empty() {
                env::sleep(pause).await;
            }
        }
    }

    /// Gives older images copies that they lack. Do they lack none, or have they got some?
    async fn try_to_rereplicate_older(self) -> bool {
        if !Relocate::of(self.core).older_lack_copies() {
            return true;
        }
        match Relocate::of(self.core).rereplicate_older().await {
            Ok(some) => some,
            Err(error) => {
                tracing::debug!(volume = %self.core.id, %error, "older images lack copies");
                false
            }
        }
    }

    /// Drained stores that the record lists, or says to be out.
    fn to_empty(self) -> BTreeSet<StoreNumber> {
        let record = &self.core.volume_record();
        let listed = record.stores.iter().flatten();
        let gone = record
            .out
            .keys()
            .filter(|it| self.core.replicas.has_left(**it));
        let all = listed
            .filter(|it| self.core.replicas.is_drained(**it))
            .chain(gone);
        all.copied().collect()
    }

    /// Goes through all there is once. Did anything change?
    async fn empty(self) -> Result<bool, VolumeError> {
        let before = self.left();
        let mut from = 0;
        while let Some(index) = self.next_drained(from) {
            self.core.usable()?;
            match self.move_extent(index).await {
                Err(error) if error.passes() => {
                    tracing::debug!(volume = %self.core.id, index, %error, "it stays where it is for now");
                }
                other => other?,
            }
            from = index + 1;
        }
        BitmapIo::of(self.core).choose_bitmap_replicas().await?;
        let stores = self.to_empty();
        if NodeIo::of(self.core).renew_nodes_on(&stores).await? {
            MapIo::of(self.core).commit().await?;
        }
        let is_left = |store: &StoreNumber| {
            let has = |it: &Rc<ExtentEntry>| {
                it.layers()
                    .any(|it| it.copies.borrow().stores.contains(store))
            };
            self.core.extents.all.borrow().values().any(has)
                || !self.core.maps.nodes.on(*store).is_empty()
        };
        let clean: BTreeSet<_> = stores.into_iter().filter(|it| !is_left(it)).collect();
        let is_bitmap_replica = |store: &StoreNumber| self.core.is_bitmap_replica(*store);
        if clean.is_empty() || clean.iter().any(is_bitmap_replica) {
            return Ok(self.left() < before);
        }
        // What the map has, the meta store has then.
        MapIo::of(self.core).commit().await?;
        self.unlist(clean).await?;
        Ok(self.left() < before)
    }

    /// Stores that are to be emptied, and what there is on them.
    fn left(self) -> (usize, u64) {
        let stores = self.to_empty();
        let of = stores.iter().map(|store| self.left_on(*store));
        (stores.len(), of.map(|it| it.extents + it.nodes).sum())
    }

    pub(super) fn left_on(self, store: StoreNumber) -> Left {
        let extents = self.core.extents.all.borrow();
        let has = |it: &&Rc<ExtentEntry>| {
            it.layers()
                .any(|layer| layer.copies.borrow().stores.contains(&store))
        };
        let head = extents.values().filter(has).count() as u64;
        Left {
            extents: head + self.core.maps.older.count_on(store) as u64,
            nodes: (self.core.maps.nodes.on(store).len()
                + self.core.maps.older.nodes().on(store).len()) as u64,
        }
    }

    /// An extent from there on that has a copy on a drained store, and that may be moved now.
    fn next_drained(self, from: u32) -> Option<u32> {
        let extents = self.core.extents.all.borrow();
        let mut all = extents.range(from..).filter(|(index, placed)| {
            let mut stores = placed.layers().flat_map(|it| it.stores());
            let on = stores.any(|one| self.core.replicas.is_drained(one));
            on && !placed.is_unacknowledged() && !self.core.is_unreconciled(**index)
        });
        all.next().map(|(index, _)| *index)
    }

    pub(super) async fn move_extent(self, index: u32) -> Result<(), VolumeError> {
        let Some((_held, top)) = self.core.lock_extent(index).await else {
            return Ok(());
        };
        for layer in top.layers().filter(|layer| !layer.is_unacknowledged()) {
            let drained: Vec<StoreNumber> = {
                let stores = &mut layer.copies.borrow_mut().stores;
                // The map has room for the first ones.
                stores.sort_by_key(|one| self.core.replicas.is_drained(*one));
                stores
                    .iter()
                    .copied()
                    .filter(|one| self.core.replicas.is_drained(*one))
                    .collect()
            };
            for number in drained {
                if !LayerCopies::of(self.core).has_enough(&layer) {
                    LayerCopies::of(self.core)
                        .add_copy(index, &top, &layer)
                        .await?;
                }
                if !layer.copies.borrow().stores.contains(&number) {
                    // Another one took its place.
                    continue;
                }
                if !LayerCopies::of(self.core).has_enough(&layer) {
                    break;
                }
                LayerCopies::of(self.core)
                    .give_away(index, &top, &layer, number)
                    .await?;
            }
        }
        Ok(())
    }

    /// Takes stores that have nothing of the head from the record, if no older image has anything there either.
    async fn unlist(self, stores: BTreeSet<StoreNumber>) -> Result<(), VolumeError> {
        let stores = Relocate::of(self.core)
            .relocate(&Wanted::Without(stores))
            .await?;
        if stores.is_empty() {
            return Ok(());
        }
        if stores
            .iter()
            .any(|one| self.core.maps.older.count_on(*one) > 0)
        {
            // Of images that are there no more.
            ImageIo::of(self.core).read_older_images().await?;
        }
        RecordIo::of(self.core).learn_who_left(&stores).await?;
        // Bits and nodes that go to such a store where no other is left are there, or not on their way.
        let bits = self.core.locks.bits.acquire(1).await;
        let map = self.core.maps.commits.one.acquire(1).await;
        // Uses that began before this are seen, and none begins from here on.
        self.core.replicas.cordoned.borrow_mut().extend(&stores);
        let is_used = |store: &StoreNumber| {
            let left = self.left_on(*store);
            let pending = self
                .core
                .replicas
                .pending_placements
                .borrow()
                .contains_key(store);
            pending || left.extents + left.nodes > 0 || self.core.is_bitmap_replica(*store)
        };
        if stores.iter().any(is_used) {
            self.core.replicas.cordoned.borrow_mut().clear();
            return Ok(());
        }
        RecordIo::of(self.core)
            .change_record(|record| {
                let mut changes = false;
                for store in &stores {
                    changes |= record.stores.as_mut().is_some_and(|it| it.remove(store));
                    // A store that has left is not resynced.
                    changes |=
                        self.core.replicas.has_left(*store) && record.out.remove(store).is_some();
                }
                Ok(changes)
            })
            .await?;
        // A slow store keeps no task waiting that wants to note a bit.
        drop((bits, map));
        join_all(
            stores
                .iter()
                .map(|one| BitmapIo::of(self.core).delete_bits(*one)),
        )
        .await;
        self.core.replicas.cordoned.borrow_mut().clear();
        let numbers: Vec<String> = stores.iter().map(ToString::to_string).collect();
        let stores = numbers.join(", ");
        tracing::info!(volume = %self.core.id, stores, "nothing is there any more");
        RecordIo::of(self.core).renew().await
    }
}
