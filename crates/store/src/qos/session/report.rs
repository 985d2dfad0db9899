//! What operators and metrics see of a session.

use serde::{Deserialize, Serialize};

use super::rights::Phase;
use crate::qos::book::record::WindowsReport;

/// A session, for operators and metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionReport {
    /// Its number at this manager.
    pub session: u64,
    /// Its reservation, if it has one.
    pub reservation: Option<u64>,
    /// Its holder.
    pub holder: String,
    /// Its account, which what is not promised is shared by; empty: the daemon's owner.
    #[serde(default)]
    pub account: String,
    /// Objects it may use begin with this.
    pub scope: String,
    /// `read`, `write`, or nothing: both.
    pub direction: Option<String>,
    /// Where it stands.
    pub phase: Phase,
    /// Whose requests they are beside others, where nothing is promised: `low`, `normal` or `high`.
    #[serde(default)]
    pub priority: String,
    /// Bytes per second it is promised now.
    pub promised: u64,
    /// What it got.
    #[serde(flatten)]
    pub delivery: DeliveryReport,
    /// Its part of the buffer memory.
    pub memory_bytes: u64,
    /// Connections it is used by.
    pub peers: Vec<String>,
    /// Seconds since 1970 when it was opened.
    pub opened: u64,
    /// And closed, if it is.
    pub closed: Option<u64>,
}

/// What a session got, and was it as promised?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryReport {
    /// Bytes it got.
    pub delivered_bytes: u64,
    /// Requests it got an answer to.
    pub requests: u64,
    /// Bytes it asked for and has not got.
    pub outstanding_bytes: u64,
    /// The window its promise is judged by, in nanoseconds.
    pub window_ns: u64,
    /// How its windows went.
    pub windows: WindowsReport,
}
