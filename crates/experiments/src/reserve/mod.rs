//! Reserved throughput: how much of a device must stay unpromised for the promises to hold, as published and as ours?
//!
//! ```text
//! table 2 -> modelled device (vertex) under the production queue (bed) -> runs, side by side over the cores
//!     -> overhead needed by number of accesses, window and target (needed) -> rows beside the paper's, claims (compare)
//!     -> the same of mixes that nothing was chosen on (heldout)
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
mod heldout;
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

use crate::experiment::jobs::{Job, side_by_side};
use crate::experiment::journal::Journal;
use crate::experiment::{ExperimentError, Listing, Options, Progress, Results};
use plan::{Found, Plan};

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
        options.part.check(&[], &[])?;
        return real::run(&plan, place, &options, progress);
    }
    let held_out = heldout::plan(&plan);
    progress("a single access", 0.0);
    let base = single::access(&plan);
    // The longest first, or they would be waited for at the end.
    let mut pieces = needed::pieces(&plan, &base);
    pieces.extend(single::pieces(&plan, &base));
    pieces.extend(scenes::pieces(&plan, &base));
    pieces.extend(coverage::pieces(&plan, &base));
    pieces.extend(switches::pieces(&plan));
    pieces.extend(heldout::pieces(&held_out));
    let part = options.part;
    part.check(
        &different(pieces.iter().map(|piece| piece.table)),
        &different(pieces.iter().filter_map(|piece| piece.method)),
    )?;
    pieces.retain(|piece| {
        part.has_case(piece.table) && piece.method.is_none_or(|method| part.has_method(method))
    });
    let jobs: Vec<Job<'_, Found>> = pieces.into_iter().map(|piece| piece.job).collect();
    let mut journal = Journal::open(LISTING.name, &options)?;
    let found = side_by_side(&jobs, &mut journal, progress)?;
    let mut rows: Vec<Row> = Vec::new();
    let mut curves = Vec::new();
    for found in found {
        rows.extend(found.rows);
        curves.extend(found.curves);
    }
    rows.sort_by_key(|row| compare::place(&row.table));
    if part.is_whole() {
        rows.extend(compare::stated(&rows));
        rows.extend(compare::claims(&rows));
        rows.extend(heldout::claims(&rows));
    } else {
        // What several methods have together.
        rows.retain(|row| part.has_method(&row.method));
    }
    progress("done", 1.0);
    Ok(Results {
        figures: page::sections(&curves),
        rows,
    })
}

/// Each of `names` once, as they first appear.
fn different(names: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let mut all = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}
