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

use super::node_table::NodeTable;
use crate::map::node::Place;
use crate::map::{Entry, NodeRef};
use crate::names::{ExtentName, Generation, StoreNumber};

/// What the images before the head have.
#[derive(Default)]
pub(super) struct OlderImages {
    /// Are the tables whole?
    pub known: Cell<bool>,
    pub tables: Tables,
    /// How many read the maps just now.
    pub readers: Cell<usize>,
    /// What was added since the first of them began: some of what they read is older.
    pub newer: Tables,
}

#[derive(Default)]
pub(super) struct Tables {
    /// By object: where it is. Images may have it in different places.
    pub extents: RefCell<BTreeMap<ExtentName, Places>>,
    pub nodes: NodeTable,
}

impl Tables {
    pub fn add(&self, entries: &[(u32, Entry)], nodes: &[(NodeRef, Place)]) {
        let extents = &mut *self.extents.borrow_mut();
        for (index, entry) in entries {
            for layer in entry.layers() {
                let stores = layer.stores.as_slice().to_vec();
                note(extents, layer.name(*index), stores);
            }
        }
        self.nodes.add(nodes.iter().copied());
    }

    pub fn add_all(&self, other: &Tables) {
        let extents = &mut *self.extents.borrow_mut();
        for (name, places) in &*other.extents.borrow() {
            for stores in places {
                note(extents, *name, stores.clone());
            }
        }
        self.nodes.add_all(&other.nodes);
    }

    pub fn become_those_of(&self, other: Tables) {
        *self.extents.borrow_mut() = other.extents.into_inner();
        self.nodes.become_those_of(other.nodes);
    }
}

/// A task reads the maps, until this is dropped.
pub(super) struct Reading<'a>(&'a OlderImages);

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
pub(super) type Places = Vec<Vec<StoreNumber>>;

pub(super) fn note(
    extents: &mut BTreeMap<ExtentName, Places>,
    name: ExtentName,
    stores: Vec<StoreNumber>,
) {
    let places = extents.entry(name).or_default();
    if !places.contains(&stores) {
        places.push(stores);
    }
}

/// All of them.
pub(super) fn union(places: &Places) -> Vec<StoreNumber> {
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

    pub fn read(&self) -> Reading<'_> {
        self.readers.set(self.readers.get() + 1);
        Reading(self)
    }

    /// It has what was read, and what was added meanwhile.
    pub fn becomes(&self, read: Tables) {
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
