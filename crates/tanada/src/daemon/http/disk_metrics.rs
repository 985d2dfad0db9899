//! What was asked of disks that exports are: block devices of this machine (ublk), and those of virtual machines
//! (vhost-user), for Prometheus.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::family::{Family, Labels, Row, counters, gauges};
use crate::api::status::{DiskRequests, Export};

const GAUGES: [Row<DiskRequests, f64>; 1] =
    [("in_flight", "Requests under way", |r| r.in_flight as f64)];

const COUNTERS: [Row<DiskRequests, u64>; 4] = [
    ("read_bytes", "Bytes that were read", |r| r.read_bytes),
    ("written_bytes", "Bytes that were written", |r| {
        r.written_bytes
    }),
    (
        "forced",
        "Writes and zeroes that were durable before they were answered (FUA, or no write cache)",
        |r| r.forced,
    ),
    ("errors", "Requests answered with an error", |r| r.errors),
];

/// Requests of every export that is such a disk.
pub(super) fn disks(encoder: &mut DescriptorEncoder<'_>, exports: &[Export]) -> Result<(), Error> {
    kind(encoder, "ublk", exports, |export| {
        export.ublk_requests.as_ref()
    })?;
    kind(encoder, "vhost_user", exports, |export| {
        export.vhost_user_requests.as_ref()
    })
}

fn kind(
    encoder: &mut DescriptorEncoder<'_>,
    prefix: &str,
    exports: &[Export],
    of: impl Fn(&Export) -> Option<&DiskRequests>,
) -> Result<(), Error> {
    let all: Vec<(Labels<'_>, &DiskRequests)> = exports
        .iter()
        .filter_map(|export| Some((labels(export), of(export)?)))
        .collect();
    gauges(encoder, prefix, &GAUGES, &all)?;
    counters(encoder, prefix, &COUNTERS, &all)?;
    let name = format!("{prefix}_requests");
    let mut requests = Family(encoder.encode_descriptor(
        &name,
        "Requests that did not fail, by operation",
        None,
        MetricType::Counter,
    )?);
    for (labels, of) in &all {
        for (op, count) in [
            ("read", of.reads),
            ("write", of.writes),
            ("flush", of.flushes),
            ("discard", of.discards),
            ("write zeroes", of.write_zeroes),
        ] {
            let mut labels = labels.clone();
            labels.push(("op", op));
            requests.counter(&labels, count)?;
        }
    }
    Ok(())
}

fn labels(export: &Export) -> Labels<'_> {
    vec![
        ("export", export.name.as_str()),
        ("of", export.device.as_str()),
    ]
}
