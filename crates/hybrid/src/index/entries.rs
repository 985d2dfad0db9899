//! Which slot holds which page, in what state? 10 bytes a slot, and about 4 in the index.
//!
//! Always true: a page is in at most one slot, a slot holds at most one page.

use base::Map;
use policy::cache::Index;

use super::grains::FULL;
use crate::attach::label::PAGES_MAX;

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

/// The table of slots.
pub(crate) struct Entries {
    pages: Vec<[u8; 5]>,
    state: Vec<u8>,
    crc: Vec<u32>,
    masks: Map<u32, u8>,
    index: Index,
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

impl Entries {
    /// `slots` empty slots.
    pub fn new(slots: u32) -> Entries {
        Entries {
            pages: vec![[0; 5]; slots as usize],
            state: vec![0; slots as usize],
            crc: vec![0; slots as usize],
            masks: Map::default(),
            index: Index::new(slots),
        }
    }

    pub fn slots(&self) -> u32 {
        self.state.len() as u32
    }

    /// How many slots hold a page.
    #[cfg(test)]
    pub fn used(&self) -> usize {
        self.index.len()
    }

    /// Bytes of memory in total.
    pub fn memory(&self) -> usize {
        self.pages.capacity() * 5
            + self.state.capacity()
            + self.crc.capacity() * 4
            + self.masks.capacity() * 6
            + self.index.memory()
    }

    /// The page in `slot`, or the last one that was.
    pub fn page_of(&self, slot: u32) -> u64 {
        unpack(self.pages[slot as usize])
    }

    pub fn find(&self, page: u64) -> Option<u32> {
        self.index
            .find(page, |slot| unpack(self.pages[slot as usize]))
    }

    /// The entry in `slot`, if there is such a slot and it holds one.
    pub fn in_slot(&self, slot: u32) -> Option<(u64, Entry)> {
        let state = self.state.get(slot as usize)?;
        (state & USED != 0).then(|| (self.page_of(slot), self.entry(slot)))
    }

    /// The entry in `slot`, which holds one.
    pub fn entry(&self, slot: u32) -> Entry {
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

    pub fn is_dirty(&self, slot: u32) -> bool {
        self.state[slot as usize] & DIRTY != 0
    }

    /// Is there such a slot, and does it hold `page`?
    pub fn holds(&self, slot: u32, page: u64) -> bool {
        let state = self.state.get(slot as usize);
        state.is_some_and(|state| state & USED != 0) && self.page_of(slot) == page
    }

    pub fn set_dirty(&mut self, slot: u32, dirty: bool) {
        match dirty {
            true => self.state[slot as usize] |= DIRTY,
            false => self.state[slot as usize] &= !DIRTY,
        }
    }

    /// `page` is found in `slot` from now on, instead of `old` if it was there. [`Entries::fill`] follows.
    pub fn link(&mut self, page: u64, old: Option<u32>, slot: u32) {
        let Entries { index, pages, .. } = self;
        match old {
            Some(old) => {
                let renamed = index.rename(page, old, slot);
                assert!(renamed, "page {page} was found in slot {old} just now");
            }
            None => index.insert(page, slot, |slot| unpack(pages[slot as usize])),
        }
    }

    /// `slot` holds `page`, clean.
    pub fn fill(&mut self, page: u64, slot: u32, mask: u8, crc: u32) {
        self.pages[slot as usize] = pack(page);
        self.crc[slot as usize] = crc;
        self.state[slot as usize] = USED;
        if mask != FULL {
            self.state[slot as usize] |= PARTIAL;
            self.masks.insert(slot, mask);
        }
    }

    /// `slot` holds nothing any more.
    pub fn clear(&mut self, slot: u32) {
        if self.state[slot as usize] & PARTIAL != 0 {
            self.masks.remove(&slot);
        }
        self.state[slot as usize] = 0;
    }

    /// `page` is no longer found; it was in `slot`.
    pub fn unlink(&mut self, page: u64, slot: u32) {
        let Entries { index, pages, .. } = self;
        let removed = index.remove(page, slot, |slot| unpack(pages[slot as usize]));
        assert!(removed, "page {page} was found in slot {slot} just now");
    }

    /// Room for `slots` slots; those behind a smaller end must be empty.
    pub fn resize(&mut self, slots: u32) {
        for slot in slots..self.slots() {
            assert!(
                self.state[slot as usize] == 0,
                "slot {slot} was emptied first"
            );
        }
        self.pages.resize(slots as usize, [0; 5]);
        self.state.resize(slots as usize, 0);
        self.crc.resize(slots as usize, 0);
        let Entries { index, pages, .. } = self;
        index.resize(slots, |slot| unpack(pages[slot as usize]));
    }
}
