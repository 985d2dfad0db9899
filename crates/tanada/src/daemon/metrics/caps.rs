//! What waited for caps of exports, and of volumes of both kinds.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Labels, Row, counters, gauges, labels, seconds, with};
use super::page::Page;
use crate::api::caps::{Caps, Passed};

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

const WAITED: Row<Passed, f64> = (
    "wait_seconds",
    "How long requests waited for a cap, all together",
    |p| p.waited_seconds,
);

/// Everything here that has a cap.
pub(super) fn caps(encoder: &mut DescriptorEncoder<'_>, page: &Page) -> Result<(), Error> {
    let exports = page.status.exports.iter();
    let exports = exports.map(|it| {
        let labels = labels([("of", "export"), ("name", &it.name)]);
        (labels, it.terms.caps.as_ref())
    });
    let hybrids = page.status.volumes.iter();
    let hybrids = hybrids.map(|it| (of_volume(&it.name, "hybrid"), it.caps.as_ref()));
    let disks = page.cluster.disks.iter();
    let disks = disks.map(|it| (of_volume(&it.terms.name, "virtual"), it.terms.caps.as_ref()));
    let mut all: Vec<(Labels<'_>, &Passed)> = Vec::new();
    for (labels, caps) in exports.chain(hybrids).chain(disks) {
        for (direction, passed) in caps.into_iter().flat_map(passed) {
            all.push((with(&labels, "direction", direction), passed));
        }
    }
    gauges(encoder, "cap", &GAUGES, &all)?;
    counters(encoder, "cap", &COUNTERS, &all)?;
    seconds(encoder, "cap", &[WAITED], &all)
}

fn of_volume<'a>(name: &'a str, kind: &'a str) -> Labels<'a> {
    labels([("of", "volume"), ("name", name), ("kind", kind)])
}

fn passed(caps: &Caps) -> impl Iterator<Item = (&'static str, &Passed)> {
    let both = [("read", caps.read.as_ref()), ("write", caps.write.as_ref())];
    both.into_iter()
        .filter_map(|(direction, passed)| Some((direction, passed?)))
}
