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

use std::rc::Rc;

use replication::membership;

use super::error::VolumeError;
use super::extent::ExtentEntry;
#[cfg(test)]
use super::life::Mutation;
use super::node_io::NodeIo;
use super::record_io::RecordIo;
use super::state::Core;
use crate::image::tree::{self as image};
use crate::map::{Commit, Freed, Root};
use crate::names::{COPIES_MAX, Generation, StoreNumber};
use crate::replica::connect::ConnectionError;

/// Changes the map, makes it durable, and frees what it replaced.
#[derive(Clone, Copy)]
pub(super) struct MapIo<'a> {
    core: &'a Rc<Core>,
}

impl<'a> MapIo<'a> {
    pub fn of(core: &'a Rc<Core>) -> MapIo<'a> {
        MapIo { core }
    }

    /// Lets the map have an extent as it is now.
    pub(super) async fn enter(self, index: u32, placed: &ExtentEntry) -> Result<(), VolumeError> {
        let entry = placed.entry().expect("it has stores");
        let set = self.core.maps.head.set(index, entry).await;
        set.map(drop).map_err(|error| self.core.map_error(&error))
    }

    /// The same, if `still` holds when the map changes. Does it?
    pub(super) async fn enter_if(
        self,
        index: u32,
        placed: &ExtentEntry,
        still: impl Fn() -> bool,
    ) -> Result<bool, VolumeError> {
        let entry = placed.entry().expect("it has stores");
        let set = self.core.maps.head.set_if(index, entry, still).await;
        set.map_err(|error| self.core.map_error(&error))
    }

    /// An extent of which nothing was answered, nor read, is given up. Its range is the caller's alone.
    pub(super) async fn forget(self, index: u32, placed: &ExtentEntry) -> Result<(), VolumeError> {
        debug_assert!(placed.is_unacknowledged());
        let base = placed.base();
        let entry = base.as_ref().and_then(|base| base.entry());
        let removed = match entry {
            Some(entry) => self.core.maps.head.set(index, entry).await,
            None => self.core.maps.head.remove(index).await,
        };
        removed.map_err(|error| self.core.map_error(&error))?;
        self.core.replication.borrow_mut().changes.forget(index);
        let mut extents = self.core.extents.all.borrow_mut();
        match base {
            Some(base) => extents.insert(index, base),
            None => extents.remove(&index),
        };
        Ok(())
    }

    /// Gives up extents of which nothing was answered: a clone could not know that they may be nowhere. All ranges are the
    /// caller's.
    pub(super) async fn drop_unacknowledged(self) -> Result<(), VolumeError> {
        let unacknowledged = |(index, it): (&u32, &Rc<super::ExtentEntry>)| {
            it.is_unacknowledged().then(|| (*index, Rc::clone(it)))
        };
        let unacknowledged: Vec<_> = self
            .core
            .extents
            .all
            .borrow()
            .iter()
            .filter_map(unacknowledged)
            .collect();
        for (index, placed) in unacknowledged {
            self.forget(index, &placed).await?;
        }
        Ok(())
    }

    /// A store has a copy of a layer of an extent from now on, if `still` holds then; `redundancy_floor` counts it when the meta store has
    /// a root that says so. Is it so? The extent's range is the caller's alone.
    pub(super) async fn add(
        self,
        index: u32,
        placed: &Rc<ExtentEntry>,
        layer: &Rc<ExtentEntry>,
        store: StoreNumber,
        still: impl Fn() -> bool,
    ) -> Result<bool, VolumeError> {
        layer.copies.borrow_mut().uncommitted.push(store);
        {
            // Before one that is about to go: the map has no room for more.
            let stores = &mut layer.copies.borrow_mut().stores;
            let at = stores.len().min(COPIES_MAX - 1);
            stores.insert(at, store);
        }
        match self.enter_if(index, placed, still).await {
            Ok(true) => {}
            not => {
                layer
                    .copies
                    .borrow_mut()
                    .uncommitted
                    .retain(|one| *one != store);
                layer.copies.borrow_mut().stores.retain(|one| *one != store);
                // Of a map that cannot be read more will be heard.
                return not.or(Ok(false));
            }
        }
        self.core.added(layer, store);
        Ok(true)
    }

    /// Makes durable what changed in the map.
    pub(super) async fn commit(self) -> Result<(), VolumeError> {
        let _one = self.core.maps.commits.one.acquire(1).await;
        self.core.usable()?;
        if self.core.maps.head.is_dirty() {
            self.write_map().await?;
        }
        let root = self.core.maps.head.root();
        if self.core.record.head.borrow().record.root == root {
            return Ok(());
        }
        self.count_nodes().await?;
        let since = self.swap_root(root).await?;
        self.core.maps.head.set_since(since);
        self.count_committed();
        self.core.count(|counters| counters.commits += 1);
        let replaced = std::mem::take(&mut *self.core.maps.commits.deferred_frees.borrow_mut());
        self.core.maps.nodes.remove(&replaced.nodes);
        self.free(replaced.later_than(since)).await
    }

    /// What the meta store has counts from now on.
    fn count_committed(self) {
        let committed = self.core.replication.borrow_mut().changes.committed();
        for (name, store) in committed {
            // What is in the table no more, counts no more.
            let placed = self.core.extents.placed(name.index).into_iter();
            let mut layers = placed.flat_map(|placed| placed.layers());
            if let Some(layer) = layers.find(|layer| layer.name == name) {
                let uncommitted = &mut layer.copies.borrow_mut().uncommitted;
                let at = uncommitted.iter().position(|one| *one == store);
                uncommitted.swap_remove(at.expect("noted when it was added"));
            }
        }
    }

    /// Commits until that does not fail in passing: the outcome of a failed commit is indeterminate. The caller holds the range
    /// of an extent that lost a copy: no write may change it before the meta store has a map without that copy.
    pub(super) async fn commit_surely(self) -> Result<(), VolumeError> {
        #[cfg(test)]
        if self.core.mutated(Mutation::NoCommit) {
            return Ok(());
        }
        let mut tries = 0;
        loop {
            match self.commit().await {
                Err(error) if error.passes() => self.core.pause(&mut tries).await,
                other => return other,
            }
        }
    }

    async fn write_map(self) -> Result<(), VolumeError> {
        RecordIo::of(self.core).change_record(|_| Ok(true)).await?;
        // One step with the change of the record: whatever is named from here on is born in the new generation.
        let generation = Generation(self.core.generation().0 - 1);
        let begun = self.core.maps.head.begin(generation);
        let begun = begun.map_err(|error| self.core.map_error(&error))?;
        let replication = &self.core.replication;
        replication.borrow_mut().changes.begin();
        let written = begun.write().await;
        replication.borrow_mut().changes.end(written.is_ok());
        let Commit {
            written,
            places,
            replaced,
            ..
        } = written.map_err(|error| self.core.map_error(&error))?;
        self.core.maps.nodes.add(written.into_iter().zip(places));
        self.core
            .maps
            .commits
            .deferred_frees
            .borrow_mut()
            .join(replaced);
        Ok(())
    }

    /// Before a root names them: the node that opens the volume must know how few copies a map node may have.
    async fn count_nodes(self) -> Result<(), VolumeError> {
        let out = self.core.volume_record().out.clone();
        if self.core.maps.nodes.redundancy_floor(&out) == Some(0) {
            NodeIo::of(self.core).renew_thin_nodes(&out, 1).await?;
            return Err(VolumeError::Map {
                volume: self.core.id,
                why: "the stores that got its nodes went out of sync".to_owned(),
            });
        }
        RecordIo::of(self.core)
            .change_record(|record| {
                let floor = self.core.redundancy_floor(&record.out, record.copies);
                Ok(membership::lower_floor(record, floor.max(1)))
            })
            .await
    }

    /// Gives the head its root; answers the generation up to which the head shares what it has.
    async fn swap_root(self, root: Root) -> Result<Generation, VolumeError> {
        RecordIo::of(self.core)
            .change_head(|volume, head| {
                if head.record.root == root {
                    return Ok(None);
                }
                let made = image::commit(volume, head, root);
                made.map(Some).map_err(|error| {
                    let why = error.to_string();
                    let volume = self.core.id;
                    VolumeError::Map { volume, why }
                })
            })
            .await?;
        Ok(self.core.record.head.borrow().record.since)
    }

    /// Frees copies; what stands in the way leaves them to the next audit.
    pub(super) async fn free(self, freed: Freed) -> Result<(), VolumeError> {
        let extents = freed.extents.iter();
        let extents = extents.map(|(index, layer)| (layer.name(*index).to_string(), layer.stores));
        let nodes = freed.nodes.iter();
        let nodes = nodes.map(|node| (node.name().to_string(), node.stores));
        for (name, stores) in extents.chain(nodes) {
            for replica in stores
                .iter()
                .filter_map(|number| self.core.replicas.get(number))
            {
                let Some(connection) = replica.connection() else {
                    continue;
                };
                match self
                    .core
                    .within(connection.delete(&name, store::Change::default()))
                    .await
                {
                    Ok(()) | Err(ConnectionError::Absent(_)) => {}
                    Err(ConnectionError::Fenced { why, .. }) => return Err(self.core.fence(why)),
                    Err(error) => {
                        tracing::debug!(volume = %self.core.id, name, %error, "not freed");
                        if error.ends_connection() {
                            replica.lose(&connection, error.is_indeterminate());
                        }
                    }
                }
            }
        }
        for node in &freed.nodes {
            self.core.maps.head.reader().cache().forget(node.name());
        }
        Ok(())
    }

    /// Commits now and then, as long as the volume is open.
    pub(super) async fn keep_committed(self) {
        while self.core.usable().is_ok() {
            env::sleep(self.core.settings.commit_after).await;
            if self.core.usable().is_err() {
                return;
            }
            if let Err(error) = self.commit().await {
                tracing::debug!(volume = %self.core.id, %error, "the map is not committed");
            }
        }
    }
}
