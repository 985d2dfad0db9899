//! The tier when something else changes: a start, other choices, another size; and what people see of it.
//!
//! Always true:
//! 1. What is fast stays fast through a change of choices, as far as the new ones have room for it.
//! 2. Without a tier no page is pinned.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use base::Bytes;
use policy::tier::{Region, Way};

use crate::attach::label::PAGE;
use crate::cache::{Cache, count};
use crate::engine::Inner;
use crate::index::extents::{ExtentRecord, ExtentTable, Place};
use crate::settings::Settings;
use crate::settings::{Mode, Mover};
use crate::tier::{Asked, Heat, MoveEnd, MoveRecord, TierStatus, interval};

impl Inner {
    /// After a restart: what `kept` names is fast again.
    pub(crate) fn restore_tier(&self, cache: &Rc<Cache>, kept: &BTreeMap<u32, ExtentRecord>) {
        let tier = &cache.tier;
        let room = self.tier_room(cache);
        tier.table.borrow_mut().restore(kept, room);
        let up: Vec<u32> = tier.table.borrow().fast().collect();
        for extent in &up {
            self.update_pin(cache, *extent);
        }
        let reserved = tier.table.borrow().reserved();
        cache.set_held_pages(reserved);
        // Dirty blocks that are in the way go when they are clean.
        cache.make_room_beside(reserved);
        let wanted: Vec<Region> = tier.table.borrow().wanted().collect();
        tier.policy.borrow_mut().adopt(&wanted);
        for extent in up {
            self.copy_missing(cache, extent);
            self.move_missing(cache, extent);
        }
        if !kept.is_empty() {
            cache.note_extent();
        }
    }

    /// The tasks of a cache begin: statistics from now on, pinned ranges promoted.
    pub(crate) fn begin_tier(self: &Rc<Self>, cache: &Rc<Cache>) {
        cache.tier.stats.borrow_mut().restart(env::now());
        self.fit_tier(cache);
    }

    /// Takes over changed choices.
    pub(crate) fn apply_tier(self: &Rc<Self>, cache: &Rc<Cache>, old: &Settings) {
        let new = self.settings.borrow().clone();
        let tier = &cache.tier;
        if new.mode == old.mode && new.tier == old.tier {
            return;
        }
        if new.mode == Mode::Cache || new.tier.extent != old.tier.extent {
            let kept: BTreeMap<u32, ExtentRecord> = tier.table.borrow().all_kept().collect();
            self.release_all(cache);
            let fresh = ExtentTable::new(self.slow.whole_pages(), &new.tier);
            tier.table.borrow_mut().regrain(fresh);
            self.restore_tier(cache, &kept);
        } else {
            tier.table.borrow_mut().set(&new.tier);
        }
        if (new.tier.policy, new.tier.region) != (old.tier.policy, old.tier.region) {
            *tier.policy.borrow_mut() = interval::build(&new.tier);
            tier.published.forget_queue();
            let wanted: Vec<Region> = tier.table.borrow().wanted().collect();
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
        self.fit_tier(cache);
        tier.wake();
    }

    /// Every extent lives on the slow device from now on; its pages are ordinary pages of the cache.
    fn release_all(&self, cache: &Cache) {
        let tier = &cache.tier;
        let gone = tier.table.borrow_mut().clear();
        tier.jobs.borrow_mut().clear();
        tier.published.forget_queue();
        for extent in gone {
            self.update_pin(cache, extent);
        }
        cache.set_held_pages(0);
        cache.note_extent();
        let now = env::now();
        tier.stats.borrow_mut().end_all(now, MoveEnd::Cancelled);
    }

    /// Pins, exclusions or room changed: what may not be fast any more is demoted, what must be fast is promoted.
    pub(crate) fn fit_tier(self: &Rc<Self>, cache: &Rc<Cache>) {
        let tier = &cache.tier;
        if !self.has_tier() {
            return;
        }
        tier.jobs.borrow_mut().make_hope();
        tier.shut.set(self.opens_in().is_some());
        let up: Vec<u32> = tier.table.borrow().fast().collect();
        for extent in up {
            if tier.table.borrow().is_excluded(extent) {
                self.demote(cache, extent);
            } else {
                self.update_pin(cache, extent);
                self.copy_missing(cache, extent);
                self.move_missing(cache, extent);
            }
        }
        self.shed(cache);
        let pinned = tier.table.borrow().pinned();
        for extent in pinned {
            self.promote_soon(cache, extent);
        }
        let wanted: Vec<Region> = tier.table.borrow().wanted().collect();
        for region in wanted {
            let extents = tier.table.borrow().extents_of(region);
            let mover = self.settings.borrow().tier.mover;
            match mover {
                Mover::Direct => self.promote_some(cache, extents),
                Mover::Published => tier.published.decide(region, Way::Up),
            }
        }
        let room = self.tier_room(cache);
        let regions = {
            let table = tier.table.borrow();
            // Where extents go up one by one a region takes what it needs, and no more is known beforehand; and
            // a boundary that follows the demand has to see it.
            let whole = table.one_grain() || !self.settings.borrow().tier.break_even;
            match whole && !self.splits() {
                true => {
                    (room / (table.region_bytes().0 / PAGE)).min(u64::from(table.regions())) as u32
                }
                false => table.regions(),
            }
        };
        tier.policy.borrow_mut().set_room(regions);
    }

    /// The tier has more than it may have: the coldest extents are demoted, idle ones first.
    pub(crate) fn shed(self: &Rc<Self>, cache: &Rc<Cache>) {
        let tier = &cache.tier;
        let room = self.tier_room(cache);
        let mut staying = {
            let table = tier.table.borrow();
            let up = table.fast().map(|extent| table.pages_of(extent));
            up.map(|pages| pages.end - pages.start).sum::<u64>()
        };
        if staying <= room {
            return;
        }
        for extent in self.coldest_fast(cache, usize::MAX) {
            if staying <= room {
                break;
            }
            let pages = tier.table.borrow().pages_of(extent);
            staying -= pages.end - pages.start;
            self.demote(cache, extent);
            self.not_promoted(cache, extent);
        }
    }

    /// At most `most` extents that are fast: idle ones, then those wanted, pinned ones last; the coldest first.
    pub(crate) fn coldest_fast(&self, cache: &Cache, most: usize) -> Vec<u32> {
        let (table, stats) = (cache.tier.table.borrow(), cache.tier.stats.borrow());
        let mut up: Vec<(u8, f64, u32)> = table
            .fast()
            .map(|extent| {
                let rank = u8::from(table.wants(extent)) + u8::from(table.is_pinned(extent));
                (rank, stats.heat(extent), extent)
            })
            .collect();
        let order = |a: &(u8, f64, u32), b: &(u8, f64, u32)| {
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
        };
        if most < up.len() {
            up.select_nth_unstable_by(most, order);
            up.truncate(most);
        }
        up.sort_unstable_by(order);
        up.into_iter().map(|(_, _, extent)| extent).collect()
    }

    // --- what is counted and seen -----------------------------------------------------------------

    /// Is all of `range` (in bytes) on the fast device, in whole or in part, and does only that have the newest of it?
    pub(crate) fn look_up(&self, cache: &Cache, range: &Range<u64>) -> (bool, bool) {
        let end = range.end.div_ceil(PAGE).min(self.slow.whole_pages());
        let pages = range.start / PAGE..end;
        let map = cache.map.borrow();
        let resident = pages.clone().all(|page| map.find(page).is_some());
        (
            resident,
            resident && pages.clone().all(|page| map.is_dirty(page)),
        )
    }

    /// A request of a user for `range` (in bytes) comes: counts it. A hit is one whose data are all on the fast
    /// device, or that writes to an extent that is fast.
    pub(crate) fn note_request(
        self: &Rc<Self>,
        cache: &Rc<Cache>,
        range: Range<u64>,
        asked: Asked,
    ) {
        let counts = &cache.tier.counts;
        let (write, resident, dirty) = match asked {
            Asked::Read { resident } => (false, resident, false),
            Asked::Write { resident, dirty } => (true, resident, dirty),
        };
        count(&counts.requests, 1);
        count(&counts.dirty_write_requests, u64::from(dirty));
        if !self.has_tier() {
            count(&counts.hit_requests, u64::from(resident));
            return;
        }
        let buffered = cache.tier.published.serves(&range, write, resident);
        let up = {
            let table = cache.tier.table.borrow();
            let end = range.end.div_ceil(PAGE).min(table.pages());
            let last = end.max(range.start / PAGE + 1) - 1;
            let mut extents = table.extent_of(range.start / PAGE)..=table.extent_of(last);
            extents.all(|extent| table.place(extent) == Place::Fast)
        };
        count(&counts.tier_requests, u64::from(up));
        count(&counts.buffer_requests, u64::from(buffered));
        let hit = !buffered && (resident || up && write);
        count(&counts.hit_requests, u64::from(hit));
        if !up {
            let first = range.start / PAGE;
            self.note_cache_use(cache, first, range.end.div_ceil(PAGE) - first);
        }
        self.touch_tier(cache, range, write, !write && !resident);
    }

    /// See [`crate::Hybrid::heat`].
    pub(crate) fn heat(&self, first: u64) -> Option<Heat> {
        let cache = self.live_cache().filter(|_| self.has_tier())?;
        let (table, stats) = (cache.tier.table.borrow(), cache.tier.stats.borrow());
        Some(Heat {
            region: table.region_bytes(),
            regions: table.regions(),
            intervals: stats
                .intervals()
                .filter(|interval| interval.number >= first)
                .cloned()
                .collect(),
        })
    }

    /// See [`crate::Hybrid::moves`].
    pub(crate) fn moves(&self, after: u64) -> Vec<MoveRecord> {
        let cache = self.live_cache().filter(|_| self.has_tier());
        cache.map_or_else(Vec::new, |cache| cache.tier.stats.borrow().moves(after))
    }

    /// See [`crate::Hybrid::tier`].
    pub(crate) fn tier_status(&self) -> Option<TierStatus> {
        let cache = self.live_cache().filter(|_| self.has_tier())?;
        let tier = &cache.tier;
        let (table, stats, map) = (tier.table.borrow(), tier.stats.borrow(), cache.map.borrow());
        let counts = &tier.counts;
        let flow = self.settings.borrow().tier.flow_control;
        let candidates = stats
            .intervals()
            .last()
            .map_or(0, |last| last.candidates.len());
        Some(TierStatus {
            region_bytes: table.region_bytes().0,
            extent_bytes: Bytes(table.extent_pages() * PAGE).0,
            regions: table.regions(),
            regions_up: table.regions_up().len() as u32,
            room_bytes: self.tier_room(&cache) * PAGE,
            held_bytes: u64::from(map.held()) * PAGE,
            held_dirty_bytes: u64::from(map.held_dirty()) * PAGE,
            intervals: stats.number(),
            candidates: candidates as u32,
            moves_under_way: stats.pending() as u32,
            moves_up: counts.moves_up.get(),
            moves_down: counts.moves_down.get(),
            moves_cancelled: counts.cancelled.get(),
            moves_failed: counts.failed.get(),
            bytes_up: counts.bytes_promoted.get(),
            bytes_down: counts.bytes_demoted.get(),
            bytes_dropped: counts.bytes_dropped.get(),
            requests_up: counts.tier_requests.get(),
            flow_bytes_per_second: flow.then(|| tier.pace.borrow().rate().0 as f64),
            sync_writes: tier.published.sync_writes.get(),
        })
    }
}
