//! Exports: clients and requests, whichever way they come in (NBD, ublk, vhost-user), and NBD connections that were ended.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Family, Labels, Row, counters, gauges, labels, with};
use crate::api::clients::NbdListener;
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

/// All of them.
pub(super) fn exports(
    encoder: &mut DescriptorEncoder<'_>,
    exports: &[Export],
) -> Result<(), Error> {
    let all: Vec<(Labels<'_>, &Export)> = exports.iter().map(|it| (of(it), it)).collect();
    let connections: Row<Export, f64> = ("connections", "Clients connected now", |it| {
        it.connections as f64
    });
    gauges(encoder, "export", &[connections], &all)?;
    let errors: Row<Export, u64> = ("errors", "Requests answered with an error", |it| it.errors);
    counters(encoder, "export", &[errors], &all)?;
    let help = "Requests of its clients, by operation";
    let mut requests = Family::of_counters(encoder, "export_requests", help)?;
    for (labels, export) in &all {
        for (op, count) in asked(export) {
            requests.counter(&with(labels, "op", op), count)?;
        }
    }
    disks(encoder, "ublk", exports, |export| {
        export.ublk_requests.as_ref()
    })?;
    disks(encoder, "vhost_user", exports, |export| {
        export.vhost_user_requests.as_ref()
    })
}

fn of(export: &Export) -> Labels<'_> {
    labels([("export", &export.name), ("of", &export.device)])
}

/// What was asked of it all ways together.
fn asked(export: &Export) -> [(&'static str, u64); 5] {
    let nbd = export.nbd_requests.unwrap_or_default();
    let ublk = export.ublk_requests.unwrap_or_default();
    let vhost = export.vhost_user_requests.unwrap_or_default();
    [
        ("read", nbd.reads + ublk.reads + vhost.reads),
        ("write", nbd.writes + ublk.writes + vhost.writes),
        ("flush", nbd.flushes + ublk.flushes + vhost.flushes),
        ("discard", nbd.discards + ublk.discards + vhost.discards),
        (
            "write_zeroes",
            nbd.write_zeroes + ublk.write_zeroes + vhost.write_zeroes,
        ),
    ]
}

/// Requests of every export that is such a disk; nothing without one.
fn disks(
    encoder: &mut DescriptorEncoder<'_>,
    prefix: &str,
    exports: &[Export],
    requests_of: impl Fn(&Export) -> Option<&DiskRequests>,
) -> Result<(), Error> {
    let all: Vec<(Labels<'_>, &DiskRequests)> = exports
        .iter()
        .filter_map(|export| Some((of(export), requests_of(export)?)))
        .collect();
    if all.is_empty() {
        return Ok(());
    }
    gauges(encoder, prefix, &GAUGES, &all)?;
    counters(encoder, prefix, &COUNTERS, &all)?;
    let name = format!("{prefix}_requests");
    let help = "Requests that did not fail, by operation";
    let mut requests = Family::of_counters(encoder, &name, help)?;
    for (labels, of) in &all {
        for (op, count) in [
            ("read", of.reads),
            ("write", of.writes),
            ("flush", of.flushes),
            ("discard", of.discards),
            ("write_zeroes", of.write_zeroes),
        ] {
            requests.counter(&with(labels, "op", op), count)?;
        }
    }
    Ok(())
}

/// Connections of NBD clients, by the address they came to.
pub(super) fn nbd(
    encoder: &mut DescriptorEncoder<'_>,
    listeners: &[NbdListener],
) -> Result<(), Error> {
    let help = "NBD connections accepted";
    let mut accepted = Family::of_counters(encoder, "nbd_accepted", help)?;
    for listener in listeners {
        let labels = labels([("address", &listener.address)]);
        accepted.counter(&labels, listener.accepted)?;
    }
    let help = "NBD connections ended by the server, by cause";
    let mut ended = Family::of_counters(encoder, "nbd_ended", help)?;
    for listener in listeners {
        for (cause, count) in [
            ("crowded_out", listener.turned_away),
            ("negotiation_failed", listener.negotiations_failed),
            ("stalled", listener.stalled),
            ("violation", listener.violations),
        ] {
            let labels = labels([("address", &*listener.address), ("cause", cause)]);
            ended.counter(&labels, count)?;
        }
    }
    Ok(())
}
