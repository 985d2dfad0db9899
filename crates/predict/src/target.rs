//! The device whose results are asked for.
//!
//! ```text
//! a device of the data set | nothing yet -> figures that are given: REGRESSOR = 12us, checked -> Target
//! ```

use std::collections::BTreeMap;

use serde::Serialize;

use crate::data::Reduced;
use crate::units::{Quantity, Unit, UnitError};

/// A device whose results are asked for: its name and its own figures, in the reckoning units.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Its figures, by name.
    pub figures: BTreeMap<String, f64>,
}

/// Why a figure cannot be one of a device.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// It is no measurement.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// The data set measures it in another kind of unit.
    #[error("the data set has {name} in {unit}")]
    Kind {
        /// Of which figure.
        name: String,
        /// What the data set has it in.
        unit: Unit,
    },
}

impl Target {
    /// A device of the data set.
    pub fn of(data: &Reduced, device: &str) -> Option<Target> {
        let figures: BTreeMap<String, f64> = data
            .regressors
            .iter()
            .filter_map(|r| Some((r.name.clone(), r.values.get(device)?.value)))
            .collect();
        data.devices
            .iter()
            .any(|name| name == device)
            .then(|| Target {
                name: device.to_owned(),
                figures,
            })
    }

    /// A device of which nothing is known but what is given.
    pub fn described() -> Target {
        Target {
            name: "the device asked for".to_owned(),
            figures: BTreeMap::new(),
        }
    }

    /// Its figure `name` is `value`, such as `12us`: the device's alone, where the path's part is known.
    ///
    /// # Errors
    /// [`TargetError`].
    ///
    /// # Example
    /// ```
    /// use predict::data::{DataSet, Reduce};
    /// use predict::study::Target;
    /// let text = "device,regressor,value,unit\na,read-16K-latency,70,us\n";
    /// let data = DataSet::read_csv(text.as_bytes(), "t.csv").unwrap().reduce(Reduce::Trimmed);
    /// let mut target = Target::described();
    /// target.give(&data, "read-16K-latency", "0.012ms").unwrap();
    /// assert_eq!(target.figures["read-16K-latency"], 12.0);
    /// assert!(target.give(&data, "read-16K-latency", "12MB/s").is_err());
    /// ```
    pub fn give(&mut self, data: &Reduced, name: &str, value: &str) -> Result<(), TargetError> {
        let value: Quantity = value.parse()?;
        let value = Quantity::of(name, value.value, value.unit)?;
        let known = data.regressors.iter().find(|r| r.name == name);
        if let Some(known) = known.filter(|known| known.kind != value.unit.kind()) {
            return Err(TargetError::Kind {
                name: name.to_owned(),
                unit: known.kind.unit(),
            });
        }
        let path = data.path.get(name).copied().unwrap_or(0.0);
        let whole = value.reckoned() + path;
        self.figures.insert(name.to_owned(), whole);
        Ok(())
    }
}
