//! Deleted virtual disks that can still be restored.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A virtual disk in the trash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeletedVolume {
    /// What it was called.
    pub name: String,
    /// What it is called in the trash; no two have the same.
    pub id: String,
    pub size_bytes: u64,
    /// Its snapshots, which went with it.
    pub snapshots: u64,
    /// As of any virtual disk: its copies are kept well.
    pub health: String,
    /// Why it is not healthy.
    pub why: String,
    /// None: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_unix_seconds: Option<u64>,
    /// Who asked for it; none: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_by: Option<String>,
    /// When it is deleted for good; none: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_unix_seconds: Option<u64>,
    /// It is being deleted for good.
    pub deleting: bool,
}

/// How a virtual disk is deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub struct DeleteAsk {
    /// Not into the trash, but for good.
    pub now: bool,
}

/// A virtual disk was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Deleted {
    pub done: bool,
    /// What it is called in the trash; none: it is gone for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Until when it can be restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_unix_seconds: Option<u64>,
}

/// How a virtual disk comes out of the trash.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RestoreAsk {
    /// Its name from then on; none: the one that it had.
    pub name: Option<String>,
}
