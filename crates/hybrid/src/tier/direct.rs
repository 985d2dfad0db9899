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

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector};
use device::Class;
use policy::tier::worth::{Costs, Waiting, Worth};
use policy::tier::{Region, Way};

use crate::attach::label::PAGE;
use crate::cache::{Cache, count};
use crate::engine::Inner;
use crate::index::extents::{ExtentTable, Place};
use crate::settings::Mode;
use crate::tier::{MoveEnd, Stats, Touch};

/// Pages copied with one request at most.
const CHUNK_PAGES: u64 = 256;
/// Parts of an extent that are counted apart.
const PARTS: u64 = 64;
/// A part is at least so many pages.
const PART_PAGES_MIN: u64 = 4;
/// How often to look whether demoting extents have made room.
const ROOM_PERIOD: Nanos = Nanos::millis(100);
/// So many of the coldest extents are looked at when room is needed.
const VICTIMS: usize = 1024;
/// A wanted extent gives way to one that is so many times as hot.
const COOLER: f64 = 2.0;
/// When room is needed, this part of all of it is made from idle extents.
const AHEAD: u64 = 64;
/// After a copy that found no slots the mover rests this long.
const REST: Nanos = Nanos::millis(10);
/// ... and this long if the day's budget of flash writes is used up.
const BUDGET_REST: Nanos = Nanos::secs(60);

fn tier_place(cache: &Cache, extent: u32) -> Place {
    cache.tier.table.borrow().place(extent)
}

/// Pages of a part of an extent of `extent` pages.
pub(crate) fn part_pages(extent: u64) -> u64 {
    (extent / PARTS).max(PART_PAGES_MIN)
}

/// What is to be promoted and copied.
#[derive(Default)]
pub(crate) struct Jobs {
    /// Extents waiting for room, in order.
    promotions: VecDeque<u32>,
    waiting: BTreeSet<u32>,
    /// Extents whose missing pages are to be copied: which parts were looked at.
    copies: BTreeMap<u32, u64>,
    /// The order in which they are: hottest first.
    order: VecDeque<u32>,
    /// There is no room, and nothing fast that is colder than what wants to come; until the next interval.
    full: bool,
    /// Extents that are fast, those to demote first in front, as of the last look.
    cold: VecDeque<u32>,
}

impl Jobs {
    /// Is anything to be promoted or copied?
    #[cfg(test)]
    pub fn any(&self) -> bool {
        !self.promotions.is_empty() || !self.copies.is_empty()
    }

    /// There may be room again.
    pub fn make_hope(&mut self) {
        self.full = false;
    }

    /// Nothing is to be done any more.
    pub fn clear(&mut self) {
        *self = Jobs::default();
    }
}

/// What became of an attempt to promote an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promoted {
    Yes,
    /// The tier is full.
    Full,
    /// The cache has to destage dirty pages first.
    Later,
}

/// What there is to copy next.
enum Look {
    Chunk(u32, Range<u64>),
    /// Nothing of this extent, and others were not looked at.
    Finished(u32),
}

impl Inner {
    /// Pages that extents may take at most.
    pub(crate) fn tier_room(&self, cache: &Cache) -> u64 {
        let settings = self.settings.borrow();
        let block = settings.block.0 / PAGE;
        let all = cache.data_slots().saturating_sub(block);
        match settings.mode {
            Mode::Cache => 0,
            Mode::Tier => all,
            Mode::Both => match settings.tier.share {
                Some(share) => all * u64::from(share) / 100,
                None => self.split_room(cache, all),
            },
        }
    }

    /// A user asks for `range` (in bytes): counted, and an extent that waits for its first touch is promoted.
    pub(crate) fn touch_tier(
        self: &Rc<Self>,
        cache: &Rc<Cache>,
        range: Range<u64>,
        write: bool,
        missed: bool,
    ) {
        let tier = &cache.tier;
        let (touch, first, last) = {
            let table = tier.table.borrow();
            let page = range.start / PAGE;
            if page >= table.pages() {
                return;
            }
            let extent = table.extent_of(page);
            let part = page % table.extent_pages() / part_pages(table.extent_pages());
            let touch = Touch {
                extent,
                part: part as u32,
                region: table.region_of(extent),
                write,
                missed,
            };
            let last = ((range.end - 1) / PAGE).min(table.pages() - 1);
            (touch, extent, table.extent_of(last))
        };
        tier.stats.borrow_mut().note(touch);
        for extent in first..=last {
            let (place, wanted) = {
                let table = tier.table.borrow();
                (table.place(extent), table.wants(extent))
            };
            if !self.moves_directly(cache, extent) {
                continue;
            }
            if wanted && place != Place::Fast {
                self.promote_soon(cache, extent);
            } else if missed && extent == first && place == Place::Fast {
                // A read needed the slow device: it may be worth by now to copy the rest.
                self.copy_missing(cache, extent);
            }
        }
    }

    /// Raises the extents of a region as the settings say: all of them, or those that are warm.
    pub(crate) fn promote_some(self: &Rc<Self>, cache: &Rc<Cache>, extents: Range<u32>) {
        let tier = &cache.tier;
        let all = tier.table.borrow().one_grain() || !self.settings.borrow().tier.break_even;
        let mut chosen: Vec<(f64, u32)> = {
            let (table, stats) = (tier.table.borrow(), tier.stats.borrow());
            extents
                .filter(|extent| table.wants(*extent))
                .map(|extent| (stats.heat(extent), extent))
                .filter(|(heat, _)| all || *heat > 0.0)
                .collect()
        };
        chosen.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for (_, extent) in chosen {
            self.promote_soon(cache, extent);
        }
    }

    /// Raises `extent` now if that needs no waiting, else as soon as there is room.
    pub(crate) fn promote_soon(self: &Rc<Self>, cache: &Rc<Cache>, extent: u32) {
        let jobs = &cache.tier.jobs;
        if jobs.borrow().waiting.contains(&extent) || !self.may_begin(cache, extent) {
            return;
        }
        if jobs.borrow().full && !cache.tier.table.borrow().is_pinned(extent) {
            cache.tier.boundary.borrow_mut().refuse(extent);
            return;
        }
        let in_line = !jobs.borrow().promotions.is_empty();
        if in_line || self.try_promote(cache, extent) != Promoted::Yes {
            let mut jobs = jobs.borrow_mut();
            jobs.waiting.insert(extent);
            jobs.promotions.push_back(extent);
            cache.tier.promote_work.notify_all();
        }
    }

    fn try_promote(&self, cache: &Rc<Cache>, extent: u32) -> Promoted {
        let promoted = self.promote_alone(cache, extent);
        if promoted == Promoted::Yes {
            self.copy_missing(cache, extent);
        }
        promoted
    }

    /// As `try_promote`, and nothing is copied for it.
    pub(crate) fn promote_alone(&self, cache: &Rc<Cache>, extent: u32) -> Promoted {
        let tier = &cache.tier;
        let (place, pages, reserved) = {
            let table = tier.table.borrow();
            (
                table.place(extent),
                table.pages_of(extent),
                table.reserved(),
            )
        };
        match place {
            Place::Fast => return Promoted::Yes,
            // Its room may be what had to be given back.
            Place::Demoting if reserved > self.tier_room(cache) => return Promoted::Full,
            Place::Demoting => {}
            Place::Slow => {
                let reserved = reserved + (pages.end - pages.start);
                if reserved > self.tier_room(cache) {
                    return Promoted::Full;
                }
                if !cache.make_room_beside(reserved) {
                    return Promoted::Later;
                }
                cache.set_held_pages(reserved);
            }
        }
        tier.table.borrow_mut().promote(extent);
        cache.note_extent();
        self.update_pin(cache, extent);
        Promoted::Yes
    }

    /// If pages of `extent`, which is fast, are missing and worth it, they are to be copied.
    pub(crate) fn copy_missing(&self, cache: &Cache, extent: u32) {
        let tier = &cache.tier;
        if !self.moves_directly(cache, extent) {
            return;
        }
        let copies = {
            let table = tier.table.borrow();
            let known = tier.jobs.borrow().copies.contains_key(&extent);
            !known && table.place(extent) == Place::Fast && table.wants(extent)
        };
        if copies && self.may_begin(cache, extent) && self.is_worth_copying(cache, extent) {
            let mut jobs = tier.jobs.borrow_mut();
            jobs.copies.insert(extent, 0);
            jobs.order.push_front(extent);
            tier.promote_work.notify_all();
        }
    }

    /// May a move of `extent` begin now? One that is pinned is promoted at any time of the day.
    fn may_begin(&self, cache: &Cache, extent: u32) -> bool {
        self.opens_in().is_none() || cache.tier.table.borrow().is_pinned(extent)
    }

    /// What is known of an extent that misses pages; `None` if none is missing.
    fn waiting(&self, cache: &Cache, extent: u32) -> Option<Waiting> {
        let (table, stats) = (cache.tier.table.borrow(), cache.tier.stats.borrow());
        let pages = table.pages_of(extent);
        let resident = cache.map.borrow().resident_in(pages.start, pages.end);
        let missing = (pages.end - pages.start).saturating_sub(resident);
        (missing > 0).then(|| Waiting {
            extent,
            missing: Bytes(missing * PAGE),
            reads: stats.missed(extent) + self.expected_reads(&table, &stats, extent),
            rest: stats.rest(table.region_of(extent)),
        })
    }

    /// Reads a second that an extent may expect for lying where it does: its part of those of its region.
    ///
    /// Choice: hot places move on to their neighbours within minutes (AST 2.1), so where an extent has been touched once
    /// and its region is hot, more will come than were seen: these are added.
    fn expected_reads(&self, table: &ExtentTable, stats: &Stats, extent: u32) -> f64 {
        let region = table.region_of(extent);
        match table.wants_region(region) {
            true => stats.missed_in(region) / table.extents_of(region).len() as f64,
            false => 0.0,
        }
    }

    /// What things cost, as far as it was measured.
    fn costs(&self, cache: &Cache) -> Costs {
        let default = Costs::default();
        let measured = cache.tier.pace.borrow().unloaded();
        Costs {
            slow_read: measured.unwrap_or(default.slow_read),
            ..default
        }
    }

    /// Choice: with break-even an extent is copied when the reads it is expected to save cost more than the copy; a
    /// pinned one, or any without break-even, in any case.
    fn is_worth_copying(&self, cache: &Cache, extent: u32) -> bool {
        let Some(waiting) = self.waiting(cache, extent) else {
            return false;
        };
        let weighs = self.settings.borrow().tier.break_even;
        !weighs
            || cache.tier.table.borrow().is_pinned(extent)
            || Worth::default().begins(&self.costs(cache), &waiting)
    }

    /// `extent` is to be promoted no more, and nothing is to be copied for it.
    pub(crate) fn forget_jobs(&self, cache: &Cache, extent: u32) {
        let mut jobs = cache.tier.jobs.borrow_mut();
        jobs.copies.remove(&extent);
        if jobs.waiting.remove(&extent) {
            jobs.promotions.retain(|other| *other != extent);
        }
    }

    /// At the end of an interval: copies in a new order, those that have cooled given up.
    pub(crate) fn review_copies(self: &Rc<Self>, cache: &Rc<Cache>) {
        let tier = &cache.tier;
        let running: Vec<u32> = tier.jobs.borrow().copies.keys().copied().collect();
        let weighs = self.settings.borrow().tier.break_even;
        let costs = self.costs(cache);
        for extent in running.into_iter().filter(|_| weighs) {
            let cooled = self
                .waiting(cache, extent)
                .is_some_and(|waiting| Worth::default().has_cooled(&costs, &waiting));
            if cooled && !tier.table.borrow().is_pinned(extent) {
                tier.jobs.borrow_mut().copies.remove(&extent);
                let region = tier.table.borrow().region_of(extent);
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
        let up: Vec<u32> = tier.table.borrow().fast().collect();
        for extent in up {
            if tier.stats.borrow().missed(extent) > 0.0 {
                self.copy_missing(cache, extent);
            }
        }
        let going: Vec<Region> = tier.stats.borrow_mut().going_up();
        for region in going {
            self.settle_move(cache, region);
        }
        tier.promote_work.notify_all();
    }

    // --- promotion ----------------------------------------------------------------------------------

    /// The task that promotes what has to wait for room.
    pub(crate) async fn promote_loop(self: Rc<Self>, cache: Rc<Cache>) {
        let tier = Rc::clone(&cache.tier);
        while !cache.stopped.get() && cache.is_running() {
            let work = tier.promote_work.wait();
            let next = tier.jobs.borrow().promotions.front().copied();
            let Some(extent) = next else {
                work.await;
                continue;
            };
            let room = cache.room.wait();
            let wanted = tier.table.borrow().wants(extent) && self.may_begin(&cache, extent);
            let promoted = match wanted {
                true => self.try_promote(&cache, extent),
                false => Promoted::Yes,
            };
            match promoted {
                Promoted::Yes => self.leave_line(&cache, extent),
                Promoted::Later => {
                    // Users are not to wait for it: the cleaner goes on unhurried.
                    cache.wanting.set(true);
                    cache.clean_work.notify_all();
                    room.await;
                    cache.wanting.set(false);
                }
                Promoted::Full => {
                    if self.make_tier_room(&cache, extent) {
                        // An extent that is demoted wakes this task.
                        let _ = env::timeout(ROOM_PERIOD, room).await;
                    } else {
                        tier.jobs.borrow_mut().full = true;
                        tier.boundary.borrow_mut().refuse(extent);
                        self.leave_line(&cache, extent);
                        self.not_promoted(&cache, extent);
                    }
                }
            }
        }
    }

    fn leave_line(&self, cache: &Cache, extent: u32) {
        let mut jobs = cache.tier.jobs.borrow_mut();
        if jobs.waiting.remove(&extent) {
            jobs.promotions.retain(|other| *other != extent);
        }
    }

    /// There is no room for `extent`: if nothing of its region is fast, the policy hears of it.
    pub(crate) fn not_promoted(&self, cache: &Cache, extent: u32) {
        let tier = &cache.tier;
        let region = tier.table.borrow().region_of(extent);
        let any_up = {
            let table = tier.table.borrow();
            table
                .extents_of(region)
                .any(|extent| table.place(extent) != Place::Slow)
        };
        if any_up || !tier.table.borrow().wants_region(region) {
            return;
        }
        tier.table.borrow_mut().want(region, false);
        tier.policy.borrow_mut().withdrawn(region);
        let mut stats = tier.stats.borrow_mut();
        stats.end_move(env::now(), region, MoveEnd::Cancelled);
        count(&tier.counts.cancelled, 1);
    }

    /// Makes room for `extent`: demotes what is idle, the coldest first. False if nothing can go.
    fn make_tier_room(self: &Rc<Self>, cache: &Rc<Cache>, extent: u32) -> bool {
        let tier = &cache.tier;
        let (needed, room) = {
            let table = tier.table.borrow();
            let pages = table.pages_of(extent);
            (pages.end - pages.start, self.tier_room(cache))
        };
        let (demoting, reserved, pinned, heat) = {
            let (table, stats) = (tier.table.borrow(), tier.stats.borrow());
            let demoting = table.demoting().map(|extent| table.pages_of(extent));
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
        while let Some(other) = self.next_cold(cache, &mut looked) {
            let may = {
                let (table, stats) = (tier.table.borrow(), tier.stats.borrow());
                let cooler = stats.heat(other) * COOLER < heat;
                !table.wants(other) || !table.is_pinned(other) && (pinned || cooler)
            };
            // What is idle goes a little ahead of need, what is wanted only for this one.
            let ahead = match tier.table.borrow().wants(other) {
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
            let pages = tier.table.borrow().pages_of(other);
            leaving += pages.end - pages.start;
            self.demote(cache, other);
        }
        leaving > 0
    }

    /// The extent to demote first of those that are fast. `looked` says whether all were looked over.
    fn next_cold(&self, cache: &Cache, looked: &mut bool) -> Option<u32> {
        let tier = &cache.tier;
        loop {
            {
                let (table, mut jobs) = (tier.table.borrow(), tier.jobs.borrow_mut());
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
            let cold = self.coldest_fast(cache, VICTIMS);
            tier.jobs.borrow_mut().cold = cold.into();
        }
    }

    // --- copying ----------------------------------------------------------------------------------

    /// The task that copies what is missing of extents that are fast.
    pub(crate) async fn copy_loop(self: Rc<Self>, cache: Rc<Cache>) {
        let tier = Rc::clone(&cache.tier);
        while !cache.stopped.get() && cache.is_running() {
            let work = tier.promote_work.wait();
            let Some((extent, pages)) = self.next_chunk(&cache) else {
                work.await;
                continue;
            };
            self.pace(&cache, Bytes((pages.end - pages.start) * PAGE))
                .await;
            if !self.copy_chunk(&cache, extent, pages).await {
                env::sleep(REST).await;
            }
        }
    }

    /// The next missing pages to copy.
    fn next_chunk(&self, cache: &Cache) -> Option<(u32, Range<u64>)> {
        loop {
            match self.look_for_chunk(cache)? {
                Look::Chunk(extent, pages) => return Some((extent, pages)),
                Look::Finished(extent) => {
                    let region = cache.tier.table.borrow().region_of(extent);
                    self.settle_move(cache, region);
                }
            }
        }
    }

    fn look_for_chunk(&self, cache: &Cache) -> Option<Look> {
        let tier = &cache.tier;
        let mut jobs = tier.jobs.borrow_mut();
        let (table, stats) = (tier.table.borrow(), tier.stats.borrow());
        loop {
            if jobs.order.is_empty() {
                let mut order: Vec<(f64, u32)> = jobs
                    .copies
                    .keys()
                    .map(|extent| (stats.heat(*extent), *extent))
                    .collect();
                order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
                jobs.order = order.into_iter().map(|(_, extent)| extent).collect();
            }
            let extent = *jobs.order.front()?;
            let Some(done) = jobs.copies.get(&extent).copied() else {
                jobs.order.pop_front();
                continue;
            };
            let pages = table.pages_of(extent);
            let part_len = part_pages(table.extent_pages());
            let parts = (pages.end - pages.start).div_ceil(part_len);
            let all = if parts >= 64 {
                u64::MAX
            } else {
                (1 << parts) - 1
            };
            let left = all & !done;
            let map = cache.map.borrow();
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
            // Neighbouring parts go along while they fit one request.
            let mut upto = end;
            let mut next = part + 1;
            while touched == 0 && next < parts && left >> next & 1 == 1 {
                let more = (upto + part_len).min(pages.end);
                if more - first > CHUNK_PAGES {
                    break;
                }
                upto = more;
                next += 1;
            }
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

    /// If nothing more is to be promoted or copied for `region`, its way up is over.
    fn settle_move(&self, cache: &Cache, region: Region) {
        let tier = &cache.tier;
        // The published mover ends its own.
        if tier.published.last_decided(region).is_some() {
            return;
        }
        let pending = {
            let (table, jobs) = (tier.table.borrow(), tier.jobs.borrow());
            table
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
    async fn copy_chunk(
        self: &Rc<Self>,
        cache: &Rc<Cache>,
        extent: u32,
        pages: Range<u64>,
    ) -> bool {
        let bytes = Bytes((pages.end - pages.start) * PAGE);
        if !self.flash_budget_allows(bytes) {
            env::sleep(BUDGET_REST).await;
            return false;
        }
        // Users went on while this copy waited for its turn: what they wrote is newer than what would be read.
        let stands = {
            let map = cache.map.borrow();
            tier_place(cache, extent) == Place::Fast
                && pages.clone().all(|page| map.find(page).is_none())
        };
        if !stands {
            return true;
        }
        let Some(token) = cache.begin_fill(pages.start, pages.end) else {
            return false;
        };
        let at = Sector::containing(pages.start * PAGE);
        let read = self
            .slow
            .read(at, Buf::for_read(bytes.usize()), Class::Background)
            .await;
        let answer = match read {
            Ok(buf) => {
                cache.fill(token, pages.start, buf.freeze()).await;
                true
            }
            Err(error) => {
                tracing::warn!(volume = %self.name, %error, "a copy to the fast device was given up");
                false
            }
        };
        cache.forget_fill(token, pages.start, pages.end);
        let tier = &cache.tier;
        let copied = {
            let map = cache.map.borrow();
            pages
                .clone()
                .filter(|page| map.find(*page).is_some())
                .count() as u64
        };
        if !answer {
            // What cannot be read stays where it is.
            tier.jobs.borrow_mut().copies.remove(&extent);
            let region = tier.table.borrow().region_of(extent);
            tier.stats.borrow_mut().give_up(region, MoveEnd::Failed);
            return false;
        }
        count(&tier.counts.bytes_promoted, copied * PAGE);
        let region = tier.table.borrow().region_of(extent);
        tier.stats.borrow_mut().copied(region, Bytes(copied * PAGE));
        copied > 0
    }
}
