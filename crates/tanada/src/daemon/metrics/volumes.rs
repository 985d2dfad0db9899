//! Volumes of both kinds in the same families: hybrids of this daemon, and virtual disks of its cluster.
//!
//! ```text
//! hybrid       class of the device's request -> normal (a client waits) | internal
//! virtual disk class of the client           -> low | normal | high
//! ```
//!
//! A virtual disk has requests and copies under way where it is open on this node; its health is shown on each node.
//!
//! Always true: each volume has one series for each state it may be in, and one of them is 1.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Family, Labels, Row, gauges, labels, snake};
use super::page::Page;
use super::requests::{Rows, load};
use crate::api::cluster::{Disk, Resync};
use crate::api::figures::{Counters, Operation};

/// What the health of a hybrid may be.
const HYBRID_STATES: [&str; 7] = [
    "healthy",
    "degraded",
    "pass-through",
    "evacuating",
    "failed",
    "cache-lost",
    "closed",
];

/// And that of a virtual disk.
const VIRTUAL_STATES: [&str; 6] = [
    "healthy",
    "resyncing",
    "degraded",
    "full",
    "read-only",
    "offline",
];

/// A volume of either kind.
struct Volume<'a> {
    labels: Labels<'a>,
    size_bytes: u64,
    health: &'a str,
    states: &'static [&'static str],
    /// Where it is open here.
    figures: Option<&'a Counters>,
    class: fn(&Operation) -> &str,
}

/// A client waits for what is foreground; the rest is work of a hybrid above this one.
fn class_of_hybrid(of: &Operation) -> &str {
    match of.class.as_str() {
        "foreground" => "normal",
        _ => "internal",
    }
}

fn volumes_of(page: &Page) -> Vec<Volume<'_>> {
    let hybrids = page.status.volumes.iter().map(|it| Volume {
        labels: labels([("volume", &it.name), ("kind", "hybrid")]),
        size_bytes: it.size_bytes,
        health: &it.health,
        states: &HYBRID_STATES,
        figures: Some(&it.figures),
        class: class_of_hybrid,
    });
    let disks = page.cluster.disks.iter().map(|it| Volume {
        labels: disk_labels(it),
        size_bytes: it.terms.size_bytes,
        health: &it.health,
        states: &VIRTUAL_STATES,
        figures: it.figures.as_ref(),
        class: |of| &of.class,
    });
    hybrids.chain(disks).collect()
}

fn disk_labels(disk: &Disk) -> Labels<'_> {
    labels([("volume", &disk.terms.name), ("kind", "virtual")])
}

/// All of them.
pub(super) fn volumes(encoder: &mut DescriptorEncoder<'_>, page: &Page) -> Result<(), Error> {
    let all = volumes_of(page);
    let mut rows = Rows::default();
    for volume in &all {
        if let Some(figures) = volume.figures {
            rows.add(figures, |of| {
                let mut labels = volume.labels.clone();
                labels.push(("op", snake(&of.op)));
                labels.push(("class", snake((volume.class)(of))));
                labels
            });
        }
    }
    rows.write(encoder, "volume")?;
    let loads = all.iter();
    let loads = loads.filter_map(|it| Some((it.labels.clone(), it.figures?)));
    load(encoder, "volume", &loads.collect::<Vec<_>>())?;
    let help = "What its clients see";
    let mut size = Family::of_gauges(encoder, "volume_size_bytes", help)?;
    for volume in &all {
        size.gauge(&volume.labels, volume.size_bytes as f64)?;
    }
    let help = "1 for the state the volume is in";
    let mut health = Family::of_gauges(encoder, "volume_health", help)?;
    for volume in &all {
        health.states(&volume.labels, "state", volume.states, volume.health)?;
    }
    copies(encoder, &page.cluster.disks)
}

/// Of virtual disks alone.
const OF_DISKS: [Row<Disk, f64>; 3] = [
    (
        "copies_min",
        "In-sync copies that any of its extents may have at least",
        |disk| f64::from(disk.redundancy_floor),
    ),
    ("stores_out", "Stores that miss writes of it", |disk| {
        disk.out.len() as f64
    }),
    ("clients", "Clients of it on this node now", |disk| {
        disk.clients as f64
    }),
];

const LEFT: Row<Resync, f64> = (
    "resync_left_bytes",
    "To be copied at most until each extent has all its copies in sync",
    |resync| resync.left_bytes as f64,
);

/// Copies of virtual disks, and those being made.
fn copies(encoder: &mut DescriptorEncoder<'_>, disks: &[Disk]) -> Result<(), Error> {
    let all = disks.iter().map(|disk| (disk_labels(disk), disk));
    gauges(encoder, "volume", &OF_DISKS, &all.collect::<Vec<_>>())?;
    let open = disks.iter();
    let open = open.filter_map(|disk| Some((disk_labels(disk), disk.resync.as_ref()?)));
    let open: Vec<(Labels<'_>, &Resync)> = open.collect();
    gauges(encoder, "volume", &[LEFT], &open)?;
    let help = "Copied from store to store, so that copies are equal and as many as configured";
    let mut copied = Family::of_counters(encoder, "volume_resync_bytes", help)?;
    for (labels, resync) in &open {
        copied.counter(labels, resync.copied_bytes)?;
    }
    Ok(())
}
