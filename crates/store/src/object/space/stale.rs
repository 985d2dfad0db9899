//! Which free units were not yet discarded on the device?
//!
//! ```text
//! a page taken -> the unit is written -> all its pages free -> stale -> ripe -> lent to the trim -> discarded -> clean
//!                                                               '-- a page of it taken again: written
//! ```
//!
//! Memory: one bit a unit, and an entry for each stale one.
//!
//! Always true:
//! 1. A stale unit is free as a whole: no durable record names a page of it, and no read of one is under way.
//! 2. A unit that is lent is handed out again only when it is given back.

use std::collections::BTreeSet;

/// What is remembered of units between two trims.
#[derive(Default)]
pub(super) struct Stale {
    /// One bit a unit: something of it was taken since it was last discarded.
    written: Vec<u64>,
    /// Of these the ones that are free as a whole: that rested, and that became so since.
    units: BTreeSet<u32>,
    fresh: BTreeSet<u32>,
    /// Pages that are being discarded.
    pub lent: u32,
}

impl Stale {
    pub fn new(units: u32) -> Stale {
        Stale {
            written: vec![0; (units as usize).div_ceil(64)],
            ..Stale::default()
        }
    }

    /// The first page of a free unit is taken.
    pub fn begun(&mut self, unit: u32) {
        self.written[unit as usize / 64] |= 1 << (unit % 64);
        self.units.remove(&unit);
        self.fresh.remove(&unit);
    }

    /// The last page of a unit became free.
    pub fn emptied(&mut self, unit: u32) {
        if self.written[unit as usize / 64] >> (unit % 64) & 1 == 1 {
            self.fresh.insert(unit);
        }
    }

    /// It was discarded.
    pub fn cleaned(&mut self, unit: u32) {
        self.written[unit as usize / 64] &= !(1 << (unit % 64));
        self.units.remove(&unit);
        self.fresh.remove(&unit);
    }

    /// Is there any stale unit? With `ripe` only those that rested count.
    pub fn any(&self, ripe: bool) -> bool {
        !(self.units.is_empty() && (ripe || self.fresh.is_empty()))
    }

    /// Those that became stale until now have rested.
    pub fn ripen(&mut self) {
        self.units.append(&mut self.fresh);
    }

    /// The first units in a row that rested, at most `most` of them: the first of them, and how many.
    pub fn lend(&self, most: u32) -> Option<(u32, u32)> {
        let first = *self.units.first()?;
        let in_row = (first..).take_while(|unit| self.units.contains(unit));
        let units = in_row.take(most as usize).count() as u32;
        (units > 0).then_some((first, units))
    }

    pub fn lent(&self) -> u32 {
        self.lent
    }

    pub fn memory(&self) -> u64 {
        (self.written.len() * 8 + (self.units.len() + self.fresh.len()) * 16) as u64
    }
}

#[cfg(test)]
mod tests {
    use crate::object::space::{Run, Space, Want};

    fn filled(units: u64) -> Space {
        let mut space = Space::new(units, 16, units);
        while space.free_count() > 0 {
            let want = Want {
                count: 16,
                object: 1,
                next: None,
                stream: true,
            };
            space.take(want).unwrap();
        }
        space
    }

    fn free(space: &mut Space, pages: std::ops::Range<u32>) {
        space.release(&pages.collect::<Vec<_>>());
        space.cut();
        space.committed();
        space.ripen();
    }

    #[test]
    fn what_becomes_stale_later_waits_for_the_next_time() {
        let mut space = filled(4);
        free(&mut space, 0..16);
        space.release(&(16..32).collect::<Vec<_>>());
        space.cut();
        space.committed();
        let one = Run {
            first: 0,
            count: 16,
        };
        assert_eq!(space.lend(0, 4), Some(one));
        assert_eq!(space.lend(0, 4), None);
        assert!(space.is_stale(false));
        space.ripen();
        assert_eq!(space.lend(0, 4).map(|run| run.first), Some(16));
    }

    #[test]
    fn whole_units_are_lent_once_in_rows_and_are_not_taken_meanwhile() {
        let mut space = filled(8);
        free(&mut space, 0..100);
        assert_eq!(space.free_count(), 100);
        let lent = space.lend(0, 4).unwrap();
        assert_eq!((lent.first, lent.count), (0, 64));
        assert_eq!(
            (space.free_count(), space.lent(), space.snapshot().free),
            (36, 64, 100)
        );
        assert!(space.more_to_come());
        let rest = space.lend(0, 4).unwrap();
        assert_eq!(
            (rest.first, rest.count),
            (64, 32),
            "a unit with a taken page is not lent"
        );
        assert_eq!(space.lend(0, 4), None);
        space.returned(lent);
        space.returned(rest);
        assert_eq!((space.free_count(), space.is_stale(false)), (100, false));
        assert_eq!(
            space.lend(0, 4),
            None,
            "what was discarded is not discarded again"
        );
        let again = space.take(Want {
            count: 1,
            object: 2,
            next: Some(5),
            stream: true,
        });
        assert_eq!(again, Some(Run { first: 5, count: 1 }));
        free(&mut space, 5..6);
        assert_eq!(
            space.lend(0, 4),
            Some(Run {
                first: 0,
                count: 16
            })
        );
    }

    #[test]
    fn a_released_page_is_lent_only_behind_its_commit_and_its_readers() {
        let mut space = filled(2);
        let reader = space.enter();
        space.release(&(0..16).collect::<Vec<_>>());
        assert_eq!(space.lend(0, 4), None, "the commit is to come");
        space.cut();
        space.committed();
        assert_eq!(space.lend(0, 4), None, "a reader is still under way");
        space.leave(reader);
        space.ripen();
        assert_eq!(
            space.lend(0, 4),
            Some(Run {
                first: 0,
                count: 16
            })
        );
    }

    #[test]
    fn what_is_promised_to_others_is_not_lent() {
        let mut space = filled(4);
        free(&mut space, 0..64);
        assert_eq!(
            space.lend(33, 4),
            Some(Run {
                first: 0,
                count: 16
            })
        );
        assert_eq!(space.lend(33, 4), None);
    }

    #[test]
    fn a_unit_that_was_never_written_is_not_discarded() {
        let mut space = Space::new(4, 16, 4);
        assert_eq!(space.lend(0, 4), None);
        assert!(space.claim(3));
        free(&mut space, 3..4);
        assert_eq!(
            space.lend(0, 4),
            Some(Run {
                first: 0,
                count: 16
            })
        );
    }
}
