//! What is measured in a run.

use super::loads::Outcome;

/// What is measured in a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    pub name: &'static str,
    pub unit: &'static str,
    /// Is more better?
    pub more: bool,
    what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// MB/s of these clients together.
    Sum(Vec<usize>),
    /// Mean MB/s of these clients.
    Mean(Vec<usize>),
    /// The 99th percentile of their waits.
    P99(Vec<usize>),
    /// The mean of their waits.
    Wait(Vec<usize>),
    /// Jain's index of the throughput of all.
    Jain,
    /// Second copies of reads, in percent.
    Hedged,
}

impl Metric {
    pub fn new(name: &'static str, what: What) -> Metric {
        let (unit, more) = match what {
            What::Sum(_) | What::Mean(_) => ("MB/s", true),
            What::P99(_) | What::Wait(_) => ("ms", false),
            What::Jain => ("index", true),
            What::Hedged => ("percent", false),
        };
        Metric {
            name,
            unit,
            more,
            what,
        }
    }

    /// Its value in a run.
    pub fn of(&self, outcome: &Outcome) -> f64 {
        let clients = 0..outcome.clients.len();
        match &self.what {
            What::Sum(which) => outcome.sum_mb_s(which.iter().copied()),
            What::Mean(which) => {
                outcome.sum_mb_s(which.iter().copied()) / which.len().max(1) as f64
            }
            What::P99(which) => {
                let waits = outcome.waits(which.iter().copied());
                waits.value_at_quantile(0.99) as f64 / 1e3
            }
            What::Wait(which) => outcome.waits(which.iter().copied()).mean() / 1e3,
            What::Jain => jain(clients.map(|client| outcome.mb_s(client))),
            What::Hedged => 100.0 * outcome.hedged,
        }
    }
}

/// Jain's index: 1 where all have the same, 1/n where one has all.
pub fn jain(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let n = values.clone().count() as f64;
    let sum: f64 = values.clone().sum();
    let squares: f64 = values.map(|it| it * it).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (n * squares)
}
