//! The same questions on the product's own path: volumes, links, stores and their queues.
//!
//! ```text
//! cases (scenes) x methods x seeds, tuned and held out -> runs (bed: nodes, their policies and disks) -> rows, claims (claims)
//! ```
//!
//! Always true:
//! 1. All methods of a case see the same layouts and the same questions, seed by seed.
//! 2. What is held out has seeds and cases of its own.

mod bed;
mod chooser;
mod claims;
mod disk;
mod node;
mod scenes;
#[cfg(test)]
mod tests;

use base::Nanos;
use policy::place::Kind;
use report::{Evidence, Row};

use super::common::estimate::estimate;
use super::common::loads::Outcome;
use super::common::{NAME, row};
use crate::experiment::jobs::{Job, side_by_side};
use crate::experiment::journal::Journal;
use crate::experiment::{ExperimentError, Options, Part, Progress};
use scenes::{ProductCase, ProductMethod};

/// Seeds that were looked at while anything was chosen, and those that were not, lie so far apart. Up to 210 all were.
const HELD_OUT: u64 = 300;

/// How much is run.
#[derive(Debug, Clone, Copy)]
pub struct ProductPlan {
    /// How long each run is measured.
    pub measured: Nanos,
    /// The first seed.
    pub seed: u64,
    /// So many of each case.
    pub seeds: u64,
    /// Extents of 4 MiB of each image.
    pub extents: u64,
}

impl ProductPlan {
    /// 4 s of ten seeds; a short run has the same rows of a fraction of a second each.
    pub fn of(options: Options<'_>) -> ProductPlan {
        let (measured, seeds, extents) = match options.quick {
            true => (Nanos::millis(200), 1, 4),
            false => (Nanos::secs(4), 10, 32),
        };
        ProductPlan {
            measured,
            seed: options.seed,
            seeds,
            extents,
        }
    }
}

/// What a method's runs of a case gave: for each metric a value of each seed.
struct Runs {
    case: ProductCase,
    method: ProductMethod,
    values: Vec<Vec<f64>>,
}

/// The names of all cases.
pub(super) fn case_names() -> Vec<String> {
    scenes::cases().into_iter().map(|it| it.name).collect()
}

/// The names of all methods.
pub(super) fn method_names() -> Vec<&'static str> {
    scenes::methods().iter().map(|it| it.name).collect()
}

/// Runs the product's path alone.
///
/// # Errors
/// As for the whole experiment.
pub fn run(
    plan: &ProductPlan,
    options: Options<'_>,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, ExperimentError> {
    let mut journal = Journal::open(NAME, &options)?;
    rows(plan, options.part, &mut journal, progress)
}

/// Runs every case of `part` with every method, and judges them if nothing is left out.
///
/// # Errors
/// [`ExperimentError::Machine`] if a node or a volume cannot be made, or a read fails; those of the journal.
///
/// # Source
/// COST 4.3, 4.4.
pub(super) fn rows(
    plan: &ProductPlan,
    part: Part<'_>,
    journal: &mut Journal,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, ExperimentError> {
    let mut all: Vec<Runs> = Vec::new();
    for case in scenes::cases() {
        for method in scenes::methods() {
            if part.has(&case.name, method.name) {
                all.push(Runs {
                    case: case.clone(),
                    method,
                    values: vec![Vec::new(); case.metrics.len()],
                });
            }
        }
    }
    measure(&mut all, plan, journal, progress)?;
    let mut rows: Vec<Row> = all.iter().flat_map(Runs::rows).collect();
    if part.is_whole() {
        rows.extend(claims::claims(&all));
    }
    Ok(rows)
}

/// Every run, side by side over the cores; what one method's run is to two ages is done once.
fn measure(
    all: &mut [Runs],
    plan: &ProductPlan,
    journal: &mut Journal,
    progress: &mut Progress<'_>,
) -> Result<(), ExperimentError> {
    let same = |at: usize| (0..at).find(|before| all[*before].same_run(&all[at]));
    let same: Vec<Option<usize>> = (0..all.len()).map(same).collect();
    let ran = (0..all.len()).filter(|at| same[*at].is_none());
    let ran: Vec<(usize, u64)> = ran
        .flat_map(|at| (0..plan.seeds).map(move |nth| (at, nth)))
        .collect();
    let jobs: Vec<Job<'_, Vec<f64>>> = ran
        .iter()
        .map(|(at, nth)| {
            let (runs, nth) = (&all[*at], *nth);
            let (case, method) = (&runs.case.name, runs.method.name);
            Job::new(format!("product {case} {method} {nth}"), move || {
                runs.run(plan, nth)
            })
        })
        .collect();
    let done = side_by_side(&jobs, journal, progress)?;
    drop(jobs);
    for ((at, _), values) in ran.iter().zip(done) {
        for (all, value) in all[*at].values.iter_mut().zip(values) {
            all.push(value);
        }
    }
    for (at, before) in same.into_iter().enumerate() {
        if let Some(before) = before {
            all[at].values = all[before].values.clone();
        }
    }
    Ok(())
}

impl Runs {
    /// Would a run of the one be a run of the other? T is nothing to a method that hears no reports.
    fn same_run(&self, other: &Runs) -> bool {
        self.method == other.method
            && self.case.scene == other.case.scene
            && (self.case.age == other.case.age || !node::hears(self.method.kind))
    }

    /// The metrics of one run.
    fn run(&self, plan: &ProductPlan, nth: u64) -> Result<Vec<f64>, ExperimentError> {
        let first = match self.case.held_out {
            true => plan.seed.wrapping_add(HELD_OUT),
            false => plan.seed,
        };
        let (scene, age) = (&self.case.scene, self.case.age);
        let outcome: Result<Outcome, String> = bed::run(
            scene,
            &self.method,
            age,
            (plan.measured, plan.extents),
            first.wrapping_add(nth),
        );
        let outcome = outcome.map_err(|why| ExperimentError::Machine {
            experiment: NAME,
            why: format!("{} of {}: {why}", self.case.name, self.method.name),
        })?;
        let metrics = self.case.metrics.iter();
        Ok(metrics.map(|it| it.of(&outcome)).collect())
    }

    /// The values of a metric.
    fn of(&self, metric: &str) -> Option<&[f64]> {
        let at = self.case.metrics.iter().position(|it| it.name == metric)?;
        Some(&self.values[at])
    }

    fn rows(&self) -> Vec<Row> {
        let table = self.case.topic.table();
        let metrics = self.case.metrics.iter().zip(&self.values);
        metrics
            .map(|(metric, values)| {
                let (case, method) = (&self.case.name, self.method.name);
                let of = estimate(values);
                row(table, case, method, metric.name, metric.unit, Some(of.mean))
                    .between(Some(of.low), Some(of.high))
                    .evidence(evidence_of(&self.case, &self.method))
            })
            .collect()
    }
}

/// What the figures of a method in a case rest on: ours was made on the tuned ones.
fn evidence_of(case: &ProductCase, method: &ProductMethod) -> Evidence {
    match (case.held_out, method.kind) {
        (true, _) => Evidence::HeldOut,
        (false, Kind::Tanada) => Evidence::Calibrated,
        (false, _) => Evidence::Measured,
    }
}
