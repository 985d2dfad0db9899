//! What one hybrid disk has whether or not a fast device is attached.

#[cfg(test)]
use std::cell::Cell;
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use base::{Bytes, Sector, Span};
use env::sync::{Event, Semaphore};
use policy::cache::admission::{
    Admission as Reads, FlashBudget, Reads as Rule, StreamPosition, Streams,
};

use crate::attach::label::PAGE;
use crate::attach::lane::Lane;
use crate::durable::samples::Recent;
use crate::index::locks::PageLocks;
use crate::limits::{DirtyMarks, Limited};
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
    /// The lane that has what follows each unit of this one.
    pub next: OnceCell<Follow>,
    /// A lane is at a limit: what is counted for all is to be divided anew.
    pub asks: Rc<Event>,
}

/// Another lane hears that a stream of this length goes on at this byte of it.
pub(crate) type Follow = Box<dyn Fn(u64, Bytes)>;

impl Among {
    /// A stream has come to byte `end`.
    fn pass_on(&self, end: u64, length: Bytes) {
        let unit = self.lane.unit.0;
        if let Some(next) = self.next.get().filter(|_| end.is_multiple_of(unit)) {
            // The last lane is followed by the first one, a unit further on.
            let last = self.lane.lane + 1 == self.lane.lanes;
            next(if last { end } else { end - unit }, length);
        }
    }
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
    /// What a lane of several may use of what is counted for all.
    pub limited: Limited,
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
            limited: Limited::default(),
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

    /// It has as much dirty as it may, and would have more: what others do not need is asked for, once for each division.
    pub fn ask_for_more(&self) {
        if let Some(among) = self.among.get().filter(|_| self.limited.may_ask()) {
            among.asks.notify_all();
        }
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

    /// Is the slow device to sleep, and does it?
    pub fn is_at_rest(&self) -> bool {
        self.settings.borrow().energy.is_some() && self.slow.asleep()
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
        let seen = self.streams.borrow_mut().see(Span::bytes(at, len));
        if let Some(among) = self.among.get() {
            among.pass_on(at + len, seen.length);
        }
        seen
    }

    /// A stream that another lane followed goes on at byte `at`.
    pub fn expect_stream(&self, at: u64, length: Bytes) {
        let mut streams = self.streams.borrow_mut();
        streams.expect_from(Sector::containing(at), length);
    }

    /// May `bytes` be written to the fast device today? Takes them off the budget if so.
    pub fn flash_budget_allows(&self, bytes: Bytes) -> bool {
        let admitted = self.limited.admits(bytes);
        admitted.unwrap_or_else(|| self.budget.borrow_mut().admit(env::now(), bytes))
    }

    /// Between which shares of dirty pages the cleaner works, in percent of the cache.
    pub fn dirty_marks(&self) -> DirtyMarks {
        self.limited.dirty().unwrap_or_else(|| {
            let settings = self.settings.borrow();
            DirtyMarks {
                low: f64::from(settings.dirty_low),
                high: f64::from(settings.dirty_high),
            }
        })
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
