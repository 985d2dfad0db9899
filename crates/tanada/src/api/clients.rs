//! Clients of NBD: who is connected, and whose connections are to end.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One address at which NBD clients connect, and who did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NbdListener {
    pub address: String,
    pub clients: Vec<NbdClient>,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Turned away or cut because there were too many.
    #[serde(rename = "crowded_out")]
    pub turned_away: u64,
    /// Connections that never agreed on an export.
    pub negotiations_failed: u64,
    /// Cut because the client stalled.
    pub stalled: u64,
    /// Ended because the client broke the protocol.
    pub violations: u64,
}

/// A client connected now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NbdClient {
    /// Its number at this listener; no other client of it has it.
    #[serde(default)]
    pub id: u64,
    pub peer: String,
    /// The export it uses; absent while it negotiates.
    pub export: Option<String>,
    pub tls: bool,
    pub connected_seconds: f64,
    pub in_flight: u64,
}

/// Which clients are meant: those of whom everything holds that is said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Which {
    /// At this address of the daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// With this number at its listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// That use this export.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
}

/// A client whose connection was ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Gone {
    pub listener: String,
    pub client: NbdClient,
}
