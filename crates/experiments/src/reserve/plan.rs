//! What is run, and what a run gives: the plan, the jobs, and how they are done side by side.

use base::{Instant, Nanos};
use policy::share::{BytesPerSec, Direction};
use report::Row;
use serde::{Deserialize, Serialize};

use super::page::Curve;
use super::vertex::Times;
use crate::experiment::Options;
use crate::experiment::jobs::Job;

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
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Found {
    pub(super) rows: Vec<Row>,
    pub(super) curves: Vec<Curve>,
}

/// A piece of work: the table its rows belong to, and whose they are.
pub(super) struct Piece<'a> {
    pub(super) table: &'static str,
    pub(super) method: Option<&'static str>,
    pub(super) job: Job<'a, Found>,
}

/// A piece whose rows are of one method, or of several (`None`).
pub(super) fn piece<'a>(
    table: &'static str,
    method: Option<&'static str>,
    name: impl Into<String>,
    work: impl Fn() -> Found + Send + Sync + 'a,
) -> Piece<'a> {
    Piece {
        table,
        method,
        job: Job::new(format!("{table}: {}", name.into()), move || Ok(work())),
    }
}

crate::experiment::row_of!(pub(super), NAME);

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
