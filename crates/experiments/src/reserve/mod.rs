//! Reserved throughput: how much of a device must stay unpromised for the promises to hold, as published and as ours?
//!
//! ```text
//! table 2 -> modelled device (vertex) under the production queue (bed) -> runs, side by side over the cores
//!     -> overhead needed by number of accesses, window and target (needed) -> rows beside the paper's, claims (compare)
//!     -> newcomers, idle, greedy, scrub, bursts, both directions (scenes)  -> figures 3 to 6 (page)
//! ```
//!
//! Everything happens in virtual time; but given a place for a file, some of it in real time on that (real).
//!
//! Source: PROBS 4, tables 1 and 2, figures 3-6.
//!
//! Always true:
//! 1. Every method of every case has every metric.
//! 2. The same options give the same rows, bit for bit, on however many cores.

mod bed;
mod compare;
mod coverage;
mod needed;
mod page;
mod plan;
mod real;
mod real_rows;
mod scenes;
mod single;
mod switches;
#[cfg(test)]
mod tests;
mod vertex;

use report::Row;

use crate::experiment::{ExperimentError, Listing, Options, Progress, Results};
use plan::{Job, Plan, side_by_side};

/// The experiment, for listings.
pub const LISTING: Listing = Listing {
    name: plan::NAME,
    paper: "PROBS",
    about: "promised MB/s: the overhead each scheduler needs for its promises to hold, published and ours",
};

/// Runs the experiment.
///
/// # Errors
/// [`ExperimentError::Place`] and [`ExperimentError::Failed`] in real time; in virtual time none: nothing is read and
/// nothing can be refused.
///
/// # Source
/// PROBS 4.1, 4.2, table 2, figures 3-6.
pub fn run(options: Options<'_>, progress: &mut Progress<'_>) -> Result<Results, ExperimentError> {
    let plan = Plan::of(options);
    if let Some(place) = options.real {
        return real::run(&plan, place, progress);
    }
    progress("a single access", 0.0);
    let base = single::access(&plan);
    let mut jobs: Vec<Job<'_>> = Vec::new();
    // The longest first, or they would be waited for at the end.
    jobs.extend(needed::jobs(&plan, &base));
    jobs.extend(single::jobs(&plan, &base));
    jobs.extend(scenes::jobs(&plan, &base));
    jobs.extend(coverage::jobs(&plan, &base));
    jobs.extend(switches::jobs(&plan));
    let found = side_by_side(&jobs, progress);
    let mut rows: Vec<Row> = Vec::new();
    let mut curves = Vec::new();
    for found in found {
        rows.extend(found.rows);
        curves.extend(found.curves);
    }
    rows.sort_by_key(|row| compare::place(&row.table));
    rows.extend(compare::stated(&rows));
    rows.extend(compare::claims(&rows));
    progress("done", 1.0);
    Ok(Results {
        figures: page::sections(&curves),
        rows,
    })
}
