//! What is where, in memory: pages in slots, slots in use, extents on the fast device, pages under change.
//!
//! Always true:
//! 1. A slot that the map no longer names is used again only after the commit that forgets it, and after the readers
//!    that entered before.
//! 2. Where a page was unmapped since the last commit is remembered: until then the durable map may have it.

pub(crate) mod dirty;
pub(crate) mod entries;
pub(crate) mod extents;
pub(crate) mod fills;
mod frames;
mod grains;
pub(crate) mod locks;
pub(crate) mod page_map;
mod pins;
mod residents;
pub(crate) mod slots;

use base::{Instant, Map};
use ledger::Cut;

use page_map::{Entry, PageMap, UNIT_PAGES};
use slots::SlotAllocator;

/// Which page is in which slot, and which slots are free.
pub(crate) struct Index {
    pub map: PageMap,
    pub slots: SlotAllocator,
    /// Where pages were unmapped since the last commit, by MiB: the commit that makes it durable.
    recent: Map<u64, Cut>,
}

impl Index {
    /// `map` with all slots free; see [`SlotAllocator::take`].
    pub fn new(map: PageMap, slots: u32) -> Index {
        Index {
            map,
            slots: SlotAllocator::new(slots),
            recent: Map::default(),
        }
    }

    /// `page` lives where `entry` says, whose slot is complete.
    pub fn put(&mut self, page: u64, entry: &Entry, now: Instant) {
        let Entry {
            slot,
            dirty,
            mask,
            crc,
        } = *entry;
        if let Some(old) = self.map.put(page, slot, dirty, mask, crc, now) {
            self.slots.release(old);
        }
    }

    /// Forgets `page`, durably with commit `next`. False if it was not mapped.
    pub fn remove(&mut self, page: u64, next: Cut) -> bool {
        let Some(old) = self.map.remove(page) else {
            return false;
        };
        self.slots.release(old);
        self.recent.insert(page / UNIT_PAGES, next);
        true
    }

    /// Evicts one clean block to make room for that of `incoming`; the pages that left are forgotten durably with
    /// commit `next`. `None` if all is dirty.
    pub fn evict(&mut self, incoming: Option<u64>, next: Cut) -> Option<Vec<u64>> {
        let mut gone = Vec::new();
        let Index { map, slots, recent } = self;
        let evicted = map.evict(incoming, &mut |page, slot| {
            slots.release(slot);
            recent.insert(page / UNIT_PAGES, next);
            gone.push(page);
        });
        evicted.then_some(gone)
    }

    /// Has the map one of pages `first..end`, or may the durable one have it?
    pub fn may_know(&self, first: u64, end: u64) -> bool {
        let mut units = first / UNIT_PAGES..end.div_ceil(UNIT_PAGES);
        self.map.resident_in(first, end) > 0
            && (first..end).any(|page| self.map.find(page).is_some())
            || !self.recent.is_empty() && units.any(|unit| self.recent.contains_key(&unit))
    }

    /// All up to `cut` is durable.
    pub fn durable(&mut self, cut: Cut) {
        self.slots.durable();
        self.recent.retain(|_, commit| *commit > cut);
    }
}
