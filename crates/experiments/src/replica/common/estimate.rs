//! A mean over the seeds, and how far it may be off.
//!
//! Intervals: 95 %, percentiles of 2,000 means of values drawn again from those of the seeds.

/// Means that an interval is made of.
const DRAWS: usize = 2_000;

/// A mean and its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

/// The mean of `values` with its bootstrap interval; the same values give the same one.
pub fn estimate(values: &[f64]) -> Estimate {
    let n = values.len();
    let mean_of = |sum: f64| sum / n.max(1) as f64;
    let mut rng = env::Rng::from_seed(0xb007_57a9);
    let mut means: Vec<f64> = (0..DRAWS)
        .map(|_| mean_of((0..n).map(|_| values[rng.below(n as u64) as usize]).sum()))
        .collect();
    means.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| means[(share * (DRAWS - 1) as f64).round() as usize];
    Estimate {
        mean: mean_of(values.iter().sum()),
        low: at(0.025),
        high: at(0.975),
    }
}

/// What the values of ours are above a baseline's, seed by seed.
pub fn difference(ours: &[f64], other: &[f64]) -> Estimate {
    let paired: Vec<f64> = ours.iter().zip(other).map(|(a, b)| a - b).collect();
    estimate(&paired)
}
