//! Which regions of the slow device may have changed behind the cache's back?
//!
//! A write that goes to the slow device over a clean cached page is a trap. If the machine dies after the write
//! landed and before the map forgot the page, recovery would map the old copy again. So a region (4 MiB) is
//! *marked*, durably, before such a write is sent: a write intent. Recovery drops the clean pages of marked
//! regions.
//!
//! Where the durable map has no page that the write covers, recovery has no old copy to map. The mark stays in
//! memory then. But until the slow device is flushed, a copy of what was written would be a trap again: a power cut
//! may undo the write and not the copy. So such a copy writes the mark to the ledger, with or before its own map
//! entry. `untold` are the marks that are in memory alone.
//!
//! ```text
//! clear   -> marked   begin        durable before the slow write is sent
//! clear   -> untold   begin_loose  the durable map has none of the pages
//! untold  -> marked   begin, tell  a write over a cached page, or a copy in the region
//! marked  -> clear    unmark       no write under way, and the slow device flushed since the last one
//! untold  -> clear    unmark       likewise
//! ```

use std::collections::BTreeMap;

use base::{Instant, Nanos};

pub(crate) struct Mark {
    /// Is it in the ledger, or on its way there?
    pub told: bool,
    /// The commit that makes it durable.
    pub commit: u64,
    pub in_flight: u32,
    /// Writes begun so far: shows whether a region rested.
    pub writes: u64,
    pub last: Instant,
}

#[derive(Default)]
pub(crate) struct Marks {
    set: BTreeMap<u64, Mark>,
    told: usize,
    /// Regions whose mark changed since the last cut.
    touched: Vec<u64>,
}

impl Marks {
    /// How many are in the ledger, or on their way there.
    pub fn len(&self) -> usize {
        self.told
    }

    pub fn is_marked(&self, region: u64) -> bool {
        self.set.get(&region).is_some_and(|mark| mark.told)
    }

    /// Regions whose mark is in the ledger, or on its way there, in order.
    pub fn regions(&self) -> impl Iterator<Item = u64> + '_ {
        let told = self.set.iter().filter(|(_, mark)| mark.told);
        told.map(|(region, _)| *region)
    }

    /// Recovery found `region` marked.
    pub fn recovered(&mut self, region: u64) {
        let mark = Mark {
            told: true,
            commit: 0,
            in_flight: 0,
            writes: 0,
            last: Instant(0),
        };
        self.told += usize::from(self.set.insert(region, mark).is_none());
    }

    /// A write to `region` is about to begin; `next_commit` is the commit that will carry a new mark.
    /// Returns the commit to wait for before the write may be sent.
    pub fn begin(&mut self, region: u64, next_commit: u64, now: Instant) -> u64 {
        self.begin_loose(region, now);
        self.tell(region, next_commit)
    }

    /// A write to `region` is about to begin, over pages that the durable map does not have.
    pub fn begin_loose(&mut self, region: u64, now: Instant) {
        let mark = self.set.entry(region).or_insert(Mark {
            told: false,
            commit: 0,
            in_flight: 0,
            writes: 0,
            last: now,
        });
        mark.in_flight += 1;
        mark.writes += 1;
        mark.last = now;
    }

    /// If `region` was written lately, its mark must be in the ledger from `next_commit` on. Returns the commit
    /// that has it.
    pub fn tell(&mut self, region: u64, next_commit: u64) -> u64 {
        let Some(mark) = self.set.get_mut(&region) else {
            return 0;
        };
        if !mark.told {
            mark.told = true;
            mark.commit = next_commit;
            self.told += 1;
            self.touched.push(region);
        }
        mark.commit
    }

    /// The write to `region` is over.
    pub fn end(&mut self, region: u64, now: Instant) {
        let mark = self
            .set
            .get_mut(&region)
            .expect("a region under write stays marked");
        mark.in_flight -= 1;
        mark.last = now;
    }

    /// Regions that have rested for `rest`, with the write count to hand to [`Marks::unmark`]; `told` ones or
    /// the others.
    pub fn rested(&self, now: Instant, rest: Nanos, told: bool) -> Vec<(u64, u64)> {
        self.set
            .iter()
            .filter(|(_, mark)| mark.told == told)
            .filter(|(_, mark)| mark.in_flight == 0 && now.since(mark.last) >= rest)
            .map(|(region, mark)| (*region, mark.writes))
            .collect()
    }

    /// The slow device was flushed, in a flush that began at `flushed`: forgets the older marks that are in memory
    /// alone.
    pub fn forget_untold(&mut self, flushed: Instant) {
        self.set
            .retain(|_, mark| mark.told || mark.in_flight > 0 || mark.last >= flushed);
    }

    /// The slow device was flushed: clears the mark, unless the region was written since.
    pub fn unmark(&mut self, region: u64, writes: u64) -> bool {
        let rested = self
            .set
            .get(&region)
            .is_some_and(|mark| mark.in_flight == 0 && mark.writes == writes);
        if rested && self.set.remove(&region).is_some_and(|mark| mark.told) {
            self.told -= 1;
            self.touched.push(region);
        }
        rested
    }

    /// Changes since the last call: (region, is it marked?), each region once.
    pub fn take_touched(&mut self) -> Vec<(u64, bool)> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        touched
            .into_iter()
            .map(|region| (region, self.is_marked(region)))
            .collect()
    }

    pub fn any_touched(&self) -> bool {
        !self.touched.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_marked_once_and_cleared_only_after_a_rest() {
        let mut marks = Marks::default();
        let now = Instant(5);
        assert_eq!(marks.begin(3, 8, now), 8);
        assert_eq!(
            marks.begin(3, 9, now),
            8,
            "the first commit carries the mark"
        );
        assert_eq!(marks.take_touched(), [(3, true)]);
        assert!(
            marks.rested(now, Nanos(0), true).is_empty(),
            "two writes are under way"
        );
        marks.end(3, now);
        marks.end(3, now);
        let rested = marks.rested(now, Nanos(0), true);
        assert_eq!(rested, [(3, 2)]);
        marks.begin(3, 9, now);
        assert!(!marks.unmark(3, 2), "written since");
        marks.end(3, now);
        assert!(marks.unmark(3, 3));
        assert_eq!(marks.take_touched(), [(3, false)]);
        assert!(!marks.is_marked(3));
    }

    #[test]
    fn a_loose_write_is_told_of_only_when_something_depends_on_it() {
        let mut marks = Marks::default();
        marks.begin_loose(5, Instant(1));
        marks.begin_loose(6, Instant(1));
        marks.end(5, Instant(2));
        marks.end(6, Instant(2));
        assert!(!marks.any_touched() && !marks.is_marked(5));
        assert_eq!(marks.tell(5, 9), 9);
        assert_eq!((marks.take_touched(), marks.len()), (vec![(5, true)], 1));
        marks.forget_untold(Instant(2));
        assert_eq!(marks.rested(Instant(9), Nanos(0), false), [(6, 1)]);
        marks.forget_untold(Instant(3));
        assert_eq!(marks.rested(Instant(9), Nanos(0), false), []);
        assert_eq!(
            marks.tell(6, 9),
            0,
            "flushed: nothing depends on it any more"
        );
        assert!(marks.is_marked(5));
    }
}
