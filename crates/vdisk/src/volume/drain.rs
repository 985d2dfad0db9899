//! What leaves stores that are being drained, or that left the cluster, while the volume is in use.
//!
//! ```text
//! extents   another store gets a copy -> the map has it there -> the drained one's goes, extent by extent
//! nodes     written anew elsewhere, with the next commit
//! homes     of dirty bits: others are chosen, and have all bits, before a drained one is none any more
//! older images   what they have stays until they are deleted; with `Settings::rehomes` their maps are written anew (`rehome`)
//! record    lists the store no more, when nothing of the above is there
//! ```
//!
//! Nothing of it is remembered: how far it came is what the maps and the record say. So after a crash it goes on.
//!
//! Always true:
//! 1. The record lists a store until the meta store has no root of the volume that names it.
//! 2. Nothing goes to a store from before it is taken from the record until it is known whether it was.
//! 3. An extent has as many copies as it should have elsewhere before the one on a drained store goes.

use std::collections::BTreeSet;
use std::rc::Rc;

use base::Nanos;
use store::Change;

use super::even::Leaving;
use super::members::Standing;
use super::{Core, Placed, Volume, VolumeError, dirty};
use crate::names::{EXTENT, StoreNumber};

/// Between two looks at what is still there; more where the last ones changed nothing.
const LOOK: Nanos = Nanos::millis(500);
const LONGEST: Nanos = Nanos::secs(10);

/// What a volume still has on a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Left {
    /// Extents, and what older images have of them.
    pub extents: u64,
    /// Nodes of its maps.
    pub nodes: u64,
}

impl Volume {
    /// From now on nothing new goes to these stores, and what is there leaves.
    pub fn drain(&self, stores: BTreeSet<StoreNumber>) {
        let core = &self.core;
        if *core.drained.borrow() != stores {
            *core.drained.borrow_mut() = stores;
            core.news.notify_all();
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
        let either = [&self.drained, &self.unlisting];
        let is_in = either.iter().any(|it| it.borrow().contains(&number));
        is_in || self.member(number).is_none()
    }

    fn left_on(&self, store: StoreNumber) -> Left {
        let extents = self.extents.borrow();
        let has = |it: &&Rc<Placed>| {
            it.layers()
                .any(|layer| layer.stores.borrow().contains(&store))
        };
        let head = extents.values().filter(has).count() as u64;
        Left {
            extents: head + self.kept.count_on(store) as u64,
            nodes: (self.nodes.on(store).len() + self.kept.nodes().on(store).len()) as u64,
        }
    }

    /// Empties drained stores, as long as the volume is open.
    pub(super) async fn keep_drained(self: Rc<Self>) {
        let mut pause = LOOK;
        while self.usable().is_ok() {
            if self.to_empty().is_empty() {
                let _ = env::timeout(self.settings.tick, self.news.wait()).await;
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

    /// Drained stores that the record lists, or says to be out.
    fn to_empty(&self) -> BTreeSet<StoreNumber> {
        let record = &self.record.borrow().0;
        let listed = record.stores.iter().flatten();
        let gone = record.out.keys().filter(|it| self.member(**it).is_none());
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
        self.find_homes().await?;
        let stores = self.to_empty();
        if self.renew_nodes_on(&stores).await? {
            self.commit().await?;
        }
        let is_left = |store: &StoreNumber| {
            let has = |it: &Rc<Placed>| it.layers().any(|it| it.stores.borrow().contains(store));
            self.extents.borrow().values().any(has) || !self.nodes.on(*store).is_empty()
        };
        let clean: BTreeSet<_> = stores.into_iter().filter(|it| !is_left(it)).collect();
        let is_home = |store: &StoreNumber| self.dirty.is_home(*store);
        if clean.is_empty() || clean.iter().any(is_home) {
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
            on && !placed.young.get() && !self.is_doubtful(**index)
        });
        all.next().map(|(index, _)| *index)
    }

    async fn move_extent(&self, index: u32) -> Result<(), VolumeError> {
        let start = u64::from(index) * EXTENT;
        let _held = self.ranges.take(start..start + EXTENT, true).await;
        let Some(top) = self.placed(index).filter(|_| !self.is_doubtful(index)) else {
            return Ok(());
        };
        for layer in top.layers().filter(|layer| !layer.young.get()) {
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
                    self.fill_one(index, &top, &layer).await?;
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
    fn has_enough(&self, layer: &Placed) -> bool {
        let copies = usize::from(self.record.borrow().0.copies);
        let stores = layer.stores.borrow();
        let members = stores.iter().filter(|one| !self.is_drained(**one));
        let members = members.filter_map(|one| self.member(*one));
        members
            .filter(|it| it.standing.get() == Standing::In)
            .count()
            >= copies
    }

    /// Takes the copy on one store from what the map has of a layer. The extent's range is the caller's alone, until a root
    /// without the copy is in the meta store: whoever reads the map must not count one that changes do not reach.
    async fn give_away(
        &self,
        index: u32,
        top: &Rc<Placed>,
        layer: &Rc<Placed>,
        number: StoreNumber,
    ) -> Result<(), VolumeError> {
        let _leaving = self.member(number).map(Leaving::of);
        layer.stores.borrow_mut().retain(|one| *one != number);
        // Whoever is put out from here on, or was a moment ago, is counted without this copy.
        let counted = self.change_record(|record| {
            let weakest = self.weakest(&record.out, record.copies);
            let less = 0 < weakest && weakest < record.weakest;
            record.weakest = record.weakest.min(weakest);
            Ok(less)
        });
        let entered = match counted.await {
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
        #[cfg(test)]
        if self.planted(super::Bug::NoCommit) {
            return Ok(());
        }
        // Whether a commit that failed comes about nobody knows: until one does not fail, nobody changes the extent.
        let mut tries = 0;
        loop {
            match self.commit().await {
                Err(error) if error.passes() => self.pause(&mut tries).await,
                other => return other,
            }
        }
    }

    /// Takes stores that have nothing of the head from the record, if no older image has anything there either.
    async fn unlist(self: &Rc<Self>, stores: BTreeSet<StoreNumber>) -> Result<(), VolumeError> {
        let stores = self.rehome(stores).await?;
        if stores.is_empty() {
            return Ok(());
        }
        if stores.iter().any(|one| self.kept.count_on(*one) > 0) {
            // Of images that are there no more.
            self.read_kept().await?;
        }
        for member in stores.iter().filter_map(|one| self.member(*one)) {
            let Some(link) = member.link() else { continue };
            // Its bits are on other homes. What is left there is nobody's, and goes with the store.
            let object = dirty::object(self.id);
            let gone = self.within(link.delete(&object, Change::default())).await;
            if let Err(error) = gone {
                tracing::debug!(volume = %self.id, %error, "no bits were deleted");
            }
        }
        // Whoever began to use one before this is seen, and nobody begins from here on.
        self.unlisting.borrow_mut().extend(&stores);
        let is_used = |store: &StoreNumber| {
            let left = self.left_on(*store);
            left.extents + left.nodes > 0 || self.dirty.is_home(*store)
        };
        if stores.iter().any(is_used) {
            self.unlisting.borrow_mut().clear();
            return Ok(());
        }
        self.change_record(|record| {
            let mut changes = false;
            for store in &stores {
                changes |= record.stores.as_mut().is_some_and(|it| it.remove(store));
                // Of who is no member nobody will bring anything back.
                changes |= self.member(*store).is_none() && record.out.remove(store).is_some();
            }
            Ok(changes)
        })
        .await?;
        self.unlisting.borrow_mut().clear();
        tracing::info!(volume = %self.id, ?stores, "nothing is there any more");
        Ok(())
    }
}
