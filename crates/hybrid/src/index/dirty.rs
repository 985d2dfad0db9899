//! Dirty pages by region, in address order and by age.
//!
//! Always true: each region with a dirty page is in both orders, and no other.

use std::collections::{BTreeMap, BTreeSet};

use base::Instant;

use super::grains::REGION_PAGES;

/// Dirty pages of one 4 MiB region.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DirtyRegion {
    pub pages: u32,
    pub oldest: Instant,
}

/// All of them.
#[derive(Default)]
pub(crate) struct DirtyRegions {
    regions: BTreeMap<u64, DirtyRegion>,
    /// The same regions by age.
    ages: BTreeSet<(Instant, u64)>,
    pages: u32,
}

impl DirtyRegions {
    /// Dirty pages in all.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Bytes of memory, about.
    pub fn memory(&self) -> usize {
        self.regions.len() * 48
    }

    /// Has the region of `page` a dirty page?
    pub fn has_region_of(&self, page: u64) -> bool {
        self.regions.contains_key(&(page / REGION_PAGES))
    }

    /// `page` became dirty at `now`.
    pub fn add(&mut self, page: u64, now: Instant) {
        self.pages += 1;
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
    }

    /// `page` is dirty no more.
    pub fn remove(&mut self, page: u64) {
        self.pages -= 1;
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
    }

    /// Dirty regions in address order, from region `from` on.
    pub fn from(&self, from: u64) -> impl Iterator<Item = (u64, DirtyRegion)> + '_ {
        self.regions
            .range(from..)
            .map(|(number, region)| (*number, *region))
    }

    /// When the oldest dirty page became dirty, as far as its region remembers.
    pub fn oldest(&self) -> Option<Instant> {
        self.ages.first().map(|(oldest, _)| *oldest)
    }

    /// As [`DirtyRegions::oldest`], of the regions that `counts` is true of.
    pub fn oldest_of(&self, counts: impl Fn(u64) -> bool) -> Option<Instant> {
        let mut ages = self.ages.iter();
        let found = ages.find(|(_, number)| counts(*number));
        found.map(|(oldest, _)| *oldest)
    }

    /// Checks what always holds.
    #[cfg(test)]
    pub fn check(&self) {
        assert_eq!(self.regions.len(), self.ages.len());
        let counted: u32 = self.regions.values().map(|region| region.pages).sum();
        assert_eq!(counted, self.pages);
    }
}
