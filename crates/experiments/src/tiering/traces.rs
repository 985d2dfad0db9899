//! Other workloads: are our defaults ever worse than the disk alone, or than the cache alone?
//!
//! ```text
//! every block trace of a folder -> the disk alone, open loop -> overloaded? then all in a closed loop
//!                               -> the block cache; tier and block cache with our defaults
//!                               -> mean response over the disk's, and over the cache's
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
use serde::{Deserialize, Serialize};
use sim::run::{Fit, Layout, Made, Modelled, Outcome, Pace, Replay, Stack, Survey, run};
use trace::{Format, ReadOptions, Trace, TraceError, open};

use super::listing::LISTING;
use crate::experiment::jobs::{Job, side_by_side};
use crate::experiment::journal::Journal;
use crate::experiment::{ExperimentError, Part, Progress};

/// The case that asks for the recorded traces in a part of a run.
pub(super) const CASE: &str = "traces";
/// The mean response may be that much above the disk's, and above the cache's.
pub const WORSE_MAX: f64 = 1.02;
/// Requests under way in a closed loop.
const DEPTH: usize = 8;
/// A disk busy for this share of the time is overloaded.
const BUSY: f64 = 0.95;
/// What of the reach of a trace fits the SSD.
const FAST_SHARE: f64 = 0.08;
/// The least that the SSD holds.
const FAST_MIN: Bytes = Bytes::mib(64);

/// One trace on all stacks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Compared {
    /// The trace's file.
    pub name: String,
    /// Requests measured.
    pub requests: u64,
    /// Was it replayed in a closed loop, because it overloads the disk?
    pub closed: bool,
    /// Mean, 95th and 99th percentile of the disk alone, in milliseconds.
    pub disk_ms: [f64; 3],
    /// The same of our cache alone.
    pub cache_ms: [f64; 3],
    /// The same of our defaults.
    pub ours_ms: [f64; 3],
}

impl Compared {
    /// Our mean response over the disk's.
    pub fn ratio(&self) -> f64 {
        self.ours_ms[0] / self.disk_ms[0]
    }

    /// Our mean response over that of our cache alone.
    pub fn ratio_to_cache(&self) -> f64 {
        self.ours_ms[0] / self.cache_ms[0]
    }

    /// Is ours worse than the disk alone by at most 2 %?
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
    compare_on(folder, limit, seed, &mut Journal::default(), progress)
}

/// The same; each trace is a piece of a run.
pub(super) fn compare_on(
    folder: &Path,
    limit: Option<u64>,
    seed: u64,
    journal: &mut Journal,
    progress: &mut Progress<'_>,
) -> Result<Vec<Compared>, ExperimentError> {
    let none = |why: String| ExperimentError::Traces {
        folder: folder.to_owned(),
        why,
    };
    let files = files(folder).map_err(|error| none(error.to_string()))?;
    let job = |path: &PathBuf| {
        let path = path.clone();
        let name = path.strip_prefix(folder).unwrap_or(&path);
        Job::new(format!("trace {}", name.display()), move || {
            let options = ReadOptions::default();
            match open(&path, &options) {
                Ok(trace) if says_enough(&trace) => one(&path, &options, trace, limit, seed),
                // What is no trace (a list of sources, arrival times) is none of ours.
                _ => Ok(None),
            }
        })
    };
    let jobs: Vec<Job<'_, Option<Compared>>> = files.iter().map(job).collect();
    let found = side_by_side(&jobs, journal, progress)?;
    let all: Vec<Compared> = found.into_iter().flatten().collect();
    match all.is_empty() {
        true => Err(none("no file in it has places and times".to_owned())),
        false => Ok(all),
    }
}

/// Are the recorded traces a part of what is asked for? Where cases or methods are named, `traces` has to be.
pub(super) fn asked(part: Part<'_>) -> bool {
    part.is_whole() || part.cases.iter().any(|it| it == CASE)
}

fn one(
    path: &Path,
    options: &ReadOptions,
    mut trace: Trace,
    limit: Option<u64>,
    seed: u64,
) -> Result<Option<Compared>, ExperimentError> {
    let name = file_name(path);
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
    let cache = replayed(&stacks[1], "tanada-cache", pace)?;
    let ours = replayed(&stacks[2], "tanada", pace)?;
    Ok(Some(Compared {
        requests: disk.counts.requests,
        closed,
        disk_ms: times(&disk),
        cache_ms: times(&cache),
        ours_ms: times(&ours),
        name,
    }))
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn times(outcome: &Outcome) -> [f64; 3] {
    let all = outcome.response("all").expect("something was measured");
    [all.mean_us, all.p95_us, all.p99_us].map(|us| us / 1e3)
}

/// The disk alone, our cache on it, and our defaults on it.
fn stacks(reach: Bytes) -> Result<[Stack; 3], device::model::SpecError> {
    let disk = Spec::find("hdd-10k-sas")?;
    let ssd = Spec::find("ssd-sata-mlc")?;
    let alone = Stack::bare("hdd", &disk, disk.size);
    let fast = Bytes((reach.0 as f64 * FAST_SHARE) as u64).max(FAST_MIN);
    let hybrid = |name: &str, mode: Mode| {
        let mut stack = alone.clone();
        stack.name = name.to_owned();
        stack.devices.push(Modelled {
            name: "ssd".to_owned(),
            size: ssd.size,
            spec: ssd.clone(),
        });
        stack.volume = "volume".to_owned();
        stack.hybrids.push(Made {
            settings: Settings {
                name: "volume".to_owned(),
                mode,
                fast_bytes: Some(Bytes(fast.0.next_multiple_of(1 << 20))),
                ..Settings::default()
            },
            slow: "hdd".to_owned(),
            fast: "ssd".to_owned(),
        });
        stack
    };
    let [cache, both] = [("tanada-cache", Mode::Cache), ("tanada", Mode::Both)]
        .map(|(name, mode)| hybrid(name, mode));
    Ok([alone, cache, both])
}

/// The comparison as rows, `part` of it; judged if it is whole and the traces were not cut short.
pub(super) fn rows(all: &[Compared], part: Part<'_>, short: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for one in all {
        let how = match one.closed {
            true => format!("closed loop of {DEPTH}: the trace overloads the disk"),
            false => "open loop at 1x".to_owned(),
        };
        let row = |method: &str, metric: &str, unit: &str, ours: f64| {
            row(&one.name, method, metric, unit, ours)
                .noted(format!("{} requests, {how}", one.requests))
        };
        for (method, times) in [
            ("hdd-only", one.disk_ms),
            ("tanada-cache", one.cache_ms),
            ("tanada", one.ours_ms),
        ] {
            for (metric, value) in ["mean_ms", "p95_ms", "p99_ms"].into_iter().zip(times) {
                rows.push(row(method, metric, "ms", value));
            }
        }
        if part.is_whole() {
            let of_disk = row("tanada", OVER_DISK, "times", one.ratio());
            let of_cache = row("tanada", OVER_CACHE, "times", one.ratio_to_cache());
            rows.push(judged(of_disk, one.ratio(), short));
            rows.push(judged(of_cache, one.ratio_to_cache(), short));
        }
    }
    if part.is_whole() {
        rows.push(default_mode(all, short));
    }
    rows.retain(|row| part.has_method(&row.method));
    rows
}

const OVER_DISK: &str = "mean response over the disk's";
const OVER_CACHE: &str = "mean response over tanada-cache's";

/// Which mode should be the default, by all recorded traces?
fn default_mode(all: &[Compared], short: bool) -> Row {
    let ratios: Vec<f64> = all.iter().map(Compared::ratio_to_cache).collect();
    let most = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let row = row("all recorded traces", "tanada", OVER_CACHE, "times", most)
        .over(&ratios)
        .noted(
            "the most of all: cache and tier together are no worse than the cache alone by more than 2 %",
        );
    judged(row, most, short)
}

/// No more than 2 % worse?
fn judged(row: Row, ratio: f64, short: bool) -> Row {
    row.claimed(WORSE_MAX, ratio <= WORSE_MAX)
        .unjudged_if(short)
}

fn row(case: &str, method: &str, metric: &str, unit: &str, ours: f64) -> Row {
    Row::modelled(LISTING.name, "traces", case, method, metric, unit)
        // The rule of how large an extent is on a small device was chosen on them.
        .evidence(Evidence::Calibrated)
        .measured(Some(ours))
}

#[cfg(test)]
mod tests {
    use report::Verdict;

    use super::*;

    fn compared(name: &str, means: [f64; 3]) -> Compared {
        let [disk_ms, cache_ms, ours_ms] = means.map(|mean| [mean, 2.0 * mean, 3.0 * mean]);
        Compared {
            name: name.to_owned(),
            requests: 10,
            closed: false,
            disk_ms,
            cache_ms,
            ours_ms,
        }
    }

    #[test]
    fn both_is_judged_beside_the_disk_and_beside_the_cache() {
        let all = [
            compared("a", [10.0, 5.0, 4.0]),
            compared("b", [10.0, 5.0, 5.2]),
        ];
        let rows = super::rows(&all, Part::default(), false);
        let verdict = |case: &str, metric: &str| {
            let found = rows
                .iter()
                .find(|row| (&*row.case, &*row.metric) == (case, metric));
            found.and_then(|row| row.verdict)
        };
        assert_eq!(verdict("b", OVER_DISK), Some(Verdict::Holds));
        assert_eq!(verdict("a", OVER_CACHE), Some(Verdict::Holds));
        let fails = Some(Verdict::Fails);
        assert_eq!(verdict("b", OVER_CACHE), fails, "4 % above the cache");
        assert_eq!(verdict("all recorded traces", OVER_CACHE), fails);
        assert_eq!(rows.len(), 2 * (9 + 2) + 1);
        let short = super::rows(&all, Part::default(), true);
        let judged = short.iter().filter_map(|row| row.verdict);
        assert!(judged.clone().count() == 5 && judged.clone().all(|it| it == Verdict::NotJudged));
    }

    #[test]
    fn a_part_goes_through_the_traces_only_if_it_names_them() {
        let [case, other, method] = ["traces", "src1-0", "tanada"].map(|it| [it.to_owned()]);
        let part = |cases, methods| Part { cases, methods };
        assert!(asked(part(&[], &[])) && asked(part(&case, &[])) && asked(part(&case, &method)));
        assert!(!asked(part(&other, &[])) && !asked(part(&[], &method)));
        // Its figures alone, and nothing judged.
        let all = [compared("a", [10.0, 5.0, 4.0])];
        let rows = super::rows(&all, part(&case, &method), false);
        assert_eq!(rows.len(), 3);
        assert!(
            rows.iter()
                .all(|row| row.method == "tanada" && row.verdict.is_none())
        );
    }

    #[test]
    fn traces_that_are_in_the_journal_are_not_replayed_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("traces");
        std::fs::create_dir(&folder).expect("a folder");
        let mut text = String::new();
        for n in 0..50_u64 {
            let at = 128_166_372_000_000_000 + n * 500_000;
            text += &format!("{at},src1,0,Read,{},4096,100\n", n % 5 * 1_048_576);
        }
        std::fs::write(folder.join("a.csv"), text).expect("a trace");
        std::fs::write(folder.join("sources.txt"), "no trace\n").expect("a file");
        let path = dir.path().join("journal");
        let options = crate::experiment::Options {
            resume: Some(&path),
            ..crate::experiment::Options::default()
        };
        let ran = || {
            let mut names = Vec::new();
            let mut journal = Journal::open(LISTING.name, &options).expect("a journal");
            let all = compare_on(&folder, None, 1, &mut journal, &mut |name, _| {
                names.push(name.to_owned());
            });
            (all.expect("a sound trace"), names)
        };
        let (first, done) = ran();
        assert_eq!((first.len(), first[0].requests), (1, 50));
        assert_eq!(done.iter().filter(|it| *it == "trace a.csv").count(), 1);
        let (again, done) = ran();
        assert!(!done.contains(&"trace a.csv".to_owned()), "{done:?}");
        assert_eq!(again[0].ours_ms, first[0].ours_ms);
    }
}
