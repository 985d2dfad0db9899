//! The options and results of an experiment, and the errors that leave it without a result.

pub(crate) mod hollow;
pub(crate) mod jobs;
pub(crate) mod journal;

use std::path::{Path, PathBuf};

use device::DeviceError;
use device::model::SpecError;
use hybrid::OpenError;
use report::{Row, Section};
use serde::Serialize;
use sim::run::RunError;
use trace::TraceError;

use crate::app::process::Stop;

/// How an experiment is to be run.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// The same rows from a shorter run: smaller files, fewer seeds.
    pub quick: bool,
    /// The first seed; the others follow it.
    pub seed: u64,
    /// `tiering`: the folder of the recorded traces of MSR Cambridge; none: the workloads are generated.
    pub msr: Option<&'a Path>,
    /// `tiering`: the folder of further traces on which our defaults are compared with the disk and the cache alone.
    pub traces: Option<&'a Path>,
    /// `reserve`: some of it in real time, on a file here (a folder, or a name that is free); none: all of it in virtual time.
    pub real: Option<&'a Path>,
    /// `predict-loop`: how many times slower than the models its devices are.
    pub slower: f64,
    /// What runs in real time and has something to put back ends early when this is set.
    pub stop: Option<&'a Stop>,
    /// What of it is run.
    pub part: Part<'a>,
    /// Where what is done is written down, and what was done before is found; none: it is done in one go.
    pub resume: Option<&'a Path>,
}

/// A part of an experiment: so named cases of so named methods. A part has its own figures, and no verdicts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Part<'a> {
    /// These cases; none: all of them.
    pub cases: &'a [String],
    /// Of these methods; none: all of them.
    pub methods: &'a [String],
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
            part: Part::default(),
            resume: None,
        }
    }
}

impl Options<'_> {
    /// All that decides what comes out of one of the experiment's pieces.
    pub(crate) fn identity(&self) -> String {
        let place = |name: &str, path: Option<&Path>| {
            path.map_or(String::new(), |path| format!(", {name} {}", path.display()))
        };
        format!(
            "seed {}{}{}{}{}, {} times slower",
            self.seed,
            if self.quick { ", quick" } else { "" },
            place("msr", self.msr),
            place("traces", self.traces),
            place("real", self.real),
            self.slower
        )
    }
}

impl Part<'_> {
    /// Is nothing left out?
    pub fn is_whole(&self) -> bool {
        self.cases.is_empty() && self.methods.is_empty()
    }

    /// Is this method of this case a part of it?
    pub fn has(&self, case: &str, method: &str) -> bool {
        self.has_case(case) && self.has_method(method)
    }

    /// Is this case, or some of it?
    pub fn has_case(&self, case: &str) -> bool {
        self.cases.is_empty() || self.cases.iter().any(|it| it == case)
    }

    /// Is this method?
    pub fn has_method(&self, method: &str) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|it| it == method)
    }

    /// Refuses names that the experiment has not.
    ///
    /// # Errors
    /// [`ExperimentError::NoPart`] with the names there are.
    pub(crate) fn check(&self, cases: &[&str], methods: &[&str]) -> Result<(), ExperimentError> {
        for (what, asked, all) in [
            ("case", self.cases, cases),
            ("method", self.methods, methods),
        ] {
            if let Some(asked) = asked.iter().find(|it| !all.contains(&it.as_str())) {
                return Err(ExperimentError::NoPart {
                    what,
                    asked: asked.clone(),
                    known: all.join(", "),
                });
            }
        }
        Ok(())
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

/// The function that makes the rows of the experiment of this name.
macro_rules! row_of {
    ($visible:vis, $name:expr) => {
        /// A row with our figure; the devices are modelled.
        $visible fn row(
            table: &str,
            case: &str,
            method: &str,
            metric: &str,
            unit: &str,
            ours: Option<f64>,
        ) -> report::Row {
            report::Row::modelled($name, table, case, method, metric, unit).measured(ours)
        }
    };
}
pub(crate) use row_of;

/// Where a long run stands: what it does now, and the share that is done (0 to 1).
pub type Progress<'a> = dyn FnMut(&str, f64) + 'a;

/// An experiment, for listings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// Its name, as [`crate::run`] takes it.
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
    /// No such case or method.
    #[error("there is no {what} '{asked}' in this experiment; choose of {}", if known.is_empty() { "none: it is run whole" } else { known })]
    NoPart {
        /// `case` or `method`.
        what: &'static str,
        /// The name asked for.
        asked: String,
        /// The names there are.
        known: String,
    },
    /// What is done cannot be written down, or not be found again.
    #[error("cannot go on with {}: {why}", path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// What stands in the way, and what would do.
        why: String,
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
    #[error("cannot find traces in {}: {why}; give a folder with block traces (`tanada trace show` reads them)", folder.display())]
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
