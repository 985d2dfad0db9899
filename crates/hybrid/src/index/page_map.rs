//! Which page of the slow device lives in which slot, in what state?
//!
//! ```text
//! page --Index--> slot: page number 5 B, state 1 B, CRC-32C 4 B      block frame --policy--> order
//! ```
//!
//! Mapping, atomicity and checksums are per 4 KiB page. With blocks of one page the policy's frames *are*
//! the slots, so nothing is stored twice; with bigger blocks a small table of block frames stands beside.
//!
//! A whole MiB of the slow device can be *pinned* (its extent lives on the fast device): its pages are none of
//! the policy's business, so they are never evicted and take no block frame.
//!
//! Memory for each cached 4 KiB block: 10 bytes here, about 4 in the index and at most 10 in the policy
//! (below 2^24 slots), so at most 24; beside them 2 bytes for each MiB of the slow device up to the
//! last one that was ever resident, and with a tier 1 byte more up to the last pinned one.
//!
//! Always true:
//! 1. A page is in at most one slot, a slot holds at most one page.
//! 2. `dirty` counts the dirty slots, and so do the regions.
//! 3. A block's frame is in the policy exactly while a page of it is resident and it is not pinned.

use std::collections::{BTreeMap, BTreeSet};

use base::{Instant, Map};
use policy::cache::{Index, Kind, Replacement};

use crate::attach::label::PAGES_MAX;

/// Pages in a region: write intents and the cleaner's order go by 4 MiB.
pub(crate) const REGION_PAGES: u64 = 1024;
/// Pages that are pinned together: a MiB, and no block is bigger.
pub(crate) const UNIT_PAGES: u64 = 256;
/// All eight sectors of a page.
pub(crate) const FULL: u8 = 0xff;

/// What becomes of the pages of one MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Pinned {
    /// The policy decides.
    #[default]
    No,
    /// They stay, and are destaged as other dirty pages are.
    Cold,
    /// They stay, and stay dirty: they would be written again soon.
    Hot,
}

const USED: u8 = 1;
const DIRTY: u8 = 2;
const PARTIAL: u8 = 4;

/// What the map knows about one cached page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub slot: u32,
    pub dirty: bool,
    /// Which of the page's sectors the slot holds, lowest bit first.
    pub mask: u8,
    pub crc: u32,
}

/// Dirty pages of one 4 MiB region.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DirtyRegion {
    pub pages: u32,
    pub oldest: Instant,
}

struct Blocks {
    shift: u32,
    index: Index,
    keys: Vec<u64>,
    resident: Vec<u16>,
    dirty: Vec<u16>,
    /// Blocks with a dirty page.
    dirty_blocks: usize,
    free: Vec<u32>,
}

pub(crate) struct PageMap {
    pages: Vec<[u8; 5]>,
    state: Vec<u8>,
    crc: Vec<u32>,
    masks: Map<u32, u8>,
    index: Index,
    policy: Box<dyn Replacement>,
    blocks: Option<Blocks>,
    regions: BTreeMap<u64, DirtyRegion>,
    /// The same regions by age.
    ages: BTreeSet<(Instant, u64)>,
    /// Resident pages of each MiB, up to the last one that ever had any.
    residents: Vec<u16>,
    resident: u32,
    dirty: u32,
    /// How each MiB is pinned, up to the last one that ever was.
    pins: Vec<Pinned>,
    /// Resident pages of pinned units, dirty ones among them, and those of hot units.
    held_resident: u32,
    held_dirty: u32,
    hot_dirty: u32,
}

fn pack(page: u64) -> [u8; 5] {
    debug_assert!(page < PAGES_MAX);
    let bytes = page.to_le_bytes();
    [bytes[0], bytes[1], bytes[2], bytes[3], bytes[4]]
}

fn unpack(bytes: [u8; 5]) -> u64 {
    let [a, b, c, d, e] = bytes;
    u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
}

/// How many blocks `slots` slots give room for, leaving spares for out-of-place writes.
pub(crate) fn frames_for(slots: u32, spare: u32, pages_per_block: u64) -> u32 {
    (u64::from(slots - spare) / pages_per_block).max(1) as u32
}

impl PageMap {
    pub fn new(slots: u32, kind: Kind, pages_per_block: u64) -> PageMap {
        let mut map = PageMap {
            pages: vec![[0; 5]; slots as usize],
            state: vec![0; slots as usize],
            crc: vec![0; slots as usize],
            masks: Map::default(),
            index: Index::new(slots),
            policy: policy::cache::build(kind, slots),
            blocks: None,
            regions: BTreeMap::new(),
            ages: BTreeSet::new(),
            residents: Vec::new(),
            resident: 0,
            dirty: 0,
            pins: Vec::new(),
            held_resident: 0,
            held_dirty: 0,
            hot_dirty: 0,
        };
        map.set_grain(kind, pages_per_block);
        map
    }

    fn slots(&self) -> u32 {
        self.state.len() as u32
    }

    pub fn resident(&self) -> u32 {
        self.resident
    }

    pub fn dirty(&self) -> u32 {
        self.dirty
    }

    /// Dirty pages that are to stay dirty as long as they can.
    pub fn hot_dirty(&self) -> u32 {
        self.hot_dirty
    }

    /// Resident pages that are pinned.
    pub fn held(&self) -> u32 {
        self.held_resident
    }

    /// Dirty pages that are pinned.
    pub fn held_dirty(&self) -> u32 {
        self.held_dirty
    }

    /// How the MiB of `page` is pinned.
    pub fn pinned_of(&self, page: u64) -> Pinned {
        let unit = (page / UNIT_PAGES) as usize;
        self.pins.get(unit).copied().unwrap_or_default()
    }

    fn is_held(&self, page: u64) -> bool {
        self.pinned_of(page) != Pinned::No
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
            let before = self.pinned_of(from);
            if before == pinned {
                continue;
            }
            if before != Pinned::No && pinned != Pinned::No {
                self.pins[unit as usize] = pinned;
                self.recount_hot(from, upto, pinned);
                continue;
            }
            let pages: Vec<(u64, u32)> = if self.resident_in(from, upto) > 0 {
                let find = |page| self.find(page).map(|slot| (page, slot));
                (from..upto).filter_map(find).collect()
            } else {
                Vec::new()
            };
            for (page, slot) in &pages {
                self.leave_order(*page, *slot);
            }
            if unit as usize >= self.pins.len() {
                self.pins.resize(unit as usize + 1, Pinned::No);
            }
            self.pins[unit as usize] = pinned;
            for (page, slot) in &pages {
                self.enter_order(*page, *slot);
            }
        }
    }

    /// A pinned MiB became hot, or is not any more: only its dirty pages count differently. Most have none, and then
    /// nothing is looked up; a GiB of them would keep users waiting.
    fn recount_hot(&mut self, from: u64, upto: u64, pinned: Pinned) {
        let number = from / REGION_PAGES;
        if !self.regions.contains_key(&number) {
            return;
        }
        let dirty = (from..upto).filter(|page| self.is_dirty(*page)).count() as u32;
        match pinned {
            Pinned::Hot => self.hot_dirty += dirty,
            Pinned::Cold | Pinned::No => self.hot_dirty -= dirty,
        }
    }

    /// A resident page enters the policy, or the counts of what is pinned.
    fn enter_order(&mut self, page: u64, slot: u32) {
        let dirty = self.state[slot as usize] & DIRTY != 0;
        match (self.pinned_of(page), &mut self.blocks) {
            (Pinned::No, None) => self.policy.insert(slot, page),
            (Pinned::No, Some(blocks)) => blocks.page_came(page, self.policy.as_mut()),
            _ => self.held_resident += 1,
        }
        if dirty {
            self.count_dirty(page, 1);
        }
    }

    /// A resident page leaves the policy, or the counts of what is pinned.
    fn leave_order(&mut self, page: u64, slot: u32) {
        if self.state[slot as usize] & DIRTY != 0 {
            self.count_dirty(page, -1);
        }
        match (self.pinned_of(page), &mut self.blocks) {
            (Pinned::No, None) => self.policy.remove(slot),
            (Pinned::No, Some(blocks)) => {
                if let Some(frame) = blocks.page_left(page) {
                    self.policy.remove(frame);
                }
            }
            _ => self.held_resident -= 1,
        }
    }

    /// Counts a dirty page of its block, or of what is pinned.
    fn count_dirty(&mut self, page: u64, by: i16) {
        let pinned = self.pinned_of(page);
        let change = |count: &mut u32| {
            *count = count
                .checked_add_signed(i32::from(by))
                .expect("dirty pages are counted");
        };
        match (pinned, &mut self.blocks) {
            (Pinned::No, None) => {}
            (Pinned::No, Some(blocks)) => blocks.count_dirty(page, by),
            (pinned, _) => {
                change(&mut self.held_dirty);
                if pinned == Pinned::Hot {
                    change(&mut self.hot_dirty);
                }
            }
        }
    }

    /// Blocks the policy has.
    pub fn frames(&self) -> u32 {
        self.policy.len() as u32
    }

    /// Bytes of memory in total.
    pub fn memory(&self) -> usize {
        let blocks = self.blocks.as_ref().map_or(0, |blocks| {
            blocks.index.memory() + blocks.keys.capacity() * 12 + blocks.free.capacity() * 4
        });
        self.pages.capacity() * 5
            + self.state.capacity()
            + self.crc.capacity() * 4
            + self.masks.capacity() * 6
            + self.index.memory()
            + self.policy.memory()
            + self.regions.len() * 48
            + self.residents.capacity() * 2
            + self.pins.capacity()
            + blocks
    }

    pub fn page_of(&self, slot: u32) -> u64 {
        unpack(self.pages[slot as usize])
    }

    pub fn find(&self, page: u64) -> Option<u32> {
        self.index
            .find(page, |slot| unpack(self.pages[slot as usize]))
    }

    pub fn get(&self, page: u64) -> Option<Entry> {
        self.find(page).map(|slot| self.entry(slot))
    }

    /// The entry in `slot`, if there is such a slot and it holds one.
    pub fn in_slot(&self, slot: u32) -> Option<(u64, Entry)> {
        let state = self.state.get(slot as usize)?;
        (state & USED != 0).then(|| (self.page_of(slot), self.entry(slot)))
    }

    fn entry(&self, slot: u32) -> Entry {
        let state = self.state[slot as usize];
        Entry {
            slot,
            dirty: state & DIRTY != 0,
            mask: if state & PARTIAL == 0 {
                FULL
            } else {
                self.masks[&slot]
            },
            crc: self.crc[slot as usize],
        }
    }

    /// The checksum of what was last written to `slot`; stays until the slot is used again.
    pub fn crc(&self, slot: u32) -> u32 {
        self.crc[slot as usize]
    }

    pub fn is_dirty(&self, page: u64) -> bool {
        self.find(page)
            .is_some_and(|slot| self.state[slot as usize] & DIRTY != 0)
    }

    /// The key the policy knows `page` by.
    fn key(&self, page: u64) -> u64 {
        self.blocks
            .as_ref()
            .map_or(page, |blocks| page >> blocks.shift)
    }

    fn frame_of(&self, page: u64) -> Option<u32> {
        match &self.blocks {
            None => self.find(page),
            Some(blocks) => blocks.find(page >> blocks.shift),
        }
    }

    /// A request touches the blocks of pages `first..end`: the policy notes the hits, and the misses too.
    /// Returns how many of the blocks were resident. Pinned ones are not the policy's and do not count.
    pub fn touch(&mut self, first: u64, end: u64) -> u64 {
        let shift = self.blocks.as_ref().map_or(0, |blocks| blocks.shift);
        let mut hits = 0;
        for key in (first >> shift)..=((end - 1) >> shift) {
            if self.is_held(key << shift) {
                continue;
            }
            let frame = match &self.blocks {
                None => self.find(key),
                Some(blocks) => blocks.find(key),
            };
            match frame {
                Some(frame) => {
                    self.policy.hit(frame, key);
                    hits += 1;
                }
                None => self.policy.missed(key),
            }
        }
        hits
    }

    /// Is a block one page, so that the policy's frames are the slots?
    pub fn block_is_page(&self) -> bool {
        self.blocks.is_none()
    }

    /// As [`PageMap::touch`] for one page just looked up, with blocks of one page. Since then a tier extent that came up
    /// may have taken its slot.
    pub fn hit(&mut self, page: u64, slot: u32) {
        let stays = self.state[slot as usize] & USED != 0 && self.page_of(slot) == page;
        if stays && !self.is_held(page) {
            self.policy.hit(slot, page);
        }
    }

    /// As [`PageMap::touch`] for one page just looked up and not found, with blocks of one page.
    pub fn missed(&mut self, page: u64) {
        if !self.is_held(page) {
            self.policy.missed(page);
        }
    }

    /// Has the block of `page` been seen lately though it is not resident?
    pub fn remembers(&self, page: u64) -> bool {
        self.policy.remembers(self.key(page))
    }

    /// Is the block of `page` resident, though the page may not be?
    pub fn block_resident(&self, page: u64) -> bool {
        self.frame_of(page).is_some()
    }

    /// How many block frames pages `first..end` would need on top.
    pub fn frames_needed(&self, first: u64, end: u64) -> u32 {
        let shift = self.blocks.as_ref().map_or(0, |blocks| blocks.shift);
        ((first >> shift)..=((end - 1) >> shift))
            .filter(|key| !self.is_held(key << shift))
            .filter(|key| match &self.blocks {
                None => self.find(*key).is_none(),
                Some(blocks) => blocks.find(*key).is_none(),
            })
            .count() as u32
    }

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
                self.clear_slot(old, page);
                let renamed = self.index.rename(page, old, slot);
                assert!(renamed, "page {page} was found in slot {old} just now");
                if self.blocks.is_none() && !self.is_held(page) {
                    self.policy.moved(old, slot);
                }
                self.resident -= 1;
            }
            None => {
                self.count_resident(page, 1);
                let PageMap { index, pages, .. } = self;
                index.insert(page, slot, |slot| unpack(pages[slot as usize]));
                self.enter_order(page, slot);
            }
        }
        self.pages[slot as usize] = pack(page);
        self.crc[slot as usize] = crc;
        self.state[slot as usize] = USED;
        self.resident += 1;
        if mask != FULL {
            self.state[slot as usize] |= PARTIAL;
            self.masks.insert(slot, mask);
        }
        if dirty {
            self.set_dirty(slot, page, now);
        }
        old
    }

    fn set_dirty(&mut self, slot: u32, page: u64, now: Instant) {
        self.state[slot as usize] |= DIRTY;
        self.dirty += 1;
        let number = page / REGION_PAGES;
        let ages = &mut self.ages;
        let region = self.regions.entry(number).or_insert_with(|| {
            ages.insert((now, number));
            DirtyRegion {
                pages: 0,
                oldest: now,
            }
        });
        region.pages += 1;
        self.count_dirty(page, 1);
    }

    fn unset_dirty(&mut self, slot: u32, page: u64) {
        if self.state[slot as usize] & DIRTY == 0 {
            return;
        }
        self.state[slot as usize] &= !DIRTY;
        self.dirty -= 1;
        let number = page / REGION_PAGES;
        let region = self
            .regions
            .get_mut(&number)
            .expect("dirty pages are counted");
        region.pages -= 1;
        if region.pages == 0 {
            self.ages.remove(&(region.oldest, number));
            self.regions.remove(&number);
        }
        self.count_dirty(page, -1);
    }

    fn clear_slot(&mut self, slot: u32, page: u64) {
        self.unset_dirty(slot, page);
        if self.state[slot as usize] & PARTIAL != 0 {
            self.masks.remove(&slot);
        }
        self.state[slot as usize] = 0;
    }

    /// Forgets `page` (invalidated, not evicted). Returns the slot it lived in.
    pub fn remove(&mut self, page: u64) -> Option<u32> {
        let slot = self.find(page)?;
        self.drop_page(page, slot);
        self.leave_order(page, slot);
        Some(slot)
    }

    fn drop_page(&mut self, page: u64, slot: u32) {
        self.clear_slot(slot, page);
        let PageMap { index, pages, .. } = self;
        let removed = index.remove(page, slot, |slot| unpack(pages[slot as usize]));
        assert!(removed, "page {page} was found in slot {slot} just now");
        self.resident -= 1;
        self.count_resident(page, -1);
    }

    fn count_resident(&mut self, page: u64, by: i16) {
        let unit = (page / UNIT_PAGES) as usize;
        if unit >= self.residents.len() {
            self.residents.resize(unit + 1, 0);
        }
        let count = &mut self.residents[unit];
        *count = count
            .checked_add_signed(by)
            .expect("a MiB has 0 to 256 pages");
    }

    /// Resident pages of the MiBs that pages `first..end` lie in.
    pub fn resident_in(&self, first: u64, end: u64) -> u64 {
        let len = self.residents.len() as u64;
        let (first, end) = (first / UNIT_PAGES, end.div_ceil(UNIT_PAGES));
        let units = &self.residents[first.min(len) as usize..end.min(len) as usize];
        units.iter().map(|count| u64::from(*count)).sum()
    }

    /// Resident pages of each MiB from the first one on; those behind the end have none.
    pub fn residents(&self) -> &[u16] {
        &self.residents
    }

    /// The slow device has the page's contents now.
    pub fn set_clean(&mut self, page: u64) {
        if let Some(slot) = self.find(page) {
            self.unset_dirty(slot, page);
        }
    }

    /// Is there a clean block that could go?
    fn any_clean(&self) -> bool {
        match &self.blocks {
            None => self.dirty - self.held_dirty < self.resident - self.held_resident,
            Some(blocks) => blocks.dirty_blocks < self.policy.len(),
        }
    }

    /// Evicts one clean block to make room for the block of `incoming` (`None`: ahead of need). Calls
    /// `gone` with each page and slot that left; false if every block is dirty.
    pub fn evict(&mut self, incoming: Option<u64>, gone: &mut dyn FnMut(u64, u32)) -> bool {
        if !self.any_clean() {
            return false;
        }
        let incoming = incoming.map(|page| self.key(page));
        let PageMap {
            policy,
            blocks,
            pages,
            state,
            ..
        } = self;
        let frame = match blocks {
            None => policy.evict(
                incoming,
                &|slot| unpack(pages[slot as usize]),
                &mut |slot| state[slot as usize] & DIRTY == 0,
            ),
            Some(blocks) => policy.evict(
                incoming,
                &|frame| blocks.keys[frame as usize],
                &mut |frame| blocks.dirty[frame as usize] == 0,
            ),
        };
        let Some(frame) = frame else { return false };
        if self.blocks.is_none() {
            let page = self.page_of(frame);
            self.drop_page(page, frame);
            gone(page, frame);
            return true;
        }
        let (first, end) = {
            let blocks = self.blocks.as_ref().expect("checked above");
            let key = blocks.keys[frame as usize];
            (key << blocks.shift, (key + 1) << blocks.shift)
        };
        for page in first..end {
            if let Some(slot) = self.find(page) {
                self.drop_page(page, slot);
                let blocks = self.blocks.as_mut().expect("checked above");
                blocks.page_left(page);
                gone(page, slot);
            }
        }
        true
    }

    /// Dirty regions in address order, from `from` on.
    pub fn dirty_regions(&self, from: u64) -> impl Iterator<Item = (u64, DirtyRegion)> + '_ {
        self.regions
            .range(from..)
            .map(|(number, region)| (*number, *region))
    }

    /// When the oldest dirty page became dirty, as far as its region remembers.
    pub fn oldest_dirty(&self) -> Option<Instant> {
        self.ages.first().map(|(oldest, _)| *oldest)
    }

    /// Another policy or another block size; contents and, as far as known, recency stay.
    pub fn set_grain(&mut self, kind: Kind, pages_per_block: u64) {
        let mut order = Vec::new();
        match &self.blocks {
            None => self
                .policy
                .coldest_first(&mut |slot| order.push(unpack(self.pages[slot as usize]))),
            Some(blocks) => self.policy.coldest_first(&mut |frame| {
                let first = blocks.keys[frame as usize] << blocks.shift;
                order.extend(first..first + (1 << blocks.shift));
            }),
        }
        let slots = self.slots();
        if pages_per_block == 1 {
            self.blocks = None;
            self.policy = policy::cache::build(kind, slots);
        } else {
            // A few more than fit, so that a block may come in before another has left.
            let frames = (u64::from(slots) / pages_per_block) as u32 + 64;
            self.blocks = Some(Blocks::new(pages_per_block, frames));
            self.policy = policy::cache::build(kind, frames);
        }
        for page in order {
            let Some(slot) = self.find(page) else {
                continue;
            };
            match &mut self.blocks {
                None => self.policy.insert(slot, page),
                Some(blocks) => {
                    blocks.page_came(page, self.policy.as_mut());
                    if self.state[slot as usize] & DIRTY != 0 {
                        blocks.count_dirty(page, 1);
                    }
                }
            }
        }
    }

    /// Room for `slots` slots; those behind a smaller end must be empty.
    pub fn resize(&mut self, slots: u32, kind: Kind, pages_per_block: u64) {
        for slot in slots..self.slots() {
            assert!(
                self.state[slot as usize] == 0,
                "slot {slot} was emptied first"
            );
        }
        let mut kept = Vec::new();
        match &self.blocks {
            None => self.policy.coldest_first(&mut |slot| kept.push(slot)),
            Some(_) => kept.extend((0..self.slots().min(slots)).filter(|slot| {
                self.in_slot(*slot)
                    .is_some_and(|(page, _)| !self.is_held(page))
            })),
        }
        self.pages.resize(slots as usize, [0; 5]);
        self.state.resize(slots as usize, 0);
        self.crc.resize(slots as usize, 0);
        let PageMap { index, pages, .. } = self;
        index.resize(slots, |slot| unpack(pages[slot as usize]));
        // A fresh policy of the new size, filled in the old order.
        self.blocks = None;
        self.policy = policy::cache::build(kind, slots);
        for slot in kept {
            self.policy.insert(slot, unpack(self.pages[slot as usize]));
        }
        if pages_per_block > 1 {
            self.set_grain(kind, pages_per_block);
        }
    }

    /// Checks the module's invariants.
    #[cfg(test)]
    pub fn check(&self) {
        let used = self
            .state
            .iter()
            .filter(|state| **state & USED != 0)
            .count();
        let dirty = self
            .state
            .iter()
            .filter(|state| **state & DIRTY != 0)
            .count();
        assert_eq!(used, self.resident as usize);
        assert_eq!(used, self.index.len());
        assert_eq!(dirty, self.dirty as usize);
        assert_eq!(self.regions.len(), self.ages.len());
        let counted: u32 = self.regions.values().map(|region| region.pages).sum();
        assert_eq!(counted, self.dirty);
        let mut residents = vec![0; self.residents.len()];
        for slot in 0..self.slots() {
            if let Some((page, _)) = self.in_slot(slot) {
                residents[(page / UNIT_PAGES) as usize] += 1;
            }
        }
        assert_eq!(residents, self.residents);
        for slot in 0..self.slots() {
            if let Some((page, _)) = self.in_slot(slot) {
                assert_eq!(self.find(page), Some(slot), "page {page}");
            }
        }
        let held: Vec<(Pinned, Entry)> = (0..self.slots())
            .filter_map(|slot| self.in_slot(slot))
            .map(|(page, entry)| (self.pinned_of(page), entry))
            .filter(|(pinned, _)| *pinned != Pinned::No)
            .collect();
        let hot = |(pinned, entry): &&(Pinned, Entry)| *pinned == Pinned::Hot && entry.dirty;
        assert_eq!(held.len(), self.held_resident as usize);
        let dirty = held.iter().filter(|(_, entry)| entry.dirty).count();
        assert_eq!(dirty, self.held_dirty as usize);
        assert_eq!(held.iter().filter(hot).count(), self.hot_dirty as usize);
        match &self.blocks {
            None => assert_eq!(self.policy.len(), used - held.len()),
            Some(blocks) => {
                let resident: usize = blocks.resident.iter().map(|count| *count as usize).sum();
                assert_eq!(resident, used - held.len());
                assert_eq!(blocks.index.len(), self.policy.len());
            }
        }
    }
}

impl Blocks {
    fn new(pages_per_block: u64, frames: u32) -> Blocks {
        Blocks {
            shift: pages_per_block.trailing_zeros(),
            index: Index::new(frames),
            keys: vec![0; frames as usize],
            resident: vec![0; frames as usize],
            dirty: vec![0; frames as usize],
            dirty_blocks: 0,
            free: (0..frames).rev().collect(),
        }
    }

    fn find(&self, key: u64) -> Option<u32> {
        self.index.find(key, |frame| self.keys[frame as usize])
    }

    fn frame_of(&self, page: u64) -> u32 {
        self.find(page >> self.shift)
            .expect("a resident page's block has a frame")
    }

    fn page_came(&mut self, page: u64, policy: &mut dyn Replacement) {
        let key = page >> self.shift;
        let frame = match self.find(key) {
            Some(frame) => frame,
            None => {
                let frame = self.free_frame(policy);
                self.index
                    .insert(key, frame, |frame| self.keys[frame as usize]);
                self.keys[frame as usize] = key;
                policy.insert(frame, key);
                frame
            }
        };
        self.resident[frame as usize] += 1;
    }

    fn free_frame(&mut self, policy: &mut dyn Replacement) -> u32 {
        if self.free.is_empty() {
            // Blocks that came in while others were being evicted: rare, and bounded by the slots.
            let old = self.keys.len() as u32;
            let new = old * 2;
            policy.resize(new);
            let keys = &self.keys;
            self.index.resize(new, |frame| keys[frame as usize]);
            self.keys.resize(new as usize, 0);
            self.resident.resize(new as usize, 0);
            self.dirty.resize(new as usize, 0);
            self.free.extend((old..new).rev());
        }
        self.free.pop().expect("grown just now")
    }

    /// Returns the frame if that was its last page.
    fn page_left(&mut self, page: u64) -> Option<u32> {
        let frame = self.frame_of(page);
        self.resident[frame as usize] -= 1;
        if self.resident[frame as usize] > 0 {
            return None;
        }
        let key = page >> self.shift;
        self.index
            .remove(key, frame, |frame| self.keys[frame as usize]);
        self.free.push(frame);
        Some(frame)
    }

    fn count_dirty(&mut self, page: u64, by: i16) {
        let frame = self.frame_of(page);
        let count = &mut self.dirty[frame as usize];
        let before = *count;
        *count = before
            .checked_add_signed(by)
            .expect("dirty pages are counted");
        match (before, *count) {
            (0, _) => self.dirty_blocks += 1,
            (_, 0) => self.dirty_blocks -= 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
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
                assert_eq!(map.get(page), twin.get(&page).copied(), "page {page}");
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
            map.hit(7, 3);
            map.remove(7);
            map.hit(7, 3);
            // Nor is it one of the page that has the slot by now.
            map.put(8, 3, false, FULL, 0, NOW);
            map.hit(7, 3);
            map.check();
        }
    }
}
