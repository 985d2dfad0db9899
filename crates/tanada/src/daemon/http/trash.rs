//! Virtual disks go into the trash and come out of it, over the admin API.
//!
//! ```text
//! DELETE a volume -> the trash | now=true: for good     trash: listed, restored, deleted for good
//! ```

use std::sync::Arc;

use access::caller::Caller;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::{Extension, Json};
use vdisk::cluster::overview::condition_name;
use vdisk::cluster::trash::InTrash;
use vdisk::trash::name_in_trash;

use super::cluster_thread::ClusterThread;
use super::control::{self, Answer, Control, body};
use super::disk_terms::called;
use super::names;
use crate::api::cluster::{Disk, Done};
use crate::api::refusal::Refusal;
use crate::api::trash::{DeleteAsk, Deleted, DeletedVolume, RestoreAsk};

/// Of a moment in milliseconds; one that is not known, or never comes, is none.
fn seconds(ms: u64) -> Option<u64> {
    (ms != 0 && ms != u64::MAX).then_some(ms / 1000)
}

fn shown(it: &InTrash) -> DeletedVolume {
    let (record, volume) = (&it.record, &it.volume);
    DeletedVolume {
        name: record.name.to_string(),
        id: it.id().to_string(),
        size_bytes: volume.size,
        snapshots: volume.snapshots.len() as u64,
        health: condition_name(volume.health.condition).to_owned(),
        why: volume.health.why.clone(),
        deleted_unix_seconds: seconds(record.deleted_ms),
        deleted_by: record.by.clone(),
        ends_unix_seconds: seconds(record.ends_ms),
        deleting: record.deleting,
    }
}

/// Puts a volume that no client uses into the trash, with its snapshots: its name is free, and for 7 days it can be restored. With
/// `now` it is deleted for good at once, if it has no snapshots; its room is freed by and by.
#[utoipa::path(delete, path = "/v1/cluster/volumes/{name}", params(("name" = String, Path), DeleteAsk), responses(
    (status = 200, body = Deleted),
    (status = 404, body = Refusal),
    (status = 409, description = "It is in use, or has snapshots", body = Refusal),
))]
pub async fn remove_disk(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    query: Result<Query<DeleteAsk>, QueryRejection>,
) -> Answer<Deleted> {
    let name = called(&name)?;
    let ask = control::query(query, "the key is now=true")?;
    let account = caller.account.as_ref();
    let by = account.map_or_else(|| caller.to_string(), |account| account.to_string());
    let removed = ClusterThread(&control).at_cluster(async move |open| {
        if ask.now {
            open.cluster.volumes.remove(&name).await?;
            return Ok(None);
        }
        open.cluster.trash.put(&name, Some(by)).await.map(Some)
    });
    let record = removed.await?;
    Ok(Json(Deleted {
        done: true,
        id: record
            .as_ref()
            .map(|it| name_in_trash(it.volume).to_string()),
        ends_unix_seconds: record.and_then(|it| seconds(it.ends_ms)),
    }))
}

/// Deleted virtual disks that can still be restored; what was deleted last comes last.
#[utoipa::path(get, path = "/v1/cluster/trash", responses((status = 200, body = Vec<DeletedVolume>)))]
pub async fn get_trash(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
) -> Answer<Vec<DeletedVolume>> {
    if !ClusterThread(&control).has_cluster() {
        return Ok(Json(Vec::new()));
    }
    let found = ClusterThread(&control).at_cluster(async |open| {
        let all = open.cluster.trash.list().await?;
        Ok(all.iter().map(shown).collect::<Vec<_>>())
    });
    let mut found = found.await?;
    for volume in &mut found {
        names::hide_in_trash(&caller, volume);
    }
    Ok(Json(found))
}

/// Takes a virtual disk out of the trash, under the name that it had or another one. `name` is that name, or its id.
#[utoipa::path(post, path = "/v1/cluster/trash/{name}/restore", params(("name" = String, Path)),
    request_body = RestoreAsk, responses(
    (status = 200, description = "The volume as it is now", body = Disk),
    (status = 404, body = Refusal),
    (status = 409, description = "The name is taken, several volumes had it, or it is being deleted", body = Refusal),
))]
pub async fn restore(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<Disk> {
    let ask: RestoreAsk = body(&headers, &text, r#"{"name": "vm2"}"#)?;
    let which = called(&name)?;
    let new = ask.name.as_deref().map(called).transpose()?;
    let restored = ClusterThread(&control)
        .answer_disk(async move |cluster| cluster.trash.restore(&which, new.as_ref()).await);
    restored.await
}

/// Deletes a virtual disk in the trash for good, with its snapshots; its room is freed by and by.
#[utoipa::path(delete, path = "/v1/cluster/trash/{name}", params(("name" = String, Path)), responses(
    (status = 200, body = Done),
    (status = 404, body = Refusal),
    (status = 409, description = "Several volumes had that name", body = Refusal),
))]
pub async fn delete_for_good(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
) -> Answer<Done> {
    let which = called(&name)?;
    let gone = ClusterThread(&control)
        .at_cluster(async move |open| open.cluster.trash.delete(&which).await);
    gone.await.map(|()| Json(Done { done: true }))
}
