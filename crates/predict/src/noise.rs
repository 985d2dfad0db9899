//! How well would the best of k candidates fit results that are pure noise?
//!
//! ```text
//! the real regressors x normal noise as results, many times -> best R2 of each -> mean, 5 % and 95 %
//! ```
//!
//! Source: SCM 4.2.2 (the best of ten); what noise would have scored is ours.
//!
//! Always true:
//! 1. The same regressors and seed give the same figures.
//! 2. An R2 inside the 5-95 % band is no evidence that devices decide the result.

use env::Rng;
use serde::Serialize;

use super::paper::Line;

/// The R2 noise scores.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Noise {
    /// How many candidates the best was taken of.
    pub candidates: usize,
    /// Through how many devices.
    pub devices: usize,
    /// The best R2 of one cell: mean, and the values 5 % and 95 % lie below.
    pub cell: [f64; 3],
    /// The mean best R2 of `cells` cells: likewise.
    pub mean_of_cells: [f64; 3],
    /// Over how many cells that mean is.
    pub cells: usize,
}

/// What noise scores with `candidates` (each the figures of all devices) in `cells` cells, from
/// `draws` simulated tables.
///
/// # Panics
/// If there are no candidates, cells or draws.
///
/// # Example
/// ```
/// // One regressor and three devices: noise scores 0.5 on average.
/// let noise = predict::noise::best_of(&[vec![1.0, 2.0, 4.0]], 7, 2000, 1);
/// assert!((noise.cell[0] - 0.5).abs() < 0.02);
/// ```
pub fn best_of(candidates: &[Vec<f64>], cells: usize, draws: usize, seed: u64) -> Noise {
    assert!(!candidates.is_empty() && cells > 0 && draws > 0);
    let devices = candidates[0].len();
    let mut rng = Rng::from_seed(seed);
    let mut each = Vec::with_capacity(draws * cells);
    let mut means = Vec::with_capacity(draws);
    for _ in 0..draws {
        let mut sum = 0.0;
        for _ in 0..cells {
            let ys: Vec<f64> = (0..devices).map(|_| normal(&mut rng)).collect();
            let r2 = |xs: &Vec<f64>| {
                let points: Vec<(f64, f64)> = xs.iter().copied().zip(ys.iter().copied()).collect();
                Line::fit(&points).ok().and_then(|line| line.r2)
            };
            let best = candidates.iter().filter_map(r2).fold(0.0, f64::max);
            each.push(best);
            sum += best;
        }
        means.push(sum / cells as f64);
    }
    Noise {
        candidates: candidates.len(),
        devices,
        cell: summary(&mut each),
        mean_of_cells: summary(&mut means),
        cells,
    }
}

/// Mean, and what 5 % and 95 % of `values` lie below.
fn summary(values: &mut [f64]) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    [mean, at(0.05), at(0.95)]
}

/// A number of the standard normal distribution (Box and Muller).
pub(crate) fn normal(rng: &mut Rng) -> f64 {
    // 1 - unit lies in (0, 1]: its logarithm is finite.
    let radius = (-2.0 * (1.0 - rng.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.unit()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_candidates_score_more_on_nothing_and_the_same_seed_the_same() {
        let one = vec![vec![1.0, 2.0, 4.0]];
        let three = vec![
            vec![1.0, 2.0, 4.0],
            vec![5.0, 1.0, 2.0],
            vec![1.0, 9.0, 3.0],
        ];
        let (few, many) = (best_of(&one, 5, 500, 7), best_of(&three, 5, 500, 7));
        assert!(many.cell[0] > few.cell[0] + 0.2, "{few:?} {many:?}");
        assert_eq!(many, best_of(&three, 5, 500, 7));
        // A mean over cells lies closer together than one cell does.
        assert!(many.mean_of_cells[1] > many.cell[1]);
    }

    #[test]
    fn the_normal_numbers_are_normal() {
        let mut rng = Rng::from_seed(3);
        let n = 20_000;
        let numbers: Vec<f64> = (0..n).map(|_| normal(&mut rng)).collect();
        let mean = numbers.iter().sum::<f64>() / n as f64;
        let variance = numbers.iter().map(|x| x * x).sum::<f64>() / n as f64;
        let beyond = numbers.iter().filter(|x| x.abs() > 1.959_964).count() as f64 / n as f64;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.04);
        assert!((beyond - 0.05).abs() < 0.006, "{beyond}");
    }
}
