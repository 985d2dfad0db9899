//! The figures of a status as OpenMetrics text, for Prometheus.
//!
//! Names end in their unit; `_total` marks counters that only grow. Latency histograms have fixed
//! bounds from 10 us to 10 s, three to the decade.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::cluster_thread::ClusterSnapshot;
use super::family::{Family, Labels, Row, counters, gauges};
use super::store_metrics::{sessions, stores};
use crate::api::figures::{Counters, Latency, Operation};
use crate::api::status::{Device, Status};
use crate::api::tables::Kind;
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

        let gates = status.gates.iter().filter_map(|gate| gate.thread.as_ref());
        let threads: Vec<_> = status.threads.iter().chain(gates).collect();
        super::thread_metrics::threads(&mut encoder, &threads)?;
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
        super::disk_metrics::disks(&mut encoder, &status.exports)?;
        super::cap_metrics::caps(&mut encoder, status, &self.1)?;
        nbd(&mut encoder, status)
    }
}

/// Requests, bytes, errors, latencies and load of devices or volumes.
fn requests(
    encoder: &mut DescriptorEncoder<'_>,
    kind: &'static str,
    all: &[(String, Counters)],
) -> Result<(), Error> {
    let operations: Vec<(Labels<'_>, &Operation)> = all
        .iter()
        .flat_map(|(thing, figures)| {
            figures.operations.iter().map(move |of| {
                let labels = vec![
                    (kind, thing.as_str()),
                    ("op", of.op.as_str()),
                    ("class", of.class.as_str()),
                ];
                (labels, of)
            })
        })
        .collect();
    counters(encoder, kind, &ANSWERED, &operations)?;
    let name = format!("{kind}_latency_seconds");
    let help = "From the call to the answer";
    let mut family = Family(encoder.encode_descriptor(&name, help, None, MetricType::Histogram)?);
    for (labels, of) in &operations {
        let (sum, count) = (of.latency.sum_ns as f64 / 1e9, of.latency.count);
        let buckets = buckets(&of.latency);
        let mut one = family.0.encode_family(labels)?;
        one.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
    }
    let loads = all.iter();
    let loads: Vec<(Labels<'_>, &Counters)> = loads
        .map(|(thing, figures)| (vec![(kind, thing.as_str())], figures))
        .collect();
    let in_flight: Row<Counters, f64> = ("in_flight", "Requests begun and not answered", |of| {
        of.in_flight as f64
    });
    gauges(encoder, kind, &[in_flight], &loads)?;
    for (name, help, value) in LOAD_SECONDS {
        let name = format!("{kind}_{name}");
        let mut family =
            Family(encoder.encode_descriptor(&name, help, None, MetricType::Counter)?);
        for (labels, figures) in &loads {
            family.counter_f64(labels, value(figures))?;
        }
    }
    Ok(())
}

/// What became of requests.
const ANSWERED: [Row<Operation, u64>; 3] = [
    ("requests", "Requests answered, good and bad", |of| {
        of.requests
    }),
    ("bytes", "Bytes of requests answered well", |of| of.bytes),
    ("errors", "Requests answered with an error", |of| of.errors),
];

/// How busy a device or volume was; counters of seconds.
const LOAD_SECONDS: [Row<Counters, f64>; 2] = [
    (
        "busy_seconds",
        "Time with at least one request in flight",
        |of| of.busy_ns as f64 / 1e9,
    ),
    (
        "queue_seconds",
        "Requests in flight summed over time; its rate is the mean queue",
        |of| of.depth_time_ns as f64 / 1e9,
    ),
];

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

/// What a tier is and holds.
const TIER_GAUGES: [Row<Tier, f64>; 8] = [
    ("regions", "Regions of the volume", |t| {
        f64::from(t.room.regions)
    }),
    ("regions_up", "Regions that live on the fast device", |t| {
        f64::from(t.room.regions_up)
    }),
    ("region_bytes", "Length of a region", |t| {
        t.room.region_bytes as f64
    }),
    (
        "room_bytes",
        "What the tier may hold of the fast device",
        |t| t.room.room_bytes as f64,
    ),
    ("held_bytes", "Data the tier holds", |t| {
        t.room.held_bytes as f64
    }),
    (
        "held_dirty_bytes",
        "Of them, data that only the fast device has",
        |t| t.room.held_dirty_bytes as f64,
    ),
    ("candidates", "Hot regions of the last interval", |t| {
        f64::from(t.candidates)
    }),
    ("moves_under_way", "Moves begun and not ended", |t| {
        f64::from(t.moves_under_way)
    }),
];

/// What it counts by one more label: the figure, its help, the label, and what it may be.
type ByLabel = (
    &'static str,
    &'static str,
    &'static str,
    [(&'static str, fn(&Tier) -> u64); 2],
);
const TIER_COUNTERS: [ByLabel; 3] = [
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

/// What the tiers hold and did; nothing without one.
fn tiers(encoder: &mut DescriptorEncoder<'_>, volumes: &[Volume]) -> Result<(), Error> {
    let tiers = volumes.iter().filter_map(|volume| {
        let labels = vec![("volume", volume.name.as_str())];
        Some((labels, volume.tier.as_ref()?))
    });
    let tiers: Vec<(Labels<'_>, &Tier)> = tiers.collect();
    if tiers.is_empty() {
        return Ok(());
    }
    gauges(encoder, "volume_tier", &TIER_GAUGES, &tiers)?;
    let mut flow = Family(encoder.encode_descriptor(
        "volume_tier_flow_bytes_per_second",
        "What flow control lets moves copy; absent: it does not hold them back",
        None,
        MetricType::Gauge,
    )?);
    for (labels, tier) in &tiers {
        if let Some(rate) = tier.flow_bytes_per_second {
            flow.gauge(labels, rate)?;
        }
    }
    let intervals: Row<Tier, u64> = (
        "intervals",
        "Intervals of statistics that have ended",
        |t| t.intervals,
    );
    counters(encoder, "volume_tier", &[intervals], &tiers)?;
    for (name, help, key, values) in TIER_COUNTERS {
        let name = format!("volume_tier_{name}");
        let mut family =
            Family(encoder.encode_descriptor(&name, help, None, MetricType::Counter)?);
        for (labels, tier) in &tiers {
            for (word, value) in values {
                let mut labels = labels.clone();
                labels.push((key, word));
                family.counter(&labels, value(tier))?;
            }
        }
    }
    Ok(())
}

/// What the caches hold and did.
fn caches(encoder: &mut DescriptorEncoder<'_>, volumes: &[Volume]) -> Result<(), Error> {
    of_cache(encoder, volumes, Kind::Gauge)?;
    states(encoder, volumes)?;
    of_cache(encoder, volumes, Kind::Counter)?;
    served_bytes(encoder, volumes)?;
    served_reads(encoder, volumes)
}

/// Figures of a cache of one kind.
fn of_cache(
    encoder: &mut DescriptorEncoder<'_>,
    volumes: &[Volume],
    kind: Kind,
) -> Result<(), Error> {
    let metric = match kind {
        Kind::Gauge => MetricType::Gauge,
        Kind::Counter => MetricType::Counter,
    };
    for of in Cache::METRICS.iter().filter(|it| it.kind == kind) {
        let name = format!("volume_{}", of.name);
        let mut family = Family(encoder.encode_descriptor(&name, of.help, None, metric)?);
        for volume in volumes {
            let labels = vec![("volume", volume.name.as_str())];
            let value = (of.value)(&volume.cache);
            match kind {
                Kind::Gauge => family.gauge(&labels, value as f64)?,
                Kind::Counter => family.counter(&labels, value)?,
            }
        }
    }
    Ok(())
}

/// How long dirty data wait, and how the volumes are.
fn states(encoder: &mut DescriptorEncoder<'_>, volumes: &[Volume]) -> Result<(), Error> {
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
    Ok(())
}

/// Bytes that clients read, by where they came from.
fn served_bytes(encoder: &mut DescriptorEncoder<'_>, volumes: &[Volume]) -> Result<(), Error> {
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
    Ok(())
}

/// Reads of clients, by the devices they needed.
fn served_reads(encoder: &mut DescriptorEncoder<'_>, volumes: &[Volume]) -> Result<(), Error> {
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
