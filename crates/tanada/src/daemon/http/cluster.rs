//! Virtual disks over the admin API: made, looked at, cloned; and the stores they are kept in.
//!
//! ```text
//! request -> command to the thread of this node's cluster -> vdisk::cluster -> JSON
//! ```

use std::sync::Arc;

use access::caller::Caller;
use access::role::Action;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use base::Nanos;
use config::export;
use vdisk::StoreNumber;
use vdisk::cluster::ClusterError;
use vdisk::cluster::stores::{NewStore, StoreState};
use vdisk::cluster::volumes::NewVolume;

use super::cluster_thread::{ClusterThread, disks, silent_seconds, store, stores_of};
use super::control;
use super::control::{Answer, Control, Failure, body, unprocessable};
use super::disk_terms::{called, check_holder, fairness, on_meta_loss};
use super::{jobs, level_report, names};
use crate::api::cluster::{
    Called, ClusterStore, Disk, DiskChange, Done, Here, NewDisk, RemoveAsk, StoreAsk, StoreChange,
    TakeOverAsk,
};
use crate::api::refusal::Refusal;
use crate::daemon::common::address::from_anywhere;
use crate::daemon::jobs::{Kind, Work};

/// Clients that sent nothing for so long are idle.
const IDLE_SECONDS: u64 = 30;

const DONE: Json<Done> = Json(Done { done: true });

// --- volumes ------------------------------------------------------------------------------------------

/// The virtual disks of the cluster.
#[utoipa::path(get, path = "/v1/cluster/volumes", responses((status = 200, body = Vec<Disk>)))]
pub async fn get_disks(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
) -> Answer<Vec<Disk>> {
    if !ClusterThread(&control).has_cluster() {
        return Ok(Json(Vec::new()));
    }
    let found = ClusterThread(&control).at_cluster(async |open| disks(&open).await);
    let mut found = found.await?;
    for disk in &mut found {
        names::hide_in_disk(&caller, disk);
    }
    Ok(Json(found))
}

/// Makes a volume with nothing in it.
#[utoipa::path(post, path = "/v1/cluster/volumes", request_body = NewDisk, responses(
    (status = 200, body = Disk),
    (status = 409, description = "The name is taken", body = Refusal),
    (status = 422, description = "A size, or a number of copies, that cannot be", body = Refusal),
))]
pub async fn create_disk(
    State(control): State<Arc<Control>>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<Disk> {
    let ask: NewDisk = body(
        &headers,
        &text,
        r#"{"name": "vm1", "size_bytes": 10737418240}"#,
    )?;
    let class = ask.priority.as_deref().map(export::priority).transpose();
    check_holder(ask.holder.as_ref())?;
    let new = NewVolume {
        name: called(&ask.name)?,
        size: ask.size_bytes,
        copies: ask.copies,
        min_isr: ask.min_copies,
        priority: class
            .map_err(|why| unprocessable(why, "leave it out for normal"))?
            .unwrap_or_default(),
        fairness: ask.fairness.map(fairness).transpose()?,
        holder: ask.holder,
        on_meta_loss: on_meta_loss(ask.on_meta_loss.as_deref())?.unwrap_or_default(),
    };
    let made = ClusterThread(&control)
        .answer_disk(async move |cluster| cluster.volumes.create(&new).await);
    made.await
}

/// One virtual disk.
#[utoipa::path(get, path = "/v1/cluster/volumes/{name}", params(("name" = String, Path)), responses(
    (status = 200, body = Disk), (status = 404, body = Refusal),
))]
pub async fn get_disk(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Answer<Disk> {
    let name = called(&name)?;
    let found = ClusterThread(&control).answer_disk(async move |cluster| {
        let all = cluster.view.seen().await?;
        let known = all.iter().map(|it| it.record.name.clone()).collect();
        let found = all.into_iter().find(|it| it.record.name == name);
        found.ok_or(ClusterError::NoVolume { name, known })
    });
    let Json(mut found) = found.await?;
    names::hide_in_disk(&caller, &mut found);
    Ok(Json(found))
}

/// Takes a volume over from another node whose clients of it are idle or gone, and keeps it open here for a minute.
#[utoipa::path(post, path = "/v1/cluster/volumes/{name}/takeover", params(("name" = String, Path)),
    request_body = TakeOverAsk, responses(
    (status = 200, description = "It is open here", body = Disk),
    (status = 404, body = Refusal),
    (status = 409, description = "Its clients there are not idle, or it cannot be opened here", body = Refusal),
))]
pub async fn take_over(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<Disk> {
    let ask: TakeOverAsk = body(&headers, &text, r#"{"idle_seconds": 30}"#)?;
    let name = called(&name)?;
    let idle = Nanos::secs(ask.idle_seconds.unwrap_or(IDLE_SECONDS).clamp(5, 24 * 3600));
    let taken = ClusterThread(&control).answer_disk(async move |cluster| {
        cluster.openings.take_over(&name, idle).await?;
        cluster.view.overview(&name).await
    });
    taken.await
}

/// Gives a volume another size, another name, or other settings, which are in force at once.
#[utoipa::path(patch, path = "/v1/cluster/volumes/{name}", params(("name" = String, Path)),
    request_body = DiskChange, responses(
    (status = 200, description = "The volume as it is now", body = Disk),
    (status = 404, body = Refusal),
    (status = 409, description = "It is in use", body = Refusal),
    (status = 422, description = "A setting that cannot be, or it would become smaller, and the request does not say that it may", body = Refusal),
))]
pub async fn change_disk(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<Disk> {
    let ask: DiskChange = body(&headers, &text, r#"{"size_bytes": 10737418240}"#)?;
    if ask.shrink {
        caller.check(Action::Destroy, None)?;
    }
    let mut name = called(&name)?;
    let new = ask.name.as_deref().map(called).transpose()?;
    let setting = ask.setting()?;
    if !setting.is_empty() {
        let (name, caps) = (name.clone(), setting.caps);
        let checked = ClusterThread(&control).at_cluster(async move |open| {
            let reservations = &open.reservations;
            reservations.check_caps(&open.cluster, &name, &caps).await
        });
        checked.await?;
    }
    let changed = ClusterThread(&control).answer_disk(async move |cluster| {
        if !setting.is_empty() {
            cluster.volumes.set(&name, &setting).await?;
        }
        if let Some(size) = ask.size_bytes {
            cluster.volumes.resize(&name, size, ask.shrink).await?;
        }
        if let Some(new) = new {
            cluster.volumes.rename(&name, &new).await?;
            name = new;
        }
        cluster.view.overview(&name).await
    });
    changed.await
}

/// Keeps a volume as it is now under a name; it may be in use on this node.
#[utoipa::path(post, path = "/v1/cluster/volumes/{name}/snapshots", params(("name" = String, Path)),
    request_body = Called, responses(
    (status = 200, description = "The volume as it is now", body = Disk),
    (status = 404, body = Refusal),
    (status = 409, description = "The name is taken, or the volume cannot be opened here", body = Refusal),
))]
pub async fn take_snapshot(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<Disk> {
    let ask: Called = body(&headers, &text, r#"{"name": "monday"}"#)?;
    let (name, snapshot) = (called(&name)?, called(&ask.name)?);
    let taken = ClusterThread(&control)
        .answer_disk(async move |cluster| cluster.volumes.snapshot(&name, &snapshot).await);
    taken.await
}

/// Makes a volume that begins as a snapshot is.
#[utoipa::path(post, path = "/v1/cluster/volumes/{name}/snapshots/{snapshot}/clone",
    params(("name" = String, Path), ("snapshot" = String, Path)), request_body = Called, responses(
    (status = 200, body = Disk),
    (status = 404, body = Refusal),
    (status = 409, description = "The name is taken", body = Refusal),
))]
pub async fn clone_snapshot(
    State(control): State<Arc<Control>>,
    Path((name, snapshot)): Path<(String, String)>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<Disk> {
    let ask: Called = body(&headers, &text, r#"{"name": "vm2"}"#)?;
    let (name, snapshot, new) = (called(&name)?, called(&snapshot)?, called(&ask.name)?);
    let cloned = ClusterThread(&control).answer_disk(async move |cluster| {
        cluster.volumes.clone_volume(&name, &snapshot, &new).await
    });
    cloned.await
}

/// Lets a volume that no client uses go on from one of its snapshots.
#[utoipa::path(post, path = "/v1/cluster/volumes/{name}/snapshots/{snapshot}/rollback",
    params(("name" = String, Path), ("snapshot" = String, Path)), responses(
    (status = 200, body = Disk),
    (status = 404, body = Refusal),
    (status = 409, description = "It is in use", body = Refusal),
))]
pub async fn roll_back(
    State(control): State<Arc<Control>>,
    Path((name, snapshot)): Path<(String, String)>,
) -> Answer<Disk> {
    let (name, snapshot) = (called(&name)?, called(&snapshot)?);
    let back = ClusterThread(&control)
        .answer_disk(async move |cluster| cluster.volumes.rollback(&name, &snapshot).await);
    back.await
}

/// Deletes a snapshot; what only it has is freed by and by.
#[utoipa::path(delete, path = "/v1/cluster/volumes/{name}/snapshots/{snapshot}",
    params(("name" = String, Path), ("snapshot" = String, Path)), responses(
    (status = 200, body = Done), (status = 404, body = Refusal),
))]
pub async fn remove_snapshot(
    State(control): State<Arc<Control>>,
    Path((name, snapshot)): Path<(String, String)>,
) -> Answer<Done> {
    let (name, snapshot) = (called(&name)?, called(&snapshot)?);
    let removed = ClusterThread(&control)
        .at_cluster(async move |open| open.cluster.volumes.remove_snapshot(&name, &snapshot).await);
    removed.await.map(|()| DONE)
}

// --- nodes and stores ---------------------------------------------------------------------------------

/// This node, and the stores of the cluster.
#[utoipa::path(get, path = "/v1/cluster", responses(
    (status = 200, body = Here),
    (status = 404, description = "No cluster is configured", body = Refusal),
))]
pub async fn get_cluster(State(control): State<Arc<Control>>) -> Answer<Here> {
    let here = ClusterThread(&control).at_cluster(async |open| {
        let seen = open.cluster.view.seen_records().await?;
        Ok(Here {
            node: open.config.node.clone(),
            meta: open.config.meta.describe(),
            nbd: open.addresses().iter().map(from_anywhere).collect(),
            tls: open.config.tls.is_some(),
            announce: open.config.announce.as_ref().map(|it| it.describe()),
            replica_choice: open.config.replica_choice.to_string(),
            deaf: open.deaf(),
            warning: open.warning(),
            unregistered: open
                .unregistered()
                .into_iter()
                .map(|(name, why)| format!("{name}: {why}"))
                .collect(),
            level: level_report::of_records(&seen),
            stores: stores_of(&open, &seen),
            meta_silent_seconds: silent_seconds(&open),
        })
    });
    here.await.map(Json)
}

/// Registers a store of a node that does so not by itself. It is asked for its identity, so it must answer.
#[utoipa::path(post, path = "/v1/cluster/stores", request_body = StoreAsk, responses(
    (status = 200, body = ClusterStore),
    (status = 409, description = "The name or number is taken, or it does not answer", body = Refusal),
))]
pub async fn add_store(
    State(control): State<Arc<Control>>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<ClusterStore> {
    let example = r#"{"name": "s9", "node": "n9", "address": "10.0.0.9:10881"}"#;
    let ask: StoreAsk = body(&headers, &text, example)?;
    let (name, node) = (called(&ask.name)?, called(&ask.node)?);
    let domain = ask.domain.as_deref().map(called).transpose()?;
    let address = ask.address.parse::<env::net::Address>();
    let address = address.map_err(|why| unprocessable(why.to_string(), "name where it listens"))?;
    let (to, of) = (address.clone(), node.clone());
    let asked =
        ClusterThread(&control).at_cluster(async move |open| Ok(open.identity(&to, &of).await));
    let uuid = asked.await?.map_err(|why| {
        let error = format!("cannot register store {}: {why}", ask.name);
        let todo = "let it run, with the cluster's key as its node_key_file, and ask again";
        Failure::new(StatusCode::CONFLICT, error, todo)
    })?;
    let new = NewStore {
        domain: domain.unwrap_or_else(|| node.clone()),
        name,
        uuid,
        node,
        address: ask.address,
        rotating: ask.rotating,
        leased: false,
        number: ask.number.map(StoreNumber),
    };
    let added = ClusterThread(&control).at_cluster(async move |open| {
        let record = open.cluster.stores.register(&new).await?;
        Ok(store(&record, None, None))
    });
    added.await.map(Json)
}

/// Lets no new data go to a store, and what is there leave (`draining`); or lets new data go there again (`active`).
#[utoipa::path(patch, path = "/v1/cluster/stores/{name}", params(("name" = String, Path)),
    request_body = StoreChange, responses(
    (status = 200, body = ClusterStore), (status = 404, body = Refusal),
    (status = 422, description = "Volumes could not be written any more", body = Refusal),
))]
pub async fn change_store(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<ClusterStore> {
    let ask: StoreChange = body(&headers, &text, r#"{"state": "draining"}"#)?;
    let name = called(&name)?;
    let state = match ask.state.as_str() {
        "active" => StoreState::Active,
        "draining" => StoreState::Draining,
        other => {
            let error = format!("'{other}' is no state of a store");
            return Err(unprocessable(error, "write active or draining"));
        }
    };
    let changed = ClusterThread(&control);
    let work = Work::new(Kind::Drain, name.as_str());
    let changed = changed.at_cluster(async move |open| {
        let record = open.cluster.membership.set_state(&name, state).await?;
        Ok(store(&record, None, None))
    });
    if state == StoreState::Active {
        return changed.await.map(Json);
    }
    let (begun, job) = jobs::begin(&control, work, &caller, changed).await?;
    let job = Some(job);
    Ok(Json(ClusterStore { job, ..begun }))
}

/// Forgets a store that was drained and has nothing, or, with `lost`, one that is gone for good.
#[utoipa::path(delete, path = "/v1/cluster/stores/{name}", params(("name" = String, Path), RemoveAsk),
    responses((status = 200, body = Done), (status = 404, body = Refusal), (status = 409, body = Refusal)))]
pub async fn remove_store(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
    query: Result<Query<RemoveAsk>, QueryRejection>,
) -> Answer<Done> {
    let name = called(&name)?;
    let ask = control::query(query, "the key is lost=true")?;
    let removed = ClusterThread(&control)
        .at_cluster(async move |open| open.cluster.membership.remove(&name, ask.lost).await);
    removed.await.map(|()| DONE)
}
