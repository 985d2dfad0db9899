//! How hard can a workload be driven before moving costs more than it brings?
//!
//! ```text
//! the paper's workloads, their times pressed together -> every method -> mean, p99, share, how busy the disks are
//!     -> from which intensity on a method is above static tiering
//! ```
//!
//! The paper saw its own method at a mean of 56.8 ms where static tiering had 7.1 (table 5, src1_1). At the intensity that it
//! states, our modelled disks do not show that. Whether they would, and where, is a curve and no cell.
//!
//! Source: AST 4.3, table 5.
//!
//! Choice: the first 40 minutes of each window, in the workload's own time.

use base::Nanos;
use report::{Axis, Chart, Row, Section, Series, Unit};

use super::bed::{self, PLACED, methods};
use super::listing::LISTING;
use super::runs::{Run, Samples, measure};
use super::work::{CASES, Workload};
use crate::experiment::journal::Journal;
use crate::experiment::{ExperimentError, Options, Progress};

/// Times as fast as recorded, with the names of both cases then.
const STEPS: [(f64, [&str; 2]); 4] = [
    (1.0, ["src1-0 x1", "src1-1 x1"]),
    (1.5, ["src1-0 x1.5", "src1-1 x1.5"]),
    (2.0, ["src1-0 x2", "src1-1 x2"]),
    (3.0, ["src1-0 x3", "src1-1 x3"]),
];

const LENGTH: Nanos = Nanos::secs(40 * 60);

const METRICS: [(&str, &str); 4] = [
    ("mean_ms", "ms"),
    ("p99_ms", "ms"),
    ("fast_share_percent", "percent"),
    ("disks_busy_percent", "percent"),
];

/// Where a method is said to break: its mean is above this one's.
const BESIDE: &str = "static";

/// The names of the cases.
pub(super) fn cases() -> Vec<&'static str> {
    STEPS.iter().flat_map(|(_, names)| *names).collect()
}

/// Runs what of it is a part of `options`, at most `at_most` of each window.
///
/// # Errors
/// As of any run.
pub(super) fn run(
    options: &Options<'_>,
    at_most: Option<Nanos>,
    journal: &mut Journal,
    progress: &mut Progress<'_>,
) -> Result<(Vec<Row>, Section), ExperimentError> {
    let part = options.part;
    let length = at_most.map_or(LENGTH, |at_most| at_most.min(LENGTH));
    let mut setups = bed::setups();
    setups.retain(|setup| setup.methods.iter().any(|method| part.has_method(method)));
    let mut workloads: Vec<Workload> = Vec::new();
    for (nth, case) in CASES.iter().enumerate() {
        let mut steps = STEPS
            .iter()
            .filter(|(_, names)| part.has_case(names[nth]))
            .peekable();
        if steps.peek().is_none() {
            continue;
        }
        let mut whole = case.load(options.seed, None, Some(length))?;
        whole.busiest.truncate(PLACED);
        workloads.extend(steps.map(|(times, names)| whole.compressed(*times, names[nth])));
    }
    let mut runs = Vec::new();
    for workload in &workloads {
        runs.extend(setups.iter().map(|setup| Run {
            workload,
            setup,
            seed: options.seed,
        }));
    }
    let mut samples = Samples::new();
    measure(runs, &mut samples, journal, progress)?;
    let mut rows = rows(&samples);
    rows.retain(|row| part.has_method(&row.method));
    if part.is_whole() {
        for (nth, case) in CASES.iter().enumerate() {
            rows.extend(
                methods()
                    .into_iter()
                    .filter_map(|method| breaks(&samples, nth, case.name, method)),
            );
        }
    }
    Ok((rows, section(&samples)))
}

fn figure(
    samples: &Samples,
    case: &'static str,
    method: &'static str,
    metric: &str,
) -> Option<f64> {
    samples.get(&(case, method))?.first()?.of(metric)
}

fn row(case: &str, method: &str, metric: &str, unit: &str) -> Row {
    Row::modelled(LISTING.name, "intensity", case, method, metric, unit)
}

fn rows(samples: &Samples) -> Vec<Row> {
    let mut rows = Vec::new();
    for case in cases() {
        for method in methods() {
            if !samples.contains_key(&(case, method)) {
                continue;
            }
            for (metric, unit) in METRICS {
                rows.push(
                    row(case, method, metric, unit).measured(figure(samples, case, method, metric)),
                );
            }
        }
    }
    rows
}

/// The least intensity at which the method's mean is above static tiering's.
fn breaks(samples: &Samples, nth: usize, case: &str, method: &'static str) -> Option<Row> {
    let is_above = |(_, names): &&(f64, [&'static str; 2])| {
        let of = |method| figure(samples, names[nth], method, "mean_ms");
        matches!((of(method), of(BESIDE)), (Some(one), Some(other)) if one > other)
    };
    if [BESIDE, "hdd-only"].contains(&method) || !samples.contains_key(&(STEPS[0].1[nth], method)) {
        return None;
    }
    let found = STEPS.iter().find(is_above);
    let note = match found {
        Some(_) => "the least intensity that was tried at which its mean is above static tiering's",
        None => "at no intensity that was tried is its mean above static tiering's",
    };
    let metric = "intensity at which it breaks";
    Some(
        row(case, method, metric, "times")
            .measured(found.map(|step| step.0))
            .noted(note),
    )
}

fn section(samples: &Samples) -> Section {
    const COMPARED: [&str; 6] = [
        "hdd-only",
        "static",
        "lru-cache-run2",
        "otf-published",
        "tanada-cache",
        "tanada",
    ];
    let mut section = Section::new("Intensity");
    for (nth, case) in CASES.iter().enumerate() {
        let x = Axis::new("times as fast as the workload", Unit::Number);
        let y = Axis::new("mean response time", Unit::Seconds).log();
        let mut chart = Chart::new(format!("Mean response by intensity, {}", case.name), x, y);
        for method in COMPARED {
            let points = STEPS.iter().filter_map(|(times, names)| {
                let ms = figure(samples, names[nth], method, "mean_ms")?;
                Some((*times, ms / 1e3))
            });
            let points: Vec<_> = points.collect();
            if !points.is_empty() {
                chart = chart.series(Series::new(method, points));
            }
        }
        section = section.put(chart);
    }
    section
}
