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
use store::Change;

use super::membership::SyncState;
use super::relocate::Wanted;
use super::rereplicate::Leaving;
use super::{Core, ExtentEntry, Volume, VolumeError, dirty};
use crate::names::{EXTENT, StoreNumber};
use crate::replica::connect::ConnectionError;

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

/// Stores were chosen for something that no table has yet: they stay in the record.
pub(super) struct PendingPlacement<'a>(&'a Core, Vec<StoreNumber>);

impl Drop for PendingPlacement<'_> {
    fn drop(&mut self) {
        let mut pending_placements = self.0.pending_placements.borrow_mut();
        for store in &self.1 {
            let count = pending_placements
                .get_mut(store)
                .expect("counted when it was chosen");
            *count -= 1;
            if *count == 0 {
                pending_placements.remove(store);
            }
        }
    }
}

impl Volume {
    /// From now on nothing new goes to these stores, and what is there leaves.
    pub fn drain(&self, stores: BTreeSet<StoreNumber>) {
        let core = &self.core;
        if *core.drained.borrow() != stores {
            *core.drained.borrow_mut() = stores;
            core.changed.notify_all();
        }
    }

    /// What it has on a store now.
    pub fn left_on(&self, store: StoreNumber) -> Left {
        self.core.left_on(store)
    }
}

impl Core {
    /// Is it being drained, or is it no store of the cluster any more?
    pub(super) fn is_drained(&self, number: StoreNumber) -> bool {
        let either = [&self.drained, &self.cordoned, &self.gone];
        let is_in = either.iter().any(|it| it.borrow().contains(&number));
        is_in || self.replica(number).is_none()
    }

    /// Is it no store of the cluster any more, as far as is known here?
    pub(super) fn has_left(&self, number: StoreNumber) -> bool {
        self.replica(number).is_none() || self.gone.borrow().contains(&number)
    }

    /// Does nothing go there, not even where no other store is left?
    pub(super) fn is_cordoned(&self, number: StoreNumber) -> bool {
        let either = [&self.cordoned, &self.gone];
        either.iter().any(|it| it.borrow().contains(&number))
    }

    /// Something is on its way to these stores, until the answer is dropped.
    pub(super) fn pending_placement(&self, stores: &[StoreNumber]) -> PendingPlacement<'_> {
        let mut pending_placements = self.pending_placements.borrow_mut();
        for store in stores {
            *pending_placements.entry(*store).or_default() += 1;
        }
        PendingPlacement(self, stores.to_vec())
    }

    fn left_on(&self, store: StoreNumber) -> Left {
        let extents = self.extents.borrow();
        let has = |it: &&Rc<ExtentEntry>| {
            it.layers()
                .any(|layer| layer.stores.borrow().contains(&store))
        };
        let head = extents.values().filter(has).count() as u64;
        Left {
            extents: head + self.older_images.count_on(store) as u64,
            nodes: (self.nodes.on(store).len() + self.older_images.nodes().on(store).len()) as u64,
        }
    }

    /// Empties drained stores, and gives older images the copies they lack, as long as the volume is open.
    pub(super) async fn keep_drained(self: Rc<Self>) {
        let mut pause = LOOK;
        let (mut seldom, mut look_at) = (SELDOM, env::now());
        while self.usable().is_ok() {
            if !self.record_indeterminate.get() {
                // What was to be taken from the record is, or never will be.
                self.cordoned.borrow_mut().clear();
            }
            if env::now() >= look_at {
                seldom = match self.try_to_rereplicate_older().await {
                    true => SELDOM,
                    false => MOST_SELDOM.min(Nanos(seldom.0 * 2)),
                };
                look_at = env::now() + seldom;
            }
            if self.to_empty().is_empty() {
                let _ = env::timeout(self.settings.tick, self.changed.wait()).await;
                env::sleep(Nanos::millis(10)).await;
                pause = LOOK;
                continue;
            }
            match self.empty().await {
                Ok(true) => pause = LOOK,
                Ok(false) => pause = LONGEST.min(Nanos(pause.0 * 2)),
                Err(error) => {
                    tracing::debug!(volume = %self.id, %error, "a drained store is not empty yet");
                    pause = LONGEST.min(Nanos(pause.0 * 2));
                }
            }
            if !self.to_empty().is_empty() {
                env::sleep(pause).await;
            }
        }
    }

    /// Gives older images copies that they lack. Do they lack none, or have they got some?
    async fn try_to_rereplicate_older(self: &Rc<Self>) -> bool {
        if !self.older_lack_copies() {
            return true;
        }
        match self.rereplicate_older().await {
            Ok(some) => some,
            Err(error) => {
                tracing::debug!(volume = %self.id, %error, "older images lack copies");
                false
            }
        }
    }

    /// Drained stores that the record lists, or says to be out.
    fn to_empty(&self) -> BTreeSet<StoreNumber> {
        let record = &self.record.borrow().0;
        let listed = record.stores.iter().flatten();
        let gone = record.out.keys().filter(|it| self.has_left(**it));
        let all = listed.filter(|it| self.is_drained(**it)).chain(gone);
        all.copied().collect()
    }

    /// Goes through all there is once. Did anything change?
    async fn empty(self: &Rc<Self>) -> Result<bool, VolumeError> {
        let before = self.left();
        let mut from = 0;
        while let Some(index) = self.next_drained(from) {
            self.usable()?;
            match self.move_extent(index).await {
                Err(error) if error.passes() => {
                    tracing::debug!(volume = %self.id, index, %error, "it stays where it is for now");
                }
                other => other?,
            }
            from = index + 1;
        }
        self.choose_bitmap_replicas().await?;
        let stores = self.to_empty();
        if self.renew_nodes_on(&stores).await? {
            self.commit().await?;
        }
        let is_left = |store: &StoreNumber| {
            let has =
                |it: &Rc<ExtentEntry>| it.layers().any(|it| it.stores.borrow().contains(store));
            self.extents.borrow().values().any(has) || !self.nodes.on(*store).is_empty()
        };
        let clean: BTreeSet<_> = stores.into_iter().filter(|it| !is_left(it)).collect();
        let is_bitmap_replica = |store: &StoreNumber| self.dirty.is_bitmap_replica(*store);
        if clean.is_empty() || clean.iter().any(is_bitmap_replica) {
            return Ok(self.left() < before);
        }
        // What the map has, the meta store has then.
        self.commit().await?;
        self.unlist(clean).await?;
        Ok(self.left() < before)
    }

    /// Stores that are to be emptied, and what there is on them.
    fn left(&self) -> (usize, u64) {
        let stores = self.to_empty();
        let of = stores.iter().map(|store| self.left_on(*store));
        (stores.len(), of.map(|it| it.extents + it.nodes).sum())
    }

    /// An extent from there on that has a copy on a drained store, and that may be moved now.
    fn next_drained(&self, from: u32) -> Option<u32> {
        let extents = self.extents.borrow();
        let mut all = extents.range(from..).filter(|(index, placed)| {
            let mut stores = placed.layers().flat_map(|it| it.stores.borrow().clone());
            let on = stores.any(|one| self.is_drained(one));
            on && !placed.unacknowledged.get() && !self.is_unreconciled(**index)
        });
        all.next().map(|(index, _)| *index)
    }

    pub(super) async fn move_extent(&self, index: u32) -> Result<(), VolumeError> {
        let start = u64::from(index) * EXTENT;
        let _held = self.ranges.take(start..start + EXTENT, true).await;
        let Some(top) = self.placed(index).filter(|_| !self.is_unreconciled(index)) else {
            return Ok(());
        };
        for layer in top.layers().filter(|layer| !layer.unacknowledged.get()) {
            let drained: Vec<StoreNumber> = {
                let mut stores = layer.stores.borrow_mut();
                // The map has room for the first ones.
                stores.sort_by_key(|one| self.is_drained(*one));
                stores
                    .iter()
                    .copied()
                    .filter(|one| self.is_drained(*one))
                    .collect()
            };
            for number in drained {
                if !self.has_enough(&layer) {
                    self.add_copy(index, &top, &layer).await?;
                }
                if !layer.stores.borrow().contains(&number) {
                    // Another one took its place.
                    continue;
                }
                if !self.has_enough(&layer) {
                    break;
                }
                self.give_away(index, &top, &layer, number).await?;
            }
        }
        Ok(())
    }

    /// Are there as many copies in sync elsewhere as there should be?
    fn has_enough(&self, layer: &ExtentEntry) -> bool {
        let copies = usize::from(self.record.borrow().0.copies);
        let stores = layer.stores.borrow();
        let replicas = stores.iter().filter(|one| !self.is_drained(**one));
        let replicas = replicas.filter_map(|one| self.replica(*one));
        replicas
            .filter(|it| it.sync_state.get() == SyncState::InSync)
            .count()
            >= copies
    }

    /// Takes the copy on one store from what the map has of a layer. The extent's range is the caller's alone, until a root
    /// without the copy is in the meta store. A reader of the map must not count a copy that changes do not reach.
    async fn give_away(
        &self,
        index: u32,
        top: &Rc<ExtentEntry>,
        layer: &Rc<ExtentEntry>,
        number: StoreNumber,
    ) -> Result<(), VolumeError> {
        let _leaving = self.replica(number).map(Leaving::of);
        layer.stores.borrow_mut().retain(|one| *one != number);
        let entered = match self.lower_floor().await {
            Ok(()) if !self.has_enough(layer) => Ok(false),
            Ok(()) => self.enter(index, top).await.map(|()| true),
            Err(error) => Err(error),
        };
        match entered {
            Ok(true) => {}
            Ok(false) | Err(_) => {
                layer.stores.borrow_mut().push(number);
                return entered.map(drop);
            }
        }
        self.commit_surely().await
    }

    /// One store takes another's place in a layer of an extent, if `still` holds when the map says so: where there are as many
    /// copies as a map has room for, the other one must not be freed while it counts. Did it? The extent's range is the
    /// caller's alone.
    pub(super) async fn take_place(
        &self,
        index: u32,
        top: &Rc<ExtentEntry>,
        layer: &Rc<ExtentEntry>,
        (new, gone): (StoreNumber, StoreNumber),
        still: impl Fn() -> bool,
    ) -> Result<bool, VolumeError> {
        let _leaving = self.replica(gone).map(Leaving::of);
        let before = layer.stores.borrow().clone();
        layer.uncommitted.borrow_mut().push(new);
        {
            let mut stores = layer.stores.borrow_mut();
            stores.retain(|one| *one != gone);
            stores.push(new);
        }
        let entered = match self.lower_floor().await {
            Ok(()) => self.enter_if(index, top, still).await,
            Err(error) => Err(error),
        };
        match entered {
            Ok(true) => {}
            not => {
                *layer.stores.borrow_mut() = before;
                layer.uncommitted.borrow_mut().retain(|one| *one != new);
                return match not {
                    Err(error) if !error.passes() => Err(error),
                    _ => Ok(false),
                };
            }
        }
        self.added(layer, new);
        self.commit_surely().await.map(|()| true)
    }

    /// Takes stores that have nothing of the head from the record, if no older image has anything there either.
    async fn unlist(self: &Rc<Self>, stores: BTreeSet<StoreNumber>) -> Result<(), VolumeError> {
        let stores = self.relocate(&Wanted::Without(stores)).await?;
        if stores.is_empty() {
            return Ok(());
        }
        if stores
            .iter()
            .any(|one| self.older_images.count_on(*one) > 0)
        {
            // Of images that are there no more.
            self.read_older_images().await?;
        }
        self.learn_who_left(&stores).await?;
        // Bits and nodes that go to such a store where no other is left are there, or not on their way.
        let bits = self.dirty.alone().await;
        let map = self.committing.acquire(1).await;
        // Uses that began before this are seen, and none begins from here on.
        self.cordoned.borrow_mut().extend(&stores);
        let is_used = |store: &StoreNumber| {
            let left = self.left_on(*store);
            let pending = self.pending_placements.borrow().contains_key(store);
            pending || left.extents + left.nodes > 0 || self.dirty.is_bitmap_replica(*store)
        };
        if stores.iter().any(is_used) {
            self.cordoned.borrow_mut().clear();
            return Ok(());
        }
        self.change_record(|record| {
            let mut changes = false;
            for store in &stores {
                changes |= record.stores.as_mut().is_some_and(|it| it.remove(store));
                // A store that has left is not resynced.
                changes |= self.has_left(*store) && record.out.remove(store).is_some();
            }
            Ok(changes)
        })
        .await?;
        // A slow store keeps no task waiting that wants to note a bit.
        drop((bits, map));
        join_all(stores.iter().map(|one| self.delete_bits(*one))).await;
        self.cordoned.borrow_mut().clear();
        let numbers: Vec<String> = stores.iter().map(ToString::to_string).collect();
        let stores = numbers.join(", ");
        tracing::info!(volume = %self.id, stores, "nothing is there any more");
        self.renew().await
    }

    /// Deletes the bits of a store that has none any more, or that are of no account: the bitmap replicas have them
    /// all.
    pub(super) async fn delete_bits(&self, store: StoreNumber) {
        let there = self
            .replica(store)
            .and_then(|it| Some((it, it.connection()?)));
        let Some((replica, connection)) = there else {
            return;
        };
        let object = dirty::object(self.id);
        match self
            .within(connection.delete(&object, Change::default()))
            .await
        {
            Ok(()) | Err(ConnectionError::Absent(_)) => {}
            Err(ConnectionError::Fenced { why, .. }) => drop(self.fence(why)),
            Err(error) => {
                tracing::debug!(volume = %self.id, store = %self.label(store), %error, "no bits were deleted");
                if error.ends_connection() {
                    // It may come later: whatever is asked of the store from here on is asked under a greater token.
                    replica.lose(&connection, error.is_indeterminate());
                }
            }
        }
    }
}
