//! What varies how much in a group of cells: between devices, runs and sizes?

use std::collections::BTreeMap;

use serde::Serialize;

use super::data::Reduced;
use super::model::Group;

/// The spreads that show whether storage decides a result; relative standard deviations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spreads {
    /// Of the devices' values about their mean, in the same cell.
    pub between_devices: f64,
    /// Of repeated runs about theirs, on the same device in the same cell; none if nothing was repeated.
    pub between_runs: Option<f64>,
    /// Of the pooled cells of one device about their mean.
    pub between_sizes: Option<f64>,
}

impl Spreads {
    /// Do the devices differ less than the runs of one of them?
    pub fn not_storage_bound(&self) -> bool {
        self.between_runs
            .is_some_and(|runs| self.between_devices < runs)
    }
}

/// What varies how much in `group`, on `devices`.
pub(super) fn spreads(data: &Reduced, group: &Group, devices: &[String]) -> Spreads {
    let mut of_devices = Pooled::default();
    let mut of_runs = Pooled::default();
    let mut sizes: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for cell in group.cells.iter().map(|n| &data.cells[*n]) {
        let values = || {
            cell.values
                .iter()
                .filter(|(device, _)| devices.contains(device))
        };
        let each: Vec<f64> = values().map(|(_, value)| value.value).collect();
        of_devices.add(&each);
        for (device, value) in values() {
            of_runs.add(&value.runs);
            sizes.entry(device.as_str()).or_default().push(value.value);
        }
    }
    let mut of_sizes = Pooled::default();
    for values in sizes.values() {
        of_sizes.add(values);
    }
    Spreads {
        between_devices: of_devices.deviation().unwrap_or(0.0),
        between_runs: of_runs.deviation(),
        between_sizes: of_sizes.deviation(),
    }
}

/// Relative deviations of several samples, each about its own mean, taken together.
#[derive(Default)]
struct Pooled {
    squares: f64,
    freedom: usize,
}

impl Pooled {
    fn add(&mut self, values: &[f64]) {
        if values.len() < 2 {
            return;
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        self.squares += values.iter().map(|v| (v / mean - 1.0).powi(2)).sum::<f64>();
        self.freedom += values.len() - 1;
    }

    fn deviation(&self) -> Option<f64> {
        (self.freedom > 0).then(|| (self.squares / self.freedom as f64).sqrt())
    }
}
