//! What can be reproduced, and in which form do the figures come?
//!
//! ```text
//! name + Options -> run -> Vec<Row>: one figure, one row, published and ours side by side
//! ```
//!
//! Always true:
//! 1. The same options give the same rows, bit for bit.
//! 2. A short run (`Options::quick`) has the same rows as a long one; only their values and notes differ.

use std::fmt;
use std::path::{Path, PathBuf};

use device::DeviceError;
use device::model::SpecError;
use hybrid::OpenError;
use serde::{Deserialize, Serialize};

pub mod cache;
pub mod predict;
pub mod predict_loop;
pub mod replica;
pub mod reserve;
pub mod tiering;

use crate::predict::app::process::Stop;
use crate::report::Section;
use crate::sim::run::RunError;
use crate::trace::TraceError;

/// One figure of one experiment.
///
/// A row is found by `experiment`, `table`, `case`, `method` and `metric`; no two rows share all five.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The experiment's name, as [`list`] shows it.
    pub experiment: String,
    /// The group of rows it belongs to.
    pub table: String,
    /// What was done.
    pub case: String,
    /// Which system did it.
    pub method: String,
    /// What was measured.
    pub metric: String,
    /// The unit of `published`, `ours`, `low` and `high`.
    pub unit: String,
    /// What the paper says; none where it says nothing.
    pub published: Option<Value>,
    /// What we measured: the mean over the seeds.
    pub ours: Option<Value>,
    /// The smallest value over the seeds.
    pub low: Option<Value>,
    /// The largest value over the seeds.
    pub high: Option<Value>,
    /// Was all of the devices modelled (true), or were they real? A real file that a model slows down is real; the note says so.
    pub modelled: bool,
    /// What a reader must know to judge the figure.
    pub note: String,
}

impl Row {
    /// A row about modelled devices with no figure in it yet.
    fn modelled(
        experiment: &str,
        table: &str,
        case: &str,
        method: &str,
        metric: &str,
        unit: &str,
    ) -> Row {
        Row {
            experiment: experiment.to_owned(),
            table: table.to_owned(),
            case: case.to_owned(),
            method: method.to_owned(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            published: None,
            ours: None,
            low: None,
            high: None,
            modelled: true,
            note: String::new(),
        }
    }

    fn measured(self, ours: Option<f64>) -> Row {
        Row {
            ours: ours.map(Value::Number),
            ..self
        }
    }

    fn between(self, low: Option<f64>, high: Option<f64>) -> Row {
        Row {
            low: low.map(Value::Number),
            high: high.map(Value::Number),
            ..self
        }
    }

    /// From the least of `values` to the largest.
    fn over(self, values: &[f64]) -> Row {
        let values = || values.iter().copied();
        self.between(values().reduce(f64::min), values().reduce(f64::max))
    }

    fn noted(self, note: impl Into<String>) -> Row {
        Row {
            note: note.into(),
            ..self
        }
    }
}

/// A figure: a number, or words where the paper has only words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A number in the row's unit.
    Number(f64),
    /// A word.
    Text(String),
}

impl Value {
    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Number(number) => Some(*number),
            Value::Text(_) => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Number(number) => f.write_str(&readable(*number)),
        }
    }
}

/// A number with four significant digits and thousands apart: what people compare.
fn readable(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let whole_digits = number.abs().log10().floor() as i32 + 1;
    let decimals = (4 - whole_digits).clamp(0, 6) as usize;
    let text = format!("{number:.decimals$}");
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.as_str()),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut grouped = String::new();
    for (n, digit) in whole.chars().enumerate() {
        if n > 0 && (whole.len() - n).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{fraction}")
}

/// How an experiment is to be run.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// The same rows from a shorter run: smaller files, fewer seeds.
    pub quick: bool,
    /// The first seed; the others follow it.
    pub seed: u64,
    /// `tiering`: the folder of the recorded traces of MSR Cambridge; none: the workloads are generated.
    pub msr: Option<&'a Path>,
    /// `tiering`: the folder of further traces on which our defaults are compared with the disk alone.
    pub traces: Option<&'a Path>,
    /// `reserve`: some of it in real time, on a file here (a folder, or a name that is free); none: all of it in virtual time.
    pub real: Option<&'a Path>,
    /// `predict-loop`: how many times slower than the models its devices are.
    pub slower: f64,
    /// What runs in real time and has something to put back ends early when this is told.
    pub stop: Option<&'a Stop>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            quick: false,
            seed: 1,
            msr: None,
            traces: None,
            real: None,
            slower: 1.0,
            stop: None,
        }
    }
}

/// What an experiment gives.
#[derive(Debug, Clone)]
pub struct Results {
    /// Its figures.
    pub rows: Vec<Row>,
    /// Charts of what rows do not hold, for the report.
    pub figures: Vec<Section>,
}

/// Where a long run stands: what it does now, and the share that is done (0 to 1).
pub type Progress<'a> = dyn FnMut(&str, f64) + 'a;

/// An experiment, for listings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// Its name, as [`run`] takes it.
    pub name: &'static str,
    /// The paper whose measurements it repeats.
    pub paper: &'static str,
    /// One line about it.
    pub about: &'static str,
}

/// Why an experiment has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// No such experiment.
    #[error("there is no experiment '{asked}'; choose one of {known}")]
    Unknown {
        /// The name asked for.
        asked: String,
        /// The names there are.
        known: String,
    },
    /// A device model is missing or cannot have the size.
    #[error("cannot set up {case} for {method}: {source}")]
    Model {
        /// The case.
        case: &'static str,
        /// The method.
        method: &'static str,
        /// The cause.
        source: Box<SpecError>,
    },
    /// A hybrid disk could not be made.
    #[error("cannot set up {case} for {method}: {source}")]
    Open {
        /// The case.
        case: &'static str,
        /// The method.
        method: &'static str,
        /// The cause.
        source: Box<OpenError>,
    },
    /// A simulation failed.
    #[error("{case} of {method} failed: {source}")]
    Run {
        /// The case.
        case: String,
        /// The method.
        method: &'static str,
        /// The cause.
        source: Box<RunError>,
    },
    /// A trace cannot be read.
    #[error("cannot read the trace of {case}: {source}")]
    Trace {
        /// The case.
        case: String,
        /// The cause.
        source: Box<TraceError>,
    },
    /// A recorded workload is not where it was looked for.
    #[error(
        "cannot find the recorded workload of {case} in {}: {why}; give the folder that holds {file}.csv, as SNIA \
         publishes it (IOTTA trace set 388), or leave --msr out to generate the workload",
        folder.display()
    )]
    Recorded {
        /// The case.
        case: &'static str,
        /// Where it was looked for.
        folder: PathBuf,
        /// What the file is called, without its ending.
        file: &'static str,
        /// What stood in the way.
        why: String,
    },
    /// There are no traces where some were looked for.
    #[error("cannot find traces in {}: {why}; give a folder with block traces (`tanada trace stat` reads them)", folder.display())]
    Traces {
        /// Where they were looked for.
        folder: PathBuf,
        /// What stood in the way.
        why: String,
    },
    /// The place for a file cannot be used.
    #[error("cannot run in real time at {}: {why}", place.display())]
    Place {
        /// Where.
        place: PathBuf,
        /// What stands in the way, and what would do.
        why: String,
    },
    /// This machine lacks something, or is not as it must be.
    #[error("cannot run {experiment} here: {why}")]
    Machine {
        /// The experiment.
        experiment: &'static str,
        /// What is missing, and what would do.
        why: String,
    },
    /// What ran in real time failed; why is in its source.
    #[error("{case} of {method} failed")]
    Failed {
        /// The case.
        case: String,
        /// The method.
        method: &'static str,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A request failed.
    #[error("{case} of {method} failed: {source}")]
    Device {
        /// The case.
        case: &'static str,
        /// The method.
        method: &'static str,
        /// The cause.
        source: Box<DeviceError>,
    },
}

/// Every experiment there is.
pub fn list() -> Vec<Listing> {
    vec![
        cache::LISTING,
        predict::LISTING,
        predict_loop::LISTING,
        replica::LISTING,
        reserve::LISTING,
        tiering::LISTING,
    ]
}

/// Runs the experiment `name`.
///
/// # Errors
/// [`ExperimentError::Unknown`] names the choices; the others say which case of which method failed.
pub fn run(
    name: &str,
    options: Options<'_>,
    progress: &mut Progress<'_>,
) -> Result<Results, ExperimentError> {
    let rows_alone = |rows| Results {
        rows,
        figures: Vec::new(),
    };
    match name {
        "cache" => cache::run(options, progress).map(rows_alone),
        "predict" => predict::run(options, progress).map(rows_alone),
        "predict-loop" => predict_loop::run(options, progress).map(rows_alone),
        "replica" => replica::run(options, progress),
        "reserve" => reserve::run(options, progress),
        "tiering" => tiering::run(options, progress),
        _ => Err(ExperimentError::Unknown {
            asked: name.to_owned(),
            known: list()
                .iter()
                .map(|one| one.name)
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}

/// What in `rows` must not be: figures that have to come out as printed and do not, as a sentence each.
pub fn failures(name: &str, rows: &[Row]) -> Vec<String> {
    match name {
        "predict" => predict::differences(rows),
        // The others' devices are models: differences are part of the result.
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_with_four_digits() {
        let shown = |number| Value::Number(number).to_string();
        assert_eq!(shown(0.0), "0");
        assert_eq!(shown(17.0345), "17.03");
        assert_eq!(shown(0.081_234), "0.08123");
        assert_eq!(shown(1_234_567.8), "1,234,568");
        assert_eq!(shown(-86_400.0), "-86,400");
        assert_eq!(shown(1.5), "1.5");
    }

    #[test]
    fn a_row_is_the_same_after_json() {
        let row = Row {
            experiment: "cache".to_owned(),
            table: "directions".to_owned(),
            case: "read".to_owned(),
            method: "dmssd-2.5".to_owned(),
            metric: "seconds".to_owned(),
            unit: "s".to_owned(),
            published: Some(Value::Text("higher".to_owned())),
            ours: Some(Value::Number(1.25)),
            low: None,
            high: None,
            modelled: true,
            note: String::new(),
        };
        let json = serde_json::to_string(&row).unwrap();
        assert!(
            json.contains(r#""published":"higher","ours":1.25,"low":null"#),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<Row>(&json).unwrap(), row);
    }

    #[test]
    fn an_unknown_experiment_is_refused_with_the_choices() {
        let refusal = run("cash", Options::default(), &mut |_, _| {}).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "there is no experiment 'cash'; choose one of cache, predict, predict-loop, replica, reserve, tiering"
        );
    }
}
