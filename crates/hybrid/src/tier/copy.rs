//! Copies of what is missing of extents that are fast.
//!
//! ```text
//! hottest extent -> the parts touched first -> slow read -> fast write -> mapped, unless written meanwhile
//! ```
//!
//! A copy is a fill like that of a read: a write of one of its pages makes it void.

use std::ops::Range;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector};
use device::Class;
use policy::tier::worth::{Costs, Waiting, Worth};
use policy::tier::{Region, Way};

use super::flow::pace;
use super::stats::Stats;
use super::{LOOK_AT_REST, MoveEnd, Tier};
use crate::attach::label::PAGE;
use crate::fill::FillToken;
use crate::index::extents::{ExtentTable, Place};
use crate::stats::count;

/// Pages copied with one request at most.
const CHUNK_PAGES: u64 = 256;
/// Parts of an extent that are counted apart.
const PARTS: u64 = 64;
/// A part is at least so many pages.
const PART_PAGES_MIN: u64 = 4;
/// After a copy that found no slots the mover rests this long.
const REST: Nanos = Nanos::millis(10);
/// ... and this long if the day's budget of flash writes is used up.
const BUDGET_REST: Nanos = Nanos::secs(60);

/// What there is to copy next.
enum Look {
    Chunk(u32, Range<u64>),
    /// Nothing of this extent, and others were not looked at.
    Finished(u32),
}

/// Pages of a part of an extent of `extent` pages.
pub(crate) fn part_pages(extent: u64) -> u64 {
    (extent / PARTS).max(PART_PAGES_MIN)
}

/// If pages of `extent`, which is fast, are missing and worth it, they are to be copied.
pub(crate) fn copy_missing(tier: &Tier, extent: u32) {
    let cache = &tier.cache;
    if !tier.moves_directly(extent) {
        return;
    }
    let copies = {
        let table = cache.state.extents.borrow();
        let known = tier.jobs.borrow().copies.contains_key(&extent);
        !known && table.place(extent) == Place::Fast && table.wants(extent)
    };
    if copies && tier.may_begin(extent) && is_worth_copying(tier, extent) {
        let mut jobs = tier.jobs.borrow_mut();
        jobs.copies.insert(extent, 0);
        jobs.order.push_front(extent);
        tier.movers.promote_work.notify_all();
    }
}

/// What is known of an extent that misses pages; `None` if none is missing.
fn waiting(tier: &Tier, extent: u32) -> Option<Waiting> {
    let cache = &tier.cache;
    let (table, stats) = (cache.state.extents.borrow(), tier.stats.borrow());
    let pages = table.grains.pages_of(extent);
    let resident = cache.state.map().resident_in(pages.start, pages.end);
    let missing = (pages.end - pages.start).saturating_sub(resident);
    (missing > 0).then(|| Waiting {
        extent,
        missing: Bytes(missing * PAGE),
        reads: stats.missed(extent) + expected_reads(&table, &stats, extent),
        rest: stats.rest(table.grains.region_of(extent)),
    })
}

/// Reads a second that an extent may expect for lying where it does: its part of those of its region.
///
/// Choice: hot places move on to their neighbours within minutes (AST 2.1), so where an extent has been touched once
/// and its region is hot, more will come than were seen: these are added.
fn expected_reads(table: &ExtentTable, stats: &Stats, extent: u32) -> f64 {
    let region = table.grains.region_of(extent);
    match table.wants_region(region) {
        true => stats.missed_in(region) / table.grains.extents_of(region).len() as f64,
        false => 0.0,
    }
}

/// What things cost, as far as it was measured.
fn costs(tier: &Tier) -> Costs {
    let default = Costs::default();
    let measured = tier.pace.borrow().unloaded();
    Costs {
        slow_read: measured.unwrap_or(default.slow_read),
        ..default
    }
}

/// Choice: with break-even an extent is copied when the reads it is expected to save cost more than the copy; a
/// pinned one, or any without break-even, in any case.
fn is_worth_copying(tier: &Tier, extent: u32) -> bool {
    let cache = &tier.cache;
    let Some(waiting) = waiting(tier, extent) else {
        return false;
    };
    let weighs = cache.volume.settings.borrow().tier.break_even;
    !weighs
        || cache.state.extents.borrow().is_pinned(extent)
        || Worth::default().begins(&costs(tier), &waiting)
}

/// At the end of an interval: copies in a new order, those that have cooled given up.
pub(crate) fn review_copies(tier: &Rc<Tier>) {
    let cache = &tier.cache;
    let running: Vec<u32> = tier.jobs.borrow().copies.keys().copied().collect();
    let weighs = cache.volume.settings.borrow().tier.break_even;
    let costs = costs(tier);
    for extent in running.into_iter().filter(|_| weighs) {
        let cooled = waiting(tier, extent)
            .is_some_and(|waiting| Worth::default().has_cooled(&costs, &waiting));
        if cooled && !cache.state.extents.borrow().is_pinned(extent) {
            tier.jobs.borrow_mut().copies.remove(&extent);
            let region = cache.state.extents.borrow().grains.region_of(extent);
            let mut stats = tier.stats.borrow_mut();
            stats.give_up(region, MoveEnd::Cancelled);
        }
    }
    {
        let mut jobs = tier.jobs.borrow_mut();
        jobs.order.clear();
        jobs.cold.clear();
        jobs.make_hope();
    }
    let up: Vec<u32> = cache.state.extents.borrow().fast().collect();
    for extent in up {
        if tier.stats.borrow().missed(extent) > 0.0 {
            copy_missing(tier, extent);
        }
    }
    let going: Vec<Region> = tier.stats.borrow_mut().going_up();
    for region in going {
        settle_move(tier, region);
    }
    tier.movers.promote_work.notify_all();
}

/// The task that copies what is missing of extents that are fast.
pub(crate) async fn copy_loop(tier: Rc<Tier>) {
    let cache = &tier.cache;
    while !cache.stopped.get() && cache.is_running() {
        let work = tier.movers.promote_work.wait();
        let Some((extent, pages)) = next_chunk(&tier) else {
            work.await;
            continue;
        };
        if cache.volume.is_at_rest() {
            let _ = env::timeout(LOOK_AT_REST, work).await;
            continue;
        }
        pace(&tier, Bytes((pages.end - pages.start) * PAGE)).await;
        if !copy_chunk(&tier, extent, pages).await {
            env::sleep(REST).await;
        }
    }
}

/// The next missing pages to copy.
fn next_chunk(tier: &Tier) -> Option<(u32, Range<u64>)> {
    let cache = &tier.cache;
    loop {
        match look_for_chunk(tier)? {
            Look::Chunk(extent, pages) => return Some((extent, pages)),
            Look::Finished(extent) => {
                let region = cache.state.extents.borrow().grains.region_of(extent);
                settle_move(tier, region);
            }
        }
    }
}

fn look_for_chunk(tier: &Tier) -> Option<Look> {
    let cache = &tier.cache;
    let mut jobs = tier.jobs.borrow_mut();
    let (table, stats) = (cache.state.extents.borrow(), tier.stats.borrow());
    loop {
        jobs.put_in_order(|extent| stats.heat(extent));
        let extent = *jobs.order.front()?;
        let Some(done) = jobs.copies.get(&extent).copied() else {
            jobs.order.pop_front();
            continue;
        };
        let pages = table.grains.pages_of(extent);
        let part_len = part_pages(table.grains.extent_pages());
        let parts = (pages.end - pages.start).div_ceil(part_len);
        let all = if parts >= 64 {
            u64::MAX
        } else {
            (1 << parts) - 1
        };
        let left = all & !done;
        let map = cache.state.map();
        let finished = table.place(extent) != Place::Fast
            || left == 0
            || map.resident_in(pages.start, pages.end) == pages.end - pages.start;
        if finished {
            jobs.copies.remove(&extent);
            jobs.order.pop_front();
            return Some(Look::Finished(extent));
        }
        // Parts that users touched go first.
        let touched = left & stats.parts(extent);
        let part = u64::from((if touched != 0 { touched } else { left }).trailing_zeros());
        let first = pages.start + part * part_len;
        let end = (first + part_len).min(pages.end);
        let alone = touched != 0;
        let (upto, next) = match alone {
            true => (end, part + 1),
            false => with_neighbours(&pages, part_len, left, part),
        };
        match (first..upto).find(|page| map.find(*page).is_none()) {
            None => {
                let entry = jobs.copies.get_mut(&extent).expect("looked up above");
                (part..next).for_each(|part| *entry |= 1 << part);
            }
            Some(from) => {
                let most = upto.min(from + CHUNK_PAGES);
                let to = (from..most).find(|page| map.find(*page).is_some());
                return Some(Look::Chunk(extent, from..to.unwrap_or(most)));
            }
        }
    }
}

/// Neighbouring parts that are `left` go along with `part` while they fit one request. Returns where they end, in pages,
/// and the first part behind them.
fn with_neighbours(pages: &Range<u64>, part_len: u64, left: u64, part: u64) -> (u64, u64) {
    let parts = (pages.end - pages.start).div_ceil(part_len);
    let first = pages.start + part * part_len;
    let mut upto = (first + part_len).min(pages.end);
    let mut next = part + 1;
    while next < parts && left >> next & 1 == 1 {
        let more = (upto + part_len).min(pages.end);
        if more - first > CHUNK_PAGES {
            break;
        }
        upto = more;
        next += 1;
    }
    (upto, next)
}

/// If nothing more is to be promoted or copied for `region`, its way up is over.
fn settle_move(tier: &Tier, region: Region) {
    let cache = &tier.cache;
    // The published mover ends its own.
    if tier.movers.queue.last_decided(region).is_some() {
        return;
    }
    let pending = {
        let (table, jobs) = (cache.state.extents.borrow(), tier.jobs.borrow());
        table
            .grains
            .extents_of(region)
            .any(|extent| jobs.copies.contains_key(&extent) || jobs.waiting.contains(&extent))
    };
    let mut stats = tier.stats.borrow_mut();
    if pending || stats.way_of(region) != Some(Way::Up) {
        return;
    }
    match stats.settle_move(env::now(), region) {
        Some(MoveEnd::Cancelled) => count(&tier.counts.cancelled, 1),
        Some(MoveEnd::Failed) => count(&tier.counts.failed, 1),
        _ => {}
    }
}

/// Copies `pages`, none of which was mapped just now. False if it could not be done now.
async fn copy_chunk(tier: &Rc<Tier>, extent: u32, pages: Range<u64>) -> bool {
    let cache = &tier.cache;
    let bytes = Bytes((pages.end - pages.start) * PAGE);
    if !cache.volume.flash_budget_allows(bytes) {
        env::sleep(BUDGET_REST).await;
        return false;
    }
    // Users went on while this copy waited for its turn: what they wrote is newer than what would be read.
    let stands = {
        let map = cache.state.map();
        cache.state.extents.borrow().place(extent) == Place::Fast
            && pages.clone().all(|page| map.find(page).is_none())
    };
    if !stands {
        return true;
    }
    let Some(fill) = FillToken::begin(cache, pages.start, pages.end) else {
        return false;
    };
    let at = Sector::containing(pages.start * PAGE);
    let read = cache
        .volume
        .slow
        .read(at, Buf::for_read(bytes.usize()), Class::Background)
        .await;
    let answer = match read {
        Ok(buf) => {
            fill.copy(buf.freeze()).await;
            true
        }
        Err(error) => {
            tracing::warn!(volume = %cache.volume.name, %error, "a copy to the fast device was given up");
            false
        }
    };
    drop(fill);
    let copied = {
        let map = cache.state.map();
        pages
            .clone()
            .filter(|page| map.find(*page).is_some())
            .count() as u64
    };
    if !answer {
        // What cannot be read stays where it is.
        tier.jobs.borrow_mut().copies.remove(&extent);
        let region = cache.state.extents.borrow().grains.region_of(extent);
        tier.stats.borrow_mut().give_up(region, MoveEnd::Failed);
        return false;
    }
    count(&tier.counts.bytes_promoted, copied * PAGE);
    let region = cache.state.extents.borrow().grains.region_of(extent);
    tier.stats.borrow_mut().copied(region, Bytes(copied * PAGE));
    copied > 0
}
