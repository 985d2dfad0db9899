//! Tiering: hot regions live on the fast device.
//!
//! ```text
//! requests -> statistics --interval's end--> policy::tier --regions--> table: extents fast | demoting
//!                                                                        |
//!      page map (pinned pages) <-- promote, copy, demote (direct mover) <+
//!                            <-- whole regions, one by one (published mover)
//! ```
//!
//! The tier stands on the cache's page map. A page of an extent that is fast is an ordinary entry of the map, written
//! out of place and committed through the ledger. It is *pinned*, so that it is never evicted. The page map knows which
//! pages are there, which of them changed and which of their sectors are valid. Crash safety is the cache's: after a
//! crash the map alone shows where the newest data are. The table of extents is kept so that what was fast is fast
//! again.
//!
//! Source: AST 3.2, 3.3; the direct mover is ours.

mod demote;
mod direct;
mod interval;
mod manage;
mod pace;
mod published;
mod split;
mod stats;
mod view;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use env::sync::Event;
use policy::tier::TierPolicy;

use crate::index::extents::{ExtentTable, Place};
use crate::settings::Tier;

pub(crate) use demote::is_marked;
pub(crate) use direct::Jobs;
use pace::Pace;
pub(crate) use published::Published;
pub(crate) use stats::{Stats, Touch};
pub use view::{Heat, HeatInterval, MoveEnd, MoveRecord, TierStatus};

/// What a user asks for, and what the page map has of it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked {
    Read { resident: bool },
    Write { resident: bool, dirty: bool },
}

/// Counts since the fast device was attached.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Requests of users, and those of which everything was on the fast device when they came.
    pub requests: Cell<u64>,
    pub hit_requests: Cell<u64>,
    /// Requests that the published mover's temporary buffer served: not among the hits.
    pub buffer_requests: Cell<u64>,
    /// Writes over data all of which the fast device alone had.
    pub dirty_write_requests: Cell<u64>,
    /// Requests that lay in extents that are fast.
    pub tier_requests: Cell<u64>,
    /// Bytes copied to the fast device ahead of need, destaged by demotion, and dropped.
    pub bytes_promoted: Cell<u64>,
    pub bytes_demoted: Cell<u64>,
    pub bytes_dropped: Cell<u64>,
    /// Bytes that movers read from the slow device or wrote to it.
    pub bytes_moved: Cell<u64>,
    pub moves_up: Cell<u64>,
    pub moves_down: Cell<u64>,
    pub cancelled: Cell<u64>,
    pub failed: Cell<u64>,
}

/// All there is of one attached fast device's tier. With the mode `cache` it is empty.
pub(crate) struct State {
    pub table: RefCell<ExtentTable>,
    pub stats: RefCell<Stats>,
    pace: RefCell<Pace>,
    pub policy: RefCell<Box<dyn TierPolicy>>,
    /// What is to be promoted and what to be copied.
    pub jobs: RefCell<Jobs>,
    /// The published mover's queue, and the region it moves.
    pub published: Published,
    boundary: RefCell<split::Boundary>,
    /// At the last look, moves might not begin.
    shut: Cell<bool>,
    /// Extents are to be promoted or copied.
    pub promote_work: Event,
    /// Extents are to be emptied.
    pub demote_work: Event,
    /// The choices changed.
    pub changed: Event,
    pub counts: Counters,
}

impl State {
    /// For a volume of `pages` whole pages, with everything on the slow device.
    pub fn new(pages: u64, tier: &Tier) -> Rc<State> {
        let table = ExtentTable::new(pages, tier);
        let policy = interval::build(tier);
        Rc::new(State {
            table: RefCell::new(table),
            stats: RefCell::new(Stats::new(env::now(), &tier.parameters)),
            pace: RefCell::new(Pace::new(env::now())),
            policy: RefCell::new(policy),
            jobs: RefCell::default(),
            published: Published::default(),
            boundary: RefCell::default(),
            shut: Cell::new(false),
            promote_work: Event::default(),
            demote_work: Event::default(),
            changed: Event::default(),
            counts: Counters::default(),
        })
    }

    /// Wakes every task of the tier: the cache's condition or the choices changed.
    pub fn wake(&self) {
        self.promote_work.notify_all();
        self.demote_work.notify_all();
        self.published.wake();
        self.changed.notify_all();
    }

    /// Where the extent of `page` lives.
    pub fn place(&self, page: u64) -> Place {
        let table = self.table.borrow();
        table.place(table.extent_of(page))
    }
}

/// What always holds between the table of extents, the page map and the room they share.
#[cfg(test)]
impl crate::cache::Cache {
    pub(crate) fn check_tier(&self) {
        let (table, map) = (self.tier.table.borrow(), self.map.borrow());
        let mut reserved = 0;
        for extent in 0..table.extents() {
            let pages = table.pages_of(extent);
            let held = map.pinned_of(pages.start) != crate::index::page_map::Pinned::No;
            let away = table.place(extent) != Place::Slow;
            assert_eq!(
                held, away,
                "extent {extent}: its pages are pinned while it is fast or demoting"
            );
            if away {
                reserved += pages.end - pages.start;
            }
        }
        assert_eq!(
            table.reserved(),
            reserved,
            "room is reserved for what is fast or demoting"
        );
        let slots = self.slots.borrow();
        let used = map.resident() + slots.free_count() + slots.awaiting_commit();
        assert!(used <= slots.total(), "{used} slots of {}", slots.total());
    }
}
