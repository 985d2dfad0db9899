//! The figures of this node's cluster for Prometheus: its virtual disks, and its stores as they are heard of.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::cluster_thread::{ClusterSnapshot, severity};
use super::family::Family;
use crate::api::cluster::{ClusterStore, Disk};

/// All of them; nothing without a cluster.
pub(super) fn cluster(
    encoder: &mut DescriptorEncoder<'_>,
    snapshot: &ClusterSnapshot,
) -> Result<(), Error> {
    if let Some(silent) = snapshot.meta_silent_seconds {
        let help = "For how long the meta store of the cluster has not answered; 0: it answers";
        let name = "cluster_meta_silent_seconds";
        let mut family = Family(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?);
        family.gauge(&Vec::new(), silent)?;
    }
    virtual_disks(encoder, &snapshot.disks)?;
    stores(encoder, &snapshot.stores)
}

fn virtual_disks(encoder: &mut DescriptorEncoder<'_>, disks: &[Disk]) -> Result<(), Error> {
    type Value = fn(&Disk) -> f64;
    let all: [(&str, &str, Value); 5] = [
        (
            "disk_health",
            "A virtual disk: 0 healthy, 1 resyncing, 2 degraded, 3 read-only, 4 offline",
            |disk| severity(&disk.health) as f64,
        ),
        ("disk_size_bytes", "What its clients see", |disk| {
            disk.terms.size_bytes as f64
        }),
        (
            "disk_in_sync_copies_min",
            "In-sync copies that any of its extents may have at least",
            |disk| f64::from(disk.redundancy_floor),
        ),
        ("disk_stores_out", "Stores that miss writes of it", |disk| {
            disk.out.len() as f64
        }),
        (
            "disk_clients",
            "NBD clients of it on this node now",
            |disk| disk.clients as f64,
        ),
    ];
    for (name, help, value) in all.into_iter().filter(|_| !disks.is_empty()) {
        let mut family = Family(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?);
        for disk in disks {
            family.gauge(&vec![("disk", disk.terms.name.as_str())], value(disk))?;
        }
    }
    Ok(())
}

fn stores(encoder: &mut DescriptorEncoder<'_>, stores: &[ClusterStore]) -> Result<(), Error> {
    if stores.is_empty() {
        return Ok(());
    }
    let mut heard = Family(encoder.encode_descriptor(
        "store_states_heard",
        "How often a store of another node said unasked how long its queue is",
        None,
        MetricType::Counter,
    )?);
    for store in stores {
        heard.counter(&vec![("store", store.name.as_str())], store.states_heard)?;
    }
    let mut ago = Family(encoder.encode_descriptor(
        "store_state_age_seconds",
        "Time since it did so last",
        None,
        MetricType::Gauge,
    )?);
    for (store, ms) in stores.iter().filter_map(|it| Some((it, it.heard_ago_ms?))) {
        ago.gauge(&vec![("store", store.name.as_str())], ms as f64 / 1000.0)?;
    }
    Ok(())
}
