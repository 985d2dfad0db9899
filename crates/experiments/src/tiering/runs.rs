//! One run of one setup on one workload, and many of them side by side.
//!
//! ```text
//! workload x setup x seed -> stack -> replay, watched -> a sample for each of the setup's methods
//! ```

use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Bytes, Nanos};
use hybrid::UserRequests;
use serde::{Deserialize, Serialize};
use sim::run::{Outcome, Pace, Replay, WarmUp, run_before};

use super::bed::{How, PAUSE, REGION, Setup};
use super::watch::{self, LOOK, Look, Minute, Watcher};
use super::work::Workload;
use crate::experiment::jobs::{Job, side_by_side};
use crate::experiment::journal::Journal;
use crate::experiment::{ExperimentError, Progress};

/// What one run says of one method.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Sample {
    /// By metric, in the order of [`METRICS`]; none where it does not apply.
    pub values: Vec<Option<f64>>,
    /// The distribution of response times: (milliseconds, share within).
    pub cdf: Vec<(f64, f64)>,
    pub minutes: Vec<Minute>,
    /// How many regions were fast: (seconds since the trace began, regions).
    pub regions_up: Vec<(f64, f64)>,
    /// Only of a run that was done just now.
    #[serde(skip)]
    pub heat: Option<hybrid::Heat>,
    /// Since the beginning of its part.
    pub from_ns: u64,
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
    pub fn of(&self, name: &str) -> Option<f64> {
        let at = METRICS.iter().position(|(known, _)| *known == name)?;
        self.values[at]
    }
}

/// Samples by (case, method), one for each seed.
pub(super) type Samples = BTreeMap<(&'static str, &'static str), Vec<Sample>>;

/// One run: which setup of which workload with which seed.
pub(super) struct Run<'a> {
    pub workload: &'a Workload,
    pub setup: &'a Setup,
    pub seed: u64,
}

/// All runs, side by side over the cores, added to `samples`.
///
/// # Errors
/// The first that a run ended with.
pub(super) fn measure(
    mut runs: Vec<Run<'_>>,
    samples: &mut Samples,
    journal: &mut Journal,
    progress: &mut Progress<'_>,
) -> Result<(), ExperimentError> {
    // Twice as long ones first, or they would be waited for at the end.
    runs.sort_by_key(|run| !run.setup.twice());
    let job = |run| Job::new(Run::name(run), move || one(run));
    let jobs: Vec<Job<'_, Vec<Sample>>> = runs.iter().map(job).collect();
    let answers = side_by_side(&jobs, journal, progress)?;
    for (run, answer) in runs.iter().zip(answers) {
        for (method, sample) in run.setup.methods.iter().zip(answer) {
            let key = (run.workload.case, *method);
            samples.entry(key).or_default().push(sample);
        }
    }
    Ok(())
}

impl Run<'_> {
    fn name(&self) -> String {
        let (method, workload) = (self.setup.methods[0], self.workload);
        let seconds = workload.length.0 / Nanos::secs(1).0;
        let (case, origin, seed) = (workload.case, &workload.origin, self.seed);
        format!("{method} of {case}, {seconds} s, {origin}, seed {seed}")
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
