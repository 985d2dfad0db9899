//! What does another kind of database do on this device? RocksDB, by its own `db_bench`.
//!
//! ```text
//! fill: every record once, compacted -> a folder -> copied to a device -> measure: one process a run -> "readrandom : 12.3 micros/op"
//! ```
//!
//! A log-structured merge tree beside the B-trees of the other one: reads of 4 KiB blocks, writes to a log alone, each
//! flushed; sorted runs are written behind.
//!
//! Choice: data go past the page cache and the block cache is small beside them, so that reads reach the device; the log does not,
//! as RocksDB has no such way, but each write waits for it.
//!
//! Always true:
//! 1. Never root: where we are root, it runs as the other database does.
//! 2. A run whose reads did not find their records has no result.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ::predict::data::{Parameters, Row};
use ::predict::model::POOLED;
use ::predict::units::Unit;
use base::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use super::AppError;
use super::mariadb::{give, identity, telling_lines};
use super::outcome::{Counters, result_rows};
use super::process::{Process, Stop, await_that, bound, find_program, room};

/// Bytes of a key.
const KEY: u64 = 16;
/// How long a run may take beyond what counts: the database is opened, on a slow device, and its log is read.
const AROUND: Duration = Duration::from_secs(300);
/// How long it may take to end when it is signalled.
const END: Duration = Duration::from_secs(10);

/// What is asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Random records are read.
    ReadRandom,
    /// Random records are written anew, each synced.
    Overwrite,
    /// Random records are read while another thread writes, each write synced.
    ReadWhileWriting,
}

impl Workload {
    /// All, in the order they are run.
    pub const ALL: [Workload; 3] = [
        Workload::ReadRandom,
        Workload::Overwrite,
        Workload::ReadWhileWriting,
    ];

    /// Its name in `db_bench`.
    fn benchmark(self) -> &'static str {
        match self {
            Workload::ReadRandom => "readrandom",
            Workload::Overwrite => "overwrite",
            Workload::ReadWhileWriting => "readwhilewriting",
        }
    }

    /// Its name in a data set.
    pub fn name(self) -> &'static str {
        match self {
            Workload::ReadRandom => "rocksdb-readrandom",
            Workload::Overwrite => "rocksdb-overwrite",
            Workload::ReadWhileWriting => "rocksdb-readwhilewriting",
        }
    }

    /// Whose latency it prints.
    fn metric(self) -> &'static str {
        match self {
            Workload::ReadRandom | Workload::ReadWhileWriting => "read_latency",
            Workload::Overwrite => "write_latency",
        }
    }
}

/// What is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// How many records it holds.
    pub records: u64,
    /// How large each is.
    pub record: Bytes,
    /// Memory for blocks.
    pub cache: Bytes,
    /// What counts of each run.
    pub counts: Nanos,
    /// How often everything is repeated.
    pub runs: u32,
    /// Where chance begins.
    pub seed: u64,
}

impl Plan {
    /// The parameters in a data set.
    pub fn parameters(&self) -> Parameters {
        let mut parameters = Parameters::default();
        let bytes = (self.records * self.record.0) as f64;
        let gigabytes = (bytes / 1e5).round() / 1e4;
        parameters.set(POOLED, &gigabytes.to_string());
        let cache = self.cache.0 as f64 / f64::from(1 << 20);
        parameters.set("cache_mib", &cache.to_string());
        parameters
    }

    fn arguments(&self, data: &Path) -> Vec<String> {
        vec![
            format!("--db={}", data.display()),
            format!("--num={}", self.records),
            format!("--key_size={KEY}"),
            format!("--value_size={}", self.record.0),
            format!("--cache_size={}", self.cache.0),
            "--compression_type=none".to_owned(),
            "--threads=1".to_owned(),
            "--use_direct_reads=1".to_owned(),
            "--use_direct_io_for_flush_and_compaction=1".to_owned(),
        ]
    }
}

/// The program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    program: PathBuf,
}

impl Tool {
    /// Looks for it.
    ///
    /// # Errors
    /// [`AppError::Tool`] names what is missing.
    pub fn find() -> Result<Tool, AppError> {
        let need = |name: &str, package: &'static str| {
            find_program(&[name]).ok_or_else(|| AppError::Tool {
                tool: name.to_owned(),
                package,
            })
        };
        need("setpriv", "util-linux")?;
        Ok(Tool {
            program: need("db_bench", "rocksdb-tools")?,
        })
    }

    /// Runs it on `data`; what it printed.
    fn run(
        &self,
        what: &'static str,
        arguments: &[String],
        longest: Duration,
        stop: &Stop,
    ) -> Result<String, AppError> {
        let room = room("rocksdb");
        let room =
            room.map_err(|source| AppError::folder("make", &std::env::temp_dir(), source))?;
        let [said, complained] = ["out", "err"].map(|name| room.path().join(name));
        let file = |path: &Path| {
            fs::File::create(path).map_err(|source| AppError::folder("make", path, source))
        };
        let mut command = bound(&self.program, identity(None)?);
        command
            .args(arguments)
            .current_dir("/")
            .stdout(Stdio::from(file(&said)?))
            .stderr(Stdio::from(file(&complained)?));
        let failed = |source| AppError::Start {
            what: self.program.display().to_string(),
            source,
        };
        let mut process = Process::start(command, END).map_err(failed)?;
        let mut outcome = Ok(None);
        await_that(longest, stop, || {
            outcome = process.ended();
            !matches!(outcome, Ok(None))
        });
        if stop.is_set() {
            return Err(AppError::Interrupted);
        }
        let text = fs::read_to_string(&said).unwrap_or_default();
        match outcome.map_err(failed)? {
            Some(status) if status.success() => Ok(text),
            Some(_) => Err(AppError::Server {
                what,
                said: telling_lines(&format!(
                    "{text}{}",
                    fs::read_to_string(&complained).unwrap_or_default()
                )),
            }),
            None => Err(AppError::Server {
                what,
                said: format!("nothing for {} s", longest.as_secs()),
            }),
        }
    }
}

/// Makes a database in `data`, a folder that is not there yet, with every record once and nothing left to compact.
///
/// # Errors
/// [`AppError`].
pub fn fill(tool: &Tool, data: &Path, plan: &Plan, stop: &Stop) -> Result<(), AppError> {
    let identity = identity(None)?;
    let made = fs::create_dir_all(data).and_then(|()| give(data, identity));
    made.map_err(|source| AppError::folder("make", data, source))?;
    let mut arguments = plan.arguments(data);
    arguments.extend([
        "--benchmarks=filluniquerandom,compact".to_owned(),
        // Who loads does not wait for a log.
        "--disable_wal=1".to_owned(),
        format!("--seed={}", plan.seed),
    ]);
    tool.run("fill itself", &arguments, AROUND, stop).map(drop)
}

/// One run on a database that was filled.
///
/// # Errors
/// [`AppError`].
pub fn measure(
    tool: &Tool,
    data: &Path,
    plan: &Plan,
    (workload, run): (Workload, u32),
    stop: &Stop,
) -> Result<Outcome, AppError> {
    let mut arguments = plan.arguments(data);
    let seconds = plan.counts.0.div_ceil(1_000_000_000);
    arguments.extend([
        format!("--benchmarks={}", workload.benchmark()),
        "--use_existing_db=1".to_owned(),
        "--sync=1".to_owned(),
        format!("--duration={seconds}"),
        // On a slow device a second is over after a few.
        "--ops_between_duration_checks=1".to_owned(),
        format!("--seed={}", plan.seed + u64::from(run)),
    ]);
    let longest = AROUND + Duration::from_secs(seconds);
    let before = Counters::of(data);
    let text = tool.run(workload.benchmark(), &arguments, longest, stop)?;
    let device = Counters::of(data).zip(before);
    let printed = Printed::read(&text, workload).map_err(|why| AppError::Server {
        what: workload.benchmark(),
        said: why,
    })?;
    Ok(Outcome {
        workload: workload.name().to_owned(),
        metric: workload.metric().to_owned(),
        parameters: plan.parameters().to_string(),
        run,
        printed,
        device: device.map(|(after, before)| after.since(&before)),
    })
}

/// What `db_bench` prints of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Printed {
    /// The mean of its operations, in us.
    pub mean_us: f64,
    /// How many there were a second.
    pub throughput: f64,
    /// How many there were.
    pub operations: u64,
}

impl Printed {
    /// From `readrandom   :  5.374 micros/op 185353 ops/sec 1.004 seconds 186077 operations;  179.6 MB/s (7 of 7 found)`.
    fn read(text: &str, workload: Workload) -> Result<Printed, String> {
        let name = workload.benchmark();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'))
            .ok_or_else(|| format!("no line about {name} in: {}", telling_lines(text)))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let before = |unit: &str| {
            let at = words
                .iter()
                .position(|word| word.trim_end_matches(';') == unit);
            let number = at.and_then(|at| words.get(at.checked_sub(1)?));
            number.ok_or_else(|| format!("no '{unit}' in: {line}"))
        };
        let number = |unit: &str| {
            let text = before(unit)?;
            let number = text.parse().ok().filter(|number: &f64| *number > 0.0);
            number.ok_or_else(|| format!("{text} {unit} in: {line}"))
        };
        if workload.metric() == "read_latency" {
            let found = before("found)")?;
            let of = words.iter().position(|word| *word == "of");
            let first = of.and_then(|at| words.get(at.checked_sub(1)?));
            if first.map(|word| word.trim_start_matches('(')) != Some(found) {
                return Err(format!("not all records were found: {line}"));
            }
        }
        let mean_us = number("micros/op")?;
        let operations = number("operations")?;
        Ok(Printed {
            mean_us,
            // It is printed without a fraction: fewer than one a second are 0.
            throughput: match before("ops/sec")?.parse() {
                Ok(0) => operations / number("seconds")?,
                _ => number("ops/sec")?,
            },
            operations: operations as u64,
        })
    }
}

/// What one run gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The workload.
    pub workload: String,
    /// Whose latency it is.
    pub metric: String,
    /// Its parameters, `NAME=VALUE;NAME=VALUE`.
    pub parameters: String,
    /// Which repetition, from 1.
    pub run: u32,
    /// What it printed.
    pub printed: Printed,
    /// What the device did meanwhile, to open the database too.
    pub device: Option<Counters>,
}

impl Outcome {
    /// As rows of the data set.
    ///
    /// # Errors
    /// A sentence if its parameters make no sense.
    pub fn rows(&self, device: &str, source: &str) -> Result<Vec<Row>, String> {
        let figures = [
            (&*self.metric, self.printed.mean_us, Unit::Us),
            ("throughput", self.printed.throughput, Unit::PerS),
        ];
        let of = (self.workload.as_str(), self.parameters.as_str(), self.run);
        result_rows(of, &figures, device, source)
    }
}

#[cfg(test)]
mod tests {
    use ::predict::data::What;

    use super::*;

    const READ: &str = "DB path: [/x]\nreadrandom   :       5.374 micros/op 185353 ops/sec 1.004 seconds 186077 operations;  179.6 \
                        MB/s (186077 of 186077 found)\n";

    #[test]
    fn what_db_bench_prints_is_read_and_becomes_rows() {
        let printed = Printed::read(READ, Workload::ReadRandom).unwrap();
        let wanted = Printed {
            mean_us: 5.374,
            throughput: 185_353.0,
            operations: 186_077,
        };
        assert_eq!(printed, wanted);
        let text = "overwrite    :   31002.157 micros/op 32 ops/sec 1.023 seconds 33 operations;    0.0 MB/s\n";
        let printed = Printed::read(text, Workload::Overwrite).unwrap();
        assert_eq!((printed.mean_us, printed.operations), (31_002.157, 33));
        let slow = "readwhilewriting : 1053291.800 micros/op 0 ops/sec 5.742 seconds 5 operations;    0.0 MB/s (5 of 5 found)\n";
        let slow = Printed::read(slow, Workload::ReadWhileWriting).unwrap();
        assert_eq!((slow.throughput, slow.operations), (5.0 / 5.742, 5));
        let outcome = Outcome {
            workload: Workload::Overwrite.name().to_owned(),
            metric: Workload::Overwrite.metric().to_owned(),
            parameters: "cache_mib=8;data_gb=0.1".to_owned(),
            run: 2,
            printed,
            device: None,
        };
        let rows = outcome.rows("nvme0", "x").unwrap();
        let shown: Vec<String> = rows
            .iter()
            .map(|row| match &row.what {
                What::Result {
                    workload, metric, ..
                } => format!("{workload} {metric} {} {}", row.quantity, row.run),
                What::Device { .. } => panic!("{row:?}"),
            })
            .collect();
        assert_eq!(
            shown,
            [
                "rocksdb-overwrite write_latency 31002.157 us 2",
                "rocksdb-overwrite throughput 32 ops/s 2"
            ]
        );
    }

    #[test]
    fn a_run_that_did_not_find_its_records_or_printed_nothing_has_no_result() {
        let none = "readrandom   :  0.201 micros/op 4981394 ops/sec 0.201 seconds 1000000 operations; (0 of 1000000 found)\n";
        let some = READ.replace("(186077 of", "(186076 of");
        for text in [none, &some] {
            let why = Printed::read(text, Workload::ReadRandom).unwrap_err();
            assert!(why.starts_with("not all records were found"), "{why}");
        }
        let why = Printed::read("put error: no space", Workload::Overwrite).unwrap_err();
        assert_eq!(why, "no line about overwrite in: put error: no space");
        let why = Printed::read("overwrite : fast\n", Workload::Overwrite).unwrap_err();
        assert!(why.starts_with("no 'micros/op'"), "{why}");
    }

    /// `None`: the program is missing here, and need not be.
    fn tool() -> Option<Tool> {
        match Tool::find() {
            Ok(tool) => Some(tool),
            Err(why) => {
                let required =
                    std::env::var_os("TANADA_REQUIRE_TOOLS").is_some_and(|value| value == "1");
                assert!(!required, "{why}");
                println!("skipped: {why}");
                None
            }
        }
    }

    fn plan() -> Plan {
        Plan {
            records: 2_000,
            record: Bytes(1000),
            cache: Bytes::kib(64),
            counts: Nanos::millis(400),
            runs: 1,
            seed: 1,
        }
    }

    #[test]
    fn a_filled_database_answers_every_workload() {
        let Some(tool) = tool() else { return };
        let (folder, stop) = (room("rocksdb-test").unwrap(), Stop::default());
        let data = folder.path().join("data");
        fill(&tool, &data, &plan(), &stop).unwrap();
        for workload in Workload::ALL {
            let outcome = measure(&tool, &data, &plan(), (workload, 1), &stop).unwrap();
            assert!(outcome.printed.operations > 10, "{outcome:?}");
            assert_eq!(outcome.parameters, "cache_mib=0.0625;data_gb=0.002");
        }
        // Where there is nothing, the cause is what it says.
        let other = folder.path().join("nothing");
        let error = measure(&tool, &other, &plan(), (Workload::ReadRandom, 1), &stop);
        assert!(matches!(error, Err(AppError::Server { .. })), "{error:?}");
    }

    #[test]
    fn an_interrupted_run_has_ended() {
        let Some(tool) = tool() else { return };
        let folder = room("rocksdb-test").unwrap();
        let stop = Stop::default();
        stop.set();
        let data = folder.path().join("data");
        let error = fill(&tool, &data, &plan(), &stop).unwrap_err();
        assert!(matches!(error, AppError::Interrupted), "{error}");
        let words = format!("--db={}", data.display());
        assert_eq!(super::super::process::started_with(&words), None);
    }
}
