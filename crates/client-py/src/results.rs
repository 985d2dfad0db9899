//! Predictions: what `tanada predict fit` and `tanada predict estimate` print with `--json`.
//!
//! ```text
//! data set -> reduced, the floor taken apart -> study -> JSON
//! device, figures ---------------------------------^-> estimates -> JSON
//! ```

use std::path::PathBuf;

use predict::data::{DataSet, Reduce, Reduced};
use predict::floor::{self, Floors};
use predict::model::Form;
use predict::queue::Load;
use predict::study::{Ask, Study, Target};
use pyo3::prelude::*;

use crate::errors::{self, PredictionError};
use crate::interrupt::detached;

/// The data set and the form, in the words of the command line.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct StudyWords {
    data: PathBuf,
    runs: String,
    terms: Option<Vec<String>>,
    counts: Vec<(String, f64)>,
    floors: Vec<(String, String)>,
    measured_floors: bool,
    pool: Option<String>,
}

/// What is asked of a study.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct EstimateWords {
    device: Option<String>,
    at: Vec<(String, String)>,
    level: f64,
    extrapolate: bool,
    clients: Option<f64>,
    cores: Option<f64>,
}

fn refused(why: impl Into<String>) -> PyErr {
    PredictionError::new_err(why.into())
}

impl StudyWords {
    fn form(&self) -> PyResult<Form> {
        let mut form = match &self.terms {
            None => Form::default(),
            Some(terms) => Form::of(&terms.iter().map(String::as_str).collect::<Vec<_>>()),
        };
        if let Some(pool) = &self.pool {
            form.pooled.clone_from(pool);
        }
        for (name, n) in &self.counts {
            if !form.count(name, *n) {
                return Err(refused(format!("a count of {name} is a number from 0")));
            }
        }
        Ok(form)
    }

    fn reduced(&self) -> PyResult<Reduced> {
        let how = match self.runs.as_str() {
            "trimmed" => Reduce::Trimmed,
            "median" => Reduce::Median,
            other => return Err(refused(format!("runs is '{other}'; say trimmed or median"))),
        };
        let data = DataSet::read(&self.data).map_err(|error| errors::prediction(&error))?;
        let reduced = data.reduce(how);
        if self.floors.is_empty() && !self.measured_floors {
            return Ok(reduced);
        }
        let mut floors = match self.measured_floors {
            true => Floors::measured(&reduced).map_err(|error| errors::prediction(&error))?,
            false => Floors::default(),
        };
        for (name, value) in &self.floors {
            let given = floors.give_text(name, value);
            given.map_err(|error| refused(format!("floor of {name}: {error}")))?;
        }
        floor::apart(&reduced, &floors).map_err(|error| errors::prediction(&error))
    }

    fn study(&self) -> PyResult<(Reduced, Study)> {
        let data = self.reduced()?;
        let study = predict::study::study(&data, &self.form()?);
        Ok((data, study.map_err(|error| errors::prediction(&error))?))
    }
}

impl EstimateWords {
    fn target(&self, data: &Reduced) -> PyResult<Target> {
        let mut target = match &self.device {
            Some(device) => Target::of(data, device).ok_or_else(|| {
                refused(format!(
                    "the data set has no device '{device}'; it has {}",
                    data.devices.join(", ")
                ))
            })?,
            None if self.at.is_empty() => {
                return Err(refused(
                    "which device? device takes one of the data set, at describes one by its figures",
                ));
            }
            None => Target::described(),
        };
        for (name, value) in &self.at {
            let given = target.give(data, name, value);
            given.map_err(|error| refused(format!("{name} = {value}: {error}")))?;
        }
        Ok(target)
    }

    fn ask(&self) -> PyResult<Ask> {
        if !(self.level > 0.0 && self.level < 1.0) {
            return Err(refused("level is a share between 0 and 1, such as 0.95"));
        }
        let positive = |value: Option<f64>| value.is_none_or(|it| it.is_finite() && it > 0.0);
        if !positive(self.clients) || !positive(self.cores) {
            return Err(refused("clients and cores are numbers above zero"));
        }
        if self.cores.is_some() && self.clients.is_none() {
            return Err(refused(
                "cores needs clients: how many wait for their answers?",
            ));
        }
        let cores = self.cores;
        Ok(Ask {
            level: self.level,
            extrapolate: self.extrapolate,
            load: self.clients.map(|clients| Load { clients, cores }),
        })
    }
}

/// The study of a data set, as JSON.
#[pyfunction]
pub fn study(py: Python<'_>, words: StudyWords) -> PyResult<String> {
    let (_, study) = detached(py, |_| words.study())??;
    serde_json::to_string(&study).map_err(|error| errors::prediction(&error))
}

/// The estimates for a device, as JSON: the form's sentence, the device's name, the estimates.
#[pyfunction]
pub fn estimate(
    py: Python<'_>,
    words: StudyWords,
    asked: EstimateWords,
) -> PyResult<(String, String, String)> {
    let ask = asked.ask()?;
    detached(py, |_| {
        let (data, study) = words.study()?;
        let target = asked.target(&data)?;
        let estimates = predict::study::estimate(&data, &study, &target, ask);
        let estimates = estimates.map_err(|error| errors::prediction(&error))?;
        let text = serde_json::to_string(&estimates).map_err(|error| errors::prediction(&error))?;
        Ok((study.form.sentence(), target.name, text))
    })?
}
