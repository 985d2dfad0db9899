//! What caches of hybrids hold, and what they did.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Family, labels};
use crate::api::tables::Kind;
use crate::api::volume::{Cache, Volume};

/// All of them.
pub(super) fn caches(encoder: &mut DescriptorEncoder<'_>, volumes: &[Volume]) -> Result<(), Error> {
    of_cache(encoder, volumes, Kind::Gauge)?;
    dirty_age(encoder, volumes)?;
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
    for of in Cache::METRICS.iter().filter(|it| it.kind == kind) {
        let name = format!("volume_{}", of.name);
        let mut family = match kind {
            Kind::Gauge => Family::of_gauges(encoder, &name, of.help)?,
            Kind::Counter => Family::of_counters(encoder, &name, of.help)?,
        };
        for volume in volumes {
            let labels = labels([("volume", &volume.name)]);
            let value = (of.value)(&volume.cache);
            match kind {
                Kind::Gauge => family.gauge(&labels, value as f64)?,
                Kind::Counter => family.counter(&labels, value)?,
            }
        }
    }
    Ok(())
}

fn dirty_age(encoder: &mut DescriptorEncoder<'_>, volumes: &[Volume]) -> Result<(), Error> {
    let help = "How long the oldest dirty data wait for the cleaner; regions with hot data of a tier, which stay dirty, do not count";
    let mut age = Family::of_gauges(encoder, "volume_dirty_age_seconds", help)?;
    for volume in volumes {
        let labels = labels([("volume", &volume.name)]);
        age.gauge(&labels, volume.cache.dirty_age_ns as f64 / 1e9)?;
    }
    Ok(())
}

/// Bytes that clients read, by where they came from.
fn served_bytes(encoder: &mut DescriptorEncoder<'_>, volumes: &[Volume]) -> Result<(), Error> {
    let help = "Bytes read by clients, by the device they came from";
    let mut read = Family::of_counters(encoder, "volume_served_bytes", help)?;
    for volume in volumes {
        let cache = &volume.cache;
        for (pattern, share) in [
            ("random", cache.random_reads),
            ("sequential", cache.sequential_reads),
        ] {
            for (from, bytes) in [("fast", share.bytes_fast), ("slow", share.bytes_slow)] {
                let name = &*volume.name;
                let labels = labels([("volume", name), ("pattern", pattern), ("from", from)]);
                read.counter(&labels, bytes)?;
            }
        }
    }
    Ok(())
}

/// Reads of clients, by the devices they needed.
fn served_reads(encoder: &mut DescriptorEncoder<'_>, volumes: &[Volume]) -> Result<(), Error> {
    let help = "Reads by clients, by the devices they needed";
    let mut served = Family::of_counters(encoder, "volume_served_reads", help)?;
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
                let name = &*volume.name;
                let labels = labels([("volume", name), ("pattern", pattern), ("from", from)]);
                served.counter(&labels, requests)?;
            }
        }
    }
    Ok(())
}
