//! A region on its way up, as published.
//!
//! ```text
//! room for all of it -> slow read, fast write, chunk by chunk -> copies shown -> synchronized -> up
//! ```
//!
//! Always true: no request waits for a copy; a copy that finds no slots leaves its pages where they are.

use std::ops::Range;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, View, crc::crc32c_of_page};
use device::{Class, DeviceError};
use env::sync::join_all;
use policy::tier::Region;

use super::Tier;
use super::carry::{Ended, buffer_in_memory, finish, may_go_on, note_copying, turn};
use super::promote::{Promoted, promote_alone};
use crate::attach::label::PAGE;
use crate::cached::complete_for_good;
use crate::hold::try_take;
use crate::index::extents::Place;
use crate::index::page_map::{Entry, FULL};
use crate::index::slots::SlotRun;
use crate::moving::{Copied, Phase};
#[cfg(test)]
use crate::mutation::Mutation;
use crate::slow::SlowDevice;
use crate::stats::count;

const PAGE_LEN: usize = base::PAGE;
/// Copies are shown so many pages at a time, each durable before the next.
const SHOWN_PAGES: usize = 16_384;
/// After something had to wait.
const REST: Nanos = Nanos::millis(10);
/// How often a step asks for slots before it goes on without.
const ASKS_FOR_SLOTS: u32 = 50;

pub(super) async fn move_up(tier: &Rc<Tier>, region: Region) -> Ended {
    let cache = &tier.cache;
    let published = &tier.movers.published;
    if !cache.state.extents.borrow().wants_region(region) {
        return Ended::Dropped;
    }
    if !promote_whole(tier, region).await {
        return match may_go_on(tier) {
            true => Ended::Dropped,
            false => Ended::Again,
        };
    }
    let pages = cache.state.extents.borrow().grains.pages_of_region(region);
    published.begin(
        region,
        pages.clone(),
        Phase::CopyingUp,
        buffer_in_memory(tier),
    );
    let begun = env::now();
    let step = published.step.get().0 / PAGE;
    let mut at = pages.start;
    while at < pages.end && may_go_on(tier) {
        let upto = (at + step).min(pages.end);
        copy_up(tier, at..upto).await;
        at = upto;
    }
    note_copying(tier, region, begun);
    if at < pages.end {
        drop_copies(tier);
    } else {
        published.enter(Phase::SyncingUp);
        show_copies(tier).await;
        complete_pages(tier, pages.clone()).await;
    }
    finish(tier).await
}

/// Raises every extent of `region` that may be; false if there is no room for all of them.
async fn promote_whole(tier: &Rc<Tier>, region: Region) -> bool {
    let cache = &tier.cache;
    let table = &cache.state.extents;
    let (extents, missing) = {
        let table = table.borrow();
        let may = |extent: &u32| !table.is_excluded(*extent);
        let extents: Vec<u32> = table.grains.extents_of(region).filter(may).collect();
        let slow = |extent: &&u32| table.place(**extent) == Place::Slow;
        let pages = extents
            .iter()
            .filter(slow)
            .map(|it| table.grains.pages_of(*it));
        let missing: u64 = pages.map(|pages| pages.end - pages.start).sum();
        (extents, missing)
    };
    if table.borrow().reserved() + missing > tier.room() {
        no_room(tier, region);
        return false;
    }
    for extent in extents {
        loop {
            match promote_alone(tier, extent) {
                Promoted::Yes => break,
                Promoted::Full => {
                    no_room(tier, region);
                    return false;
                }
                Promoted::Later if !may_go_on(tier) => return false,
                Promoted::Later => {}
            }
            // The cache has to destage dirty blocks first.
            let room = cache.room.wait();
            cache
                .destaging
                .starving
                .set(cache.destaging.starving.get() + 1);
            cache.destaging.work.notify_all();
            let _ = env::timeout(REST, room).await;
            cache
                .destaging
                .starving
                .set(cache.destaging.starving.get() - 1);
        }
    }
    true
}

/// Withdraws `region` from the policy: it is not promoted. No other region is demoted for it.
fn no_room(tier: &Tier, region: Region) {
    let cache = &tier.cache;
    cache.state.extents.borrow_mut().want(region, false);
    tier.policy.borrow_mut().withdrawn(region);
}

/// One step upwards: pages that are not whole on the fast device are copied to slots that no reader sees.
async fn copy_up(tier: &Rc<Tier>, pages: Range<u64>) {
    let cache = &tier.cache;
    let published = &tier.movers.published;
    let missing = missing_of(tier, pages);
    let (Some(first), Some(last)) = (missing.first(), missing.last()) else {
        return;
    };
    let (first, end) = (*first, *last + 1);
    let data = match read_slow(&cache.volume.slow, first, end).await {
        Ok(data) => data,
        Err(error) => {
            // What cannot be read stays where it is.
            tracing::warn!(volume = %cache.volume.name, %error, "a part of a region was not copied to the fast device");
            return;
        }
    };
    let runs = slots_for_copy(tier, missing.len() as u32).await;
    let places = runs.iter().flat_map(|run| run.first..run.first + run.count);
    let pairs: Vec<(u64, u32)> = missing.iter().copied().zip(places).collect();
    let from = |page: u64| ((page - first) * PAGE) as usize;
    let copied: Vec<Copied> = pairs
        .iter()
        .map(|(page, slot)| {
            let contents = &data[from(*page)..from(*page) + PAGE_LEN];
            Copied {
                page: *page,
                slot: Some(*slot),
                crc: crc32c_of_page(contents, data.is_known_zero()),
            }
        })
        .collect();
    let writes = together(&pairs).into_iter().map(|(page, slot, count)| {
        let piece = data.slice(from(page), count * PAGE_LEN);
        cache.write_slots(slot, piece, Class::Background)
    });
    let failed = join_all(writes).await.into_iter().find_map(Result::err);
    if let Some(error) = failed {
        // The slots may hold anything; they stay taken, and the fast device is out.
        cache.fail(error).await;
        return;
    }
    let bytes = copied.len() as u64 * PAGE;
    count(&tier.counts.bytes_promoted, bytes);
    let region = published.with(|moving| moving.region);
    tier.stats.borrow_mut().copied(region, Bytes(bytes));
    let out_of_date = published.with(|moving| moving.keep_copies(copied));
    cache.give_back(&out_of_date);
}

/// Those of `pages` that are to be copied: fast, not there, and not written since the move began.
fn missing_of(tier: &Tier, pages: Range<u64>) -> Vec<u64> {
    let published = &tier.movers.published;
    let (map, table) = (tier.cache.state.map(), tier.cache.state.extents.borrow());
    // Excluded extents are no part of what was promoted.
    let up = pages.filter(|page| table.place(table.grains.extent_of(*page)) == Place::Fast);
    let missing = up.filter(|page| map.find(*page).is_none());
    missing
        .filter(|page| !published.with(|moving| moving.is_touched(*page)))
        .collect()
}

/// Pages and their slots as runs of neighbours in both: (page, slot, how many).
fn together(pairs: &[(u64, u32)]) -> Vec<(u64, u32, usize)> {
    let mut runs: Vec<(u64, u32, usize)> = Vec::new();
    for (page, slot) in pairs {
        match runs.last_mut() {
            Some((first, at, count))
                if *at + *count as u32 == *slot && *first + *count as u64 == *page =>
            {
                *count += 1;
            }
            _ => runs.push((*page, *slot, 1)),
        }
    }
    runs
}

/// Pages `first..end` of the slow device.
async fn read_slow(slow: &SlowDevice, first: u64, end: u64) -> Result<View, DeviceError> {
    let mut rest = Buf::for_read(((end - first) * PAGE) as usize);
    let mut reads = Vec::new();
    let mut byte = first * PAGE;
    while !rest.is_empty() {
        let len = slow.max_io().min(rest.len());
        let tail = rest.split_off(len);
        let piece = std::mem::replace(&mut rest, tail);
        reads.push(slow.read(Sector::containing(byte), piece, Class::Background));
        byte += len as u64;
    }
    let mut whole: Option<Buf> = None;
    for piece in join_all(reads).await {
        let piece = piece?;
        match &mut whole {
            None => whole = Some(piece),
            Some(whole) => whole.join(piece),
        }
    }
    Ok(whole.expect("at least one page").freeze())
}

/// Slots for `wanted` copies, fewer if there are not so many; writers keep some.
async fn slots_for_copy(tier: &Rc<Tier>, wanted: u32) -> Vec<SlotRun> {
    let cache = &tier.cache;
    for _ in 0..ASKS_FOR_SLOTS {
        let free = cache.state.slots().free_count();
        if free >= wanted + cache.room.spare() / 4 {
            return try_take(cache, wanted);
        }
        let room = cache.room.wait();
        cache.commit.want();
        let _ = env::timeout(REST, room).await;
        if !may_go_on(tier) {
            return Vec::new();
        }
    }
    Vec::new()
}

/// Shows what was copied, but for pages that users wrote meanwhile.
async fn show_copies(tier: &Rc<Tier>) {
    let cache = &tier.cache;
    let published = &tier.movers.published;
    loop {
        let some: Vec<Copied> = published.with(|moving| {
            let upto = moving.copied.len().min(SHOWN_PAGES);
            moving.copied.drain(..upto).collect()
        });
        let (Some(first), Some(last)) = (some.first(), some.last()) else {
            return;
        };
        // What was copied may not be for good on the slow device.
        cache.record_intents(first.page, last.page + 1);
        for copy in some {
            let Some(slot) = copy.slot else { continue };
            let stands = cache.is_running()
                && cache.state.map().find(copy.page).is_none()
                && !published.with(|moving| moving.is_touched(copy.page));
            #[cfg(test)]
            let stands = stands || cache.volume.planted(Mutation::StaleCopy);
            match stands {
                true => cache.map_page(copy.page, &copy.entry(slot)),
                false => cache.give_back(&[SlotRun {
                    first: slot,
                    count: 1,
                }]),
            }
        }
        // A commit that fails is the cache's to deal with.
        let _ = cache.committed().await;
    }
}

/// Gives back the slots of copies that no reader has seen.
fn drop_copies(tier: &Tier) {
    let cache = &tier.cache;
    let slots = tier.movers.published.with(|moving| {
        let slots = moving.take_copies(0, u64::MAX);
        moving.copied.clear();
        slots
    });
    cache.give_back(&slots);
}

/// Where the page map is the buffer: pages of which users wrote a part get the rest, in address order,
/// at the pace of the synchronization.
async fn complete_pages(tier: &Rc<Tier>, pages: Range<u64>) {
    let cache = &tier.cache;
    if tier.movers.published.with(|moving| moving.buffer.is_some()) {
        return;
    }
    for page in pages {
        let partial = |entry: &Entry| entry.mask != FULL;
        if cache.state.map().get(page).filter(partial).is_none() {
            continue;
        }
        if !turn(tier).await {
            return;
        }
        if let Err(error) = complete_for_good(cache, page).await {
            tracing::warn!(volume = %cache.volume.name, %error, "a page stays in part on the slow device");
        }
    }
}
