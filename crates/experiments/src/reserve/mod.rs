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
mod real;
mod scenes;
mod single;
#[cfg(test)]
mod tests;
mod vertex;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use base::{Instant, Nanos};
use policy::share::{BytesPerSec, Direction, Terms};
use report::Row;

use crate::experiment::{ExperimentError, Listing, Options, Progress, Results};
use bed::{Client, Method};
use vertex::Times;

/// The experiment, for listings.
pub const LISTING: Listing = Listing {
    name: "reserve",
    paper: "PROBS",
    about: "promised MB/s: the overhead each scheduler needs for its promises to hold, published and ours",
};

/// How much is run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// How long all accesses are there together.
    together: Nanos,
    /// The same of the runs behind figures 3 to 5.
    figures: Nanos,
    seed: u64,
    seeds: u64,
    /// Overheads that are tried, in percent.
    step: f64,
}

impl Plan {
    fn of(options: Options<'_>) -> Plan {
        let plan = Plan {
            together: Nanos::secs(40),
            figures: Nanos::secs(40),
            seed: options.seed,
            seeds: 2,
            step: 0.5,
        };
        match options.quick {
            true => Plan {
                together: Nanos::secs(6),
                figures: Nanos::secs(10),
                seeds: 1,
                step: 1.0,
                ..plan
            },
            false => plan,
        }
    }

    fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        let seed = self.seed;
        (0..self.seeds).map(move |n| seed.wrapping_add(n))
    }

    /// Until when, if the last access comes after two seconds.
    fn end(&self) -> Instant {
        Instant(0) + Nanos::secs(2) + self.together
    }
}

/// What a single access gets through the store, one request at a time: what overheads are parts of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base {
    read: BytesPerSec,
    write: BytesPerSec,
}

impl Base {
    fn measure(plan: &Plan) -> Base {
        let of = |direction| {
            let terms = Terms::reserved(direction, BytesPerSec::mb(100));
            let client = Client::new(terms, Instant(0));
            let end = Instant(0) + plan.figures;
            let all = plan.seeds().map(|seed| {
                bed::run(&Method::rounds(64), Times::STORE, &[client], end, seed)
                    .total()
                    .0
            });
            BytesPerSec(all.sum::<u64>() / plan.seeds)
        };
        Base {
            read: of(Direction::Read),
            write: of(Direction::Write),
        }
    }

    fn of(&self, direction: Direction) -> BytesPerSec {
        match direction {
            Direction::Read => self.read,
            Direction::Write => self.write,
        }
    }
}

/// Rows, and what the report draws of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    rows: Vec<Row>,
    curves: Vec<page::Curve>,
}

/// One piece of work: its name for the progress, and what it does.
type Job<'a> = (String, Box<dyn Fn() -> Found + Send + Sync + 'a>);

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
    let base = Base::measure(&plan);
    let mut jobs: Vec<Job<'_>> = Vec::new();
    // The longest first, or they would be waited for at the end.
    jobs.extend(needed::jobs(&plan, &base));
    jobs.extend(single::jobs(&plan, &base));
    jobs.extend(scenes::jobs(&plan, &base));
    jobs.extend(coverage::jobs(&plan, &base));
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

/// All jobs over the cores, their answers in the order of the jobs; progress is reported in this thread.
fn side_by_side(jobs: &[Job<'_>], progress: &mut Progress<'_>) -> Vec<Found> {
    let (sender, receiver) = mpsc::channel();
    let next = AtomicUsize::new(0);
    let next = &next;
    let mut answers: Vec<Option<Found>> = jobs.iter().map(|_| None).collect();
    rayon::in_place_scope(|scope| {
        for _ in 0..rayon::current_num_threads() {
            let sender = sender.clone();
            scope.spawn(move |_| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some((_, job)) = jobs.get(at) else { return };
                    if sender.send((at, job())).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut done = 0;
        while let Ok((at, found)) = receiver.recv() {
            done += 1;
            progress(&jobs[at].0, f64::from(done) / jobs.len() as f64);
            answers[at] = Some(found);
        }
    });
    let answers = answers.into_iter();
    answers
        .map(|found| found.expect("every job was done"))
        .collect()
}

/// A row; the device is modelled.
fn row(table: &str, case: &str, method: &str, metric: &str, unit: &str, ours: Option<f64>) -> Row {
    Row::modelled(LISTING.name, table, case, method, metric, unit).measured(ours)
}

/// In the paper's unit.
fn mb(rate: BytesPerSec) -> f64 {
    rate.0 as f64 / 1e6
}

/// Mean and standard deviation.
fn spread(values: &[f64]) -> (f64, f64) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / n;
    (mean, variance.sqrt())
}
