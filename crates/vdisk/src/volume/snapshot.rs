//! The volume as it is at one moment, kept.
//!
//! ```text
//! all ranges held -> unreconciled extents reconciled -> map committed -> dirty bits cleared -> one transaction
//! ```
//!
//! Always true:
//! 1. The copies of what a snapshot has are equal, and each is there: nothing reconciles them ever again.
//! 2. Nothing is changed while it is not known whether a snapshot was taken.

use std::rc::Rc;

use base::Nanos;

use super::bitmap_io::BitmapIo;
use super::commit::MapIo;
use super::error::VolumeError;
use super::image_io::ImageIo;
#[cfg(test)]
use super::life::Mutation;
use super::reconcile::Reconcile;
use super::record_io::RecordIo;
use super::state::Core;
use crate::image::tree::{
    self as image, ImageRecord, NUMBERS_KEY, Numbers, Versioned, image_key, snapshot_key,
};
use crate::meta::{MetaError, Outcome};
use crate::names::ImageId;
use crate::record::Name;

/// Takes snapshots.
#[derive(Clone, Copy)]
pub(super) struct Snapshots<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Snapshots<'a> {
    pub fn of(core: &'a Rc<Core>) -> Snapshots<'a> {
        Snapshots { core }
    }

    pub(super) async fn snapshot(self, name: Name) -> Result<ImageId, VolumeError> {
        let _all = self.core.locks.ranges.take(0..u64::MAX, true).await;
        #[cfg(test)]
        let unreconciled = self.core.mutated(Mutation::UnreconciledSnapshot);
        #[cfg(not(test))]
        let unreconciled = false;
        if !unreconciled {
            Reconcile::of(self.core).settle_from(0).await?;
        }
        MapIo::of(self.core).drop_unacknowledged().await?;
        MapIo::of(self.core).commit().await?;
        BitmapIo::of(self.core).clear_dirty(true).await?;
        let older_images = self.core.record.head.borrow().record.id;
        self.keep_head(name).await?;
        let since = self.core.record.head.borrow().record.since;
        self.core.maps.head.set_since(since);
        let replication = &self.core.replication;
        replication.borrow_mut().changes.raise_scan_floor(since);
        ImageIo::of(self.core).add_head_to_older();
        Ok(older_images)
    }

    /// Makes a snapshot of the head, and goes on with a new one.
    async fn keep_head(self, name: Name) -> Result<(), VolumeError> {
        let _one = self.core.record.changing.acquire(1).await;
        let deadline = env::now() + self.core.settings.deadline;
        let mut unknown = false;
        loop {
            self.core.usable()?;
            let failed = match self.try_to_keep(&name, &mut unknown).await {
                Ok(true) => return Ok(()),
                Ok(false) => continue,
                Err(error) => error,
            };
            let over = env::now() >= deadline || !matches!(failed, VolumeError::Meta { .. });
            if !failed.passes() || (over && !unknown) {
                return Err(failed);
            }
            env::sleep(Nanos::millis(100)).await;
        }
    }

    /// One transaction. `unknown`: one that was asked for may have come about, or may yet.
    async fn try_to_keep(self, name: &Name, unknown: &mut bool) -> Result<bool, VolumeError> {
        if *unknown && self.was_kept().await? {
            return Ok(true);
        }
        let failed = |error: MetaError| self.core.meta_error(error);
        let numbers = match self.core.meta.get(NUMBERS_KEY).await.map_err(failed)? {
            Some(found) => Versioned {
                record: Numbers::decode(&found.value)?,
                changed: Some(found.changed),
            },
            None => Versioned {
                record: Numbers::first(),
                changed: None,
            },
        };
        let head = self.core.record.head.borrow().clone();
        let volume = self.core.versioned_record();
        let made = image::snapshot(&numbers, &volume, &head, name.clone());
        let (new_head, change) = made.map_err(|error| self.core.image_error(&error))?;
        match self.core.meta.txn(change.compares, change.ops).await {
            Ok(Outcome::Done(revision)) => {
                self.go_on_with(new_head, revision);
                Ok(true)
            }
            Ok(Outcome::Refused(_)) => {
                if self.was_kept().await? {
                    return Ok(true);
                }
                *unknown = false;
                let key = snapshot_key(self.core.id, name);
                match self.core.meta.get(&key).await.map_err(failed)? {
                    Some(_) => Err(self
                        .core
                        .image_error(&format!("it has a snapshot {name} already"))),
                    None => Ok(false),
                }
            }
            Err(error) => {
                *unknown |= matches!(error, MetaError::Unknown { .. });
                Err(self.core.meta_error(error))
            }
        }
    }

    fn go_on_with(self, head: ImageRecord, revision: crate::meta::Revision) {
        let record = &mut self.core.replication.borrow_mut().record;
        record.goes_on_with(head.id, revision);
        *self.core.record.head.borrow_mut() = Versioned {
            record: head,
            changed: Some(revision),
        };
    }

    /// Reads what the meta store has now: does the volume go on with a new head?
    async fn was_kept(self) -> Result<bool, VolumeError> {
        let found = self.core.meta.get(&self.core.record.key).await;
        let found = found.map_err(|error| self.core.meta_error(error))?;
        RecordIo::of(self.core).check_epoch(found.as_ref())?;
        let before = self.core.record.head.borrow().record.id;
        let entry = found.as_ref().expect("checked");
        let now = crate::record::VolumeRecord::decode(self.core.id, &entry.value)?.head;
        let head = self.core.meta.get(&image_key(now)).await;
        let head = head.map_err(|error| self.core.meta_error(error))?;
        if now == before {
            RecordIo::of(self.core).learn(found.as_ref())?;
            RecordIo::of(self.core).learn_head(head.as_ref())?;
            return Ok(false);
        }
        let Some(head) = head else {
            return Err(self.core.fence("its head is gone"));
        };
        let record = ImageRecord::decode(now, &head.value)?;
        RecordIo::of(self.core).learn(found.as_ref())?;
        *self.core.record.head.borrow_mut() = Versioned {
            record,
            changed: Some(head.changed),
        };
        Ok(true)
    }
}
