//! The result of one run: kept as JSON, and turned into rows of the data set.
//!
//! Always true:
//! 1. Reading what was written gives the same; an unknown version is refused.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::drive::{Latencies, Measured};
use ::predict::data::{Parameters, Row, What};
use ::predict::units::{Quantity, Unit};

/// The version of the raw output.
const VERSION: u32 = 1;

/// One kind of latency, in us.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many operations.
    pub operations: u64,
    /// Their mean, exact.
    pub mean_us: f64,
    /// Half of them are not above this.
    pub p50_us: f64,
    /// 95 % of them.
    pub p95_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// 99.9 %.
    pub p999_us: f64,
    /// All of them, to three digits.
    pub max_us: f64,
}

impl Summary {
    fn of(latencies: &Latencies) -> Option<Summary> {
        let percentile = |percent| latencies.percentile_us(percent);
        Some(Summary {
            operations: latencies.len(),
            mean_us: latencies.mean_us()?,
            p50_us: percentile(50.0)?,
            p95_us: percentile(95.0)?,
            p99_us: percentile(99.0)?,
            p999_us: percentile(99.9)?,
            max_us: percentile(100.0)?,
        })
    }
}

/// What the device under the folder did, as the kernel counts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Reads completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Flushes completed.
    pub flushes: u64,
}

impl Counters {
    /// Of the device that holds `path`, if the kernel counts there.
    pub fn of(path: &Path) -> Option<Counters> {
        let device = rustix::fs::stat(path).ok()?.st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
        Counters::read(&text)
    }

    /// From the kernel's line: reads, merged, sectors, ms, writes, merged, sectors, ms, ..., flushes, ms.
    fn read(text: &str) -> Option<Counters> {
        let numbers: Vec<u64> = text
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect::<Option<_>>()?;
        Some(Counters {
            reads: *numbers.first()?,
            read_bytes: numbers.get(2)? * 512,
            writes: *numbers.get(4)?,
            write_bytes: numbers.get(6)? * 512,
            // Kernels before 5.5 do not report it.
            flushes: numbers.get(15).copied().unwrap_or(0),
        })
    }

    /// What was added since `before`.
    pub fn since(&self, before: &Counters) -> Counters {
        Counters {
            reads: self.reads.saturating_sub(before.reads),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            writes: self.writes.saturating_sub(before.writes),
            write_bytes: self.write_bytes.saturating_sub(before.write_bytes),
            flushes: self.flushes.saturating_sub(before.flushes),
        }
    }
}

/// What one run gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// The version of this form.
    pub version: u32,
    /// The database.
    pub database: String,
    /// The workload.
    pub workload: String,
    /// Its parameters, `NAME=VALUE;NAME=VALUE`.
    pub parameters: String,
    /// Which repetition, from 1.
    pub run: u32,
    /// Seconds that counted.
    pub seconds: f64,
    /// Reads, from when they were asked.
    pub reads: Option<Summary>,
    /// Updates, from when they were asked.
    pub updates: Option<Summary>,
    /// Reads, from when they were to be asked (open loop).
    pub reads_intended: Option<Summary>,
    /// Updates, from when they were to be asked (open loop).
    pub updates_intended: Option<Summary>,
    /// All operations, those that do not count too: what the device did belongs to them.
    pub operations_all: u64,
    /// What the device did meanwhile, for whomever.
    pub device: Option<Counters>,
}

impl Outcome {
    /// Of a run's figures.
    pub fn of(seen: &Measured, about: About<'_>) -> Outcome {
        Outcome {
            version: VERSION,
            database: about.database.to_owned(),
            workload: about.workload.to_owned(),
            parameters: about.parameters.to_string(),
            run: about.run,
            seconds: about.seconds,
            reads: Summary::of(&seen.reads),
            updates: Summary::of(&seen.updates),
            reads_intended: Summary::of(&seen.reads_intended),
            updates_intended: Summary::of(&seen.updates_intended),
            operations_all: seen.all,
            device: about.device,
        }
    }

    /// From its JSON.
    ///
    /// # Errors
    /// A sentence.
    pub fn read(text: &str) -> Result<Outcome, String> {
        let outcome: Outcome =
            serde_json::from_str(text).map_err(|error| format!("no output of a run: {error}"))?;
        match outcome.version {
            VERSION => Ok(outcome),
            other => Err(format!(
                "the output of a run in version {other}; this program reads version {VERSION}"
            )),
        }
    }

    /// Operations a second, of those that count.
    pub fn throughput(&self) -> f64 {
        let count = |of: &Option<Summary>| of.map_or(0, |of| of.operations);
        (count(&self.reads) + count(&self.updates)) as f64 / self.seconds
    }

    /// As rows of the data set; none of a run in which no operation ended.
    ///
    /// # Errors
    /// A sentence if its parameters make no sense.
    pub fn rows(&self, device: &str, source: &str) -> Result<Vec<Row>, String> {
        let latencies = [
            ("read_latency", &self.reads),
            ("write_latency", &self.updates),
            ("read_intended_latency", &self.reads_intended),
            ("write_intended_latency", &self.updates_intended),
        ];
        let means = latencies
            .into_iter()
            .filter_map(|(metric, of)| Some((metric, of.as_ref()?.mean_us, Unit::Us)));
        let throughput = [("throughput", self.throughput(), Unit::PerS)];
        let throughput = throughput.into_iter().filter(|(_, value, _)| *value > 0.0);
        let figures: Vec<Figure<'_>> = means.chain(throughput).collect();
        let of = (self.workload.as_str(), self.parameters.as_str(), self.run);
        result_rows(of, &figures, device, source)
    }
}

/// A figure of a run: what it is, its value and its unit.
pub(super) type Figure<'a> = (&'a str, f64, Unit);

/// The figures of a run as rows of the data set. A run has a workload, parameters and a number.
///
/// # Errors
/// A sentence if the parameters make no sense.
pub(super) fn result_rows(
    (workload, parameters, run): (&str, &str, u32),
    figures: &[Figure<'_>],
    device: &str,
    source: &str,
) -> Result<Vec<Row>, String> {
    let parameters: Parameters = parameters.parse()?;
    let row = |(metric, value, unit): &Figure<'_>| Row {
        device: device.to_owned(),
        what: What::Result {
            workload: workload.to_owned(),
            parameters: parameters.clone(),
            metric: (*metric).to_owned(),
        },
        quantity: Quantity {
            value: *value,
            unit: *unit,
        },
        run,
        source: source.to_owned(),
    };
    Ok(figures.iter().map(row).collect())
}

/// What a run's figures do not say themselves.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// The database.
    pub database: &'a str,
    /// The workload.
    pub workload: &'a str,
    /// Its parameters.
    pub parameters: &'a Parameters,
    /// Which repetition.
    pub run: u32,
    /// Seconds that counted.
    pub seconds: f64,
    /// What the device did.
    pub device: Option<Counters>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let summary = |mean_us| {
            Some(Summary {
                operations: 500,
                mean_us,
                p50_us: 1.0,
                p95_us: 2.0,
                p99_us: 3.0,
                p999_us: 4.0,
                max_us: 5.0,
            })
        };
        Outcome {
            version: VERSION,
            database: "x".to_owned(),
            workload: "workload-a".to_owned(),
            parameters: "clients=2;data_gb=0.1".to_owned(),
            run: 3,
            seconds: 10.0,
            reads: summary(120.5),
            updates: summary(300.0),
            reads_intended: None,
            updates_intended: None,
            operations_all: 1200,
            device: Some(Counters::default()),
        }
    }

    #[test]
    fn a_run_is_the_same_after_json_and_becomes_rows() {
        let one = outcome();
        let text = serde_json::to_string(&one).unwrap();
        assert_eq!(Outcome::read(&text), Ok(one.clone()));
        let rows = one.rows("nvme0", "a.json").unwrap();
        let shown: Vec<String> = rows
            .iter()
            .map(|row| match &row.what {
                What::Result { metric, .. } => format!("{metric} {} {}", row.quantity, row.run),
                What::Device { .. } => panic!("{row:?}"),
            })
            .collect();
        assert_eq!(
            shown,
            [
                "read_latency 120.5 us 3",
                "write_latency 300 us 3",
                "throughput 100 ops/s 3"
            ]
        );
    }

    #[test]
    fn a_run_in_which_no_operation_ended_has_no_rows() {
        let none = Outcome {
            reads: None,
            updates: None,
            ..outcome()
        };
        assert_eq!(none.throughput(), 0.0);
        assert_eq!(none.rows("nvme0", "a.json"), Ok(Vec::new()));
    }

    #[test]
    fn another_version_or_another_file_is_refused() {
        let text = serde_json::to_string(&Outcome {
            version: 2,
            ..outcome()
        });
        assert_eq!(
            Outcome::read(&text.unwrap()).unwrap_err(),
            "the output of a run in version 2; this program reads version 1"
        );
        let other = Outcome::read("{\"jobs\": []}").unwrap_err();
        assert!(other.starts_with("no output of a run: "), "{other}");
    }

    #[test]
    fn the_kernels_counters_are_read() {
        let line = "  10 0 80 1 20 0 160 2 0 3 4 0 0 0 0 5 6\n";
        let counters = Counters::read(line).unwrap();
        assert_eq!(
            counters,
            Counters {
                reads: 10,
                read_bytes: 40_960,
                writes: 20,
                write_bytes: 81_920,
                flushes: 5
            }
        );
        assert_eq!(counters.since(&counters), Counters::default());
        assert_eq!(Counters::read("one two"), None);
    }
}
