//! Does what holds on the workloads that the choices were made on hold on others, too?
//!
//! ```text
//! workloads of other seeds, and of a generator fitted to nothing -> some methods -> "held-out"
//!     -> the same claims as on the fitted ones, and which mode is the default -> "held-out claims"
//! ```
//!
//! Which workloads and seeds these are was written down (`experiments/tiering/README.md`) before the first of them ran.
//!
//! Always true: nothing here depends on how the fitted workloads came out.

use base::Nanos;
use report::{Evidence, Row};

use super::bed::{self, PLACED};
use super::claims;
use super::listing::LISTING;
use super::runs::{Run, Samples, measure};
use super::work::HELD_OUT;
use crate::experiment::journal::Journal;
use crate::experiment::{ExperimentError, Options, Progress};

/// Seeds of the workloads, and of the disks' platters with them.
const SEEDS: std::ops::RangeInclusive<u64> = 2..=6;
/// Of a short run.
const QUICK_SEEDS: std::ops::RangeInclusive<u64> = 2..=2;

/// What is compared: the paper's methods and ours, without the steps between.
const METHODS: [&str; 8] = [
    "hdd-only",
    "static",
    "lru-cache-run1",
    "lru-cache-run2",
    "otf-published",
    "tanada-cache",
    "tanada-tier",
    "tanada",
];

const METRICS: [(&str, &str); 5] = [
    ("fast_share_percent", "percent"),
    ("mean_ms", "ms"),
    ("p95_ms", "ms"),
    ("p99_ms", "ms"),
    ("joules", "J"),
];

/// The names of the cases.
pub(super) fn cases() -> [&'static str; 3] {
    HELD_OUT.map(|case| case.name)
}

/// Runs what of it is a part of `options`, at most `at_most` of each window, and judges it if all of it is.
///
/// # Errors
/// As of any run.
pub(super) fn run(
    options: &Options<'_>,
    at_most: Option<Nanos>,
    journal: &mut Journal,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, ExperimentError> {
    let part = options.part;
    let seeds = match at_most {
        Some(_) => QUICK_SEEDS,
        None => SEEDS,
    };
    let mut setups = bed::setups();
    setups.retain(|setup| {
        let mut methods = setup.methods.iter();
        methods.any(|method| METHODS.contains(method) && part.has_method(method))
    });
    let mut samples = Samples::new();
    let wanted = HELD_OUT.iter().filter(|case| part.has_case(case.name));
    let rounds: Vec<_> = wanted
        .flat_map(|case| seeds.clone().map(move |seed| (case, seed)))
        .collect();
    for (n, (case, seed)) in rounds.iter().enumerate() {
        // One workload at a time: each takes a hundred megabytes.
        let mut workload = case.load(*seed, None, at_most)?;
        workload.busiest.truncate(PLACED);
        let runs = setups.iter().map(|setup| Run {
            workload: &workload,
            setup,
            seed: *seed,
        });
        let share = |done: f64| (n as f64 + done) / rounds.len() as f64;
        let mut of_round = |what: &str, done: f64| progress(what, share(done));
        measure(runs.collect(), &mut samples, journal, &mut of_round)?;
    }
    let found = HeldOut {
        samples,
        short: at_most.is_some(),
    };
    let mut rows = found.rows();
    if part.is_whole() {
        rows.extend(found.claims());
    }
    Ok(rows)
}

struct HeldOut {
    samples: Samples,
    short: bool,
}

impl HeldOut {
    fn values(&self, case: &'static str, method: &'static str, metric: &str) -> Vec<f64> {
        let samples = self
            .samples
            .get(&(case, method))
            .map_or(&[][..], Vec::as_slice);
        samples
            .iter()
            .filter_map(|sample| sample.of(metric))
            .collect()
    }

    fn mean(&self, case: &'static str, method: &'static str, metric: &str) -> f64 {
        let values = self.values(case, method, metric);
        values.iter().sum::<f64>() / values.len() as f64
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for case in cases() {
            for method in METHODS
                .into_iter()
                .filter(|method| self.samples.contains_key(&(case, *method)))
            {
                for (metric, unit) in METRICS {
                    let values = self.values(case, method, metric);
                    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
                    let ours = (!values.is_empty()).then_some(mean);
                    rows.push(
                        row("held-out", case, method, metric, unit)
                            .measured(ours)
                            .over(&values),
                    );
                }
            }
        }
        rows
    }

    fn claims(&self) -> Vec<Row> {
        let of_case = |case: &'static str| {
            let mean = |method, metric: &str| self.mean(case, method, metric);
            let claims = claims::of(case, &METHODS, &mean).into_iter();
            let rows = claims.map(|claim| {
                let row = row(
                    "held-out claims",
                    case,
                    claim.method,
                    claim.metric,
                    claim.unit,
                );
                claim.judged(row, self.short)
            });
            rows.collect::<Vec<_>>()
        };
        cases().into_iter().flat_map(of_case).collect()
    }
}

fn row(table: &str, case: &str, method: &str, metric: &str, unit: &str) -> Row {
    Row::modelled(LISTING.name, table, case, method, metric, unit).evidence(Evidence::HeldOut)
}
