//! What was measured of each device, and how it is written down until the others are measured, too.
//!
//! Always true: what is read back gives the same rows, bit for bit.

use ::predict::data::DataSet;
use base::Bytes;
use serde::{Deserialize, Serialize};

use crate::app::outcome::Outcome;
use crate::app::rocksdb;

/// One access of one device along its way, in us.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Path4 {
    /// `read` or `write`.
    pub way: String,
    /// How large.
    pub size: Bytes,
    /// What the model says; none where that depends on what was asked before.
    pub modelled: Option<f64>,
    /// What it took in the serving process, its timers' lateness in it.
    pub kept: f64,
}

/// What everything but the model takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// `read` or `write`.
    pub way: String,
    /// How large.
    pub size: Bytes,
    /// In us.
    pub latency: f64,
}

/// Everything that was measured of one device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OfDevice {
    /// One entry for each of fio's runs.
    pub paths: Vec<Path4>,
    /// fio with the model switched off, just before.
    pub floors: Vec<Floor>,
    /// Each run of MariaDB.
    pub mariadb: Vec<Outcome>,
    /// Each run of RocksDB.
    pub rocksdb: Vec<rocksdb::Outcome>,
    /// Its own figures and the results on it, as a data set's table.
    pub table: String,
}

impl OfDevice {
    /// With its own figures and results.
    pub fn with(self, data: &DataSet) -> OfDevice {
        let mut table = Vec::new();
        data.write_csv(&mut table)
            .expect("memory takes what is written");
        OfDevice {
            table: String::from_utf8(table).expect("it was written from text"),
            ..self
        }
    }

    /// Its own figures and results.
    ///
    /// # Errors
    /// A sentence if it is no such table.
    pub fn data(&self) -> Result<DataSet, String> {
        DataSet::read_csv(self.table.as_bytes(), "what was measured").map_err(|e| e.to_string())
    }
}

/// Everything that was measured.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// By device, in the order of the cases.
    pub devices: Vec<(&'static str, OfDevice)>,
    /// All devices' figures and results.
    pub data: DataSet,
}

impl Found {
    /// Adds what was measured of one more device.
    ///
    /// # Errors
    /// A sentence if its figures are none.
    pub fn add(&mut self, name: &'static str, of: OfDevice) -> Result<(), String> {
        for row in of.data()?.rows() {
            self.data.add(row.clone())?;
        }
        self.devices.push((name, of));
        Ok(())
    }

    /// Was this one measured?
    pub fn has(&self, name: &str) -> bool {
        self.devices.iter().any(|(device, _)| *device == name)
    }
}
