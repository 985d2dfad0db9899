//! The cluster's level over the admin API: raised when all nodes can do a higher one.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;

use super::cluster_thread::ClusterThread;
use super::control::{Answer, Control, body};
use super::level_report::shown;
use crate::api::level::{UpgradeAsk, Upgraded};
use crate::api::refusal::Refusal;

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
