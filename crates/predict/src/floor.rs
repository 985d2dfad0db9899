//! Which part of an access is the device's, and which the path's?
//!
//! ```text
//! L, measured of a device; F, the same access over the same path where nothing waits for a device
//!     -> D = L - F, the device's part | the path's: the median of F over all devices -> L' = D + path
//! ```
//!
//! The model is fitted on L', the nearest device is found by D. A floor is measured by importing the outputs of fio over
//! the path as one (`floor-read-16K-latency`), or given for all devices alike.
//!
//! Choice: the form was fixed before it computed anything, `docs/decisions/0018`.
//!
//! Always true:
//! 1. A device's part is at least [`OWN_MIN`].
//! 2. Where the floor did not move and hid no device, the figures are as they were measured.

use std::collections::BTreeMap;

use crate::data::{Reduce, Reduced, Row, Value, What};
use crate::units::{Kind, Quantity, UnitError};

/// The least a device is taken for, in us: a smaller difference of two means is not known.
pub const OWN_MIN: f64 = 1.0;

/// What the figure of a floor begins with in a data set.
const PREFIX: &str = "floor-";

/// The device's part of an access that took `latency` over a path that takes `floor`, in us.
///
/// # Example
/// ```
/// use predict::floor::own;
/// assert_eq!(own(300.0, 100.0), 200.0);
/// // Less than the path alone took: that much is noise.
/// assert_eq!(own(90.0, 200.0), 1.0);
/// ```
pub fn own(latency: f64, floor: f64) -> f64 {
    (latency - floor).max(OWN_MIN)
}

/// The path's part, which is the same for all devices: the median of what was measured beside each, in us.
///
/// # Panics
/// If there are none.
pub fn path(floors: &[f64]) -> f64 {
    Reduce::Median.of(floors)
}

/// What was measured of a path, as rows of a data set that has it beside the devices: a latency becomes a floor's, and
/// what is no latency is left out.
///
/// # Errors
/// A sentence if it is a result of an application.
///
/// # Example
/// ```
/// use predict::data::{DataSet, What};
/// let text = "device,regressor,value,unit\na,read-16K-latency,70,us\na,read-16K-iops,14000,iops\n";
/// let measured = DataSet::read_csv(text.as_bytes(), "t.csv").unwrap();
/// let [latency, rate] = measured.rows() else { panic!() };
/// let floor = predict::floor::of_path(latency).unwrap().unwrap();
/// assert_eq!(floor.what, What::Device { regressor: "floor-read-16K-latency".to_owned() });
/// assert_eq!(predict::floor::of_path(rate), Ok(None));
/// ```
pub fn of_path(row: &Row) -> Result<Option<Row>, String> {
    match &row.what {
        What::Device { regressor } => {
            let is_latency = row.quantity.unit.kind() == Kind::Latency;
            Ok(is_latency.then(|| Row {
                what: What::Device {
                    regressor: format!("{PREFIX}{regressor}"),
                },
                ..row.clone()
            }))
        }
        What::Result { workload, .. } => Err(format!(
            "it has results of an application ({workload}); a floor is measured with the tool that measures devices"
        )),
    }
}

/// What the path takes of an access: by figure, then by device.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Floors {
    measured: BTreeMap<String, BTreeMap<String, f64>>,
    given: BTreeMap<String, f64>,
}

/// Why a floor cannot be taken apart.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FloorError {
    /// None was measured.
    #[error(
        "the data set has no floor; measure the path (predict import --floor), or give one: --floor read-16K-latency=70us"
    )]
    Nothing,
    /// It was measured beside some devices alone.
    #[error(
        "{device} has {regressor}, but no floor for it; measure the path beside it (predict import --floor), or give one \
         for all devices: --floor {regressor}=70us"
    )]
    Missing {
        /// The device.
        device: String,
        /// Its figure.
        regressor: String,
    },
    /// It is of no figure of the data set.
    #[error("a floor for {regressor}: the data set has no such figure; it has {figures}")]
    Unknown {
        /// What was given.
        regressor: String,
        /// All there are.
        figures: String,
    },
    /// What is given is no time.
    #[error("{why}")]
    NoTime {
        /// What is wrong with it.
        why: String,
    },
    /// It is no time.
    #[error("a floor for {regressor}: floors are of latencies")]
    NoLatency {
        /// What was given.
        regressor: String,
    },
}

impl Floors {
    /// Those that were measured beside the devices of a data set.
    ///
    /// # Errors
    /// [`FloorError::Nothing`] if there are none.
    pub fn measured(data: &Reduced) -> Result<Floors, FloorError> {
        let floors = data.regressors.iter().filter_map(|it| {
            let of = it.name.strip_prefix(PREFIX)?;
            let values = it.values.iter();
            let values = values.map(|(device, value)| (device.clone(), value.value));
            Some((of.to_owned(), values.collect()))
        });
        let measured: BTreeMap<String, BTreeMap<String, f64>> = floors.collect();
        match measured.is_empty() {
            true => Err(FloorError::Nothing),
            false => Ok(Floors {
                measured,
                given: BTreeMap::new(),
            }),
        }
    }

    /// And `us` for `regressor`, on all devices alike: before what was measured.
    pub fn give(&mut self, regressor: &str, us: f64) {
        self.given.insert(regressor.to_owned(), us);
    }

    /// As [`Floors::give`], of a text such as `70us`.
    ///
    /// # Errors
    /// [`FloorError::NoTime`].
    pub fn give_text(&mut self, regressor: &str, text: &str) -> Result<(), FloorError> {
        let wrong = |why: String| FloorError::NoTime { why };
        let quantity: Quantity = text
            .parse()
            .map_err(|error: UnitError| wrong(error.to_string()))?;
        if quantity.unit.kind() != Kind::Latency {
            return Err(wrong("a floor is a time, such as 70us".to_owned()));
        }
        self.give(regressor, quantity.reckoned());
        Ok(())
    }

    fn on(&self, device: &str, regressor: &str) -> Option<f64> {
        let given = self.given.get(regressor);
        given
            .or_else(|| self.measured.get(regressor)?.get(device))
            .copied()
    }

    /// The path's part of a figure, if there is a floor for it.
    fn path(&self, regressor: &str) -> Option<f64> {
        let measured = || {
            let all: Vec<f64> = self.measured.get(regressor)?.values().copied().collect();
            (!all.is_empty()).then(|| path(&all))
        };
        self.given.get(regressor).copied().or_else(measured)
    }
}

/// `data` with each device's floor replaced by the path's, and the path's part beside it ([`Reduced::path`]).
///
/// # Errors
/// [`FloorError`]: a device has a figure without its floor, or a floor is of no latency of the data set.
pub fn apart(data: &Reduced, floors: &Floors) -> Result<Reduced, FloorError> {
    let mut apart = data.clone();
    for regressor in floors.given.keys() {
        let named = data.regressors.iter().find(|it| it.name == *regressor);
        let Some(named) = named else {
            let names = data.regressors.iter().map(|it| it.name.as_str());
            return Err(FloorError::Unknown {
                regressor: regressor.clone(),
                figures: names.collect::<Vec<_>>().join(", "),
            });
        };
        if named.kind != Kind::Latency {
            let regressor = regressor.clone();
            return Err(FloorError::NoLatency { regressor });
        }
    }
    for column in &mut apart.regressors {
        let Some(path) = floors.path(&column.name) else {
            continue;
        };
        for (device, value) in &mut column.values {
            let floor = floors.on(device, &column.name);
            let floor = floor.ok_or_else(|| FloorError::Missing {
                device: device.clone(),
                regressor: column.name.clone(),
            })?;
            let whole = |latency: f64| own(latency, floor) + path;
            *value = Value {
                value: whole(value.value),
                runs: value.runs.iter().copied().map(whole).collect(),
            };
        }
        apart.path.insert(column.name.clone(), path);
    }
    Ok(apart)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DataSet;
    use crate::judge::nearest;
    use crate::model::Form;

    const READ: &str = "read-16K-latency";

    /// Devices by name, with a read over the path and the floor then.
    fn data(devices: &[(&str, f64, Option<f64>)]) -> Reduced {
        let mut text = String::from("device,regressor,workload,metric,value,unit\n");
        for (device, read, floor) in devices {
            text += &format!("{device},{READ},,,{read},us\n{device},,w,read_latency,500,us\n");
            if let Some(floor) = floor {
                text += &format!("{device},floor-{READ},,,{floor},us\n");
            }
        }
        let data = DataSet::read_csv(text.as_bytes(), "t.csv");
        data.expect("a sound data set").reduce(Reduce::default())
    }

    fn figures(data: &Reduced, devices: [&str; 3]) -> [Option<f64>; 3] {
        devices.map(|device| data.figure(device, READ))
    }

    #[test]
    fn a_floor_that_moves_is_taken_from_each_device_and_given_to_all_alike() {
        let data = data(&[
            ("a", 300.0, Some(100.0)),
            ("b", 1000.0, Some(700.0)),
            ("c", 90.0, Some(200.0)),
        ]);
        let apart = apart(&data, &Floors::measured(&data).unwrap()).unwrap();
        assert_eq!(apart.path, BTreeMap::from([(READ.to_owned(), 200.0)]));
        let whole = figures(&apart, ["a", "b", "c"]);
        assert_eq!(whole, [Some(400.0), Some(500.0), Some(201.0)]);
        assert_eq!(apart.cells, data.cells, "results are as they were");
    }

    #[test]
    fn a_floor_that_did_not_move_leaves_the_figures_and_tells_who_is_near() {
        let data = data(&[("a", 110.0, None), ("b", 130.0, None), ("c", 200.0, None)]);
        let mut floors = Floors::default();
        floors.give(READ, 100.0);
        let apart = apart(&data, &floors).unwrap();
        let all = ["a", "b", "c"];
        assert_eq!(figures(&apart, all), figures(&data, all));
        let form = Form::of(&[READ]);
        assert_eq!(nearest(&data, &form, &[114.0], &all), Some("a"));
        assert_eq!(nearest(&data, &form, &[119.0], &all), Some("a"));
        assert_eq!(
            nearest(&apart, &form, &[119.0], &all),
            Some("b"),
            "19 us: 30 rather than 10"
        );
    }

    #[test]
    fn a_floor_that_is_missing_or_of_nothing_is_refused_with_what_to_do() {
        let some = data(&[("a", 300.0, Some(100.0)), ("b", 1000.0, None)]);
        let error = apart(&some, &Floors::measured(&some).unwrap()).unwrap_err();
        assert!(
            error.to_string().starts_with(
                "b has read-16K-latency, but no floor for it; measure the path beside it"
            ),
            "{error}"
        );
        let none = data(&[("a", 300.0, None)]);
        assert_eq!(Floors::measured(&none), Err(FloorError::Nothing));
        let mut floors = Floors::default();
        floors.give("read-4K-latency", 1.0);
        let error = apart(&none, &floors).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a floor for read-4K-latency: the data set has no such figure; it has read-16K-latency"
        );
        // What is given stands for all, measured or not.
        let mut floors = Floors::measured(&some).unwrap();
        floors.give(READ, 50.0);
        assert_eq!(
            apart(&some, &floors).unwrap().figure("b", READ),
            Some(1000.0)
        );
    }
}
