//! What one hybrid disk has whether or not a fast device is attached.

#[cfg(test)]
use std::cell::Cell;
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use base::{Bytes, Span};
use env::sync::Semaphore;
use policy::cache::admission::{
    Admission as Reads, FlashBudget, Reads as Rule, StreamPosition, Streams,
};

use crate::attach::label::PAGE;
use crate::attach::lane::Lane;
use crate::durable::samples::Recent;
use crate::index::locks::PageLocks;
#[cfg(test)]
use crate::mutation::Mutation;
use crate::settings::{Admission, Settings};
use crate::slow::SlowDevice;
use crate::stats::Counters;

/// Sequential streams followed at once.
const STREAMS: u32 = 128;
/// Missed reads remembered: one for so many blocks of the cache, and at least so many.
const SEEN_PART: u64 = 8;
const SEEN_LEAST: u64 = 1024;

/// What a lane has in common with the others of its hybrid.
pub(crate) struct Among {
    pub lane: Lane,
    /// Who destages now, where that is one lane at a time.
    pub turn: Option<Rc<Semaphore>>,
}

/// A volume: its slow device, its choices, and what is decided beside the policy.
pub(crate) struct Volume {
    pub name: String,
    pub slow: SlowDevice,
    pub locks: Rc<PageLocks>,
    /// What an administrator may change.
    pub settings: RefCell<Settings>,
    /// What a close fingerprints beside the sampled pages.
    pub recent: RefCell<Recent>,
    pub counters: Counters,
    /// Set before a fast device is attached, for a lane of several.
    pub among: OnceCell<Among>,
    streams: RefCell<Streams>,
    budget: RefCell<FlashBudget>,
    reads: RefCell<Reads>,
    #[cfg(test)]
    pub planted: Cell<Option<Mutation>>,
}

impl Volume {
    pub fn new(settings: Settings, slow: SlowDevice) -> Rc<Volume> {
        Rc::new(Volume {
            name: settings.name.clone(),
            slow,
            locks: Rc::default(),
            streams: RefCell::new(Streams::new(STREAMS, settings.sequential_bypass)),
            budget: RefCell::new(FlashBudget::new(settings.flash_writes_per_day, env::now())),
            reads: RefCell::new(Reads::new(Rule::Always, 0)),
            settings: RefCell::new(settings),
            recent: RefCell::default(),
            among: OnceCell::new(),
            counters: Counters::default(),
            #[cfg(test)]
            planted: Cell::default(),
        })
    }

    /// Does a test have it make this mistake?
    #[cfg(test)]
    pub fn planted(&self, mutation: Mutation) -> bool {
        self.planted.get() == Some(mutation)
    }

    /// Which lane of its hybrid it is.
    pub fn lane(&self) -> Lane {
        self.among.get().map_or(Lane::ONLY, |among| among.lane)
    }

    /// The turn of who destages.
    pub fn destaging_turn(&self) -> Rc<Semaphore> {
        let shared = self.among.get().and_then(|among| among.turn.clone());
        shared.unwrap_or_else(|| Semaphore::new(1))
    }

    /// Whole pages of the volume; what is behind the last is never cached.
    pub fn whole_pages(&self) -> u64 {
        self.slow.whole_pages()
    }

    /// Is there a tier?
    pub fn has_tier(&self) -> bool {
        self.settings.borrow().mode.has_tier()
    }

    pub fn observe_stream(&self, at: u64, len: u64) -> StreamPosition {
        self.streams.borrow_mut().see(Span::bytes(at, len))
    }

    /// May `bytes` be written to the fast device today? Takes them off the budget if so.
    pub fn flash_budget_allows(&self, bytes: Bytes) -> bool {
        self.budget.borrow_mut().admit(env::now(), bytes)
    }

    /// Is a read miss of block `key` worth a copy? `remembered`: the policy has seen it lately.
    pub fn admits_read(&self, key: u64, remembered: bool) -> bool {
        self.reads.borrow_mut().read(key, remembered)
    }

    /// Memory of missed reads, for a cache of `slots` slots.
    pub fn remember_reads(&self, slots: u32) {
        let settings = self.settings.borrow();
        let rule = match settings.admission {
            Admission::Always => Rule::Always,
            Admission::SecondAccess => Rule::OnSecondAccess,
        };
        let blocks = u64::from(slots) / (settings.block.0 / PAGE);
        let keys = (blocks / SEEN_PART).max(SEEN_LEAST) as u32;
        *self.reads.borrow_mut() = Reads::new(rule, keys);
    }

    /// Takes over changed settings; returns the old ones.
    pub fn apply(&self, settings: &Settings) -> Settings {
        let old = self.settings.replace(settings.clone());
        if old.sequential_bypass != settings.sequential_bypass {
            *self.streams.borrow_mut() = Streams::new(STREAMS, settings.sequential_bypass);
        }
        if old.flash_writes_per_day != settings.flash_writes_per_day {
            *self.budget.borrow_mut() = FlashBudget::new(settings.flash_writes_per_day, env::now());
        }
        old
    }
}
