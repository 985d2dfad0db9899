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

use page_map::{Entry, PageMap, UNIT_PAGES, evict_unused};
use slots::{GROUP, SlotAllocator};

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

    /// Evicts one clean block to make room for that of `incoming`; its pages and their slots are forgotten durably with
    /// commit `next`. `None` if all is dirty.
    pub fn evict(&mut self, incoming: Option<u64>, next: Cut) -> Option<Vec<(u64, u32)>> {
        let mut gone = Vec::new();
        let evicted = self
            .map
            .evict(incoming, &mut |page, slot| gone.push((page, slot)));
        self.release(&gone, next);
        evicted.then_some(gone)
    }

    /// Evicts up to `most` clean unused pages of the group that `slot` is in, as [`Index::evict`]; none if that would
    /// leave the group in fragments.
    pub fn evict_beside(&mut self, slot: u32, most: usize, next: Cut) -> Vec<(u64, u32)> {
        let group = self.slots.group_of(slot);
        let fewest = (GROUP / 4).saturating_sub(self.slots.free_beside(slot));
        let gone = evict_unused(&mut self.map, group, fewest as usize, most);
        self.release(&gone, next);
        gone
    }

    fn release(&mut self, gone: &[(u64, u32)], next: Cut) {
        for (page, slot) in gone {
            self.slots.release(*slot);
            self.recent.insert(page / UNIT_PAGES, next);
        }
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
