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
//! 3. With a restart log: what is in it and the durable state make the state at the last call of [`Source::log`].

use std::cell::{Cell, Ref, RefCell, RefMut};

use ledger::{Batch, CommitSource, Cut, Ledger, Prepared};

use super::intent::WriteIntents;
use super::record::{self, Fact, Live};
use super::restart::RestartLog;
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
    /// The last cut.
    cut: Cell<Cut>,
    restart: RefCell<Option<RestartLog>>,
    logged: Cell<Logged>,
}

/// How many of the changes since the last cut are in the restart log, by kind.
#[derive(Clone, Copy, Default)]
struct Logged {
    pages: usize,
    intents: usize,
    samples: usize,
    extents: usize,
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
            cut: Cell::default(),
            restart: RefCell::new(None),
            logged: Cell::default(),
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

    // --- the restart log --------------------------------------------------------------------------

    /// The commit that carries what changes now.
    pub fn next(&self) -> Cut {
        self.cut.get().next()
    }

    /// From now on changes go to `log`, or to none; returns the one they went to.
    pub fn log_to(&self, log: Option<RestartLog>) -> Option<RestartLog> {
        self.logged.take();
        self.restart.replace(log)
    }

    /// Is there a restart log?
    pub fn has_log(&self) -> bool {
        self.restart.borrow().is_some()
    }

    /// Is it time for a commit, so that the restart log has room?
    pub fn is_filling(&self) -> bool {
        let log = self.restart.borrow();
        log.as_ref().is_some_and(RestartLog::is_filling)
    }

    /// Puts every change so far into the restart log, as one group. Returns the commit to wait for before they outlive the
    /// process, if there is no room for them.
    pub fn log(&self) -> Option<Cut> {
        let mut log = self.restart.borrow_mut();
        let facts = match &*log {
            Some(_) => self.unlogged(),
            None => return None,
        };
        log.as_mut()?.append(&facts, self.next())
    }

    /// The changes since the last cut that are not in the restart log; they count as logged from here on.
    fn unlogged(&self) -> Vec<Fact> {
        let (touched, map) = (self.touched.borrow(), self.map());
        let (intents, samples) = (self.intents.borrow(), self.samples.borrow());
        let extents = self.extents.borrow();
        let before = self.logged.replace(Logged {
            pages: touched.len(),
            intents: intents.touched().len(),
            samples: samples.touched().len(),
            extents: extents.touched().len(),
        });
        let pages = touched[before.pages..].iter();
        let intent = |region: &u64| Fact::Intent(*region, intents.has(*region));
        let sample = |number: &u64| Fact::Sample(*number, samples.known()[number]);
        let extent = |number: &u32| Fact::Extent(*number, extents.kept(*number));
        pages
            .map(|page| Fact::Page(*page, map.get(*page)))
            .chain(intents.touched()[before.intents..].iter().map(intent))
            .chain(samples.touched()[before.samples..].iter().map(sample))
            .chain(extents.touched()[before.extents..].iter().map(extent))
            .collect()
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
        self.log();
        self.logged.take();
        self.cut.set(self.next());
        if let Some(log) = &mut *self.restart.borrow_mut() {
            log.cut(ledger.figures().sequence + 1);
        }
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
        if let Some(log) = &mut *self.restart.borrow_mut() {
            log.durable(cut);
        }
        self.index.borrow_mut().durable(cut);
    }
}
