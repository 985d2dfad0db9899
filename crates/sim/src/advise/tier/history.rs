//! What was asked where, interval by interval: what parameters of a tier are learned from.
//!
//! ```text
//! requests of a trace     -> Counting \
//! intervals of a volume's statistics   > History -> merged to larger regions and longer intervals, cut in two
//! ```
//!
//! Always true:
//! 1. A request counts once, in the region and the interval it began in.
//! 2. Merging keeps every request.
//! 3. Memory is bounded: a history of a trace that grows too large is merged to intervals twice as long.

use std::collections::{BTreeMap, VecDeque};

use base::{Bytes, Nanos};
use policy::tier::{Count, Region};

/// The most counts a history holds.
pub const COUNTS_MAX: usize = 1_000_000;

/// Counts of regions of one size in intervals of one length.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// Length of a region.
    pub region: Bytes,
    /// Length of an interval.
    pub period: Nanos,
    /// The intervals, oldest first; each ascending by region.
    pub intervals: VecDeque<Vec<Count>>,
    counts: usize,
}

impl History {
    /// Nothing yet.
    pub fn new(region: Bytes, period: Nanos) -> History {
        History {
            region,
            period,
            intervals: VecDeque::new(),
            counts: 0,
        }
    }

    /// One more interval; `counts` ascend by region.
    pub fn push(&mut self, counts: Vec<Count>) {
        self.counts += counts.len();
        self.intervals.push_back(counts);
    }

    /// Forgets the oldest intervals, so that there are at most `intervals` and at most [`COUNTS_MAX`] counts.
    pub fn forget(&mut self, intervals: usize) {
        while self.intervals.len() > intervals || self.counts > COUNTS_MAX {
            let Some(gone) = self.intervals.pop_front() else {
                return;
            };
            self.counts -= gone.len();
        }
    }

    /// Length of a region.
    pub fn region(&self) -> Bytes {
        self.region
    }

    /// How long it is.
    pub fn span(&self) -> Nanos {
        self.period * self.intervals.len() as u64
    }

    /// Requests in it.
    pub fn requests(&self) -> u64 {
        self.intervals.iter().flatten().map(Count::all).sum()
    }

    /// The same with `regions` neighbouring regions as one, and `periods` intervals as one; the last may be a part.
    pub fn merged(&self, regions: u64, periods: usize) -> History {
        let mut merged = History::new(self.region * regions, self.period * periods as u64);
        let mut left = self.intervals.iter().peekable();
        while left.peek().is_some() {
            let mut sums: BTreeMap<Region, (u64, u64)> = BTreeMap::new();
            for count in left.by_ref().take(periods).flatten() {
                let sum = sums.entry(Region::at(count.region.index() as u64 / regions));
                let sum = sum.or_default();
                sum.0 += count.reads;
                sum.1 += count.writes;
            }
            merged.push(counts(sums));
        }
        merged
    }
}

fn counts(sums: BTreeMap<Region, (u64, u64)>) -> Vec<Count> {
    let count = |(region, (reads, writes))| Count {
        region,
        reads,
        writes,
    };
    sums.into_iter().map(count).collect()
}

/// Takes in the requests of a trace, in order of time.
#[derive(Debug)]
pub struct Counting {
    history: History,
    /// The interval that runs: its number from 0, and its sums by device and region of the device.
    number: u64,
    open: BTreeMap<(u32, u64), (u64, u64)>,
    /// What ended: the same, for the regions are numbered when all devices are known.
    ended: VecDeque<Vec<(u32, u64, u64, u64)>>,
    held: usize,
    /// How far each device reaches, in regions.
    reach: BTreeMap<u32, u64>,
}

/// A device begins at a whole region of any size.
const ALIGN: u64 = 1 << 30;

impl Counting {
    /// Regions of `region` (at most 1 GiB), intervals of `period` from time 0 on.
    pub fn new(region: Bytes, period: Nanos) -> Counting {
        Counting {
            history: History::new(region, period),
            number: 0,
            open: BTreeMap::new(),
            ended: VecDeque::new(),
            held: 0,
            reach: BTreeMap::new(),
        }
    }

    /// A request that began at `at` (since the first one) at byte `offset` of `device`.
    pub fn push(&mut self, at: Nanos, device: u32, offset: Bytes, write: bool) {
        while at.0 / self.history.period.0 > self.number {
            self.end_interval();
        }
        let region = offset.0 / self.history.region.0;
        let sum = self.open.entry((device, region)).or_default();
        match write {
            false => sum.0 += 1,
            true => sum.1 += 1,
        }
        let reach = self.reach.entry(device).or_default();
        *reach = (*reach).max(region + 1);
    }

    fn end_interval(&mut self) {
        let sums = std::mem::take(&mut self.open);
        let flat = |((device, region), (reads, writes))| (device, region, reads, writes);
        let interval: Vec<_> = sums.into_iter().map(flat).collect();
        self.held += interval.len();
        self.ended.push_back(interval);
        self.number += 1;
        // Empty intervals cost as well.
        if self.held + self.ended.len() > COUNTS_MAX && self.number.is_multiple_of(2) {
            self.double();
        }
    }

    /// Intervals twice as long.
    fn double(&mut self) {
        let mut ended = std::mem::take(&mut self.ended).into_iter();
        self.held = 0;
        while let Some(first) = ended.next() {
            let mut sums: BTreeMap<(u32, u64), (u64, u64)> = BTreeMap::new();
            for (device, region, reads, writes) in
                first.into_iter().chain(ended.next().into_iter().flatten())
            {
                let sum = sums.entry((device, region)).or_default();
                sum.0 += reads;
                sum.1 += writes;
            }
            let flat = |((device, region), (reads, writes))| (device, region, reads, writes);
            let interval: Vec<_> = sums.into_iter().map(flat).collect();
            self.held += interval.len();
            self.ended.push_back(interval);
        }
        self.history.period = self.history.period * 2;
        self.number /= 2;
    }

    /// What was counted, the devices one behind the other, the last interval included.
    pub fn finish(mut self) -> History {
        self.end_interval();
        let per_gib = ALIGN / self.history.region.0;
        let mut begins = BTreeMap::new();
        let mut total = 0;
        for (device, reach) in &self.reach {
            begins.insert(*device, total);
            total += reach.next_multiple_of(per_gib);
        }
        let mut history = self.history;
        for interval in self.ended {
            let counts = interval
                .into_iter()
                .map(|(device, region, reads, writes)| Count {
                    region: Region::at(begins[&device] + region),
                    reads,
                    writes,
                });
            history.push(counts.collect());
        }
        history
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_in_its_interval_and_region_and_merging_keeps_it() {
        let mut counting = Counting::new(Bytes::mib(16), Nanos::secs(10));
        for (second, device, mib, write) in [
            (0, 0, 0, false),
            (9, 0, 15, true),
            (10, 0, 16, false),
            (35, 1, 0, false),
        ] {
            counting.push(Nanos::secs(second), device, Bytes::mib(mib), write);
        }
        let history = counting.finish();
        assert_eq!(history.intervals.len(), 4);
        let first = Count {
            region: Region(1),
            reads: 1,
            writes: 1,
        };
        assert_eq!(history.intervals[0], [first]);
        assert_eq!(history.intervals[1][0].region, Region(2));
        assert!(history.intervals[2].is_empty());
        // The second device begins at the second GiB.
        assert_eq!(history.intervals[3][0].region, Region(65));
        let merged = history.merged(64, 3);
        assert_eq!(
            (merged.region, merged.period),
            (Bytes::gib(1), Nanos::secs(30))
        );
        assert_eq!((merged.intervals.len(), merged.requests()), (2, 4));
        assert_eq!(merged.intervals[1][0].region, Region(2));
    }

    #[test]
    fn a_history_that_grows_too_large_has_longer_intervals() {
        let mut counting = Counting::new(Bytes::mib(1), Nanos::secs(1));
        let requests = 2 * COUNTS_MAX as u64 + 10;
        for n in 0..requests {
            counting.push(Nanos::millis(n * 2), 0, Bytes::mib(n % 1000), false);
        }
        let history = counting.finish();
        assert!(history.period > Nanos::secs(1));
        assert!(history.counts <= COUNTS_MAX);
        assert_eq!(history.requests(), requests);
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut history = History::new(Bytes::mib(1), Nanos::secs(1));
        for reads in 1..=5 {
            history.push(vec![Count {
                region: Region(1),
                reads,
                writes: 0,
            }]);
        }
        history.forget(2);
        assert_eq!(
            (history.intervals.len(), history.counts, history.requests()),
            (2, 2, 9)
        );
    }
}
