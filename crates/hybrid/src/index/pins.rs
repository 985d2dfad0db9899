//! Which MiBs of the volume are pinned, and what lies in them?
//!
//! A whole MiB can be *pinned* (its extent lives on the fast device): its pages are none of the policy's business, so
//! they are never evicted and take no block frame. 1 byte for each MiB up to the last one that ever was.

use super::grains::UNIT_PAGES;

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

/// How each MiB is pinned.
#[derive(Default)]
pub(crate) struct Pins {
    units: Vec<Pinned>,
    /// Resident pages of pinned units, dirty ones among them, and those of hot units.
    resident: u32,
    dirty: u32,
    hot_dirty: u32,
}

impl Pins {
    /// Resident pages that are pinned.
    pub fn resident(&self) -> u32 {
        self.resident
    }

    /// Dirty pages that are pinned.
    pub fn dirty(&self) -> u32 {
        self.dirty
    }

    /// Dirty pages that are to stay dirty as long as they can.
    pub fn hot_dirty(&self) -> u32 {
        self.hot_dirty
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.units.capacity()
    }

    /// How the MiB of `page` is pinned.
    pub fn of(&self, page: u64) -> Pinned {
        let unit = (page / UNIT_PAGES) as usize;
        self.units.get(unit).copied().unwrap_or_default()
    }

    pub fn has(&self, page: u64) -> bool {
        self.of(page) != Pinned::No
    }

    /// Pins the MiB of `page`, or lets it go; the caller counts its pages anew.
    pub fn set(&mut self, page: u64, pinned: Pinned) {
        let unit = (page / UNIT_PAGES) as usize;
        if unit >= self.units.len() {
            self.units.resize(unit + 1, Pinned::No);
        }
        self.units[unit] = pinned;
    }

    /// A pinned MiB with `dirty` dirty pages became hot, or is not any more.
    pub fn recount_hot(&mut self, pinned: Pinned, dirty: u32) {
        match pinned {
            Pinned::Hot => self.hot_dirty += dirty,
            Pinned::Cold | Pinned::No => self.hot_dirty -= dirty,
        }
    }

    /// A page of a pinned MiB became resident (1) or is no more (-1).
    pub fn count_resident(&mut self, by: i16) {
        change(&mut self.resident, by);
    }

    /// A page of a MiB that is pinned so became dirty (1) or clean (-1).
    pub fn count_dirty(&mut self, pinned: Pinned, by: i16) {
        change(&mut self.dirty, by);
        if pinned == Pinned::Hot {
            change(&mut self.hot_dirty, by);
        }
    }
}

fn change(count: &mut u32, by: i16) {
    *count = count
        .checked_add_signed(i32::from(by))
        .expect("pages of pinned MiBs are counted");
}
