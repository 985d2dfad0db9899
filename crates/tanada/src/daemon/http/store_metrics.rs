//! Figures of stores for Prometheus: room, promises and health, and what each session got.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::family::{Family, Labels, Row, counters, gauges};
use crate::api::store::Store;
use store::qos::session::SessionReport;

/// What a store holds, promises and is trusted with.
const GAUGES: [Row<Store, f64>; 16] = [
    ("total_bytes", "Room for objects", |s| {
        s.node.space.total_bytes as f64
    }),
    ("used_bytes", "Room that holds data", |s| {
        s.node.space.used_bytes as f64
    }),
    ("reserved_bytes", "Room promised and not yet written", |s| {
        s.node.space.reserved_bytes as f64
    }),
    ("free_bytes", "Room for anybody", |s| {
        s.node.space.free_bytes as f64
    }),
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
const COUNTERS: [Row<Store, u64>; 9] = [
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
    ("answers", "Requests answered, good and bad", |s| {
        s.server.answered
    }),
    ("errors", "Requests answered with an error", |s| {
        s.server.failed
    }),
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
    let all: Vec<(Labels<'_>, &Store)> = stores
        .iter()
        .map(|store| (vec![("store", store.basics.name.as_str())], store))
        .collect();
    gauges(encoder, "store", &GAUGES, &all)?;
    let mut shed = Family(encoder.encode_descriptor(
        "store_shed",
        "1 for what is given up while the device cannot do what was promised",
        None,
        MetricType::Gauge,
    )?);
    for store in stores {
        for level in ["nothing", "best-effort", "background", "scaled"] {
            let labels = vec![("store", store.basics.name.as_str()), ("level", level)];
            shed.gauge(&labels, f64::from(u8::from(store.node.queue.shed == level)))?;
        }
    }
    counters(encoder, "store", &COUNTERS, &all)
}

/// What was promised to each open session and what it got. A session is called by its reservation, or by its number.
pub(super) fn sessions(encoder: &mut DescriptorEncoder<'_>, stores: &[Store]) -> Result<(), Error> {
    if stores.is_empty() {
        return Ok(());
    }
    let open: Vec<(&Store, String, _)> = stores
        .iter()
        .flat_map(|store| {
            let open = store.sessions.iter().filter(|it| it.closed.is_none());
            open.map(move |it| {
                let called = match it.reservation {
                    Some(number) => format!("{}/{number}", store.basics.name),
                    None => format!("#{}", it.session),
                };
                (store, called, it)
            })
        })
        .collect();
    let labels = |at: usize| {
        let (store, called, session) = &open[at];
        vec![
            ("store", store.basics.name.as_str()),
            ("session", called.as_str()),
            ("holder", session.holder.as_str()),
        ]
    };
    let rates: Vec<(Labels<'_>, &SessionReport)> = open
        .iter()
        .enumerate()
        .map(|(at, (_, _, session))| (labels(at), *session))
        .collect();
    let promised: Row<SessionReport, f64> = (
        "promised_bytes_per_second",
        "What the session is promised now",
        |it| it.promised as f64,
    );
    gauges(encoder, "store_session", &[promised], &rates)?;
    let delivered: Row<SessionReport, u64> = ("delivered_bytes", "What the session got", |it| {
        it.delivery.delivered_bytes
    });
    counters(encoder, "store_session", &[delivered], &rates)?;
    windows(encoder, &rates)
}

/// How the windows of sessions ended.
fn windows(
    encoder: &mut DescriptorEncoder<'_>,
    sessions: &[(Labels<'_>, &SessionReport)],
) -> Result<(), Error> {
    let mut windows = Family(encoder.encode_descriptor(
        "store_session_windows",
        "Windows that ended: kept, without demand, or violated because of the device's capacity or of the scheduler",
        None,
        MetricType::Counter,
    )?);
    for (labels, session) in sessions {
        let of = &session.delivery.windows;
        for (end, count) in [
            ("kept", of.kept),
            ("no-demand", of.no_demand),
            ("capacity", of.capacity),
            ("scheduler", of.scheduler),
        ] {
            let mut labels = labels.clone();
            labels.push(("end", end));
            windows.counter(&labels, count)?;
        }
    }
    Ok(())
}
