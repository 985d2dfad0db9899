//! The default model: how many I/Os does one operation wait for, and how much does the CPU take?
//!
//! ```text
//! cells of one workload and metric, all sizes -> y = cpu + sum n_j L_j, every part >= 0, relative errors least
//! n_j counted in a trace -> taken as they are      too few devices -> the smallest n_j, rank printed
//! devices differ less than runs do -> a constant
//! ```
//!
//! Source: SCM 5 (more explanatory variables than one, as future work).
//!
//! Choice: the form is ours and was fixed before its errors were known, `docs/decisions/0007`.
//!
//! Always true:
//! 1. `cpu >= 0` and every `n_j >= 0`: a slower device never makes a prediction faster.
//! 2. The answer does not depend on the units of the data set, nor on the order of its rows.

use nalgebra::{DMatrix, DVector};
use serde::Serialize;

use super::data::{Parameters, Reduced};
use super::nnls;
use super::spread::spreads;
use super::units::Kind;

pub use super::form::{Form, POOLED, TERMS, TERMS_MAX, Term};
pub use super::spread::Spreads;

/// Cells that are fitted together: one workload and metric, all values of the pooled parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The workload.
    pub workload: String,
    /// Its parameters but the pooled one.
    pub parameters: Parameters,
    /// The metric.
    pub metric: String,
    /// Where its cells stand in the data.
    pub cells: Vec<usize>,
}

impl Group {
    /// `write-only write_latency`.
    pub fn name(&self) -> String {
        match self.parameters.is_empty() {
            true => format!("{} {}", self.workload, self.metric),
            false => format!("{} {} {}", self.workload, self.parameters, self.metric),
        }
    }

    /// Every group of `data`, in the data's order.
    pub fn all(data: &Reduced, pooled: &str) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for (n, cell) in data.cells.iter().enumerate() {
            let parameters = cell.parameters.without(pooled);
            let same = |group: &&mut Group| {
                group.workload == cell.workload
                    && group.parameters == parameters
                    && group.metric == cell.metric
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.cells.push(n),
                None => groups.push(Group {
                    workload: cell.workload.clone(),
                    parameters,
                    metric: cell.metric.clone(),
                    cells: vec![n],
                }),
            }
        }
        groups
    }
}

/// Why there is no model.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The metric is no latency.
    #[error(
        "{group} is in {unit}: the model speaks of the time an operation takes; import its latency, or use \
         --mode paper"
    )]
    Metric {
        /// The group.
        group: String,
        /// Its unit.
        unit: super::units::Unit,
    },
    /// A term is unknown.
    #[error("no device has a figure '{asked}'; the data set has {known}: name terms among those")]
    Term {
        /// The term.
        asked: String,
        /// What there is.
        known: String,
    },
    /// A term is no latency.
    #[error("'{asked}' is in {unit}: a term of the model is a latency")]
    TermKind {
        /// The term.
        asked: String,
        /// Its unit.
        unit: super::units::Unit,
    },
    /// Too many terms.
    #[error("{asked} terms: at most {TERMS_MAX} can be told apart; name fewer")]
    Terms {
        /// How many.
        asked: usize,
    },
    /// A term stands twice.
    #[error("term '{asked}' is named twice")]
    Twice {
        /// The term.
        asked: String,
    },
    /// Too few devices.
    #[error(
        "{group} was measured on {devices} device(s) that have {terms}; a model needs two, and a judgement of it \
         three{missing}"
    )]
    Devices {
        /// The group.
        group: String,
        /// How many.
        devices: usize,
        /// The terms.
        terms: String,
        /// Which devices lack what.
        missing: String,
    },
}

/// One device's result in one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The device.
    pub device: String,
    /// Its latencies in the terms' order.
    pub latencies: Vec<f64>,
    /// What was measured there.
    pub y: f64,
}

/// How the fitted figures are chosen where the data leave several equally good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// There is one best answer.
    Unique,
    /// The least `n_1^2 + n_2^2 + ...` of all.
    MinimumNorm,
    /// The devices differ less than the runs: a constant.
    Constant,
}

impl Rule {
    /// What people read.
    pub fn sentence(self) -> &'static str {
        match self {
            Rule::Unique => "unique",
            Rule::MinimumNorm => "minimum norm",
            Rule::Constant => "not storage bound: constant",
        }
    }
}

/// A fitted model of one group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fit {
    /// What the CPU takes of one operation, in us.
    pub cpu: f64,
    /// How often one operation waits for each term.
    pub counts: Vec<f64>,
    /// How many figures were fitted.
    pub unknowns: usize,
    /// How many of them the data can distinguish.
    pub rank: usize,
    /// How the others were chosen.
    pub rule: Rule,
    /// The devices it was fitted on.
    pub devices: Vec<String>,
    /// How many values it was fitted on.
    pub values: usize,
    /// The root of the mean squared relative error on those.
    pub rms_error: f64,
    /// What varies how much.
    pub spreads: Spreads,
    /// The smallest and the largest figure of each term among the devices.
    pub hull: Vec<[f64; 2]>,
}

impl Fit {
    /// The time one operation takes on a device with these latencies (in the terms' order), in us.
    pub fn at(&self, latencies: &[f64]) -> f64 {
        let waits = self.counts.iter().zip(latencies).map(|(n, l)| n * l);
        self.cpu + waits.sum::<f64>()
    }
}

/// Checks that `form` can be fitted on `data` at all.
///
/// # Errors
/// [`ModelError`] about its terms.
pub fn check(data: &Reduced, form: &Form) -> Result<(), ModelError> {
    if form.terms.len() > TERMS_MAX {
        return Err(ModelError::Terms {
            asked: form.terms.len(),
        });
    }
    for (n, term) in form.terms.iter().enumerate() {
        let asked = term.regressor.clone();
        if form.terms[..n].iter().any(|other| other.regressor == asked) {
            return Err(ModelError::Twice { asked });
        }
        let names = || data.regressors.iter().map(|r| r.name.as_str());
        match data.regressors.iter().find(|r| r.name == asked) {
            None => {
                let known: Vec<&str> = names().collect();
                return Err(ModelError::Term {
                    asked,
                    known: match known.is_empty() {
                        true => "no figures of devices".to_owned(),
                        false => known.join(", "),
                    },
                });
            }
            Some(regressor) if regressor.kind != Kind::Latency => {
                return Err(ModelError::TermKind {
                    asked,
                    unit: regressor.kind.unit(),
                });
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// The results of `group` on those devices of `among` that have every term.
pub fn points(data: &Reduced, form: &Form, group: &Group, among: &[&str]) -> Vec<Point> {
    let mut points = Vec::new();
    for cell in group.cells.iter().map(|n| &data.cells[*n]) {
        for (device, value) in &cell.values {
            if !among.contains(&device.as_str()) {
                continue;
            }
            if let Some(latencies) = form.latencies(data, device) {
                points.push(Point {
                    device: device.clone(),
                    latencies,
                    y: value.value,
                });
            }
        }
    }
    points
}

/// Fits `form` to `group` on the devices `among`.
///
/// # Errors
/// [`ModelError`]: the metric is no latency, a term is unknown, or fewer than two devices are left.
///
/// # Example
/// ```
/// use predict::data::{DataSet, Reduce};
/// use predict::model::{self, Form, Group};
/// let csv = "device,regressor,workload,metric,value,unit
/// a,read-4K-latency,,,10,us
/// b,read-4K-latency,,,100,us
/// a,,load,read_latency,120,us
/// b,,load,read_latency,300,us
/// ";
/// let data = DataSet::read_csv(csv.as_bytes(), "example")?.reduce(Reduce::default());
/// let group = &Group::all(&data, model::POOLED)[0];
/// let fit = model::fit(&data, &Form::of(&["read-4K-latency"]), group, &["a", "b"])?;
/// // 100 us of CPU and two reads.
/// assert!((fit.cpu - 100.0).abs() < 1e-6 && (fit.counts[0] - 2.0).abs() < 1e-8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn fit(data: &Reduced, form: &Form, group: &Group, among: &[&str]) -> Result<Fit, ModelError> {
    check(data, form)?;
    let kind = data.cells[group.cells[0]].kind;
    if kind != Kind::Latency {
        return Err(ModelError::Metric {
            group: group.name(),
            unit: kind.unit(),
        });
    }
    let points = points(data, form, group, among);
    let mut devices: Vec<String> = Vec::new();
    for device in &data.devices {
        if points.iter().any(|point| point.device == *device) {
            devices.push(device.clone());
        }
    }
    if devices.len() < 2 {
        return Err(ModelError::Devices {
            group: group.name(),
            devices: devices.len(),
            terms: match form.terms.is_empty() {
                true => "a result".to_owned(),
                false => form
                    .terms
                    .iter()
                    .map(|t| t.regressor.as_str())
                    .collect::<Vec<_>>()
                    .join(" and "),
            },
            missing: missing(data, form, group, among),
        });
    }
    let spreads = spreads(data, group, &devices);
    let mut fit = match spreads.not_storage_bound() {
        true => constant(form, &points),
        false => non_negative(form, &points),
    };
    fit.spreads = spreads;
    fit.hull = (0..form.terms.len())
        .map(|n| {
            let of = points.iter().map(|point| point.latencies[n]);
            [
                of.clone().fold(f64::INFINITY, f64::min),
                of.fold(0.0, f64::max),
            ]
        })
        .collect();
    let square = |p: &Point| ((fit.at(&p.latencies) - p.y) / p.y).powi(2);
    fit.rms_error = (points.iter().map(square).sum::<f64>() / points.len() as f64).sqrt();
    fit.values = points.len();
    fit.devices = devices;
    Ok(fit)
}

/// Which devices with results lack which terms, as the end of a sentence.
fn missing(data: &Reduced, form: &Form, group: &Group, among: &[&str]) -> String {
    let mut text = String::new();
    for device in among {
        let has = group
            .cells
            .iter()
            .any(|n| data.cells[*n].values.contains_key(*device));
        for term in form.terms.iter().filter(|_| has) {
            if data.figure(device, &term.regressor).is_none() {
                text.push_str(&format!("; {device} has no {}", term.regressor));
            }
        }
    }
    text
}

/// Least relative squares, nothing negative.
fn non_negative(form: &Form, points: &[Point]) -> Fit {
    let fitted: Vec<usize> = (0..form.terms.len())
        .filter(|n| form.terms[*n].counted.is_none())
        .collect();
    let counted = |point: &Point| -> f64 {
        let terms = form.terms.iter().zip(&point.latencies);
        terms.map(|(t, l)| t.counted.unwrap_or(0.0) * l).sum()
    };
    // Every row is divided by what was measured: what is left over is a relative error.
    let a = DMatrix::from_fn(points.len(), 1 + fitted.len(), |row, column| {
        let point = &points[row];
        match column {
            0 => 1.0 / point.y,
            n => point.latencies[fitted[n - 1]] / point.y,
        }
    });
    let b = DVector::from_fn(points.len(), |row, _| {
        1.0 - counted(&points[row]) / points[row].y
    });
    let solution = nnls::solve(&a, &b);
    let mut counts: Vec<f64> = form
        .terms
        .iter()
        .map(|t| t.counted.unwrap_or(0.0))
        .collect();
    for (n, x) in fitted.iter().zip(&solution.x[1..]) {
        counts[*n] = *x;
    }
    let unknowns = form.unknowns();
    Fit {
        cpu: solution.x[0],
        counts,
        unknowns,
        rank: solution.rank,
        rule: match solution.rank < unknowns {
            true => Rule::MinimumNorm,
            false => Rule::Unique,
        },
        ..empty()
    }
}

/// The constant with the least relative squares.
fn constant(form: &Form, points: &[Point]) -> Fit {
    let sum: f64 = points.iter().map(|p| 1.0 / p.y).sum();
    let squares: f64 = points.iter().map(|p| 1.0 / (p.y * p.y)).sum();
    Fit {
        cpu: sum / squares,
        counts: vec![0.0; form.terms.len()],
        unknowns: 1,
        rank: 1,
        rule: Rule::Constant,
        ..empty()
    }
}

fn empty() -> Fit {
    Fit {
        cpu: 0.0,
        counts: Vec::new(),
        unknowns: 0,
        rank: 0,
        rule: Rule::Unique,
        devices: Vec::new(),
        values: 0,
        rms_error: 0.0,
        spreads: Spreads {
            between_devices: 0.0,
            between_runs: None,
            between_sizes: None,
        },
        hull: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::data::{DataSet, Reduce};
    use super::*;

    fn data(lines: &str) -> Reduced {
        let text = format!("device,regressor,workload,data_gb,metric,value,unit\n{lines}");
        DataSet::read_csv(text.as_bytes(), "t.csv")
            .unwrap()
            .reduce(Reduce::default())
    }

    fn figures(of: &[(&str, f64, f64)]) -> String {
        of.iter()
            .map(|(device, read, write)| {
                format!("{device},read-16K-latency,,,,{read},us\n{device},write-64K-latency,,,,{write},us\n")
            })
            .collect()
    }

    /// Three devices on which `y = 100 + 2 read + 0.5 write` to the digit.
    fn exact() -> Reduced {
        let mut lines = figures(&[("a", 10.0, 20.0), ("b", 50.0, 10.0), ("c", 200.0, 400.0)]);
        for (device, y) in [("a", 130.0), ("b", 205.0), ("c", 700.0)] {
            lines.push_str(&format!(
                "{device},,load,1,write_latency,{y},us\n{device},,load,2,write_latency,{y},us\n"
            ));
        }
        data(&lines)
    }

    fn fit_all(data: &Reduced, form: &Form) -> Result<Fit, ModelError> {
        let devices: Vec<&str> = data.devices.iter().map(String::as_str).collect();
        fit(data, form, &Group::all(data, &form.pooled)[0], &devices)
    }

    #[test]
    fn what_was_put_in_comes_out_and_sizes_are_fitted_together() {
        let fit = fit_all(&exact(), &Form::default()).unwrap();
        assert!((fit.cpu - 100.0).abs() < 1e-6, "{fit:?}");
        assert!((fit.counts[0] - 2.0).abs() < 1e-8 && (fit.counts[1] - 0.5).abs() < 1e-8);
        assert_eq!((fit.rank, fit.rule, fit.values), (3, Rule::Unique, 6));
        assert!(fit.rms_error < 1e-9);
        assert_eq!(fit.hull, [[10.0, 200.0], [10.0, 400.0]]);
    }

    #[test]
    fn a_counted_term_is_taken_as_it_is_and_only_the_rest_is_fitted() {
        let mut form = Form::default();
        form.terms[0].counted = Some(2.0);
        let fit = fit_all(&exact(), &form).unwrap();
        assert_eq!((fit.counts[0], fit.unknowns), (2.0, 2));
        assert!((fit.cpu - 100.0).abs() < 1e-6);
        form.terms[1].counted = Some(0.5);
        let fit = fit_all(&exact(), &form).unwrap();
        assert_eq!((fit.unknowns, fit.rank), (1, 1));
        assert!((fit.cpu - 100.0).abs() < 1e-6);
    }

    #[test]
    fn the_unit_of_the_data_does_not_change_the_answer() {
        let two = |unit: &str, by: f64| {
            let mut lines = String::new();
            for (device, read, write, y) in [("a", 10.0, 20.0, 130.0), ("b", 50.0, 10.0, 205.0)] {
                lines.push_str(&format!(
                    "{device},read-16K-latency,,,,{},{unit}\n{device},write-64K-latency,,,,{},{unit}\n{device},,l,1,latency,{},{unit}\n",
                    read * by, write * by, y * by
                ));
            }
            fit_all(&data(&lines), &Form::default()).unwrap()
        };
        let (us, ns) = (two("us", 1.0), two("ns", 1000.0));
        assert_eq!((us.rank, us.rule), (2, Rule::MinimumNorm));
        assert!((us.cpu - ns.cpu).abs() < 1e-9 && (us.counts[0] - ns.counts[0]).abs() < 1e-9);
    }

    #[test]
    fn a_result_that_falls_with_the_latency_gets_no_negative_count() {
        let lines = figures(&[("a", 10.0, 20.0), ("b", 50.0, 60.0), ("c", 90.0, 80.0)])
            + "a,,l,1,latency,300,us\nb,,l,1,latency,200,us\nc,,l,1,latency,100,us\n";
        let fit = fit_all(&data(&lines), &Form::default()).unwrap();
        assert_eq!(fit.counts, [0.0, 0.0]);
        assert!(fit.cpu > 100.0 && fit.cpu < 300.0);
    }

    #[test]
    fn where_devices_differ_less_than_runs_the_answer_is_a_constant() {
        let mut lines = figures(&[("a", 10.0, 20.0), ("b", 50.0, 60.0), ("c", 90.0, 80.0)]);
        for (device, runs) in [
            ("a", [95, 105, 99]),
            ("b", [102, 96, 104]),
            ("c", [97, 103, 101]),
        ] {
            for run in runs {
                lines.push_str(&format!("{device},,l,1,latency,{run},us\n"));
            }
        }
        let fit = fit_all(&data(&lines), &Form::default()).unwrap();
        assert_eq!(fit.rule, Rule::Constant);
        assert_eq!(fit.rule.sentence(), "not storage bound: constant");
        assert!((fit.cpu - 100.5).abs() < 1.0 && fit.counts == [0.0, 0.0]);
        assert!(fit.spreads.not_storage_bound());
    }

    #[test]
    fn what_cannot_be_fitted_is_answered_with_what_to_do() {
        let refused = |data: &Reduced, form: &Form| fit_all(data, form).unwrap_err().to_string();
        assert_eq!(
            refused(&exact(), &Form::of(&["read-4K-latency"])),
            "no device has a figure 'read-4K-latency'; the data set has read-16K-latency, write-64K-latency: \
             name terms among those"
        );
        assert_eq!(
            refused(
                &exact(),
                &Form::of(&["read-16K-latency", "read-16K-latency"])
            ),
            "term 'read-16K-latency' is named twice"
        );
        let lines = "a,read-16K-latency,,,,5,us\na,write-64K-latency,,,,5,us\nb,read-16K-latency,,,,5,us\n\
                     a,,l,1,latency,9,us\nb,,l,1,latency,9,us\n";
        assert_eq!(
            refused(&data(lines), &Form::default()),
            "l latency was measured on 1 device(s) that have read-16K-latency and write-64K-latency; a model needs \
             two, and a judgement of it three; b has no write-64K-latency"
        );
        let lines = figures(&[("a", 1.0, 2.0), ("b", 2.0, 3.0)])
            + "a,,l,1,throughput,9,ops/s\nb,,l,1,throughput,7,tps\n";
        assert_eq!(
            refused(&data(&lines), &Form::default()),
            "l throughput is in ops/s: the model speaks of the time an operation takes; import its latency, or use \
             --mode paper"
        );
        let lines = "a,read-16K-throughput,,,,5,MB/s\na,,l,1,latency,9,us\n";
        assert_eq!(
            refused(&data(lines), &Form::of(&["read-16K-throughput"])),
            "'read-16K-throughput' is in MB/s: a term of the model is a latency"
        );
        let many: Vec<String> = (0..9).map(|n| format!("t{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(
            refused(&exact(), &Form::of(&many)),
            "9 terms: at most 8 can be told apart; name fewer"
        );
    }
}
