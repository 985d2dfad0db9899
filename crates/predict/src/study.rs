//! A data set studied with the default model, and what it says of a device that was not measured.
//!
//! ```text
//! data + form -> fit each group + leave devices out -> Study
//! Study + a device's figures -> hull check -> prediction, interval, nearest beside it, bottleneck -> Estimate
//! ```
//!
//! Source: SCM 3.2 (4), 4.2.4; hull, interval and judgement are ours, `docs/decisions/0007`.
//!
//! Always true:
//! 1. Farther than [`FAR`] times outside what was measured nothing is predicted unless asked for.
//! 2. An estimate says whether its method is recommended in its group.

use std::collections::BTreeMap;

use serde::Serialize;

use super::data::Reduced;
use super::interval::Interval;
use super::judge::{self, Judgement, LeftOut, Method, Score, Verdict};
use super::model::{self, Fit, Form, Group, ModelError, Term};
use super::queue::{self, Load, Queued};

pub use super::target::{Target, TargetError};

/// How far outside the measured figures a prediction is still made without being asked for.
pub const FAR: f64 = 2.0;

/// One group of a study.
#[derive(Debug, Clone, Serialize)]
pub struct Studied {
    /// Its name: `write-only write_latency`.
    pub group: String,
    /// The fit, if there is one.
    pub fit: Option<Fit>,
    /// Why there is none.
    pub why_not: Option<String>,
    /// The left-out errors in this group.
    pub scores: Vec<Score>,
    /// What to rely on in this group.
    pub verdict: Verdict,
}

/// A data set, studied.
#[derive(Debug, Clone, Serialize)]
pub struct Study {
    /// The form that was fitted.
    pub form: Form,
    /// Its groups, in the data's order.
    pub groups: Vec<Studied>,
    /// Every left-out prediction.
    pub judgement: Judgement,
    /// The left-out errors over all groups.
    pub scores: Vec<Score>,
    /// What to rely on.
    pub verdict: Verdict,
    /// What a reader must know of the data.
    pub warnings: Vec<String>,
    /// What of each term is the path's, in us; empty where no floor was taken apart.
    pub path: BTreeMap<String, f64>,
}

/// Studies `data` with `form`.
///
/// # Errors
/// [`ModelError`] if the form itself cannot be fitted; a group that cannot says why in its place.
pub fn study(data: &Reduced, form: &Form) -> Result<Study, ModelError> {
    model::check(data, form)?;
    let groups = Group::all(data, &form.pooled);
    let devices: Vec<&str> = data.devices.iter().map(String::as_str).collect();
    let judgement = judge::judge(data, form, &groups);
    let studied = groups
        .iter()
        .map(|group| {
            let name = group.name();
            let (fit, why_not) = match model::fit(data, form, group, &devices) {
                Ok(fit) => (Some(fit), None),
                Err(error) => (None, Some(error.to_string())),
            };
            let of = |one: &LeftOut| one.group == name;
            Studied {
                fit,
                why_not,
                scores: judgement.scores(of),
                verdict: judgement.verdict(of),
                group: name,
            }
        })
        .collect();
    Ok(Study {
        form: form.clone(),
        groups: studied,
        scores: judgement.scores(|_| true),
        verdict: judgement.verdict(|_| true),
        warnings: warnings(data, form, &groups),
        judgement,
        path: data.path.clone(),
    })
}

impl Study {
    /// `read-16K-latency 70.0 us`, for each part that is the path's; nothing where no floor was taken apart.
    pub fn path_sentence(&self) -> Option<String> {
        let parts = self
            .path
            .iter()
            .map(|(name, us)| format!("{name} {us:.1} us"));
        let parts: Vec<String> = parts.collect();
        (!parts.is_empty()).then(|| {
            format!(
                "of these the path has the same on all devices: {}",
                parts.join(", ")
            )
        })
    }
}

/// What a reader must know: constant regressors, missing cells, devices without figures.
fn warnings(data: &Reduced, form: &Form, groups: &[Group]) -> Vec<String> {
    let mut warnings = Vec::new();
    let measured = data.measured();
    for term in &form.terms {
        let figures: Vec<f64> = measured
            .iter()
            .filter_map(|device| data.figure(device, &term.regressor))
            .collect();
        if figures.len() > 1 && figures.iter().all(|figure| *figure == figures[0]) {
            warnings.push(format!(
                "{} is {} us on every device: nothing can be read from it, and its n is 0 unless counted",
                term.regressor, figures[0]
            ));
        }
        for device in &measured {
            if data.figure(device, &term.regressor).is_none() {
                warnings.push(format!(
                    "{device} has results but no {}: it is left aside",
                    term.regressor
                ));
            }
        }
    }
    for group in groups {
        let cells = || group.cells.iter().map(|n| &data.cells[*n]);
        let there: Vec<&&str> = measured
            .iter()
            .filter(|device| cells().any(|cell| cell.values.contains_key(**device)))
            .collect();
        for cell in cells() {
            let missing: Vec<&str> = there
                .iter()
                .filter(|device| !cell.values.contains_key(***device))
                .map(|device| **device)
                .collect();
            if !missing.is_empty() {
                warnings.push(format!(
                    "{} was not measured on {}",
                    cell.name(),
                    missing.join(", ")
                ));
            }
        }
    }
    warnings
}

/// A figure of the target outside those that were measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outside {
    /// Which figure.
    pub regressor: String,
    /// Its value, in the reckoning unit.
    pub at: f64,
    /// The nearest that was measured.
    pub nearest: f64,
    /// How many times as far.
    pub times: f64,
}

impl Outside {
    /// Is `at` outside `hull`, and how far?
    ///
    /// # Example
    /// ```
    /// use predict::study::Outside;
    /// assert!(Outside::of("x-latency", 5.0, [2.0, 10.0]).is_none());
    /// assert_eq!(Outside::of("x-latency", 30.0, [2.0, 10.0]).unwrap().times, 3.0);
    /// ```
    pub fn of(regressor: &str, at: f64, hull: [f64; 2]) -> Option<Outside> {
        let nearest = at.clamp(hull[0], hull[1]);
        (nearest != at).then(|| Outside {
            regressor: regressor.to_owned(),
            at,
            nearest,
            times: (at / nearest).max(nearest / at),
        })
    }

    /// What people read.
    pub fn sentence(&self) -> String {
        let side = match self.at < self.nearest {
            true => "below the smallest",
            false => "above the largest",
        };
        format!(
            "{} = {} is {:.1} times {side} measured, {}",
            self.regressor, self.at, self.times, self.nearest
        )
    }
}

/// What is asked for beside the figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ask {
    /// The share of results an interval is to hold.
    pub level: f64,
    /// Predict however far outside.
    pub extrapolate: bool,
    /// The load, if there are many clients.
    pub load: Option<Load>,
}

impl Default for Ask {
    fn default() -> Ask {
        Ask {
            level: 0.95,
            extrapolate: false,
            load: None,
        }
    }
}

/// What a group's results would be on the target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Estimate {
    /// The group.
    pub group: String,
    /// The latency the model predicts, in us.
    pub latency: f64,
    /// Where results will lie; none where no device could be left out.
    pub interval: Option<Interval>,
    /// Figures outside what was measured: this is extrapolation.
    pub outside: Vec<Outside>,
    /// The nearest measured device, and the mean of its results in this group.
    pub nearest: Option<(String, f64)>,
    /// What to rely on.
    pub verdict: Verdict,
    /// How the fit was chosen.
    pub rule: &'static str,
    /// How many figures the data can distinguish, and of how many.
    pub rank: (usize, usize),
    /// With many clients.
    pub queued: Option<Queued>,
}

/// Why there is no estimate.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EstimateError {
    /// The target lacks a figure.
    #[error(
        "{device} has no {regressor}; measure it, give it (--at {regressor}=20us), or name other terms (--terms)"
    )]
    Figure {
        /// The target.
        device: String,
        /// What it lacks.
        regressor: String,
    },
    /// The target is far from everything measured.
    #[error(
        "cannot predict {group} on {device}: {outside}; beyond {FAR} times nothing is predicted without --extrapolate"
    )]
    Far {
        /// The group.
        group: String,
        /// The target.
        device: String,
        /// How far.
        outside: String,
    },
    /// Nothing was fitted.
    #[error("nothing could be fitted: {reasons}")]
    Nothing {
        /// Why.
        reasons: String,
    },
}

/// Estimates every group of `study` on `target`.
///
/// # Errors
/// [`EstimateError`]: a figure is missing, lies too far outside, or no group has a fit.
pub fn estimate(
    data: &Reduced,
    study: &Study,
    target: &Target,
    ask: Ask,
) -> Result<Vec<Estimate>, EstimateError> {
    let form = &study.form;
    let latencies = latencies(form, target)?;
    let mut estimates = Vec::new();
    for (studied, group) in study.groups.iter().zip(Group::all(data, &form.pooled)) {
        let Some(fit) = &studied.fit else { continue };
        let outside: Vec<Outside> = form
            .terms
            .iter()
            .zip(latencies.iter().zip(&fit.hull))
            .filter_map(|(term, (at, hull))| Outside::of(&term.regressor, *at, *hull))
            .collect();
        if let Some(far) = outside.iter().find(|outside| outside.times > FAR)
            && !ask.extrapolate
        {
            return Err(EstimateError::Far {
                group: studied.group.clone(),
                device: target.name.clone(),
                outside: far.sentence(),
            });
        }
        let latency = fit.at(&latencies);
        let among: Vec<&str> = fit.devices.iter().map(String::as_str).collect();
        let points = model::points(data, form, &group, &among);
        let worst = studied.scores.iter().find(|s| s.method == Method::Model);
        let interval = Interval::student(form, fit, &points, &latencies, ask.level)
            .or_else(|| worst.map(|score| Interval::worst_left_out(latency, score.worst)));
        let nearest = judge::nearest(data, form, &latencies, &among);
        let figure = |name: &str| target.figures.get(name).copied();
        let load = ask.load;
        estimates.push(Estimate {
            group: studied.group.clone(),
            latency,
            interval,
            outside,
            nearest: nearest.map(|device| (device.to_owned(), mean_of(&points, device))),
            verdict: studied.verdict,
            rule: fit.rule.sentence(),
            rank: (fit.rank, fit.unknowns),
            queued: load.map(|load| queue::bound(form, fit, latency, load, &figure)),
        });
    }
    match estimates.is_empty() {
        false => Ok(estimates),
        true => {
            let reasons = study.groups.iter().filter_map(|g| g.why_not.as_deref());
            Err(EstimateError::Nothing {
                reasons: reasons.collect::<Vec<_>>().join("; "),
            })
        }
    }
}

/// The figure of each term.
fn latencies(form: &Form, target: &Target) -> Result<Vec<f64>, EstimateError> {
    let latency = |term: &Term| {
        let latency = target.figures.get(&term.regressor).copied();
        latency.ok_or_else(|| EstimateError::Figure {
            device: target.name.clone(),
            regressor: term.regressor.clone(),
        })
    };
    form.terms.iter().map(latency).collect()
}

/// The mean of what was measured on a device.
fn mean_of(points: &[model::Point], device: &str) -> f64 {
    let of = points.iter().filter(|point| point.device == device);
    let of: Vec<f64> = of.map(|point| point.y).collect();
    of.iter().sum::<f64>() / of.len() as f64
}

#[cfg(test)]
mod tests {
    use super::super::data::{DataSet, Reduce};
    use super::*;

    /// Devices with read latencies and results of `50 + 2 read` at two sizes.
    fn data(devices: &[(&str, f64)]) -> Reduced {
        let mut text = String::from("device,regressor,workload,data_gb,metric,value,unit\n");
        for (device, read) in devices {
            text.push_str(&format!("{device},read-4K-latency,,,,{read},us\n"));
            for size in [1, 2] {
                text.push_str(&format!(
                    "{device},,w,{size},read_latency,{},us\n",
                    50.0 + 2.0 * read
                ));
            }
        }
        DataSet::read_csv(text.as_bytes(), "t.csv")
            .unwrap()
            .reduce(Reduce::default())
    }

    fn at(latency: f64) -> Target {
        Target {
            name: "new".to_owned(),
            figures: BTreeMap::from([("read-4K-latency".to_owned(), latency)]),
        }
    }

    fn form() -> Form {
        Form::of(&["read-4K-latency"])
    }

    const THREE: [(&str, f64); 3] = [("a", 10.0), ("b", 60.0), ("c", 200.0)];

    #[test]
    fn a_device_between_the_measured_ones_is_predicted_with_what_supports_it() {
        let data = data(&THREE);
        let study = study(&data, &form()).unwrap();
        let estimates = estimate(&data, &study, &at(100.0), Ask::default()).unwrap();
        assert_eq!(estimates.len(), 1, "sizes are one group");
        let one = &estimates[0];
        assert!((one.latency - 250.0).abs() < 1e-6);
        assert_eq!(one.nearest, Some(("b".to_owned(), 170.0)));
        assert!(one.outside.is_empty());
        assert!(matches!(one.verdict, Verdict::Model { .. }));
        // Three devices: no distribution, the worst left-out error.
        let interval = one.interval.unwrap();
        assert!(matches!(
            interval.basis,
            super::super::interval::Basis::WorstLeftOut { .. }
        ));
    }

    #[test]
    fn outside_the_hull_is_labelled_and_beyond_twice_refused() {
        let data = data(&THREE);
        let study = study(&data, &form()).unwrap();
        let near = estimate(&data, &study, &at(300.0), Ask::default()).unwrap();
        assert_eq!(
            near[0].outside[0].sentence(),
            "read-4K-latency = 300 is 1.5 times above the largest measured, 200"
        );
        let far = estimate(&data, &study, &at(4.0), Ask::default()).unwrap_err();
        assert_eq!(
            far.to_string(),
            "cannot predict w read_latency on new: read-4K-latency = 4 is 2.5 times below the smallest measured, 10; \
             beyond 2 times nothing is predicted without --extrapolate"
        );
        let asked = Ask {
            extrapolate: true,
            ..Ask::default()
        };
        let one = &estimate(&data, &study, &at(4.0), asked).unwrap()[0];
        assert!((one.latency - 58.0).abs() < 1e-6 && one.outside.len() == 1);
    }

    #[test]
    fn a_figure_the_device_lacks_is_asked_for() {
        let data = data(&THREE);
        let study = study(&data, &form()).unwrap();
        let target = Target {
            name: "new".to_owned(),
            figures: BTreeMap::new(),
        };
        assert_eq!(
            estimate(&data, &study, &target, Ask::default())
                .unwrap_err()
                .to_string(),
            "new has no read-4K-latency; measure it, give it (--at read-4K-latency=20us), or name other terms (--terms)"
        );
    }

    #[test]
    fn constant_regressors_and_missing_cells_are_warned_of() {
        let mut text = String::from("device,regressor,workload,data_gb,metric,value,unit\n");
        for device in ["a", "b"] {
            text.push_str(&format!("{device},read-4K-latency,,,,7,us\n"));
        }
        text.push_str("a,,w,1,read_latency,10,us\nb,,w,1,read_latency,12,us\na,,w,2,read_latency,11,us\nc,,w,1,read_latency,9,us\n");
        let data = DataSet::read_csv(text.as_bytes(), "t.csv")
            .unwrap()
            .reduce(Reduce::default());
        let study = study(&data, &form()).unwrap();
        assert_eq!(
            study.warnings,
            [
                "read-4K-latency is 7 us on every device: nothing can be read from it, and its n is 0 unless counted",
                "c has results but no read-4K-latency: it is left aside",
                "w data_gb=2 read_latency was not measured on b, c",
            ]
        );
        assert_eq!(study.groups[0].fit.as_ref().unwrap().counts, [0.0]);
    }

    #[test]
    fn two_devices_only_give_a_fit_that_is_not_recommended() {
        let data = data(&THREE[..2]);
        let study = study(&data, &form()).unwrap();
        let one = &estimate(&data, &study, &at(30.0), Ask::default()).unwrap()[0];
        assert_eq!(one.verdict, Verdict::Unjudged);
        assert_eq!(one.interval, None);
    }
}
