//! All that the ledger keeps of a cache, as it is in memory, and the batch of what changed since the last commit.
//!
//! ```text
//! change in memory -> touched pages, intents, fingerprints, extents -> cut: one batch -> durable
//!                                      |                                  |
//!                        freed slots wait here                 and are free again here
//! ```
//!
//! Always true:
//! 1. The state at the cut is the durable state plus the batch.
//! 2. A slot is used again only after the commit that forgets it.

use std::cell::{Ref, RefCell, RefMut};

use ledger::{Batch, CommitSource, Cut, Ledger, Prepared};

use super::intent::WriteIntents;
use super::record::{self, Live};
use super::samples::{Samples, sample_pages};
use crate::index::Index;
use crate::index::extents::{ExtentTable, Place};
use crate::index::page_map::PageMap;
use crate::index::slots::SlotAllocator;

/// What the ledger keeps. No await while a part is borrowed.
pub(crate) struct Source {
    pub index: RefCell<Index>,
    pub intents: RefCell<WriteIntents>,
    pub samples: RefCell<Samples>,
    pub extents: RefCell<ExtentTable>,
    /// The pages that are fingerprinted, ascending.
    sample_pages: Vec<u64>,
    /// Pages whose map entry changed since the last cut.
    touched: RefCell<Vec<u64>>,
}

impl Source {
    pub fn new(index: Index, extents: ExtentTable) -> Source {
        Source {
            sample_pages: sample_pages(extents.grains.pages()),
            index: RefCell::new(index),
            intents: RefCell::default(),
            samples: RefCell::default(),
            extents: RefCell::new(extents),
            touched: RefCell::default(),
        }
    }

    /// Where the extent of `page` lives.
    pub fn place(&self, page: u64) -> Place {
        let table = self.extents.borrow();
        table.place(table.grains.extent_of(page))
    }

    /// The pages that are fingerprinted, ascending.
    pub fn sample_pages(&self) -> &[u64] {
        &self.sample_pages
    }

    pub fn map(&self) -> Ref<'_, PageMap> {
        Ref::map(self.index.borrow(), |index| &index.map)
    }

    pub fn map_mut(&self) -> RefMut<'_, PageMap> {
        RefMut::map(self.index.borrow_mut(), |index| &mut index.map)
    }

    pub fn slots(&self) -> Ref<'_, SlotAllocator> {
        Ref::map(self.index.borrow(), |index| &index.slots)
    }

    pub fn slots_mut(&self) -> RefMut<'_, SlotAllocator> {
        RefMut::map(self.index.borrow_mut(), |index| &mut index.slots)
    }

    /// The map entry of `page` changed.
    pub fn touch(&self, page: u64) {
        self.touched.borrow_mut().push(page);
    }
}

impl CommitSource for Source {
    fn pending(&self) -> bool {
        !self.touched.borrow().is_empty()
            || self.intents.borrow().any_touched()
            || self.samples.borrow().any_touched()
            || self.extents.borrow().any_touched()
    }

    fn cut(&self, ledger: &Ledger) -> Prepared {
        let mut index = self.index.borrow_mut();
        let mut intents = self.intents.borrow_mut();
        let mut samples = self.samples.borrow_mut();
        let mut extents = self.extents.borrow_mut();
        let mut batch = Batch::new();
        let mut touched = self.touched.take();
        touched.sort_unstable();
        touched.dedup();
        for page in touched {
            record::page(&mut batch, page, &index.map);
        }
        for (region, marked) in intents.take_touched() {
            record::intent(&mut batch, region, marked);
        }
        for number in samples.take_touched() {
            record::sample(&mut batch, number, samples.known()[&number]);
        }
        for (extent, kept) in extents.take_touched() {
            record::extent(&mut batch, extent, kept);
        }
        index.slots.cut();
        let mut live = Live {
            map: &index.map,
            slots: index.slots.total(),
            intents: &intents,
            samples: samples.known(),
            table: &extents,
        };
        ledger.prepare(batch, &mut live)
    }

    fn durable(&self, cut: Cut) {
        self.index.borrow_mut().durable(cut);
    }
}
