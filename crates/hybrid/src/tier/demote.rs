//! How an extent is demoted: clean pages are dropped, dirty ones destaged first.
//!
//! ```text
//! Fast -> Demoting: nothing new is copied to it, writes go past
//!    -> drop clean pages -> a round of the cleaner over the dirty ones -> drop those -> ... -> Slow
//! ```
//!
//! Rounds are the cleaner's: map entry durable first, slow device flushed before "clean".
//!
//! Always true:
//! 1. A dirty page leaves the fast device only after it was destaged and the slow device was flushed.

use std::ops::Range;
use std::rc::Rc;

use base::{Bytes, Nanos};
use device::DeviceError;
use policy::tier::Way;

use super::flow::pace;
use super::{MoveEnd, Tier};
use crate::attach::label::PAGE;
use crate::index::extents::Place;
use crate::index::locks::Mode as Lock;
use crate::index::page_map::{REGION_PAGES, UNIT_PAGES};
#[cfg(test)]
use crate::mutation::Mutation;
use crate::settings::CopyBack;
use crate::stats::count;
use crate::writeback::{Run, destage_runs, run_max};

/// Pages destaged in one round at most.
const ROUND_PAGES: usize = 1024;
/// Clean pages dropped at a time; others have their turn between.
const DROP_PAGES: u64 = 4096;
/// After so many rounds in which users were faster, they have to wait for one.
const ROUNDS_BEFORE_LOCK: u32 = 8;
/// After a failed round.
const FAILURE_REST: Nanos = Nanos::secs(1);

/// `extent`, which is fast, begins to be demoted.
pub(crate) fn demote(tier: &Rc<Tier>, extent: u32) {
    let cache = &tier.cache;
    begin_demoting(tier, extent);
    let pages = cache.state.extents.borrow().grains.pages_of(extent);
    // What is longer is left to the task.
    if pages.end - pages.start <= DROP_PAGES {
        drop_unneeded(tier, pages);
        note_emptied(tier, extent);
    }
    tier.movers.demote_work.notify_all();
}

/// `extent`, which is fast, is demoting from now on.
pub(crate) fn begin_demoting(tier: &Rc<Tier>, extent: u32) {
    let cache = &tier.cache;
    tier.jobs.borrow_mut().forget(extent);
    cache.state.extents.borrow_mut().demote(extent);
    cache.commit.note();
    tier.update_pin(extent);
    let pages = cache.state.extents.borrow().grains.pages_of(extent);
    cache.cancel_copies(pages.start, pages.end);
}

/// Drops what need not be destaged.
fn drop_unneeded(tier: &Tier, pages: Range<u64>) {
    let cache = &tier.cache;
    #[cfg(test)]
    if cache.volume.planted(Mutation::RecordFirst) {
        return pages.for_each(|page| cache.unmap_page(page));
    }
    if cache.volume.settings.borrow().tier.demotion.copy_back != CopyBack::All {
        return drop_clean(tier, pages);
    }
    let goes = |page: &u64| {
        let entry = cache.state.map().get(*page);
        entry.is_some_and(|entry| !entry.dirty) && is_marked(tier, *page)
    };
    pages.filter(goes).for_each(|page| cache.unmap_page(page));
}

/// Calls `drop` with the pages of `extent` while it is demoting, some at a time.
async fn by_turns(tier: &Tier, extent: u32, drop: impl Fn(Range<u64>)) {
    let cache = &tier.cache;
    let pages = cache.state.extents.borrow().grains.pages_of(extent);
    for first in pages.clone().step_by(DROP_PAGES as usize) {
        if first > pages.start {
            env::yield_now().await;
        }
        let is_demoting = cache.state.extents.borrow().place(extent) == Place::Demoting;
        if !is_demoting || cache.stopped.get() || !cache.is_running() {
            return;
        }
        drop(first..(first + DROP_PAGES).min(pages.end));
    }
}

/// Drops the clean pages of `extent`, which is demoting; where nothing is copied back, all of them.
pub(crate) async fn drop_all_clean(tier: &Tier, extent: u32) {
    by_turns(tier, extent, |pages| drop_clean(tier, pages)).await;
}

fn drop_clean(tier: &Tier, pages: Range<u64>) {
    let cache = &tier.cache;
    let copy_back = cache.volume.settings.borrow().tier.demotion.copy_back;
    let mut dropped = 0;
    let mut unit = pages.start;
    while unit < pages.end {
        let end = ((unit / UNIT_PAGES + 1) * UNIT_PAGES).min(pages.end);
        // Most of a large region has no pages here, and each lookup costs.
        let is_empty = cache.state.map().resident_in(unit, end) == 0;
        for page in unit..if is_empty { unit } else { end } {
            let entry = cache.state.map().get(page);
            if entry.is_some_and(|entry| !entry.dirty || copy_back == CopyBack::Nothing) {
                cache.unmap_page(page);
                dropped += PAGE;
            }
        }
        unit = end;
    }
    count(&tier.counts.bytes_dropped, dropped);
}

/// If no page of the demoting `extent` is left, it is demoted. Its room is free then.
pub(crate) fn note_emptied(tier: &Tier, extent: u32) -> bool {
    let cache = &tier.cache;
    let (pages, region) = {
        let table = cache.state.extents.borrow();
        (
            table.grains.pages_of(extent),
            table.grains.region_of(extent),
        )
    };
    if cache.state.map().resident_in(pages.start, pages.end) > 0 {
        return false;
    }
    cache.state.extents.borrow_mut().emptied(extent);
    cache.commit.note();
    tier.update_pin(extent);
    cache.room.hold(cache.state.extents.borrow().reserved());
    tier.jobs.borrow_mut().make_hope();
    let table = cache.state.extents.borrow();
    let left = table
        .grains
        .extents_of(region)
        .any(|extent| table.place(extent) != Place::Slow && !table.wants(extent));
    let mut stats = tier.stats.borrow_mut();
    if !left && stats.way_of(region) == Some(Way::Down) {
        stats.end_move(env::now(), region, MoveEnd::Done);
    }
    tier.movers.promote_work.notify_all();
    true
}

/// The task that empties demoting extents.
pub(crate) async fn demote_loop(tier: Rc<Tier>) {
    let cache = &tier.cache;
    let mut in_vain = 0;
    while !cache.stopped.get() && cache.is_running() {
        let work = tier.movers.demote_work.wait();
        let demoting: Vec<u32> = {
            let table = cache.state.extents.borrow();
            // The published mover has a pace of its own.
            let ours = |extent: &u32| {
                let pages = table.grains.pages_of(*extent);
                !tier.movers.published.moves(pages.start, pages.end)
            };
            table.demoting().filter(ours).collect()
        };
        if demoting.is_empty() {
            work.await;
            continue;
        }
        match demote_round(&tier, &demoting, in_vain >= ROUNDS_BEFORE_LOCK).await {
            Ok(0) => {
                in_vain += 1;
                env::sleep(Nanos::millis(1)).await;
            }
            Ok(_) => in_vain = 0,
            Err(error) => {
                tracing::error!(volume = %cache.volume.name, %error, "a region could not be demoted");
                env::sleep(FAILURE_REST).await;
            }
        }
    }
}

/// One round over the demoting extents. Returns how many pages left the fast device.
async fn demote_round(tier: &Rc<Tier>, demoting: &[u32], locked: bool) -> Result<u64, DeviceError> {
    let cache = &tier.cache;
    let mut gone = 0;
    for extent in demoting {
        if cache.state.extents.borrow().place(*extent) == Place::Demoting {
            let before = tier.counts.bytes_dropped.get();
            by_turns(tier, *extent, |pages| drop_unneeded(tier, pages)).await;
            gone += (tier.counts.bytes_dropped.get() - before) / PAGE;
            // Others had their turn meanwhile.
            if cache.state.extents.borrow().place(*extent) == Place::Demoting {
                gone += u64::from(note_emptied(tier, *extent));
            }
        }
    }
    let runs = pick_demoting(tier, demoting);
    if runs.is_empty() {
        return Ok(gone.max(1));
    }
    let pages: u64 = runs.iter().map(|run| run.end() - run.first).sum();
    pace(tier, Bytes(pages * PAGE)).await;
    // Users who write a page as fast as it is destaged would keep it for ever: they wait for this one round.
    let mut held = Vec::new();
    if locked {
        for run in &runs {
            held.push(
                cache
                    .volume
                    .locks
                    .acquire(run.first, run.end(), Lock::EXCLUSIVE)
                    .await,
            );
        }
    }
    let done = destage_runs(cache, &runs, locked).await?;
    for page in done {
        let entry = cache.state.map().get(page);
        let extent = cache.state.extents.borrow().grains.extent_of(page);
        let is_demoting = cache.state.extents.borrow().place(extent) == Place::Demoting;
        if is_demoting && entry.is_some_and(|entry| !entry.dirty) {
            cache.unmap_page(page);
            count(&tier.counts.bytes_demoted, PAGE);
            let region = cache.state.extents.borrow().grains.region_of(extent);
            tier.stats.borrow_mut().copied(region, Bytes(PAGE));
            gone += 1;
        }
    }
    for extent in demoting {
        if cache.state.extents.borrow().place(*extent) == Place::Demoting {
            note_emptied(tier, *extent);
        }
    }
    Ok(gone)
}

/// Dirty pages of demoting extents, in address order, as runs of neighbours.
fn pick_demoting(tier: &Tier, demoting: &[u32]) -> Vec<Run> {
    let cache = &tier.cache;
    let run_max = run_max(cache);
    let all = cache.volume.settings.borrow().tier.demotion.copy_back == CopyBack::All;
    let (map, table) = (cache.state.map(), cache.state.extents.borrow());
    let mut runs: Vec<Run> = Vec::new();
    let mut chosen = 0;
    for extent in demoting {
        let pages = table.grains.pages_of(*extent);
        let mut left = map.resident_in(pages.start, pages.end);
        if table.place(*extent) != Place::Demoting {
            continue;
        }
        for page in pages {
            if left == 0 || chosen >= ROUND_PAGES {
                break;
            }
            let Some(entry) = map.get(page) else { continue };
            left -= 1;
            if !entry.dirty && (!all || is_marked(tier, page)) {
                continue;
            }
            chosen += 1;
            Run::add(&mut runs, page, entry, run_max);
        }
    }
    runs
}

/// Has the region of `page` a write intent? A start drops clean pages there, and a power cut may leave a sector unreadable
/// that is being written: a clean page that is copied back then would be lost. The slow device has it anyway.
pub(crate) fn is_marked(tier: &Tier, page: u64) -> bool {
    tier.cache.state.intents.borrow().has(page / REGION_PAGES)
}
