//! How what changed in the map becomes durable, beside reads and writes.
//!
//! ```text
//! record: next generation -> nodes written -> root into the head's record, by compare-and-swap -> what it replaced is freed
//! ```
//!
//! The data path changes the map in memory alone. What is allocated between two commits is found by its name after a
//! crash; so only what no name can say waits for a commit: that a store has a copy no more, that an extent is gone.
//!
//! Always true:
//! 1. What is named while a commit is under way is born in a later generation than the commit's.
//! 2. What a commit replaced is freed only when the meta store has its root, and then only what no other image has by the
//!    very record that the root was compared with.
//! 3. `redundancy_floor` counts a store that an extent got later only when a root with it is in the meta store.

use std::collections::BTreeSet;
use std::rc::Rc;

use base::Nanos;

use super::{Core, ExtentEntry, VolumeError};
use crate::image::tree::{self as image, Change, ImageRecord, ImageState, Versioned, image_key};
use crate::map::{Commit, Freed, Root};
use crate::meta::{Entry, Outcome};
use crate::names::{COPIES_MAX, Generation, StoreNumber};
use crate::record::VolumeRecord;
use crate::replica::connect::ConnectionError;

/// Of the map what the meta store does not have yet.
#[derive(Default)]
pub(super) struct Uncommitted {
    /// Copies that extents got.
    added: Vec<(Rc<ExtentEntry>, StoreNumber)>,
    /// Extents that are there no more.
    forgotten: BTreeSet<u32>,
}

impl Uncommitted {
    fn join(&mut self, other: Uncommitted) {
        self.added.extend(other.added);
        self.forgotten.extend(other.forgotten);
    }
}

impl Core {
    /// A store has a copy of a layer of an extent from now on, if `still` holds then; `redundancy_floor` counts it when the meta store has
    /// a root that says so. Is it so? The extent's range is the caller's alone.
    pub(super) async fn add(
        &self,
        index: u32,
        placed: &Rc<ExtentEntry>,
        layer: &Rc<ExtentEntry>,
        store: StoreNumber,
        still: impl Fn() -> bool,
    ) -> Result<bool, VolumeError> {
        layer.uncommitted.borrow_mut().push(store);
        {
            // Before one that is about to go: the map has no room for more.
            let mut stores = layer.stores.borrow_mut();
            let at = stores.len().min(COPIES_MAX - 1);
            stores.insert(at, store);
        }
        match self.enter_if(index, placed, still).await {
            Ok(true) => {}
            not => {
                layer.uncommitted.borrow_mut().retain(|one| *one != store);
                layer.stores.borrow_mut().retain(|one| *one != store);
                // Of a map that cannot be read more will be heard.
                return not.or(Ok(false));
            }
        }
        self.added(layer, store);
        Ok(true)
    }

    /// The map has a store that a layer got, and the meta store does not yet.
    pub(super) fn added(&self, layer: &Rc<ExtentEntry>, store: StoreNumber) {
        let added = (Rc::clone(layer), store);
        self.uncommitted.borrow_mut().added.push(added);
    }

    pub(super) fn forgotten(&self, index: u32) {
        self.uncommitted.borrow_mut().forgotten.insert(index);
    }

    /// Is it gone, and the meta store may not know?
    pub(super) fn is_forgotten(&self, index: u32) -> bool {
        let all = [&self.uncommitted, &self.writing, &self.written];
        all.iter().any(|it| it.borrow().forgotten.contains(&index))
    }

    /// Is anything gone that the meta store may still have?
    pub(super) fn is_anything_forgotten(&self) -> bool {
        let all = [&self.uncommitted, &self.writing, &self.written];
        all.iter().any(|it| !it.borrow().forgotten.is_empty())
    }

    /// Makes durable what changed in the map.
    pub(super) async fn commit(&self) -> Result<(), VolumeError> {
        let _one = self.committing.acquire(1).await;
        self.usable()?;
        if self.map.is_dirty() {
            self.write_map().await?;
        }
        let root = self.map.root();
        if self.head.borrow().record.root == root {
            return Ok(());
        }
        self.count_nodes().await?;
        let since = self.swap_root(root).await?;
        self.map.set_since(since);
        let committed = std::mem::take(&mut *self.written.borrow_mut());
        for (placed, store) in committed.added {
            let mut uncommitted = placed.uncommitted.borrow_mut();
            let at = uncommitted.iter().position(|one| *one == store);
            uncommitted.swap_remove(at.expect("noted when it was added"));
        }
        self.count(|counters| counters.commits += 1);
        let replaced = std::mem::take(&mut *self.deferred_frees.borrow_mut());
        self.nodes.remove(&replaced.nodes);
        self.free(replaced.later_than(since)).await
    }

    /// Commits until that does not fail in passing: the outcome of a failed commit is indeterminate. The caller holds the range
    /// of an extent that lost a copy: no write may change it before the meta store has a map without that copy.
    pub(super) async fn commit_surely(&self) -> Result<(), VolumeError> {
        #[cfg(test)]
        if self.mutated(super::Mutation::NoCommit) {
            return Ok(());
        }
        let mut tries = 0;
        loop {
            match self.commit().await {
                Err(error) if error.passes() => self.pause(&mut tries).await,
                other => return other,
            }
        }
    }

    async fn write_map(&self) -> Result<(), VolumeError> {
        self.change_record(|_| Ok(true)).await?;
        // One step with the change of the record: whatever is named from here on is born in the new generation.
        let generation = Generation(self.generation().0 - 1);
        let begun = self.map.begin(generation);
        let begun = begun.map_err(|error| self.map_error(&error))?;
        let taken = std::mem::take(&mut *self.uncommitted.borrow_mut());
        self.writing.borrow_mut().join(taken);
        let written = begun.write().await;
        let taken = std::mem::take(&mut *self.writing.borrow_mut());
        let Commit {
            written,
            places,
            replaced,
            ..
        } = match written {
            Ok(commit) => commit,
            Err(error) => {
                self.uncommitted.borrow_mut().join(taken);
                return Err(self.map_error(&error));
            }
        };
        self.written.borrow_mut().join(taken);
        self.nodes.add(written.into_iter().zip(places));
        self.deferred_frees.borrow_mut().join(replaced);
        Ok(())
    }

    /// Before a root names them: the node that opens the volume must know how few copies a map node may have.
    async fn count_nodes(&self) -> Result<(), VolumeError> {
        let out = self.record.borrow().0.out.clone();
        if self.nodes.redundancy_floor(&out) == Some(0) {
            self.renew_thin_nodes(&out, 1).await?;
            return Err(VolumeError::Map {
                volume: self.id,
                why: "the stores that got its nodes went out of sync".to_owned(),
            });
        }
        self.change_record(|record| {
            let redundancy_floor = self.redundancy_floor(&record.out, record.copies).max(1);
            let less = redundancy_floor < record.redundancy_floor;
            record.redundancy_floor = record.redundancy_floor.min(redundancy_floor);
            Ok(less)
        })
        .await
    }

    /// Gives the head its root; answers the generation up to which the head shares what it has.
    async fn swap_root(&self, root: Root) -> Result<Generation, VolumeError> {
        self.change_head(|volume, head| {
            if head.record.root == root {
                return Ok(None);
            }
            let made = image::commit(volume, head, root);
            made.map(Some).map_err(|error| {
                let why = error.to_string();
                let volume = self.id;
                VolumeError::Map { volume, why }
            })
        })
        .await?;
        Ok(self.head.borrow().record.since)
    }

    /// Changes the head's record: `make` makes the change, or nothing if the head is as it should be. It is asked again for
    /// what the meta store has then, until it makes nothing.
    pub(super) async fn change_head(
        &self,
        make: impl Fn(
            &Versioned<VolumeRecord>,
            &Versioned<ImageRecord>,
        ) -> Result<Option<(ImageRecord, Change)>, VolumeError>,
    ) -> Result<(), VolumeError> {
        let _one = self.changing.acquire(1).await;
        let deadline = env::now() + self.settings.deadline;
        let mut last = None;
        loop {
            self.usable()?;
            let head = self.head.borrow().clone();
            let (record, changed) = self.record.borrow().clone();
            let volume = Versioned {
                record,
                changed: Some(changed),
            };
            let Some((new_head, change)) = make(&volume, &head)? else {
                return Ok(());
            };
            if let Some(error) = last.take_if(|_| env::now() >= deadline) {
                return Err(self.meta_error(error));
            }
            match self.meta.txn(change.compares, change.ops).await {
                Ok(Outcome::Done(revision)) => {
                    *self.head.borrow_mut() = Versioned {
                        record: new_head,
                        changed: Some(revision),
                    };
                }
                Ok(Outcome::Refused(found)) => {
                    self.learn(found.first().and_then(Option::as_ref))?;
                    self.learn_head(found.get(1).and_then(Option::as_ref))?;
                }
                Err(error) => {
                    // Done, or not, or to come: what is compared lets it come about once.
                    last = Some(error);
                    if let Ok(found) = self.meta.get(&self.key).await {
                        self.learn(found.as_ref())?;
                        let key = image_key(head.record.id);
                        if let Ok(found) = self.meta.get(&key).await {
                            self.learn_head(found.as_ref())?;
                        }
                    }
                    env::sleep(Nanos::millis(100)).await;
                }
            }
        }
    }

    /// Takes what the meta store holds of the head now: a deletion beside it may have changed it.
    pub(super) fn learn_head(&self, entry: Option<&Entry>) -> Result<(), VolumeError> {
        let Some(entry) = entry else {
            return Err(self.fence("its head is gone"));
        };
        let id = self.head.borrow().record.id;
        let record = ImageRecord::decode(id, &entry.value)?;
        if record.state != ImageState::Head {
            return Err(self.fence("its head is another image now"));
        }
        *self.head.borrow_mut() = Versioned {
            record,
            changed: Some(entry.changed),
        };
        Ok(())
    }

    /// Frees copies; what stands in the way leaves them to the next audit.
    pub(super) async fn free(&self, freed: Freed) -> Result<(), VolumeError> {
        let extents = freed.extents.iter();
        let extents = extents.map(|(index, layer)| (layer.name(*index).to_string(), layer.stores));
        let nodes = freed.nodes.iter();
        let nodes = nodes.map(|node| (node.name().to_string(), node.stores));
        for (name, stores) in extents.chain(nodes) {
            for replica in stores.iter().filter_map(|number| self.replica(number)) {
                let Some(connection) = replica.connection() else {
                    continue;
                };
                match self
                    .within(connection.delete(&name, store::Change::default()))
                    .await
                {
                    Ok(()) | Err(ConnectionError::Absent(_)) => {}
                    Err(ConnectionError::Fenced { why, .. }) => return Err(self.fence(why)),
                    Err(error) => {
                        tracing::debug!(volume = %self.id, name, %error, "not freed");
                        if error.ends_connection() {
                            replica.lose(&connection, error.is_indeterminate());
                        }
                    }
                }
            }
        }
        for node in &freed.nodes {
            self.map.reader().cache().forget(node.name());
        }
        Ok(())
    }

    /// Commits now and then, as long as the volume is open.
    pub(super) async fn keep_committed(self: Rc<Self>) {
        while self.usable().is_ok() {
            env::sleep(self.settings.commit_after).await;
            if self.usable().is_err() {
                return;
            }
            if let Err(error) = self.commit().await {
                tracing::debug!(volume = %self.id, %error, "the map is not committed");
            }
        }
    }
}
