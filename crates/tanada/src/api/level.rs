//! The cluster's level, and what the programs of its nodes can do.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the program of a node can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeLevels {
    pub node: String,
    pub up: bool,
    /// The lowest and the highest level; none: it is down, and no record has it.
    pub level_min: Option<u32>,
    pub level_max: Option<u32>,
}

/// Which records, disk formats and messages the nodes of a cluster write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterLevel {
    /// In force.
    pub level: u32,
    /// All nodes can do this one, too; none: it cannot be raised now.
    pub next: Option<u32>,
    /// Every node that is up or has stores, by its name.
    pub nodes: Vec<NodeLevels>,
}

/// A raise of the cluster's level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpgradeAsk {
    /// Only say what it would be.
    pub dry_run: bool,
}

/// A raise that was done, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Upgraded {
    /// The level before.
    pub from: u32,
    /// And now; the same: the nodes can do no higher one.
    pub to: u32,
    /// Nothing was changed.
    pub dry_run: bool,
    /// What its nodes can do.
    pub nodes: Vec<NodeLevels>,
}
