//! This node's cluster on its thread: how it is asked, and what of it the API shows.

use std::rc::Rc;

use axum::Json;
use axum::http::StatusCode;
use config::export;
use policy::share::cap::Caps;
use tokio::sync::oneshot;
use vdisk::cluster::heard::Heard;
use vdisk::cluster::overview::{Overview, Use, condition_name};
use vdisk::cluster::seen::Records;
use vdisk::cluster::stores::{StoreRecord, StoreState};
use vdisk::cluster::{Cluster, ClusterError};
use vdisk::image::records::ImagesError;
use vdisk::image::tree::ImageError;
use vdisk::meta::MetaError;
use vdisk::record::{Fairness, Name, VolumeRecord};
use vdisk::volume::Volume;
use vdisk::{StoreNumber, cluster};

use super::control::{Answer, Control, Failure, gone};
use super::level_report;
use crate::api;
use crate::api::cluster::DiskTerms;
use crate::api::cluster::{ClusterStore, Disk, Out, Resync, Snapshot};
use crate::daemon::common::address::nbd_uri;
use crate::daemon::metrics::page::ClusterSnapshot;
use crate::daemon::thread::caps;
use crate::daemon::thread::cluster::OpenCluster;
use crate::daemon::thread::command::Command;

pub(super) fn failure(error: &ClusterError) -> Failure {
    let status = match error {
        ClusterError::NoVolume { .. }
        | ClusterError::NoSnapshot { .. }
        | ClusterError::NotInTrash { .. }
        | ClusterError::NoStore { .. } => StatusCode::NOT_FOUND,
        ClusterError::Images(ImagesError::Image(
            ImageError::Size { .. } | ImageError::Copies { .. },
        ))
        | ClusterError::Shrinks { .. }
        | ClusterError::MinCopies { .. }
        | ClusterError::Cap { .. }
        | ClusterError::TrashName(_)
        | ClusterError::TooFewDomains { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        ClusterError::Meta(MetaError::Unavailable { .. } | MetaError::Unknown { .. })
        | ClusterError::Unheard { .. }
        | ClusterError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        ClusterError::Record(_) | ClusterError::Meta(_) => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::CONFLICT,
    };
    let todo = "`tanada volume list` and `tanada node list` show what there is";
    Failure::of_sentence(status, &error.to_string(), todo)
}

/// As [`failure`], on a daemon that has these hybrids besides.
fn failure_beside(error: &ClusterError, hybrids: &[String]) -> Failure {
    let ClusterError::NoVolume { name, known } = error else {
        return failure(error);
    };
    if hybrids.iter().any(|it| it == name.as_str()) {
        let error = format!("{name} is hybrid, and this is of virtual disks");
        let todo = "hybrids are made by the configuration; `tanada volume list` shows which volume is what";
        return Failure::new(StatusCode::NOT_FOUND, error, todo);
    }
    let hybrids = hybrids.iter().filter_map(|it| it.parse::<Name>().ok());
    let hybrids = hybrids.filter(|it| !known.contains(it));
    failure(&ClusterError::NoVolume {
        name: name.clone(),
        known: known.iter().cloned().chain(hybrids).collect(),
    })
}

/// This node's cluster, where the daemon takes part in one.
#[derive(Clone, Copy)]
pub struct ClusterThread<'a>(pub &'a Control);

impl ClusterThread<'_> {
    /// Does this daemon take part in a cluster?
    pub fn has_cluster(self) -> bool {
        self.0.threads.iter().any(|thread| thread.has.cluster)
    }

    /// Has `work` done with this node's cluster, on the thread it lives on.
    pub(super) async fn at_cluster<T: Send + 'static>(
        self,
        work: impl AsyncFnOnce(Rc<OpenCluster>) -> Result<T, ClusterError> + Send + 'static,
    ) -> Result<T, Failure> {
        let hybrids = self.0.hybrids();
        let done = self.at_open(async move |open| {
            let done = work(open).await;
            done.map_err(|error| failure_beside(&error, &hybrids))
        });
        done.await?
    }

    /// Has `work` done on the thread of this node's cluster.
    pub(super) async fn at_open<T: Send + 'static>(
        self,
        work: impl AsyncFnOnce(Rc<OpenCluster>) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let Some(it) = self.0.threads.iter().find(|it| it.has.cluster) else {
            return Err(Failure::new(
                StatusCode::NOT_FOUND,
                "this daemon is in no cluster: its configuration has no [cluster]",
                "add one; docs/virtual-disks.md begins with an example",
            ));
        };
        let (reply, answer) = oneshot::channel();
        let job = move |open: Rc<OpenCluster>| {
            env::spawn(async move {
                // The client may be gone; what was asked is done all the same.
                let _ = reply.send(work(open).await);
            });
        };
        it.post(Command::Cluster(Box::new(job)))
            .map_err(|_| gone(it))?;
        answer.await.map_err(|_| gone(it))
    }

    /// Has something done that ends with a volume; answers that.
    pub(super) async fn answer_disk(
        self,
        work: impl AsyncFnOnce(&Cluster) -> Result<Overview, ClusterError> + Send + 'static,
    ) -> Answer<Disk> {
        let done = self.at_cluster(async move |open| {
            let now = work(&open.cluster).await?;
            Ok(disk(&open, &now))
        });
        done.await.map(Json)
    }

    /// What metrics are made of; nothing without a cluster.
    pub(super) async fn snapshot(self) -> Result<ClusterSnapshot, Failure> {
        if !self.has_cluster() {
            return Ok(ClusterSnapshot::default());
        }
        self.at_cluster(async |open| {
            let (all, records) = open.cluster.view.seen_all().await?;
            Ok(ClusterSnapshot {
                disks: all.iter().map(|it| disk(&open, it)).collect(),
                stores: stores_of(&open, &records),
                in_trash: records.in_trash(),
                level: level_report::of_records(&records),
                meta_silent_seconds: Some(silent_seconds(&open).unwrap_or(0.0)),
            })
        })
        .await
    }
}

pub(super) fn silent_seconds(open: &OpenCluster) -> Option<f64> {
    let silent = open.cluster.view.meta_silent();
    silent.map(|it| it.0 as f64 / 1e9)
}

pub(super) async fn disks(open: &OpenCluster) -> Result<Vec<Disk>, ClusterError> {
    let all = open.cluster.view.seen().await?;
    Ok(all.iter().map(|it| disk(open, it)).collect())
}

pub(super) fn disk(open: &OpenCluster, of: &Overview) -> Disk {
    let record = &of.record;
    let name = record.name.to_string();
    let open_on = match &of.used {
        Use::Closed => None,
        Use::Here(_) => Some(open.config.node.clone()),
        Use::Node(node) => Some(node.clone()),
    };
    let snapshot = |it: &cluster::overview::Snapshot| Snapshot {
        name: it.name.to_string(),
        size_bytes: it.size,
        clones: it.clones.iter().map(Name::to_string).collect(),
    };
    let tls = open.config.tls.is_some();
    let uri = |address: &env::net::Address| nbd_uri(address, &name, tls);
    let here = open.cluster.openings.volume(record.id);
    let exported = open.exports_of(&record.name).flat_map(|it| it.uris());
    Disk {
        terms: DiskTerms {
            name: name.clone(),
            kind: "virtual".to_owned(),
            id: record.id.to_string(),
            size_bytes: of.size,
            copies: record.copies,
            min_copies: record.terms.min_isr,
            priority: export::priority_name(record.terms.priority).to_owned(),
            fairness: record.terms.fairness.map(Fairness::as_f64),
            holder: record.terms.reservation.clone(),
            on_meta_loss: record.terms.on_meta_loss.as_str().to_owned(),
            caps: caps_of(open, record),
        },
        health: condition_name(of.health.condition).to_owned(),
        why: of.health.why.clone(),
        open_on,
        clients: open.clients(&record.name),
        from: of.from.clone(),
        snapshots: of.snapshots.iter().map(snapshot).collect(),
        out: record
            .out
            .iter()
            .map(|(store, since)| Out {
                store: store.0,
                name: open.cluster.stores.label(*store),
                since_generation: since.0,
            })
            .collect(),
        redundancy_floor: record.redundancy_floor,
        generation: record.generation.0,
        epoch: record.epoch.0,
        nbd: (open.addresses().iter().map(uri)).chain(exported).collect(),
        figures: here.as_ref().map(|volume| volume.requests().into()),
        resync: here.as_deref().map(resync),
    }
}

fn resync(volume: &Volume) -> Resync {
    Resync {
        left_bytes: volume.copies_left().0,
        copied_bytes: volume.counters().copied_bytes,
    }
}

/// What a volume's clients get at most, with figures where it is open here.
fn caps_of(open: &OpenCluster, record: &VolumeRecord) -> Option<api::caps::Caps> {
    let set = Caps::from(record.terms.caps);
    let here = open.cluster.openings.throttle(record.id);
    let here = here.and_then(|throttle| caps::shown(&throttle));
    here.or((!set.is_none()).then(|| caps::set(set)))
}

pub(super) fn store(record: &StoreRecord, up: Option<bool>, heard: Option<Heard>) -> ClusterStore {
    ClusterStore {
        states_heard: heard.map_or(0, |it| it.states),
        heard_ago_ms: heard.map(|it| env::now().since(it.last).0 / 1_000_000),
        name: record.name.to_string(),
        number: record.number.0,
        node: record.node.to_string(),
        node_up: up,
        address: record.address.clone(),
        domain: record.domain.to_string(),
        rotating: record.rotating,
        state: match record.state {
            StoreState::Active => "active",
            StoreState::Draining => "draining",
        }
        .to_owned(),
        uuid: record.uuid.clone(),
        volumes_left: None,
        extents_left_here: 0,
        job: None,
    }
}

pub(super) fn stores_of(open: &OpenCluster, seen: &Records) -> Vec<ClusterStore> {
    let records = seen.stores.values().map(|(record, _)| record);
    let drained = records
        .clone()
        .filter(|it| it.state == StoreState::Draining);
    let drained: Vec<StoreNumber> = drained.map(|record| record.number).collect();
    let progress = open.cluster.view.progress_of(seen, &drained);
    let of = |record: &StoreRecord| {
        let up = seen.up.serves(record).filter(|_| seen.silent.is_none());
        let all = drained.iter().zip(&progress);
        let left = all
            .into_iter()
            .find(|(number, _)| **number == record.number);
        ClusterStore {
            volumes_left: left.map(|(_, it)| it.volumes.iter().map(Name::to_string).collect()),
            extents_left_here: left.map_or(0, |(_, it)| it.here.extents),
            ..store(record, up, open.cluster.reports.heard_of(record.number))
        }
    };
    records.map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_no_virtual_disk_is_answered_with_all_volumes() {
        let hybrids = ["vol0".to_owned()];
        let of = |name: &str| {
            let error = ClusterError::NoVolume {
                name: name.parse().unwrap(),
                known: vec!["vm1".parse().unwrap()],
            };
            failure_beside(&error, &hybrids)
        };
        let unknown = of("none");
        assert_eq!(unknown.status, StatusCode::NOT_FOUND);
        assert_eq!(unknown.refusal.error, "there is no volume none");
        assert_eq!(unknown.refusal.what_to_do, "there are vm1, vol0");
        let hybrid = of("vol0");
        assert_eq!(hybrid.status, StatusCode::NOT_FOUND);
        assert!(hybrid.refusal.error.starts_with("vol0 is hybrid"));
    }
}
