//! Would it have been right? Every device is left out in turn and predicted from the others.
//!
//! ```text
//! cells x devices -> model | paper | nearest | mean, fitted on the other devices -> |f - y| / y -> means, worst, verdict
//! ```
//!
//! The published method judges by R2 alone. This judgement was fixed in `docs/decisions/0007` before its errors were computed.
//!
//! Always true:
//! 1. Nothing that belongs to the left-out device enters its prediction, except its own figures (its regressors).
//! 2. Methods are compared on the same cells and devices.
//! 3. A model that errs more than "nearest" is never recommended.

use std::collections::BTreeMap;

use serde::Serialize;

use super::data::{Cell, Reduce, Reduced};
use super::model::{self, Form, Group};
use super::paper;

/// A way to predict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The default model, or one with the terms asked for.
    Model,
    /// The best R2 of the candidates, as published.
    Paper,
    /// The result of the device with the nearest latencies.
    Nearest,
    /// The mean of the other devices.
    Mean,
    /// As published, with the regressor chosen on all devices, the left-out one among them: it knows the answer
    /// when it chooses, and stands here only to show how much that is worth.
    PaperHindsight,
}

impl Method {
    /// All, in the order of tables.
    pub const ALL: [Method; 5] = [
        Method::Model,
        Method::Nearest,
        Method::Mean,
        Method::Paper,
        Method::PaperHindsight,
    ];

    /// What people read.
    pub fn name(self) -> &'static str {
        match self {
            Method::Model => "model",
            Method::Paper => "paper",
            Method::Nearest => "nearest",
            Method::Mean => "mean",
            Method::PaperHindsight => "paper (chosen knowing the answer)",
        }
    }
}

/// One prediction of a device that was left out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeftOut {
    /// The group it belongs to.
    pub group: String,
    /// The cell.
    pub cell: String,
    /// The metric alone.
    pub metric: String,
    /// The device.
    pub device: String,
    /// What was measured on it.
    pub measured: f64,
    /// What each method said; in the order of the methods.
    pub predicted: BTreeMap<Method, f64>,
    /// The rank of the model's fit, and of how many unknowns.
    pub rank: (usize, usize),
}

impl LeftOut {
    /// The relative error of `method`, if it said anything.
    pub fn error(&self, method: Method) -> Option<f64> {
        let said = self.predicted.get(&method)?;
        Some((said - self.measured).abs() / self.measured)
    }
}

/// How wrong one method was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Score {
    /// The method.
    pub method: Method,
    /// The mean of its relative errors.
    pub mean: f64,
    /// The largest.
    pub worst: f64,
    /// How many predictions were judged.
    pub predictions: usize,
}

/// Every left-out prediction with the scores of the methods.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Judgement {
    /// Every prediction.
    pub left_out: Vec<LeftOut>,
    /// Why some groups could not be judged.
    pub silent: Vec<String>,
}

impl Judgement {
    /// The scores over the predictions for which `of` holds; a method that said nothing there is left away.
    pub fn scores(&self, of: impl Fn(&LeftOut) -> bool) -> Vec<Score> {
        let chosen: Vec<&LeftOut> = self.left_out.iter().filter(|one| of(one)).collect();
        let mut scores = Vec::new();
        for method in Method::ALL {
            let errors: Vec<f64> = chosen.iter().filter_map(|one| one.error(method)).collect();
            if errors.is_empty() {
                continue;
            }
            scores.push(Score {
                method,
                mean: errors.iter().sum::<f64>() / errors.len() as f64,
                worst: errors.iter().copied().fold(0.0, f64::max),
                predictions: errors.len(),
            });
        }
        scores
    }

    /// The verdict over the predictions for which `of` holds.
    pub fn verdict(&self, of: impl Fn(&LeftOut) -> bool) -> Verdict {
        let scores = self.scores(of);
        let find = |method| scores.iter().find(|score: &&Score| score.method == method);
        match (find(Method::Model), find(Method::Nearest)) {
            (Some(model), Some(nearest)) if model.mean <= nearest.mean => Verdict::Model {
                error: model.mean,
                nearest: nearest.mean,
            },
            (Some(model), Some(nearest)) => Verdict::Nearest {
                error: model.mean,
                nearest: nearest.mean,
            },
            _ => Verdict::Unjudged,
        }
    }
}

/// What to rely on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "recommended", rename_all = "kebab-case")]
pub enum Verdict {
    /// The model.
    Model {
        /// Its mean left-out error.
        error: f64,
        /// That of the nearest device.
        nearest: f64,
    },
    /// Not the model: the nearest device does better.
    Nearest {
        /// The model's mean left-out error.
        error: f64,
        /// That of the nearest device.
        nearest: f64,
    },
    /// Nothing could be left out.
    Unjudged,
}

impl Verdict {
    /// What people read.
    pub fn sentence(&self) -> String {
        match self {
            Verdict::Model { error, nearest } => format!(
                "the model is recommended: left out, it errs by {:.1} %, the nearest device by {:.1} %",
                error * 100.0,
                nearest * 100.0
            ),
            Verdict::Nearest { error, nearest } => format!(
                "the model is not recommended: left out, it errs by {:.1} %, the nearest device by {:.1} %",
                error * 100.0,
                nearest * 100.0
            ),
            Verdict::Unjudged => {
                "the model is not recommended: no device could be left out and predicted from two \
                                  others; measure at least three"
                    .to_owned()
            }
        }
    }
}

/// The device of `among` whose latencies are nearest to `latencies`: the least sum of squared log ratios, of the devices'
/// own parts where the path's is known.
pub fn nearest<'a>(
    data: &Reduced,
    form: &Form,
    latencies: &[f64],
    among: &[&'a str],
) -> Option<&'a str> {
    let paths = form.terms.iter().map(|term| data.path.get(&term.regressor));
    let paths: Vec<f64> = paths.map(|path| path.copied().unwrap_or(0.0)).collect();
    let mut best: Option<(f64, &str)> = None;
    for device in among {
        let Some(theirs) = form.latencies(data, device) else {
            continue;
        };
        let pairs = latencies.iter().zip(&theirs).zip(&paths);
        let ratios = pairs.map(|((a, b), path)| (a - path) / (b - path));
        let distance: f64 = ratios.map(|ratio| ratio.ln().powi(2)).sum();
        if best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, device));
        }
    }
    best.map(|(_, device)| device)
}

/// Leaves every device out in turn, in every group.
pub fn judge(data: &Reduced, form: &Form, groups: &[Group]) -> Judgement {
    let mut judgement = Judgement::default();
    for group in groups {
        let usable: Vec<&str> = data
            .devices
            .iter()
            .map(String::as_str)
            .filter(|device| form.latencies(data, device).is_some())
            .filter(|device| {
                let mut cells = group.cells.iter().map(|n| &data.cells[*n]);
                cells.any(|cell| cell.values.contains_key(*device))
            })
            .collect();
        if usable.len() < 3 {
            judgement.silent.push(format!(
                "{}: {} device(s) with results and every term; leaving one out needs three",
                group.name(),
                usable.len()
            ));
            continue;
        }
        for device in &usable {
            let others: Vec<&str> = usable.iter().copied().filter(|d| d != device).collect();
            match model::fit(data, form, group, &others) {
                Ok(fit) => leave_out(data, form, group, device, &others, &fit, &mut judgement),
                Err(error) => judgement.silent.push(error.to_string()),
            }
        }
    }
    judgement
}

/// Predicts `device` in every cell of `group` from `others`.
fn leave_out(
    data: &Reduced,
    form: &Form,
    group: &Group,
    device: &str,
    others: &[&str],
    fit: &model::Fit,
    judgement: &mut Judgement,
) {
    let latencies = form
        .latencies(data, device)
        .expect("only devices with every term are left out");
    for cell in group.cells.iter().map(|n| &data.cells[*n]) {
        let Some(measured) = cell.values.get(device) else {
            continue;
        };
        let there: Vec<&str> = others
            .iter()
            .copied()
            .filter(|other| cell.values.contains_key(*other))
            .collect();
        let Some(near) = nearest(data, form, &latencies, &there) else {
            continue;
        };
        let value = |device: &str| cell.values[device].value;
        let mut predicted = BTreeMap::new();
        predicted.insert(Method::Model, fit.at(&latencies));
        predicted.insert(Method::Nearest, value(near));
        let sum: f64 = there.iter().map(|other| value(other)).sum();
        predicted.insert(Method::Mean, sum / there.len() as f64);
        if let Some(said) = published(data, cell, device, &there) {
            predicted.insert(Method::Paper, said);
        }
        if let Some(said) = hindsight(data, cell, device, &there) {
            predicted.insert(Method::PaperHindsight, said);
        }
        judgement.left_out.push(LeftOut {
            group: group.name(),
            cell: cell.name(),
            metric: cell.metric.clone(),
            device: device.to_owned(),
            measured: measured.value,
            predicted,
            rank: (fit.rank, fit.unknowns),
        });
    }
}

/// What the published method says of `device`: the best R2 among `others`; where candidates tie, the median
/// of what they say.
pub fn published(data: &Reduced, cell: &Cell, device: &str, others: &[&str]) -> Option<f64> {
    let fit = paper::fit(data, cell, others).ok()?;
    let best = fit.chosen().line.r2.unwrap_or(0.0);
    let said: Vec<f64> = fit
        .candidates
        .iter()
        .filter(|candidate| best - candidate.line.r2.unwrap_or(0.0) <= paper::TIE)
        .filter_map(|candidate| {
            let x = data.figure(device, &candidate.regressor)?;
            Some(candidate.line.at(x))
        })
        .collect();
    (!said.is_empty()).then(|| Reduce::Median.of(&said))
}

/// The published method with its regressor chosen on `device` as well.
fn hindsight(data: &Reduced, cell: &Cell, device: &str, others: &[&str]) -> Option<f64> {
    let mut all = others.to_vec();
    all.push(device);
    let chosen = paper::fit(data, cell, &all).ok()?;
    let regressor = &chosen.chosen().regressor;
    let fit = paper::fit(data, cell, others).ok()?;
    let candidate = fit.candidates.iter().find(|c| c.regressor == *regressor)?;
    Some(candidate.line.at(data.figure(device, regressor)?))
}

#[cfg(test)]
mod tests {
    use super::super::data::DataSet;
    use super::*;

    fn data(devices: &[(&str, f64, f64)]) -> Reduced {
        let mut text = String::from("device,regressor,workload,metric,value,unit\n");
        for (device, latency, y) in devices {
            text.push_str(&format!(
                "{device},read-4K-latency,,,{latency},us\n{device},,w,read_latency,{y},us\n"
            ));
        }
        DataSet::read_csv(text.as_bytes(), "t.csv")
            .unwrap()
            .reduce(Reduce::default())
    }

    fn judged(devices: &[(&str, f64, f64)]) -> Judgement {
        let data = data(devices);
        let form = Form::of(&["read-4K-latency"]);
        judge(&data, &form, &Group::all(&data, &form.pooled))
    }

    #[test]
    fn a_model_that_fits_is_recommended() {
        let line = |x: f64| 50.0 + 2.0 * x;
        let judged = judged(&[
            ("a", 10.0, line(10.0)),
            ("b", 100.0, line(100.0)),
            ("c", 400.0, line(400.0)),
        ]);
        assert_eq!(judged.left_out.len(), 3);
        let Verdict::Model { error, nearest } = judged.verdict(|_| true) else {
            panic!("{judged:?}");
        };
        assert!(error < 1e-9 && nearest > 0.1);
        assert_eq!(judged.left_out[0].rank, (2, 2));
    }

    #[test]
    fn a_model_that_loses_to_nearest_is_never_recommended() {
        // Not storage: two kinds of host, which differ in nothing that was measured of the devices.
        let judged = judged(&[
            ("a", 10.0, 100.0),
            ("b", 11.0, 100.0),
            ("c", 300.0, 40.0),
            ("d", 310.0, 40.0),
        ]);
        let verdict = judged.verdict(|_| true);
        assert!(matches!(verdict, Verdict::Nearest { .. }), "{verdict:?}");
        assert!(
            verdict
                .sentence()
                .starts_with("the model is not recommended: left out, it errs by "),
            "{}",
            verdict.sentence()
        );
    }

    #[test]
    fn two_devices_only_cannot_be_judged_and_that_is_said() {
        let judged = judged(&[("a", 10.0, 100.0), ("b", 20.0, 200.0)]);
        assert_eq!(
            judged.silent,
            [
                "w read_latency: 2 device(s) with results and every term; leaving one out needs three"
            ]
        );
        assert_eq!(
            judged.verdict(|_| true).sentence(),
            "the model is not recommended: no device could be left out and predicted from two others; \
             measure at least three"
        );
    }

    #[test]
    fn the_baselines_are_what_their_names_say() {
        let judged = judged(&[("a", 10.0, 100.0), ("b", 20.0, 140.0), ("c", 400.0, 900.0)]);
        let b = &judged.left_out[1];
        assert_eq!(b.device, "b");
        assert_eq!(b.predicted[&Method::Nearest], 100.0, "a is nearer than c");
        assert_eq!(b.predicted[&Method::Mean], 500.0);
        let line = paper::Line::fit(&[(10.0, 100.0), (400.0, 900.0)]).unwrap();
        assert!((b.predicted[&Method::Paper] - line.at(20.0)).abs() < 1e-9);
        assert_eq!(b.error(Method::Nearest), Some(40.0 / 140.0));
    }
}
