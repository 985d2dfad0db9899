//! Policies and sizes over a trace: what `tanada sim cache` prints with `--json`.
//!
//! ```text
//! words -> Plan | Curves -> rows -> JSON
//! ```

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::str::FromStr;

use hybrid::{Admission, WriteMode};
use pyo3::prelude::*;
use sim::cache::{Compact, Curves, LoadError, Method, Mode, Ops, Plan, Row, Size, Unit};
use sim::on_threads;

use crate::errors::{self, SimulationError};
use crate::interrupt::{Stop, detached};
use crate::traces::{ReadWords, Trace, stream};

/// What is compared, in the words of the command line.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct CacheWords {
    policies: Vec<String>,
    sizes: Vec<String>,
    unit: Option<String>,
    ops: String,
    write: String,
    admission: String,
    sample: Option<f64>,
    seed: u64,
    jobs: usize,
}

/// The same, read.
struct Wanted {
    plan: Plan,
    unit: Unit,
    ops: Ops,
    sample: Option<f64>,
    seed: u64,
    jobs: usize,
}

/// What a word says.
fn read<T: FromStr>(word: &str) -> PyResult<T>
where
    T::Err: std::fmt::Display,
{
    let read = word.parse();
    read.map_err(|error: T::Err| SimulationError::new_err(error.to_string()))
}

impl Wanted {
    fn read(words: &CacheWords, usual: Unit) -> PyResult<Wanted> {
        let methods = Method::list(&words.policies.join(","));
        let sizes: PyResult<Vec<Size>> = words.sizes.iter().map(|word| read(word)).collect();
        let wanted = Wanted {
            plan: Plan {
                methods: methods.map_err(|error| errors::simulation(&error))?,
                sizes: sizes?,
                mode: Mode {
                    write: read(&words.write)?,
                    admission: read::<Admission>(&words.admission)?,
                },
            },
            unit: words.unit.as_deref().map_or(Ok(usual), read)?,
            ops: read(&words.ops)?,
            sample: words.sample,
            seed: words.seed,
            jobs: words.jobs,
        };
        if wanted.plan.mode.write == WriteMode::Pass {
            let why = "a cache that is passed caches nothing, so there is nothing to simulate";
            return Err(SimulationError::new_err(why));
        }
        for size in &wanted.plan.sizes {
            let fits = size.check(wanted.unit);
            fits.map_err(|error| errors::simulation(&error))?;
        }
        Ok(wanted)
    }

    fn plan_rows(&self, trace: &Compact, stop: &Stop) -> PyResult<Vec<Row>> {
        let done = |_: usize, _: usize| -> ControlFlow<()> { stop.flow() };
        let rows = on_threads(self.jobs, || self.plan.run_while(trace, &done));
        let rows = rows.map_err(|error| errors::simulation(&error))?;
        // Broken off: Ctrl-C is what comes of it.
        let rows = rows.map_err(|error| errors::simulation(&error))?;
        Ok(rows.unwrap_or_default())
    }

    fn curve_rows(&self, trace: &Compact) -> PyResult<Vec<Row>> {
        let curves = Curves {
            methods: self.plan.methods.clone(),
            mode: self.plan.mode,
            rate: self.sample,
            seed: self.seed,
        };
        let curves = on_threads(self.jobs, || curves.run(trace, &|_, _| {}));
        let curves = curves.map_err(|error| errors::simulation(&error))?;
        let rows = curves
            .iter()
            .flat_map(|curve| curve.rows(trace, self.plan.mode));
        Ok(rows.collect())
    }
}

/// Runs `of` over the trace; its rows as JSON.
fn rows(
    py: Python<'_>,
    trace: &Trace,
    words: &CacheWords,
    of: impl FnOnce(&Wanted, &Compact, &Stop) -> PyResult<Vec<Row>> + Send,
) -> PyResult<String> {
    let wanted = Wanted::read(words, trace.usual_unit())?;
    let done = detached(py, |stop| {
        let look = (wanted.unit, wanted.ops);
        trace.with_compact(look, stop, |compact| of(&wanted, compact, stop))
    })?;
    let rows = done.map_err(|error| errors::simulation(&error))?;
    let rows = rows.transpose()?.unwrap_or_default();
    serde_json::to_string(&rows).map_err(|error| errors::simulation(&error))
}

/// Every policy at every size.
#[pyfunction]
pub fn compare(py: Python<'_>, trace: &Bound<'_, Trace>, words: CacheWords) -> PyResult<String> {
    rows(py, trace.get(), &words, Wanted::plan_rows)
}

/// Miss-ratio curves of every policy.
#[pyfunction]
pub fn curves(py: Python<'_>, trace: &Bound<'_, Trace>, words: CacheWords) -> PyResult<String> {
    let of = |wanted: &Wanted, trace: &Compact, _: &Stop| wanted.curve_rows(trace);
    rows(py, trace.get(), &words, of)
}

/// The same of a trace that is read for this alone: it never lies in memory as columns.
#[pyfunction]
pub fn compare_files(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    reading: ReadWords,
    words: CacheWords,
) -> PyResult<String> {
    let rows = detached(py, |stop| {
        let options = reading.options().map_err(|error| errors::trace(&error))?;
        let trace = trace::open_many(&paths, &options);
        let mut trace = trace.map_err(|error| errors::trace(&error))?;
        let wanted = Wanted::read(&words, Unit::usual(trace.format()))?;
        let compact = stream(&mut trace, (wanted.unit, wanted.ops), stop);
        match compact {
            Ok(Some(compact)) => wanted.plan_rows(&compact, stop),
            Ok(None) => Ok(Vec::new()),
            Err(LoadError::Trace(error)) => Err(errors::trace(&error)),
            Err(error) => Err(errors::simulation(&error)),
        }
    })??;
    serde_json::to_string(&rows).map_err(|error| errors::simulation(&error))
}
