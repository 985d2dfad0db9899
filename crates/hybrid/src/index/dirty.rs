//! Dirty pages by region, in address order and by age.
//!
//! Always true: each region with a dirty page is in both orders, and no other.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use base::Instant;

use super::grains::REGION_PAGES;

/// Neighbouring pages that are looked at together.
const GROUP_PAGES: u64 = REGION_PAGES / u64::BITS as u64;

/// Dirty pages of one 4 MiB region.
struct DirtyRegion {
    pages: u32,
    oldest: Instant,
    /// The groups of pages that have a dirty one, a bit each, and some that had.
    groups: Cell<u64>,
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
        self.regions.len() * 56
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
                groups: Cell::new(0),
            }
        });
        region.pages += 1;
        let group = page % REGION_PAGES / GROUP_PAGES;
        region.groups.set(region.groups.get() | 1 << group);
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
    pub fn from(&self, from: u64) -> impl Iterator<Item = u64> + '_ {
        self.regions.range(from..).map(|(number, _)| *number)
    }

    /// What `dirty` gives of the dirty pages of region `number`, in address order. It has to give something of
    /// every dirty page, and of others nothing: groups of which it gives nothing are forgotten.
    pub fn pages_of<T>(&self, number: u64, dirty: impl Fn(u64) -> Option<T>) -> Vec<(u64, T)> {
        let Some(region) = self.regions.get(&number) else {
            return Vec::new();
        };
        let pages = region.pages as usize;
        let mut found = Vec::with_capacity(pages);
        for group in 0..u64::BITS {
            let groups = region.groups.get();
            if found.len() == pages || groups >> group == 0 {
                break;
            }
            if groups >> group & 1 == 0 {
                continue;
            }
            let first = number * REGION_PAGES + u64::from(group) * GROUP_PAGES;
            let before = found.len();
            let all = first..first + GROUP_PAGES;
            found.extend(all.filter_map(|page| Some((page, dirty(page)?))));
            if found.len() == before {
                region.groups.set(groups & !(1 << group));
            }
        }
        found
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_dirty_pages_of_a_region_are_those_that_a_look_at_each_finds(
            steps in prop::collection::vec((0u64..2 * REGION_PAGES, any::<bool>()), 0..300),
        ) {
            let mut regions = DirtyRegions::default();
            let mut dirty = BTreeSet::new();
            for (nth, (page, becomes)) in steps.into_iter().enumerate() {
                // Some pages often, so that they come and go.
                let page = if nth % 2 == 0 { page } else { page % 40 };
                match becomes {
                    true if dirty.insert(page) => regions.add(page, Instant(nth as u64)),
                    false if dirty.remove(&page) => regions.remove(page),
                    _ => {}
                }
                for number in [0, 1].into_iter().filter(|_| nth % 16 == 0) {
                    let found = regions.pages_of(number, |page| dirty.contains(&page).then_some(page));
                    let all = dirty.range(number * REGION_PAGES..(number + 1) * REGION_PAGES);
                    prop_assert_eq!(found, all.map(|page| (*page, *page)).collect::<Vec<_>>());
                }
            }
            regions.check();
        }
    }

    #[test]
    fn few_dirty_pages_of_a_region_are_found_without_a_look_at_each() {
        let mut regions = DirtyRegions::default();
        let looks = Cell::new(0);
        let find = |regions: &DirtyRegions, dirty: &[u64]| {
            looks.set(0);
            let found = regions.pages_of(0, |page| {
                looks.set(looks.get() + 1);
                dirty.contains(&page).then_some(())
            });
            (found.len(), looks.get())
        };
        for page in [5, 1_000] {
            regions.add(page, Instant(0));
        }
        assert_eq!(find(&regions, &[5, 1_000]), (2, 2 * GROUP_PAGES));
        regions.remove(5);
        // Once more where it was, and not again.
        assert_eq!(find(&regions, &[1_000]), (1, 2 * GROUP_PAGES));
        assert_eq!(find(&regions, &[1_000]), (1, GROUP_PAGES));
    }
}
