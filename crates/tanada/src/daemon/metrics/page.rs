//! What a page of metrics is made of.

use crate::api::cluster::{ClusterStore, Disk};
use crate::api::level::ClusterLevel;
use crate::api::status::Status;

/// Everything that is known at one moment.
#[derive(Debug)]
pub struct Page {
    /// What the data threads that answered said, which did not, and the verdict.
    pub status: Status,
    /// The cluster, as far as its thread answered.
    pub cluster: ClusterSnapshot,
    /// What the system says of this process, as far as it does.
    pub process: Option<ProcessSnapshot>,
    pub gateways: Vec<GatewaySnapshot>,
}

/// A gateway for S3 clients at one moment.
#[derive(Debug, Default)]
pub struct GatewaySnapshot {
    pub name: String,
    /// Is it served?
    pub up: bool,
    pub connections: u64,
    /// Bytes of bodies, from clients and to them.
    pub received: u64,
    pub sent: u64,
    /// Method, class of the status, and how many requests.
    pub requests: Vec<(&'static str, &'static str, u64)>,
}

/// The cluster at one moment.
#[derive(Debug, Default)]
pub struct ClusterSnapshot {
    pub disks: Vec<Disk>,
    pub stores: Vec<ClusterStore>,
    /// Deleted disks that are kept.
    pub in_trash: usize,
    /// Is there a cluster, and for how long has its meta store not answered?
    pub meta_silent_seconds: Option<f64>,
    /// As far as the meta store said it.
    pub level: Option<ClusterLevel>,
}

/// This process at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProcessSnapshot {
    pub resident_bytes: u64,
    pub cpu_seconds: f64,
    pub open_files: u64,
    /// The soft limit; none: it has none.
    pub open_files_max: Option<u64>,
    /// Seconds since 1970.
    pub started_unix_seconds: f64,
}
