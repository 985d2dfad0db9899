//! Other workloads: are our defaults ever worse than the disk alone?
//!
//! ```text
//! every block trace of a folder -> the disk alone, open loop -> overloaded? then both in a closed loop
//!                               -> tier and block cache with our defaults -> mean response over the disk's
//! ```
//!
//! Traces without places (arrival times alone) or without times (lists of pages) say nothing here and are passed over.
//!
//! Choice: the disk is one `hdd-10k-sas`, larger where a trace reaches further; the SSD may hold 8 % of what the
//! trace reaches over, as 24 GiB are of the paper's 293.
//!
//! Choice: a trace overloads the disk if requests came late because more than 1,024 were under way, or if the disk was
//! busy 95 % of the time. Response times of an overloaded open loop show how long the trace is, not how good the
//! disk; then so many requests are kept under way as a server of that time would.
//!
//! Source: AST 6 ("workloads not used in this paper").

use std::path::{Path, PathBuf};

use base::Bytes;
use device::model::Spec;
use hybrid::{Mode, Settings};
use report::{Evidence, Row};
use sim::run::{Fit, Layout, Made, Modelled, Outcome, Pace, Replay, Stack, Survey, run};
use trace::{Format, ReadOptions, Trace, TraceError, open};

use super::listing::LISTING;
use crate::experiment::{ExperimentError, Progress};

/// The mean response may be that much above the disk's.
pub const WORSE_MAX: f64 = 1.02;
/// Requests under way in a closed loop.
const DEPTH: usize = 8;
/// A disk busy for this share of the time is overloaded.
const BUSY: f64 = 0.95;
/// What of the reach of a trace fits the SSD.
const FAST_SHARE: f64 = 0.08;
/// The least that the SSD holds.
const FAST_MIN: Bytes = Bytes::mib(64);

/// One trace on both stacks.
#[derive(Debug, Clone)]
pub struct Compared {
    /// The trace's file.
    pub name: String,
    /// Requests measured.
    pub requests: u64,
    /// Was it replayed in a closed loop, because it overloads the disk?
    pub closed: bool,
    /// Mean, 95th and 99th percentile of the disk alone, in milliseconds.
    pub disk_ms: [f64; 3],
    /// The same of our defaults.
    pub ours_ms: [f64; 3],
}

impl Compared {
    /// Our mean response over the disk's.
    pub fn ratio(&self) -> f64 {
        self.ours_ms[0] / self.disk_ms[0]
    }

    /// Is ours never worse by more than 2 %?
    pub fn holds(&self) -> bool {
        self.ratio() <= WORSE_MAX
    }
}

/// Has it places and times?
fn says_enough(trace: &Trace) -> bool {
    let format = trace.format();
    format != Format::Lis && !format.names_objects()
}

/// The files of a folder and of those in it, in order.
fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => files.extend(self::files(&path)?),
            false => files.push(path),
        }
    }
    files.sort();
    Ok(files)
}

/// Every block trace of `folder`, at most `limit` requests of each.
///
/// # Errors
/// [`ExperimentError::Traces`] if the folder cannot be read or has none.
pub fn compare(
    folder: &Path,
    limit: Option<u64>,
    seed: u64,
    progress: &mut Progress<'_>,
) -> Result<Vec<Compared>, ExperimentError> {
    let none = |why: String| ExperimentError::Traces {
        folder: folder.to_owned(),
        why,
    };
    let files = files(folder).map_err(|error| none(error.to_string()))?;
    let mut all = Vec::new();
    for (n, path) in files.iter().enumerate() {
        let options = ReadOptions::default();
        // What is no trace (a list of sources, arrival times) is none of ours.
        let Ok(trace) = open(path, &options) else {
            continue;
        };
        if !says_enough(&trace) {
            continue;
        }
        progress(&path.display().to_string(), n as f64 / files.len() as f64);
        all.extend(one(path, &options, trace, limit, seed)?);
    }
    match all.is_empty() {
        true => Err(none("no file in it has places and times".to_owned())),
        false => Ok(all),
    }
}

fn one(
    path: &Path,
    options: &ReadOptions,
    mut trace: Trace,
    limit: Option<u64>,
    seed: u64,
) -> Result<Option<Compared>, ExperimentError> {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let unread = |source: TraceError| ExperimentError::Trace {
        case: name.clone(),
        source: Box::new(source),
    };
    // A file that turns out to be no trace after all.
    let Ok(Ok(survey)) = Survey::of(&mut trace, None, limit, &mut |_| {}) else {
        return Ok(None);
    };
    let Ok(layout) = Layout::of(&survey, None, Fit::Grow) else {
        return Ok(None);
    };
    let stacks = stacks(layout.needed()).map_err(|source| ExperimentError::Model {
        case: "traces",
        method: "hdd-only",
        source: Box::new(source),
    })?;
    let replay = |pace| Replay {
        pace,
        limit,
        layout: layout.clone(),
        seed,
        ..Replay::default()
    };
    let replayed = |stack: &Stack, method, pace| {
        let mut trace = open(path, options).map_err(unread)?;
        run(stack, &mut trace, &replay(pace)).map_err(|source| ExperimentError::Run {
            case: name.clone(),
            method,
            source: Box::new(source),
        })
    };
    let mut pace = Pace::Open { speed: 1.0 };
    let mut disk = replayed(&stacks[0], "hdd-only", pace)?;
    let closed = disk.speed.backlog.late > 0 || disk.devices[0].utilisation >= BUSY;
    if closed {
        pace = Pace::Closed { depth: DEPTH };
        disk = replayed(&stacks[0], "hdd-only", pace)?;
    }
    let ours = replayed(&stacks[1], "tanada", pace)?;
    Ok(Some(Compared {
        requests: disk.counts.requests,
        closed,
        disk_ms: times(&disk),
        ours_ms: times(&ours),
        name,
    }))
}

fn times(outcome: &Outcome) -> [f64; 3] {
    let all = outcome.response("all").expect("something was measured");
    [all.mean_us, all.p95_us, all.p99_us].map(|us| us / 1e3)
}

/// The disk alone, and our defaults on it.
fn stacks(reach: Bytes) -> Result<[Stack; 2], device::model::SpecError> {
    let disk = Spec::find("hdd-10k-sas")?;
    let ssd = Spec::find("ssd-sata-mlc")?;
    let alone = Stack::bare("hdd", &disk, disk.size);
    let fast = Bytes((reach.0 as f64 * FAST_SHARE) as u64).max(FAST_MIN);
    let mut tiered = alone.clone();
    tiered.name = "tanada".to_owned();
    tiered.devices.push(Modelled {
        name: "ssd".to_owned(),
        size: ssd.size,
        spec: ssd,
    });
    tiered.volume = "volume".to_owned();
    tiered.hybrids.push(Made {
        settings: Settings {
            name: "volume".to_owned(),
            mode: Mode::Both,
            fast_bytes: Some(Bytes(fast.0.next_multiple_of(1 << 20))),
            ..Settings::default()
        },
        slow: "hdd".to_owned(),
        fast: "ssd".to_owned(),
    });
    Ok([alone, tiered])
}

/// The comparison as rows.
pub(super) fn rows(all: &[Compared]) -> Vec<Row> {
    let mut rows = Vec::new();
    for one in all {
        let how = match one.closed {
            true => format!("closed loop of {DEPTH}: the trace overloads the disk"),
            false => "open loop at 1x".to_owned(),
        };
        let row = |method: &str, metric: &str, unit: &str, ours: f64| {
            Row::modelled(LISTING.name, "traces", &one.name, method, metric, unit)
                .evidence(Evidence::HeldOut)
                .measured(Some(ours))
                .noted(format!("{} requests, {how}", one.requests))
        };
        for (method, times) in [("hdd-only", one.disk_ms), ("tanada", one.ours_ms)] {
            for (metric, value) in ["mean_ms", "p95_ms", "p99_ms"].into_iter().zip(times) {
                rows.push(row(method, metric, "ms", value));
            }
        }
        let ratio = row(
            "tanada",
            "mean response over the disk's",
            "times",
            one.ratio(),
        );
        rows.push(ratio.claimed(WORSE_MAX, one.holds()));
    }
    rows
}
