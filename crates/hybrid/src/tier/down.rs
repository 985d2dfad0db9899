//! A region on its way down, as published.
//!
//! ```text
//! chunk by chunk: fast read, slow write -> slow flush -> extents demoting, clean pages go
//!     -> buffer and dirty pages synchronized -> slow
//! ```
//!
//! Always true: a dirty page leaves the fast device only after it was destaged and the slow device was flushed.

use std::ops::Range;
use std::rc::Rc;

use base::{Bytes, Nanos};
use device::DeviceError;
use policy::tier::Region;

use super::Tier;
use super::carry::{
    Ended, FAILURE_REST, buffer_in_memory, finish, may_go_on, note_copying, synchronize, turn,
};
use super::demote::{begin_demoting, drop_all_clean, is_marked, note_emptied};
use crate::attach::label::PAGE;
use crate::index::extents::Place;
use crate::index::page_map::{Entry, UNIT_PAGES};
use crate::moving::Phase;
#[cfg(test)]
use crate::mutation::Mutation;
use crate::settings::CopyBack;
use crate::stats::count;
use crate::writeback::{Run, destage_run, destage_runs, destage_together, note_clean, run_max};

/// Requests of one step under way at once; a device may take shorter ones than a step.
const STEP_DEPTH: usize = 2;

pub(super) async fn move_down(tier: &Rc<Tier>, region: Region) -> Ended {
    let cache = &tier.cache;
    let published = &tier.movers.published;
    let any = !sinking_part(tier, region).is_empty();
    if cache.state.extents.borrow().wants_region(region) || !any {
        return Ended::Dropped;
    }
    let pages = cache.state.extents.borrow().grains.pages_of_region(region);
    let copy_back = cache.volume.settings.borrow().tier.demotion.copy_back;
    let in_memory = buffer_in_memory(tier);
    published.begin(region, pages.clone(), Phase::CopyingDown, in_memory);
    let begun = env::now();
    let mut all_destaged = Vec::new();
    // What is copied down must be durable where it is, or a crash would leave newer contents beneath older ones.
    // The move has begun before: what is written from here on counts as touched and is not copied.
    let mut copied = cache.committed().await;
    let mut at = pages.start;
    while at < pages.end && copied.is_ok() && may_go_on(tier) {
        let upto = (at + published.step.get().0 / PAGE).min(pages.end);
        if copy_back != CopyBack::Nothing {
            copied = copy_down(tier, at..upto, copy_back, &mut all_destaged).await;
        }
        at = upto;
    }
    if copied.is_ok() && may_go_on(tier) {
        copied = note_destaged(tier, &all_destaged).await;
    }
    note_copying(tier, region, begun);
    if let Err(error) = &copied {
        tracing::error!(volume = %cache.volume.name, %error, "a region could not be copied to the slow device");
        env::sleep(FAILURE_REST).await;
    }
    if copied.is_ok() && may_go_on(tier) {
        published.enter(Phase::SyncingDown);
        sink(tier, region).await;
        synchronize_down(tier, region).await;
    }
    match (finish(tier).await, copied) {
        (Ended::Done, Err(_)) => Ended::Again,
        (ended, _) => ended,
    }
}

/// Extents of `region` that go down with it.
fn sinking_part(tier: &Tier, region: Region) -> Vec<u32> {
    let cache = &tier.cache;
    let table = cache.state.extents.borrow();
    let extents = table.grains.extents_of(region);
    extents
        .filter(|extent| table.place(*extent) != Place::Slow && !table.is_pinned(*extent))
        .collect()
}

/// One step downwards. Pages that users wrote since the move began are left for the synchronization.
async fn copy_down(
    tier: &Rc<Tier>,
    pages: Range<u64>,
    copy_back: CopyBack,
    all_destaged: &mut Vec<(u64, Entry)>,
) -> Result<(), DeviceError> {
    let cache = &tier.cache;
    let published = &tier.movers.published;
    let mut runs = Vec::new();
    {
        let map = cache.state.map();
        for page in pages {
            let all = copy_back == CopyBack::All && !is_marked(tier, page);
            let untouched = !published.with(|moving| moving.is_touched(page));
            if let Some(entry) = map.get(page).filter(|entry| entry.dirty || all)
                && untouched
            {
                Run::add(&mut runs, page, entry, run_max(cache));
            }
        }
    }
    let _turn = cache.destaging.turn.acquire(1).await;
    for step in runs.chunks(STEP_DEPTH) {
        if cache.stopped.get() {
            return Ok(());
        }
        let destaged = match destage_together(cache, step).await {
            Ok(destaged) => destaged,
            Err(_) => destage_one_by_one(tier, step).await?,
        };
        let bytes = Bytes(destaged.len() as u64 * PAGE);
        count(&tier.counts.bytes_demoted, bytes.0);
        let region = published.with(|moving| moving.region);
        tier.stats.borrow_mut().copied(region, bytes);
        all_destaged.extend(destaged);
    }
    Ok(())
}

/// After an error: as far as it goes. A clean page that cannot be read is on the slow device anyway.
async fn destage_one_by_one(
    tier: &Rc<Tier>,
    runs: &[Run],
) -> Result<Vec<(u64, Entry)>, DeviceError> {
    let cache = &tier.cache;
    let mut all = Vec::new();
    for run in runs {
        let (destaged, error) = destage_run(cache, run, false).await;
        let missing_dirty = run
            .entries()
            .any(|(page, entry)| entry.dirty && !destaged.iter().any(|(at, _)| *at == page));
        match error {
            Some(error) if missing_dirty => return Err(error),
            _ => all.extend(destaged),
        }
    }
    Ok(all)
}

/// The slow device has `all_destaged` for good: what was not written meanwhile is clean.
async fn note_destaged(tier: &Rc<Tier>, all_destaged: &[(u64, Entry)]) -> Result<(), DeviceError> {
    let cache = &tier.cache;
    let _turn = cache.destaging.turn.acquire(1).await;
    #[cfg(test)]
    if cache.volume.planted(Mutation::DroppedEarly) {
        note_clean(cache, all_destaged).await;
        return Ok(());
    }
    cache.volume.slow.flush().await?;
    note_clean(cache, all_destaged).await;
    Ok(())
}

/// The extents of `region` are demoting: clean pages go at once; with nothing copied back, dirty ones too.
async fn sink(tier: &Rc<Tier>, region: Region) {
    let cache = &tier.cache;
    for extent in sinking_part(tier, region) {
        if cache.state.extents.borrow().place(extent) == Place::Fast {
            begin_demoting(tier, extent);
        }
        // The slow device has all of it by now but for what users wrote since.
        drop_all_clean(tier, extent).await;
    }
}

/// Destages what users wrote since the copy began, in address order.
async fn synchronize_down(tier: &Rc<Tier>, region: Region) {
    let cache = &tier.cache;
    if cache.volume.settings.borrow().tier.demotion.copy_back == CopyBack::Nothing {
        tier.movers.published.forget_buffer();
    }
    let pages = cache.state.extents.borrow().grains.pages_of_region(region);
    let mut cursor = pages.start;
    loop {
        // What users write goes on to the buffer above the position.
        if !synchronize(tier).await {
            return;
        }
        let Some(run) = next_dirty(tier, pages.clone(), cursor) else {
            if cursor > pages.start {
                cursor = pages.start;
                continue;
            }
            for extent in sinking_part(tier, region) {
                drop_all_clean(tier, extent).await;
                if cache.state.extents.borrow().place(extent) == Place::Demoting {
                    note_emptied(tier, extent);
                }
            }
            return;
        };
        if !turn(tier).await {
            return;
        }
        cursor = run.end();
        match destage_runs(cache, &[run], false).await {
            Ok(destaged) if destaged.is_empty() => env::sleep(Nanos::millis(1)).await,
            Ok(destaged) => {
                count(&tier.counts.bytes_demoted, destaged.len() as u64 * PAGE);
                drop_destaged(tier, &destaged);
            }
            Err(error) => {
                tracing::error!(volume = %cache.volume.name, %error, "a region could not be demoted");
                env::sleep(FAILURE_REST).await;
            }
        }
    }
}

/// Pages that were destaged and not written since leave the fast device.
fn drop_destaged(tier: &Tier, destaged: &[u64]) {
    let cache = &tier.cache;
    for page in destaged {
        let clean = cache
            .state
            .map()
            .get(*page)
            .is_some_and(|entry| !entry.dirty);
        if clean && tier.place(*page) == Place::Demoting {
            cache.unmap_page(*page);
        }
    }
}

/// The first run of dirty pages among `pages`, from page `from` on, that are to be destaged.
fn next_dirty(tier: &Tier, pages: Range<u64>, from: u64) -> Option<Run> {
    let cache = &tier.cache;
    let (map, table) = (cache.state.map(), cache.state.extents.borrow());
    let most = run_max(cache);
    let mut runs = Vec::new();
    let mut unit = from / UNIT_PAGES * UNIT_PAGES;
    while unit < pages.end && runs.len() < 2 {
        let end = unit + UNIT_PAGES;
        let is_demoting = table.place(table.grains.extent_of(unit)) == Place::Demoting;
        if is_demoting && map.resident_in(unit, end) > 0 {
            for page in unit.max(from)..end.min(pages.end) {
                if let Some(entry) = map.get(page).filter(|entry| entry.dirty) {
                    Run::add(&mut runs, page, entry, most);
                }
            }
        }
        if !runs.is_empty() && runs.last().is_some_and(|run: &Run| run.end() < end) {
            break;
        }
        unit = end;
    }
    runs.into_iter().next()
}
