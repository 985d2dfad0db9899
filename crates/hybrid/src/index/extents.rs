//! Which extents live on the fast device, and why?
//!
//! ```text
//! Slow     -> Fast      promote   room is reserved for the whole extent first
//! Fast     -> Demoting  demote    clean pages are dropped, dirty ones destaged
//! Demoting -> Fast      promote   wanted again before it was empty
//! Demoting -> Slow      emptied   no page of it is left on the fast device
//! ```
//!
//! Two grains: what is judged is a *region*, what moves is an *extent* of it. The policy wants regions. A
//! range pinned by an administrator is wanted for ever, an excluded one never. An extent that is fast but
//! no longer wanted is *idle*: it stays until its room is needed, and costs nothing if wanted again.
//!
//! Pure: no clock, no device. The pages themselves are the page map's.
//!
//! Always true:
//! 1. `reserved` counts the pages of all extents that are fast or demoting, whole.
//! 2. An extent that is excluded is neither promoted nor wanted.
//! 3. Every change of what a record says is in `touched` until the next cut.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use base::{Bytes, Span};
use policy::tier::Region;

use crate::attach::label::PAGE;
use crate::index::page_map::UNIT_PAGES;
use crate::settings::Tier;

/// Where an extent lives. One without an entry in the table lives on the slow device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the slow device.
    Slow,
    /// On the fast device, though not every page may be there yet.
    Fast,
    /// On its way down.
    Demoting,
}

/// What the ledger keeps of an extent that is not on the slow device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExtentRecord {
    pub demoting: bool,
    /// Its pages, as a power of two: the grain it was written with.
    pub shift: u8,
}

/// What the table knows of an extent that is fast or demoting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    place: Place,
}

/// How a volume is cut in regions and extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grains {
    /// Pages of a region, and of an extent; powers of two.
    region: u64,
    extent: u64,
    /// Whole pages of the volume.
    pages: u64,
}

impl Grains {
    /// Whole pages of the volume.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Length of a region.
    pub fn region_bytes(&self) -> Bytes {
        Bytes(self.region * PAGE)
    }

    /// Pages of an extent, but for the last one.
    pub fn extent_pages(&self) -> u64 {
        self.extent
    }

    /// How many extents the volume has.
    pub fn extents(&self) -> u32 {
        self.pages.div_ceil(self.extent) as u32
    }

    /// How many regions the volume has.
    pub fn regions(&self) -> u32 {
        self.pages.div_ceil(self.region) as u32
    }

    /// Are extents and regions the same?
    pub fn one_grain(&self) -> bool {
        self.extent == self.region
    }

    pub fn extent_of(&self, page: u64) -> u32 {
        (page / self.extent) as u32
    }

    pub fn region_of(&self, extent: u32) -> Region {
        Region::at(u64::from(extent) * self.extent / self.region)
    }

    /// Pages of `extent`.
    pub fn pages_of(&self, extent: u32) -> Range<u64> {
        let first = u64::from(extent) * self.extent;
        first..(first + self.extent).min(self.pages)
    }

    /// Pages of `region`.
    pub fn pages_of_region(&self, region: Region) -> Range<u64> {
        let first = region.index() as u64 * self.region;
        first..(first + self.region).min(self.pages)
    }

    /// Extents of `region`.
    pub fn extents_of(&self, region: Region) -> Range<u32> {
        let per_region = self.region / self.extent;
        let first = region.index() as u64 * per_region;
        let end = (first + per_region).min(u64::from(self.extents()));
        first as u32..end as u32
    }
}

/// Regions, extents and the room they take.
pub(crate) struct ExtentTable {
    // As the settings say.
    pub grains: Grains,
    pinned: Vec<Range<u64>>,
    excluded: Vec<Range<u64>>,
    // As things are.
    extents: BTreeMap<u32, Extent>,
    /// Those that are demoting: few of many.
    demoting: BTreeSet<u32>,
    wanted: BTreeSet<Region>,
    reserved: u64,
    touched: Vec<u32>,
}

/// The extents that `span` touches.
fn touched_by(span: Span, extent: u64) -> Range<u64> {
    let bytes = extent * PAGE;
    span.start.byte() / bytes..span.end().byte().div_ceil(bytes)
}

impl ExtentTable {
    /// A volume of `pages` whole pages with everything on the slow device.
    pub fn new(pages: u64, tier: &Tier) -> ExtentTable {
        let extent = tier.extent().0 / PAGE;
        assert!(extent.is_multiple_of(UNIT_PAGES), "extents are whole MiBs");
        let ranges = |spans: &[Span]| spans.iter().map(|span| touched_by(*span, extent)).collect();
        ExtentTable {
            grains: Grains {
                region: tier.region.0 / PAGE,
                extent,
                pages,
            },
            pinned: ranges(&tier.pinned),
            excluded: ranges(&tier.barred),
            extents: BTreeMap::new(),
            demoting: BTreeSet::new(),
            wanted: BTreeSet::new(),
            reserved: 0,
            touched: Vec::new(),
        }
    }

    /// Other pins and exclusions, or another region over the same extents. What is fast stays fast; the caller
    /// demotes what is excluded now.
    pub fn set(&mut self, tier: &Tier) {
        assert_eq!(
            tier.extent().0 / PAGE,
            self.grains.extent,
            "extents are as they were"
        );
        let fresh = ExtentTable::new(self.grains.pages, tier);
        let regions_stay = fresh.grains.region == self.grains.region;
        self.grains.region = fresh.grains.region;
        self.pinned = fresh.pinned;
        self.excluded = fresh.excluded;
        if !regions_stay {
            self.wanted = self.promoted_regions();
        }
    }

    /// Takes the grains, pins and exclusions of `fresh`; nothing is fast any more.
    pub fn regrain(&mut self, fresh: ExtentTable) {
        assert!(self.extents.is_empty(), "the table was cleared");
        // Records that changed before are still to be written.
        let touched = std::mem::take(&mut self.touched);
        *self = ExtentTable { touched, ..fresh };
    }

    // --- what is where ----------------------------------------------------------------------------

    pub fn place(&self, extent: u32) -> Place {
        self.extents
            .get(&extent)
            .map_or(Place::Slow, |extent| extent.place)
    }

    /// Pages reserved for extents that are fast or demoting.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Extents that are fast, ascending.
    pub fn fast(&self) -> impl Iterator<Item = u32> + '_ {
        let here =
            |(number, extent): (&u32, &Extent)| (extent.place == Place::Fast).then_some(*number);
        self.extents.iter().filter_map(here)
    }

    /// Extents that are demoting, ascending.
    pub fn demoting(&self) -> impl Iterator<Item = u32> + '_ {
        self.demoting.iter().copied()
    }

    /// Regions with an extent that is fast, ascending.
    pub fn regions_up(&self) -> Vec<Region> {
        let mut regions: Vec<Region> = self
            .fast()
            .map(|extent| self.grains.region_of(extent))
            .collect();
        regions.dedup();
        regions
    }

    /// Those of them that are fast for more than a pin.
    fn promoted_regions(&self) -> BTreeSet<Region> {
        self.fast()
            .filter(|extent| !self.is_pinned(*extent))
            .map(|extent| self.grains.region_of(extent))
            .collect()
    }

    // --- what is wanted ---------------------------------------------------------------------------

    pub fn is_pinned(&self, extent: u32) -> bool {
        let extent = u64::from(extent);
        self.pinned.iter().any(|range| range.contains(&extent))
    }

    pub fn is_excluded(&self, extent: u32) -> bool {
        let extent = u64::from(extent);
        self.excluded.iter().any(|range| range.contains(&extent))
    }

    /// Extents an administrator pinned, ascending.
    pub fn pinned(&self) -> Vec<u32> {
        let end = u64::from(self.grains.extents());
        let pinned = self.pinned.iter().cloned().flatten();
        let mut pinned: Vec<u32> = pinned
            .filter(|extent| *extent < end)
            .map(|extent| extent as u32)
            .collect();
        pinned.sort_unstable();
        pinned.dedup();
        pinned
    }

    /// Should `extent` be fast?
    pub fn wants(&self, extent: u32) -> bool {
        self.is_pinned(extent)
            || self.wanted.contains(&self.grains.region_of(extent)) && !self.is_excluded(extent)
    }

    /// Has the policy promoted `region`?
    pub fn wants_region(&self, region: Region) -> bool {
        self.wanted.contains(&region)
    }

    /// Regions the policy has promoted, ascending.
    pub fn wanted(&self) -> impl Iterator<Item = Region> + '_ {
        self.wanted.iter().copied()
    }

    /// The policy promotes or demotes `region`.
    pub fn want(&mut self, region: Region, up: bool) {
        if up {
            self.wanted.insert(region);
        } else {
            self.wanted.remove(&region);
        }
    }

    /// Extents that are fast and wanted no longer, ascending.
    pub fn idle(&self) -> impl Iterator<Item = u32> + '_ {
        self.fast().filter(|extent| !self.wants(*extent))
    }

    // --- arrows -----------------------------------------------------------------------------------

    /// `extent` lives on the fast device from now on; its room is reserved.
    pub fn promote(&mut self, extent: u32) {
        assert!(!self.is_excluded(extent), "extent {extent} is excluded");
        let pages = self.grains.pages_of(extent);
        match self.extents.insert(extent, Extent { place: Place::Fast }) {
            None => self.reserved += pages.end - pages.start,
            Some(was) => {
                assert_eq!(was.place, Place::Demoting, "extent {extent} was fast");
                self.demoting.remove(&extent);
            }
        }
        self.touched.push(extent);
    }

    /// `extent` begins to be demoted.
    pub fn demote(&mut self, extent: u32) {
        let entry = self.extents.get_mut(&extent);
        let entry = entry.expect("only what is fast is demoted");
        assert_eq!(
            entry.place,
            Place::Fast,
            "extent {extent} is demoting already"
        );
        entry.place = Place::Demoting;
        self.demoting.insert(extent);
        self.touched.push(extent);
    }

    /// No page of `extent` is left on the fast device.
    pub fn emptied(&mut self, extent: u32) {
        let gone = self.extents.remove(&extent).map(|extent| extent.place);
        assert_eq!(gone, Some(Place::Demoting), "extent {extent} was demoting");
        let pages = self.grains.pages_of(extent);
        self.reserved -= pages.end - pages.start;
        self.demoting.remove(&extent);
        self.touched.push(extent);
    }

    /// Everything lives on the slow device from now on, as far as the table is concerned. Returns the
    /// extents that did not.
    pub fn clear(&mut self) -> Vec<u32> {
        let gone: Vec<u32> = std::mem::take(&mut self.extents).into_keys().collect();
        self.touched.extend(&gone);
        self.wanted.clear();
        self.reserved = 0;
        self.demoting.clear();
        gone
    }

    // --- records ----------------------------------------------------------------------------------

    /// Did a record change since the last cut?
    pub fn any_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Extents whose record changed since the last call of [`ExtentTable::take_touched`], in the order they did.
    pub fn touched(&self) -> &[u32] {
        &self.touched
    }

    /// The next commit carries the record of `extent`, or that it has none.
    pub fn touch(&mut self, extent: u32) {
        self.touched.push(extent);
    }

    /// Changes since the last call, each extent once: what is to be kept of it, if anything.
    pub fn take_touched(&mut self) -> Vec<(u32, Option<ExtentRecord>)> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        touched
            .into_iter()
            .map(|extent| (extent, self.kept(extent)))
            .collect()
    }

    /// What is to be kept of `extent`, if anything.
    pub fn kept(&self, extent: u32) -> Option<ExtentRecord> {
        self.extents.get(&extent).map(|entry| ExtentRecord {
            demoting: entry.place == Place::Demoting,
            shift: self.grains.extent.trailing_zeros() as u8,
        })
    }

    /// Everything that is to be kept, ascending.
    pub fn all_kept(&self) -> impl Iterator<Item = (u32, ExtentRecord)> + '_ {
        let keys = self.extents.keys();
        keys.map(|extent| (*extent, self.kept(*extent).expect("listed just now")))
    }

    /// How many records are kept.
    pub fn len(&self) -> usize {
        self.extents.len()
    }

    /// After a restart: what the ledger records, ascending. Extents of another size are fast again where all of
    /// them was. Those for which less than `room` pages are left, or that are excluded, are let go.
    pub fn restore(&mut self, kept: &BTreeMap<u32, ExtentRecord>, room: u64) {
        // Old records go away, whatever becomes of them.
        self.touched.extend(kept.keys());
        let mut up: Vec<Range<u64>> = Vec::new();
        for (number, kept) in kept.iter().filter(|(_, kept)| !kept.demoting) {
            let first = u64::from(*number) << kept.shift;
            let end = (first + (1 << kept.shift)).min(self.grains.pages);
            match up.last_mut() {
                Some(last) if last.end == first => last.end = end,
                _ if first < end => up.push(first..end),
                _ => {}
            }
        }
        for range in up {
            let first = range.start.div_ceil(self.grains.extent) as u32;
            let mut extent = first;
            while extent < self.grains.extents() {
                let pages = self.grains.pages_of(extent);
                if pages.end > range.end {
                    break;
                }
                let fits = self.reserved + pages.end - pages.start <= room;
                if fits && !self.is_excluded(extent) {
                    self.promote(extent);
                }
                extent += 1;
            }
        }
        self.wanted = self.promoted_regions();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(extent: u64, region: u64) -> Tier {
        Tier {
            region: Bytes::mib(region),
            extent: Some(Bytes::mib(extent)),
            ..Tier::default()
        }
    }

    /// 10.5 MiB.
    const PAGES: u64 = 2688;

    #[test]
    fn the_last_region_and_the_last_extent_may_be_short() {
        let table = ExtentTable::new(PAGES, &tier(1, 4));
        assert_eq!((table.grains.regions(), table.grains.extents()), (3, 11));
        assert_eq!(table.grains.pages_of(10), 2560..2688);
        assert_eq!(table.grains.extents_of(Region(3)), 8..11);
        assert_eq!(table.grains.region_of(10), Region(3));
    }

    #[test]
    fn room_is_reserved_from_the_raise_until_the_extent_is_empty() {
        let mut table = ExtentTable::new(PAGES, &tier(1, 4));
        table.promote(1);
        table.promote(10);
        assert_eq!(table.reserved(), 256 + 128);
        table.demote(1);
        assert_eq!(table.reserved(), 256 + 128);
        table.promote(1);
        assert_eq!((table.place(1), table.reserved()), (Place::Fast, 256 + 128));
        table.demote(1);
        table.emptied(1);
        assert_eq!((table.place(1), table.reserved()), (Place::Slow, 128));
        let touched = table.take_touched();
        let ten = ExtentRecord {
            demoting: false,
            shift: 8,
        };
        assert_eq!(touched, [(1, None), (10, Some(ten))]);
        assert!(!table.any_touched());
    }

    #[test]
    fn pins_and_exclusions_go_before_the_policy() {
        let choices = Tier {
            pinned: vec![Span::bytes(5 << 20, 512)],
            barred: vec![Span::bytes(1 << 20, 1 << 20)],
            ..tier(1, 4)
        };
        let mut table = ExtentTable::new(PAGES, &choices);
        assert_eq!(table.pinned(), [5]);
        table.want(Region(1), true);
        let wanted: Vec<u32> = (0..11).filter(|extent| table.wants(*extent)).collect();
        assert_eq!(wanted, [0, 2, 3, 5]);
        table.promote(5);
        table.promote(0);
        table.want(Region(1), false);
        assert_eq!(table.idle().collect::<Vec<u32>>(), [0]);
    }

    #[test]
    fn extents_come_back_in_another_size_where_all_of_them_was_fast() {
        let mut old = ExtentTable::new(PAGES, &tier(1, 4));
        for extent in [0, 1, 2, 4, 8, 9, 10] {
            old.promote(extent);
        }
        let kept: BTreeMap<u32, ExtentRecord> = old.all_kept().collect();
        let mut new = ExtentTable::new(PAGES, &tier(2, 4));
        new.restore(&kept, PAGES);
        assert_eq!(new.fast().collect::<Vec<u32>>(), [0, 4, 5]);
        assert_eq!(
            new.wanted().collect::<Vec<Region>>(),
            [Region(1), Region(3)]
        );
        // The old numbers are touched, those that mean something else now and those that mean nothing.
        let touched: Vec<u32> = new
            .take_touched()
            .iter()
            .map(|(extent, _)| *extent)
            .collect();
        assert_eq!(touched, [0, 1, 2, 4, 5, 8, 9, 10]);
        let mut small = ExtentTable::new(PAGES, &tier(1, 4));
        small.restore(&kept, 600);
        assert_eq!(small.fast().collect::<Vec<u32>>(), [0, 1]);
    }
}
