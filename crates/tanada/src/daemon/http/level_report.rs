//! The cluster's level as the admin API has it.
//!
//! ```text
//! records of this node -> level in force, the next one, what each node's program can do
//! ```

use vdisk::cluster::level::{self, LevelRange};
use vdisk::cluster::seen::Records;

use crate::api::level::{ClusterLevel, NodeLevels};

/// What nodes can do.
pub(super) fn shown(nodes: &[level::NodeLevels]) -> Vec<NodeLevels> {
    let show = |of: &level::NodeLevels| NodeLevels {
        node: of.node.clone(),
        up: of.is_up,
        level_min: of.levels.map(|it| LevelRange::min(it).0),
        level_max: of.levels.map(|it| LevelRange::max(it).0),
    };
    nodes.iter().map(show).collect()
}

/// The level by these records; `None`: the meta store never said it.
pub(super) fn of_records(records: &Records) -> Option<ClusterLevel> {
    let report = records.levels()?;
    Some(ClusterLevel {
        level: report.level.0,
        next: report.next.map(|it| it.0),
        nodes: shown(&report.nodes),
    })
}
