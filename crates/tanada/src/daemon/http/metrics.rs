//! The figures of a status as OpenMetrics text, for Prometheus.
//!
//! Names end in their unit; `_total` marks counters that only grow. Latency histograms have fixed
//! bounds from 10 us to 10 s, three to the decade.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::cluster::ClusterSnapshot;
use super::family::{Family, Labels};
use crate::api::figures::{Counters, Latency, Operation};
use crate::api::status::{Device, Status};
use crate::api::store::Store;
use crate::api::tier::Tier;
use crate::api::volume::{Cache, Volume};

/// What the health of a hybrid may be.
const HYBRID_STATES: [&str; 6] = [
    "healthy",
    "degraded",
    "pass-through",
    "evacuating",
    "failed",
    "closed",
];

/// Upper bounds of latency buckets in nanoseconds.
const BOUNDS_NS: [u64; 19] = [
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// Writes `status` down.
pub fn encode(status: Status, cluster: ClusterSnapshot) -> Result<String, Error> {
    let mut registry = Registry::with_prefix("tanada");
    registry.register_collector(Box::new(Page(status, cluster)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Page(Status, ClusterSnapshot);

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let status = &self.0;
        encoder
            .encode_descriptor("build", "The running program", None, MetricType::Info)?
            .encode_info(&vec![("version", status.version.as_str())])?;
        encoder
            .encode_descriptor(
                "uptime_seconds",
                "Time since the start",
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&status.uptime_seconds)?;

        super::cluster_metrics::cluster(&mut encoder, &self.1)?;
        let devices = |device: &Device| (device.name.clone(), device.figures.clone());
        let devices: Vec<_> = status.devices.iter().map(devices).collect();
        requests(&mut encoder, "device", &devices)?;
        let volumes = |volume: &Volume| (volume.name.clone(), volume.figures.clone());
        let volumes: Vec<_> = status.volumes.iter().map(volumes).collect();
        requests(&mut encoder, "volume", &volumes)?;

        power(&mut encoder, &status.devices)?;
        caches(&mut encoder, &status.volumes)?;
        tiers(&mut encoder, &status.volumes)?;
        stores(&mut encoder, &status.stores)?;
        sessions(&mut encoder, &status.stores)?;
        nbd(&mut encoder, status)
    }
}

/// Requests, bytes, errors, latencies and load of devices or volumes.
fn requests(
    encoder: &mut DescriptorEncoder<'_>,
    kind: &'static str,
    all: &[(String, Counters)],
) -> Result<(), Error> {
    let mut each =
        |name: &str,
         help: &str,
         write: &dyn Fn(&mut Family<'_>, &Labels<'_>, &Operation) -> Result<(), Error>,
         metric: MetricType|
         -> Result<(), Error> {
            let name = format!("{kind}_{name}");
            let mut family = Family(encoder.encode_descriptor(&name, help, None, metric)?);
            for (thing, figures) in all {
                for of in &figures.operations {
                    let labels = vec![
                        (kind, thing.as_str()),
                        ("op", of.op.as_str()),
                        ("class", of.class.as_str()),
                    ];
                    write(&mut family, &labels, of)?;
                }
            }
            Ok(())
        };
    each(
        "requests",
        "Requests answered, good and bad",
        &|family, labels, of| family.counter(labels, of.requests),
        MetricType::Counter,
    )?;
    each(
        "bytes",
        "Bytes of requests answered well",
        &|family, labels, of| family.counter(labels, of.bytes),
        MetricType::Counter,
    )?;
    each(
        "errors",
        "Requests answered with an error",
        &|family, labels, of| family.counter(labels, of.errors),
        MetricType::Counter,
    )?;
    each(
        "latency_seconds",
        "From the call to the answer",
        &|family, labels, of| {
            family
                .0
                .encode_family(labels)?
                .encode_histogram::<NoLabelSet>(
                    of.latency.sum_ns as f64 / 1e9,
                    of.latency.count,
                    &buckets(&of.latency),
                    None,
                )
        },
        MetricType::Histogram,
    )?;
    for (name, help, value) in [
        (
            "in_flight",
            "Requests begun and not answered",
            (|figures| figures.in_flight as f64) as fn(&Counters) -> f64,
        ),
        (
            "busy_seconds",
            "Time with at least one request in flight",
            |figures| figures.busy_ns as f64 / 1e9,
        ),
        (
            "queue_seconds",
            "Requests in flight summed over time; its rate is the mean queue",
            |figures| figures.depth_time_ns as f64 / 1e9,
        ),
    ] {
        let is_gauge = name == "in_flight";
        let metric = match is_gauge {
            true => MetricType::Gauge,
            false => MetricType::Counter,
        };
        let name = format!("{kind}_{name}");
        let mut family = Family(encoder.encode_descriptor(&name, help, None, metric)?);
        for (thing, figures) in all {
            let labels = vec![(kind, thing.as_str())];
            match is_gauge {
                true => family.gauge(&labels, value(figures))?,
                false => family.counter_f64(&labels, value(figures))?,
            }
        }
    }
    Ok(())
}

/// Counts below each bound, and the rest, each bucket for itself.
fn buckets(latency: &Latency) -> Vec<(f64, u64)> {
    let mut counts = [0; BOUNDS_NS.len() + 1];
    for &(bound, count) in &latency.buckets {
        // A measured bucket is at most 1/16 wide; it counts where its upper end lies.
        let place = BOUNDS_NS.partition_point(|limit| *limit < bound);
        counts[place] += count;
    }
    let bounds = BOUNDS_NS.iter().map(|ns| *ns as f64 / 1e9);
    bounds.chain([f64::INFINITY]).zip(counts).collect()
}

fn power(encoder: &mut DescriptorEncoder<'_>, devices: &[Device]) -> Result<(), Error> {
    let modelled = || {
        devices.iter().filter_map(|device| {
            let labels = vec![("device", device.name.as_str())];
            Some((labels, device.power.as_ref()?))
        })
    };
    let mut joules = Family(encoder.encode_descriptor(
        "device_joules",
        "Energy a modelled device has drawn",
        None,
        MetricType::Counter,
    )?);
    for (labels, power) in modelled() {
        joules.counter_f64(&labels, power.joules)?;
    }
    let mut spin_ups = Family(encoder.encode_descriptor(
        "device_spin_ups",
        "How often a modelled disk was spun up",
        None,
        MetricType::Counter,
    )?);
    for (labels, power) in modelled() {
        spin_ups.counter(&labels, power.spin_ups)?;
    }
    let mut standby = Family(encoder.encode_descriptor(
        "device_standby",
        "1 while a modelled disk sleeps",
        None,
        MetricType::Gauge,
    )?);
    for (labels, power) in modelled() {
        standby.gauge(&labels, f64::from(u8::from(power.standby)))?;
    }
    Ok(())
}

/// What the tiers hold and did; nothing without one.
fn tiers(encoder: &mut DescriptorEncoder<'_>, volumes: &[Volume]) -> Result<(), Error> {
    type Value = fn(&Tier) -> u64;
    let with_tier = || {
        volumes.iter().filter_map(|volume| {
            let labels = vec![("volume", volume.name.as_str())];
            Some((labels, volume.tier.as_ref()?))
        })
    };
    if with_tier().next().is_none() {
        return Ok(());
    }
    let gauges: [(&str, &str, Value); 8] = [
        ("regions", "Regions of the volume", |t| u64::from(t.regions)),
        ("regions_up", "Regions that live on the fast device", |t| {
            u64::from(t.regions_up)
        }),
        ("region_bytes", "Length of a region", |t| t.region_bytes),
        (
            "room_bytes",
            "What the tier may hold of the fast device",
            |t| t.room_bytes,
        ),
        ("held_bytes", "Data the tier holds", |t| t.held_bytes),
        (
            "held_dirty_bytes",
            "Of them, data that only the fast device has",
            |t| t.held_dirty_bytes,
        ),
        ("candidates", "Hot regions of the last interval", |t| {
            u64::from(t.candidates)
        }),
        ("moves_under_way", "Moves begun and not ended", |t| {
            u64::from(t.moves_under_way)
        }),
    ];
    for (name, help, value) in gauges {
        let name = format!("volume_tier_{name}");
        let mut family = Family(encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?);
        for (labels, tier) in with_tier() {
            family.gauge(&labels, value(tier) as f64)?;
        }
    }
    let mut flow = Family(encoder.encode_descriptor(
        "volume_tier_flow_bytes_per_second",
        "What flow control lets moves copy; absent: it does not hold them back",
        None,
        MetricType::Gauge,
    )?);
    for (labels, tier) in with_tier() {
        if let Some(rate) = tier.flow_bytes_per_second {
            flow.gauge(&labels, rate)?;
        }
    }
    let mut intervals = Family(encoder.encode_descriptor(
        "volume_tier_intervals",
        "Intervals of statistics that have ended",
        None,
        MetricType::Counter,
    )?);
    for (labels, tier) in with_tier() {
        intervals.counter(&labels, tier.intervals)?;
    }
    type Pair = [(&'static str, Value); 2];
    let counters: [(&str, &str, &str, Pair); 3] = [
        (
            "moves",
            "Regions decided to move",
            "way",
            [("up", |t| t.moves_up), ("down", |t| t.moves_down)],
        ),
        (
            "moves_given_up",
            "Moves that did not come to their end",
            "how",
            [
                ("cancelled", |t| t.moves_cancelled),
                ("failed", |t| t.moves_failed),
            ],
        ),
        (
            "moved_bytes",
            "Copied by moves",
            "way",
            [("up", |t| t.up_bytes), ("down", |t| t.down_bytes)],
        ),
    ];
    for (name, help, key, values) in counters {
        let name = format!("volume_tier_{name}");
        let mut family =
            Family(encoder.encode_descriptor(&name, help, None, MetricType::Counter)?);
        for (labels, tier) in with_tier() {
            for (word, value) in values {
                let mut labels = labels.clone();
                labels.push((key, word));
                family.counter(&labels, value(tier))?;
            }
        }
    }
    Ok(())
}

/// Room, promises and health of the stores; nothing without one.
fn stores(encoder: &mut DescriptorEncoder<'_>, stores: &[Store]) -> Result<(), Error> {
    type Value = fn(&Store) -> f64;
    if stores.is_empty() {
        return Ok(());
    }
    let labels = |store: &Store| store.name.clone();
    let gauges: [(&str, &str, Value); 16] = [
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
            s.table_bytes as f64
        }),
        ("table_max_bytes", "Size of the object table", |s| {
            s.table_max_bytes as f64
        }),
        ("memory_bytes", "Memory of the tables", |s| {
            s.memory_bytes as f64
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
    for (name, help, value) in gauges {
        let name = format!("store_{name}");
        let mut family = Family(encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?);
        for store in stores {
            let name = labels(store);
            family.gauge(&vec![("store", name.as_str())], value(store))?;
        }
    }
    let mut shed = Family(encoder.encode_descriptor(
        "store_shed",
        "1 for what is given up while the device cannot do what was promised",
        None,
        MetricType::Gauge,
    )?);
    for store in stores {
        for level in ["nothing", "best-effort", "background", "scaled"] {
            let labels = vec![("store", store.name.as_str()), ("level", level)];
            shed.gauge(&labels, f64::from(u8::from(store.node.shed == level)))?;
        }
    }
    type Count = fn(&Store) -> u64;
    let counters: [(&str, &str, Count); 9] = [
        ("read_bytes", "Data read from the device", |s| {
            s.node.read_bytes
        }),
        ("written_bytes", "Data written to the device", |s| {
            s.node.written_bytes
        }),
        ("metadata_bytes", "Metadata moved", |s| {
            s.node.metadata_bytes
        }),
        ("best_effort_bytes", "Delivered without a promise", |s| {
            s.node.best_effort_bytes
        }),
        ("background_bytes", "Moved by background work", |s| {
            s.node.background_bytes
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
    for (name, help, value) in counters {
        let name = format!("store_{name}");
        let mut family =
            Family(encoder.encode_descriptor(&name, help, None, MetricType::Counter)?);
        for store in stores {
            family.counter(&vec![("store", store.name.as_str())], value(store))?;
        }
    }
    Ok(())
}

/// What was promised to each open session and what it got. A session is called by its reservation, or by its number.
fn sessions(encoder: &mut DescriptorEncoder<'_>, stores: &[Store]) -> Result<(), Error> {
    if stores.is_empty() {
        return Ok(());
    }
    let open: Vec<(&Store, String, _)> = stores
        .iter()
        .flat_map(|store| {
            let open = store.sessions.iter().filter(|it| it.closed.is_none());
            open.map(move |it| {
                let called = match it.reservation {
                    Some(number) => format!("{}/{number}", store.name),
                    None => format!("#{}", it.session),
                };
                (store, called, it)
            })
        })
        .collect();
    let labels = |at: usize| {
        let (store, called, session) = &open[at];
        vec![
            ("store", store.name.as_str()),
            ("session", called.as_str()),
            ("holder", session.holder.as_str()),
        ]
    };
    let mut promised = Family(encoder.encode_descriptor(
        "store_session_promised_bytes_per_second",
        "What the session is promised now",
        None,
        MetricType::Gauge,
    )?);
    for (at, (_, _, session)) in open.iter().enumerate() {
        promised.gauge(&labels(at), session.promised as f64)?;
    }
    let mut delivered = Family(encoder.encode_descriptor(
        "store_session_delivered_bytes",
        "What the session got",
        None,
        MetricType::Counter,
    )?);
    for (at, (_, _, session)) in open.iter().enumerate() {
        delivered.counter(&labels(at), session.delivered_bytes)?;
    }
    let mut windows = Family(encoder.encode_descriptor(
        "store_session_windows",
        "Windows that ended: kept, without demand, or violated because of the device's capacity or of the scheduler",
        None,
        MetricType::Counter,
    )?);
    for (at, (_, _, session)) in open.iter().enumerate() {
        let of = &session.windows;
        for (end, count) in [
            ("kept", of.kept),
            ("no-demand", of.no_demand),
            ("capacity", of.capacity),
            ("scheduler", of.scheduler),
        ] {
            let mut labels = labels(at);
            labels.push(("end", end));
            windows.counter(&labels, count)?;
        }
    }
    Ok(())
}

/// What the caches hold and did.
fn caches(encoder: &mut DescriptorEncoder<'_>, volumes: &[Volume]) -> Result<(), Error> {
    type Value = fn(&Cache) -> u64;
    let gauges: [(&str, &str, Value); 10] = [
        ("cache_bytes", "Room for data on the fast device", |c| {
            c.cache_bytes
        }),
        ("cached_bytes", "Data on the fast device", |c| {
            c.cached_bytes
        }),
        ("dirty_bytes", "Data that only the fast device has", |c| {
            c.dirty_bytes
        }),
        (
            "unreadable_dirty_bytes",
            "Dirty data that the fast device could not read",
            |c| c.unreadable_dirty_bytes,
        ),
        (
            "clean_failures",
            "Rounds of the cleaner that failed since the last that worked",
            |c| c.clean_failures,
        ),
        ("marked_regions", "Regions marked as about to change", |c| {
            c.marked_regions
        }),
        ("ledger_used_bytes", "Ledger in use", |c| {
            c.ledger_used_bytes
        }),
        ("ledger_size_bytes", "Size of the ledger", |c| {
            c.ledger_size_bytes
        }),
        ("memory_bytes", "Memory of map and policy", |c| {
            c.memory_bytes
        }),
        ("slow_asleep", "1 while the slow device rests", |c| {
            u64::from(c.slow_asleep)
        }),
    ];
    for (name, help, value) in gauges {
        let name = format!("volume_{name}");
        let mut family = Family(encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?);
        for volume in volumes {
            let labels = vec![("volume", volume.name.as_str())];
            family.gauge(&labels, value(&volume.cache) as f64)?;
        }
    }
    let mut age = Family(encoder.encode_descriptor(
        "volume_dirty_age_seconds",
        "How long the oldest dirty data wait",
        None,
        MetricType::Gauge,
    )?);
    for volume in volumes {
        let labels = vec![("volume", volume.name.as_str())];
        age.gauge(&labels, volume.cache.dirty_age_ns as f64 / 1e9)?;
    }
    let mut healthy = Family(encoder.encode_descriptor(
        "volume_health",
        "1 for the state the volume is in",
        None,
        MetricType::Gauge,
    )?);
    for volume in volumes {
        for state in HYBRID_STATES {
            let labels = vec![("volume", volume.name.as_str()), ("state", state)];
            healthy.gauge(&labels, f64::from(u8::from(volume.health == state)))?;
        }
    }
    let counters: [(&str, &str, Value); 15] = [
        (
            "fast_read_bytes",
            "Read from the fast device's slots",
            |c| c.fast_bytes_read,
        ),
        (
            "fast_written_bytes",
            "Written to the fast device's slots",
            |c| c.fast_bytes_written,
        ),
        (
            "fast_data_writes",
            "Writes to the fast device's slots",
            |c| c.fast_data_writes,
        ),
        ("slow_read_bytes", "Read from the slow device", |c| {
            c.slow_bytes_read
        }),
        ("slow_written_bytes", "Written to the slow device", |c| {
            c.slow_bytes_written
        }),
        ("fills", "Pages copied to the fast device", |c| c.fills),
        ("fills_dropped", "Copies given up", |c| c.fills_dropped),
        ("evicted", "Pages evicted", |c| c.evicted),
        ("cleaned_bytes", "Destaged by the cleaner", |c| {
            c.bytes_cleaned
        }),
        ("clean_rounds", "Rounds of the cleaner", |c| c.clean_rounds),
        ("waits_for_room", "Requests that waited for room", |c| {
            c.waits_for_room
        }),
        ("bad_checksums", "Pages whose checksum did not agree", |c| {
            c.bad_checksums
        }),
        ("commits", "Commits of the map", |c| c.commits),
        ("ledger_written_bytes", "Written to the ledger", |c| {
            c.ledger_bytes_written
        }),
        ("ledger_writes", "Writes for the ledger", |c| {
            c.ledger_writes
        }),
    ];
    for (name, help, value) in counters {
        let name = format!("volume_{name}");
        let mut family =
            Family(encoder.encode_descriptor(&name, help, None, MetricType::Counter)?);
        for volume in volumes {
            let labels = vec![("volume", volume.name.as_str())];
            family.counter(&labels, value(&volume.cache))?;
        }
    }
    let mut read = Family(encoder.encode_descriptor(
        "volume_served_bytes",
        "Bytes read by clients, by the device they came from",
        None,
        MetricType::Counter,
    )?);
    for volume in volumes {
        let cache = &volume.cache;
        for (pattern, share) in [
            ("random", cache.random_reads),
            ("sequential", cache.sequential_reads),
        ] {
            for (from, bytes) in [("fast", share.bytes_fast), ("slow", share.bytes_slow)] {
                let labels = vec![
                    ("volume", volume.name.as_str()),
                    ("pattern", pattern),
                    ("from", from),
                ];
                read.counter(&labels, bytes)?;
            }
        }
    }
    let mut served = Family(encoder.encode_descriptor(
        "volume_served_reads",
        "Reads by clients, by the devices they needed",
        None,
        MetricType::Counter,
    )?);
    for volume in volumes {
        let cache = &volume.cache;
        for (pattern, share) in [
            ("random", cache.random_reads),
            ("sequential", cache.sequential_reads),
        ] {
            for (from, requests) in [
                ("fast", share.requests_fast),
                ("slow", share.requests_slow),
                ("both", share.requests_both),
            ] {
                let labels = vec![
                    ("volume", volume.name.as_str()),
                    ("pattern", pattern),
                    ("from", from),
                ];
                served.counter(&labels, requests)?;
            }
        }
    }
    Ok(())
}

fn nbd(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> Result<(), Error> {
    let mut connections = Family(encoder.encode_descriptor(
        "nbd_connections",
        "NBD clients connected now",
        None,
        MetricType::Gauge,
    )?);
    for export in &status.exports {
        let labels = vec![
            ("export", export.name.as_str()),
            ("of", export.device.as_str()),
        ];
        connections.gauge(&labels, export.connections as f64)?;
    }
    let mut accepted = Family(encoder.encode_descriptor(
        "nbd_accepted",
        "NBD connections accepted",
        None,
        MetricType::Counter,
    )?);
    for listener in &status.nbd {
        let labels = vec![("address", listener.address.as_str())];
        accepted.counter(&labels, listener.accepted)?;
    }
    let mut ended = Family(encoder.encode_descriptor(
        "nbd_cut",
        "NBD connections ended by the server, by cause",
        None,
        MetricType::Counter,
    )?);
    for listener in &status.nbd {
        for (cause, count) in [
            ("crowded out", listener.turned_away),
            ("negotiation failed", listener.negotiations_failed),
            ("stalled", listener.stalled),
            ("violation", listener.violations),
        ] {
            let labels = vec![("address", listener.address.as_str()), ("cause", cause)];
            ended.counter(&labels, count)?;
        }
    }
    Ok(())
}
