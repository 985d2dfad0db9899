//! The end of an interval: counts to the policy, its decision to the movers.
//!
//! ```text
//! sleep until the interval's end -> close the counts -> policy::tier -> downs, then ups, as it says
//! ```
//!
//! Outside the windows of the day no move begins: what the policy would promote is handed back to it, what it demotes
//! goes when a window opens, and so does what is touched of a region that was promoted before.

use std::rc::Rc;

use base::{Bytes, Nanos};
use policy::tier::{Interval, Region, TierPolicy, Way};

use crate::attach::label::PAGE;
use crate::cache::{Cache, count};
use crate::engine::Inner;
use crate::index::extents::Place;
use crate::index::page_map::{Pinned, UNIT_PAGES};
use crate::settings::{Mode, Mover, Tier};
use crate::tier::MoveEnd;

/// The policy that `tier` asks for; it learns its room later.
pub(crate) fn build(tier: &Tier) -> Box<dyn TierPolicy> {
    policy::tier::build(tier.policy, tier.parameters, 0)
}

impl Inner {
    /// The task that ends intervals.
    pub(crate) async fn interval_loop(self: Rc<Self>, cache: Rc<Cache>) {
        let tier = Rc::clone(&cache.tier);
        while !cache.stopped.get() && cache.is_running() {
            let changed = tier.changed.wait();
            if !self.has_tier() {
                changed.await;
                continue;
            }
            let period = self.settings.borrow().tier.parameters.period;
            let due = tier.stats.borrow().start() + period;
            let left = due.since(env::now());
            if left > Nanos(0) {
                let _ = env::timeout(left, changed).await;
                continue;
            }
            self.end_interval(&cache);
        }
    }

    /// Is there a tier?
    pub(crate) fn has_tier(&self) -> bool {
        self.settings.borrow().mode != Mode::Cache
    }

    fn end_interval(self: &Rc<Self>, cache: &Rc<Cache>) {
        let tier = &cache.tier;
        let closed = tier.stats.borrow_mut().close(env::now());
        let decision = tier.policy.borrow_mut().step(&Interval {
            number: closed.number,
            length: closed.length,
            counts: &closed.counts,
        });
        let length = closed.length;
        let resident = resident(cache);
        let up = tier.table.borrow().regions_up();
        tier.stats
            .borrow_mut()
            .keep(closed, &decision, resident, up);
        let open = self.opens_in().is_none();
        let opened = open && tier.shut.get();
        tier.shut.set(!open);
        self.move_boundary(cache, length);
        if open {
            self.shed(cache);
        }
        for mv in decision.moves.iter().filter(|mv| mv.way == Way::Down) {
            self.demote_region(cache, mv.region, mv.why.to_string());
        }
        if open {
            self.demote_idle(cache);
        }
        for mv in decision.moves.iter().filter(|mv| mv.way == Way::Up) {
            match open {
                true => self.promote_region(cache, mv.region, mv.why.to_string()),
                false => tier.policy.borrow_mut().withdrawn(mv.region),
            }
        }
        if opened {
            // What was promoted before, or was fast at the start, had to wait.
            self.fit_tier(cache);
        }
        self.review_copies(cache);
    }

    /// How long until a window opens in which moves may begin; `None`: they may now.
    pub(crate) fn opens_in(&self) -> Option<Nanos> {
        let settings = self.settings.borrow();
        if settings.tier.windows.is_empty() {
            return None;
        }
        let wait = settings.tier.schedule().opens_in(env::wall_clock());
        (wait > Nanos(0)).then_some(wait)
    }

    /// What is fast and not wanted is demoted now, if the choices say so. The published mover has no lazy way.
    pub(crate) fn demote_idle(self: &Rc<Self>, cache: &Rc<Cache>) {
        let (lazy, mover) = {
            let settings = self.settings.borrow();
            (settings.tier.lazy_down, settings.tier.mover)
        };
        let idle: Vec<u32> = cache.tier.table.borrow().idle().collect();
        for extent in idle {
            match mover {
                Mover::Published => {
                    let region = cache.tier.table.borrow().region_of(extent);
                    cache.tier.published.decide(region, Way::Down);
                }
                Mover::Direct if lazy => {}
                Mover::Direct => self.demote(cache, extent),
            }
        }
    }

    /// The policy promotes `region`.
    pub(crate) fn promote_region(self: &Rc<Self>, cache: &Rc<Cache>, region: Region, why: String) {
        let tier = &cache.tier;
        tier.table.borrow_mut().want(region, true);
        count(&tier.counts.moves_up, 1);
        let (now, region_len) = (env::now(), tier.table.borrow().region_bytes());
        tier.stats
            .borrow_mut()
            .begin_move(now, (region, region_len), Way::Up, why);
        let extents = tier.table.borrow().extents_of(region);
        for extent in extents.clone() {
            if tier.table.borrow().place(extent) == Place::Fast {
                self.update_pin(cache, extent);
            }
        }
        let mover = self.settings.borrow().tier.mover;
        match mover {
            Mover::Direct => self.promote_some(cache, extents),
            Mover::Published => tier.published.decide(region, Way::Up),
        }
    }

    /// The policy demotes `region`: its extents are idle until their room is needed, or are demoted when this interval
    /// has been worked through.
    pub(crate) fn demote_region(self: &Rc<Self>, cache: &Rc<Cache>, region: Region, why: String) {
        let tier = &cache.tier;
        tier.table.borrow_mut().want(region, false);
        count(&tier.counts.moves_down, 1);
        let given_up = tier.stats.borrow_mut().way_of(region) == Some(Way::Up);
        count(&tier.counts.cancelled, u64::from(given_up));
        let (now, region_len) = (env::now(), tier.table.borrow().region_bytes());
        tier.stats
            .borrow_mut()
            .begin_move(now, (region, region_len), Way::Down, why);
        let extents = tier.table.borrow().extents_of(region);
        let mut any = false;
        for extent in extents {
            self.forget_jobs(cache, extent);
            if tier.table.borrow().place(extent) == Place::Fast {
                self.update_pin(cache, extent);
                any |= !tier.table.borrow().is_pinned(extent);
            }
        }
        if !any {
            tier.stats.borrow_mut().end_move(now, region, MoveEnd::Done);
        }
    }

    /// How the map is to pin the pages of `extent`, as the table has it.
    pub(crate) fn update_pin(&self, cache: &Cache, extent: u32) {
        // The published mover demotes a region whole.
        let published = self.settings.borrow().tier.mover == Mover::Published;
        let (pages, pinned) = {
            let table = cache.tier.table.borrow();
            let pinned = match table.place(extent) {
                Place::Slow => Pinned::No,
                Place::Fast if published || table.wants(extent) => Pinned::Hot,
                Place::Fast | Place::Demoting => Pinned::Cold,
            };
            (table.pages_of(extent), pinned)
        };
        let mut map = cache.map.borrow_mut();
        map.set_pinned(pages.start, pages.end, pinned);
    }
}

/// Bytes of each region on the fast device, regions without left out.
fn resident(cache: &Cache) -> Vec<(Region, Bytes)> {
    let units = cache.tier.table.borrow().region_bytes().0 / (UNIT_PAGES * PAGE);
    let map = cache.map.borrow();
    let sums = map.residents().chunks(units as usize).map(|chunk| {
        let pages: u64 = chunk.iter().map(|count| u64::from(*count)).sum();
        Bytes(pages * PAGE)
    });
    (0..)
        .zip(sums)
        .filter(|(_, bytes)| bytes.0 > 0)
        .map(|(region, bytes)| (Region::at(region), bytes))
        .collect()
}
