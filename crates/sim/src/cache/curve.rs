//! The miss ratio at every cache size.
//!
//! ```text
//! exact, LRU        every access -> stack distance -> how many accesses at each distance
//! sampled, LRU      the same over a sample of blocks, distances and counts scaled up
//! miniature, any    the policy itself over the sample, in a cache as much smaller
//! ```
//!
//! Source: Mattson et al., "Evaluation techniques for storage hierarchies" (1970): with LRU a larger
//! cache holds all a smaller one does, so one pass covers all sizes.
//!
//! Always true: a curve never rises with the size, but for the ups and downs of a policy that may.

use policy::cache::Kind;
use rayon::prelude::*;

use super::Compact;
use super::belady::{Bound, Future};
use super::cell::{Mode, simulate};
use super::shards::mix;
use super::stack::Stack;

/// Miss ratios by cache size.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Sizes in objects, ascending, the first 0; misses at each.
    points: Vec<Point>,
    shape: Shape,
    footprint: f64,
}

/// One size of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Objects.
    pub objects: f64,
    /// Misses per access.
    pub miss_ratio: f64,
    /// Missed bytes per byte asked for.
    pub byte_miss_ratio: f64,
}

/// What a curve says between two points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The ratio of the point before: every change has its point.
    Steps,
    /// A straight line between the two.
    Lines,
}

impl Curve {
    /// A curve through `points`, whose sizes ascend, for a trace of `footprint` objects.
    ///
    /// # Panics
    /// If there are no points or their sizes do not ascend.
    pub fn new(points: Vec<Point>, shape: Shape, footprint: f64) -> Curve {
        assert!(
            !points.is_empty() && points.is_sorted_by(|a, b| a.objects < b.objects),
            "a curve has points of ascending sizes"
        );
        Curve {
            points,
            shape,
            footprint,
        }
    }

    /// The points.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// What it says between its points.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Different objects of the trace, estimated where the curve is sampled.
    pub fn footprint(&self) -> f64 {
        self.footprint
    }

    /// The ratios with room for `objects`.
    pub fn at(&self, objects: f64) -> Point {
        let behind = self
            .points
            .partition_point(|point| point.objects <= objects);
        let here = |point: &Point| Point { objects, ..*point };
        match (self.shape, behind) {
            (_, 0) => here(&self.points[0]),
            (Shape::Steps, _) => here(&self.points[behind - 1]),
            (Shape::Lines, _) if behind == self.points.len() => here(&self.points[behind - 1]),
            (Shape::Lines, _) => {
                let (low, high) = (&self.points[behind - 1], &self.points[behind]);
                let share = (objects - low.objects) / (high.objects - low.objects);
                let mix = |a: f64, b: f64| a + (b - a) * share;
                Point {
                    objects,
                    miss_ratio: mix(low.miss_ratio, high.miss_ratio),
                    byte_miss_ratio: mix(low.byte_miss_ratio, high.byte_miss_ratio),
                }
            }
        }
    }

    /// The mean absolute difference of the two miss ratios at 100 sizes, evenly spread up to the
    /// footprint of `self`.
    pub fn mean_difference(&self, other: &Curve) -> f64 {
        let sizes = (1..=100).map(|percent| self.footprint * f64::from(percent) / 100.0);
        sizes
            .map(|size| (self.at(size).miss_ratio - other.at(size).miss_ratio).abs())
            .sum::<f64>()
            / 100.0
    }

    /// The least size whose miss ratio is at most `miss_ratio`, if any is.
    pub fn size_for(&self, miss_ratio: f64) -> Option<f64> {
        let point = self
            .points
            .iter()
            .find(|point| point.miss_ratio <= miss_ratio);
        point.map(|point| point.objects)
    }
}

/// The curve of `accesses` accesses and `bytes` bytes of which some are hits in caches of so many
/// objects and more: `(objects, accesses, bytes)`, ascending. `known` accesses and bytes are hits at any
/// size, even negative ones: what a sample has too few or too many of.
pub(super) fn from_hits(
    (accesses, bytes): (f64, f64),
    known: (f64, f64),
    hits: impl Iterator<Item = (f64, f64, f64)>,
    footprint: f64,
) -> Curve {
    let mut left = (accesses - known.0, bytes - known.1);
    let point = |objects: f64, (misses, missed_bytes): (f64, f64)| Point {
        objects,
        miss_ratio: (misses / accesses.max(1.0)).clamp(0.0, 1.0),
        byte_miss_ratio: (missed_bytes / bytes.max(1.0)).clamp(0.0, 1.0),
    };
    // Without a cache every access misses.
    let mut points = vec![point(0.0, (accesses, bytes))];
    for (objects, hits, hit_bytes) in hits {
        left = (left.0 - hits, left.1 - hit_bytes);
        points.push(point(objects, left));
    }
    Curve::new(points, Shape::Steps, footprint)
}

/// The LRU curve of `trace`, exact at every size, in one pass: `O(accesses * log footprint)`.
///
/// # Source
/// Mattson et al. (1970); Olken (1981).
pub fn exact_lru(trace: &Compact) -> Curve {
    sampled_lru(trace, trace, 1.0)
}

/// The LRU curve of `whole` from `part`, which holds `rate` of its blocks.
fn sampled_lru(whole: &Compact, part: &Compact, rate: f64) -> Curve {
    let mut stack = Stack::new(part.footprint() as usize);
    let mut hits = vec![(0u64, 0u64); part.footprint() as usize + 1];
    part.each(|access| {
        if let Some(distance) = stack.used(access.block) {
            let (accesses, bytes) = &mut hits[distance as usize];
            *accesses += 1;
            *bytes += u64::from(access.bytes);
        }
    });
    let (accesses, bytes) = (whole.accesses() as f64, whole.bytes() as f64);
    let known = missing_from(whole, part, rate);
    let hits = hits.iter().enumerate().filter(|(_, hits)| hits.0 > 0);
    let scaled = hits.map(|(distance, &(accesses, bytes))| {
        (
            distance as f64 / rate,
            accesses as f64 / rate,
            bytes as f64 / rate,
        )
    });
    from_hits(
        (accesses, bytes),
        known,
        scaled,
        f64::from(whole.footprint()),
    )
}

/// How many accesses and bytes a sample lacks, scaled up; they are taken for hits.
fn missing_from(whole: &Compact, part: &Compact, rate: f64) -> (f64, f64) {
    (
        whole.accesses() as f64 - part.accesses() as f64 / rate,
        whole.bytes() as f64 - part.bytes() as f64 / rate,
    )
}

/// A sample of a trace's blocks, all accesses to which are kept: curves from it cost a `rate` of those
/// of the whole.
///
/// As many blocks as a hash would choose, but evenly: the blocks are put in order of how often they are used, and
/// among equals of their first use, and of each run of `1 / rate` one is drawn. So blocks of every kind
/// are in the sample in proportion, and the curve errs by a tenth of what a sample by hash alone errs.
///
/// # Source
/// SHARDS (FAST 2015), 3.1 and 4.3 (the adjustment); miniature simulation: Waldspurger et al., "Cache
/// modeling and optimization using miniature simulations" (USENIX ATC 2017).
///
/// Choice: SHARDS draws by hash because it sees a stream; here the whole trace is at hand, so the
/// draw is stratified. [`super::Shards`] is the published one, for streams.
#[derive(Clone, Debug)]
pub struct Part {
    rate: f64,
    part: Compact,
    whole: (u64, u64, u32),
}

/// Below so many objects a miniature cache is no likeness of a cache.
const MINIATURE_MIN: f64 = 8.0;

impl Part {
    /// Draws `rate` of the blocks of `trace`; `seed` chooses which.
    ///
    /// # Panics
    /// If the rate is not above 0 and at most 1.
    pub fn draw(trace: &Compact, rate: f64, seed: u64) -> Part {
        assert!(
            rate > 0.0 && rate <= 1.0,
            "a rate of {rate} is not above 0 and at most 1"
        );
        let blocks = trace.footprint() as usize;
        let mut uses = vec![0u32; blocks];
        for raw in trace.raw() {
            uses[(raw >> 1) as usize] += 1;
        }
        let mut order: Vec<u32> = (0..trace.footprint()).collect();
        order.sort_by_key(|&block| uses[block as usize]);
        let mut keep = vec![false; blocks];
        let runs = (blocks as f64 * rate).round().max(1.0);
        let run = blocks as f64 / runs;
        for number in 0..runs as u64 {
            let within = f64::from(mix(number, seed)) / 2f64.powi(32);
            let at = ((number as f64 + within) * run) as usize;
            keep[order[at.min(blocks - 1)] as usize] = true;
        }
        Part {
            // What was drawn, not what was asked for.
            rate: runs / blocks as f64,
            part: trace.only(&keep),
            whole: (trace.accesses(), trace.bytes(), trace.footprint()),
        }
    }

    /// The share of the blocks that is in the sample.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Blocks in the sample.
    pub fn blocks(&self) -> u32 {
        self.part.footprint()
    }

    /// The LRU curve of the whole trace, estimated.
    ///
    /// # Panics
    /// If the sample was not drawn from `trace`.
    pub fn lru(&self, trace: &Compact) -> Curve {
        self.check(trace);
        sampled_lru(trace, &self.part, self.rate)
    }

    /// The curve of any policy at these sizes (in objects of the whole trace), estimated by running the
    /// policy over the sample in caches as much smaller. Sizes whose miniature would have less than eight objects are
    /// left out.
    ///
    /// # Panics
    /// If the sample was not drawn from `trace`.
    pub fn policy(&self, trace: &Compact, kind: Kind, mode: Mode, sizes: &[u64]) -> Curve {
        self.check(trace);
        let point = |&(objects, mini): &(u64, u64)| {
            let counters = simulate(&self.part, kind, mini, mode);
            self.point(trace, objects, counters.misses, counters.missed_bytes)
        };
        self.curve(trace, self.sizes(sizes).par_iter().map(point))
    }

    /// The same for the least misses there can be.
    ///
    /// # Panics
    /// If the sample was not drawn from `trace`.
    pub fn bound(&self, trace: &Compact, bound: Bound, sizes: &[u64]) -> Curve {
        self.check(trace);
        let future = Future::of(&self.part);
        let point = |&(objects, mini): &(u64, u64)| {
            let least = future.misses(&self.part, mini, bound);
            self.point(trace, objects, least.misses, least.missed_bytes)
        };
        self.curve(trace, self.sizes(sizes).par_iter().map(point))
    }

    /// (objects of the whole, objects of the miniature) where the latter is a likeness.
    fn sizes(&self, sizes: &[u64]) -> Vec<(u64, u64)> {
        let least = if self.rate < 1.0 { MINIATURE_MIN } else { 1.0 };
        let minis = sizes
            .iter()
            .map(|&objects| (objects, objects as f64 * self.rate));
        let alike = minis.filter(|(_, mini)| *mini >= least);
        alike
            .map(|(objects, mini)| (objects, mini.round() as u64))
            .collect()
    }

    /// Misses of the sample, scaled up: what the sample lacks counts as hits.
    fn point(&self, trace: &Compact, objects: u64, misses: u64, missed_bytes: u64) -> Point {
        let ratio = |misses: u64, whole: u64| {
            (misses as f64 / self.rate / (whole as f64).max(1.0)).clamp(0.0, 1.0)
        };
        Point {
            objects: objects as f64,
            miss_ratio: ratio(misses, trace.accesses()),
            byte_miss_ratio: ratio(missed_bytes, trace.bytes()),
        }
    }

    fn curve(&self, trace: &Compact, points: impl ParallelIterator<Item = Point>) -> Curve {
        let mut all = vec![Point {
            objects: 0.0,
            miss_ratio: 1.0,
            byte_miss_ratio: 1.0,
        }];
        all.extend(points.collect::<Vec<Point>>());
        all.sort_by(|a, b| a.objects.total_cmp(&b.objects));
        all.dedup_by(|a, b| a.objects == b.objects);
        Curve::new(all, Shape::Lines, f64::from(trace.footprint()))
    }

    fn check(&self, trace: &Compact) {
        let whole = (trace.accesses(), trace.bytes(), trace.footprint());
        assert_eq!(self.whole, whole, "the sample of another trace");
    }
}

#[cfg(test)]
mod tests {
    use super::super::compact::Builder;
    use super::super::{LoadError, Ops, Sample, Shards, Unit};
    use super::*;
    use base::{Bytes, Nanos};
    use trace::{Op, Request};

    /// Zipf-like requests with a scan now and then, from a seed.
    fn generated(requests: usize, keys: u64, seed: u64) -> Result<Compact, LoadError> {
        let mut builder = Builder::new(Unit::Request, Ops::All);
        let mut state = seed;
        let mut scan = 0u64;
        for n in 0..requests {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let uniform = (state >> 11) as f64 / (1u64 << 53) as f64;
            // Inverse of a power law, spread over the address space.
            let rank = (keys as f64).powf(uniform) as u64;
            let key = match n % 10 {
                0 => {
                    scan += 1;
                    keys + scan % (keys / 2)
                }
                _ => rank.wrapping_mul(0x9e37_79b1) % keys,
            };
            builder.push(&Request {
                at: Nanos(n as u64),
                offset: Bytes(key * 4096),
                size: Bytes(4096 << (key % 3)),
                device: 0,
                op: if state >> 62 == 0 {
                    Op::Write
                } else {
                    Op::Read
                },
            })?;
        }
        builder.finish()
    }

    #[test]
    fn one_pass_tells_the_misses_at_every_size() -> Result<(), LoadError> {
        let trace = generated(20_000, 900, 5)?;
        let curve = exact_lru(&trace);
        for size in (1..=u64::from(trace.footprint()) + 10).step_by(37) {
            let counters = simulate(&trace, Kind::Lru, size, Mode::default());
            let point = curve.at(size as f64);
            assert!(
                (point.miss_ratio - counters.miss_ratio()).abs() < 1e-12,
                "{size}"
            );
            assert!(
                (point.byte_miss_ratio - counters.byte_miss_ratio()).abs() < 1e-12,
                "{size}"
            );
        }
        assert_eq!(curve.at(0.0).miss_ratio, 1.0);
        let half = curve.size_for(0.5).expect("some size misses half");
        assert!(curve.at(half).miss_ratio <= 0.5 && curve.at(half - 1.0).miss_ratio > 0.5);
        Ok(())
    }

    #[test]
    fn a_sample_of_one_percent_errs_by_less_than_a_hundredth() -> Result<(), LoadError> {
        let trace = generated(600_000, 120_000, 11)?;
        let exact = exact_lru(&trace);
        for seed in 0..3 {
            let part = Part::draw(&trace, 0.01, seed);
            let error = exact.mean_difference(&part.lru(&trace));
            println!(
                "seed {seed}: {} of {} blocks, error {error:.4}",
                part.blocks(),
                trace.footprint()
            );
            assert!(error < 0.01, "seed {seed}: {error:.4}");
            assert!(f64::from(part.blocks()) <= 0.01 * f64::from(trace.footprint()) + 1.0);
        }
        Ok(())
    }

    #[test]
    fn shards_of_a_stream_come_close_at_a_fixed_rate_and_at_a_fixed_size() -> Result<(), LoadError>
    {
        let trace = generated(600_000, 120_000, 11)?;
        let exact = exact_lru(&trace);
        let samples = [
            Sample::Rate(0.1),
            Sample::Blocks {
                most: 8192,
                rate: 1.0,
            },
        ];
        for sample in samples {
            let mut shards = Shards::new(sample, 1);
            trace.each(|access| {
                shards.see(u64::from(access.block), access.bytes);
            });
            let error = exact.mean_difference(&shards.curve());
            println!("{sample:?}: error {error:.4}, rate {:.4}", shards.rate());
            assert!(error < 0.02, "{sample:?}: {error:.4}");
        }
        Ok(())
    }

    #[test]
    fn a_miniature_behaves_as_the_cache_it_stands_for() -> Result<(), LoadError> {
        let trace = generated(300_000, 60_000, 3)?;
        let part = Part::draw(&trace, 0.05, 1);
        let footprint = u64::from(trace.footprint());
        let sizes: Vec<u64> = [2, 5, 10, 20, 50, 100]
            .map(|p| footprint * p / 100)
            .to_vec();
        for kind in [Kind::S3Fifo, Kind::Arc, Kind::Sieve] {
            let curve = part.policy(&trace, kind, Mode::default(), &sizes);
            for &size in &sizes {
                let real = simulate(&trace, kind, size, Mode::default()).miss_ratio();
                let mini = curve.at(size as f64).miss_ratio;
                assert!(
                    (real - mini).abs() < 0.02,
                    "{kind} at {size}: {mini:.4}, not {real:.4}"
                );
            }
        }
        Ok(())
    }

    #[test]
    fn a_whole_sample_is_no_sample() -> Result<(), LoadError> {
        let trace = generated(5_000, 500, 9)?;
        let part = Part::draw(&trace, 1.0, 4);
        assert_eq!(part.lru(&trace), exact_lru(&trace));
        let sifted = part.policy(&trace, Kind::Sieve, Mode::default(), &[1, 10, 100]);
        for point in &sifted.points()[1..] {
            let real = simulate(&trace, Kind::Sieve, point.objects as u64, Mode::default());
            assert!((real.miss_ratio() - point.miss_ratio).abs() < 1e-12);
        }
        Ok(())
    }
}
