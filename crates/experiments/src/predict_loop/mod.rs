//! What the authors could not do: predict what a database does on storage-class memory, then measure it there.
//!
//! ```text
//! nine models in real time, each: served -> mounted -> fio: its own figures -> two databases on it: results    (bench, found)
//! NAND, 3D XPoint, DRAM -> fit -> the six others predicted from their own figures | measured there -> error   (predicted)
//! ```
//!
//! The devices are modelled, and all of this machine that lies before them is real: the program that serves, NBD, FUSE, the loop device, ext4,
//! the databases, their clients. What they take by themselves is the *floor*, measured with the model switched off. Predictor and
//! measurement see the same floor, so it hides differences and does not falsify them.
//!
//! Needs root, for mounting. In real time: figures differ from run to run.
//!
//! Source: SCM 5 (SCM1, SCM2), tables 4 and 5 (the models' latencies).
//!
//! Always true:
//! 1. No fit sees anything of the results on a device that is predicted.
//! 2. Whatever happens, what was mounted is unmounted.

mod bench;
mod claims;
mod devices;
mod disk;
mod figures;
mod floor;
mod found;
mod predicted;
mod serve;

use std::path::Path;

use ::predict::grid::{Grid, Job, Way};
use base::{Bytes, Nanos};
use report::Row;

use crate::app::mariadb::{Settings, Tools};
use crate::app::process::Stop;
use crate::app::work::{Records, Workload};
use crate::app::{self, Plan, rocksdb};
use crate::experiment::journal::Journal;
use crate::experiment::{ExperimentError, Listing, Options, Progress};
use bench::Bench;
use devices::{CASES, Case};
use found::{Found, OfDevice};

/// The experiment, for listings.
pub const LISTING: Listing = Listing {
    name: "predict-loop",
    paper: "SCM",
    about: "databases predicted on devices and then measured there: modelled devices in real time, mounted (needs root)",
};

/// How much is done.
#[derive(Debug, Clone)]
struct Extent {
    disk: Bytes,
    fio_runs: u32,
    /// Of each run of fio.
    fio: Nanos,
    sizes: Vec<Bytes>,
    /// Of MariaDB.
    plan: Plan,
    /// Of RocksDB.
    rocksdb: rocksdb::Plan,
}

impl Extent {
    fn of(options: &Options<'_>) -> Extent {
        let sizes = vec![Bytes::kib(4), Bytes::kib(16), Bytes::kib(64)];
        let plan = Plan {
            workloads: Workload::ALL.to_vec(),
            clients: 1,
            seed: options.seed,
            server: Settings {
                buffer_pool: Bytes::mib(8),
                log: Bytes::mib(16),
                ..Settings::default()
            },
            ..Plan::default()
        };
        let records = |count| Records {
            count,
            ..Records::default()
        };
        let plan = match options.quick {
            true => Plan {
                records: records(20_000),
                counts: Nanos::millis(400),
                ramp: Nanos::millis(100),
                runs: 1,
                ..plan
            },
            false => Plan {
                records: records(100_000),
                counts: Nanos::secs(5),
                ramp: Nanos::secs(1),
                runs: 5,
                ..plan
            },
        };
        Extent {
            disk: Bytes::mib(if options.quick { 256 } else { 512 }),
            fio_runs: if options.quick { 1 } else { 3 },
            fio: Nanos::millis(if options.quick { 250 } else { 2000 }),
            sizes,
            rocksdb: rocksdb::Plan {
                records: plan.records.count,
                record: Bytes(plan.records.bytes() / plan.records.count),
                cache: plan.server.buffer_pool,
                counts: plan.counts,
                runs: plan.runs,
                seed: options.seed,
            },
            plan,
        }
    }

    /// fio's jobs on `device`.
    fn jobs(&self, device: &Path, runs: u32) -> Vec<Job> {
        let grid = Grid {
            sizes: self.sizes.clone(),
            ways: vec![Way::Read, Way::Write],
            seconds: 1,
            ramp: 0,
            runs,
            ..Grid::default()
        };
        let mut jobs = grid.jobs(&device.display().to_string());
        for job in &mut jobs {
            for argument in &mut job.arguments {
                if argument.starts_with("--runtime=") {
                    *argument = format!("--runtime={}ms", self.fio.0 / 1_000_000);
                }
            }
        }
        jobs
    }
}

/// Why it did not come to an end.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    Words(String),
    #[error(transparent)]
    App(#[from] app::AppError),
    #[error("interrupted")]
    Interrupted,
}

impl From<String> for Trouble {
    fn from(words: String) -> Trouble {
        Trouble::Words(words)
    }
}

/// What stands in the way of running it on this machine; `None`: nothing.
pub fn hindrance() -> Option<String> {
    let missing = || {
        let tools = Tools::find().map(drop);
        let both = tools.and_then(|()| rocksdb::Tool::find().map(drop));
        both.err().map(|error| error.to_string())
    };
    let left = || {
        let left = disk::leftovers();
        (!left.is_empty()).then(|| {
            format!(
                "a run that did not end left disks behind; clear them away first: {}",
                left.join("; ")
            )
        })
    };
    disk::hindrance().or_else(missing).or_else(left)
}

/// Runs the experiment.
///
/// # Errors
/// [`ExperimentError::Machine`] if this machine lacks something; [`ExperimentError::Failed`] if a step failed.
pub fn run(options: Options<'_>, progress: &mut Progress<'_>) -> Result<Vec<Row>, ExperimentError> {
    options.part.check(&CASES.map(|case| case.name), &[])?;
    let refused = |why: String| ExperimentError::Machine {
        experiment: LISTING.name,
        why,
    };
    if !(options.slower.is_finite() && (1.0..=1000.0).contains(&options.slower)) {
        return Err(refused(format!(
            "{} times slower: give a number from 1 to 1000",
            options.slower
        )));
    }
    if let Some(why) = hindrance() {
        return Err(refused(why));
    }
    disk::sweep();
    let extent = Extent::of(&options);
    let never = Stop::default();
    let bench = Bench {
        extent: &extent,
        slower: options.slower,
        seed: options.seed,
        stop: options.stop.unwrap_or(&never),
    };
    let mut journal = Journal::open(LISTING.name, &options)?;
    let found = measured(&bench, &options, &mut journal, progress)?;
    let mut rows = figures::rows(&found, &extent, options.slower)
        .map_err(|why| failed("figures", why.into()))?;
    if options.part.is_whole() {
        let short = options.quick || options.slower != claims::JUDGED_AT;
        rows.extend(claims::claims(&rows, short));
    }
    progress("done", 1.0);
    Ok(rows)
}

/// What is asked for of the devices; those that the journal has are not measured again.
fn measured(
    bench: &Bench<'_>,
    options: &Options<'_>,
    journal: &mut Journal,
    progress: &mut Progress<'_>,
) -> Result<Found, ExperimentError> {
    let mut found = Found::default();
    let mut template = None;
    let asked = |case: &&Case| options.part.has_case(case.name);
    let cases: Vec<&Case> = CASES.iter().filter(asked).collect();
    for (n, case) in cases.iter().enumerate() {
        let done = match journal.get::<OfDevice>(case.name) {
            Some(done) => done,
            None => {
                let template = match &template {
                    Some(template) => template,
                    None => {
                        progress("databases to copy", 0.0);
                        let made = bench.template();
                        template.insert(made.map_err(|it| failed("the databases", it))?)
                    }
                };
                let from = 0.05 + 0.95 * n as f64 / cases.len() as f64;
                let mut report_progress = |what: &str, done: f64| {
                    let what = format!("{}: {what}", case.name);
                    progress(&what, from + 0.95 * done / cases.len() as f64);
                };
                let done = bench.device(case, template.path(), &mut report_progress);
                let done = done.map_err(|it| failed(case.name, it))?;
                journal.put(case.name, &done)?;
                done
            }
        };
        let added = found.add(case.name, done);
        added.map_err(|why| failed(case.name, why.into()))?;
    }
    Ok(found)
}

fn failed(case: &str, trouble: Trouble) -> ExperimentError {
    ExperimentError::Failed {
        case: case.to_owned(),
        method: LISTING.name,
        source: Box::new(trouble),
    }
}

#[cfg(test)]
mod tests;
