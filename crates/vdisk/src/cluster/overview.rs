//! What operators see of a volume, as its records say.

use super::records::AllVolumes;
use super::stores::StoreRecord;
use crate::image::records::AllImages;
use crate::image::tree::{ImageRecord, ImageState};
use crate::names::{ImageId, StoreNumber};
use crate::record::{Name, VolumeRecord};
use crate::volume::{Condition, Health};
use base::Nanos;

/// Who uses a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Use {
    /// No node.
    Closed,
    /// It is open on this node, and has so many users.
    Here(u64),
    /// It is open on another one.
    Node(String),
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub name: Name,
    /// Its image.
    pub image: ImageId,
    /// Bytes.
    pub size: u64,
    /// Volumes that were cloned from it.
    pub clones: Vec<Name>,
}

/// How a volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// Its record.
    pub record: VolumeRecord,
    /// Bytes.
    pub size: u64,
    /// The snapshot it was cloned from or rolled back to, or that was taken of it last.
    pub from: Option<String>,
    /// Its snapshots, oldest first.
    pub snapshots: Vec<Snapshot>,
    /// Who uses it.
    pub used: Use,
    /// How it is.
    pub health: Health,
}

/// How a condition is called.
pub fn condition_name(condition: Condition) -> &'static str {
    match condition {
        Condition::Healthy => "healthy",
        Condition::Degraded => "degraded",
        Condition::Resyncing => "resyncing",
        Condition::Full => "full",
        Condition::ReadOnly => "read-only",
        Condition::Offline => "offline",
    }
}

fn full_name(image: &ImageRecord, volumes: &AllVolumes) -> Option<String> {
    let ImageState::Snapshot(name) = &image.state else {
        return None;
    };
    let volume = volumes.get(&image.volume)?;
    Some(format!("{}@{name}", volume.record.name))
}

/// The nearest snapshot before a volume's head.
pub(super) fn origin(
    record: &VolumeRecord,
    volumes: &AllVolumes,
    images: &AllImages,
) -> Option<String> {
    let mut image = images.get(&record.head)?;
    while let Some(parent) = image.record.parent.and_then(|parent| images.get(&parent)) {
        if let Some(name) = full_name(&parent.record, volumes) {
            return Some(name);
        }
        image = parent;
    }
    None
}

/// Its snapshots, oldest first.
pub(super) fn snapshots_of(
    record: &VolumeRecord,
    volumes: &AllVolumes,
    images: &AllImages,
) -> Vec<Snapshot> {
    let own = images.values().map(|known| &known.record);
    let own = own.filter(|image| image.volume == record.id);
    own.filter_map(|image| match &image.state {
        ImageState::Snapshot(name) => Some(Snapshot {
            name: name.clone(),
            image: image.id,
            size: image.size,
            clones: clones_of(image, volumes, images),
        }),
        _ => None,
    })
    .collect()
}

fn clones_of(image: &ImageRecord, volumes: &AllVolumes, images: &AllImages) -> Vec<Name> {
    let children = images.values().map(|known| &known.record);
    let children = children.filter(|it| it.parent == Some(image.id) && it.volume != image.volume);
    let volumes = children.filter_map(|child| volumes.get(&child.volume));
    volumes.map(|known| known.record.name.clone()).collect()
}

/// How a volume is that is not open here, by its record and the stores that are `down`.
pub(super) fn closed_health(
    record: &VolumeRecord,
    down: &[StoreRecord],
    label: impl Fn(StoreNumber) -> String,
) -> Health {
    let report = |condition, why: String| Health { condition, why };
    if let Some(why) = record.refusal() {
        return report(Condition::Offline, why);
    }
    let out = record.out.keys();
    let out: Vec<String> = out.map(|it| format!("store {}", label(*it))).collect();
    let missing = down
        .iter()
        .filter(|it| !record.out.contains_key(&it.number));
    let missing: Vec<String> = missing.map(|it| format!("store {}", it.name)).collect();
    if missing.len() >= usize::from(record.redundancy_floor.max(1)) {
        let why = format!(
            "an extent may have only {} in-sync copies, and these are down: {}; bring them back",
            record.redundancy_floor,
            missing.join(", ")
        );
        return report(Condition::Offline, why);
    }
    if record.redundancy_floor < record.terms.min_isr {
        let why = format!(
            "an extent may have only {} in-sync copies, and writes must reach {}; out: {}; bring them back",
            record.redundancy_floor,
            record.terms.min_isr,
            out.join(", ")
        );
        return report(Condition::ReadOnly, why);
    }
    match out.is_empty() && missing.is_empty() {
        true => report(Condition::Healthy, String::new()),
        false => {
            let both: Vec<String> = out.into_iter().chain(missing).collect();
            let why = format!("out of sync or down: {}", both.join(", "));
            report(Condition::Degraded, why)
        }
    }
}

/// How a volume is, by what was known before the meta store fell silent.
pub(super) fn without_meta(used: &Use, before: &Health, silent: Nanos) -> Health {
    let (condition, why) = match used {
        // Its engine says so itself.
        Use::Here(_) => return before.clone(),
        Use::Closed => (
            Condition::Offline,
            format!("the meta store has not answered for {silent}: it cannot be opened"),
        ),
        Use::Node(node) => (
            before.condition,
            format!(
                "the meta store has not answered for {silent}: how it is on {node} now is not known here"
            ),
        ),
    };
    let condition = match condition {
        Condition::Healthy => Condition::Degraded,
        other => other,
    };
    Health { condition, why }
}
