//! What does a database do on this device? A load like YCSB's core workloads on a MariaDB of its own.
//!
//! ```text
//! Home: a folder of ours in TARGET -> install, load (once) -> start -> run by run -> Outcome (raw JSON, rows) -> stop -> folder gone
//! keys, work: what is asked   drive: when, and how long it took   sql, mariadb: of whom
//! ```
//!
//! Source: SCM 4.2.2 (YCSB on a MySQL engine; Zipfian keys; mean latencies of reads and of writes).
//!
//! Choice: an engine of MySQL's family, as in the paper, since it goes past the page cache: a small buffer pool is enough to have
//! operations reach the device.
//!
//! Always true:
//! 1. What was in TARGET before is there afterwards, and nothing else.
//! 2. A run that is named like another measured the same.

pub mod drive;
mod error;
pub mod keys;
pub mod mariadb;
pub mod outcome;
pub mod process;
pub mod rocksdb;
pub mod sql;
pub mod work;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::predict::data::Parameters;
use ::predict::model::POOLED;
use base::{Bytes, Nanos};

use drive::{DriveError, Load, Measured};
pub use error::AppError;
use mariadb::{Server, Settings, Tools};
use outcome::{About, Counters, Outcome};
use process::Stop;
use work::{Records, Workload};

/// Our folder in a target.
const FOLDER: &str = "tanada-bench-app";
/// The database's files in it.
const DATA: &str = "data";
/// Another database's files in it.
const OTHER: &str = "other";
/// How long the database of a run that died may take to end.
const OLD_SERVER_TIMEOUT: Duration = Duration::from_secs(60);
/// The file that says whose it is.
const OWNER: &str = "owner";
/// What a file system has by itself.
const OF_THE_FILE_SYSTEM: &str = "lost+found";

/// What is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What the database holds.
    pub records: Records,
    /// What is asked of it.
    pub workloads: Vec<Workload>,
    /// Clients.
    pub clients: u32,
    /// Operations a second of all together; `None`: closed loop.
    pub rate: Option<f64>,
    /// What counts of each run.
    pub counts: Nanos,
    /// What passes before.
    pub ramp: Nanos,
    /// How often everything is repeated.
    pub runs: u32,
    /// Where chance begins.
    pub seed: u64,
    /// The server.
    pub server: Settings,
}

impl Default for Plan {
    /// All workloads on 100 000 records of 1000 bytes, four clients, 30 s after 5 s, five times.
    fn default() -> Plan {
        Plan {
            records: Records::default(),
            workloads: Workload::ALL.to_vec(),
            clients: 4,
            rate: None,
            counts: Nanos::secs(30),
            ramp: Nanos::secs(5),
            runs: 5,
            seed: 1,
            server: Settings::default(),
        }
    }
}

/// One run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// Its name; says what was measured and how, so equal names are equal measurements.
    pub name: String,
    /// What is asked.
    pub workload: Workload,
    /// Which repetition, from 1.
    pub run: u32,
}

impl Plan {
    /// The runs in their order: all of the first repetition, then all of the second.
    ///
    /// # Example
    /// ```
    /// let plan = experiments::app::Plan::default();
    /// let runs = plan.planned();
    /// assert_eq!(runs.len(), 4 * 5);
    /// assert_eq!(runs[0].name, "app-workload-a-clients4-data0.1GB-100000x10x100-pool16MiB-log32MiB-30s-ramp5s-run1");
    /// ```
    pub fn planned(&self) -> Vec<Planned> {
        let mut planned = Vec::new();
        for run in 1..=self.runs {
            for workload in &self.workloads {
                planned.push(Planned {
                    name: self.name(*workload, run),
                    workload: *workload,
                    run,
                });
            }
        }
        planned
    }

    fn name(&self, workload: Workload, run: u32) -> String {
        let seconds = |span: Nanos| span.0 as f64 / 1e9;
        let mib = |bytes: Bytes| bytes.0 as f64 / f64::from(1 << 20);
        let mut name = format!(
            "app-{workload}-clients{}-data{}GB-{}x{}x{}-pool{}MiB-log{}MiB-{}s-ramp{}s",
            self.clients,
            self.gigabytes(),
            self.records.count,
            self.records.fields,
            self.records.field_bytes,
            mib(self.server.buffer_pool),
            mib(self.server.log),
            seconds(self.counts),
            seconds(self.ramp)
        );
        for (parameter, value) in self.unusual() {
            name.push_str(&format!("-{parameter}{value}"));
        }
        if self.seed != 1 {
            name.push_str(&format!("-seed{}", self.seed));
        }
        format!("{name}-run{run}")
    }

    /// The parameters that are not as usual.
    fn unusual(&self) -> Vec<(&'static str, String)> {
        let mut unusual = Vec::new();
        if let Some(rate) = self.rate {
            unusual.push(("rate", rate.to_string()));
        }
        if self.server.commit == mariadb::Commit::Lazy {
            unusual.push(("commit", "lazy".to_owned()));
        }
        if !self.server.direct {
            unusual.push(("io", "buffered".to_owned()));
        }
        unusual
    }

    fn gigabytes(&self) -> f64 {
        (self.records.bytes() as f64 / 1e5).round() / 1e4
    }

    /// The parameters in the data set.
    pub fn parameters(&self) -> Parameters {
        let mut parameters = Parameters::default();
        parameters.set("clients", &self.clients.to_string());
        parameters.set(POOLED, &self.gigabytes().to_string());
        let pool = self.server.buffer_pool.0 as f64 / f64::from(1 << 20);
        parameters.set("pool_mib", &pool.to_string());
        for (parameter, value) in self.unusual() {
            parameters.set(parameter, &value);
        }
        parameters
    }

    /// What a reader must know: is the device reached at all?
    pub fn warnings(&self, memory: Option<Bytes>) -> Vec<String> {
        let data = Bytes(self.records.bytes());
        let mut warnings = Vec::new();
        if data.0 < 2 * self.server.buffer_pool.0 {
            warnings.push(format!(
                "{data} of data are less than twice the buffer pool of {}: many reads will not reach the device",
                self.server.buffer_pool
            ));
        }
        if let Some(memory) = memory.filter(|memory| !self.server.direct && data < *memory) {
            warnings.push(format!(
                "{data} of data fit the page cache of this machine ({memory} of memory): reads will hardly reach the device; leave \
                 --io direct, or load more"
            ));
        }
        if self.server.commit == mariadb::Commit::Lazy {
            warnings.push(
                "commits do not wait for the device: update latencies say little of it".to_owned(),
            );
        }
        warnings
    }
}

/// A folder of ours in the target, gone with this.
#[derive(Debug)]
pub struct Home {
    folder: PathBuf,
}

impl Home {
    /// Makes it. What a dead run left there is cleared away; true beside it then.
    ///
    /// # Errors
    /// [`AppError`]: the target holds data and `beside` does not allow it, or another run is there.
    pub fn claim(target: &Path, beside: bool) -> Result<(Home, bool), AppError> {
        let entries = fs::read_dir(target).map_err(|e| AppError::folder("look into", target, e))?;
        for entry in entries {
            let name = entry
                .map_err(|e| AppError::folder("look into", target, e))?
                .file_name();
            if name != FOLDER && name != OF_THE_FILE_SYSTEM && !beside {
                return Err(AppError::HoldsData {
                    target: target.to_owned(),
                    found: name.to_string_lossy().into_owned(),
                });
            }
        }
        let whole = target
            .canonicalize()
            .map_err(|e| AppError::folder("look into", target, e))?;
        let folder = whole.join(FOLDER);
        let owner = folder.join(OWNER);
        let left = folder.exists();
        if left {
            let text = fs::read_to_string(&owner).unwrap_or_default();
            let pid: Option<u32> = text.trim().parse().ok();
            if let Some(pid) = pid.filter(|pid| process::lives(*pid)) {
                return Err(AppError::Busy {
                    target: target.to_owned(),
                    pid,
                });
            }
            if pid.is_none() {
                // Not made by us, or it was never finished.
                let empty = fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_none());
                if !empty {
                    return Err(AppError::HoldsData {
                        target: target.to_owned(),
                        found: format!("{FOLDER} without its file '{OWNER}'"),
                    });
                }
            }
            // Its database was signalled to end when it died, and may still be about it.
            let words = format!("--datadir={}", folder.join(DATA).display());
            let mut last = None;
            process::await_that(OLD_SERVER_TIMEOUT, &Stop::default(), || {
                last = process::started_with(&words);
                last.is_none()
            });
            if let Some(pid) = last {
                return Err(AppError::Busy {
                    target: target.to_owned(),
                    pid,
                });
            }
            fs::remove_dir_all(&folder).map_err(|e| AppError::folder("clear", &folder, e))?;
        }
        fs::create_dir(&folder).map_err(|e| AppError::folder("make", &folder, e))?;
        let home = Home { folder };
        let pid = std::process::id().to_string();
        fs::write(&owner, pid).map_err(|e| AppError::folder("write", &owner, e))?;
        Ok((home, left))
    }

    /// Where the database keeps its files.
    pub fn data(&self) -> PathBuf {
        self.folder.join(DATA)
    }

    /// Where another database keeps its files.
    pub fn other(&self) -> PathBuf {
        self.folder.join(OTHER)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // What cannot be removed is found by the next run.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Makes the database in `data`, loads it and leaves it shut down.
///
/// # Errors
/// [`AppError`].
pub fn prepare(
    tools: &Tools,
    data: &Path,
    plan: &Plan,
    stop: &Stop,
    report_progress: &mut dyn FnMut(&str, f64),
) -> Result<(), AppError> {
    report_progress("making the database", 0.0);
    mariadb::install(tools, data, &plan.server)?;
    // No client waits for a load: it commits as it goes.
    let hurried = Settings {
        commit: mariadb::Commit::Lazy,
        ..plan.server.clone()
    };
    let server = Server::start(tools, data, &hurried, stop)?;
    let count = plan.records.count;
    let mut connection = server.connect()?;
    sql::load(&mut connection, plan.records, plan.seed, &mut |done| {
        report_progress("loading", done as f64 / count as f64);
        match stop.is_set() {
            true => Err(AppError::Interrupted),
            false => Ok(()),
        }
    })?;
    drop(connection);
    server.stop()
}

/// Refuses a target that is too small.
///
/// # Errors
/// [`AppError::Room`].
pub fn room_for(target: &Path, plan: &Plan) -> Result<(), AppError> {
    let at = rustix::fs::statvfs(target)
        .map_err(|e| AppError::folder("ask how much is free in", target, e.into()))?;
    let free = Bytes(at.f_bavail * at.f_frsize);
    // Pages are not full, what was updated is kept until it is purged, and the system has its own.
    let needed = Bytes(plan.records.bytes() * 3 / 2 + plan.server.log.0 + (96 << 20));
    match free < needed {
        true => Err(AppError::Room {
            target: target.to_owned(),
            free,
            records: plan.records.count,
            needed,
        }),
        false => Ok(()),
    }
}

/// One run on a server that is loaded.
///
/// # Errors
/// [`AppError`].
pub fn measure(
    server: &Server,
    plan: &Plan,
    planned: &Planned,
    device_of: &Path,
    stop: &Stop,
) -> Result<Outcome, AppError> {
    let load = Load {
        workload: planned.workload,
        clients: plan.clients,
        rate: plan.rate,
        counts: plan.counts,
        ramp: plan.ramp,
        seed: seed_of(plan.seed, &planned.name),
    };
    let mut clients = Vec::new();
    for _ in 0..plan.clients {
        clients.push(sql::Client::new(server.connect()?, plan.records)?);
    }
    let database = format!("MariaDB {}", sql::version(&mut server.connect()?)?);
    let before = Counters::of(device_of);
    let seen = side_by_side(clients, &load, plan.records, stop);
    let after = Counters::of(device_of);
    let seen = seen.map_err(|source| match source {
        DriveError::Interrupted => AppError::Interrupted,
        source => AppError::Drive {
            name: planned.name.clone(),
            source,
        },
    })?;
    Ok(Outcome::of(
        &seen,
        About {
            database: &database,
            workload: &planned.workload.to_string(),
            parameters: &plan.parameters(),
            run: planned.run,
            seconds: plan.counts.0 as f64 / 1e9,
            device: after
                .zip(before)
                .map(|(after, before)| after.since(&before)),
        },
    ))
}

/// Other operations in each run, the same when it is done again. What is written differs from run to run: a database does not
/// write what is there already.
fn seed_of(seed: u64, name: &str) -> u64 {
    let mix = |mixed: u64, byte: u8| {
        (mixed.rotate_left(5) ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    name.bytes().fold(seed, mix)
}

/// Every client on a thread of its own: a database's answers are waited for.
fn side_by_side(
    clients: Vec<sql::Client>,
    load: &Load,
    records: Records,
    stop: &Stop,
) -> Result<Measured, DriveError> {
    // One that fails ends the others.
    let stop = &stop.below();
    let results: Vec<Result<Measured, DriveError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(clients)
            .map(|(number, client)| scope.spawn(move || one(client, *load, records, number, stop)))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join();
        threads
            .into_iter()
            .map(|thread| join(thread).unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut all = Measured::default();
    let mut interrupted = false;
    for result in results {
        match result {
            Ok(seen) => all.add(&seen),
            Err(DriveError::Interrupted) => interrupted = true,
            Err(error) => return Err(error),
        }
    }
    match interrupted {
        true => Err(DriveError::Interrupted),
        false => Ok(all),
    }
}

/// One client, in real time.
fn one(
    mut client: sql::Client,
    load: Load,
    records: Records,
    number: u32,
    stop: &Stop,
) -> Result<Measured, DriveError> {
    let runtime = env::Runtime::real(env::RealConfig::default())
        .map_err(|error| DriveError::Operation(format!("no runtime: {error}")))?;
    let heard = stop.clone();
    let seen = runtime
        .block_on(async move { drive::client(&mut client, &load, records, number, &heard).await });
    if seen.is_err() {
        stop.set();
    }
    seen
}

#[cfg(test)]
mod tests;
