//! What was measured: one tidy table of devices' own figures and applications' results.
//!
//! ```text
//! CSV | Parquet | tools' outputs (import) -> DataSet: every raw run -> reduce -> Reduced: one value a cell
//! ```
//!
//! One row is one measurement. A row about a device itself names a `regressor`; a row about an application on it
//! names `workload`, `parameters` and `metric`:
//!
//! ```text
//! device,regressor,workload,parameters,metric,value,unit,run,source
//! 3D XPoint,write-64K-latency,,,,55.427,us,1,table 5
//! 3D XPoint,,write-only,data_gb=16,write_latency,2164.09408,us,1,figure 2
//! ```
//!
//! Source: SCM 3.1, 4.2.1 (five runs, the highest and lowest dropped).
//!
//! Always true:
//! 1. Reading what was written gives the same rows in the same order; numbers and units stay as they were given.
//! 2. Every value is finite and above zero, in a unit that fits its name.
//! 3. One regressor, or one metric, is of one kind throughout a data set.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::str::FromStr;

use crate::units::{Kind, Quantity, Unit};

mod gather;
mod parquet;
mod reduced;

pub use self::reduced::{Cell, Reduce, Reduced, Regressor, Value};

use self::gather::{Gather, fields};

/// The columns of the table, in the order they are written.
pub const COLUMNS: [&str; 9] = [
    "device",
    "regressor",
    "workload",
    "parameters",
    "metric",
    "value",
    "unit",
    "run",
    "source",
];

/// The parameters of a workload: names with values, such as `data_gb=16`; in order of their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parameters(BTreeMap<String, String>);

impl Parameters {
    /// Sets one.
    pub fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    /// The value of one.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value of one as a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite())
    }

    /// All but the named one.
    pub fn without(&self, name: &str) -> Parameters {
        let mut rest = self.clone();
        rest.0.remove(name);
        rest
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (name, value)) in self.0.iter().enumerate() {
            let comma = if n > 0 { ";" } else { "" };
            write!(f, "{comma}{name}={value}")?;
        }
        Ok(())
    }
}

impl FromStr for Parameters {
    type Err = String;

    fn from_str(text: &str) -> Result<Parameters, String> {
        let mut parameters = Parameters::default();
        for part in text.split(';').filter(|part| !part.trim().is_empty()) {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("'{part}' is no parameter; write NAME=VALUE;NAME=VALUE"))?;
            let (name, value) = (name.trim(), value.trim());
            if name.is_empty() || value.is_empty() {
                return Err(format!("'{part}' lacks its name or its value"));
            }
            if parameters.get(name).is_some() {
                return Err(format!("parameter '{name}' is given twice"));
            }
            parameters.set(name, value);
        }
        Ok(parameters)
    }
}

/// What a row speaks of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// The device itself, measured by a micro-benchmark or taken from its sheet.
    Device {
        /// Such as `read-16K-latency`.
        regressor: String,
    },
    /// An application on the device.
    Result {
        /// Such as `write-only`.
        workload: String,
        /// Such as `data_gb=16`.
        parameters: Parameters,
        /// Such as `write_latency`.
        metric: String,
    },
}

/// One measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The device.
    pub device: String,
    /// What was measured.
    pub what: What,
    /// How much it was.
    pub quantity: Quantity,
    /// Which repetition, from 1.
    pub run: u32,
    /// Where the figure comes from.
    pub source: String,
}

/// Why a data set cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The file cannot be read or written.
    #[error("cannot {what} {file}")]
    Io {
        /// `read` or `write`.
        what: &'static str,
        /// The file.
        file: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is no Parquet file, or one we cannot read.
    #[error("cannot {what} {file} as Parquet: {reason}")]
    Parquet {
        /// `read` or `write`.
        what: &'static str,
        /// The file.
        file: String,
        /// The cause.
        reason: String,
    },
    /// A line makes no sense.
    #[error("{file}, line {line}: {reason}")]
    Line {
        /// The file.
        file: String,
        /// The line, from 1; the row's number in Parquet.
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// The whole makes no sense.
    #[error("{file}: {reason}")]
    Whole {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
}

/// Every measurement, raw.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DataSet {
    rows: Vec<Row>,
    /// The unit each name came with first.
    units: BTreeMap<String, Unit>,
    /// Where each run stands in `rows`.
    runs: BTreeMap<(String, What), BTreeMap<u32, usize>>,
}

impl DataSet {
    /// The rows in the order they were added.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Adds one measurement.
    ///
    /// # Errors
    /// A sentence if the value is none, its unit does not fit its name or what the data set has under the
    /// same name, or the same run is there already with another value. The same row twice is one row.
    pub fn add(&mut self, row: Row) -> Result<(), String> {
        let name = match &row.what {
            What::Device { regressor } => regressor,
            What::Result { metric, .. } => metric,
        };
        if row.device.is_empty() {
            return Err("the device has no name".to_owned());
        }
        Quantity::of(name, row.quantity.value, row.quantity.unit).map_err(|e| e.to_string())?;
        let unit = row.quantity.unit;
        let known = *self.units.entry(name.clone()).or_insert(unit);
        if known.kind() != unit.kind() {
            return Err(format!(
                "'{name}' is in {unit} here and in {known} before: one of them is wrong"
            ));
        }
        let runs = self
            .runs
            .entry((row.device.clone(), row.what.clone()))
            .or_default();
        match runs.get(&row.run).map(|at| &self.rows[*at]) {
            None => {
                runs.insert(row.run, self.rows.len());
                self.rows.push(row);
            }
            Some(old) if old.quantity == row.quantity => {}
            Some(old) => {
                return Err(format!(
                    "run {} of '{name}' on {} is {} here and {} before: number repeated runs 1, 2, 3, ...",
                    row.run, row.device, row.quantity, old.quantity
                ));
            }
        }
        Ok(())
    }

    /// The number the next run of `what` on `device` has.
    pub fn next_run(&self, device: &str, what: &What) -> u32 {
        let runs = self.runs.get(&(device.to_owned(), what.clone()));
        let last = runs.and_then(|runs| runs.last_key_value());
        last.map_or(1, |(run, _)| run.saturating_add(1))
    }

    /// Reads a CSV or (name ending in `.parquet`) Parquet file.
    ///
    /// Columns are found by name, in any order. `device`, `value` and `unit` must be there; a row has a `regressor`, or
    /// a `workload` and a `metric`. A column of any other name is a parameter: `data_gb` with 16 in it is
    /// `data_gb=16`. Without `run` equal rows are numbered as they come.
    ///
    /// # Errors
    /// [`DataError`] with file, line and reason.
    pub fn read(path: &Path) -> Result<DataSet, DataError> {
        let file = path.display().to_string();
        if is_parquet(path) {
            return parquet::read(path);
        }
        let source = File::open(path).map_err(|source| DataError::Io {
            what: "read",
            file: file.clone(),
            source,
        })?;
        DataSet::read_csv(source, &file)
    }

    /// Reads CSV; `file` is its name in errors.
    ///
    /// # Errors
    /// As [`DataSet::read`].
    pub fn read_csv(source: impl std::io::Read, file: &str) -> Result<DataSet, DataError> {
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .comment(Some(b'#'))
            .from_reader(source);
        let broken = |error: csv::Error| {
            let line = error.position().map_or(1, csv::Position::line);
            let reason = match error.kind() {
                csv::ErrorKind::UnequalLengths {
                    expected_len, len, ..
                } => format!("{len} fields where the head has {expected_len}"),
                csv::ErrorKind::Utf8 { .. } => "bytes that are no UTF-8 text".to_owned(),
                csv::ErrorKind::Io(error) => error.to_string(),
                _ => error.to_string(),
            };
            DataError::Line {
                file: file.to_owned(),
                line,
                reason,
            }
        };
        let head: Vec<String> = reader
            .headers()
            .map_err(broken)?
            .iter()
            .map(str::to_owned)
            .collect();
        let mut gather = Gather::new(head, file)?;
        let mut record = csv::StringRecord::new();
        while reader.read_record(&mut record).map_err(broken)? {
            let line = record.position().map_or(0, csv::Position::line);
            let fields: Vec<&str> = record.iter().collect();
            gather.row(&fields, line)?;
        }
        gather.done()
    }

    /// Writes a CSV or (name ending in `.parquet`) Parquet file; what was there is replaced at once.
    ///
    /// # Errors
    /// [`DataError`] if the file cannot be written; what was there then stays.
    pub fn write(&self, path: &Path) -> Result<(), DataError> {
        let broken = |source| DataError::Io {
            what: "write",
            file: path.display().to_string(),
            source,
        };
        let mut beside = path.as_os_str().to_owned();
        beside.push(".part");
        let beside = Path::new(&beside);
        let file = File::create(beside).map_err(broken)?;
        match is_parquet(path) {
            true => parquet::write(self, file, path)?,
            false => self.write_csv(file).map_err(broken)?,
        }
        std::fs::rename(beside, path).map_err(broken)
    }

    /// Writes CSV.
    ///
    /// # Errors
    /// What the writer says.
    pub fn write_csv(&self, out: impl std::io::Write) -> std::io::Result<()> {
        let mut writer = csv::Writer::from_writer(out);
        writer.write_record(COLUMNS)?;
        for row in &self.rows {
            writer.write_record(fields(row))?;
        }
        writer.flush()
    }

    /// One value for each regressor of a device and each cell, the runs beside it.
    pub fn reduce(&self, how: Reduce) -> Reduced {
        let mut devices: Vec<String> = Vec::new();
        let mut runs: Vec<(String, What, Kind, Vec<f64>)> = Vec::new();
        for row in &self.rows {
            if !devices.contains(&row.device) {
                devices.push(row.device.clone());
            }
            let value = row.quantity.reckoned();
            match runs
                .iter_mut()
                .find(|(device, what, ..)| *device == row.device && *what == row.what)
            {
                Some((.., values)) => values.push(value),
                None => runs.push((
                    row.device.clone(),
                    row.what.clone(),
                    row.quantity.unit.kind(),
                    vec![value],
                )),
            }
        }
        let mut reduced = Reduced {
            devices,
            ..Reduced::default()
        };
        for (device, what, kind, runs) in runs {
            let value = Value {
                value: how.of(&runs),
                runs,
            };
            reduced.put(what, kind).insert(device, value);
        }
        reduced
    }
}

fn is_parquet(path: &Path) -> bool {
    path.extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("parquet"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "\
device,regressor,workload,parameters,metric,value,unit,run,source
ssd,write-64K-latency,,,,222.34,us,1,table 5
ssd,,write-only,data_gb=16;clients=8,write_latency,4.5905499,ms,1,figure 2
ssd,,write-only,clients=8;data_gb=16,write_latency,4.6,ms,2,\"figure 2, again\"
";

    fn read(text: &str) -> Result<DataSet, DataError> {
        DataSet::read_csv(text.as_bytes(), "data.csv")
    }

    fn refused(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn csv_and_parquet_give_back_every_raw_run() {
        let data = read(SMALL).unwrap();
        assert_eq!(data.rows().len(), 3);
        assert_eq!(data.rows()[2].source, "figure 2, again");
        let dir = tempfile::tempdir().unwrap();
        for name in ["d.csv", "d.parquet"] {
            let path = dir.path().join(name);
            data.write(&path).unwrap();
            assert_eq!(DataSet::read(&path).unwrap(), data, "{name}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_column_of_another_name_is_a_parameter() {
        let data = read(
            "data_gb,device,workload,metric,value,unit\n16,ssd,w,latency,1,ms\n16,ssd,w,latency,2,ms\n",
        );
        let data = data.unwrap();
        let What::Result { parameters, .. } = &data.rows()[1].what else {
            panic!("a result")
        };
        assert_eq!(parameters.to_string(), "data_gb=16");
        assert_eq!(data.rows()[1].run, 2);
    }

    #[test]
    fn units_are_converted_and_runs_reduced_as_asked() {
        let mut text = String::from("device,regressor,value,unit\n");
        for value in ["10 us", "0.012 ms", "9000 ns", "11 us", "90 us"] {
            let (number, unit) = value.split_once(' ').unwrap();
            text.push_str(&format!("ssd,read-4K-latency,{number},{unit}\n"));
        }
        let data = read(&text).unwrap();
        let value = |how| data.reduce(how).figure("ssd", "read-4K-latency").unwrap();
        assert_eq!(value(Reduce::Trimmed), 11.0);
        assert_eq!(value(Reduce::Median), 11.0);
        assert_eq!(data.rows().len(), 5, "raw runs stay");
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named_with_its_reason() {
        let head = "device,regressor,workload,metric,value,unit\n";
        let line = |line: &str| refused(&format!("{head}ssd,x-latency,,,1,us\n{line}\n"));
        assert_eq!(
            line("ssd,y-latency,,,1,MB/s"),
            "data.csv, line 3: 'y-latency' cannot be in MB/s, which is bytes a second (kB/s, KiB/s, MB/s, MiB/s, GB/s, GiB/s)"
        );
        assert_eq!(
            line("ssd,y,,,ten,us"),
            "data.csv, line 3: 'ten' is no number; write one such as 19.5"
        );
        assert_eq!(
            line("ssd,y,,,NaN,us"),
            "data.csv, line 3: NaN us cannot be measured: a measurement is finite and above zero"
        );
        assert_eq!(
            line("ssd,y,w,m,1,us"),
            "data.csv, line 3: a regressor and a workload; a row speaks of one of them"
        );
        assert_eq!(
            line("ssd,,,,1,us"),
            "data.csv, line 3: neither a regressor nor a workload and metric"
        );
        assert_eq!(
            line("ssd,,w,,1,us"),
            "data.csv, line 3: a workload without a metric"
        );
        assert_eq!(
            line(",y,,,1,us"),
            "data.csv, line 3: the device has no name"
        );
        assert_eq!(
            line("ssd,y"),
            "data.csv, line 3: 2 fields where the head has 6"
        );
    }

    #[test]
    fn one_name_has_one_kind_of_unit() {
        let text = "device,regressor,value,unit\na,speed,1,us\nb,speed,2,ms\nc,speed,3,MB/s\n";
        assert_eq!(
            refused(text),
            "data.csv, line 4: 'speed' is in MB/s here and in us before: one of them is wrong"
        );
    }

    #[test]
    fn the_same_run_with_two_values_is_refused_and_the_same_row_twice_is_one() {
        let twice = format!("{SMALL}ssd,write-64K-latency,,,,222.34,us,1,table 5\n");
        assert_eq!(read(&twice).unwrap().rows().len(), 3);
        let other = format!("{SMALL}ssd,write-64K-latency,,,,223,us,1,table 5\n");
        assert_eq!(
            refused(&other),
            "data.csv, line 5: run 1 of 'write-64K-latency' on ssd is 223 us here and 222.34 us before: \
             number repeated runs 1, 2, 3, ..."
        );
    }

    #[test]
    fn heads_that_lack_something_and_empty_files_are_refused() {
        assert_eq!(
            refused("device,value\nssd,1\n"),
            "data.csv, line 1: no column 'unit'; the head is \
             device,regressor,workload,parameters,metric,value,unit,run,source"
        );
        assert_eq!(
            refused("device,value,unit,device\nssd,1,us,x\n"),
            "data.csv, line 1: two columns are named 'device'"
        );
        assert_eq!(
            refused("device,regressor,value,unit\n"),
            "data.csv: no measurements; `tanada predict import` adds some"
        );
    }

    #[test]
    fn a_file_that_is_no_parquet_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.parquet");
        std::fs::write(&path, "device,value\n").unwrap();
        let refusal = DataSet::read(&path).unwrap_err().to_string();
        assert!(refusal.starts_with("cannot read "), "{refusal}");
        assert!(refusal.contains("as Parquet: "), "{refusal}");
    }
}
