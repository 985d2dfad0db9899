//! Gateways for S3 clients: are they served, what are they asked?

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Family, Labels, Row, counters, gauges, labels, with};
use super::page::GatewaySnapshot;

const GAUGES: [Row<GatewaySnapshot, f64>; 2] = [
    ("up", "1 if the gateway is served here, 0 if not", |it| {
        f64::from(u8::from(it.up))
    }),
    ("connections", "Clients connected now", |it| {
        it.connections as f64
    }),
];

const COUNTERS: [Row<GatewaySnapshot, u64>; 2] = [
    (
        "received_bytes",
        "Bytes of bodies that clients sent",
        |it| it.received,
    ),
    ("sent_bytes", "Bytes of bodies that clients got", |it| {
        it.sent
    }),
];

pub(super) fn s3(
    encoder: &mut DescriptorEncoder<'_>,
    gateways: &[GatewaySnapshot],
) -> Result<(), Error> {
    let all = gateways.iter();
    let all: Vec<(Labels<'_>, &GatewaySnapshot)> = all
        .map(|it| (labels([("gateway", &*it.name)]), it))
        .collect();
    gauges(encoder, "s3", &GAUGES, &all)?;
    counters(encoder, "s3", &COUNTERS, &all)?;
    let help = "Requests answered, by method and class of the status";
    let mut requests = Family::of_counters(encoder, "s3_requests", help)?;
    for (labels, gateway) in &all {
        for (method, code, count) in &gateway.requests {
            let labels = with(&with(labels, "method", method), "code", code);
            requests.counter(&labels, *count)?;
        }
    }
    Ok(())
}
