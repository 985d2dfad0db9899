//! The cluster's level over the admin API: raised when all nodes can do a higher one.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use vdisk::cluster::level::{self, LevelRange};
use vdisk::cluster::seen::Records;

use super::cluster_thread::ClusterThread;
use super::control::{Answer, Control, body};
use crate::api::level::{ClusterLevel, NodeLevels, UpgradeAsk, Upgraded};
use crate::api::refusal::Refusal;

fn shown(nodes: &[level::NodeLevels]) -> Vec<NodeLevels> {
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

/// Raises the cluster's level to the highest that all its nodes can do. There is no way back: programs that cannot do it take
/// no part from then on.
#[utoipa::path(post, path = "/v1/cluster/upgrade", request_body = UpgradeAsk, responses(
    (status = 200, body = Upgraded),
    (status = 404, description = "No cluster is configured", body = Refusal),
    (status = 409, description = "Some nodes can do a higher level, and others cannot", body = Refusal),
))]
pub async fn upgrade_cluster(
    State(control): State<Arc<Control>>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<Upgraded> {
    let ask: UpgradeAsk = body(&headers, &text, r#"{"dry_run": true}"#)?;
    let done = ClusterThread(&control)
        .at_cluster(async move |open| open.cluster.upgrade.run(ask.dry_run).await);
    let done = done.await?;
    Ok(Json(Upgraded {
        from: done.from.0,
        to: done.to.0,
        dry_run: ask.dry_run,
        nodes: shown(&done.nodes),
    }))
}
