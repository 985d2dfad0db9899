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
use rayon::prelude::*;
use report::{Evidence, Row};

use super::bed::Outcome;
use super::compare::estimate;
use super::row;
use crate::experiment::{ExperimentError, Part, Progress};
use scenes::{ProductCase, ProductMethod};

/// Seeds that were looked at while anything was chosen, and those that were not, lie so far apart.
const HELD_OUT: u64 = 100;

/// How much is run.
#[derive(Debug, Clone, Copy)]
pub struct ProductPlan {
    /// How long each run is measured.
    pub measured: Nanos,
    /// The first seed.
    pub seed: u64,
    /// So many of each case.
    pub seeds: u64,
}

/// What a method's runs of a case gave: for each metric a value of each seed.
struct Runs {
    case: ProductCase,
    method: ProductMethod,
    values: Vec<Vec<f64>>,
}

/// Runs every case of `part` with every method, and judges them if nothing is left out.
///
/// # Errors
/// [`ExperimentError::Machine`] if a node or a volume cannot be made, or a read fails.
///
/// # Source
/// COST 4.3, 4.4.
pub fn run(
    plan: &ProductPlan,
    part: Part<'_>,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, ExperimentError> {
    let all = measure(plan, part, progress)?;
    let mut rows: Vec<Row> = all.iter().flat_map(Runs::rows).collect();
    if part.is_whole() {
        rows.extend(claims::claims(&all));
    }
    Ok(rows)
}

/// Every run, side by side over the cores.
fn measure(
    plan: &ProductPlan,
    part: Part<'_>,
    progress: &mut Progress<'_>,
) -> Result<Vec<Runs>, ExperimentError> {
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
    let same = |at: usize| (0..at).find(|before| all[*before].same_run(&all[at]));
    let same: Vec<Option<usize>> = (0..all.len()).map(same).collect();
    let count = all.len();
    // A handful at a time, so that progress can be reported.
    for (at, some) in all.chunks_mut(4).enumerate() {
        progress(&some[0].case.name, (4 * at) as f64 / count as f64);
        let jobs: Vec<(usize, u64)> = (0..some.len())
            .filter(|nth| same[4 * at + nth].is_none())
            .flat_map(|nth| (0..plan.seeds).map(move |seed| (nth, seed)))
            .collect();
        let done: Vec<Result<Vec<f64>, ExperimentError>> = jobs
            .par_iter()
            .map(|(nth, seed)| some[*nth].run(plan, *seed))
            .collect();
        for ((nth, _), values) in jobs.iter().zip(done) {
            for (all, value) in some[*nth].values.iter_mut().zip(values?) {
                all.push(value);
            }
        }
    }
    for (at, before) in same.into_iter().enumerate() {
        if let Some(before) = before {
            all[at].values = all[before].values.clone();
        }
    }
    Ok(all)
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
            plan.measured,
            first.wrapping_add(nth),
        );
        let outcome = outcome.map_err(|why| ExperimentError::Machine {
            experiment: super::LISTING.name,
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
                    .evidence(evidence_of(&self.case))
            })
            .collect()
    }
}

/// What a case's figures rest on.
fn evidence_of(case: &ProductCase) -> Evidence {
    match case.held_out {
        true => Evidence::HeldOut,
        false => Evidence::Measured,
    }
}
