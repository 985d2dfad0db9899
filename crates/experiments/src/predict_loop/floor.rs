//! Which part of an access is the device's, and which the path's?
//!
//! ```text
//! L, what fio saw of a device; F, the same with its model switched off -> D = L - F, the device's part | F of all: their median
//! ```
//!
//! Choice: the form was fixed before it computed anything, `docs/decisions/0018`.
//!
//! Always true:
//! 1. A device's part is at least [`predict::floor::OWN_MIN`].
//! 2. Where the floor did not move and hid no device, the figures with the path's part are what fio saw.

use std::collections::BTreeMap;

use ::predict::data::{DataSet, Row, What};
use ::predict::floor;
use ::predict::units::{Quantity, Unit};

use super::found::{Floor, Found};

/// What was measured, with the floor taken apart. Results are as they were.
#[derive(Debug, Clone, PartialEq)]
pub struct Apart {
    /// Each device's own part and the path's, which is the same for all.
    pub with_path: DataSet,
    /// Each device's own part.
    pub own: DataSet,
}

/// The name of a floor's figure in the data set.
fn name(floor: &Floor) -> String {
    format!("{}-{}K-latency", floor.way, floor.size.0 / 1024)
}

/// Takes the floor apart.
///
/// # Errors
/// A sentence if a figure is none.
pub fn apart(found: &Found) -> Result<Apart, String> {
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for floor in found.devices.iter().flat_map(|(_, of)| &of.floors) {
        all.entry(name(floor)).or_default().push(floor.latency);
    }
    let path: BTreeMap<String, f64> = all
        .into_iter()
        .map(|(name, floors)| (name, floor::path(&floors)))
        .collect();
    let (mut with_path, mut own) = (DataSet::default(), DataSet::default());
    for row in found.data.rows() {
        let part = own_part(found, row);
        let of = |value: Option<f64>| match value {
            Some(value) => Row {
                quantity: Quantity {
                    value,
                    unit: Unit::Us,
                },
                ..row.clone()
            },
            None => row.clone(),
        };
        let shared = |regressor: &String| path.get(regressor).copied().unwrap_or(0.0);
        let whole = part.and_then(|own| match &row.what {
            What::Device { regressor } => Some(own + shared(regressor)),
            What::Result { .. } => None,
        });
        with_path.add(of(whole))?;
        own.add(of(part))?;
    }
    Ok(Apart { with_path, own })
}

/// The device's part of one of its figures, in us, if the floor of that was measured.
fn own_part(found: &Found, row: &Row) -> Option<f64> {
    let What::Device { regressor } = &row.what else {
        return None;
    };
    let (_, of) = found.devices.iter().find(|(name, _)| *name == row.device)?;
    let floor = of.floors.iter().find(|floor| name(floor) == *regressor)?;
    Some(floor::own(row.quantity.reckoned(), floor.latency))
}

#[cfg(test)]
mod tests {
    use base::Bytes;

    use super::super::found::OfDevice;
    use super::*;

    /// Devices by name, with what fio saw of a read of 16 KiB and the floor then.
    fn found(devices: &[(&'static str, f64, f64)]) -> Found {
        let mut found = Found::default();
        for (name, read, floor) in devices {
            let text = format!(
                "device,regressor,workload,metric,value,unit\n{name},read-16K-latency,,,{read},us\n\
                 {name},write-4K-latency,,,7,us\n{name},,w,read_latency,500,us\n"
            );
            let floor = Floor {
                way: "read".to_owned(),
                size: Bytes::kib(16),
                latency: *floor,
            };
            let of = OfDevice {
                floors: vec![floor],
                ..OfDevice::default()
            };
            let data = DataSet::read_csv(text.as_bytes(), "t").unwrap();
            found.add(name, of.with(&data)).unwrap();
        }
        found
    }

    fn figures(data: &DataSet, name: &str) -> Vec<f64> {
        let of = |row: &&Row| matches!(&row.what, What::Device { regressor } if regressor == name);
        let rows = data.rows().iter().filter(of);
        rows.map(|row| row.quantity.value).collect()
    }

    #[test]
    fn a_floor_that_moves_is_taken_from_each_device_and_given_to_all_alike() {
        let found = found(&[
            ("a", 300.0, 100.0),
            ("b", 1000.0, 700.0),
            ("c", 90.0, 200.0),
        ]);
        let apart = apart(&found).unwrap();
        // fio saw less of c than the path alone took: that much is noise.
        assert_eq!(figures(&apart.own, "read-16K-latency"), [200.0, 300.0, 1.0]);
        let whole = figures(&apart.with_path, "read-16K-latency");
        assert_eq!(whole, [400.0, 500.0, 201.0]);
        // A figure whose floor was not measured, and results, are as they were.
        for data in [&apart.own, &apart.with_path] {
            assert_eq!(figures(data, "write-4K-latency"), [7.0; 3]);
            assert_eq!(data.rows()[2], found.data.rows()[2]);
        }
    }

    #[test]
    fn where_the_floor_does_not_move_the_figures_are_what_fio_saw() {
        let found = found(&[("a", 300.0, 50.0), ("b", 1000.0, 50.0)]);
        assert_eq!(apart(&found).unwrap().with_path, found.data);
    }
}
