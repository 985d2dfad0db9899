//! Stores: what they were asked, room, promises and health.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Family, Labels, Row, counters, gauges, labels, snake};
use super::requests::Rows;
use crate::api::store::Store;

/// What is given up while a device cannot do what was promised.
const SHED: [&str; 4] = ["nothing", "best-effort", "background", "scaled"];

/// What a store holds, promises and is trusted with.
const GAUGES: [Row<Store, f64>; 16] = [
    ("size_bytes", "Room for objects", |s| {
        s.node.space.total_bytes as f64
    }),
    ("used_bytes", "Room that holds data", |s| {
        s.node.space.used_bytes as f64
    }),
    ("reserved_bytes", "Room promised and not yet written", |s| {
        s.node.space.reserved_bytes as f64
    }),
    (
        "free_bytes",
        "Room that is neither used nor promised",
        |s| s.node.space.free_bytes as f64,
    ),
    ("objects", "Objects", |s| s.node.space.objects as f64),
    ("table_bytes", "Object table in use", |s| {
        s.basics.table_bytes as f64
    }),
    ("table_max_bytes", "Size of the object table", |s| {
        s.basics.table_max_bytes as f64
    }),
    ("memory_bytes", "Memory of the tables", |s| {
        s.basics.memory_bytes as f64
    }),
    ("reservations", "Reservations committed", |s| {
        s.node.calendar.committed as f64
    }),
    (
        "promised_ratio",
        "Part of the device's time promised now",
        |s| s.node.calendar.now.promised_percent / 100.0,
    ),
    (
        "headroom_ratio",
        "Part of the device's time that must stay free now",
        |s| s.node.calendar.now.headroom_percent / 100.0,
    ),
    (
        "overcommitted",
        "1 while more is promised than the device can do",
        |s| f64::from(u8::from(!s.node.calendar.overcommitted.is_empty())),
    ),
    (
        "trusted_read_bytes_per_second",
        "Reads the device is trusted with",
        |s| s.node.capacity.read as f64,
    ),
    (
        "trusted_write_bytes_per_second",
        "Writes the device is trusted with",
        |s| s.node.capacity.write as f64,
    ),
    ("bad_pages", "Pages known to be damaged", |s| {
        s.bad_blocks as f64
    }),
    ("connections", "Clients connected", |s| {
        s.server.connections as f64
    }),
];

/// What it did.
const COUNTERS: [Row<Store, u64>; 8] = [
    ("read_bytes", "Data read from the device", |s| {
        s.node.queue.read_bytes
    }),
    ("written_bytes", "Data written to the device", |s| {
        s.node.queue.written_bytes
    }),
    ("metadata_bytes", "Metadata moved", |s| {
        s.node.queue.metadata_bytes
    }),
    ("best_effort_bytes", "Delivered without a promise", |s| {
        s.node.queue.best_effort_bytes
    }),
    ("background_bytes", "Moved by background work", |s| {
        s.node.queue.background_bytes
    }),
    (
        "answers",
        "Answers over the network, good and bad, of whatever was asked",
        |s| s.server.answered,
    ),
    (
        "not_let_in",
        "Connections that did not show that they may come in",
        |s| s.server.not_let_in,
    ),
    (
        "cut",
        "Connections cut: stalled, or not the protocol",
        |s| s.server.stalled + s.server.violations,
    ),
];

/// Room, promises and health of the stores; nothing without one.
pub(super) fn stores(encoder: &mut DescriptorEncoder<'_>, stores: &[Store]) -> Result<(), Error> {
    if stores.is_empty() {
        return Ok(());
    }
    let mut rows = Rows::default();
    for store in stores {
        rows.add(&store.figures, |of| {
            let mut labels = labels([("store", &store.basics.name)]);
            labels.push(("op", snake(&of.op)));
            labels
        });
    }
    rows.write(encoder, "store")?;
    let all: Vec<(Labels<'_>, &Store)> = stores
        .iter()
        .map(|store| (labels([("store", &store.basics.name)]), store))
        .collect();
    gauges(encoder, "store", &GAUGES, &all)?;
    let help = "1 for what is given up while the device cannot do what was promised";
    let mut shed = Family::of_gauges(encoder, "store_shed", help)?;
    for (labels, store) in &all {
        shed.states(labels, "level", &SHED, &store.node.queue.shed)?;
    }
    counters(encoder, "store", &COUNTERS, &all)
}
