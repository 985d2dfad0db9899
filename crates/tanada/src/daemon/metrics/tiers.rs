//! What tiers of hybrids hold, and what they moved.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Family, Labels, Row, counters, gauges, labels, with};
use crate::api::tier::Tier;
use crate::api::volume::Volume;

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
pub(super) fn tiers(encoder: &mut DescriptorEncoder<'_>, volumes: &[Volume]) -> Result<(), Error> {
    let tiers = volumes.iter().filter_map(|volume| {
        let labels = labels([("volume", &volume.name)]);
        Some((labels, volume.tier.as_ref()?))
    });
    let tiers: Vec<(Labels<'_>, &Tier)> = tiers.collect();
    if tiers.is_empty() {
        return Ok(());
    }
    gauges(encoder, "volume_tier", &TIER_GAUGES, &tiers)?;
    let (name, help) = (
        "volume_tier_flow_bytes_per_second",
        "What flow control lets moves copy; absent: it does not hold them back",
    );
    let mut flow = Family::of_gauges(encoder, name, help)?;
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
        let mut family = Family::of_counters(encoder, &name, help)?;
        for (labels, tier) in &tiers {
            for (word, value) in values {
                family.counter(&with(labels, key, word), value(tier))?;
            }
        }
    }
    Ok(())
}
