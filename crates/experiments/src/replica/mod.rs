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
mod compare;
mod disks;
mod page;
pub mod product;
#[cfg(test)]
mod tests;

use base::Nanos;
use rayon::prelude::*;
use report::Row;

use crate::experiment::{ExperimentError, Listing, Options, Progress, Results};
use bed::{BedError, Outcome};
use cases::Cell;

/// The experiment, for listings.
pub const LISTING: Listing = Listing {
    name: "replica",
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
    let plan = Plan::of(options);
    let measured = measure(&plan, cases::all(), progress)?;
    let mut rows = compare::rows(&measured);
    rows.extend(compare::statements(&measured));
    rows.extend(compare::claims(&measured));
    progress("done", 1.0);
    Ok(Results {
        figures: page::sections(&measured),
        rows,
    })
}

/// Every cell with every seed. Methods that do not listen to multicasts are run once for all T.
fn measure(
    plan: &Plan,
    cells: Vec<Cell>,
    progress: &mut Progress<'_>,
) -> Result<Vec<Measured>, ExperimentError> {
    let mut run: Vec<&Cell> = Vec::new();
    for cell in &cells {
        if !run.iter().any(|other| other.same_run(cell)) {
            run.push(cell);
        }
    }
    let mut measured: Vec<Measured> = cells.iter().map(Measured::nothing_yet).collect();
    // A handful at a time, so that progress can be reported.
    let handful = 4 * rayon::current_num_threads();
    for (n, some) in run.chunks(handful).enumerate() {
        let share = (n * handful) as f64 / run.len() as f64;
        progress(&some[0].case, share);
        let jobs: Vec<(&Cell, u64)> = some
            .iter()
            .flat_map(|cell| (0..plan.seeds).map(move |n| (*cell, plan.seed.wrapping_add(n))))
            .collect();
        let figures: Vec<Result<CellValues, BedError>> = jobs
            .par_iter()
            .map(|(cell, seed)| {
                bed::run(&cell.scene, &cell.method, cell.age, plan.measured, *seed)
                    .map(|outcome| cell_values(&cells, cell, &outcome))
            })
            .collect();
        for ((cell, _), of_job) in jobs.iter().zip(figures) {
            for (at, values) in of_job.map_err(|error| failed(cell, error))? {
                measured[at].add(values);
            }
        }
    }
    Ok(measured)
}

/// What a run is worth to each cell that takes its values from it: the cell, and a value of each of its metrics.
type CellValues = Vec<(usize, Vec<f64>)>;

/// A run's histograms take megabytes, its figures some bytes: what is kept of thousands of runs are the figures.
fn cell_values(cells: &[Cell], ran: &Cell, outcome: &Outcome) -> CellValues {
    let takes = cells.iter().enumerate().filter(|(_, it)| it.same_run(ran));
    takes
        .map(|(at, cell)| (at, cell.metrics.iter().map(|it| it.of(outcome)).collect()))
        .collect()
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

/// A row; all disks are modelled.
fn row(table: &str, case: &str, method: &str, metric: &str, unit: &str, ours: Option<f64>) -> Row {
    Row::modelled(LISTING.name, table, case, method, metric, unit).measured(ours)
}
