//! One device after the other: attached, measured by fio, and two databases on it.
//!
//! ```text
//! template: databases that are loaded, once -> each device: attach -> floor -> fio -> MariaDB -> RocksDB -> gone
//! ```

use std::path::Path;

use ::predict::data::DataSet;
use ::predict::grid::Job;
use ::predict::import::{self, About, Format};
use base::Bytes;
use device::model::Spec;

use super::devices::{Case, modelled, slowed};
use super::disk::{self, Disk};
use super::found::{Floor, OfDevice, Path4};
use super::{Extent, LISTING, Trouble};
use crate::app::mariadb::{Server, Tools};
use crate::app::outcome::Outcome;
use crate::app::process::{Stop, room};
use crate::app::rocksdb;
use crate::app::{self, Home};

/// The databases' folders in a template.
const DATA: &str = "data";
const OTHER: &str = "other";

/// One experiment under way.
pub struct Bench<'a> {
    /// How much is done.
    pub extent: &'a Extent,
    /// How many times slower than their sheets devices are.
    pub slower: f64,
    /// Where chance begins.
    pub seed: u64,
    /// Ends it early.
    pub stop: &'a Stop,
}

impl Bench<'_> {
    fn go_on(&self) -> Result<(), Trouble> {
        match self.stop.is_set() {
            true => Err(Trouble::Interrupted),
            false => Ok(()),
        }
    }

    /// Loaded databases that are shut down: every device gets the same ones.
    pub fn template(&self) -> Result<tempfile::TempDir, Trouble> {
        let folder = room("template").map_err(|error| format!("cannot make a folder: {error}"))?;
        let plan = &self.extent.plan;
        let (data, other) = (folder.path().join(DATA), folder.path().join(OTHER));
        app::prepare(&Tools::find()?, &data, plan, self.stop, &mut |_, _| {})?;
        let tool = rocksdb::Tool::find()?;
        rocksdb::fill(&tool, &other, &self.extent.rocksdb, self.stop)?;
        Ok(folder)
    }

    /// Everything that is measured of one device.
    pub fn device(
        &self,
        case: &Case,
        template: &Path,
        report_progress: &mut dyn FnMut(&str, f64),
    ) -> Result<OfDevice, Trouble> {
        let slow = slowed(&case.spec()?, self.slower);
        let mut data = DataSet::default();
        report_progress("attaching", 0.0);
        let mut disk = Disk::attach(&slow, self.extent.disk, self.seed, self.stop)?;
        let floors = self.floors(&disk, report_progress)?;
        let paths = self.own_figures(case, &slow, &disk, &mut data, report_progress)?;
        report_progress("a file system and MariaDB", 0.3);
        let mounted = disk.mount()?;
        // It says whose the folder is; the file system goes with the disk.
        let (home, _) = Home::claim(&mounted, false)?;
        let mariadb = self.mariadb(&disk, &mounted, (template, &home), report_progress)?;
        report_progress("RocksDB", 0.7);
        let rocksdb = self.rocksdb(&disk, (template, &home), report_progress)?;
        drop(home);
        disk.close()?;
        for outcome in &mariadb {
            for row in outcome.rows(case.name, LISTING.name)? {
                data.add(row)?;
            }
        }
        for outcome in &rocksdb {
            for row in outcome.rows(case.name, LISTING.name)? {
                data.add(row)?;
            }
        }
        let of = OfDevice {
            paths,
            floors,
            mariadb,
            rocksdb,
            ..OfDevice::default()
        };
        Ok(of.with(&data))
    }

    /// What fio sees with the model switched off. It also touches every page of memory first.
    fn floors(
        &self,
        disk: &Disk,
        report_progress: &mut dyn FnMut(&str, f64),
    ) -> Result<Vec<Floor>, Trouble> {
        disk.served().set_timed(false);
        let mut floors = Vec::new();
        for job in self.extent.jobs(disk.device(), 1) {
            self.go_on()?;
            report_progress(&format!("floor, {}", job.name), 0.0);
            let mut floor = DataSet::default();
            add(&mut floor, "floor", &job)?;
            let (way, size) = key(&job);
            let latency = latency(&floor)?;
            floors.push(Floor { way, size, latency });
        }
        Ok(floors)
    }

    /// What fio sees of it.
    fn own_figures(
        &self,
        case: &Case,
        spec: &Spec,
        disk: &Disk,
        data: &mut DataSet,
        report_progress: &mut dyn FnMut(&str, f64),
    ) -> Result<Vec<Path4>, Trouble> {
        let served = disk.served();
        served.set_timed(true);
        let jobs = self.extent.jobs(disk.device(), self.extent.fio_runs);
        let mut paths = Vec::new();
        for (n, job) in jobs.iter().enumerate() {
            self.go_on()?;
            report_progress(&job.name, 0.3 * n as f64 / jobs.len() as f64);
            let before = served.took();
            add(data, case.name, job)?;
            let (way, size) = key(job);
            let kept = served.took().mean_us_since(&before, way == "read");
            paths.push(Path4 {
                modelled: modelled(spec, &way, size),
                kept: kept.ok_or_else(|| format!("{}: nothing reached the device", job.name))?,
                way,
                size,
            });
        }
        served.set_timed(false);
        Ok(paths)
    }

    /// What MariaDB does on it.
    fn mariadb(
        &self,
        disk: &Disk,
        mounted: &Path,
        (template, home): (&Path, &Home),
        report_progress: &mut dyn FnMut(&str, f64),
    ) -> Result<Vec<Outcome>, Trouble> {
        let plan = &self.extent.plan;
        let (from, to) = (template.join(DATA), home.data());
        disk::copy(&from, &to)?;
        let server = Server::start(&Tools::find()?, &to, &plan.server, self.stop)?;
        disk.served().set_timed(true);
        let planned = plan.planned();
        let mut outcomes = Vec::new();
        for (n, run) in planned.iter().enumerate() {
            self.go_on()?;
            let what = format!("{}, run {}", run.workload, run.run);
            report_progress(&what, 0.35 + 0.35 * n as f64 / planned.len() as f64);
            outcomes.push(app::measure(&server, plan, run, mounted, self.stop)?);
        }
        disk.served().set_timed(false);
        server.stop()?;
        // The other one needs the room.
        std::fs::remove_dir_all(&to).map_err(|e| format!("cannot clear {}: {e}", to.display()))?;
        Ok(outcomes)
    }

    /// What RocksDB does on it.
    fn rocksdb(
        &self,
        disk: &Disk,
        (template, home): (&Path, &Home),
        report_progress: &mut dyn FnMut(&str, f64),
    ) -> Result<Vec<rocksdb::Outcome>, Trouble> {
        let (tool, plan) = (rocksdb::Tool::find()?, &self.extent.rocksdb);
        let (from, to) = (template.join(OTHER), home.other());
        disk::copy(&from, &to)?;
        disk.served().set_timed(true);
        let mut outcomes = Vec::new();
        for run in 1..=plan.runs {
            for workload in rocksdb::Workload::ALL {
                self.go_on()?;
                let what = format!("{}, run {run}", workload.name());
                report_progress(
                    &what,
                    0.75 + 0.25 * f64::from(run - 1) / f64::from(plan.runs),
                );
                let one = rocksdb::measure(&tool, &to, plan, (workload, run), self.stop)?;
                outcomes.push(one);
            }
        }
        disk.served().set_timed(false);
        Ok(outcomes)
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
