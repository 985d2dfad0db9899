//! Tools' own outputs as rows of the data set.
//!
//! ```text
//! fio JSON                             -> figures of a device:    read-16K-latency, -throughput, -iops, flush-latency
//! YCSB, go-ycsb, sysbench, pgbench     -> results of a workload:  read_latency, write_latency, latency, throughput
//! CSV                                  -> either
//! ```
//!
//! Always true:
//! 1. Every figure keeps the unit the tool printed, and the file it came from.
//! 2. A run in which operations failed is refused: its times are not those of the operations.

mod fio;
mod loads;

use std::fmt;

use super::data::{DataError, DataSet, Parameters, Row, What};
use super::units::{Quantity, Unit};

/// Whose output it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// fio's JSON (`--output-format=json` or `json+`), versions 2 and 3.
    Fio,
    /// YCSB's text.
    Ycsb,
    /// go-ycsb's text.
    GoYcsb,
    /// sysbench's text, 0.4 to 1.x.
    Sysbench,
    /// pgbench's text, 9 and later.
    Pgbench,
    /// A table in our columns.
    Csv,
}

impl Format {
    /// All, with their names.
    pub const ALL: [(Format, &str); 6] = [
        (Format::Fio, "fio"),
        (Format::Ycsb, "ycsb"),
        (Format::GoYcsb, "go-ycsb"),
        (Format::Sysbench, "sysbench"),
        (Format::Pgbench, "pgbench"),
        (Format::Csv, "csv"),
    ];

    /// The format a text looks like.
    ///
    /// # Example
    /// ```
    /// use predict::import::Format;
    /// assert_eq!(Format::of("[OVERALL], RunTime(ms), 20892"), Some(Format::Ycsb));
    /// assert_eq!(Format::of("hello"), None);
    /// ```
    pub fn of(text: &str) -> Option<Format> {
        let has = |part: &str| text.contains(part);
        if has("\"fio version\"") {
            Some(Format::Fio)
        } else if has("[OVERALL]") {
            Some(Format::Ycsb)
        } else if has("Takes(s):") {
            Some(Format::GoYcsb)
        } else if has("sysbench") {
            Some(Format::Sysbench)
        } else if has("tps = ") {
            Some(Format::Pgbench)
        } else {
            let head = text.lines().find(|line| !line.starts_with('#'))?;
            let columns: Vec<&str> = head.split(',').map(str::trim).collect();
            ["device", "value", "unit"]
                .iter()
                .all(|name| columns.contains(name))
                .then_some(Format::Csv)
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, name) = Format::ALL
            .iter()
            .find(|(format, _)| format == self)
            .expect("every format has a name");
        f.write_str(name)
    }
}

impl std::str::FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        let known = Format::ALL.iter().find(|(_, name)| *name == text);
        known.map(|(format, _)| *format).ok_or_else(|| {
            let names: Vec<&str> = Format::ALL.iter().map(|(_, name)| *name).collect();
            format!("'{text}' is no format; choose one of {}", names.join(", "))
        })
    }
}

/// What the output itself does not say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct About {
    /// The device it was measured on.
    pub device: Option<String>,
    /// The workload that was run.
    pub workload: Option<String>,
    /// Its parameters; they go before what the output says.
    pub parameters: Parameters,
}

/// What an import did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Imported {
    /// Rows added.
    pub added: usize,
    /// Rows that were there already, from a file of the same name.
    pub known: usize,
}

/// What a tool's output says, before it is known of what.
enum Said {
    /// About the device.
    Device { regressor: String },
    /// About the application.
    Result { metric: String },
}

/// One figure in a tool's output.
struct Figure {
    said: Said,
    value: f64,
    unit: Unit,
    /// Where it stood.
    line: u64,
}

/// A tool's output, read.
#[derive(Default)]
struct Output {
    figures: Vec<Figure>,
    /// Parameters the output itself states.
    parameters: Parameters,
}

/// What is wrong in a text, and where.
struct Wrong {
    line: Option<u64>,
    reason: String,
}

impl Wrong {
    fn whole(reason: impl Into<String>) -> Wrong {
        Wrong {
            line: None,
            reason: reason.into(),
        }
    }

    fn at(line: u64, reason: impl Into<String>) -> Wrong {
        Wrong {
            line: Some(line),
            reason: reason.into(),
        }
    }
}

/// Adds what `text`, the content of `file`, says to `data`. Repeated measurements are numbered on; the same file
/// again adds nothing.
///
/// # Errors
/// [`DataError`] with file, line and reason; `data` is then as it was.
///
/// # Example
/// ```
/// use predict::data::DataSet;
/// use predict::import::{About, Format, add};
/// let about = About {
///     device: Some("nvme0".to_owned()),
///     workload: Some("workload-a".to_owned()),
///     ..About::default()
/// };
/// let mut data = DataSet::default();
/// let text = "[OVERALL], Throughput(ops/sec), 990.5\n[READ], AverageLatency(us), 812.5\n";
/// let done = add(&mut data, Format::Ycsb, text, "run1.txt", &about)?;
/// assert_eq!(done.added, 2);
/// # Ok::<(), predict::data::DataError>(())
/// ```
pub fn add(
    data: &mut DataSet,
    format: Format,
    text: &str,
    file: &str,
    about: &About,
) -> Result<Imported, DataError> {
    let mut grown = data.clone();
    let mut done = Imported::default();
    if format == Format::Csv {
        add_table(&mut grown, text, file, &mut done)?;
        *data = grown;
        return Ok(done);
    }
    let read = match format {
        Format::Fio => fio::read(text),
        Format::Ycsb => loads::ycsb(text),
        Format::GoYcsb => loads::go_ycsb(text),
        Format::Sysbench => loads::sysbench(text),
        Format::Pgbench => loads::pgbench(text),
        Format::Csv => unreachable!("read above"),
    };
    let name = |wrong: Wrong| match wrong.line {
        Some(line) => DataError::Line {
            file: file.to_owned(),
            line,
            reason: wrong.reason,
        },
        None => DataError::Whole {
            file: file.to_owned(),
            reason: wrong.reason,
        },
    };
    let output = read.map_err(name)?;
    let device = about.device.clone().ok_or_else(|| {
        name(Wrong::whole(format!(
            "{format} does not say which device it measured; name it with --device"
        )))
    })?;
    for figure in output.figures {
        let what = what_of(figure.said, format, &output.parameters, about).map_err(name)?;
        let row = Row {
            run: grown.next_run(&device, &what),
            device: device.clone(),
            what,
            quantity: Quantity {
                value: figure.value,
                unit: figure.unit,
            },
            source: file.to_owned(),
        };
        put(&mut grown, row, &mut done).map_err(|reason| name(Wrong::at(figure.line, reason)))?;
    }
    *data = grown;
    Ok(done)
}

/// The rows of a table in the form of a data set.
fn add_table(
    grown: &mut DataSet,
    text: &str,
    file: &str,
    done: &mut Imported,
) -> Result<(), DataError> {
    for row in DataSet::read_csv(text.as_bytes(), file)?.rows() {
        let mut row = row.clone();
        if row.source.is_empty() {
            row.source = file.to_owned();
        }
        put(grown, row, done).map_err(|reason| DataError::Whole {
            file: file.to_owned(),
            reason,
        })?;
    }
    Ok(())
}

/// What a figure is of; of a result, `about` says under which workload and adds parameters to those of the output.
fn what_of(
    said: Said,
    format: Format,
    parameters: &Parameters,
    about: &About,
) -> Result<What, Wrong> {
    let metric = match said {
        Said::Device { regressor } => return Ok(What::Device { regressor }),
        Said::Result { metric } => metric,
    };
    let workload = about.workload.clone().ok_or_else(|| {
        Wrong::whole(format!(
            "{format} does not say which workload it ran; name it with --workload"
        ))
    })?;
    let mut parameters = parameters.clone();
    for parameter in about.parameters.names() {
        let value = about.parameters.get(parameter).unwrap_or_default();
        parameters.set(parameter, value);
    }
    Ok(What::Result {
        workload,
        parameters,
        metric,
    })
}

/// Adds `row` unless the same file said the same before.
fn put(data: &mut DataSet, row: Row, done: &mut Imported) -> Result<(), String> {
    let before = data.rows().iter().any(|old| {
        old.source == row.source
            && old.device == row.device
            && old.what == row.what
            && old.quantity == row.quantity
    });
    match before {
        true => done.known += 1,
        false => {
            data.add(row)?;
            done.added += 1;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about() -> About {
        About {
            device: Some("ssd".to_owned()),
            workload: Some("a".to_owned()),
            parameters: "data_gb=2".parse().unwrap(),
        }
    }

    /// The rows of `text` as `name = value unit`.
    fn rows(format: Format, text: &str) -> Vec<String> {
        assert_eq!(Format::of(text), Some(format), "{text}");
        let mut data = DataSet::default();
        add(&mut data, format, text, "out.txt", &about()).unwrap();
        data.rows()
            .iter()
            .map(|row| match &row.what {
                What::Device { regressor } => format!("{regressor} = {}", row.quantity),
                What::Result {
                    parameters, metric, ..
                } => format!("{parameters} {metric} = {}", row.quantity),
            })
            .collect()
    }

    fn refused(format: Format, text: &str) -> String {
        let mut data = DataSet::default();
        let refusal = add(&mut data, format, text, "out.txt", &about()).unwrap_err();
        assert!(data.rows().is_empty());
        refusal.to_string()
    }

    const YCSB: &str = "\
[OVERALL], RunTime(ms), 20892
[OVERALL], Throughput(ops/sec), 47865.21
[TOTAL_GCs], Count, 16
[READ], Operations, 499304
[READ], AverageLatency(us), 1657.34
[READ], 99thPercentileLatency(us), 7000
[READ], Return=OK, 499304
[Intended-READ], AverageLatency(us), 1900.5
[CLEANUP], AverageLatency(us), 2425.8
[UPDATE], Operations, 500696
[UPDATE], AverageLatency(us), 1607.39
[UPDATE], Return=OK, 500696
";

    #[test]
    fn ycsb_says_throughput_and_the_latencies_of_reads_and_writes() {
        assert_eq!(
            rows(Format::Ycsb, YCSB),
            [
                "data_gb=2 throughput = 47865.21 ops/s",
                "data_gb=2 read_latency = 1657.34 us",
                "data_gb=2 read_intended_latency = 1900.5 us",
                "data_gb=2 write_latency = 1607.39 us",
            ]
        );
        // Versions before 0.4 counted milliseconds; a load run only inserts.
        let old = "[OVERALL],Throughput(ops/sec), 98.9\n[INSERT], AverageLatency(ms), 0.055\n";
        assert_eq!(
            rows(Format::Ycsb, old)[1],
            "data_gb=2 write_latency = 0.055 ms"
        );
    }

    #[test]
    fn a_run_in_which_operations_failed_is_refused() {
        let failed = YCSB.replace("[UPDATE], Return=OK, 500696", "[UPDATE], Return=ERROR, 12");
        assert_eq!(
            refused(Format::Ycsb, &failed),
            "out.txt, line 12: 12 UPDATE operations ended with ERROR: the run's times are not those of its operations"
        );
        assert_eq!(
            refused(Format::Ycsb, "[OVERALL], RunTime(ms), 7\n"),
            "out.txt: no line such as '[READ], AverageLatency(us), 812.5'"
        );
        assert_eq!(
            refused(Format::Ycsb, "[READ], AverageLatency(us), fast\n"),
            "out.txt, line 1: 'fast' is no number"
        );
    }

    #[test]
    fn go_ycsb_s_last_lines_count() {
        let text = "\
READ   - Takes(s): 5.0, Count: 500, OPS: 100.0, Avg(us): 700, Min(us): 5, Max(us): 100, 99th(us): 1000
Run finished, takes 10.1s
READ   - Takes(s): 10.0, Count: 1000, OPS: 100.0, Avg(us): 650, Min(us): 5, Max(us): 100, 99th(us): 1000
TOTAL  - Takes(s): 10.0, Count: 2010, OPS: 201.0, Avg(us): 700, Min(us): 5, Max(us): 100, 99th(us): 1000
UPDATE - Takes(s): 10.0, Count: 1010, OPS: 101.0, Avg(us): 750, Min(us): 5, Max(us): 100, 99th(us): 1000
";
        assert_eq!(
            rows(Format::GoYcsb, text),
            [
                "data_gb=2 read_latency = 650 us",
                "data_gb=2 throughput = 201 ops/s",
                "data_gb=2 write_latency = 750 us",
            ]
        );
        let failed =
            format!("{text}UPDATE_ERROR - Takes(s): 10.0, Count: 3, OPS: 0.3, Avg(us): 1\n");
        assert_eq!(
            refused(Format::GoYcsb, &failed),
            "out.txt, line 6: 3 UPDATE operations ended with ERROR: the run's times are not those of its operations"
        );
    }

    #[test]
    fn sysbench_old_and_new_say_the_same() {
        let new = "\
sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)
Number of threads: 8
SQL statistics:
    transactions:                        12345  (205.70 per sec.)
    queries:                             246900 (4114.02 per sec.)
    ignored errors:                      0      (0.00 per sec.)
Latency (ms):
         min:                                    9.62
         avg:                                   38.88
         95th percentile:                       61.08
Threads fairness:
    events (avg/stddev):           1543.1250/8.10
";
        let rows_of = rows(Format::Sysbench, new);
        assert_eq!(
            rows_of,
            [
                "clients=8;data_gb=2 throughput = 205.7 ops/s",
                "clients=8;data_gb=2 latency = 38.88 ms",
            ]
        );
        let old = "\
sysbench 0.4.12:  multi-threaded system evaluation benchmark
Number of threads: 8
    transactions:                        12345  (205.70 per sec.)
    per-request statistics:
         min:                                  9.62ms
         avg:                                 38.88ms
         approx.  95 percentile:              61.08ms
";
        assert_eq!(rows(Format::Sysbench, old), rows_of);
    }

    #[test]
    fn pgbench_old_and_new_say_the_same() {
        let new = "\
transaction type: <builtin: TPC-B (sort of)>
scaling factor: 10
number of clients: 4
number of threads: 1
latency average = 11.013 ms
latency stddev = 7.351 ms
initial connection time = 45.758 ms
tps = 363.25 (without initial connection time)
";
        assert_eq!(
            rows(Format::Pgbench, new),
            [
                "clients=4;data_gb=2;scale=10 latency = 11.013 ms",
                "clients=4;data_gb=2;scale=10 throughput = 363.25 ops/s",
            ]
        );
        let old = "\
transaction type: TPC-B (sort of)
number of clients: 10
tps = 85.184871 (including connections establishing)
tps = 80 (excluding connections establishing)
";
        assert_eq!(
            rows(Format::Pgbench, old),
            [
                "clients=10;data_gb=2 throughput = 80 ops/s",
                "clients=10;data_gb=2 latency = 125 ms",
            ]
        );
    }

    #[test]
    fn the_same_file_again_adds_nothing_and_another_run_is_numbered_on() {
        let mut data = DataSet::default();
        let first = add(&mut data, Format::Ycsb, YCSB, "run1", &about()).unwrap();
        assert_eq!(first, Imported { added: 4, known: 0 });
        let again = add(&mut data, Format::Ycsb, YCSB, "run1", &about()).unwrap();
        assert_eq!(again, Imported { added: 0, known: 4 });
        add(&mut data, Format::Ycsb, YCSB, "run2", &about()).unwrap();
        assert_eq!(data.rows().len(), 8);
        assert_eq!(data.rows()[7].run, 2);
    }

    #[test]
    fn what_the_output_does_not_say_must_be_said() {
        let mut data = DataSet::default();
        let mut ask = |about: About| {
            add(&mut data, Format::Ycsb, YCSB, "out.txt", &about)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            ask(About::default()),
            "out.txt: ycsb does not say which device it measured; name it with --device"
        );
        assert_eq!(
            ask(About {
                device: Some("ssd".to_owned()),
                ..About::default()
            }),
            "out.txt: ycsb does not say which workload it ran; name it with --workload"
        );
    }

    #[test]
    fn a_csv_table_is_taken_as_it_is() {
        let text = "device,regressor,value,unit\nnvme,read-4K-latency,80,us\n";
        assert_eq!(rows(Format::Csv, text), ["read-4K-latency = 80 us"]);
    }
}
