//! How are latencies spread? Counts of nanoseconds in buckets of at most 1/16 of their value.
//!
//! Always true: a quantile is at most 1/16 above the true one, and never above the largest value seen.

use base::Nanos;
use serde::Serialize;

/// Each power of two is cut in this many buckets of the same width.
const SUB_BUCKETS: usize = 16;
const SUB_BITS: u32 = SUB_BUCKETS.ilog2();
/// Values of this many bits have a bucket of their own size; 2^42 ns are 73 minutes.
const VALUE_BITS: u32 = 42;
const BUCKETS: usize = (VALUE_BITS - SUB_BITS + 1) as usize * SUB_BUCKETS;

/// A histogram of nanoseconds with buckets of at most 1/16 of their value. Fixed size, 5 KiB.
///
/// # Example
/// ```
/// use base::Nanos;
/// use device::meter::Histogram;
/// let mut latency = Histogram::default();
/// for us in 1..=1000 {
///     latency.record(Nanos::micros(us));
/// }
/// assert_eq!(latency.count(), 1000);
/// assert_eq!(latency.quantile(1.0), Nanos::micros(1000));
/// let median = latency.quantile(0.5).0;
/// assert!((500_000..=500_000 * 17 / 16).contains(&median));
/// ```
#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: Box::new([0; BUCKETS]),
            count: 0,
            sum: 0,
            max: 0,
        }
    }
}

fn bucket(value: u64) -> usize {
    if value < SUB_BUCKETS as u64 {
        return value as usize;
    }
    let power = value.ilog2();
    let sub = (value >> (power - SUB_BITS)) as usize % SUB_BUCKETS;
    ((power - SUB_BITS + 1) as usize * SUB_BUCKETS + sub).min(BUCKETS - 1)
}

/// The largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    if bucket < SUB_BUCKETS {
        return bucket as u64;
    }
    let shift = bucket / SUB_BUCKETS - 1;
    (((SUB_BUCKETS + bucket % SUB_BUCKETS + 1) as u64) << shift) - 1
}

impl Histogram {
    /// Counts one value.
    pub fn record(&mut self, value: Nanos) {
        self.counts[bucket(value.0)] += 1;
        self.count += 1;
        self.sum += u128::from(value.0);
        self.max = self.max.max(value.0);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        for (own, other) in self.counts.iter_mut().zip(other.counts.iter()) {
            *own += other;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// Values counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all values, at most the longest [`Nanos`].
    pub fn sum(&self) -> Nanos {
        Nanos(u64::try_from(self.sum).unwrap_or(u64::MAX))
    }

    /// The largest value; zero if there is none.
    pub fn max(&self) -> Nanos {
        Nanos(self.max)
    }

    /// The mean; zero if there is no value.
    pub fn mean(&self) -> Nanos {
        let mean = self.sum.checked_div(u128::from(self.count)).unwrap_or(0);
        Nanos(u64::try_from(mean).expect("a mean is at most the largest value"))
    }

    /// The value that a share `q` (0..=1) of all values does not exceed; zero if there is none.
    pub fn quantile(&self, q: f64) -> Nanos {
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut below = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= rank {
                // The last bucket is open above.
                let bound = if bucket == BUCKETS - 1 {
                    self.max
                } else {
                    upper(bucket)
                };
                return Nanos(bound.min(self.max));
            }
        }
        Nanos(0)
    }

    /// How many values are at most `bound`, counting whole buckets (so at most 1/16 further up).
    pub fn at_most(&self, bound: Nanos) -> u64 {
        self.counts[..=bucket(bound.0)].iter().sum()
    }
}

/// Latencies in short, in nanoseconds. `buckets` holds (largest value, count) of each bucket in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // The names say it.
pub struct Latency {
    pub count: u64,
    pub sum_ns: u64,
    pub mean_ns: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
    pub buckets: Vec<(u64, u64)>,
}

impl From<&Histogram> for Latency {
    fn from(histogram: &Histogram) -> Latency {
        let used = histogram.counts.iter().enumerate();
        Latency {
            count: histogram.count,
            sum_ns: histogram.sum().0,
            mean_ns: histogram.mean().0,
            p50_ns: histogram.quantile(0.5).0,
            p90_ns: histogram.quantile(0.9).0,
            p99_ns: histogram.quantile(0.99).0,
            p999_ns: histogram.quantile(0.999).0,
            max_ns: histogram.max,
            buckets: used
                .filter(|(_, count)| **count > 0)
                .map(|(bucket, count)| (upper(bucket), *count))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        for bucket_index in 1..BUCKETS {
            let first = upper(bucket_index - 1) + 1;
            assert_eq!(bucket(first), bucket_index);
            assert_eq!(bucket(upper(bucket_index)), bucket_index);
            let width = upper(bucket_index) - first + 1;
            assert!(width <= (first / SUB_BUCKETS as u64).max(1), "at {first}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_mean_is_right_also_where_the_sum_is_beyond_64_bits() {
        let mut histogram = Histogram::default();
        let most = Nanos(u64::MAX);
        for _ in 0..3 {
            histogram.record(most);
        }
        assert_eq!((histogram.sum(), histogram.mean()), (most, most));
    }
}
