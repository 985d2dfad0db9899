//! Which page of the slow device lives in which slot, in what state?
//!
//! ```text
//! page --Index--> slot: page number 5 B, state 1 B, CRC-32C 4 B      block frame --policy--> order
//! ```
//!
//! Mapping, atomicity and checksums are per 4 KiB page ([`Entries`]); what is evicted goes by blocks ([`Frames`]), but
//! for what is pinned ([`Pins`]).
//!
//! Memory for each cached 4 KiB block: 10 bytes here, about 4 in the index and at most 10 in the policy
//! (below 2^24 slots), so at most 24; beside them 2 bytes for each MiB of the slow device up to the
//! last one that was ever resident, and with a tier 1 byte more up to the last pinned one.
//!
//! Always true:
//! 1. A page is in at most one slot, a slot holds at most one page.
//! 2. The dirty regions count the dirty slots.
//! 3. A block's frame is in the policy exactly while a page of it is resident and it is not pinned.

use std::ops::Range;

use base::Instant;
use policy::cache::Kind;

use super::dirty::DirtyRegions;
use super::entries::Entries;
pub(crate) use super::entries::Entry;
use super::frames::Frames;
pub(crate) use super::grains::{FULL, REGION_PAGES, UNIT_PAGES};
pub(crate) use super::pins::Pinned;
use super::pins::Pins;
use super::residents::Residents;

/// The map of one fast device.
pub(crate) struct PageMap {
    entries: Entries,
    frames: Frames,
    pins: Pins,
    dirty: DirtyRegions,
    residents: Residents,
}

/// As [`PageMap::get`]. The slot behind `before` is looked at first: the page lies there if it came in with the one in front
/// of it.
pub(crate) fn get_behind(map: &PageMap, before: Option<u32>, page: u64) -> Option<Entry> {
    let beside = before.map(|slot| slot + 1);
    let beside = beside.filter(|slot| map.entries.holds(*slot, page));
    let slot = beside.or_else(|| map.find(page))?;
    Some(map.entries.entry(slot))
}

impl PageMap {
    pub fn new(slots: u32, kind: Kind, pages_per_block: u64) -> PageMap {
        PageMap {
            entries: Entries::new(slots),
            frames: Frames::new(slots, kind, pages_per_block),
            pins: Pins::default(),
            dirty: DirtyRegions::default(),
            residents: Residents::default(),
        }
    }

    // --- what is there ----------------------------------------------------------------------------

    /// Resident pages.
    pub fn resident(&self) -> u32 {
        self.residents.pages()
    }

    /// Dirty pages.
    pub fn dirty(&self) -> u32 {
        self.dirty.pages()
    }

    /// Dirty pages by region.
    pub fn regions(&self) -> &DirtyRegions {
        &self.dirty
    }

    /// What is pinned.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Resident pages of each MiB from the first one on; those behind the end have none.
    pub fn residents(&self) -> &[u16] {
        self.residents.units()
    }

    /// Resident pages of the MiBs that pages `first..end` lie in.
    pub fn resident_in(&self, first: u64, end: u64) -> u64 {
        self.residents.within(first, end)
    }

    /// Blocks the policy has.
    pub fn frames(&self) -> u32 {
        self.frames.len()
    }

    /// Bytes of memory in total.
    pub fn memory(&self) -> usize {
        self.entries.memory()
            + self.frames.memory()
            + self.dirty.memory()
            + self.residents.memory()
            + self.pins.memory()
    }

    pub fn find(&self, page: u64) -> Option<u32> {
        self.entries.find(page)
    }

    pub fn get(&self, page: u64) -> Option<Entry> {
        self.find(page).map(|slot| self.entries.entry(slot))
    }

    /// The entry in `slot`, if there is such a slot and it holds one.
    pub fn in_slot(&self, slot: u32) -> Option<(u64, Entry)> {
        self.entries.in_slot(slot)
    }

    /// The checksum of what was last written to `slot`; stays until the slot is used again.
    pub fn crc(&self, slot: u32) -> u32 {
        self.entries.crc(slot)
    }

    pub fn is_dirty(&self, page: u64) -> bool {
        self.find(page)
            .is_some_and(|slot| self.entries.is_dirty(slot))
    }

    // --- what is used -----------------------------------------------------------------------------

    /// A request touches the blocks of pages `first..end`: the policy notes the hits, and the misses too.
    /// Returns how many of the blocks were resident. Pinned ones are not the policy's and do not count.
    pub fn touch(&mut self, first: u64, end: u64) -> u64 {
        let shift = self.frames.shift();
        let mut hits = 0;
        for key in (first >> shift)..=((end - 1) >> shift) {
            if self.pins.has(key << shift) {
                continue;
            }
            let frame = self.frames.find(key, &self.entries);
            hits += u64::from(frame.is_some());
            self.frames.note(key, frame);
        }
        hits
    }

    /// Is a block one page, so that the policy's frames are the slots?
    pub fn block_is_page(&self) -> bool {
        self.frames.dirty_blocks().is_none()
    }

    /// As [`PageMap::touch`] for one page just looked up, in `slot` or not found, with blocks of one page. Since then a
    /// tier extent that came up may have taken its slot.
    pub fn note(&mut self, page: u64, slot: Option<u32>) {
        let stays = slot.is_none_or(|slot| self.entries.holds(slot, page));
        if stays && !self.pins.has(page) {
            self.frames.note(page, slot);
        }
    }

    /// Is the block of `page` resident, though the page may not be? And has it been seen lately though it is not?
    pub fn knows_block(&self, page: u64) -> (bool, bool) {
        let key = page >> self.frames.shift();
        let resident = self.frames.find(key, &self.entries).is_some();
        (resident, self.frames.remembers(key))
    }

    /// How many block frames pages `first..end` would need on top.
    pub fn frames_needed(&self, first: u64, end: u64) -> u32 {
        let shift = self.frames.shift();
        ((first >> shift)..=((end - 1) >> shift))
            .filter(|key| !self.pins.has(key << shift))
            .filter(|key| self.frames.find(*key, &self.entries).is_none())
            .count() as u32
    }

    // --- what changes -----------------------------------------------------------------------------

    /// `page` now lives in `slot`. Returns the slot it lived in before.
    pub fn put(
        &mut self,
        page: u64,
        slot: u32,
        dirty: bool,
        mask: u8,
        crc: u32,
        now: Instant,
    ) -> Option<u32> {
        let old = self.find(page);
        match old {
            Some(old) => {
                self.unset_dirty(old, page);
                self.entries.clear(old);
                self.entries.link(page, Some(old), slot);
                if !self.pins.has(page) {
                    self.frames.moved(old, slot);
                }
            }
            None => {
                self.residents.count(page, 1);
                self.entries.link(page, None, slot);
                self.order(page, slot, 1);
            }
        }
        self.entries.fill(page, slot, mask, crc);
        if dirty {
            self.entries.set_dirty(slot, true);
            self.dirty.add(page, now);
            self.count_dirty(page, 1);
        }
        old
    }

    /// Forgets `page` (invalidated, not evicted). Returns the slot it lived in.
    pub fn remove(&mut self, page: u64) -> Option<u32> {
        let slot = self.find(page)?;
        self.drop_page(page, slot);
        self.order(page, slot, -1);
        Some(slot)
    }

    /// The slow device has the page's contents now.
    pub fn set_clean(&mut self, page: u64) {
        if let Some(slot) = self.find(page) {
            self.unset_dirty(slot, page);
        }
    }

    /// Evicts one clean block to make room for the block of `incoming` (`None`: ahead of need). Calls
    /// `gone` with each page and slot that left; false if every block is dirty.
    pub fn evict(&mut self, incoming: Option<u64>, gone: &mut dyn FnMut(u64, u32)) -> bool {
        let any_clean = match self.frames.dirty_blocks() {
            None => self.dirty() - self.pins.dirty() < self.resident() - self.pins.resident(),
            Some(dirty) => dirty < self.frames.len() as usize,
        };
        if !any_clean {
            return false;
        }
        let incoming = incoming.map(|page| page >> self.frames.shift());
        let Some(pages) = self.frames.evict(incoming, &self.entries) else {
            return false;
        };
        for page in pages {
            if let Some(slot) = self.find(page) {
                self.drop_page(page, slot);
                self.frames.evicted(page);
                gone(page, slot);
            }
        }
        true
    }

    /// Pins the MiBs from page `first` to `end`, or lets them go: their pages leave the policy or enter it.
    ///
    /// # Panics
    /// If `first` is not on the bound of a MiB.
    pub fn set_pinned(&mut self, first: u64, end: u64, pinned: Pinned) {
        assert!(
            first.is_multiple_of(UNIT_PAGES),
            "page {first} begins a MiB"
        );
        for unit in first / UNIT_PAGES..end.div_ceil(UNIT_PAGES) {
            let (from, upto) = (unit * UNIT_PAGES, (unit + 1) * UNIT_PAGES);
            let before = self.pins.of(from);
            if before == pinned {
                continue;
            }
            if before != Pinned::No && pinned != Pinned::No {
                self.pins.set(from, pinned);
                // Only its dirty pages count differently. Most have none, and then nothing is looked up; a GiB of them
                // would keep users waiting.
                if self.dirty.has_region_of(from) {
                    let dirty = (from..upto).filter(|page| self.is_dirty(*page)).count();
                    self.pins.recount_hot(pinned, dirty as u32);
                }
                continue;
            }
            let pages: Vec<(u64, u32)> = if self.resident_in(from, upto) > 0 {
                let find = |page| self.find(page).map(|slot| (page, slot));
                (from..upto).filter_map(find).collect()
            } else {
                Vec::new()
            };
            for (page, slot) in &pages {
                self.order(*page, *slot, -1);
            }
            self.pins.set(from, pinned);
            for (page, slot) in &pages {
                self.order(*page, *slot, 1);
            }
        }
    }

    /// Another policy or another block size; contents and, as far as known, recency stay.
    pub fn set_grain(&mut self, kind: Kind, pages_per_block: u64) {
        let mut order = Vec::new();
        self.frames
            .coldest_first(&self.entries, &mut |page| order.push(page));
        self.frames = Frames::new(self.entries.slots(), kind, pages_per_block);
        for page in order {
            let Some(slot) = self.find(page) else {
                continue;
            };
            self.frames.page_came(page, slot);
            if self.entries.is_dirty(slot) {
                self.frames.count_dirty(page, 1);
            }
        }
    }

    /// Room for `slots` slots; those behind a smaller end must be empty.
    pub fn resize(&mut self, slots: u32, kind: Kind, pages_per_block: u64) {
        let mut kept = Vec::new();
        match self.block_is_page() {
            true => self
                .frames
                .coldest_first(&self.entries, &mut |page| kept.push(page)),
            false => kept.extend(
                (0..self.entries.slots().min(slots))
                    .filter_map(|slot| self.in_slot(slot))
                    .map(|(page, _)| page)
                    .filter(|page| !self.pins.has(*page)),
            ),
        }
        self.entries.resize(slots);
        // A fresh policy of the new size, filled in the old order.
        self.frames = Frames::new(slots, kind, 1);
        for page in kept {
            let slot = self.find(page).expect("it is in the policy");
            self.frames.page_came(page, slot);
        }
        if pages_per_block > 1 {
            self.set_grain(kind, pages_per_block);
        }
    }

    // --- how it is counted ------------------------------------------------------------------------

    fn unset_dirty(&mut self, slot: u32, page: u64) {
        if self.entries.is_dirty(slot) {
            self.entries.set_dirty(slot, false);
            self.dirty.remove(page);
            self.count_dirty(page, -1);
        }
    }

    fn drop_page(&mut self, page: u64, slot: u32) {
        self.unset_dirty(slot, page);
        self.entries.clear(slot);
        self.entries.unlink(page, slot);
        self.residents.count(page, -1);
    }

    /// A resident page enters (1) or leaves (-1) the policy, or the counts of what is pinned.
    fn order(&mut self, page: u64, slot: u32, by: i16) {
        let dirty = self.entries.is_dirty(slot);
        if dirty && by < 0 {
            self.count_dirty(page, by);
        }
        match (self.pins.has(page), by > 0) {
            (true, _) => self.pins.count_resident(by),
            (false, true) => self.frames.page_came(page, slot),
            (false, false) => self.frames.page_left(page, slot),
        }
        if dirty && by > 0 {
            self.count_dirty(page, by);
        }
    }

    /// Counts a dirty page of its block, or of what is pinned.
    fn count_dirty(&mut self, page: u64, by: i16) {
        match self.pins.of(page) {
            Pinned::No => self.frames.count_dirty(page, by),
            pinned => self.pins.count_dirty(pinned, by),
        }
    }
}

/// When the oldest dirty page became dirty that waits for the cleaner, as far as its region remembers. A region with a hot MiB
/// does not count: that stays dirty on purpose, and the region does not tell its age from the rest's.
pub(crate) fn oldest_waiting(map: &PageMap) -> Option<Instant> {
    let is_hot = |region: u64| {
        let mut pages = (0..REGION_PAGES).step_by(UNIT_PAGES as usize);
        pages.any(|page| map.pins().of(region * REGION_PAGES + page) == Pinned::Hot)
    };
    map.regions().oldest_of(|region| !is_hot(region))
}

/// Evicts up to `most` clean pages in `slots` that were not used lately, though others come before them, if there are
/// `fewest` of them. Returns each with its slot.
pub(crate) fn evict_unused(
    map: &mut PageMap,
    slots: Range<u32>,
    fewest: usize,
    most: usize,
) -> Vec<(u64, u32)> {
    let unused = slots.filter_map(|slot| {
        let (page, entry) = map.in_slot(slot)?;
        let may = !entry.dirty && !map.pins.has(page);
        (may && map.frames.is_unused(slot)).then_some((page, slot))
    });
    let mut gone: Vec<(u64, u32)> = unused.collect();
    if gone.len() < fewest {
        return Vec::new();
    }
    gone.truncate(most);
    for (page, slot) in &gone {
        map.frames.leave(*page, *slot);
        map.drop_page(*page, *slot);
    }
    gone
}

/// Checks the module's invariants.
#[cfg(test)]
impl PageMap {
    pub fn check(&self) {
        let all: Vec<(u64, Entry)> = (0..self.entries.slots())
            .filter_map(|slot| self.in_slot(slot))
            .collect();
        assert_eq!(all.len(), self.resident() as usize);
        assert_eq!(all.len(), self.entries.used());
        let dirty = all.iter().filter(|(_, entry)| entry.dirty).count();
        assert_eq!(dirty, self.dirty() as usize);
        self.dirty.check();
        let mut residents = vec![0; self.residents().len()];
        for (page, entry) in &all {
            residents[(page / UNIT_PAGES) as usize] += 1;
            assert_eq!(self.find(*page), Some(entry.slot), "page {page}");
        }
        assert_eq!(residents, self.residents());
        let pinned: Vec<(Pinned, Entry)> = all
            .iter()
            .map(|(page, entry)| (self.pins.of(*page), *entry))
            .filter(|(pinned, _)| *pinned != Pinned::No)
            .collect();
        let hot = |(pinned, entry): &&(Pinned, Entry)| *pinned == Pinned::Hot && entry.dirty;
        assert_eq!(pinned.len(), self.pins.resident() as usize);
        let dirty = pinned.iter().filter(|(_, entry)| entry.dirty).count();
        assert_eq!(dirty, self.pins.dirty() as usize);
        let hot = pinned.iter().filter(hot).count();
        assert_eq!(hot, self.pins.hot_dirty() as usize);
        self.frames.check(all.len() - pinned.len());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    const NOW: Instant = Instant(0);

    #[derive(Debug, Clone)]
    enum Step {
        Put(u64, bool, u8),
        Remove(u64),
        Clean(u64),
        Evict(u64),
        Touch(u64),
        Pin(u64, Pinned),
    }

    /// 48 pages in three MiBs.
    fn pages() -> impl Iterator<Item = u64> {
        (0..48).map(|number| number / 16 * UNIT_PAGES + number % 16)
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let page = (0..48u64).prop_map(|number| number / 16 * UNIT_PAGES + number % 16);
        let pinned = prop_oneof![Just(Pinned::No), Just(Pinned::Cold), Just(Pinned::Hot)];
        let step = prop_oneof![
            4 => (page.clone(), any::<bool>(), prop_oneof![Just(FULL), 1..=254u8])
                .prop_map(|(page, dirty, mask)| Step::Put(page, dirty, mask)),
            1 => page.clone().prop_map(Step::Remove),
            2 => page.clone().prop_map(Step::Clean),
            1 => page.clone().prop_map(Step::Evict),
            1 => page.prop_map(Step::Touch),
            1 => (0..3u64, pinned).prop_map(|(unit, pinned)| Step::Pin(unit, pinned)),
        ];
        prop::collection::vec(step, 1..200)
    }

    /// The reference model: a map from page to entry, and a list of free slots.
    fn run(steps: Vec<Step>, kind: Kind, pages_per_block: u64) {
        const SLOTS: u32 = 64;
        let mut map = PageMap::new(SLOTS, kind, pages_per_block);
        let mut twin: BTreeMap<u64, Entry> = BTreeMap::new();
        let mut free: Vec<u32> = (0..SLOTS).collect();
        let mut pins = [Pinned::No; 3];
        let mut stamp = 0;
        for step in steps {
            match step {
                Step::Pin(unit, pinned) => {
                    let (first, end) = (unit * UNIT_PAGES, (unit + 1) * UNIT_PAGES);
                    map.set_pinned(first, end, pinned);
                    pins[unit as usize] = pinned;
                }
                Step::Put(page, dirty, mask) => {
                    let slot = free
                        .pop()
                        .expect("64 slots for 48 pages and one on the move");
                    stamp += 1;
                    let old = map.put(page, slot, dirty, mask, stamp, NOW);
                    let entry = Entry {
                        slot,
                        dirty,
                        mask,
                        crc: stamp,
                    };
                    assert_eq!(old, twin.insert(page, entry).map(|entry| entry.slot));
                    free.extend(old);
                }
                Step::Remove(page) => {
                    let slot = map.remove(page);
                    assert_eq!(slot, twin.remove(&page).map(|entry| entry.slot));
                    free.extend(slot);
                }
                Step::Clean(page) => {
                    map.set_clean(page);
                    if let Some(entry) = twin.get_mut(&page) {
                        entry.dirty = false;
                    }
                }
                Step::Evict(page) => {
                    let clean_block = |first: u64| {
                        let range = first..first + pages_per_block;
                        twin.range(range).all(|(_, entry)| !entry.dirty)
                    };
                    let loose = |page: &u64| pins[(page / UNIT_PAGES) as usize] == Pinned::No;
                    let possible = twin
                        .keys()
                        .filter(|page| loose(page))
                        .any(|page| clean_block(page / pages_per_block * pages_per_block));
                    let mut gone = Vec::new();
                    let evicted = map.evict(Some(page), &mut |page, slot| gone.push((page, slot)));
                    assert_eq!(evicted, possible);
                    for (page, slot) in gone {
                        assert!(loose(&page), "page {page} is held");
                        let entry = twin.remove(&page).expect("only residents leave");
                        assert_eq!((entry.slot, entry.dirty), (slot, false));
                        free.push(slot);
                    }
                }
                Step::Touch(page) => {
                    let hits = map.touch(page, page + 1);
                    let block = page / pages_per_block * pages_per_block;
                    let resident = twin.range(block..block + pages_per_block).next().is_some();
                    let free = pins[(page / UNIT_PAGES) as usize] == Pinned::No;
                    assert_eq!(hits, u64::from(resident && free));
                }
            }
            map.check();
            for page in pages() {
                let found = map.get(page);
                assert_eq!(found, twin.get(&page).copied(), "page {page}");
                // Wherever it is looked for first, also where it is, and behind the last slot.
                let places = [
                    Some(stamp % SLOTS),
                    found.and_then(|it| it.slot.checked_sub(1)),
                    Some(SLOTS - 1),
                ];
                for before in places {
                    assert_eq!(
                        get_behind(&map, before, page),
                        found,
                        "page {page} behind {before:?}"
                    );
                }
            }
        }
        map.set_grain(Kind::Lru, 4);
        map.check();
        map.resize(SLOTS * 2, Kind::Sieve, 1);
        map.check();
        for page in pages() {
            assert_eq!(map.get(page), twin.get(&page).copied(), "page {page}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_map_agrees_with_a_plain_one(steps in steps(), grain in 0..3u32) {
            let pages_per_block = [1, 4, 16][grain as usize];
            for kind in [Kind::Lru, Kind::Sieve, Kind::default()] {
                run(steps.clone(), kind, pages_per_block);
            }
        }
    }

    #[test]
    fn a_page_that_lost_its_slot_after_it_was_looked_up_is_no_hit() {
        for kind in [Kind::Lru, Kind::Sieve, Kind::default()] {
            let mut map = PageMap::new(64, kind, 1);
            map.put(7, 3, false, FULL, 0, NOW);
            map.note(7, Some(3));
            map.remove(7);
            map.note(7, Some(3));
            // Nor is it one of the page that has the slot by now.
            map.put(8, 3, false, FULL, 0, NOW);
            map.note(7, Some(3));
            map.check();
        }
    }
}
