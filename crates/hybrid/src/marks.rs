//! Which regions of the slow device may have changed behind the cache's back?
//!
//! A write that goes to the slow device over a clean cached page is a trap: if the machine dies after the
//! write landed and before the map forgot the page, recovery would bring the old copy back. So a region
//! (4 MiB) is *marked*, durably, before such a write is sent; recovery drops the clean pages of marked
//! regions.
//!
//! ```text
//! clear   -> marked   mark       durable before the slow write is sent
//! marked  -> clear    unmark     no write under way, and the slow device flushed since the last one
//! ```

use std::collections::BTreeMap;

use base::{Instant, Nanos};

pub(crate) struct Mark {
    /// The commit that makes it durable.
    pub commit: u64,
    pub in_flight: u32,
    /// Writes begun so far: tells whether a region rested.
    pub writes: u64,
    pub last: Instant,
}

#[derive(Default)]
pub(crate) struct Marks {
    set: BTreeMap<u64, Mark>,
    /// Regions whose mark changed since the last cut.
    touched: Vec<u64>,
}

impl Marks {
    pub fn len(&self) -> usize {
        self.set.len()
    }

    pub fn is_marked(&self, region: u64) -> bool {
        self.set.contains_key(&region)
    }

    /// Regions marked, in order.
    pub fn regions(&self) -> impl Iterator<Item = u64> + '_ {
        self.set.keys().copied()
    }

    /// Recovery found `region` marked.
    pub fn recovered(&mut self, region: u64) {
        let mark = Mark {
            commit: 0,
            in_flight: 0,
            writes: 0,
            last: Instant(0),
        };
        self.set.insert(region, mark);
    }

    /// A write to `region` is about to begin; `next_commit` is the commit that will carry a new mark.
    /// Returns the commit to wait for before the write may be sent.
    pub fn begin(&mut self, region: u64, next_commit: u64, now: Instant) -> u64 {
        let Marks { set, touched } = self;
        let mark = set.entry(region).or_insert_with(|| {
            touched.push(region);
            Mark {
                commit: next_commit,
                in_flight: 0,
                writes: 0,
                last: now,
            }
        });
        mark.in_flight += 1;
        mark.writes += 1;
        mark.last = now;
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

    /// Regions that have rested for `rest`, with the write count to hand to [`Marks::unmark`].
    pub fn rested(&self, now: Instant, rest: Nanos) -> Vec<(u64, u64)> {
        self.set
            .iter()
            .filter(|(_, mark)| mark.in_flight == 0 && now.since(mark.last) >= rest)
            .map(|(region, mark)| (*region, mark.writes))
            .collect()
    }

    /// The slow device was flushed: clears the mark, unless the region was written since.
    pub fn unmark(&mut self, region: u64, writes: u64) -> bool {
        let rested = self
            .set
            .get(&region)
            .is_some_and(|mark| mark.in_flight == 0 && mark.writes == writes);
        if rested {
            self.set.remove(&region);
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
            .map(|region| (region, self.set.contains_key(&region)))
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
            marks.rested(now, Nanos(0)).is_empty(),
            "two writes are under way"
        );
        marks.end(3, now);
        marks.end(3, now);
        let rested = marks.rested(now, Nanos(0));
        assert_eq!(rested, [(3, 2)]);
        marks.begin(3, 9, now);
        assert!(!marks.unmark(3, 2), "written since");
        marks.end(3, now);
        assert!(marks.unmark(3, 3));
        assert_eq!(marks.take_touched(), [(3, false)]);
        assert!(!marks.is_marked(3));
    }
}
