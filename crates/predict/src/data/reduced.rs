//! A data set with one value for each regressor of a device and each cell, the runs beside it.
//!
//! Always true: devices, regressors and cells stand in the order in which they were measured.

use std::collections::BTreeMap;

use super::{Parameters, What};
use crate::units::Kind;

/// How repeated runs become one value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reduce {
    /// The highest and the lowest dropped, the mean of the rest; the mean of all below three runs.
    ///
    /// Source: SCM 4.2.1 (five runs).
    ///
    /// Choice: fewer or more runs likewise.
    #[default]
    Trimmed,
    /// The middle one, or the mean of the two in the middle.
    Median,
}

impl Reduce {
    /// `runs` as one value.
    ///
    /// # Panics
    /// If there are no runs.
    ///
    /// # Example
    /// ```
    /// use predict::data::Reduce;
    /// let runs = [10.0, 11.0, 90.0, 12.0, 1.0];
    /// assert_eq!(Reduce::Trimmed.of(&runs), 11.0);
    /// assert_eq!(Reduce::Median.of(&runs), 11.0);
    /// ```
    pub fn of(self, runs: &[f64]) -> f64 {
        assert!(!runs.is_empty(), "no runs, no value");
        let mut sorted = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        match self {
            Reduce::Trimmed if sorted.len() >= 3 => mean(&sorted[1..sorted.len() - 1]),
            Reduce::Trimmed => mean(&sorted),
            Reduce::Median => {
                let half = sorted.len() / 2;
                match sorted.len() % 2 {
                    1 => sorted[half],
                    _ => f64::midpoint(sorted[half - 1], sorted[half]),
                }
            }
        }
    }
}

/// A value and the runs it was made of, in the reckoning unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// The one value.
    pub value: f64,
    /// Every run.
    pub runs: Vec<f64>,
}

/// A figure of the devices themselves.
#[derive(Debug, Clone, PartialEq)]
pub struct Regressor {
    /// Such as `read-16K-latency`.
    pub name: String,
    /// What it measures.
    pub kind: Kind,
    /// By device; not every device has one.
    pub values: BTreeMap<String, Value>,
}

/// One result of an application, on each device it was run on.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Such as `write-only`.
    pub workload: String,
    /// Such as `data_gb=16`.
    pub parameters: Parameters,
    /// Such as `write_latency`.
    pub metric: String,
    /// What it measures.
    pub kind: Kind,
    /// By device; not every device has one.
    pub values: BTreeMap<String, Value>,
}

impl Cell {
    /// `write-only data_gb=16 write_latency`.
    pub fn name(&self) -> String {
        match self.parameters.is_empty() {
            true => format!("{} {}", self.workload, self.metric),
            false => format!("{} {} {}", self.workload, self.parameters, self.metric),
        }
    }
}

/// A data set with its repeated runs reduced, in the reckoning units.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reduced {
    /// The devices, as they first appear.
    pub devices: Vec<String>,
    /// Their own figures, as they first appear.
    pub regressors: Vec<Regressor>,
    /// The results, as they first appear.
    pub cells: Vec<Cell>,
    /// What of a figure is the path's and the same for all devices, in us; none: the figures are not taken apart.
    pub path: BTreeMap<String, f64>,
}

impl Reduced {
    /// One figure of one device.
    pub fn figure(&self, device: &str, regressor: &str) -> Option<f64> {
        let column = self.regressors.iter().find(|r| r.name == regressor)?;
        column.values.get(device).map(|value| value.value)
    }

    /// The devices that have results.
    pub fn measured(&self) -> Vec<&str> {
        let has = |device: &&String| self.cells.iter().any(|c| c.values.contains_key(*device));
        let devices = self.devices.iter().filter(has);
        devices.map(String::as_str).collect()
    }

    /// The values of what is measured, by device; a column or cell of its own at first.
    pub(super) fn put(&mut self, what: What, kind: Kind) -> &mut BTreeMap<String, Value> {
        match what {
            What::Device { regressor } => {
                let known = self.regressors.iter().position(|it| it.name == regressor);
                let at = known.unwrap_or_else(|| {
                    self.regressors.push(Regressor {
                        name: regressor,
                        kind,
                        values: BTreeMap::new(),
                    });
                    self.regressors.len() - 1
                });
                &mut self.regressors[at].values
            }
            What::Result {
                workload,
                parameters,
                metric,
            } => {
                let known = self.cells.iter().position(|it| {
                    it.workload == workload && it.parameters == parameters && it.metric == metric
                });
                let at = known.unwrap_or_else(|| {
                    self.cells.push(Cell {
                        workload,
                        parameters,
                        metric,
                        kind,
                        values: BTreeMap::new(),
                    });
                    self.cells.len() - 1
                });
                &mut self.cells[at].values
            }
        }
    }
}
