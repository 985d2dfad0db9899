//! Non-negative least squares where there may be fewer equations than unknowns.
//!
//! ```text
//! every set of columns that might be above zero -> its least squares, smallest norm -> all >= 0? -> the best
//! ```
//!
//! With at most nine columns all 512 sets are tried, so the answer is exact: no iteration, no start, no tolerance for
//! convergence. Of equally good answers the one with the smallest norm is one of those tried, because where a column is
//! above zero its sign is no constraint.
//!
//! Always true:
//! 1. No answer is negative.
//! 2. The first column, the constant, has no part in the norm.

use nalgebra::{DMatrix, DVector};

/// The columns there may be, the constant among them.
pub const COLUMNS_MAX: usize = 9;
/// A singular value below this share of the largest counts as nothing.
pub const NOTHING: f64 = 1e-9;
/// Residuals nearer than this share of the target are equally good.
const AS_GOOD: f64 = 1e-12;

/// What the columns are to be multiplied with.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// One for each column, none below zero.
    pub x: Vec<f64>,
    /// How many columns the rows can distinguish.
    pub rank: usize,
}

/// The `x >= 0` for which `a x` is nearest to `b`; of several the one with the least sum of squares, the first
/// column's left out.
///
/// # Panics
/// If `a` has no rows, no columns or more than [`COLUMNS_MAX`], or another number of rows than `b`.
///
/// # Example
/// ```
/// use nalgebra::{DMatrix, DVector};
/// // 5 = cpu + 1 n; 7 = cpu + 2 n.
/// let a = DMatrix::from_row_slice(2, 2, &[1.0, 1.0, 1.0, 2.0]);
/// let solution = predict::nnls::solve(&a, &DVector::from_column_slice(&[5.0, 7.0]));
/// assert!((solution.x[0] - 3.0).abs() < 1e-12 && (solution.x[1] - 2.0).abs() < 1e-12);
/// assert_eq!(solution.rank, 2);
/// ```
pub fn solve(a: &DMatrix<f64>, b: &DVector<f64>) -> Solution {
    let columns = a.ncols();
    assert!((1..=COLUMNS_MAX).contains(&columns) && a.nrows() > 0 && a.nrows() == b.nrows());
    let largest = a.singular_values().max();
    let rank = a
        .singular_values()
        .iter()
        .filter(|value| **value > largest * NOTHING)
        .count();
    let mut best: Option<(f64, f64, Vec<f64>)> = None;
    let close = b.norm_squared() * AS_GOOD;
    for set in 0..1_u32 << columns {
        let Some(x) = on(a, b, set, largest * NOTHING) else {
            continue;
        };
        let residual = (a * DVector::from_column_slice(&x) - b).norm_squared();
        let norm: f64 = x[1..].iter().map(|n| n * n).sum();
        let better = best.as_ref().is_none_or(|(least, smallest, _)| {
            residual < least - close || (residual <= least + close && norm < *smallest)
        });
        if better {
            best = Some((residual, norm, x));
        }
    }
    let (_, _, x) = best.expect("all zero is always among them");
    Solution { x, rank }
}

/// Least squares of smallest norm on the columns in `set`, if none comes out negative.
fn on(a: &DMatrix<f64>, b: &DVector<f64>, set: u32, nothing: f64) -> Option<Vec<f64>> {
    let constant = set & 1 == 1;
    let chosen: Vec<usize> = (1..a.ncols()).filter(|n| set >> n & 1 == 1).collect();
    let mut x = vec![0.0; a.ncols()];
    let first = a.column(0);
    // What the constant explains is taken out of all else, so that it costs no norm.
    let without = |column: DVector<f64>| match constant {
        true => {
            let share = first.dot(&column) / first.norm_squared();
            column - first * share
        }
        false => column,
    };
    if constant && first.norm_squared() == 0.0 {
        return None;
    }
    if !chosen.is_empty() {
        let rest: Vec<DVector<f64>> = chosen
            .iter()
            .map(|n| without(a.column(*n).into_owned()))
            .collect();
        let svd = DMatrix::from_columns(&rest).svd(true, true);
        let n = svd.solve(&without(b.clone()), nothing).ok()?;
        for (column, n) in chosen.iter().zip(n.iter()) {
            x[*column] = *n;
        }
    }
    if constant {
        let left = b - a * DVector::from_column_slice(&x);
        x[0] = first.dot(&left) / first.norm_squared();
    }
    x.iter().all(|n| *n >= 0.0).then_some(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Rng;

    fn solved(columns: usize, rows: &[f64], b: &[f64]) -> Solution {
        let a = DMatrix::from_row_slice(b.len(), columns, rows);
        solve(&a, &DVector::from_column_slice(b))
    }

    #[test]
    fn a_column_that_would_be_negative_is_left_at_zero() {
        // Falling with x: the constant alone is best.
        let solution = solved(2, &[1.0, 1.0, 1.0, 2.0], &[7.0, 5.0]);
        assert_eq!(solution.x, [6.0, 0.0]);
    }

    #[test]
    fn of_equal_answers_the_smallest_counts_win_and_the_constant_is_free() {
        // 10 = c + 1 n + 2 m; 20 = c + 2 n + 4 m: n + 2 m = 10, least n^2 + m^2 at (2, 4); c = 0.
        let solution = solved(3, &[1.0, 1.0, 2.0, 1.0, 2.0, 4.0], &[10.0, 20.0]);
        let expected = [0.0, 2.0, 4.0];
        for (x, expected) in solution.x.iter().zip(expected) {
            assert!((x - expected).abs() < 1e-9, "{solution:?}");
        }
        assert_eq!(solution.rank, 2);
        // A column that is the same everywhere says nothing the constant does not: it stays at zero.
        let solution = solved(2, &[1.0, 3.0, 1.0, 3.0], &[6.0, 6.0]);
        assert_eq!((solution.x[1], solution.rank), (0.0, 1));
        assert!((solution.x[0] - 6.0).abs() < 1e-12);
    }

    /// The plain reference model: the conditions of Karush, Kuhn and Tucker, which only the best answer meets.
    #[test]
    fn random_problems_meet_the_conditions_of_the_best_answer() {
        let mut rng = Rng::from_seed(11);
        for case in 0..300 {
            let (rows, columns) = (1 + rng.below(6) as usize, 1 + rng.below(4) as usize);
            let mut a = DMatrix::from_fn(rows, columns, |_, _| rng.unit());
            a.column_mut(0).fill(1.0);
            let b = DVector::from_fn(rows, |_, _| rng.unit() * 4.0 - 1.0);
            let solution = solve(&a, &b);
            let x = DVector::from_column_slice(&solution.x);
            let slope = a.transpose() * (&a * &x - &b);
            for n in 0..columns {
                assert!(x[n] >= 0.0, "case {case}");
                // No column at zero wants to grow; no column above zero wants to change.
                assert!(slope[n] > -1e-7, "case {case}: {slope}");
                assert!(x[n] == 0.0 || slope[n].abs() < 1e-7, "case {case}: {slope}");
            }
        }
    }
}
