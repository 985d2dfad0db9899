//! A daemon second by second, as its dashboard draws it: small, and without a name of an account or holder.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::health::Health;
use super::rates::Rates;

/// How long a stream of samples goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct EventsAsk {
    /// It ends after so many samples; absent: after some minutes, when the client opens it again.
    pub samples: Option<u64>,
}

/// A daemon in the second that ended.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Sample {
    pub at_unix_seconds: f64,
    /// How long the second was; 0 of the first sample, which has no rates.
    pub seconds: f64,
    pub version: String,
    pub started_unix_seconds: u64,
    pub uptime_seconds: f64,
    /// Is there a cluster, whose volumes `GET /v1/cluster/volumes` has?
    pub cluster: bool,
    /// The verdict, a few seconds old at most.
    pub health: Health,
    /// What stands on data threads that gave no answer: it is left out of this sample.
    pub silent: Vec<String>,
    /// What clients asked of hybrids and of virtual disks open here, all together. A hybrid that is part of something is
    /// not in it: what it is asked is work of what stands on it.
    pub total: Option<Rates>,
    /// Bytes read from fast devices, of all that hybrids read; absent: nothing was read.
    pub hit_share: Option<f64>,
    /// NBD clients connected.
    pub clients: u64,
    pub volumes: Vec<VolumeSample>,
    pub stores: Vec<StoreSample>,
    /// Of devices that say what they draw: modelled ones.
    pub power: Vec<PowerSample>,
}

/// A device's power in that second.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PowerSample {
    pub device: String,
    pub watts: Option<f64>,
    pub standby: bool,
}

/// A hybrid in that second.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct VolumeSample {
    pub name: String,
    pub health: String,
    pub why: String,
    /// The store or hybrid that stands on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part_of: Option<String>,
    pub size_bytes: u64,
    pub rates: Option<Rates>,
    pub hit_share: Option<f64>,
    pub cache_bytes: u64,
    pub cached_bytes: u64,
    pub dirty_bytes: u64,
    pub moves_under_way: u32,
}

/// A store in that second.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct StoreSample {
    pub name: String,
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub read_bytes_per_second: Option<f64>,
    pub write_bytes_per_second: Option<f64>,
    pub promised_percent: f64,
    /// Requests of it at its device.
    pub in_flight: u32,
    pub bad_pages: u64,
}
