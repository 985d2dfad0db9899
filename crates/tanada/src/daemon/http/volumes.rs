//! Volumes of both kinds, in one list and by one name.
//!
//! ```text
//! data threads: hybrids  \
//! cluster: virtual disks -> GET /v1/volumes
//! NAME: a hybrid, else a virtual disk      hybrid:NAME, virtual:NAME: that one
//! ```

use std::sync::Arc;

use access::caller::Caller;
use axum::extract::{Path, State};
use axum::{Extension, Json};

use super::cluster::{get_disk, get_disks};
use super::cluster_thread::ClusterThread;
use super::control::{Answer, Control};
use super::names;
use crate::api::refusal::Refusal;
use crate::api::volumes::AnyVolume;

/// The volumes of both kinds, hybrids first.
#[utoipa::path(get, path = "/v1/volumes", responses((status = 200, body = Vec<AnyVolume>)))]
pub(super) async fn get_volumes(
    State(control): State<Arc<Control>>,
    caller: Extension<Caller>,
) -> Answer<Vec<AnyVolume>> {
    let mut hybrids = control.status().await?.volumes;
    names::hide_in_volumes(&caller, &mut hybrids);
    let Json(disks) = get_disks(State(control), caller).await?;
    let hybrids = hybrids.into_iter().map(AnyVolume::from);
    let all = hybrids.chain(disks.into_iter().map(AnyVolume::from));
    Ok(Json(all.collect()))
}

/// One volume, by its name; of two of one name the hybrid, unless `virtual:NAME` is asked for.
#[utoipa::path(get, path = "/v1/volumes/{name}", params(("name" = String, Path)), responses(
    (status = 200, body = AnyVolume),
    (status = 404, body = Refusal),
))]
pub(super) async fn get_volume(
    State(control): State<Arc<Control>>,
    caller: Extension<Caller>,
    Path(name): Path<String>,
) -> Answer<AnyVolume> {
    let hybrid = name.strip_prefix("hybrid:");
    let disk = name.strip_prefix("virtual:");
    if disk.is_none() {
        let wanted = hybrid.unwrap_or(&name);
        let mut volumes = control.status().await?.volumes;
        names::hide_in_volumes(&caller, &mut volumes);
        let found = volumes.into_iter().find(|volume| volume.name == wanted);
        if let Some(found) = found {
            return Ok(Json(found.into()));
        }
    }
    let has_cluster = ClusterThread(&control).has_cluster();
    if hybrid.is_some() || !has_cluster {
        return Err(control.unknown(hybrid.or(disk).unwrap_or(&name)));
    }
    let wanted = disk.unwrap_or(&name).to_owned();
    let Json(found) = get_disk(State(control), caller, Path(wanted)).await?;
    Ok(Json(found.into()))
}
