//! The extents of the head that are allocated: where they are, and what is known of them.
//!
//! Always true: an entry that a task holds shows what the table's does, as long as it is in the table.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use replication::extent::Copies;

use crate::map::{Entry, Layer};
use crate::names::{COPIES_MAX, ExtentName, Generation, StoreNumber, Stores};

/// An extent that is allocated.
pub(crate) struct ExtentEntry {
    pub name: ExtentName,
    /// The same as text.
    pub object: String,
    pub copies: RefCell<Copies>,
    /// Holds what this one, an overlay, does not have.
    pub base: RefCell<Option<Rc<ExtentEntry>>>,
    pub blocks: Blocks,
}

/// The blocks an overlay has.
#[derive(Default)]
pub(super) struct Blocks {
    /// Those that were written, and those that were found.
    pub has: Cell<u64>,
    /// Were they looked for?
    pub known: Cell<bool>,
    /// How often that was forgotten.
    pub times_forgotten: Cell<u64>,
}

impl Blocks {
    pub fn add(&self, more: u64) {
        self.has.set(self.has.get() | more);
    }

    pub fn are_known(&self) -> bool {
        self.known.get()
    }

    /// Copies may differ: what they have is to be looked for again.
    pub fn forget(&self) {
        self.has.set(0);
        self.known.set(false);
        self.times_forgotten.set(self.times_forgotten.get() + 1);
    }
}

impl ExtentEntry {
    pub fn new(
        name: ExtentName,
        stores: Vec<StoreNumber>,
        unacknowledged: bool,
    ) -> Rc<ExtentEntry> {
        Rc::new(ExtentEntry {
            name,
            object: name.to_string(),
            copies: RefCell::new(Copies::new(stores, unacknowledged)),
            base: RefCell::default(),
            blocks: Blocks::default(),
        })
    }

    pub fn base(&self) -> Option<Rc<ExtentEntry>> {
        self.base.borrow().clone()
    }

    /// Its layers, the overlay first.
    pub fn layers(self: &Rc<Self>) -> impl Iterator<Item = Rc<ExtentEntry>> + use<> {
        [Some(Rc::clone(self)), self.base()].into_iter().flatten()
    }

    /// As the map has it: of copies too many those that were there first.
    pub fn layer(&self) -> Option<Layer> {
        let stores = &self.copies.borrow().stores;
        let first = &stores[..stores.len().min(COPIES_MAX)];
        Some(Layer {
            owner: self.name.owner,
            born: self.name.born,
            stores: Stores::new(first)?,
        })
    }

    /// The stores that have one of its copies.
    pub fn stores(&self) -> Vec<StoreNumber> {
        self.copies.borrow().stores.clone()
    }

    /// Has no change of it been answered, nor anything of it read?
    pub fn is_unacknowledged(&self) -> bool {
        self.copies.borrow().unacknowledged
    }

    /// Copies that the next opening finds in sync.
    pub fn in_sync(&self, out: &BTreeMap<StoreNumber, Generation>) -> u8 {
        let own = self.copies.borrow().in_sync(out);
        self.base().map_or(own, |base| own.min(base.in_sync(out)))
    }

    pub fn entry(&self) -> Option<Entry> {
        let top = self.layer()?;
        Some(match self.base() {
            None => Entry::full(top),
            Some(base) => Entry::overlay(top, base.layer()?),
        })
    }
}

/// The head's extents.
#[derive(Default)]
pub(super) struct ExtentTable {
    pub all: RefCell<BTreeMap<u32, Rc<ExtentEntry>>>,
    /// Extents that get or lose copies just now.
    pub rereplicating: RefCell<BTreeSet<u32>>,
    /// Extents whose copies are made equal just now for reads that wait.
    pub reconciling: RefCell<BTreeSet<u32>>,
}

impl ExtentTable {
    /// What holds an extent; none where nothing was ever written.
    pub fn placed(&self, index: u32) -> Option<Rc<ExtentEntry>> {
        self.all.borrow().get(&index).map(Rc::clone)
    }

    /// Is it an overlay?
    pub fn is_overlay(&self, index: u32) -> bool {
        self.placed(index).is_some_and(|it| it.base().is_some())
    }

    /// Is it one of the head's own objects? After a rollback what was born after the head's beginning may be another image's.
    pub fn is_heads(&self, placed: &ExtentEntry) -> bool {
        let there = self.placed(placed.name.index);
        there.is_some_and(|it| it.layers().any(|layer| layer.name == placed.name))
    }
}
