//! Prediction exactly as published: for each cell the one line that fits best.
//!
//! ```text
//! cell + candidates of its direction -> a line each -> the largest R2 -> y at the new device's X
//!                                       predictions over the data size -> a second line -> sizes never run
//! ```
//!
//! Source: SCM 2.3 (the formulas), 3.2, 3.3, 4.2.2, 4.2.4.
//!
//! Always true:
//! 1. A line is never fitted through fewer than two points, nor through points with one X.
//! 2. Of candidates that fit equally well the first in the data set is taken, and it is said that they tie.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::data::{Cell, Reduced, Regressor};

/// R2 nearer than this to the best is a tie.
pub(crate) const TIE: f64 = 1e-9;

/// `y = slope x + intercept`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Line {
    /// How much y grows with one unit of x.
    pub slope: f64,
    /// y at x = 0.
    pub intercept: f64,
    /// The share of y's variation the line explains; none if y does not vary.
    pub r2: Option<f64>,
}

/// Why there is no line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// Too few points.
    #[error("{points} of the two points a line needs")]
    Few {
        /// How many there are.
        points: usize,
    },
    /// All points have one x.
    #[error("the regressor is the same everywhere, so nothing can be read from it")]
    Constant,
}

impl Line {
    /// Least squares through `points` (x, y).
    ///
    /// # Errors
    /// [`LineError`] for fewer than two points or one x.
    ///
    /// # Source
    /// SCM 2.3. The sums are taken about the means, which is the same and loses no digits.
    ///
    /// # Example
    /// ```
    /// let line = predict::paper::Line::fit(&[(1.0, 5.0), (2.0, 7.0), (4.0, 11.0)])?;
    /// assert_eq!((line.slope, line.intercept, line.r2), (2.0, 3.0, Some(1.0)));
    /// # Ok::<(), predict::paper::LineError>(())
    /// ```
    pub fn fit(points: &[(f64, f64)]) -> Result<Line, LineError> {
        let n = points.len() as f64;
        if points.len() < 2 {
            return Err(LineError::Few {
                points: points.len(),
            });
        }
        let mean_x = points.iter().map(|p| p.0).sum::<f64>() / n;
        let mean_y = points.iter().map(|p| p.1).sum::<f64>() / n;
        let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
        for (x, y) in points {
            xx += (x - mean_x) * (x - mean_x);
            xy += (x - mean_x) * (y - mean_y);
            yy += (y - mean_y) * (y - mean_y);
        }
        if points.iter().all(|p| p.0 == points[0].0) {
            return Err(LineError::Constant);
        }
        let slope = xy / xx;
        let intercept = mean_y - slope * mean_x;
        let explained: f64 = points
            .iter()
            .map(|(x, _)| (slope * x + intercept - mean_y).powi(2))
            .sum();
        Ok(Line {
            slope,
            intercept,
            r2: (yy > 0.0).then(|| explained / yy),
        })
    }

    /// Between which values one more result at `x` lies with probability `level`: Student's t with two degrees of
    /// freedom fewer than `points`, those the line was fitted through. None below three points.
    pub fn interval(&self, points: &[(f64, f64)], x: f64, level: f64) -> Option<[f64; 2]> {
        let n = points.len() as f64;
        let student = StudentsT::new(0.0, 1.0, n - 2.0).ok()?;
        let mean = points.iter().map(|p| p.0).sum::<f64>() / n;
        let xx: f64 = points.iter().map(|p| (p.0 - mean).powi(2)).sum();
        let left: f64 = points.iter().map(|p| (p.1 - self.at(p.0)).powi(2)).sum();
        let deviation = (left / (n - 2.0) * (1.0 + 1.0 / n + (x - mean).powi(2) / xx)).sqrt();
        let half = student.inverse_cdf(f64::midpoint(1.0, level)) * deviation;
        Some([self.at(x) - half, self.at(x) + half])
    }

    /// y at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.slope * x + self.intercept
    }
}

/// Is `regressor` a candidate for `metric`: does it go the same way?
///
/// Source: SCM 4.2.2: a write latency is explained by the device's write figures alone. Choice: a metric that
/// names no direction, such as a throughput, may be explained by any.
///
/// # Example
/// ```
/// use predict::paper::same_direction;
/// assert!(same_direction("write-64K-latency", "write_latency"));
/// assert!(!same_direction("read-64K-latency", "write_latency"));
/// assert!(same_direction("read-64K-latency", "latency"));
/// ```
pub fn same_direction(regressor: &str, metric: &str) -> bool {
    let way = |name: &str| {
        ["read", "write"]
            .into_iter()
            .find(|way| name.starts_with(way))
    };
    match (way(metric), way(regressor)) {
        (Some(metric), Some(regressor)) => metric == regressor,
        _ => true,
    }
}

/// One candidate's line through one cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// The regressor.
    pub regressor: String,
    /// Its line.
    pub line: Line,
    /// Does the line go the way of the metric: up with a latency, down with a throughput or rate? The other way
    /// means a slower device gives a better result.
    pub plausible: bool,
}

/// Every candidate of one cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellFit {
    /// Which cell: `write-only data_gb=16 write_latency`.
    pub cell: String,
    /// Through how many devices.
    pub devices: usize,
    /// Every candidate with a line, in the data set's order.
    pub candidates: Vec<Candidate>,
    /// Candidates without one, and why.
    pub passed_over: Vec<(String, String)>,
    /// Which of `candidates` fits best.
    pub best: usize,
    /// How many fit just as well.
    pub ties: usize,
}

impl CellFit {
    /// The candidate that fits best.
    pub fn chosen(&self) -> &Candidate {
        &self.candidates[self.best]
    }
}

/// Why a cell cannot be fitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PaperError {
    /// Not enough devices.
    #[error("{cell} was measured on {devices} of the two devices a line needs; run it on more")]
    Devices {
        /// The cell.
        cell: String,
        /// The devices that have it.
        devices: usize,
    },
    /// No candidate has a line.
    #[error("{cell} has no candidate regressor: {reason}")]
    Candidates {
        /// The cell.
        cell: String,
        /// What is wrong with each.
        reason: String,
    },
}

/// Fits every candidate of the cell's direction on the devices `among`, and takes the best.
///
/// A candidate must have a figure for every one of those devices that has the cell.
///
/// # Errors
/// [`PaperError`] with fewer than two devices or no candidate left.
pub fn fit(data: &Reduced, cell: &Cell, among: &[&str]) -> Result<CellFit, PaperError> {
    let values = cell.values.iter();
    let of = values.filter(|(device, _)| among.contains(&device.as_str()));
    let points: Vec<(&str, f64)> = of
        .map(|(device, value)| (device.as_str(), value.value))
        .collect();
    if points.len() < 2 {
        return Err(PaperError::Devices {
            cell: cell.name(),
            devices: points.len(),
        });
    }
    let rising = cell.kind == super::units::Kind::Latency;
    let mut candidates = Vec::new();
    let mut passed_over = Vec::new();
    for regressor in &data.regressors {
        if !same_direction(&regressor.name, &cell.metric) {
            continue;
        }
        match line_through(regressor, &points) {
            Ok(line) => {
                let same_sense = (regressor.kind == super::units::Kind::Latency) == rising;
                candidates.push(Candidate {
                    regressor: regressor.name.clone(),
                    line,
                    plausible: line.slope == 0.0 || (line.slope > 0.0) == same_sense,
                });
            }
            Err(why) => passed_over.push((regressor.name.clone(), why)),
        }
    }
    if candidates.is_empty() {
        return Err(none_left(cell, &passed_over));
    }
    let r2 = |candidate: &Candidate| candidate.line.r2.unwrap_or(0.0);
    let top = candidates.iter().map(r2).fold(0.0, f64::max);
    let as_good = |candidate: &&Candidate| top - r2(candidate) <= TIE;
    let best = candidates
        .iter()
        .position(|candidate| as_good(&candidate))
        .expect("the largest is among them");
    let ties = candidates.iter().filter(as_good).count() - 1;
    Ok(CellFit {
        cell: cell.name(),
        devices: points.len(),
        candidates,
        passed_over,
        best,
        ties,
    })
}

/// Why no candidate is left.
fn none_left(cell: &Cell, passed_over: &[(String, String)]) -> PaperError {
    let reasons = passed_over.iter();
    let reasons: Vec<String> = reasons
        .map(|(name, why)| format!("{name}: {why}"))
        .collect();
    PaperError::Candidates {
        cell: cell.name(),
        reason: match reasons.is_empty() {
            true => "the data set has no figure of the devices that goes its way".to_owned(),
            false => reasons.join("; "),
        },
    }
}

/// The line of a candidate, or why it has none.
fn line_through(regressor: &Regressor, points: &[(&str, f64)]) -> Result<Line, String> {
    let mut at = Vec::new();
    for (device, y) in points {
        let x = regressor.values.get(*device);
        let x = x.ok_or_else(|| format!("{device} has no such figure"))?;
        at.push((x.value, *y));
    }
    Line::fit(&at).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::data::{DataSet, Reduce};
    use super::*;

    fn data(text: &str) -> Reduced {
        DataSet::read_csv(text.as_bytes(), "t.csv")
            .unwrap()
            .reduce(Reduce::default())
    }

    const HEAD: &str = "device,regressor,workload,metric,value,unit\n";

    #[test]
    fn the_worked_formulas_of_the_paper_and_ours_agree() {
        // SCM 2.3 in its own form, with n, sum x y, sum x^2.
        let points = [
            (222.34, 4590.5499),
            (55.427, 2164.09408),
            (19.527, 1684.78087),
        ];
        let n = 3.0;
        let sum = |f: &dyn Fn(f64, f64) -> f64| points.iter().map(|p| f(p.0, p.1)).sum::<f64>();
        let (x, y) = (sum(&|x, _| x), sum(&|_, y| y));
        let (xx, xy) = (sum(&|x, _| x * x), sum(&|x, y| x * y));
        let slope = (n * xy - x * y) / (n * xx - x * x);
        let intercept = (xx * y - xy * x) / (n * xx - x * x);
        let line = Line::fit(&points).unwrap();
        assert!((line.slope - slope).abs() < 1e-9);
        assert!((line.intercept - intercept).abs() < 1e-8);
    }

    #[test]
    fn a_regressor_that_is_the_same_everywhere_is_passed_over_with_the_reason() {
        let text = format!(
            "{HEAD}a,read-4K-latency,,,5,us\nb,read-4K-latency,,,5,us\na,,w,read_latency,10,us\nb,,w,read_latency,20,us\n"
        );
        let data = data(&text);
        let refusal = fit(&data, &data.cells[0], &["a", "b"]).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "w read_latency has no candidate regressor: read-4K-latency: the regressor is the same \
             everywhere, so nothing can be read from it"
        );
    }

    #[test]
    fn missing_cells_and_figures_are_named() {
        let text = format!(
            "{HEAD}a,read-4K-latency,,,5,us\na,read-1K-latency,,,5,us\nb,read-1K-latency,,,6,us\n\
             a,,w,read_latency,10,us\nb,,w,read_latency,20,us\na,,v,read_latency,10,us\n"
        );
        let data = data(&text);
        let fitted = fit(&data, &data.cells[0], &["a", "b"]).unwrap();
        assert_eq!(
            fitted.passed_over,
            [(
                "read-4K-latency".to_owned(),
                "b has no such figure".to_owned()
            )]
        );
        assert_eq!(fitted.chosen().regressor, "read-1K-latency");
        assert_eq!(
            fit(&data, &data.cells[1], &["a", "b"])
                .unwrap_err()
                .to_string(),
            "v read_latency was measured on 1 of the two devices a line needs; run it on more"
        );
    }

    #[test]
    fn through_two_devices_all_candidates_tie_and_the_first_is_taken() {
        let text = format!(
            "{HEAD}a,write-4K-latency,,,5,us\nb,write-4K-latency,,,9,us\na,write-64K-latency,,,50,us\nb,write-64K-latency,,,10,us\n\
             a,,w,write_latency,10,us\nb,,w,write_latency,20,us\n"
        );
        let data = data(&text);
        let fitted = fit(&data, &data.cells[0], &["a", "b"]).unwrap();
        assert_eq!((fitted.best, fitted.ties), (0, 1));
        assert!(fitted.candidates[0].plausible);
        assert!(
            !fitted.candidates[1].plausible,
            "a slower device would do better"
        );
    }

    #[test]
    fn a_line_s_interval_is_student_s() {
        // Residuals 1, -2, 1 about y = x; t for 95 % and one degree of freedom is 12.706.
        let points = [(0.0, 1.0), (1.0, -1.0), (2.0, 3.0)];
        let line = Line::fit(&points).unwrap();
        let [low, high] = line.interval(&points, 1.0, 0.95).unwrap();
        let half = 12.706_205 * (6.0_f64 * (1.0 + 1.0 / 3.0)).sqrt();
        assert!((high - 1.0 - half).abs() < 1e-4 && (1.0 - low - half).abs() < 1e-4);
        assert_eq!(line.interval(&points[..2], 1.0, 0.95), None);
    }

    #[test]
    fn a_result_that_does_not_vary_has_no_r2() {
        let line = Line::fit(&[(1.0, 5.0), (2.0, 5.0)]).unwrap();
        assert_eq!((line.slope, line.r2), (0.0, None));
        assert_eq!(
            Line::fit(&[(1.0, 5.0)]).unwrap_err().to_string(),
            "1 of the two points a line needs"
        );
    }
}
