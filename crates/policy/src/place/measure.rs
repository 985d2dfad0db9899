//! What do a byte and a seek cost on this disk, by what its requests took?
//!
//! ```text
//! service time = a * length + b * seeks   ->   a, b by least squares, old samples forgotten
//! ```
//!
//! Choice: the paper has constants. Each new sample weighs as much as all before together after about a hundred;
//! the constants count as one sample of each kind, so that a and b stay apart where all requests are alike.

use base::{Bytes, Nanos};

use super::{PerByte, Weights};

/// The estimator of one disk.
#[derive(Debug, Clone)]
pub(super) struct Measure {
    /// What it begins with and leans on: a in nanoseconds per unit, b in nanoseconds.
    prior: [f64; 2],
    /// From a local to a remote byte.
    afar: PerByte,
    // Weighted sums over samples of (length, seeks, time).
    lengths: f64,
    both: f64,
    seeks: f64,
    length_times: f64,
    seek_times: f64,
}

impl Measure {
    /// Lengths are counted in this, so that both unknowns are of one order.
    const UNIT: f64 = 256.0 * 1024.0;
    /// Of what is known at each sample.
    const KEEP: f64 = 0.99;
    /// A sample counts as at most so many times what was expected of it: a stall is no speed. A disk that stays
    /// slower counts all the same, three per cent with each sample.
    const SURPRISE_MAX: f64 = 4.0;
    /// Less is expected of nothing, in nanoseconds.
    const LEAST: f64 = 1e5;

    pub(super) fn new(prior: &Weights) -> Measure {
        let per_unit = prior.local.0 as f64 / 1e3 * Self::UNIT;
        Measure {
            prior: [per_unit, prior.seek.0 as f64],
            afar: PerByte(prior.remote.0.saturating_sub(prior.local.0)),
            lengths: 0.0,
            both: 0.0,
            seeks: 0.0,
            length_times: 0.0,
            seek_times: 0.0,
        }
    }

    /// One request of `bytes` with `seeks` took `service`.
    pub(super) fn learn(&mut self, bytes: Bytes, seeks: u64, service: Nanos) {
        let known = self.weights();
        let expected = known.local.times(bytes).0 as f64 + known.seek.0 as f64 * seeks as f64;
        let (length, seeks) = (bytes.0 as f64 / Self::UNIT, seeks as f64);
        let time = (service.0 as f64).min(Self::SURPRISE_MAX * expected.max(Self::LEAST));
        let learn = |sum: &mut f64, value: f64| *sum = *sum * Self::KEEP + value;
        learn(&mut self.lengths, length * length);
        learn(&mut self.both, length * seeks);
        learn(&mut self.seeks, seeks * seeks);
        learn(&mut self.length_times, length * time);
        learn(&mut self.seek_times, seeks * time);
    }

    /// What requests cost now.
    pub(super) fn weights(&self) -> Weights {
        let [a, b] = self.prior;
        let (lengths, seeks) = (self.lengths + 1.0, self.seeks + 1.0);
        let (by_length, by_seek) = (self.length_times + a, self.seek_times + b);
        // Both diagonal entries are one more than a sum of squares, so this is at least 1.
        let determinant = lengths * seeks - self.both * self.both;
        let a = (by_length * seeks - by_seek * self.both) / determinant;
        let b = (by_seek * lengths - by_length * self.both) / determinant;
        let local = PerByte((a.max(0.0) * 1e3 / Self::UNIT).round() as u64);
        Weights {
            local,
            remote: PerByte(local.0 + self.afar.0),
            seek: Nanos(b.max(0.0).round() as u64),
        }
        .bounded()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(samples: impl Iterator<Item = (u64, u64, u64)>) -> Weights {
        let mut measure = Measure::new(&Weights::default());
        samples.for_each(|(bytes, seeks, micros)| {
            measure.learn(Bytes(bytes), seeks, Nanos::micros(micros));
        });
        measure.weights()
    }

    #[test]
    fn nothing_seen_leaves_what_was_assumed() {
        assert_eq!(measured(std::iter::empty()), Weights::default());
    }

    #[test]
    fn a_byte_and_a_seek_are_measured_apart() {
        // 50 MB/s and 20 ms: 1 MB in 20 ms, and every second request has to seek.
        let mix = (0..400).map(|i| match i % 4 {
            0 => (1_000_000, 1, 40_000),
            1 => (1_000_000, 0, 20_000),
            2 => (4_096, 1, 20_082),
            _ => (4_096, 0, 82),
        });
        let weights = measured(mix);
        assert!(weights.local.0.abs_diff(20_000) < 200, "{weights:?}");
        assert_eq!(weights.remote.0 - weights.local.0, 2_000);
        assert!(weights.seek.0.abs_diff(20_000_000) < 400_000, "{weights:?}");
    }

    #[test]
    fn requests_all_alike_move_what_they_show() {
        // Flash: 4 KiB in 100 us wherever it lies.
        let weights = measured((0..1_000).map(|_| (4_096, 1, 100)));
        assert!(weights.seek.0.abs_diff(100_000) < 100_000, "{weights:?}");
        assert!(weights.local.0.abs_diff(10_000) < 2_000, "{weights:?}");
    }

    #[test]
    fn a_rare_stall_changes_no_speed_and_a_disk_that_stays_slow_does() {
        // Flash: 4 KiB in 100 us, and one of 500 stalls for 300 ms.
        let stalls = (0..1_001).map(|i| (4_096, 1, if i % 500 == 499 { 300_000 } else { 100 }));
        let weights = measured(stalls);
        assert!(weights.seek < Nanos::micros(300), "{weights:?}");
        let slow = (0..1_500).map(|i| (4_096, 1, if i < 500 { 100 } else { 100_000 }));
        let weights = measured(slow);
        assert!(
            weights.seek.0.abs_diff(100_000_000) < 2_000_000,
            "{weights:?}"
        );
    }

    #[test]
    fn a_disk_that_turns_slow_is_found_slow() {
        let fast = (0..500).map(|_| (262_144, 1, 11_000));
        let slow = (0..500).map(|_| (262_144, 1, 33_000));
        let weights = measured(fast.chain(slow));
        let whole = weights.local.times(Bytes(262_144)) + weights.seek;
        assert!(whole.0.abs_diff(33_000_000) < 1_000_000, "{weights:?}");
    }
}
