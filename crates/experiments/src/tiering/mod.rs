//! On-the-fly tiering: what do this minute's hot regions gain on the SSD, as published and as ours?
//!
//! ```text
//! workloads (work) x setups (bed) x seeds -> runs, side by side over the cores (watch)
//!     -> samples -> main table, tables 4 and 5 and stated figures beside ours, claims (compare)
//!                -> figures 6 to 9 (page)
//! ```
//!
//! Everything happens in virtual time on the modelled disks of the paper's table 1.
//!
//! Source: AST 4.
//!
//! Always true:
//! 1. Every method of every case has every metric.
//! 2. The same options give the same rows, bit for bit, on however many cores.

mod bed;
mod claims;
mod compare;
mod heldout;
mod intensity;
mod listing;
mod page;
mod runs;
mod stated;
#[cfg(test)]
mod tests;
pub mod traces;
mod watch;
mod work;

use base::Nanos;
use report::Row;

use crate::experiment::journal::Journal;
use crate::experiment::{ExperimentError, Options, Progress, Results};
use bed::PLACED;
pub use bed::methods;
pub use listing::LISTING;
pub use runs::METRICS;
use runs::{Run, Samples, measure};
use work::{CASES, Workload};

/// A short run's part of each window.
const QUICK: Nanos = Nanos::secs(5 * 60);
/// Of what stands beside the two windows, a short run takes so much less.
const BESIDE: u64 = 10;
/// A short run's requests of each further trace.
const QUICK_REQUESTS: u64 = 10_000;
/// Seeds of a full run: they place the platters. One takes a quarter of an hour on two cores.
const SEEDS: u64 = 1;

/// The cases, in the order of the tables.
pub fn cases() -> [&'static str; 2] {
    CASES.map(|case| case.name)
}

/// How much is run.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Of each window at most this.
    at_most: Option<Nanos>,
    seeds: u64,
    /// So many regions static tiering places.
    placed: usize,
}

/// The workloads; `placed` regions of each are the busiest.
fn load(
    options: Options<'_>,
    at_most: Option<Nanos>,
    placed: usize,
) -> Result<Vec<Workload>, ExperimentError> {
    let mut workloads = Vec::new();
    for case in CASES.iter().filter(|case| options.part.has_case(case.name)) {
        let mut workload = case.load(options.seed, options.msr, at_most)?;
        workload.busiest.truncate(placed);
        workloads.push(workload);
    }
    Ok(workloads)
}

impl Plan {
    fn of(options: Options<'_>) -> Plan {
        match options.quick {
            true => Plan {
                at_most: Some(QUICK),
                seeds: 1,
                placed: PLACED,
            },
            false => Plan {
                at_most: None,
                seeds: SEEDS,
                placed: PLACED,
            },
        }
    }
}

/// Runs the experiment.
///
/// # Errors
/// [`ExperimentError`], naming case and method, or what is wrong with a recorded trace.
///
/// # Source
/// AST 4.1-4.3, tables 4 and 5, figures 6-9.
pub fn run(options: Options<'_>, progress: &mut Progress<'_>) -> Result<Results, ExperimentError> {
    run_plan(options, Plan::of(options), progress)
}

/// The cases that `--cases` may name.
fn all_cases(options: &Options<'_>) -> Vec<&'static str> {
    let beside = heldout::cases().into_iter().chain(intensity::cases());
    let recorded = options.traces.map(|_| traces::CASE);
    cases().into_iter().chain(beside).chain(recorded).collect()
}

fn run_plan(
    options: Options<'_>,
    plan: Plan,
    progress: &mut Progress<'_>,
) -> Result<Results, ExperimentError> {
    let part = options.part;
    part.check(&all_cases(&options), &methods())?;
    progress("reading the workloads", 0.0);
    let workloads = load(options, plan.at_most, plan.placed)?;
    let mut setups = bed::setups();
    setups.retain(|setup| setup.methods.iter().any(|method| part.has_method(method)));
    let mut journal = Journal::open(LISTING.name, &options)?;
    let mut runs = Vec::new();
    for seed in options.seed..options.seed + plan.seeds {
        for workload in &workloads {
            runs.extend(setups.iter().map(|setup| Run {
                workload,
                setup,
                seed,
            }));
        }
    }
    let mut samples = Samples::new();
    measure(runs, &mut samples, &mut journal, &mut |what, done| {
        progress(what, 0.3 * done)
    })?;
    let comparison = compare::Comparison {
        workloads: &workloads,
        samples: &samples,
        short: plan.at_most.is_some(),
    };
    let mut rows: Vec<Row> = comparison.main_table();
    let mut figures = page::sections(&workloads, &samples);
    if part.is_whole() {
        rows.extend(comparison.published());
        rows.extend(comparison.stated());
        rows.extend(comparison.claims());
    } else {
        rows.retain(|row| part.has(&row.case, &row.method));
    }
    if options.msr.is_none() {
        let at_most = plan.at_most.map(|it| Nanos(it.0 / BESIDE));
        let mut on = |what: &str, done: f64| progress(what, 0.3 + 0.4 * done);
        rows.extend(heldout::run(&options, at_most, &mut journal, &mut on)?);
        let mut on = |what: &str, done: f64| progress(what, 0.7 + 0.2 * done);
        let (beside, section) = intensity::run(&options, at_most, &mut journal, &mut on)?;
        rows.extend(beside);
        figures.push(section);
    }
    if let Some(folder) = options.traces.filter(|_| traces::asked(part)) {
        let limit = options.quick.then_some(QUICK_REQUESTS);
        let mut on = |what: &str, done: f64| progress(what, 0.9 + 0.1 * done);
        let compared = traces::compare_on(folder, limit, options.seed, &mut journal, &mut on)?;
        rows.extend(traces::rows(&compared, part, limit.is_some()));
    }
    progress("done", 1.0);
    Ok(Results { rows, figures })
}
