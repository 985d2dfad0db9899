//! What older images of the volume have: no write changes it, but it counts, and stores that come back get it.
//!
//! ```text
//! opened, a store comes back, now and then  -> records of the volume's images -> their maps, shared nodes once -> tables
//! a snapshot is taken                       -> all that the head has goes into the tables
//! ```
//!
//! Always true:
//! 1. While the tables are not known, no store leaves the in-sync set that `redundancy_floor` in the record does not spare, and
//!    `redundancy_floor` does not grow.
//! 2. What is there too much (an image was deleted meanwhile) makes `redundancy_floor` smaller than it could be, and no greater.
//! 3. What a map that was written anew names is in the tables from before the meta store can have that map. That holds
//!    whichever task reads the maps beside it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

use super::membership::Replica;
use super::nodes::NodeTable;
use super::reconcile::ResyncError;
use super::{Core, ExtentEntry, VolumeError};
use crate::image::records::Images;
use crate::map::node::Place;
use crate::map::{Entry, NodeRef};
use crate::names::{ExtentName, Generation, NodeName, StoreNumber};
use crate::record::VolumeRecord;
use crate::replica::connect::Connection;

/// What the images before the head have.
#[derive(Default)]
pub(super) struct OlderImages {
    /// Are the tables whole?
    known: Cell<bool>,
    tables: Tables,
    /// How many read the maps just now.
    readers: Cell<usize>,
    /// What was added since the first of them began: some of what they read is older.
    newer: Tables,
}

#[derive(Default)]
struct Tables {
    /// By object: where it is. Images may have it in different places.
    extents: RefCell<BTreeMap<ExtentName, Places>>,
    nodes: NodeTable,
}

impl Tables {
    fn add(&self, entries: &[(u32, Entry)], nodes: &[(NodeRef, Place)]) {
        let extents = &mut *self.extents.borrow_mut();
        for (index, entry) in entries {
            for layer in entry.layers() {
                let stores = layer.stores.as_slice().to_vec();
                note(extents, layer.name(*index), stores);
            }
        }
        self.nodes.add(nodes.iter().copied());
    }

    fn add_all(&self, other: &Tables) {
        let extents = &mut *self.extents.borrow_mut();
        for (name, places) in &*other.extents.borrow() {
            for stores in places {
                note(extents, *name, stores.clone());
            }
        }
        self.nodes.add_all(&other.nodes);
    }

    fn become_those_of(&self, other: Tables) {
        *self.extents.borrow_mut() = other.extents.into_inner();
        self.nodes.become_those_of(other.nodes);
    }
}

/// A task reads the maps, until this is dropped.
struct Reading<'a>(&'a OlderImages);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let left = self.0.readers.get() - 1;
        self.0.readers.set(left);
        if left == 0 {
            self.0.newer.become_those_of(Tables::default());
        }
    }
}

/// What each of some images says of where an object is; each only once.
type Places = Vec<Vec<StoreNumber>>;

fn note(extents: &mut BTreeMap<ExtentName, Places>, name: ExtentName, stores: Vec<StoreNumber>) {
    let places = extents.entry(name).or_default();
    if !places.contains(&stores) {
        places.push(stores);
    }
}

/// All of them.
fn union(places: &Places) -> Vec<StoreNumber> {
    let all: BTreeSet<StoreNumber> = places.iter().flatten().copied().collect();
    all.into_iter().collect()
}

impl OlderImages {
    pub fn is_known(&self) -> bool {
        self.known.get()
    }

    pub fn nodes(&self) -> &NodeTable {
        &self.tables.nodes
    }

    /// Where an extent's object is, by all images that have it; `None`: none has.
    pub fn stores_of(&self, name: &ExtentName) -> Option<Vec<StoreNumber>> {
        self.tables.extents.borrow().get(name).map(union)
    }

    /// Extents of which a store has a copy.
    pub fn count_on(&self, store: StoreNumber) -> usize {
        let extents = self.tables.extents.borrow();
        let on = |places: &&Places| places.iter().flatten().any(|one| *one == store);
        extents.values().filter(on).count()
    }

    /// Is there anything whose places in some image are such?
    pub fn any(&self, are: impl Fn(&[StoreNumber]) -> bool) -> bool {
        let extents = self.tables.extents.borrow();
        extents.values().flatten().any(|stores| are(stores)) || self.nodes().any(are)
    }

    /// An image has this besides, or may come to have it.
    pub fn add(&self, entries: &[(u32, Entry)], nodes: &[(NodeRef, Place)]) {
        self.tables.add(entries, nodes);
        if self.readers.get() > 0 {
            self.newer.add(entries, nodes);
        }
    }

    fn read(&self) -> Reading<'_> {
        self.readers.set(self.readers.get() + 1);
        Reading(self)
    }

    /// It has what was read, and what was added meanwhile.
    fn becomes(&self, read: Tables) {
        read.add_all(&self.newer);
        self.tables.become_those_of(read);
        self.known.set(true);
    }

    /// The least number of copies that anything has with these stores out.
    pub fn redundancy_floor(&self, out: &BTreeMap<StoreNumber, Generation>) -> Option<u8> {
        let extents = self.tables.extents.borrow();
        let counts = extents.values().flatten().map(|stores| {
            let in_sync = stores.iter().filter(|one| !out.contains_key(one));
            in_sync.count() as u8
        });
        counts.chain(self.nodes().redundancy_floor(out)).min()
    }
}

impl Core {
    /// Reads anew what the images before the head have.
    pub(super) async fn read_older_images(&self) -> Result<(), VolumeError> {
        if self.record_indeterminate.get() {
            // A rewritten map whose swap was indeterminate is in the meta store from here on, or never will be.
            self.change_record(|_| Ok(false)).await?;
        }
        let _reading = self.older_images.read();
        let head = self.head.borrow().record.id;
        let images = Images {
            meta: Rc::clone(&self.meta),
        };
        let all = images.all().await.map_err(|it| self.image_error(&it))?;
        let own = all.values().map(|known| &known.record);
        let older = own.filter(|it| it.volume == self.id && it.id != head && it.is_live());
        let mut seen: BTreeSet<NodeName> = BTreeSet::new();
        let read = Tables::default();
        for image in older {
            let walked = self.walk(image.root, &seen).await;
            let walked = walked.map_err(|error| self.image_error(&error))?;
            seen.extend(walked.nodes.iter().map(|(node, _)| node.name()));
            read.add(&walked.entries, &walked.nodes);
        }
        if self.head.borrow().record.id != head {
            return Err(self.image_error(&"a snapshot was taken while its images were read"));
        }
        self.older_images.becomes(read);
        Ok(())
    }

    /// Reads it if it is not known, or may be too much.
    pub(super) async fn refresh_older_images(&self, turn: u64) -> Result<(), VolumeError> {
        let (out, copies) = {
            let record = &self.record.borrow().0;
            (record.out.clone(), record.copies)
        };
        let thin = self
            .older_images
            .redundancy_floor(&out)
            .is_some_and(|least| least < copies);
        match !self.older_images.is_known() || (thin && turn.is_multiple_of(64)) {
            true => self.read_older_images().await,
            false => Ok(()),
        }
    }

    /// A snapshot was taken: all that the head has is the snapshot's too.
    pub(super) fn add_head_to_older(&self) {
        let mut older_images = self.older_images.tables.extents.borrow_mut();
        for placed in self.extents.borrow().values() {
            for layer in placed.layers() {
                let stores = layer.stores.borrow().clone();
                note(&mut older_images, layer.name, stores);
            }
        }
        self.older_images.nodes().add_all(&self.nodes);
    }

    /// `redundancy_floor` when `newly` more stores are out than the record says; what is not known is as weak as the record says.
    pub(super) fn redundancy_floor_after(&self, record: &VolumeRecord, newly: usize) -> u8 {
        let redundancy_floor = self.redundancy_floor(&record.out, record.copies);
        match self.older_images.is_known() {
            true => redundancy_floor,
            false => redundancy_floor.min(record.redundancy_floor.saturating_sub(newly as u8)),
        }
    }

    /// Something of older images that a store should have, behind that one, and was not resynced yet.
    pub(super) fn next_older(
        &self,
        replica: &Replica,
        after: Option<ExtentName>,
    ) -> Option<(ExtentName, Vec<StoreNumber>)> {
        #[cfg(test)]
        if self.mutated(super::Mutation::HeadOnlyResync) {
            return None;
        }
        let (number, synced_objects) = (replica.info.number, replica.synced_objects.borrow());
        let older_images = self.older_images.tables.extents.borrow();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut all = (older_images.range((from, Bound::Unbounded))).filter(|(name, places)| {
            places.iter().flatten().any(|one| *one == number) && !synced_objects.contains(name)
        });
        all.next().map(|(name, places)| (*name, union(places)))
    }

    /// Resyncs to a store that is out what the images before the head have there; returns why something of it cannot
    /// be.
    pub(super) async fn resync_older_images(
        &self,
        replica: &Replica,
        connection: &Rc<dyn Connection>,
        since: Generation,
    ) -> Result<Option<String>, String> {
        let (mut held, mut after) = (None, None);
        while let Some((name, stores)) = self.next_older(replica, after) {
            after = Some(name);
            let placed = ExtentEntry::new(name, stores.clone(), false);
            if !self.is_shared(&placed) && self.is_heads(&placed) {
                // It is the head's alone by now, which resyncs it extent by extent, or has.
                let synced = replica.synced.borrow().contains(&name.index);
                if synced {
                    replica.synced_objects.borrow_mut().insert(name);
                }
                continue;
            }
            match self.resync_layer(connection, &placed, &stores, since).await {
                Ok(()) => drop(replica.synced_objects.borrow_mut().insert(name)),
                Err(ResyncError::Store(why)) => return Err(why),
                Err(ResyncError::Extent(why)) => held = Some(why),
            }
        }
        Ok(held)
    }
}
