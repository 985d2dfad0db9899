//! What operators do with volumes: make, look, copy, go back, remove.
//!
//! Always true:
//! 1. What is answered as done is in the meta store.
//! 2. A volume in use is changed by its engine alone.

use std::rc::Rc;

use super::ClusterError;
use super::forward::{Forward, Request};
use super::local::LocalVolumes;
use super::node::Node;
use super::opened::Openings;
use super::overview::Overview;
use super::seen::View;
use super::set::Setting;
use super::stores::active_domains;
use crate::image::tree::{self as image, Change, ImageError};
use crate::meta::{Compare, Op};
use crate::record::{
    Fairness, Name, OnMetaLoss, PriorityClass, Terms, VolumeRecord, check_size, volume_key,
    volume_name_key,
};

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

/// What operators do.
pub struct Volumes {
    node: Rc<Node>,
    openings: Rc<Openings>,
    local: Rc<LocalVolumes>,
    forward: Rc<Forward>,
    view: Rc<View>,
}

impl Volumes {
    pub(super) fn new(
        node: &Rc<Node>,
        openings: &Rc<Openings>,
        local: &Rc<LocalVolumes>,
        forward: &Rc<Forward>,
        view: &Rc<View>,
    ) -> Volumes {
        Volumes {
            node: Rc::clone(node),
            openings: Rc::clone(openings),
            local: Rc::clone(local),
            forward: Rc::clone(forward),
            view: Rc::clone(view),
        }
    }

    /// Makes a volume with nothing in it.
    ///
    /// # Errors
    /// [`ClusterError::Exists`], [`ClusterError::TooFewDomains`], and what [`image::create`] refuses.
    pub async fn create(&self, new: &NewVolume) -> Result<Overview, ClusterError> {
        let created = self.node.meta.again(async || {
            let domains = active_domains(&self.node.stores.all().await?, None);
            let copies = new.copies.unwrap_or(if domains < 2 { 1 } else { 2 });
            let min_isr = new.min_isr.unwrap_or(if copies > 2 { 2 } else { 1 });
            self.node.meta.check_free(&new.name).await?;
            let numbers = self.node.meta.images.numbers().await?;
            let made = image::create(&numbers, new.name.clone(), new.size, copies, min_isr);
            let (record, mut change) = made?;
            if domains < usize::from(copies) {
                return Err(ClusterError::TooFewDomains { copies, domains });
            }
            let terms = Terms {
                priority: new.priority,
                fairness: new.fairness,
                reservation: new.holder.clone(),
                on_meta_loss: new.on_meta_loss,
                ..record.terms
            };
            let record = VolumeRecord { terms, ..record };
            replace(&mut change, &record);
            self.node.meta.images.change(change).await?;
            Ok(record)
        });
        self.view.overview(&created.await?.name).await
    }

    /// Gives a volume that no client uses another name.
    ///
    /// # Errors
    /// [`ClusterError::Exists`], [`ClusterError::Busy`], [`ClusterError::Elsewhere`].
    pub async fn rename(&self, name: &Name, new: &Name) -> Result<Overview, ClusterError> {
        let id = self.node.meta.find(name).await?;
        let _alone = self.node.slots.alone(id).await;
        self.openings.closed("rename", id).await?;
        let renamed = self.node.meta.again(async || {
            self.node.meta.check_free(new).await?;
            // Another node may have deleted it, and given its name to another one.
            let known = self.node.meta.images.volume(id).await?;
            if known.record.name != *name {
                return Err(ClusterError::NoVolume {
                    name: name.clone(),
                    known: Vec::new(),
                });
            }
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
            self.node.meta.txn(compares, ops).await
        });
        renamed.await?;
        self.view.overview(new).await
    }

    /// Removes a volume that no client uses; its room comes back by and by.
    ///
    /// # Errors
    /// [`ClusterError::Busy`], [`ClusterError::Elsewhere`]; [`ClusterError::Images`] if it has snapshots.
    pub async fn remove(&self, name: &Name) -> Result<(), ClusterError> {
        let id = self.node.meta.find(name).await?;
        let _alone = self.node.slots.alone(id).await;
        self.openings.closed("remove", id).await?;
        self.node
            .meta
            .again(async || {
                let volume = self.node.meta.images.volume(id).await?;
                let head = self.node.meta.images.image(volume.record.head).await?;
                let count = self.node.meta.images.snapshots(id).await?;
                let change = image::delete_volume(&volume, &head, count)?;
                Ok(self.node.meta.images.change(change).await?)
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
        let cloned = self.node.meta.again(async || {
            self.node.meta.check_free(new).await?;
            let (id, image) = self.node.meta.find_snapshot(volume, snapshot).await?;
            let source = self.node.meta.images.image(image).await?;
            let of = self.node.meta.images.volume(id).await?;
            let numbers = self.node.meta.images.numbers().await?;
            let (_, change) = image::clone(&numbers, &source, &of, new.clone())?;
            Ok(self.node.meta.images.change(change).await?)
        });
        cloned.await?;
        self.view.overview(new).await
    }

    /// Lets a volume that no client uses go on from one of its snapshots.
    ///
    /// # Errors
    /// [`ClusterError::NoSnapshot`], [`ClusterError::Busy`], [`ClusterError::Elsewhere`].
    pub async fn rollback(&self, volume: &Name, snapshot: &Name) -> Result<Overview, ClusterError> {
        let id = self.node.meta.find(volume).await?;
        let _alone = self.node.slots.alone(id).await;
        self.openings.closed("roll back", id).await?;
        let back = self.node.meta.again(async || {
            let (_, target) = self.node.meta.find_snapshot(volume, snapshot).await?;
            let numbers = self.node.meta.images.numbers().await?;
            let known = self.node.meta.images.volume(id).await?;
            let head = self.node.meta.images.image(known.record.head).await?;
            let target = self.node.meta.images.image(target).await?;
            let (_, change) = image::rollback(&numbers, &known, &head, &target)?;
            Ok(self.node.meta.images.change(change).await?)
        });
        back.await?;
        self.view.overview(volume).await
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
        self.node
            .meta
            .again(async || {
                let (_, image) = self.node.meta.find_snapshot(volume, snapshot).await?;
                let image = self.node.meta.images.image(image).await?;
                let change = image::delete_snapshot(&image)?;
                Ok(self.node.meta.images.change(change).await?)
            })
            .await
    }

    /// Keeps a volume as it is now under a name; it may be in use, also on another node.
    ///
    /// # Errors
    /// [`ClusterError::SnapshotExists`], [`ClusterError::Elsewhere`]; [`ClusterError::Volume`] if it cannot be opened, or not
    /// everything be made durable.
    pub async fn snapshot(&self, volume: &Name, name: &Name) -> Result<Overview, ClusterError> {
        let id = self.node.meta.find(volume).await?;
        let request = Request::Snapshot { name: name.clone() };
        if !self.forward.forward(volume, id, request).await? {
            self.local.snapshot(id, volume, name).await?;
        }
        self.view.overview(volume).await
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
        let id = self.node.meta.find(name).await?;
        if let Err(why) = check_size(size) {
            let name = name.clone();
            return Err(ImageError::Size { name, why }.into());
        }
        let request = Request::Resize { size, shrink };
        if !self.forward.forward(name, id, request).await? {
            self.local.resize(id, name, size, shrink).await?;
        }
        self.view.overview(name).await
    }

    /// Sets something of a volume, which may be in use, also on another node; it is in force at once.
    ///
    /// # Errors
    /// [`ClusterError::NoVolume`], [`ClusterError::MinCopies`], [`ClusterError::Elsewhere`]; [`ClusterError::Volume`] if it was
    /// left open and cannot be opened.
    pub async fn set(&self, name: &Name, setting: &Setting) -> Result<Overview, ClusterError> {
        let id = self.node.meta.find(name).await?;
        let record = self.node.meta.images.volume(id).await?.record;
        setting.check(&record, |holder| self.node.stores.booked(holder))?;
        if !self.forward.forward(name, id, setting.into()).await? {
            self.local.set(id, setting).await?;
        }
        self.view.overview(name).await
    }
}
