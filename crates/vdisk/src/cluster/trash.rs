//! Deleted volumes are kept for a time, and can be restored.
//!
//! ```text
//! put -> another name, a record with the end of its time -> restore: a free name again
//!                                                        -> delete, or its time is over: given up -> snapshots, then the volume
//! ```
//!
//! Stores are drained, copies made anew and damage repaired as for any closed volume: by its number, its name is of no matter.
//!
//! Always true:
//! 1. Each step is one transaction: after a crash a volume is live, in the trash, or given up and gone when a node looks next.
//! 2. A volume in the trash is found by no name that is asked for.
//! 3. Nothing but the end of its time, or an operator, gives a volume up: not a store without room.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Instant, Nanos};

use super::ClusterError;
use super::node::Node;
use super::opened::Openings;
use super::overview::Overview;
use super::records::AllVolumes;
use super::seen::View;
use crate::image::records::ImagesError;
use crate::image::trash as image;
use crate::image::tree::{Versioned, delete_snapshot};
use crate::meta::whole_range;
use crate::names::{VolumeId, hex};
use crate::record::{Name, RecordError};
use crate::trash::{TRASH, TrashRecord, is_in_trash, name_in_trash, number_in_trash, trash_key};

/// A deleted volume is kept for so long.
pub const KEPT: Nanos = Nanos::secs(7 * 24 * 3600);
/// How often is looked for volumes whose time is over.
const LOOK_EVERY: Nanos = Nanos::secs(300);

/// A volume in the trash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InTrash {
    /// What it was called, who deleted it when, until when it is kept. One that nothing says that of is kept for ever.
    pub record: TrashRecord,
    /// How it is.
    pub volume: Overview,
}

impl InTrash {
    /// What it is called here: no two have the same.
    pub fn id(&self) -> Name {
        name_in_trash(self.record.volume)
    }
}

type AllTrash = BTreeMap<VolumeId, Versioned<TrashRecord>>;

fn now_ms() -> u64 {
    env::wall_clock().0 / 1_000_000
}

/// What there is of a volume in the trash without a record: an older program may have given it that name.
fn without_record(id: VolumeId) -> Versioned<TrashRecord> {
    Versioned {
        record: TrashRecord {
            ends_ms: u64::MAX,
            ..TrashRecord::new(id, name_in_trash(id))
        },
        changed: None,
    }
}

/// The trash of the cluster.
pub struct Trash {
    node: Rc<Node>,
    openings: Rc<Openings>,
    view: Rc<View>,
    /// When volumes were looked for last whose time is over.
    looked: Cell<Instant>,
}

impl Trash {
    pub(super) fn new(node: &Rc<Node>, openings: &Rc<Openings>, view: &Rc<View>) -> Rc<Trash> {
        Rc::new(Trash {
            node: Rc::clone(node),
            openings: Rc::clone(openings),
            view: Rc::clone(view),
            looked: Cell::new(env::now()),
        })
    }

    /// Puts a volume that no client uses into the trash, with its snapshots: its name is free. `by`: who asks for it.
    ///
    /// # Errors
    /// [`ClusterError::NoVolume`], [`ClusterError::Busy`], [`ClusterError::Elsewhere`].
    pub async fn put(&self, name: &Name, by: Option<String>) -> Result<TrashRecord, ClusterError> {
        let id = self.node.meta.find(name).await?;
        let _alone = self.node.slots.alone(id).await;
        self.openings.closed("delete", id).await?;
        let deleted_ms = now_ms();
        let record = TrashRecord {
            deleted_ms,
            ends_ms: deleted_ms + KEPT.0 / 1_000_000,
            by,
            ..TrashRecord::new(id, name.clone())
        };
        let put = self.node.meta.again(async || {
            // It may have another name by now.
            if self.node.meta.find(name).await? != id {
                let known = Vec::new();
                return Err(ClusterError::NoVolume {
                    name: name.clone(),
                    known,
                });
            }
            let volume = self.node.meta.images.volume(id).await?;
            let change = image::put(&volume, &record)?;
            Ok(self.node.meta.images.change(change).await?)
        });
        put.await?;
        tracing::info!(volume = %name, id = %name_in_trash(id), "in the trash");
        Ok(record)
    }

    /// What is in the trash: what was deleted last comes last.
    ///
    /// # Errors
    /// [`ClusterError::Meta`], [`ClusterError::Record`].
    pub async fn list(&self) -> Result<Vec<InTrash>, ClusterError> {
        let records = self.records().await?;
        let volumes = self.view.list_in_trash().await?.into_iter();
        let found = volumes.map(|volume| {
            let id = volume.record.id;
            let record = match records.get(&id) {
                Some(known) => known.record.clone(),
                None => without_record(id).record,
            };
            InTrash { record, volume }
        });
        let mut all: Vec<InTrash> = found.collect();
        all.sort_by_key(|it| (it.record.deleted_ms, it.record.volume));
        Ok(all)
    }

    /// Takes a volume out of the trash, under the name that it had or `new`. `which`: that name, or what it is called in the trash.
    ///
    /// # Errors
    /// [`ClusterError::NotInTrash`], [`ClusterError::SeveralInTrash`], [`ClusterError::Exists`]; [`ClusterError::Images`] if it
    /// is being deleted.
    pub async fn restore(
        &self,
        which: &Name,
        new: Option<&Name>,
    ) -> Result<Overview, ClusterError> {
        let found = self.find(which).await?;
        let id = found.volume.record.id;
        let name = new.unwrap_or(&found.record.name);
        self.node.meta.check_free(name).await?;
        let _alone = self.node.slots.alone(id).await;
        self.openings.closed("restore", id).await?;
        let restored = self.node.meta.again(async || {
            self.node.meta.check_free(name).await?;
            let (volume, trash) = self.known(id, which).await?;
            let change = image::restore(&volume, &trash, name)?;
            Ok(self.node.meta.images.change(change).await?)
        });
        restored.await?;
        tracing::info!(volume = %name, id = %name_in_trash(id), "restored");
        self.view.overview(name).await
    }

    /// Deletes a volume in the trash for good, with its snapshots; its room comes back by and by. If its copies are just being
    /// made anew it is given up all the same, and goes when a node looks next.
    ///
    /// # Errors
    /// [`ClusterError::NotInTrash`], [`ClusterError::SeveralInTrash`]; nothing was changed then.
    pub async fn delete(&self, which: &Name) -> Result<(), ClusterError> {
        let found = self.find(which).await?;
        let id = found.volume.record.id;
        if !self.give_up(id, |_| true).await? {
            return Ok(());
        }
        if let Err(error) = self.delete_for_good(id).await {
            tracing::info!(id = %name_in_trash(id), %error, "not deleted yet; it is tried again");
        }
        Ok(())
    }

    /// The volume that this name stands for.
    async fn find(&self, which: &Name) -> Result<InTrash, ClusterError> {
        let mut all = self.list().await?;
        let known = all.iter().map(|it| it.record.name.clone()).collect();
        let id = number_in_trash(which);
        all.retain(|it| it.record.name == *which || id == Some(it.record.volume));
        match (all.pop(), all.is_empty()) {
            (Some(found), true) => Ok(found),
            (Some(last), false) => {
                let all = all.iter().chain([&last]);
                let (name, ids) = (which.clone(), all.map(InTrash::id).collect());
                Err(ClusterError::SeveralInTrash { name, ids })
            }
            (None, _) => {
                let name = which.clone();
                Err(ClusterError::NotInTrash { name, known })
            }
        }
    }

    async fn records(&self) -> Result<AllTrash, ClusterError> {
        let (entries, _) = whole_range(&*self.node.meta.images.meta, TRASH).await?;
        let mut records = AllTrash::new();
        for entry in entries {
            let number = entry.key.strip_prefix(TRASH).and_then(|text| hex(text, 8));
            let id = number
                .map(|number| VolumeId(number as u32))
                .ok_or_else(|| {
                    RecordError::malformed(&format!("the key {}", entry.key), "no volume has it")
                })?;
            let record = TrashRecord::decode(id, &entry.value)?;
            let changed = Some(entry.changed);
            records.insert(id, Versioned { record, changed });
        }
        Ok(records)
    }

    /// Both records of a volume that is in the trash still.
    async fn known(
        &self,
        id: VolumeId,
        which: &Name,
    ) -> Result<
        (
            Versioned<crate::record::VolumeRecord>,
            Versioned<TrashRecord>,
        ),
        ClusterError,
    > {
        let gone = || ClusterError::NotInTrash {
            name: which.clone(),
            known: Vec::new(),
        };
        let volume = match self.node.meta.images.volume(id).await {
            Err(ImagesError::Missing(_)) => return Err(gone()),
            other => other?,
        };
        if !is_in_trash(&volume.record) {
            return Err(gone());
        }
        let trash = match self.node.meta.images.meta.get(&trash_key(id)).await? {
            Some(entry) => Versioned {
                record: TrashRecord::decode(id, &entry.value)?,
                changed: Some(entry.changed),
            },
            None => without_record(id),
        };
        Ok((volume, trash))
    }

    /// Gives a volume up, if its record is so. Is it given up now?
    async fn give_up(
        &self,
        id: VolumeId,
        is_meant: impl Fn(&TrashRecord) -> bool,
    ) -> Result<bool, ClusterError> {
        let which = name_in_trash(id);
        let given_up = self.node.meta.again(async || {
            let (volume, trash) = self.known(id, &which).await?;
            if trash.record.deleting || !is_meant(&trash.record) {
                return Ok(trash.record.deleting);
            }
            let change = image::give_up(&volume, &trash);
            self.node.meta.images.change(change).await?;
            Ok(true)
        });
        given_up.await
    }

    /// Removes a volume that was given up. What a node that crashed began is completed.
    async fn delete_for_good(&self, id: VolumeId) -> Result<(), ClusterError> {
        let which = name_in_trash(id);
        let _alone = self.node.slots.alone(id).await;
        self.openings.closed("delete", id).await?;
        self.delete_snapshots(id).await?;
        let deleted = self.node.meta.again(async || {
            let (volume, trash) = self.known(id, &which).await?;
            let head = self.node.meta.images.image(volume.record.head).await?;
            let count = self.node.meta.images.snapshots(id).await?;
            let change = image::delete(&volume, &head, count, &trash)?;
            Ok(self.node.meta.images.change(change).await?)
        });
        deleted.await?;
        tracing::info!(id = %which, "deleted for good");
        Ok(())
    }

    async fn delete_snapshots(&self, id: VolumeId) -> Result<(), ClusterError> {
        for image in self.node.meta.snapshots(id).await?.into_values() {
            let deleted = self.node.meta.again(async || {
                let known = self.node.meta.images.image(image).await?;
                let change = delete_snapshot(&known)?;
                Ok(self.node.meta.images.change(change).await?)
            });
            deleted.await?;
        }
        Ok(())
    }

    /// Removes volumes whose time is over, now and then and on one node: the first by name of those that are up.
    pub(super) async fn empty_now_and_then(&self) {
        if env::now().since(self.looked.get()) < LOOK_EVERY {
            return;
        }
        self.looked.set(env::now());
        if let Err(error) = self.empty().await {
            tracing::debug!(%error, "the trash was not looked through");
        }
    }

    async fn empty(&self) -> Result<(), ClusterError> {
        let trash = self.records().await?;
        if trash.is_empty() {
            return Ok(());
        }
        let alive = self.node.stores.alive().await?;
        let own = self.node.name().as_str();
        if alive.first().is_none_or(|first| first != own) {
            return Ok(());
        }
        let volumes = self.node.meta.volumes().await?;
        for (id, known) in trash {
            if let Err(error) = self.look_at(id, &known, &volumes).await {
                tracing::info!(id = %name_in_trash(id), %error, "not deleted yet; it is tried again");
            }
        }
        Ok(())
    }

    async fn look_at(
        &self,
        id: VolumeId,
        known: &Versioned<TrashRecord>,
        volumes: &AllVolumes,
    ) -> Result<(), ClusterError> {
        let volume = volumes.get(&id);
        if volume.is_none_or(|it| !is_in_trash(&it.record)) {
            let change = image::forget(id, volume, known);
            return Ok(self.node.meta.images.change(change).await?);
        }
        match known.record.is_over(now_ms()) {
            true if self.give_up(id, |it| it.is_over(now_ms())).await? => {
                self.delete_for_good(id).await
            }
            _ => Ok(()),
        }
    }
}
