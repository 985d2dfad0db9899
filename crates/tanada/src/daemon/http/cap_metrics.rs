//! What waited for caps of exports, hybrids and virtual disks, for Prometheus.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::cluster_thread::ClusterSnapshot;
use super::family::{Family, Labels, Row, counters, gauges};
use crate::api::caps::{Caps, Passed};
use crate::api::status::Status;

const GAUGES: [Row<Passed, f64>; 1] = [("waiting", "Requests that wait for a cap now", |p| {
    p.waiting as f64
})];

const COUNTERS: [Row<Passed, u64>; 3] = [
    ("requests", "Requests that passed under a cap", |p| {
        p.requests
    }),
    ("bytes", "Bytes that passed under a cap", |p| p.bytes),
    ("waited", "Requests that had to wait for a cap", |p| {
        p.waited
    }),
];

/// Everything here that has a cap.
pub(super) fn caps(
    encoder: &mut DescriptorEncoder<'_>,
    status: &Status,
    cluster: &ClusterSnapshot,
) -> Result<(), Error> {
    let exports = status.exports.iter();
    let exports = exports.map(|it| ("export", it.name.as_str(), it.terms.caps.as_ref()));
    let volumes = status.volumes.iter();
    let volumes = volumes.map(|it| ("volume", it.name.as_str(), it.caps.as_ref()));
    let disks = cluster.disks.iter();
    let disks = disks.map(|it| ("disk", it.terms.name.as_str(), it.terms.caps.as_ref()));
    let mut all: Vec<(Labels<'_>, &Passed)> = Vec::new();
    for (kind, name, caps) in exports.chain(volumes).chain(disks) {
        for (direction, passed) in caps.into_iter().flat_map(passed) {
            let labels = vec![("of", kind), ("name", name), ("direction", direction)];
            all.push((labels, passed));
        }
    }
    gauges(encoder, "cap", &GAUGES, &all)?;
    counters(encoder, "cap", &COUNTERS, &all)?;
    let help = "How long requests waited for a cap, all together";
    let name = "cap_wait_seconds";
    let mut waits = Family(encoder.encode_descriptor(name, help, None, MetricType::Counter)?);
    for (labels, passed) in &all {
        waits.counter_f64(labels, passed.waited_seconds)?;
    }
    Ok(())
}

fn passed(caps: &Caps) -> impl Iterator<Item = (&'static str, &Passed)> {
    let both = [("read", caps.read.as_ref()), ("write", caps.write.as_ref())];
    both.into_iter()
        .filter_map(|(direction, passed)| Some((direction, passed?)))
}
