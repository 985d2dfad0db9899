//! What the authors could not do: predict what a database does on storage-class memory, then measure it there.
//!
//! ```text
//! five models in real time, each: served -> mounted -> fio: its own figures -> a database on it: results
//! NAND, 3D XPoint, DRAM -> fit -> SCM1, SCM2 predicted from their own figures | measured there -> error
//! ```
//!
//! The devices are modelled, and all of this machine that lies before them is real: the program that serves, NBD, FUSE, the loop device, ext4,
//! the database, its clients. What they take by themselves is the *floor*, measured with the model switched off. Predictor and
//! measurement see the same floor, so it hides differences and does not falsify them.
//!
//! Needs root, for mounting. In real time: figures differ from run to run.
//!
//! Source: SCM 5 (SCM1, SCM2), tables 4 and 5 (the models' latencies).
//!
//! Always true:
//! 1. Nothing of SCM1's and SCM2's results is seen by a fit.
//! 2. Whatever happens, what was mounted is unmounted.

mod disk;
mod figures;
mod serve;

use std::path::Path;

use ::predict::data::DataSet;
use ::predict::grid::{Grid, Job, Way};
use ::predict::import::{self, About, Format};
use base::{Bytes, Nanos};
use device::model::{Kind, Spec};
use report::Row;

use crate::app::mariadb::{Server, Settings, Tools};
use crate::app::process::{Stop, room};
use crate::app::work::{Records, Workload};
use crate::app::{self, Home, Plan};
use crate::experiment::{ExperimentError, Listing, Options, Progress};
use disk::Disk;
use figures::Path4;

/// The experiment, for listings.
pub const LISTING: Listing = Listing {
    name: "predict-loop",
    paper: "SCM",
    about: "a database predicted on storage-class memory and then measured there: modelled devices in real time, mounted (needs root)",
};

/// A device: its name in the rows, its model, is it what is predicted?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    name: &'static str,
    model: &'static str,
    predicted: bool,
}

const fn case(name: &'static str, model: &'static str, predicted: bool) -> Case {
    Case {
        name,
        model,
        predicted,
    }
}

/// The devices: those that are fitted, then those that are predicted.
const CASES: [Case; 5] = [
    case("NAND", "nand", false),
    case("3D XPoint", "scm", false),
    case("DRAM", "dram", false),
    case("SCM1", "scm1", true),
    case("SCM2", "scm2", true),
];

/// How much is done.
#[derive(Debug, Clone)]
struct Extent {
    disk: Bytes,
    fio_runs: u32,
    /// Of each run of fio.
    fio: Nanos,
    sizes: Vec<Bytes>,
    plan: Plan,
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
        match options.quick {
            true => Extent {
                disk: Bytes::mib(256),
                fio_runs: 1,
                fio: Nanos::millis(250),
                sizes,
                plan: Plan {
                    records: records(20_000),
                    counts: Nanos::millis(400),
                    ramp: Nanos::millis(100),
                    runs: 1,
                    ..plan
                },
            },
            false => Extent {
                disk: Bytes::mib(512),
                fio_runs: 3,
                fio: Nanos::secs(2),
                sizes,
                plan: Plan {
                    records: records(100_000),
                    counts: Nanos::secs(5),
                    ramp: Nanos::secs(1),
                    runs: 5,
                    ..plan
                },
            },
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
    let missing = || Tools::find().err().map(|error| error.to_string());
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
    options.part.check(&[], &[])?;
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
    let mut found = figures::Found::default();
    progress("a database to copy", 0.0);
    let failed = |case: &str, trouble: Trouble| ExperimentError::Failed {
        case: case.to_owned(),
        method: "predict-loop",
        source: Box::new(trouble),
    };
    let template = bench.template().map_err(|it| failed("the database", it))?;
    for (n, case) in CASES.iter().enumerate() {
        let from = 0.05 + 0.95 * n as f64 / CASES.len() as f64;
        let mut report_progress = |what: &str, done: f64| {
            let what = format!("{}: {what}", case.name);
            progress(&what, from + 0.95 * done / CASES.len() as f64);
        };
        bench
            .device(case, template.path(), &mut found, &mut report_progress)
            .map_err(|it| failed(case.name, it))?;
    }
    let rows = figures::rows(&found, &extent.plan, options.slower)
        .map_err(|why| failed("figures", why.into()))?;
    progress("done", 1.0);
    Ok(rows)
}

/// One experiment under way.
struct Bench<'a> {
    extent: &'a Extent,
    slower: f64,
    seed: u64,
    stop: &'a Stop,
}

impl Bench<'_> {
    fn go_on(&self) -> Result<(), Trouble> {
        match self.stop.is_set() {
            true => Err(Trouble::Interrupted),
            false => Ok(()),
        }
    }

    /// A loaded database that is shut down: every device gets the same one.
    fn template(&self) -> Result<tempfile::TempDir, Trouble> {
        let folder = room("template").map_err(|error| format!("cannot make a folder: {error}"))?;
        let data = folder.path().join("data");
        let plan = &self.extent.plan;
        app::prepare(&Tools::find()?, &data, plan, self.stop, &mut |_, _| {})?;
        Ok(folder)
    }

    /// Everything that is measured of one device.
    fn device(
        &self,
        case: &Case,
        template: &Path,
        found: &mut figures::Found,
        report_progress: &mut dyn FnMut(&str, f64),
    ) -> Result<(), Trouble> {
        let model = Spec::find(case.model).map_err(|error| error.to_string())?;
        let slow = serve::slowed(&model, self.slower);
        report_progress("attaching", 0.0);
        let mut disk = Disk::attach(&slow, self.extent.disk, self.seed, self.stop)?;
        self.own_figures(case, &slow, &disk, found, report_progress)?;
        self.results(case, &mut disk, template, found, report_progress)?;
        disk.close()?;
        Ok(())
    }

    /// What fio sees of it.
    fn own_figures(
        &self,
        case: &Case,
        spec: &Spec,
        disk: &Disk,
        found: &mut figures::Found,
        report_progress: &mut dyn FnMut(&str, f64),
    ) -> Result<(), Trouble> {
        let served = disk.served();
        if found.paths.is_empty() {
            // The same for all: once is enough. It also touches every page of memory first.
            served.set_timed(false);
            for job in self.extent.jobs(disk.device(), 1) {
                self.go_on()?;
                report_progress(&format!("floor, {}", job.name), 0.0);
                let mut floor = DataSet::default();
                add(&mut floor, "floor", &job)?;
                found.floors.push((key(&job), latency(&floor)?));
            }
        }
        served.set_timed(true);
        let jobs = self.extent.jobs(disk.device(), self.extent.fio_runs);
        for (n, job) in jobs.iter().enumerate() {
            self.go_on()?;
            report_progress(&job.name, 0.4 * n as f64 / jobs.len() as f64);
            let before = served.took();
            add(&mut found.data, case.name, job)?;
            let (way, size) = key(job);
            let kept = served.took().mean_us_since(&before, way == "read");
            found.paths.push(Path4 {
                device: case.name,
                modelled: modelled(spec, &way, size),
                kept: kept.ok_or_else(|| format!("{}: nothing reached the device", job.name))?,
                way,
                size,
            });
        }
        served.set_timed(false);
        Ok(())
    }

    /// What the database does on it.
    fn results(
        &self,
        case: &Case,
        disk: &mut Disk,
        template: &Path,
        found: &mut figures::Found,
        report_progress: &mut dyn FnMut(&str, f64),
    ) -> Result<(), Trouble> {
        let plan = &self.extent.plan;
        report_progress("a file system and the database", 0.4);
        let mounted = disk.mount()?;
        // It says whose the folder is; the file system goes with the disk.
        let (home, _) = Home::claim(&mounted, false)?;
        let (from, to) = (template.join("data"), home.data());
        disk::copy(&from, &to)?;
        let server = Server::start(&Tools::find()?, &to, &plan.server, self.stop)?;
        disk.served().set_timed(true);
        let planned = plan.planned();
        let mut outcomes = Vec::new();
        for (n, run) in planned.iter().enumerate() {
            self.go_on()?;
            let what = format!("{}, run {}", run.workload, run.run);
            report_progress(&what, 0.45 + 0.5 * n as f64 / planned.len() as f64);
            outcomes.push(app::measure(&server, plan, run, &mounted, self.stop)?);
        }
        disk.served().set_timed(false);
        server.stop()?;
        drop(home);
        for outcome in &outcomes {
            for row in outcome.rows(case.name, "predict-loop")? {
                found.data.add(row)?;
            }
        }
        found
            .counts
            .extend(outcomes.into_iter().map(|it| (case.name, it)));
        Ok(())
    }
}

/// Runs a job and adds what fio printed.
fn add(data: &mut DataSet, device: &str, job: &Job) -> Result<(), Trouble> {
    let text = String::from_utf8_lossy(&job.run()?).into_owned();
    let about = About {
        device: Some(device.to_owned()),
        ..About::default()
    };
    import::add(data, Format::Fio, &text, &job.name, &about).map_err(|error| error.to_string())?;
    Ok(())
}

/// The one latency in `data`, in us.
fn latency(data: &DataSet) -> Result<f64, Trouble> {
    let rows = data.rows().iter();
    let mut latencies = rows.filter(|row| {
        matches!(&row.what, ::predict::data::What::Device { regressor } if regressor.ends_with("-latency"))
    });
    let first = latencies.next().ok_or("fio told no latency".to_owned())?;
    Ok(first.quantity.reckoned())
}

/// Which way and which size a job goes; its name says it: `read-16K-...`.
fn key(job: &Job) -> (String, Bytes) {
    let mut words = job.name.split('-');
    let way = words.next().unwrap_or_default().to_owned();
    let kib = words
        .next()
        .and_then(|word| word.strip_suffix('K')?.parse().ok());
    (way, Bytes::kib(kib.unwrap_or(0)))
}

/// What the model takes for one access of this size, in us.
fn modelled(spec: &Spec, way: &str, size: Bytes) -> f64 {
    let Kind::Constant(constant) = &spec.kind else {
        return f64::NAN;
    };
    let points = match way {
        "read" => &constant.read_us,
        _ => &constant.write_us,
    };
    let at = points.iter().find(|(bytes, _)| *bytes == size.0 as f64);
    at.map_or(f64::NAN, |(_, latency)| *latency)
}

#[cfg(test)]
mod tests;
