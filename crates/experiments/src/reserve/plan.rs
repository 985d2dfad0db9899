//! What is run, and what a run gives: the plan, the jobs, and how they are done side by side.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use base::{Instant, Nanos};
use policy::share::{BytesPerSec, Direction};
use report::Row;

use super::page::Curve;
use super::vertex::Times;
use crate::experiment::{Options, Progress};

/// The name of the experiment.
pub(super) const NAME: &str = "reserve";

/// How much is run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// How long all accesses are there together.
    pub(super) together: Nanos,
    /// The same of the runs behind figures 3 to 5.
    pub(super) figures: Nanos,
    pub(super) seed: u64,
    pub(super) seeds: u64,
    /// Overheads that are tried, in percent.
    pub(super) step: f64,
    /// The modelled device, under the store.
    pub(super) times: Times,
}

impl Plan {
    pub(super) fn of(options: Options<'_>) -> Plan {
        let plan = Plan {
            together: Nanos::secs(40),
            figures: Nanos::secs(40),
            seed: options.seed,
            seeds: 2,
            step: 0.5,
            times: Times::STORE,
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

    pub(super) fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        let seed = self.seed;
        (0..self.seeds).map(move |n| seed.wrapping_add(n))
    }

    /// Until when, if the last access comes after two seconds.
    pub(super) fn end(&self) -> Instant {
        Instant(0) + Nanos::secs(2) + self.together
    }
}

/// What a single access gets through the store, one request at a time: what overheads are parts of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base {
    pub(super) read: BytesPerSec,
    pub(super) write: BytesPerSec,
}

impl Base {
    pub(super) fn of(&self, direction: Direction) -> BytesPerSec {
        match direction {
            Direction::Read => self.read,
            Direction::Write => self.write,
        }
    }
}

/// Rows, and what the report draws of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    pub(super) rows: Vec<Row>,
    pub(super) curves: Vec<Curve>,
}

/// One piece of work: its name for the progress, and what it does.
pub(super) type Job<'a> = (String, Box<dyn Fn() -> Found + Send + Sync + 'a>);

/// All jobs over the cores, their answers in the order of the jobs; progress is reported in this thread.
pub(super) fn side_by_side(jobs: &[Job<'_>], progress: &mut Progress<'_>) -> Vec<Found> {
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
pub(super) fn row(
    table: &str,
    case: &str,
    method: &str,
    metric: &str,
    unit: &str,
    ours: Option<f64>,
) -> Row {
    Row::modelled(NAME, table, case, method, metric, unit).measured(ours)
}

/// In the paper's unit.
pub(super) fn mb(rate: BytesPerSec) -> f64 {
    rate.0 as f64 / 1e6
}

/// Mean and standard deviation.
pub(super) fn spread(values: &[f64]) -> (f64, f64) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / n;
    (mean, variance.sqrt())
}
