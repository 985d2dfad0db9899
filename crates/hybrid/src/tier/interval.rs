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
use policy::tier::{Interval, Region, Way};

use super::copy::review_copies;
use super::demote::demote;
use super::fit::{fit_tier, shed};
use super::promote::promote_some;
use super::{MoveEnd, Tier};
use crate::attach::label::PAGE;
use crate::index::extents::Place;
use crate::index::page_map::UNIT_PAGES;
use crate::settings::Mover;
use crate::stats::count;

/// The task that ends intervals.
pub(crate) async fn interval_loop(tier: Rc<Tier>) {
    let cache = &tier.cache;
    while !cache.stopped.get() && cache.is_running() {
        let changed = tier.movers.changed.wait();
        if !cache.volume.has_tier() {
            changed.await;
            continue;
        }
        let period = cache.volume.settings.borrow().tier.parameters.period;
        let due = tier.stats.borrow().start() + period;
        let left = due.since(env::now());
        if left > Nanos(0) {
            let _ = env::timeout(left, changed).await;
            continue;
        }
        end_interval(&tier);
    }
}

fn end_interval(tier: &Rc<Tier>) {
    let cache = &tier.cache;
    let closed = tier.stats.borrow_mut().close(env::now());
    let own = cache.volume.settings.borrow().tier.parameters;
    if let Some(parameters) = cache.volume.limited.parameters(own) {
        tier.policy.borrow_mut().set_parameters(parameters);
    }
    let decision = tier.policy.borrow_mut().step(&Interval {
        number: closed.number,
        length: closed.length,
        counts: &closed.counts,
    });
    let length = closed.length;
    let resident = resident(tier);
    let up = cache.state.extents.borrow().regions_up();
    tier.stats
        .borrow_mut()
        .keep(closed, &decision, resident, up);
    let open = tier.opens_in().is_none();
    let opened = open && tier.shut.get();
    tier.shut.set(!open);
    move_boundary(tier, length);
    if open {
        shed(tier);
    }
    for mv in decision.moves.iter().filter(|mv| mv.way == Way::Down) {
        demote_region(tier, mv.region, mv.why.to_string());
    }
    if open {
        demote_idle(tier);
    }
    for mv in decision.moves.iter().filter(|mv| mv.way == Way::Up) {
        match open {
            true => promote_region(tier, mv.region, mv.why.to_string()),
            false => tier.policy.borrow_mut().withdrawn(mv.region),
        }
    }
    if opened {
        // What was promoted before, or was fast at the start, had to wait.
        fit_tier(tier);
    }
    review_copies(tier);
}

/// What is fast and not wanted is demoted now, if the choices say so. The published mover has no lazy way.
pub(crate) fn demote_idle(tier: &Rc<Tier>) {
    let cache = &tier.cache;
    let (lazy, mover) = {
        let settings = cache.volume.settings.borrow();
        (settings.tier.demotion.lazy, settings.tier.mover)
    };
    let idle: Vec<u32> = cache.state.extents.borrow().idle().collect();
    for extent in idle {
        match mover {
            Mover::Published => {
                let region = cache.state.extents.borrow().grains.region_of(extent);
                tier.movers.queue.decide(region, Way::Down);
            }
            Mover::Direct if lazy => {}
            Mover::Direct => demote(tier, extent),
        }
    }
}

/// The policy promotes `region`.
pub(crate) fn promote_region(tier: &Rc<Tier>, region: Region, why: String) {
    let cache = &tier.cache;
    cache.state.extents.borrow_mut().want(region, true);
    count(&tier.counts.moves_up, 1);
    let (now, region_len) = (
        env::now(),
        cache.state.extents.borrow().grains.region_bytes(),
    );
    tier.stats
        .borrow_mut()
        .begin_move(now, (region, region_len), Way::Up, why);
    let extents = cache.state.extents.borrow().grains.extents_of(region);
    for extent in extents.clone() {
        if cache.state.extents.borrow().place(extent) == Place::Fast {
            tier.update_pin(extent);
        }
    }
    let mover = cache.volume.settings.borrow().tier.mover;
    match mover {
        Mover::Direct => promote_some(tier, extents),
        Mover::Published => tier.movers.queue.decide(region, Way::Up),
    }
}

/// The policy demotes `region`: its extents are idle until their room is needed, or are demoted when this interval
/// has been worked through.
pub(crate) fn demote_region(tier: &Rc<Tier>, region: Region, why: String) {
    let cache = &tier.cache;
    cache.state.extents.borrow_mut().want(region, false);
    count(&tier.counts.moves_down, 1);
    let given_up = tier.stats.borrow_mut().way_of(region) == Some(Way::Up);
    count(&tier.counts.cancelled, u64::from(given_up));
    let (now, region_len) = (
        env::now(),
        cache.state.extents.borrow().grains.region_bytes(),
    );
    tier.stats
        .borrow_mut()
        .begin_move(now, (region, region_len), Way::Down, why);
    let extents = cache.state.extents.borrow().grains.extents_of(region);
    let mut any = false;
    for extent in extents {
        tier.jobs.borrow_mut().forget(extent);
        if cache.state.extents.borrow().place(extent) == Place::Fast {
            tier.update_pin(extent);
            any |= !cache.state.extents.borrow().is_pinned(extent);
        }
    }
    if !any {
        tier.stats.borrow_mut().end_move(now, region, MoveEnd::Done);
    }
}

/// Bytes of each region on the fast device, regions without left out.
fn resident(tier: &Tier) -> Vec<(Region, Bytes)> {
    let cache = &tier.cache;
    let units = cache.state.extents.borrow().grains.region_bytes().0 / (UNIT_PAGES * PAGE);
    let map = cache.state.map();
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

/// At the end of an interval of length `over`: moves the boundary between tier and cache.
fn move_boundary(tier: &Tier, over: Nanos) {
    if !tier.splits() {
        return;
    }
    let (table, stats) = (tier.cache.state.extents.borrow(), tier.stats.borrow());
    let cache_pages = tier.cache.room.cache_pages();
    let mut boundary = tier.boundary.borrow_mut();
    boundary.sample(
        over,
        cache_pages,
        table.grains.extent_pages(),
        table.fast(),
        |extent| stats.heat(extent),
    );
}
