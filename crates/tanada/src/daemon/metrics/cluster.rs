//! This node's cluster: its meta store, and its stores as they are heard of.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Family, labels};
use super::page::ClusterSnapshot;
use crate::api::cluster::ClusterStore;

/// All of it; nothing without a cluster.
pub(super) fn cluster(
    encoder: &mut DescriptorEncoder<'_>,
    snapshot: &ClusterSnapshot,
) -> Result<(), Error> {
    if let Some(silent) = snapshot.meta_silent_seconds {
        let help = "For how long the meta store of the cluster has not answered; 0: it answers";
        let name = "cluster_meta_silent_seconds";
        Family::of_gauges(encoder, name, help)?.single(silent)?;
    }
    if let Some(level) = &snapshot.level {
        let help = "The level of the cluster: which records its nodes write";
        let mut family = Family::of_gauges(encoder, "cluster_level", help)?;
        family.single(f64::from(level.level))?;
    }
    stores(encoder, &snapshot.stores)
}

fn stores(encoder: &mut DescriptorEncoder<'_>, stores: &[ClusterStore]) -> Result<(), Error> {
    if stores.is_empty() {
        return Ok(());
    }
    let help = "How often a store of another node said unasked how long its queue is";
    let mut heard = Family::of_counters(encoder, "store_states_heard", help)?;
    for store in stores {
        heard.counter(&labels([("store", &store.name)]), store.states_heard)?;
    }
    let help = "Time since it did so last";
    let mut ago = Family::of_gauges(encoder, "store_state_age_seconds", help)?;
    for (store, ms) in stores.iter().filter_map(|it| Some((it, it.heard_ago_ms?))) {
        ago.gauge(&labels([("store", &store.name)]), ms as f64 / 1000.0)?;
    }
    Ok(())
}
