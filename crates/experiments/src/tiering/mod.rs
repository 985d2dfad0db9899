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
mod compare;
mod page;
mod stated;
#[cfg(test)]
mod tests;
pub mod traces;
mod watch;
mod work;

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use base::{Bytes, Nanos};
use hybrid::UserRequests;
use report::Row;
use serde::{Deserialize, Serialize};
use sim::run::{Outcome, Pace, Replay, WarmUp, run_before};

use crate::experiment::jobs::{Job, side_by_side};
use crate::experiment::journal::Journal;
use crate::experiment::{ExperimentError, Listing, Options, Progress, Results};
use bed::{BEGINNING, How, PAUSE, REGION, Setup};
use watch::{LOOK, Look, Minute, Watcher};
use work::{CASES, Workload};

/// The experiment, for listings.
pub const LISTING: Listing = Listing {
    name: "tiering",
    paper: "AST",
    about: "hot regions on an SSD minute by minute: where requests go and how long they take, published and ours",
};

/// Regions that static tiering places. Source: AST table 3.
const PLACED: usize = 24;
/// A short run's part of each window.
const QUICK: Nanos = Nanos::secs(5 * 60);
/// A short run's requests of each further trace.
const QUICK_REQUESTS: u64 = 10_000;
/// Seeds of a full run: they place the platters. One takes a quarter of an hour on two cores.
const SEEDS: u64 = 1;

/// The cases, in the order of the tables.
pub fn cases() -> [&'static str; 2] {
    CASES.map(|case| case.name)
}

/// The names of the methods, in the order of the tables.
pub fn methods() -> Vec<&'static str> {
    let setups = bed::setups();
    setups
        .iter()
        .flat_map(|setup| setup.methods)
        .copied()
        .collect()
}

/// What one run says of one method.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Sample {
    /// By metric, in the order of [`METRICS`]; none where it does not apply.
    values: Vec<Option<f64>>,
    /// The distribution of response times: (milliseconds, share within).
    cdf: Vec<(f64, f64)>,
    minutes: Vec<Minute>,
    /// How many regions were fast: (seconds since the trace began, regions).
    regions_up: Vec<(f64, f64)>,
    /// Only of a run that was done just now.
    #[serde(skip)]
    heat: Option<hybrid::Heat>,
    /// Since the beginning of its part.
    from_ns: u64,
}

/// The metrics of the main table with their units.
pub const METRICS: [(&str, &str); 19] = [
    ("fast_share_percent", "percent"),
    ("buffer_share_percent", "percent"),
    ("dirty_write_hits_percent", "percent"),
    ("mean_ms", "ms"),
    ("p95_ms", "ms"),
    ("p99_ms", "ms"),
    ("joules", "J"),
    ("mean_up_to_100_ms", "ms"),
    ("p50_ms", "ms"),
    ("max_s", "s"),
    ("fast_read_bytes_percent", "percent"),
    ("regions_up_max", "regions"),
    ("moves_up", "moves"),
    ("moves_down", "moves"),
    ("copied_up_gib", "GiB"),
    ("copied_down_gib", "GiB"),
    ("disks_busy_percent", "percent"),
    ("saturated_looks_percent", "percent"),
    ("first_saturated_minute", "min"),
];

impl Sample {
    /// None for a metric that is not counted, too.
    fn of(&self, name: &str) -> Option<f64> {
        let at = METRICS.iter().position(|(known, _)| *known == name)?;
        self.values[at]
    }
}

/// Samples by (case, method), one for each seed.
type Samples = BTreeMap<(&'static str, &'static str), Vec<Sample>>;

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

fn run_plan(
    options: Options<'_>,
    plan: Plan,
    progress: &mut Progress<'_>,
) -> Result<Results, ExperimentError> {
    let part = options.part;
    part.check(&cases(), &methods())?;
    progress("reading the workloads", 0.0);
    let workloads = load(options, plan.at_most, plan.placed)?;
    let mut setups = bed::setups();
    setups.retain(|setup| setup.methods.iter().any(|method| part.has_method(method)));
    let mut journal = Journal::open(LISTING.name, &options)?;
    let seeds = options.seed..options.seed + plan.seeds;
    let samples = measure(&workloads, &setups, seeds, &mut journal, progress)?;
    let comparison = compare::Comparison {
        workloads: &workloads,
        samples: &samples,
        short: plan.at_most.is_some(),
    };
    let mut rows: Vec<Row> = comparison.main_table();
    if part.is_whole() {
        rows.extend(comparison.published());
        rows.extend(comparison.stated());
        rows.extend(comparison.claims());
    } else {
        rows.retain(|row| part.has(&row.case, &row.method));
    }
    if let Some(folder) = options.traces {
        let limit = options.quick.then_some(QUICK_REQUESTS);
        let compared = traces::compare(folder, limit, options.seed, progress)?;
        rows.extend(traces::rows(&compared));
    }
    progress("done", 1.0);
    Ok(Results {
        figures: page::sections(&workloads, &samples),
        rows,
    })
}

/// One run: which setup of which workload with which seed.
struct Run<'a> {
    workload: &'a Workload,
    setup: &'a Setup,
    seed: u64,
}

/// All runs, side by side over the cores.
fn measure(
    workloads: &[Workload],
    setups: &[Setup],
    seeds: Range<u64>,
    journal: &mut Journal,
    progress: &mut Progress<'_>,
) -> Result<Samples, ExperimentError> {
    let mut runs = Vec::new();
    for seed in seeds {
        for workload in workloads {
            runs.extend(setups.iter().map(|setup| Run {
                workload,
                setup,
                seed,
            }));
        }
    }
    // Twice as long ones first, or they would be waited for at the end.
    runs.sort_by_key(|run| !run.setup.twice());
    let job = |run| Job::new(Run::name(run), move || one(run));
    let jobs: Vec<Job<'_, Vec<Sample>>> = runs.iter().map(job).collect();
    let answers = side_by_side(&jobs, journal, progress)?;
    let mut samples = Samples::new();
    for (run, answer) in runs.iter().zip(answers) {
        for (method, sample) in run.setup.methods.iter().zip(answer) {
            let key = (run.workload.case, *method);
            samples.entry(key).or_default().push(sample);
        }
    }
    Ok(samples)
}

impl Run<'_> {
    fn name(&self) -> String {
        let (method, workload) = (self.setup.methods[0], self.workload);
        let minutes = workload.length.0 / Nanos::secs(60).0;
        format!(
            "{method} of {}, {minutes} min, {}, seed {}",
            workload.case, workload.origin, self.seed
        )
    }
}

/// One sample for each method of the run.
fn one(run: &Run<'_>) -> Result<Vec<Sample>, ExperimentError> {
    let Run {
        workload,
        setup,
        seed,
    } = run;
    let (case, method) = (workload.case, setup.methods[0]);
    let placed = &workload.busiest;
    let stack = setup
        .stack(placed)
        .map_err(|source| ExperimentError::Model {
            case,
            method,
            source: Box::new(source),
        })?;
    let mut parts = vec![(Nanos(0), workload.length)];
    parts.extend(setup.second(workload.length));
    let wait_for = match setup.placed() {
        true => REGION * placed.len() as u64,
        false => Bytes(0),
    };
    let watcher = Rc::new(Watcher::new(&parts, wait_for));
    let times = if setup.twice() { 2 } else { 1 };
    let replay = Replay {
        pace: Pace::Open { speed: 1.0 },
        warm_up: WarmUp::None,
        interval: Some(LOOK),
        seed: *seed,
        ..Replay::default()
    };
    let mut requests = workload.replay(times, PAUSE);
    let watch = Rc::clone(&watcher);
    let outcome = run_before(&stack, &mut requests, &replay, watch, &mut |_| {});
    let outcome = outcome.map_err(|source| ExperimentError::Run {
        case: case.to_owned(),
        method,
        source: Box::new(source),
    })?;
    let sights = watcher.finish();
    let tiered = matches!(&setup.how, How::Hybrid(settings) | How::Placed(settings) if settings.mode.has_tier());
    let mut samples = Vec::new();
    for (part, (from, to)) in sights.parts.iter().zip(&parts) {
        samples.push(Sample {
            values: values(&outcome, part, &sights.looks, (*from, *to), tiered),
            cdf: part.response.as_ref().map_or_else(Vec::new, |response| {
                response
                    .cdf
                    .iter()
                    .map(|(us, share)| (us / 1e3, *share))
                    .collect()
            }),
            minutes: sights.minutes.clone(),
            regions_up: sights.looks.iter().map(Look::regions_up).collect(),
            heat: sights.heat.clone(),
            from_ns: from.0,
        });
    }
    Ok(samples)
}

/// The metrics of one part of a run.
fn values(
    outcome: &Outcome,
    part: &watch::Account,
    looks: &[Look],
    (from, to): (Nanos, Nanos),
    tiered: bool,
) -> Vec<Option<f64>> {
    let response = part.response.as_ref();
    let (from_s, to_s) = (from.secs_f64(), to.secs_f64());
    let points = outcome.series.points.iter();
    let points = points.filter(|point| (from_s..to_s).contains(&point.at_s));
    let points: Vec<_> = points.collect();
    let saturated: Vec<f64> = points
        .iter()
        .filter(|point| disks(point) >= SATURATED)
        .map(|point| (point.at_s - from_s) / 60.0)
        .collect();
    let count = points.len().max(1) as f64;
    let share = |of| request_share(part, of);
    let moved = |of: fn(&Look) -> u64| {
        let (first, last) = part.looks.as_ref().filter(|_| tiered)?;
        Some((of(last) - of(first)) as f64)
    };
    const GIB: f64 = (1u64 << 30) as f64;
    let within = looks.iter().filter(|look| (from..=to).contains(&look.at));
    let up_max = within.map(|look| look.tier.room.regions_up).max();
    METRICS
        .iter()
        .map(|(name, _)| match *name {
            "fast_share_percent" => Some(share(|of| of.home_requests)),
            "buffer_share_percent" => Some(share(|of| of.buffer_requests)),
            "dirty_write_hits_percent" => Some(share(|of| of.dirty_write_requests)),
            "mean_ms" => response.map(|response| response.mean_us / 1e3),
            "p50_ms" => response.map(|response| response.p50_us / 1e3),
            "p95_ms" => response.map(|response| response.p95_us / 1e3),
            "p99_ms" => response.map(|response| response.p99_us / 1e3),
            "max_s" => response.map(|response| response.max_us / 1e6),
            "mean_up_to_100_ms" => part.short_mean_ms,
            "joules" => Some(points.iter().map(|point| point.watts * point.seconds).sum()),
            "fast_read_bytes_percent" => Some(read_share(part).unwrap_or(0.0)),
            "regions_up_max" => up_max.filter(|_| tiered).map(f64::from),
            "moves_up" => moved(|look| look.tier.moves.up),
            "moves_down" => moved(|look| look.tier.moves.down),
            "copied_up_gib" => moved(|look| look.tier.moves.bytes_up).map(|bytes| bytes / GIB),
            "copied_down_gib" => moved(|look| look.tier.moves.bytes_down).map(|bytes| bytes / GIB),
            "disks_busy_percent" => {
                Some(100.0 * points.iter().copied().map(disks).sum::<f64>() / count)
            }
            "saturated_looks_percent" => Some(100.0 * saturated.len() as f64 / count),
            "first_saturated_minute" => saturated.first().copied(),
            other => unreachable!("no metric {other}"),
        })
        .collect()
}

/// How busy the four disks are.
fn disks(point: &sim::run::Point) -> f64 {
    let busy: f64 = point.devices[..4].iter().map(|disk| disk.utilisation).sum();
    busy / 4.0
}

/// Of the requests of users, those that `of` counts, in percent.
fn request_share(part: &watch::Account, of: fn(&UserRequests) -> u64) -> f64 {
    let Some((first, last)) = &part.looks else {
        return 0.0;
    };
    let (before, after) = (&first.status.requests, &last.status.requests);
    let all = after.user_requests - before.user_requests;
    100.0 * (of(after) - of(before)) as f64 / all.max(1) as f64
}

/// Of the bytes read, those from the fast device, in percent.
fn read_share(part: &watch::Account) -> Option<f64> {
    let (first, last) = part.looks.as_ref()?;
    let (before, after) = (first.status.requests.reads(), last.status.requests.reads());
    let fast = after.bytes_fast - before.bytes_fast;
    let slow = after.bytes_slow - before.bytes_slow;
    (fast + slow > 0).then(|| 100.0 * fast as f64 / (fast + slow) as f64)
}

/// Four disks busy for this share of 20 seconds are saturated. Source: AST 4.3 ("%util reaches 100 %").
const SATURATED: f64 = 0.98;
