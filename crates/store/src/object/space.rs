//! Which pages are free, and when does a freed one become free again?
//!
//! ```text
//! free -> taken (being written, then mapped) -> released -> [the commit that forgets it is durable]
//!      -> [no reader that may still look at it is under way] -> free
//! ```
//!
//! Pages are the currency, units the order in it: what is long begins in a unit of its own and goes on there
//! (the unit is *kept* for its object while there is other room), what is short is packed into units that are begun
//! already. Zones let the search skip what holds nothing of the kind looked for.
//!
//! Memory: one bit a page, two bytes and a bit a unit, twelve a zone. What of it is still to be discarded on the device:
//! [`stale`].
//!
//! Always true:
//! 1. A page is handed out only when no durable record names it and no read of it is under way.
//! 2. A free unit is begun for short data only when no begun one has room.
//!
//! Source: PROBS 3.1 (used, reserved, free), 3.2 (allocation units); packing and the commit rule are ours.

use base::Map;
use ledger::{Epoch, Reclaim};

mod stale;

use stale::Stale;

/// A run of neighbouring pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub first: u32,
    pub count: u32,
}

/// What a taker wants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    pub count: u32,
    /// For whom.
    pub object: u32,
    /// The page behind its last one.
    pub next: Option<u32>,
    /// It is long, or will be.
    pub stream: bool,
}

#[derive(Clone, Copy, Default)]
struct Zone {
    free_pages: u32,
    free_units: u32,
    /// Units with some free pages and some taken.
    begun: u32,
}

pub(crate) struct Space {
    // Fixed.
    total: u32,
    unit_pages: u32,
    zone_units: u32,
    // One bit a page, set while it is free.
    free: Vec<u64>,
    free_count: u32,
    unit_free: Vec<u16>,
    zones: Vec<Zone>,
    /// Units that their object would like for itself.
    kept: Map<u32, u32>,
    /// Where the search for a free unit and for a begun one goes on.
    unit_cursor: u32,
    begun_cursor: u32,
    reclaim: Reclaim<u32>,
    /// What is to be discarded.
    stale: Stale,
}

/// Free and begun units and the like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SpaceSnapshot {
    /// Also what is being discarded just now.
    pub free: u32,
    /// Released, not yet free again.
    pub waiting: u32,
    pub units_free: u32,
    pub units_begun: u32,
}

impl Space {
    /// `units` units of `unit_pages` pages each, all free.
    pub fn new(units: u64, unit_pages: u64, zone_units: u64) -> Space {
        let (unit_pages, zone_units) = (unit_pages as u32, zone_units.min(units) as u32);
        let units = units as u32;
        let total = units * unit_pages;
        let zones = (0..units.div_ceil(zone_units))
            .map(|zone| {
                let here = zone_units.min(units - zone * zone_units);
                Zone {
                    free_pages: here * unit_pages,
                    free_units: here,
                    begun: 0,
                }
            })
            .collect();
        let mut free = vec![u64::MAX; (total as usize).div_ceil(64)];
        if !total.is_multiple_of(64)
            && let Some(last) = free.last_mut()
        {
            *last = (1 << (total % 64)) - 1;
        }
        Space {
            total,
            unit_pages,
            zone_units,
            free,
            free_count: total,
            unit_free: vec![unit_pages as u16; units as usize],
            zones,
            kept: Map::default(),
            unit_cursor: 0,
            begun_cursor: 0,
            reclaim: Reclaim::default(),
            stale: Stale::new(units),
        }
    }

    pub fn total(&self) -> u32 {
        self.total
    }

    pub fn free_count(&self) -> u32 {
        self.free_count
    }

    pub fn snapshot(&self) -> SpaceSnapshot {
        let sum = |part: fn(&Zone) -> u32| self.zones.iter().map(part).sum();
        debug_assert_eq!(self.free_count, sum(|zone| zone.free_pages));
        SpaceSnapshot {
            free: self.free_count + self.stale.lent(),
            waiting: self.reclaim.waiting() as u32,
            units_free: sum(|zone| zone.free_units),
            units_begun: sum(|zone| zone.begun),
        }
    }

    /// Bytes of memory this takes.
    pub fn memory(&self) -> u64 {
        (self.free.len() * 8 + self.unit_free.len() * 2 + self.zones.len() * 12) as u64
            + self.stale.memory()
    }

    fn is_free(&self, page: u32) -> bool {
        self.free[page as usize / 64] >> (page % 64) & 1 == 1
    }

    fn set(&mut self, page: u32, free: bool) {
        assert_ne!(
            self.is_free(page),
            free,
            "page {page} is taken and freed by turns"
        );
        self.free[page as usize / 64] ^= 1 << (page % 64);
        let unit = (page / self.unit_pages) as usize;
        let zone = &mut self.zones[unit / self.zone_units as usize];
        let before = u32::from(self.unit_free[unit]);
        let after = if free { before + 1 } else { before - 1 };
        let begun = |count| u32::from(count > 0 && count < self.unit_pages);
        let whole = |count| u32::from(count == self.unit_pages);
        zone.begun = zone.begun + begun(after) - begun(before);
        zone.free_units = zone.free_units + whole(after) - whole(before);
        self.unit_free[unit] = after as u16;
        if free && after == self.unit_pages {
            self.stale.emptied(unit as u32);
        } else if !free && before == self.unit_pages {
            self.stale.begun(unit as u32);
        }
        if free {
            zone.free_pages += 1;
            self.free_count += 1;
        } else {
            zone.free_pages -= 1;
            self.free_count -= 1;
        }
    }

    /// Takes this very page (opening); false if it is taken already.
    pub fn claim(&mut self, page: u32) -> bool {
        let free = self.is_free(page);
        if free {
            self.set(page, false);
        }
        free
    }

    /// Gives back at once pages that no record names and no read looks at (failed writes, what was lent).
    pub fn give_back(&mut self, run: Run) {
        for page in run.first..run.first + run.count {
            self.set(page, true);
        }
    }

    // --- taking -----------------------------------------------------------------------------------

    /// Takes a run of at most `want.count` pages within one unit; `None` if no page is free.
    pub fn take(&mut self, want: Want) -> Option<Run> {
        if want.count == 0 {
            return None;
        }
        // Going on where its last page ended.
        if let Some(next) = want.next
            && next < self.total
            && self.is_free(next)
            && !next.is_multiple_of(self.unit_pages)
            && (want.stream || self.kept.get(&(next / self.unit_pages)) == Some(&want.object))
        {
            return Some(self.take_from(next, want.count));
        }
        let long = want.stream || want.count >= self.unit_pages;
        let unit = if long {
            self.free_unit().or_else(|| self.begun_unit(want.object))
        } else {
            self.begun_unit(want.object).or_else(|| self.free_unit())
        };
        // What is kept for others is better than nothing.
        let unit = unit.or_else(|| self.any_unit())?;
        if long && u32::from(self.unit_free[unit as usize]) == self.unit_pages {
            self.kept.insert(unit, want.object);
        }
        let first = self.next_free(unit * self.unit_pages)?;
        Some(self.take_from(first, want.count))
    }

    /// Takes up to `wanted` free pages from `first` on, none behind its unit.
    fn take_from(&mut self, first: u32, wanted: u32) -> Run {
        let unit = first / self.unit_pages;
        let end = (unit + 1) * self.unit_pages;
        let mut count = 0;
        while count < wanted && first + count < end && self.is_free(first + count) {
            self.set(first + count, false);
            count += 1;
        }
        if self.unit_free[unit as usize] == 0 {
            self.kept.remove(&unit);
        }
        Run { first, count }
    }

    /// The first free page from `from` on.
    fn next_free(&self, from: u32) -> Option<u32> {
        let mut word = from as usize / 64;
        let mut bits = self.free.get(word)? & (u64::MAX << (from % 64));
        loop {
            if bits != 0 {
                return Some(word as u32 * 64 + bits.trailing_zeros());
            }
            word += 1;
            bits = *self.free.get(word)?;
        }
    }

    /// The first unit from `cursor` on, round the end, that suits, in zones that may hold one.
    fn find(
        &self,
        cursor: u32,
        zone_may: impl Fn(&Zone) -> bool,
        suits: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let units = self.unit_free.len() as u32;
        let zones = self.zones.len() as u32;
        let start = cursor.min(units - 1) / self.zone_units;
        // The cursor's zone comes twice: its end first, its beginning last.
        for step in 0..=zones {
            let zone = (start + step) % zones;
            if !zone_may(&self.zones[zone as usize]) {
                continue;
            }
            let (mut from, mut to) = (
                zone * self.zone_units,
                ((zone + 1) * self.zone_units).min(units),
            );
            if step == 0 {
                from = from.max(cursor);
            } else if step == zones {
                to = to.min(cursor);
            }
            if let Some(unit) = (from..to).find(|unit| suits(*unit)) {
                return Some(unit);
            }
        }
        None
    }

    fn free_unit(&mut self) -> Option<u32> {
        let whole = self.unit_pages;
        let unit = self.find(
            self.unit_cursor,
            |zone| zone.free_units > 0,
            |unit| u32::from(self.unit_free[unit as usize]) == whole,
        )?;
        self.unit_cursor = unit;
        Some(unit)
    }

    fn begun_unit(&mut self, object: u32) -> Option<u32> {
        let unit = self.find(
            self.begun_cursor,
            |zone| zone.begun > 0,
            |unit| {
                let free = u32::from(self.unit_free[unit as usize]);
                let begun = free > 0 && free < self.unit_pages;
                begun && self.kept.get(&unit).is_none_or(|owner| *owner == object)
            },
        )?;
        self.begun_cursor = unit;
        Some(unit)
    }

    fn any_unit(&self) -> Option<u32> {
        self.find(
            0,
            |zone| zone.free_pages > 0,
            |unit| self.unit_free[unit as usize] > 0,
        )
    }

    /// Nothing is kept for `object` any more.
    pub fn forget(&mut self, object: u32) {
        self.kept.retain(|_, owner| *owner != object);
    }

    // --- releasing --------------------------------------------------------------------------------

    /// No record in memory names these any longer.
    pub fn release(&mut self, pages: &[u32]) {
        for page in pages {
            self.reclaim.release(*page);
        }
    }

    /// A batch of changes is cut: what was released until now waits for its commit.
    pub fn cut(&mut self) {
        self.reclaim.cut();
    }

    /// The batch of the last cut is durable.
    pub fn committed(&mut self) {
        let free = self.reclaim.durable();
        self.set_free(free);
    }

    /// Will pages become free without another change?
    pub fn more_to_come(&self) -> bool {
        self.reclaim.waiting() > 0 || self.stale.lent() > 0
    }

    /// Would a commit advance any of them?
    pub fn needs_commit(&self) -> bool {
        self.reclaim.uncut() > 0
    }

    /// A read of mapped pages begins; give the answer back to [`Space::leave`].
    pub fn enter(&mut self) -> Epoch {
        self.reclaim.enter()
    }

    /// The read that entered at `epoch` is over.
    pub fn leave(&mut self, epoch: Epoch) {
        let free = self.reclaim.leave(epoch);
        self.set_free(free);
    }

    fn set_free(&mut self, pages: Vec<u32>) {
        for page in pages {
            self.set(page, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn want(count: u32, object: u32) -> Want {
        Want {
            count,
            object,
            next: None,
            stream: false,
        }
    }

    #[test]
    fn short_data_are_packed_and_long_data_begin_a_unit() {
        let mut space = Space::new(8, 16, 4);
        assert_eq!(space.take(want(3, 1)), Some(Run { first: 0, count: 3 }));
        assert_eq!(space.take(want(3, 2)), Some(Run { first: 3, count: 3 }));
        let long = space.take(want(40, 3)).unwrap();
        assert_eq!(
            long,
            Run {
                first: 16,
                count: 16
            }
        );
        let stream = |next| Want {
            count: 5,
            object: 4,
            next,
            stream: true,
        };
        assert_eq!(
            space.take(stream(None)),
            Some(Run {
                first: 32,
                count: 5
            })
        );
        assert_eq!(space.take(want(3, 5)), Some(Run { first: 6, count: 3 }));
        assert_eq!(
            space.take(stream(Some(37))),
            Some(Run {
                first: 37,
                count: 5
            })
        );
        let snapshot = space.snapshot();
        assert_eq!((snapshot.units_free, snapshot.units_begun), (5, 2));
    }

    #[test]
    fn every_page_is_handed_out_once_whatever_is_wanted() {
        let mut rng = env::Rng::from_seed(3);
        for round in 0..40 {
            let mut space = Space::new(11, 16, 3);
            let mut seen = [false; 176];
            let mut left = 176;
            while left > 0 {
                let run = space
                    .take(Want {
                        count: 1 + rng.below(40) as u32,
                        object: rng.below(4) as u32,
                        next: rng.chance(0.3).then(|| rng.below(180) as u32),
                        stream: rng.chance(0.3),
                    })
                    .unwrap_or_else(|| panic!("round {round}: {left} pages cannot be found"));
                assert!(run.count > 0);
                for page in run.first..run.first + run.count {
                    assert!(!std::mem::replace(&mut seen[page as usize], true));
                }
                left -= run.count;
            }
            assert_eq!(space.take(want(1, 0)), None);
            assert_eq!(space.snapshot(), SpaceSnapshot::default());
        }
    }

    #[test]
    fn a_released_page_waits_for_its_commit_and_for_its_readers() {
        let mut space = Space::new(1, 16, 1);
        space.take(want(16, 0)).unwrap();
        let reader = space.enter();
        space.release(&[5]);
        space.committed();
        assert_eq!(
            space.free_count(),
            0,
            "released after the cut: the next commit counts"
        );
        space.cut();
        space.committed();
        assert_eq!(space.free_count(), 0, "a reader is still under way");
        let late = space.enter();
        space.leave(reader);
        assert_eq!(
            space.free_count(),
            1,
            "a reader that came later cannot see the page"
        );
        space.leave(late);
        assert!(!space.more_to_come());
    }
}
