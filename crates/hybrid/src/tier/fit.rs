//! The tier when something else changes: a start, other choices, another size.
//!
//! Always true:
//! 1. What is fast stays fast through a change of choices, as far as the new ones have room for it.
//! 2. Without a tier no page is pinned.

use std::collections::BTreeMap;
use std::rc::Rc;

use policy::tier::{Region, Way};

use super::copy::copy_missing;
use super::demote::demote;
use super::promote::{not_promoted, promote_some, promote_soon};
use super::{MoveEnd, Tier, policy_of};
use crate::attach::label::PAGE;
use crate::hold::make_room_beside;
use crate::index::extents::{ExtentRecord, ExtentTable};
use crate::interpose::Interpose;
use crate::settings::{Mode, Mover, Settings};

/// After a restart: what `kept` names is fast again.
pub(crate) fn restore_tier(tier: &Rc<Tier>, kept: &BTreeMap<u32, ExtentRecord>) {
    let cache = &tier.cache;
    let room = tier.room();
    cache.state.extents.borrow_mut().restore(kept, room);
    let up: Vec<u32> = cache.state.extents.borrow().fast().collect();
    for extent in &up {
        tier.update_pin(*extent);
    }
    let reserved = cache.state.extents.borrow().reserved();
    cache.room.hold(reserved);
    // Dirty blocks that are in the way go when they are clean.
    make_room_beside(cache, reserved);
    let wanted: Vec<Region> = cache.state.extents.borrow().wanted().collect();
    tier.policy.borrow_mut().adopt(&wanted);
    for extent in up {
        copy_missing(tier, extent);
        tier.move_missing(extent);
    }
    if !kept.is_empty() {
        cache.commit.note();
    }
}

/// The tasks of a cache begin: statistics from now on, pinned ranges promoted.
pub(crate) fn begin_tier(tier: &Rc<Tier>) {
    tier.stats.borrow_mut().restart(env::now());
    fit_tier(tier);
}

/// Takes over changed choices.
pub(crate) fn apply_tier(tier: &Rc<Tier>, old: &Settings) {
    let cache = &tier.cache;
    let new = cache.volume.settings.borrow().clone();
    if new.mode == old.mode && new.tier == old.tier {
        return;
    }
    if new.mode == Mode::Cache || new.tier.extent != old.tier.extent {
        let kept: BTreeMap<u32, ExtentRecord> = cache.state.extents.borrow().all_kept().collect();
        release_all(tier);
        let fresh = ExtentTable::new(cache.volume.slow.whole_pages(), &new.tier);
        cache.state.extents.borrow_mut().regrain(fresh);
        restore_tier(tier, &kept);
    } else {
        cache.state.extents.borrow_mut().set(&new.tier);
    }
    if (new.tier.policy, new.tier.region) != (old.tier.policy, old.tier.region) {
        *tier.policy.borrow_mut() = policy_of(&new.tier);
        tier.movers.queue.forget();
        let wanted: Vec<Region> = cache.state.extents.borrow().wanted().collect();
        tier.policy.borrow_mut().adopt(&wanted);
    } else if new.tier.parameters != old.tier.parameters {
        let mut policy = tier.policy.borrow_mut();
        policy.set_parameters(new.tier.parameters);
    }
    let same_extents = new.tier.extent == old.tier.extent;
    let same_regions = new.tier.region == old.tier.region;
    if new.tier.parameters != old.tier.parameters || !same_extents || !same_regions {
        let mut stats = tier.stats.borrow_mut();
        if !same_regions {
            // Their numbers mean other places now. What is being copied goes on, for the new regions.
            stats.end_all(env::now(), MoveEnd::Cancelled);
        }
        stats.set(&new.tier.parameters, same_extents, same_regions);
    }
    if new.mode.has_tier() && !old.mode.has_tier() {
        tier.stats.borrow_mut().restart(env::now());
    }
    fit_tier(tier);
    tier.movers.wake();
}

/// Every extent lives on the slow device from now on; its pages are ordinary pages of the cache.
fn release_all(tier: &Tier) {
    let cache = &tier.cache;
    let gone = cache.state.extents.borrow_mut().clear();
    tier.jobs.borrow_mut().clear();
    tier.movers.queue.forget();
    for extent in gone {
        tier.update_pin(extent);
    }
    cache.room.hold(0);
    cache.commit.note();
    let now = env::now();
    tier.stats.borrow_mut().end_all(now, MoveEnd::Cancelled);
}

/// Pins, exclusions or room changed: what may not be fast any more is demoted, what must be fast is promoted.
pub(crate) fn fit_tier(tier: &Rc<Tier>) {
    let cache = &tier.cache;
    if !cache.volume.has_tier() {
        return;
    }
    tier.jobs.borrow_mut().make_hope();
    tier.shut.set(tier.opens_in().is_some());
    let up: Vec<u32> = cache.state.extents.borrow().fast().collect();
    for extent in up {
        if cache.state.extents.borrow().is_excluded(extent) {
            demote(tier, extent);
        } else {
            tier.update_pin(extent);
            copy_missing(tier, extent);
            tier.move_missing(extent);
        }
    }
    shed(tier);
    let pinned = cache.state.extents.borrow().pinned();
    for extent in pinned {
        promote_soon(tier, extent);
    }
    let wanted: Vec<Region> = cache.state.extents.borrow().wanted().collect();
    for region in wanted {
        let extents = cache.state.extents.borrow().grains.extents_of(region);
        let mover = cache.volume.settings.borrow().tier.mover;
        match mover {
            Mover::Direct => promote_some(tier, extents),
            Mover::Published => tier.movers.queue.decide(region, Way::Up),
        }
    }
    let room = tier.room();
    let regions = {
        let table = cache.state.extents.borrow();
        // Where extents go up one by one a region takes what it needs, and no more is known beforehand; and
        // a boundary that follows the demand has to see it.
        let whole = table.grains.one_grain() || !cache.volume.settings.borrow().tier.break_even;
        match whole && !tier.splits() {
            true => (room / (table.grains.region_bytes().0 / PAGE))
                .min(u64::from(table.grains.regions())) as u32,
            false => table.grains.regions(),
        }
    };
    tier.policy.borrow_mut().set_room(regions);
}

/// The tier has more than it may have: the coldest extents are demoted, idle ones first.
pub(crate) fn shed(tier: &Rc<Tier>) {
    let cache = &tier.cache;
    let room = tier.room();
    let mut staying = {
        let table = cache.state.extents.borrow();
        let up = table.fast().map(|extent| table.grains.pages_of(extent));
        up.map(|pages| pages.end - pages.start).sum::<u64>()
    };
    if staying <= room {
        return;
    }
    for extent in tier.coldest_fast(usize::MAX) {
        if staying <= room {
            break;
        }
        let pages = cache.state.extents.borrow().grains.pages_of(extent);
        staying -= pages.end - pages.start;
        demote(tier, extent);
        not_promoted(tier, extent);
    }
}
