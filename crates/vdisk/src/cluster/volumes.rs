//! What operators do with volumes: make, look, copy, go back, remove.
//!
//! Always true:
//! 1. What is answered as done is in the meta store.
//! 2. A volume in use is changed by its engine alone.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::Bytes;
use device::Device;

use super::forward::Request;
use super::opened::InUse;
use super::seen::Records;
use super::stores::active_domains;
use super::{Cluster, ClusterError};
use crate::image::records::AllImages;
use crate::image::tree::{
    self as image, Change, ImageError, ImageRecord, ImageState, Versioned, snapshot_key, snapshots,
};
use crate::meta::{Compare, Op, whole_range};
use crate::names::{ImageId, VolumeId, hex};
use crate::record::{
    Fairness, Name, OnMetaLoss, PriorityClass, RecordError, VolumeRecord, VolumeState, check_size,
    volume_key, volume_name_key, writer_key,
};
use crate::volume::{Condition, Health};

const VOLUMES: &str = "volume/";
const NAMES: &str = "volume-name/";

/// A volume that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVolume {
    /// Its name.
    pub name: Name,
    /// Bytes.
    pub size: u64,
    /// Copies of each extent; `None`: 2, or 1 where all stores are in one failure domain.
    pub copies: Option<u8>,
    /// How many a write must reach at least; `None`: 1 of up to 2, 2 of 3.
    pub min_isr: Option<u8>,
    /// Its clients beside others.
    pub priority: PriorityClass,
    /// How far they and others of their class are kept apart; `None`: they are not.
    pub fairness: Option<Fairness>,
    /// The holder of the reservations attached to its requests.
    pub holder: Option<String>,
    /// What requests do while the meta store is away.
    pub on_meta_loss: OnMetaLoss,
}

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

/// All records of volumes.
pub type AllVolumes = BTreeMap<VolumeId, Versioned<VolumeRecord>>;

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

fn number(key: &str, value: &[u8]) -> Result<u32, ClusterError> {
    let text = std::str::from_utf8(value).ok();
    let number = text.and_then(|text| hex(text, 8));
    let number = number.and_then(|number| u32::try_from(number).ok());
    Ok(number.ok_or_else(|| RecordError::malformed(key, "it is no number"))?)
}

impl Cluster {
    /// All volumes' records.
    pub(super) async fn records(&self) -> Result<AllVolumes, ClusterError> {
        let (entries, _) = whole_range(&*self.images.meta, VOLUMES).await?;
        let mut volumes = AllVolumes::new();
        for entry in entries {
            let text = entry.key.strip_prefix(VOLUMES).unwrap_or_default();
            let id = VolumeId(number(&entry.key, text.as_bytes())?);
            let record = VolumeRecord::decode(id, &entry.value)?;
            let changed = Some(entry.changed);
            volumes.insert(id, Versioned { record, changed });
        }
        Ok(volumes)
    }

    /// The number that a name stands for.
    pub(super) async fn find(&self, name: &Name) -> Result<VolumeId, ClusterError> {
        let key = volume_name_key(name);
        if let Some(entry) = self.images.meta.get(&key).await? {
            return Ok(VolumeId(number(&key, &entry.value)?));
        }
        let (entries, _) = whole_range(&*self.images.meta, NAMES).await?;
        let known = entries.iter().filter_map(|it| it.key.strip_prefix(NAMES));
        Err(ClusterError::NoVolume {
            name: name.clone(),
            known: known.filter_map(|name| name.parse().ok()).collect(),
        })
    }

    /// A volume's record, and its size in bytes; asks for nothing else.
    ///
    /// # Errors
    /// [`ClusterError::NoVolume`], [`ClusterError::Meta`], [`ClusterError::Record`].
    pub async fn look(&self, name: &Name) -> Result<(VolumeRecord, u64), ClusterError> {
        let id = self.find(name).await?;
        let record = self.images.volume(id).await?.record;
        let head = self.images.image(record.head).await?;
        Ok((record, head.record.size))
    }

    /// The image of a snapshot, and its volume.
    async fn find_snapshot(
        &self,
        volume: &Name,
        name: &Name,
    ) -> Result<(VolumeId, ImageId), ClusterError> {
        let id = self.find(volume).await?;
        let key = snapshot_key(id, name);
        if let Some(entry) = self.images.meta.get(&key).await? {
            return Ok((id, ImageId(number(&key, &entry.value)?)));
        }
        let prefix = snapshots(id);
        let (entries, _) = whole_range(&*self.images.meta, &prefix).await?;
        let known = entries.iter().filter_map(|it| it.key.strip_prefix(&prefix));
        Err(ClusterError::NoSnapshot {
            volume: volume.clone(),
            name: name.clone(),
            known: known.filter_map(|name| name.parse().ok()).collect(),
        })
    }

    /// Makes a volume with nothing in it.
    ///
    /// # Errors
    /// [`ClusterError::Exists`], [`ClusterError::TooFewDomains`], and what [`image::create`] refuses.
    pub async fn create(&self, new: &NewVolume) -> Result<Overview, ClusterError> {
        let created = self.again(async || {
            let domains = active_domains(&self.stores().await?, None);
            let copies = new.copies.unwrap_or(if domains < 2 { 1 } else { 2 });
            let min_isr = new.min_isr.unwrap_or(if copies > 2 { 2 } else { 1 });
            self.check_free(&new.name).await?;
            let numbers = self.images.numbers().await?;
            let made = image::create(&numbers, new.name.clone(), new.size, copies, min_isr);
            let (record, mut change) = made?;
            if domains < usize::from(copies) {
                return Err(ClusterError::TooFewDomains { copies, domains });
            }
            let record = VolumeRecord {
                priority: new.priority,
                fairness: new.fairness,
                reservation: new.holder.clone(),
                on_meta_loss: new.on_meta_loss,
                ..record
            };
            replace(&mut change, &record);
            self.images.change(change).await?;
            Ok(record)
        });
        self.overview(&created.await?.name).await
    }

    async fn check_free(&self, name: &Name) -> Result<(), ClusterError> {
        match self.images.meta.get(&volume_name_key(name)).await? {
            None => Ok(()),
            Some(_) => Err(ClusterError::Exists(name.clone())),
        }
    }

    /// All volumes, by name.
    ///
    /// # Errors
    /// [`ClusterError::Meta`], [`ClusterError::Record`].
    pub async fn list(&self) -> Result<Vec<Overview>, ClusterError> {
        let records = self.read_records().await?;
        Ok(self.overviews(&records))
    }

    /// The volumes in these records, by name.
    pub(super) fn overviews(&self, records: &Records) -> Vec<Overview> {
        let (volumes, images) = (&records.volumes, &records.images);
        let stores = records.stores.values().map(|(store, _)| store);
        let down = stores.filter(|it| records.up.serves(it) == Some(false));
        let down: Vec<_> = down.cloned().collect();
        let live = volumes.values().map(|known| &known.record);
        let live = live.filter(|record| record.state == VolumeState::Live);
        let mut all: Vec<Overview> = live
            .map(|record| {
                let used = self.used(record, &records.held);
                Overview {
                    size: images.get(&record.head).map_or(0, |it| it.record.size),
                    from: origin(record, volumes, images),
                    snapshots: snapshots_of(record, volumes, images),
                    health: self.health(record, &used, &down),
                    used,
                    record: record.clone(),
                }
            })
            .collect();
        all.sort_by(|a, b| a.record.name.cmp(&b.record.name));
        all
    }

    /// One volume.
    ///
    /// # Errors
    /// [`ClusterError::NoVolume`], and as for [`Cluster::list`].
    pub async fn overview(&self, name: &Name) -> Result<Overview, ClusterError> {
        let id = self.find(name).await?;
        let all = self.list().await?;
        let known = all.iter().map(|it| it.record.name.clone()).collect();
        let found = all.into_iter().find(|it| it.record.id == id);
        found.ok_or(ClusterError::NoVolume {
            name: name.clone(),
            known,
        })
    }

    fn used(&self, record: &VolumeRecord, held: &BTreeSet<String>) -> Use {
        if let Some(slot) = self.slot(record.id) {
            return Use::Here(slot.users());
        }
        match &record.writer {
            Some(writer)
                if writer.node != self.node().as_str()
                    && held.contains(&writer_key(writer.lease)) =>
            {
                Use::Node(writer.node.clone())
            }
            _ => Use::Closed,
        }
    }

    /// From its engine where it is open here, else from its record.
    fn health(&self, record: &VolumeRecord, used: &Use, down: &[super::StoreRecord]) -> Health {
        if let (Use::Here(_), Some(slot)) = (used, self.slot(record.id)) {
            return slot.volume().health();
        }
        let report = |condition, why: String| Health { condition, why };
        if let Some(why) = record.refusal() {
            return report(Condition::Offline, why);
        }
        let out = record.out.keys();
        let out: Vec<String> = out
            .map(|it| format!("store {}", self.store_label(*it)))
            .collect();
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
        if record.redundancy_floor < record.min_isr {
            let why = format!(
                "an extent may have only {} in-sync copies, and writes must reach {}; out: {}; bring them back",
                record.redundancy_floor,
                record.min_isr,
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

    /// Gives a volume that no client uses another name.
    ///
    /// # Errors
    /// [`ClusterError::Exists`], [`ClusterError::Busy`], [`ClusterError::Elsewhere`].
    pub async fn rename(&self, name: &Name, new: &Name) -> Result<Overview, ClusterError> {
        let id = self.find(name).await?;
        let _alone = self.alone(id).await;
        self.closed("rename", id).await?;
        let renamed = self.again(async || {
            self.check_free(new).await?;
            let known = self.images.volume(id).await?;
            let record = VolumeRecord {
                name: new.clone(),
                ..known.record
            };
            let changed = known.changed.expect("it was read");
            let compares = vec![
                Compare::Unchanged(volume_key(id), changed),
                Compare::Absent(volume_name_key(new)),
            ];
            let put = |key, value| Op::Put {
                key,
                value,
                lease: None,
            };
            let ops = vec![
                put(volume_key(id), record.encode()),
                put(volume_name_key(new), id.to_string().into_bytes()),
                Op::Delete {
                    key: volume_name_key(name),
                },
            ];
            self.txn(compares, ops).await
        });
        renamed.await?;
        self.overview(new).await
    }

    /// Removes a volume that no client uses; its room comes back by and by.
    ///
    /// # Errors
    /// [`ClusterError::Busy`], [`ClusterError::Elsewhere`]; [`ClusterError::Images`] if it has snapshots.
    pub async fn remove(&self, name: &Name) -> Result<(), ClusterError> {
        let id = self.find(name).await?;
        let _alone = self.alone(id).await;
        self.closed("remove", id).await?;
        self.again(async || {
            let volume = self.images.volume(id).await?;
            let head = self.images.image(volume.record.head).await?;
            let count = self.images.snapshots(id).await?;
            let change = image::delete_volume(&volume, &head, count)?;
            Ok(self.images.change(change).await?)
        })
        .await
    }

    /// A new volume that begins as a snapshot is.
    ///
    /// # Errors
    /// [`ClusterError::NoVolume`], [`ClusterError::NoSnapshot`], [`ClusterError::Exists`].
    pub async fn clone_volume(
        &self,
        volume: &Name,
        snapshot: &Name,
        new: &Name,
    ) -> Result<Overview, ClusterError> {
        let cloned = self.again(async || {
            self.check_free(new).await?;
            let (id, image) = self.find_snapshot(volume, snapshot).await?;
            let source = self.images.image(image).await?;
            let of = self.images.volume(id).await?;
            let numbers = self.images.numbers().await?;
            let (_, change) = image::clone(&numbers, &source, &of, new.clone())?;
            Ok(self.images.change(change).await?)
        });
        cloned.await?;
        self.overview(new).await
    }

    /// Lets a volume that no client uses go on from one of its snapshots.
    ///
    /// # Errors
    /// [`ClusterError::NoSnapshot`], [`ClusterError::Busy`], [`ClusterError::Elsewhere`].
    pub async fn rollback(&self, volume: &Name, snapshot: &Name) -> Result<Overview, ClusterError> {
        let id = self.find(volume).await?;
        let _alone = self.alone(id).await;
        self.closed("roll back", id).await?;
        let back = self.again(async || {
            let (_, target) = self.find_snapshot(volume, snapshot).await?;
            let numbers = self.images.numbers().await?;
            let known = self.images.volume(id).await?;
            let head = self.images.image(known.record.head).await?;
            let target = self.images.image(target).await?;
            let (_, change) = image::rollback(&numbers, &known, &head, &target)?;
            Ok(self.images.change(change).await?)
        });
        back.await?;
        self.overview(volume).await
    }

    /// Takes a snapshot's name away; what only it has is freed by and by.
    ///
    /// # Errors
    /// [`ClusterError::NoVolume`], [`ClusterError::NoSnapshot`].
    pub async fn remove_snapshot(
        &self,
        volume: &Name,
        snapshot: &Name,
    ) -> Result<(), ClusterError> {
        self.again(async || {
            let (_, image) = self.find_snapshot(volume, snapshot).await?;
            let image = self.images.image(image).await?;
            let change = image::delete_snapshot(&image)?;
            Ok(self.images.change(change).await?)
        })
        .await
    }

    /// Keeps a volume as it is now under a name; it may be in use, also on another node.
    ///
    /// # Errors
    /// [`ClusterError::SnapshotExists`], [`ClusterError::Elsewhere`]; [`ClusterError::Volume`] if it cannot be opened, or not
    /// everything be made durable.
    pub async fn snapshot(&self, volume: &Name, name: &Name) -> Result<Overview, ClusterError> {
        let id = self.find(volume).await?;
        let request = Request::Snapshot { name: name.clone() };
        if let Some(now) = self.forward(volume, id, request).await? {
            return Ok(now);
        }
        self.snapshot_here(id, volume, name).await?;
        self.overview(volume).await
    }

    pub(super) async fn snapshot_here(
        &self,
        id: VolumeId,
        volume: &Name,
        name: &Name,
    ) -> Result<(), ClusterError> {
        let _alone = self.alone(id).await;
        let found = self.images.meta.get(&snapshot_key(id, name)).await?;
        if found.is_some() {
            return Err(ClusterError::SnapshotExists {
                volume: volume.clone(),
                name: name.clone(),
            });
        }
        let in_use = self.open_alone(id).await?;
        in_use.volume().snapshot(name.clone()).await?;
        Ok(())
    }

    /// Gives a volume another size; it may be in use, also on another node. What lies behind the end of a smaller one is gone, so that is to be
    /// allowed with `shrink`.
    ///
    /// # Errors
    /// [`ClusterError::Shrinks`]; [`ClusterError::Elsewhere`]; [`ClusterError::Images`] for a size that cannot be;
    /// [`ClusterError::Volume`].
    pub async fn resize(
        &self,
        name: &Name,
        size: u64,
        shrink: bool,
    ) -> Result<Overview, ClusterError> {
        let id = self.find(name).await?;
        if let Err(why) = check_size(size) {
            let name = name.clone();
            return Err(ImageError::Size { name, why }.into());
        }
        let request = Request::Resize { size, shrink };
        if let Some(now) = self.forward(name, id, request).await? {
            return Ok(now);
        }
        self.resize_here(id, name, size, shrink).await?;
        self.overview(name).await
    }

    pub(super) async fn resize_here(
        &self,
        id: VolumeId,
        name: &Name,
        size: u64,
        shrink: bool,
    ) -> Result<(), ClusterError> {
        let _alone = self.alone(id).await;
        let in_use = self.open_alone(id).await?;
        let (now, asked) = (in_use.volume().info().size, Bytes(size));
        if asked < now && !shrink {
            let volume = name.clone();
            return Err(ClusterError::Shrinks { volume, now, asked });
        }
        Ok(in_use.volume().resize(asked).await?)
    }

    /// A volume in use for one job, and its name as it is now.
    pub(super) async fn in_use(&self, name: &Name) -> Result<(InUse, VolumeId), ClusterError> {
        let id = self.find(name).await?;
        Ok((self.open(name).await?, id))
    }
}

/// Puts another record of the volume into a change that makes it.
fn replace(change: &mut Change, record: &VolumeRecord) {
    let own = volume_key(record.id);
    for op in &mut change.ops {
        if let Op::Put { key, value, .. } = op
            && *key == own
        {
            *value = record.encode();
        }
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
fn origin(record: &VolumeRecord, volumes: &AllVolumes, images: &AllImages) -> Option<String> {
    let mut image = images.get(&record.head)?;
    while let Some(parent) = image.record.parent.and_then(|parent| images.get(&parent)) {
        if let Some(name) = full_name(&parent.record, volumes) {
            return Some(name);
        }
        image = parent;
    }
    None
}

fn snapshots_of(record: &VolumeRecord, volumes: &AllVolumes, images: &AllImages) -> Vec<Snapshot> {
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

/// For callers that only look.
impl Cluster {
    /// The volumes that are open here, with their engines' counters.
    pub fn open_volumes(&self) -> Vec<Rc<crate::volume::Volume>> {
        let open = self.open.borrow();
        open.values().map(|slot| Rc::clone(slot.volume())).collect()
    }
}
