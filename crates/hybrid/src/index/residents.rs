//! How many pages of each MiB of the volume are resident? 2 bytes for each up to the last one that ever had any.

use super::grains::UNIT_PAGES;

#[derive(Default)]
pub(crate) struct Residents {
    units: Vec<u16>,
    pages: u32,
}

impl Residents {
    /// Resident pages in all.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Those of each MiB from the first one on; those behind the end have none.
    pub fn units(&self) -> &[u16] {
        &self.units
    }

    /// Those of the MiBs that pages `first..end` lie in.
    pub fn within(&self, first: u64, end: u64) -> u64 {
        let len = self.units.len() as u64;
        let (first, end) = (first / UNIT_PAGES, end.div_ceil(UNIT_PAGES));
        let units = &self.units[first.min(len) as usize..end.min(len) as usize];
        units.iter().map(|count| u64::from(*count)).sum()
    }

    /// `page` became resident (1) or is no more (-1).
    pub fn count(&mut self, page: u64, by: i16) {
        self.pages = self
            .pages
            .checked_add_signed(i32::from(by))
            .expect("resident pages are counted");
        let unit = (page / UNIT_PAGES) as usize;
        if unit >= self.units.len() {
            self.units.resize(unit + 1, 0);
        }
        let count = &mut self.units[unit];
        *count = count
            .checked_add_signed(by)
            .expect("a MiB has 0 to 256 pages");
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.units.capacity() * 2
    }
}
