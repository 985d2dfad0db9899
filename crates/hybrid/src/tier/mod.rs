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
//! ```text
//! state:  Tier | jobs stats pace split view        tasks:  promote copy demote | published: up down drain
//! events: request (a user's)  interval (its end)  fit (a start, other choices)
//! ```
//!
//! Source: AST 3.2, 3.3; the direct mover is ours.

mod carry;
pub(crate) mod copy;
pub(crate) mod demote;
mod down;
pub(crate) mod drain;
pub(crate) mod fit;
pub(crate) mod flow;
pub(crate) mod interval;
mod jobs;
mod pace;
pub(crate) mod promote;
pub(crate) mod published;
pub(crate) mod request;
mod split;
mod stats;
pub(crate) mod status;
mod up;
mod view;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use base::Nanos;
use env::sync::Event;
use policy::tier::{TierPolicy, Way};

use crate::attach::label::PAGE;
use crate::cache::Cache;
use crate::index::extents::Place;
use crate::index::page_map::Pinned;
use crate::index::slots::SlotRun;
use crate::interpose::{Interpose, Overlay};
use crate::moving::{MoveQueue, Published};
use crate::payload::Payload;
use crate::settings::{Mode, Mover, Tier as Choices};
use jobs::Jobs;
use pace::Pace;
use split::Boundary;
use stats::Stats;
pub use view::{Heat, HeatInterval, MoveEnd, MoveRecord, TierMoves, TierRoom, TierStatus};

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

/// What the cache knows of the tier above it: its movers.
#[derive(Default)]
pub(crate) struct Movers {
    /// The published mover's queue, and the region it moves.
    pub queue: MoveQueue,
    pub published: Published,
    /// Extents are to be promoted or copied.
    pub promote_work: Event,
    /// Extents are to be emptied.
    pub demote_work: Event,
    /// The choices changed.
    pub changed: Event,
}

impl Interpose for Movers {
    fn read(&self, range: &Range<u64>) -> Option<Overlay> {
        self.published.overlay(range)
    }

    fn write(&self, range: Range<u64>, payload: &Payload) -> Vec<Range<u64>> {
        self.published.take_write(range, payload)
    }

    fn owns(&self, first: u64, end: u64) -> bool {
        self.published.moves(first, end)
    }

    fn changed(&self, first: u64, end: u64) -> Vec<SlotRun> {
        self.published.touched(first, end)
    }

    fn is_moving(&self) -> bool {
        self.queue.is_busy()
    }

    fn written(&self, range: Range<u64>) {
        self.published.written_elsewhere(range);
    }

    fn memory(&self) -> usize {
        self.published.memory()
    }

    fn wake(&self) {
        self.promote_work.notify_all();
        self.demote_work.notify_all();
        self.queue.wake();
        self.changed.notify_all();
    }
}

/// How often a mover looks whether a slow device that sleeps was woken.
pub(crate) const LOOK_AT_REST: Nanos = Nanos::secs(5);

/// All there is of one attached fast device's tier. With the mode `cache` it is empty.
pub(crate) struct Tier {
    pub cache: Rc<Cache>,
    pub movers: Rc<Movers>,
    pub stats: RefCell<Stats>,
    pace: RefCell<Pace>,
    pub policy: RefCell<Box<dyn TierPolicy>>,
    /// What is to be promoted and what to be copied.
    pub jobs: RefCell<Jobs>,
    boundary: RefCell<Boundary>,
    /// At the last look, moves might not begin.
    shut: Cell<bool>,
    pub counts: Counters,
}

/// The policy that `tier` asks for; it learns its room later.
fn policy_of(tier: &Choices) -> Box<dyn TierPolicy> {
    policy::tier::build(tier.policy, tier.parameters, 0)
}

impl Tier {
    /// Over `cache`, with everything on the slow device.
    pub fn new(cache: Rc<Cache>, movers: Rc<Movers>) -> Rc<Tier> {
        let settings = cache.volume.settings.borrow();
        let (stats, policy) = (
            Stats::new(env::now(), &settings.tier.parameters),
            policy_of(&settings.tier),
        );
        drop(settings);
        Rc::new(Tier {
            cache,
            movers,
            stats: RefCell::new(stats),
            pace: RefCell::new(Pace::new(env::now())),
            policy: RefCell::new(policy),
            jobs: RefCell::default(),
            boundary: RefCell::default(),
            shut: Cell::new(false),
            counts: Counters::default(),
        })
    }

    /// May its tasks go on?
    pub fn runs(&self) -> bool {
        !self.cache.stopped.get() && self.cache.is_running()
    }

    /// How regions get to the fast device.
    pub fn mover(&self) -> Mover {
        self.cache.volume.settings.borrow().tier.mover
    }

    /// Where the extent of `page` lives.
    pub fn place(&self, page: u64) -> Place {
        let table = self.cache.state.extents.borrow();
        table.place(table.grains.extent_of(page))
    }

    /// Pages that extents may take at most.
    pub fn room(&self) -> u64 {
        let settings = self.cache.volume.settings.borrow();
        let block = settings.block.0 / PAGE;
        let all = self.cache.room.data_slots().saturating_sub(block);
        match settings.mode {
            Mode::Cache => 0,
            Mode::Tier => all,
            Mode::Both => match settings.tier.share {
                Some(share) => all * u64::from(share) / 100,
                None => self.boundary.borrow_mut().room(all),
            },
        }
    }

    /// Is the boundary between tier and cache ours to move?
    pub fn splits(&self) -> bool {
        let settings = self.cache.volume.settings.borrow();
        settings.mode == Mode::Both && settings.tier.share.is_none()
    }

    /// How long until a window opens in which moves may begin; `None`: they may now. None wakes a slow device that sleeps.
    pub fn opens_in(&self) -> Option<Nanos> {
        if self.cache.volume.is_at_rest() {
            return Some(LOOK_AT_REST);
        }
        let settings = self.cache.volume.settings.borrow();
        if settings.tier.windows.is_empty() {
            return None;
        }
        let wait = settings.tier.schedule().opens_in(env::wall_clock());
        (wait > Nanos(0)).then_some(wait)
    }

    /// May a move of `extent` begin now? One that is pinned is promoted at any time of the day.
    pub fn may_begin(&self, extent: u32) -> bool {
        self.opens_in().is_none() || self.cache.state.extents.borrow().is_pinned(extent)
    }

    /// Is what is promoted of `extent` copied by the direct mover?
    pub fn moves_directly(&self, extent: u32) -> bool {
        let published = self.mover() == Mover::Published;
        !published || self.cache.state.extents.borrow().is_pinned(extent)
    }

    /// If pages of `extent`, which is fast, are missing, its region moves up once more, if moves are as published.
    pub fn move_missing(&self, extent: u32) {
        if self.moves_directly(extent) {
            return;
        }
        let table = self.cache.state.extents.borrow();
        let (pages, region) = (
            table.grains.pages_of(extent),
            table.grains.region_of(extent),
        );
        let resident = self.cache.state.map().resident_in(pages.start, pages.end);
        if table.wants_region(region) && resident < pages.end - pages.start {
            self.movers.queue.decide(region, Way::Up);
        }
    }

    /// How the map is to pin the pages of `extent`, as the table has it.
    pub fn update_pin(&self, extent: u32) {
        // The published mover demotes a region whole.
        let published = self.mover() == Mover::Published;
        let (pages, pinned) = {
            let table = self.cache.state.extents.borrow();
            let pinned = match table.place(extent) {
                Place::Slow => Pinned::No,
                Place::Fast if published || table.wants(extent) => Pinned::Hot,
                Place::Fast | Place::Demoting => Pinned::Cold,
            };
            (table.grains.pages_of(extent), pinned)
        };
        let mut map = self.cache.state.map_mut();
        map.set_pinned(pages.start, pages.end, pinned);
    }

    /// At most `most` extents that are fast: idle ones, then those wanted, pinned ones last; the coldest first.
    pub fn coldest_fast(&self, most: usize) -> Vec<u32> {
        let (table, stats) = (self.cache.state.extents.borrow(), self.stats.borrow());
        let mut up: Vec<(u8, f64, u32)> = table
            .fast()
            .map(|extent| {
                let rank = u8::from(table.wants(extent)) + u8::from(table.is_pinned(extent));
                (rank, stats.heat(extent), extent)
            })
            .collect();
        let order = |a: &(u8, f64, u32), b: &(u8, f64, u32)| {
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
        };
        if most < up.len() {
            up.select_nth_unstable_by(most, order);
            up.truncate(most);
        }
        up.sort_unstable_by(order);
        up.into_iter().map(|(_, _, extent)| extent).collect()
    }

    /// Ends the move under way before its time, and lets none begin until the answer is dropped: whatever
    /// users wrote is on a device then.
    pub async fn halt_moves(&self) -> Halt {
        let queue = &self.movers.queue;
        queue.halt();
        let halt = Halt(Rc::clone(&self.movers));
        while queue.is_busy() && !self.cache.stopped.get() {
            queue.ended().await;
        }
        halt
    }
}

/// No move begins until this is dropped.
pub(crate) struct Halt(Rc<Movers>);

impl Drop for Halt {
    fn drop(&mut self) {
        self.0.queue.go_on();
    }
}

/// What always holds between the table of extents, the page map and the room they share.
#[cfg(test)]
impl Cache {
    pub(crate) fn check_tier(&self) {
        let (table, map) = (self.state.extents.borrow(), self.state.map());
        let mut reserved = 0;
        for extent in 0..table.grains.extents() {
            let pages = table.grains.pages_of(extent);
            let held = map.pins().of(pages.start) != Pinned::No;
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
        let slots = self.state.slots();
        let used = map.resident() + slots.free_count() + slots.awaiting_commit();
        assert!(used <= slots.total(), "{used} slots of {}", slots.total());
    }
}
