//! How hot is each extent: requests a second, the recent past weighing more?
//!
//! ```text
//! read, write --add--> extent's sums --end of interval--> all sums shrink by the same factor
//! ```
//!
//! Sums shrink when they are looked at, not at the end of every interval, so an interval costs the extents that
//! were touched in it and not all there are. Extents that have cooled down to nothing are forgotten.
//!
//! Always true:
//! 1. A sum is what a plain loop over all intervals would have made it, but for the last digits.
//! 2. Memory goes by the extents touched in the last [`Heat::FORGET`] intervals.

use base::{Map, Nanos};

/// Requests a second on one extent.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Warmth {
    /// Reads a second.
    pub reads: f64,
    /// Writes a second.
    pub writes: f64,
}

impl Warmth {
    /// Reads and writes a second.
    pub fn all(self) -> f64 {
        self.reads + self.writes
    }
}

/// The decayed sums of one extent, as they stood at the end of an interval.
#[derive(Debug, Clone, Copy)]
struct Sums {
    reads: f64,
    writes: f64,
    /// The interval they stood in.
    interval: u64,
}

/// The heat of all extents of a volume.
///
/// # Example
/// ```
/// use base::Nanos;
/// use policy::tier::heat::Heat;
/// // Half of it is forgotten after two intervals of a second.
/// let mut heat = Heat::new(Nanos::secs(1), Nanos::secs(2));
/// heat.add(7, 100, 0);
/// heat.end_interval();
/// let first = heat.of(7).reads;
/// heat.end_interval();
/// heat.end_interval();
/// assert!((heat.of(7).reads - first / 2.0).abs() < 1e-9);
/// ```
#[derive(Debug, Clone)]
pub struct Heat {
    // Fixed.
    interval: Nanos,
    /// What is left of a sum an interval later.
    keep: f64,
    // Per interval.
    now: u64,
    sums: Map<u32, Sums>,
}

impl Heat {
    /// After so many intervals without a request an extent may be forgotten, if it has cooled down to less than one
    /// request in as many.
    pub const FORGET: u64 = 64;

    /// Statistics by `interval`, in which half of what was is forgotten after `half_life`.
    ///
    /// # Panics
    /// If one of them is zero.
    pub fn new(interval: Nanos, half_life: Nanos) -> Heat {
        assert!(
            interval.0 > 0 && half_life.0 > 0,
            "heat needs time: interval {interval}, half-life {half_life}"
        );
        Heat {
            interval,
            keep: 0.5f64.powf(interval.secs_f64() / half_life.secs_f64()),
            now: 0,
            sums: Map::default(),
        }
    }

    /// Counts requests on `extent` in the interval that is running.
    pub fn add(&mut self, extent: u32, reads: u64, writes: u64) {
        let now = self.now;
        let keep = self.keep;
        let sums = self.sums.entry(extent).or_insert(Sums {
            reads: 0.0,
            writes: 0.0,
            interval: now,
        });
        let left = left(keep, now - sums.interval);
        sums.reads = sums.reads * left + reads as f64;
        sums.writes = sums.writes * left + writes as f64;
        sums.interval = now;
    }

    /// The interval is over.
    pub fn end_interval(&mut self) {
        self.now += 1;
        if self.now.is_multiple_of(Self::FORGET) {
            let (now, keep) = (self.now, self.keep);
            self.sums.retain(|_, sums| {
                let asleep = now - sums.interval;
                let rate = (sums.reads + sums.writes) * left(keep, asleep) * (1.0 - keep);
                asleep < Self::FORGET || rate * Self::FORGET as f64 >= 1.0
            });
        }
    }

    /// How hot `extent` was up to the end of the last interval; what is counted in the running one counts already.
    ///
    /// An extent that always had the same rate has this rate; a new one less, so it has to prove itself.
    pub fn of(&self, extent: u32) -> Warmth {
        self.sums
            .get(&extent)
            .map_or(Warmth::default(), |sums| self.warmth(sums))
    }

    /// The `k` hottest as `rank` sees it, hottest first, those of rank 0 or below left out; equals: the lower extent
    /// first.
    pub fn hottest(&self, k: usize, rank: impl Fn(u32, Warmth) -> f64) -> Vec<(u32, f64)> {
        let ranked = self.sums.iter().filter_map(|(extent, sums)| {
            let heat = rank(*extent, self.warmth(sums));
            (heat > 0.0).then_some((*extent, heat))
        });
        first(k, ranked.collect(), |a, b| {
            b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
        })
    }

    /// The `k` coldest of `extents` as `rank` sees it, coldest first; equals: the lower extent first.
    pub fn coldest(
        &self,
        k: usize,
        extents: impl Iterator<Item = u32>,
        rank: impl Fn(u32, Warmth) -> f64,
    ) -> Vec<(u32, f64)> {
        let ranked = extents.map(|extent| (extent, rank(extent, self.of(extent))));
        first(k, ranked.collect(), |a, b| {
            a.1.total_cmp(&b.1).then(a.0.cmp(&b.0))
        })
    }

    /// How many extents it knows of.
    pub fn len(&self) -> usize {
        self.sums.len()
    }

    /// Knows of none?
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    fn warmth(&self, sums: &Sums) -> Warmth {
        // A rate x per interval adds up to x / (1 - keep) in the long run.
        let scale = left(self.keep, self.now - sums.interval) * (1.0 - self.keep)
            / self.interval.secs_f64();
        Warmth {
            reads: sums.reads * scale,
            writes: sums.writes * scale,
        }
    }
}

/// What is left of a sum after so many intervals.
fn left(keep: f64, intervals: u64) -> f64 {
    // Whole powers are products alone, the same on every machine.
    keep.powi(i32::try_from(intervals).unwrap_or(i32::MAX))
}

/// The first `k` in an order, in this order.
fn first(
    k: usize,
    mut all: Vec<(u32, f64)>,
    order: impl Fn(&(u32, f64), &(u32, f64)) -> std::cmp::Ordering + Copy,
) -> Vec<(u32, f64)> {
    if k < all.len() {
        if k > 0 {
            all.select_nth_unstable_by(k - 1, order);
        }
        all.truncate(k);
    }
    all.sort_unstable_by(order);
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn heat() -> Heat {
        Heat::new(Nanos::secs(10), Nanos::secs(60))
    }

    #[test]
    fn a_steady_rate_is_seen_as_it_is() {
        let mut heat = heat();
        for _ in 0..200 {
            heat.add(3, 50, 20);
            heat.end_interval();
        }
        // Seen at the end of the last interval, one decay later: 5 and 2 a second, times 0.89.
        let keep = 0.5f64.powf(1.0 / 6.0);
        assert!((heat.of(3).reads - 5.0 * keep).abs() < 1e-6);
        assert!((heat.of(3).all() - 7.0 * keep).abs() < 1e-6);
        assert_eq!(heat.of(4), Warmth::default());
    }

    #[test]
    fn the_hottest_come_first_and_equals_by_number() {
        let mut heat = heat();
        for (extent, reads) in [(5, 10), (9, 30), (2, 10), (7, 20), (8, 0)] {
            heat.add(extent, reads, 1_000);
        }
        let names = |list: Vec<(u32, f64)>| list.iter().map(|one| one.0).collect::<Vec<u32>>();
        let reads = |_: u32, warmth: Warmth| warmth.reads;
        assert_eq!(names(heat.hottest(3, reads)), [9, 7, 2]);
        assert_eq!(names(heat.hottest(9, reads)), [9, 7, 2, 5]);
        assert_eq!(names(heat.hottest(0, reads)), [0u32; 0]);
        assert_eq!(
            names(heat.coldest(2, [9, 7, 5, 2].into_iter(), reads)),
            [2, 5]
        );
        assert_eq!(
            names(heat.coldest(2, [9, 100].into_iter(), reads)),
            [100, 9]
        );
    }

    #[test]
    fn what_has_cooled_is_forgotten() {
        let mut heat = heat();
        heat.add(1, 1_000, 0);
        for _ in 0..3 * Heat::FORGET {
            heat.add(2, 1, 0);
            heat.end_interval();
        }
        assert_eq!(heat.len(), 1);
        assert!(heat.of(2).reads > 0.0);
    }

    proptest! {
        #[test]
        fn sums_are_those_of_a_plain_loop(
            touches in prop::collection::vec((0u32..5, 0u64..100, 0u64..100, any::<bool>()), 1..150),
        ) {
            let mut heat = heat();
            let keep = 0.5f64.powf(1.0 / 6.0);
            let mut plain = [(0.0, 0.0); 5];
            for (extent, reads, writes, ends) in touches {
                heat.add(extent, reads, writes);
                plain[extent as usize].0 += reads as f64;
                plain[extent as usize].1 += writes as f64;
                if ends {
                    heat.end_interval();
                    plain.iter_mut().for_each(|sums| *sums = (sums.0 * keep, sums.1 * keep));
                }
                for (extent, (reads, writes)) in plain.iter().enumerate() {
                    let got = heat.of(extent as u32);
                    let scale = (1.0 - keep) / 10.0;
                    // An extent that was forgotten had less than one request in FORGET intervals.
                    let close = |got: f64, plain: f64| {
                        (got - plain * scale).abs() < 1e-9 || got == 0.0 && plain * scale < 0.002
                    };
                    prop_assert!(close(got.reads, *reads), "{extent}: {got:?}, {reads}");
                    prop_assert!(close(got.writes, *writes), "{extent}: {got:?}, {writes}");
                }
            }
        }
    }
}
