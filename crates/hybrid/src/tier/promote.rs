//! The direct mover: how an extent is promoted while users read and write.
//!
//! ```text
//! promote: reserve room (the cache gives way) -> fast at once: writes go to the fast device, what is read is copied
//! copy:    hottest extent -> the parts touched first -> slow read -> fast write -> mapped, unless written meanwhile
//! ```
//!
//! Nothing waits for a copy: an extent is fast from the moment its room is reserved. A copy is a fill like that of
//! a read: a write of one of its pages makes it void.
//!
//! Always true:
//! 1. An extent is promoted only when there is room for all of it; but for a pinned one, only in a window of the day
//!    in which moves may begin.
//! 2. A copied page is mapped only if it was not written since the copy began.

use std::ops::Range;
use std::rc::Rc;

use base::Nanos;

use super::copy::copy_missing;
use super::demote::demote;
use super::{MoveEnd, Tier};
use crate::hold::make_room_beside;
use crate::index::extents::Place;
use crate::stats::count;

/// How often to look whether demoting extents have made room.
const ROOM_PERIOD: Nanos = Nanos::millis(100);
/// So many of the coldest extents are looked at when room is needed.
const VICTIMS: usize = 1024;
/// A wanted extent gives way to one that is so many times as hot.
const COOLER: f64 = 2.0;
/// When room is needed, this part of all of it is made from idle extents.
const AHEAD: u64 = 64;

/// What became of an attempt to promote an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promoted {
    Yes,
    /// The tier is full.
    Full,
    /// The cache has to destage dirty pages first.
    Later,
}

/// Raises the extents of a region as the settings say: all of them, or those that are warm.
pub(crate) fn promote_some(tier: &Rc<Tier>, extents: Range<u32>) {
    let cache = &tier.cache;
    let all = cache.state.extents.borrow().grains.one_grain()
        || !cache.volume.settings.borrow().tier.break_even;
    let mut chosen: Vec<(f64, u32)> = {
        let (table, stats) = (cache.state.extents.borrow(), tier.stats.borrow());
        extents
            .filter(|extent| table.wants(*extent))
            .map(|extent| (stats.heat(extent), extent))
            .filter(|(heat, _)| all || *heat > 0.0)
            .collect()
    };
    chosen.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    for (_, extent) in chosen {
        promote_soon(tier, extent);
    }
}

/// Raises `extent` now if that needs no waiting, else as soon as there is room.
pub(crate) fn promote_soon(tier: &Rc<Tier>, extent: u32) {
    let cache = &tier.cache;
    let jobs = &tier.jobs;
    if jobs.borrow().waiting.contains(&extent) || !tier.may_begin(extent) {
        return;
    }
    if jobs.borrow().full && !cache.state.extents.borrow().is_pinned(extent) {
        tier.boundary.borrow_mut().refuse(extent);
        return;
    }
    let in_line = !jobs.borrow().promotions.is_empty();
    if in_line || try_promote(tier, extent) != Promoted::Yes {
        let mut jobs = jobs.borrow_mut();
        jobs.waiting.insert(extent);
        jobs.promotions.push_back(extent);
        tier.movers.promote_work.notify_all();
    }
}

fn try_promote(tier: &Rc<Tier>, extent: u32) -> Promoted {
    let promoted = promote_alone(tier, extent);
    if promoted == Promoted::Yes {
        copy_missing(tier, extent);
    }
    promoted
}

/// As `try_promote`, and nothing is copied for it.
pub(crate) fn promote_alone(tier: &Rc<Tier>, extent: u32) -> Promoted {
    let cache = &tier.cache;
    let (place, pages, reserved) = {
        let table = cache.state.extents.borrow();
        (
            table.place(extent),
            table.grains.pages_of(extent),
            table.reserved(),
        )
    };
    match place {
        Place::Fast => return Promoted::Yes,
        // Its room may be what had to be given back.
        Place::Demoting if reserved > tier.room() => return Promoted::Full,
        Place::Demoting => {}
        Place::Slow => {
            let reserved = reserved + (pages.end - pages.start);
            if reserved > tier.room() {
                return Promoted::Full;
            }
            if !make_room_beside(cache, reserved) {
                return Promoted::Later;
            }
            cache.room.hold(reserved);
        }
    }
    cache.state.extents.borrow_mut().promote(extent);
    cache.commit.note();
    tier.update_pin(extent);
    Promoted::Yes
}

// --- promotion ----------------------------------------------------------------------------------

/// The task that promotes what has to wait for room.
pub(crate) async fn promote_loop(tier: Rc<Tier>) {
    let cache = &tier.cache;
    while !cache.stopped.get() && cache.is_running() {
        let work = tier.movers.promote_work.wait();
        let next = tier.jobs.borrow().promotions.front().copied();
        let Some(extent) = next else {
            work.await;
            continue;
        };
        let room = cache.room.wait();
        let wanted = cache.state.extents.borrow().wants(extent) && tier.may_begin(extent);
        let promoted = match wanted {
            true => try_promote(&tier, extent),
            false => Promoted::Yes,
        };
        match promoted {
            Promoted::Yes => tier.jobs.borrow_mut().leave_line(extent),
            Promoted::Later => {
                // Users are not to wait for it: the cleaner goes on unhurried.
                cache.destaging.wanting.set(true);
                cache.destaging.work.notify_all();
                room.await;
                cache.destaging.wanting.set(false);
            }
            Promoted::Full => {
                if make_tier_room(&tier, extent) {
                    // An extent that is demoted wakes this task.
                    let _ = env::timeout(ROOM_PERIOD, room).await;
                } else {
                    tier.jobs.borrow_mut().full = true;
                    tier.boundary.borrow_mut().refuse(extent);
                    tier.jobs.borrow_mut().leave_line(extent);
                    not_promoted(&tier, extent);
                }
            }
        }
    }
}

/// There is no room for `extent`: if nothing of its region is fast, the policy hears of it.
pub(crate) fn not_promoted(tier: &Tier, extent: u32) {
    let cache = &tier.cache;
    let region = cache.state.extents.borrow().grains.region_of(extent);
    let any_up = {
        let table = cache.state.extents.borrow();
        table
            .grains
            .extents_of(region)
            .any(|extent| table.place(extent) != Place::Slow)
    };
    if any_up || !cache.state.extents.borrow().wants_region(region) {
        return;
    }
    cache.state.extents.borrow_mut().want(region, false);
    tier.policy.borrow_mut().withdrawn(region);
    let mut stats = tier.stats.borrow_mut();
    stats.end_move(env::now(), region, MoveEnd::Cancelled);
    count(&tier.counts.cancelled, 1);
}

/// Makes room for `extent`: demotes what is idle, the coldest first. False if nothing can go.
fn make_tier_room(tier: &Rc<Tier>, extent: u32) -> bool {
    let cache = &tier.cache;
    let (needed, room) = {
        let table = cache.state.extents.borrow();
        let pages = table.grains.pages_of(extent);
        (pages.end - pages.start, tier.room())
    };
    let (demoting, reserved, pinned, heat) = {
        let (table, stats) = (cache.state.extents.borrow(), tier.stats.borrow());
        let demoting = table.demoting().map(|extent| table.grains.pages_of(extent));
        (
            demoting.map(|pages| pages.end - pages.start).sum::<u64>(),
            table.reserved(),
            table.is_pinned(extent),
            stats.heat(extent),
        )
    };
    let mut leaving = demoting;
    // There may be tens of thousands: they are looked over again only when what is left of the last look does
    // not help.
    let mut looked = false;
    while let Some(other) = next_cold(tier, &mut looked) {
        let may = {
            let (table, stats) = (cache.state.extents.borrow(), tier.stats.borrow());
            let cooler = stats.heat(other) * COOLER < heat;
            !table.wants(other) || !table.is_pinned(other) && (pinned || cooler)
        };
        // What is idle goes a little ahead of need, what is wanted only for this one.
        let ahead = match cache.state.extents.borrow().wants(other) {
            true => 0,
            false => room / AHEAD,
        };
        if reserved + needed + ahead <= room + leaving || !may && looked {
            break;
        }
        tier.jobs.borrow_mut().cold.pop_front();
        if !may {
            continue;
        }
        let pages = cache.state.extents.borrow().grains.pages_of(other);
        leaving += pages.end - pages.start;
        demote(tier, other);
    }
    leaving > 0
}

/// The extent to demote first of those that are fast. `looked` says whether all were looked over.
fn next_cold(tier: &Tier, looked: &mut bool) -> Option<u32> {
    let cache = &tier.cache;
    loop {
        {
            let (table, mut jobs) = (cache.state.extents.borrow(), tier.jobs.borrow_mut());
            while let Some(extent) = jobs.cold.front().copied() {
                if table.place(extent) == Place::Fast {
                    return Some(extent);
                }
                jobs.cold.pop_front();
            }
        }
        if std::mem::replace(looked, true) {
            return None;
        }
        let cold = tier.coldest_fast(VICTIMS);
        tier.jobs.borrow_mut().cold = cold.into();
    }
}
