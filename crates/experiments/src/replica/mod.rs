//! Replica choice: which disk should a client ask, when queues are known late, disks differ and clients matter differently?
//!
//! ```text
//! cases (cases) x methods x states as old as T x seeds -> runs, side by side over the cores (bed)
//!     -> means with bootstrap intervals, differences paired by seed (compare) -> rows, statements, claims -> figures 4 to 6 (page)
//! ```
//!
//! The choices are those that virtual disks make: `vdisk::replica::choice` over `policy::place`, in virtual time.
//!
//! Source: COST 4, figures 4-6.
//!
//! Always true:
//! 1. Every method of every case has every metric of that case.
//! 2. The same options give the same rows, bit for bit, on however many cores.
//! 3. All methods of a case see the same layouts and the same questions, seed by seed.

mod bed;
mod cases;
mod common;
mod compare;
mod disks;
mod message_cost;
mod messages;
mod page;
pub mod product;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use base::Nanos;

use crate::experiment::jobs::{Job, side_by_side};
use crate::experiment::journal::Journal;
use crate::experiment::{ExperimentError, Listing, Options, Part, Progress, Results};
use bed::BedError;
use cases::Cell;
use common::loads::Outcome;
use product::ProductPlan;

/// The experiment, for listings.
pub const LISTING: Listing = Listing {
    name: common::NAME,
    paper: "COST",
    about: "which copy is read: queue cost as published, ours and others, by the age of what is known",
};

/// How much is run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// How long each run is measured.
    measured: Nanos,
    seed: u64,
    seeds: u64,
}

impl Plan {
    fn of(options: Options<'_>) -> Plan {
        let (measured, seeds) = match options.quick {
            true => (Nanos::secs(1), 2),
            false => (Nanos::secs(10), 20),
        };
        Plan {
            measured,
            seed: options.seed,
            seeds,
        }
    }
}

/// What a cell's runs gave: for each metric a value of each seed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    cell: Cell,
    /// In the order of the cell's metrics.
    values: Vec<Vec<f64>>,
}

/// Runs the experiment.
///
/// # Errors
/// [`ExperimentError::Model`] or [`ExperimentError::Device`] if a modelled disk cannot be made or fails.
///
/// # Source
/// COST 4.3, 4.4, figures 4-6.
pub fn run(options: Options<'_>, progress: &mut Progress<'_>) -> Result<Results, ExperimentError> {
    let (plan, part) = (Plan::of(options), options.part);
    let mut cells = cases::all();
    check(part, &cells)?;
    cells.retain(|cell| part.has(&cell.case, cell.method.name));
    let mut journal = Journal::open(LISTING.name, &options)?;
    let measured = measure(&plan, cells, &mut journal, progress)?;
    let mut rows = compare::rows(&measured);
    let mut figures = Vec::new();
    if part.is_whole() {
        rows.extend(compare::statements(&measured));
        rows.extend(compare::claims(&measured));
        figures = page::sections(&measured);
    }
    let product = ProductPlan::of(options);
    rows.extend(product::rows(&product, part, &mut journal, progress)?);
    progress("done", 1.0);
    Ok(Results { figures, rows })
}

/// Refuses names of cases and methods that there are not.
fn check(part: Part<'_>, cells: &[Cell]) -> Result<(), ExperimentError> {
    let of_product = product::case_names();
    let cases = cells.iter().map(|it| &it.case).chain(&of_product);
    let cases: BTreeSet<&str> = cases.map(String::as_str).collect();
    let methods = cells.iter().map(|it| it.method.name);
    let methods: BTreeSet<&str> = methods.chain(product::method_names()).collect();
    let listed = |names: BTreeSet<&'_ str>| names.into_iter().map(str::to_owned).collect();
    let (cases, methods): (Vec<String>, Vec<String>) = (listed(cases), listed(methods));
    fn all(names: &[String]) -> Vec<&str> {
        names.iter().map(String::as_str).collect()
    }
    part.check(&all(&cases), &all(&methods))
}

/// Every cell with every seed. Methods that do not listen to multicasts are run once for all T.
fn measure(
    plan: &Plan,
    cells: Vec<Cell>,
    journal: &mut Journal,
    progress: &mut Progress<'_>,
) -> Result<Vec<Measured>, ExperimentError> {
    let mut run: Vec<&Cell> = Vec::new();
    for cell in &cells {
        if !run.iter().any(|other| other.same_run(cell)) {
            run.push(cell);
        }
    }
    let runs = run.into_iter().map(|cell| Run::of(cell, &cells));
    let mut ran: Vec<(Run<'_>, u64)> = Vec::new();
    for run in runs {
        ran.extend((0..plan.seeds).map(|nth| (run.clone(), plan.seed.wrapping_add(nth))));
    }
    let jobs: Vec<Job<'_, Vec<Vec<f64>>>> = ran
        .iter()
        .map(|(run, seed)| {
            let (cells, seed) = (&cells, *seed);
            Job::new(run.name(cells, seed), move || {
                let cell = run.cell;
                let ran = bed::run(&cell.scene, &cell.method, cell.age, plan.measured, seed);
                let outcome = ran.map_err(|error| failed(cell, error))?;
                Ok(run.values(cells, &outcome))
            })
        })
        .collect();
    let done = side_by_side(&jobs, journal, progress)?;
    drop(jobs);
    let mut measured: Vec<Measured> = cells.iter().map(Measured::nothing_yet).collect();
    for ((run, _), gave) in ran.iter().zip(done) {
        for (at, values) in run.takers.iter().zip(gave) {
            measured[*at].add(values);
        }
    }
    Ok(measured)
}

/// A cell that is run, and all that take their values from its runs.
#[derive(Clone)]
struct Run<'a> {
    cell: &'a Cell,
    /// Where these are among the cells of the experiment, or of the part that is run.
    takers: Vec<usize>,
}

impl Run<'_> {
    fn of<'a>(cell: &'a Cell, cells: &[Cell]) -> Run<'a> {
        let all = cells.iter().enumerate();
        let takers = all.filter(|(_, it)| it.same_run(cell)).map(|(at, _)| at);
        Run {
            cell,
            takers: takers.collect(),
        }
    }

    /// In a journal: a run that others take from is another job, as where another part of the experiment was run.
    fn name(&self, cells: &[Cell], seed: u64) -> String {
        let names = self.takers.iter().map(|at| {
            let cell = &cells[*at];
            format!("{} {} {}", cell.family.name(), cell.case, cell.method.name)
        });
        let all = names.collect::<Vec<_>>().join(", ");
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, all.as_bytes());
        let (case, method) = (&self.cell.case, self.cell.method.name);
        format!("{case} {method} {seed}, for {sum:08x}")
    }

    /// A run's histograms take megabytes, its figures some bytes: what is kept of thousands of runs are the figures of each cell.
    fn values(&self, cells: &[Cell], outcome: &Outcome) -> Vec<Vec<f64>> {
        let metrics = self.takers.iter().map(|at| &cells[*at].metrics);
        metrics
            .map(|metrics| metrics.iter().map(|it| it.of(outcome)).collect())
            .collect()
    }
}

impl Measured {
    fn nothing_yet(cell: &Cell) -> Measured {
        Measured {
            cell: cell.clone(),
            values: vec![Vec::new(); cell.metrics.len()],
        }
    }

    /// One more seed.
    fn add(&mut self, values: Vec<f64>) {
        for (all, value) in self.values.iter_mut().zip(values) {
            all.push(value);
        }
    }
}

fn failed(cell: &Cell, error: BedError) -> ExperimentError {
    let (case, method) = (cell.family.name(), cell.method.name);
    match error {
        BedError::Model(source) => ExperimentError::Model {
            case,
            method,
            source: Box::new(source),
        },
        BedError::Device(source) => ExperimentError::Device {
            case,
            method,
            source: Box::new(source),
        },
    }
}
