//! What the kernel asked of block devices that exports are (ublk), for Prometheus.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::family::{Family, Labels, Row, counters, gauges};
use crate::api::status::{Export, UblkRequests};

const GAUGES: [Row<UblkRequests, f64>; 1] =
    [("in_flight", "Requests under way", |r| r.in_flight as f64)];

const COUNTERS: [Row<UblkRequests, u64>; 4] = [
    ("read_bytes", "Bytes that were read", |r| r.read_bytes),
    ("written_bytes", "Bytes that were written", |r| {
        r.written_bytes
    }),
    (
        "forced",
        "Writes and zeroes that were durable before they were answered (FUA)",
        |r| r.forced,
    ),
    ("errors", "Requests answered with an error", |r| r.errors),
];

/// Requests of every export that is a block device.
pub(super) fn ublk(encoder: &mut DescriptorEncoder<'_>, exports: &[Export]) -> Result<(), Error> {
    let all: Vec<(Labels<'_>, &UblkRequests)> = exports
        .iter()
        .filter_map(|export| Some((labels(export), export.ublk_requests.as_ref()?)))
        .collect();
    gauges(encoder, "ublk", &GAUGES, &all)?;
    counters(encoder, "ublk", &COUNTERS, &all)?;
    let mut requests = Family(encoder.encode_descriptor(
        "ublk_requests",
        "Requests of the kernel that did not fail, by operation",
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
