//! A virtual disk is made whole, as far as it can be, while an operator waits.

use std::sync::Arc;

use access::caller::Caller;
use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use base::Nanos;
use vdisk::cluster::ClusterError;
use vdisk::cluster::overview::condition_name;
use vdisk::record::Name;

use super::cluster_thread::{ClusterThread, disk};
use super::control::{Control, Failure, body};
use super::disk_terms::called;
use super::jobs::{Answering, begin_ask};
use crate::api::cluster::{Disk, RepairAsk, Repaired};
use crate::api::job::{BeginAsk, Job};
use crate::api::refusal::Refusal;
use crate::daemon::common::repair_text::{damage, loss};
use crate::daemon::jobs::{Kind, Work};
use crate::daemon::thread::cluster::OpenCluster;

/// Opens a volume, waits until its copies are equal and complete, and looks whether all are there. Answers when done, or with
/// `wait=false` at once.
#[utoipa::path(post, path = "/v1/cluster/volumes/{name}/repair", params(("name" = String, Path), BeginAsk),
    request_body = RepairAsk, responses(
    (status = 200, body = Repaired),
    (status = 202, description = "It goes on as a job, whose result is as that", body = Job),
    (status = 404, body = Refusal),
    (status = 409, description = "It cannot be opened here, or is being repaired already", body = Refusal),
))]
pub(super) async fn repair_disk(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    query: Result<Query<BeginAsk>, QueryRejection>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Result<Response, Failure> {
    let how = begin_ask(query)?;
    let ask: RepairAsk = body(&headers, &text, r#"{"free": true}"#)?;
    let name = called(&name)?;
    let work = Work::new(Kind::Repair, name.as_str());
    let begun = Answering::begin(&control, work, &caller, async move |control| {
        let repaired = ClusterThread(&control);
        let repaired = repaired.at_cluster(async move |open| repair(&open, &name, ask).await);
        repaired.await
    });
    begun?.answer(how).await
}

async fn repair(open: &OpenCluster, name: &Name, ask: RepairAsk) -> Result<Repaired, ClusterError> {
    let timeout = ask.timeout_seconds;
    let timeout = timeout.map(|it| Nanos::secs(it.min(24 * 3600)));
    let found = open.cluster.repairs.repair(name, timeout, ask.free).await?;
    let now = open.cluster.view.overview(name).await?;
    let label = |store| open.cluster.stores.label(store);
    let volume = Disk {
        health: condition_name(found.health.condition).to_owned(),
        why: found.health.why.clone(),
        ..disk(open, &now)
    };
    let left = found.damage.left.iter();
    let losses = found.losses.iter();
    Ok(Repaired {
        volume,
        reconciled_extents: found.counters.reconciled,
        resynced_extents: found.counters.resynced,
        repaired_copies: found.counters.read_repairs,
        repaired_bytes: found.counters.repaired_bytes,
        damage_left: left.map(|it| damage(it, &label(it.store))).collect(),
        damage_left_more: found.damage.beyond(),
        missing_copies: found.missing_copies,
        losses: losses.map(|it| loss(it, &label(it.store))).collect(),
        unknown_stores: found.unknown.iter().map(|it| it.0).collect(),
        unknown_store_names: found.unknown.iter().map(|it| label(*it)).collect(),
        leaked_copies: found.leaks as u64,
        freed: ask.free,
    })
}
