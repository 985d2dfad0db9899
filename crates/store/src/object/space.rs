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
mod units;

use stale::Stale;
use units::{Turn, Units};

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

/// See the module's head.
pub(crate) struct Space {
    units: Units,
    /// Units that their object would like for itself.
    kept: Map<u32, u32>,
    /// Where the search for a free unit and for a begun one goes on.
    unit_cursor: u32,
    begun_cursor: u32,
    /// What no record in memory names any longer.
    pub reclaim: Reclaim<u32>,
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
        let (units, zone_units) = (units as u32, zone_units.min(units) as u32);
        Space {
            units: Units::new(units, unit_pages as u32, zone_units),
            kept: Map::default(),
            unit_cursor: 0,
            begun_cursor: 0,
            reclaim: Reclaim::default(),
            stale: Stale::new(units),
        }
    }

    pub fn total(&self) -> u32 {
        self.units.total()
    }

    pub fn free_count(&self) -> u32 {
        self.units.free_count()
    }

    pub fn snapshot(&self) -> SpaceSnapshot {
        let (units_free, units_begun) = self.units.sums();
        SpaceSnapshot {
            free: self.free_count() + self.stale.lent(),
            waiting: self.reclaim.waiting() as u32,
            units_free,
            units_begun,
        }
    }

    /// Bytes of memory this takes.
    pub fn memory(&self) -> u64 {
        self.units.memory() + self.stale.memory()
    }

    fn set(&mut self, page: u32, free: bool) {
        match self.units.set(page, free) {
            Turn::Nothing => {}
            Turn::Begun(unit) => self.stale.begun(unit),
            Turn::Emptied(unit) => self.stale.emptied(unit),
        }
    }

    /// Takes this very page (opening); false if it is taken already.
    pub fn claim(&mut self, page: u32) -> bool {
        let free = self.units.is_free(page);
        if free {
            self.set(page, false);
        }
        free
    }

    /// Gives back at once pages that no record names and no read looks at (failed writes, what was lent).
    pub fn give_back(&mut self, run: Run) {
        self.free(run.first..run.first + run.count);
    }

    fn free(&mut self, pages: impl IntoIterator<Item = u32>) {
        for page in pages {
            self.set(page, true);
        }
    }

    // --- taking -----------------------------------------------------------------------------------

    /// Takes a run of at most `want.count` pages within one unit; `None` if no page is free.
    pub fn take(&mut self, want: Want) -> Option<Run> {
        let unit_pages = self.units.unit_pages();
        if want.count == 0 {
            return None;
        }
        // Going on where its last page ended.
        if let Some(next) = want.next
            && next < self.total()
            && self.units.is_free(next)
            && !next.is_multiple_of(unit_pages)
            && (want.stream || self.kept.get(&(next / unit_pages)) == Some(&want.object))
        {
            return Some(self.take_from(next, want.count));
        }
        let long = want.stream || want.count >= unit_pages;
        let unit = if long {
            self.free_unit().or_else(|| self.begun_unit(want.object))
        } else {
            self.begun_unit(want.object).or_else(|| self.free_unit())
        };
        // What is kept for others is better than nothing.
        let unit = unit.or_else(|| self.units.any_unit())?;
        if long && self.units.free_in(unit) == unit_pages {
            self.kept.insert(unit, want.object);
        }
        let first = self.units.next_free(unit * unit_pages)?;
        Some(self.take_from(first, want.count))
    }

    /// Takes up to `wanted` free pages from `first` on, none behind its unit.
    fn take_from(&mut self, first: u32, wanted: u32) -> Run {
        let unit = first / self.units.unit_pages();
        let end = (unit + 1) * self.units.unit_pages();
        let mut count = 0;
        while count < wanted && first + count < end && self.units.is_free(first + count) {
            self.set(first + count, false);
            count += 1;
        }
        if self.units.free_in(unit) == 0 {
            self.kept.remove(&unit);
        }
        Run { first, count }
    }

    fn free_unit(&mut self) -> Option<u32> {
        let unit = self.units.free_unit(self.unit_cursor)?;
        self.unit_cursor = unit;
        Some(unit)
    }

    fn begun_unit(&mut self, object: u32) -> Option<u32> {
        let ours = |unit| self.kept.get(&unit).is_none_or(|owner| *owner == object);
        let unit = self.units.begun_unit(self.begun_cursor, ours)?;
        self.begun_cursor = unit;
        Some(unit)
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
        self.free(free);
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
        self.free(free);
    }

    // --- discarding -------------------------------------------------------------------------------

    /// Is there anything to discard? With `ripe` only what rested counts.
    pub fn is_stale(&self, ripe: bool) -> bool {
        self.stale.any(ripe)
    }

    /// What is stale now may be lent from here on; what becomes so later waits for the next call.
    pub fn ripen(&mut self) {
        self.stale.ripen();
    }

    /// Pages that are being discarded: free, but not to be taken now.
    pub fn lent(&self) -> u32 {
        self.stale.lent()
    }

    /// Lends ripe units in a row, at most `most` of them, so that at least `keep` pages stay free; `None`: there are none.
    pub fn lend(&mut self, keep: u64, most: u32) -> Option<Run> {
        let unit_pages = self.units.unit_pages();
        let room = u64::from(self.free_count()).saturating_sub(keep) / u64::from(unit_pages);
        let (first, units) = self.stale.lend(room.min(u64::from(most)) as u32)?;
        let run = Run {
            first: first * unit_pages,
            count: units * unit_pages,
        };
        for page in run.first..run.first + run.count {
            self.set(page, false);
        }
        self.stale.lent += run.count;
        Some(run)
    }

    /// What was lent is free again, and stale no longer.
    pub fn returned(&mut self, run: Run) {
        self.stale.lent -= run.count;
        self.give_back(run);
        let unit_pages = self.units.unit_pages();
        for unit in run.first / unit_pages..(run.first + run.count) / unit_pages {
            self.stale.cleaned(unit);
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
