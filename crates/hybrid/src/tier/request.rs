//! A user's request, as the tier sees it: counted, and what it touches promoted or copied.
//!
//! Source: AST 3.2.1.

use std::ops::Range;
use std::rc::Rc;

use super::Tier;
use super::copy::{copy_missing, part_pages};
use super::promote::promote_soon;
use super::stats::Touch;
use crate::attach::label::PAGE;
use crate::cache::Cache;
use crate::index::extents::Place;
use crate::stats::count;

/// What a user asks for, and what the page map has of it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked {
    Read { resident: bool },
    Write { resident: bool, dirty: bool },
}

/// Is all of `range` (in bytes) on the fast device, in whole or in part, and does only that have the newest of it?
pub(crate) fn look_up(cache: &Cache, range: &Range<u64>) -> (bool, bool) {
    let end = range
        .end
        .div_ceil(PAGE)
        .min(cache.volume.slow.whole_pages());
    let pages = range.start / PAGE..end;
    let map = cache.state.map();
    let resident = pages.clone().all(|page| map.find(page).is_some());
    (
        resident,
        resident && pages.clone().all(|page| map.is_dirty(page)),
    )
}

/// A request of a user for `range` (in bytes) comes: counts it. A hit is one whose data are all on the fast
/// device, or that writes to an extent that is fast.
pub(crate) fn note_request(tier: &Rc<Tier>, range: Range<u64>, asked: Asked) {
    let cache = &tier.cache;
    let counts = &tier.counts;
    let (write, resident, dirty) = match asked {
        Asked::Read { resident } => (false, resident, false),
        Asked::Write { resident, dirty } => (true, resident, dirty),
    };
    count(&counts.requests, 1);
    count(&counts.dirty_write_requests, u64::from(dirty));
    if !cache.volume.has_tier() {
        count(&counts.hit_requests, u64::from(resident));
        return;
    }
    let buffered = tier.movers.published.serves(&range, write, resident);
    let up = {
        let table = cache.state.extents.borrow();
        let end = range.end.div_ceil(PAGE).min(table.grains.pages());
        let last = end.max(range.start / PAGE + 1) - 1;
        let mut extents = table.grains.extent_of(range.start / PAGE)..=table.grains.extent_of(last);
        extents.all(|extent| table.place(extent) == Place::Fast)
    };
    count(&counts.tier_requests, u64::from(up));
    count(&counts.buffer_requests, u64::from(buffered));
    let hit = !buffered && (resident || up && write);
    count(&counts.hit_requests, u64::from(hit));
    if !up {
        let first = range.start / PAGE;
        if tier.splits() {
            let mut boundary = tier.boundary.borrow_mut();
            boundary.note_use(first, range.end.div_ceil(PAGE) - first);
        }
    }
    touch_tier(tier, range, write, !write && !resident);
}

/// A user asks for `range` (in bytes): counted, and an extent that waits for its first touch is promoted.
pub(crate) fn touch_tier(tier: &Rc<Tier>, range: Range<u64>, write: bool, missed: bool) {
    let cache = &tier.cache;
    let (touch, first, last) = {
        let table = cache.state.extents.borrow();
        let page = range.start / PAGE;
        if page >= table.grains.pages() {
            return;
        }
        let extent = table.grains.extent_of(page);
        let part = page % table.grains.extent_pages() / part_pages(table.grains.extent_pages());
        let touch = Touch {
            extent,
            part: part as u32,
            region: table.grains.region_of(extent),
            write,
            missed,
        };
        let last = ((range.end - 1) / PAGE).min(table.grains.pages() - 1);
        (touch, extent, table.grains.extent_of(last))
    };
    tier.stats.borrow_mut().note(touch);
    for extent in first..=last {
        let (place, wanted) = {
            let table = cache.state.extents.borrow();
            (table.place(extent), table.wants(extent))
        };
        if !tier.moves_directly(extent) {
            continue;
        }
        if wanted && place != Place::Fast {
            promote_soon(tier, extent);
        } else if missed && extent == first && place == Place::Fast {
            // A read needed the slow device: it may be worth by now to copy the rest.
            copy_missing(tier, extent);
        }
    }
}
