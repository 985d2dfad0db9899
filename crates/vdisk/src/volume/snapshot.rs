//! The volume as it is at one moment, kept; and another size.
//!
//! ```text
//! snapshot  all ranges held -> unreconciled extents reconciled -> map committed -> dirty bits cleared -> one transaction
//! larger    one transaction
//! smaller   ranges behind the end held -> extents there dropped, the rest of the last one zeroed -> committed -> one transaction
//! ```
//!
//! Always true:
//! 1. The copies of what a snapshot has are equal, and each is there: nothing reconciles them ever again.
//! 2. Nothing is changed while it is not known whether a snapshot was taken.
//! 3. Behind the end of a volume there are zeroes, whatever was there before it became smaller.

use std::rc::Rc;

use base::{Bytes, Nanos};

use super::io::{ExtentRange, Tried};
use super::users::UserId;
use super::{Core, Volume, VolumeError};
use crate::image::tree::{
    self as image, ImageRecord, NUMBERS_KEY, Numbers, Versioned, image_key, snapshot_key,
};
use crate::meta::{MetaError, Outcome};
use crate::names::{EXTENT, ImageId};
use crate::record::{Name, extents};

impl Volume {
    /// Keeps what the volume holds now as a snapshot, and goes on. Requests wait meanwhile. Answers the snapshot's image.
    ///
    /// # Errors
    /// [`VolumeError`]; nothing was kept then. With [`VolumeError::Fenced`] and [`VolumeError::Closed`] it may have been.
    pub async fn snapshot(&self, name: Name) -> Result<ImageId, VolumeError> {
        let core = Rc::clone(&self.core);
        env::spawn(async move { core.snapshot(name).await }).await
    }

    /// Gives the volume another size. What lies behind a lesser one is gone, and with an error some of it may be.
    ///
    /// # Errors
    /// [`VolumeError::Image`] for a size that cannot be; whatever else stands in the way.
    pub async fn resize(&self, size: Bytes) -> Result<(), VolumeError> {
        let core = Rc::clone(&self.core);
        env::spawn(async move { core.resize(size.0).await }).await
    }
}

impl Core {
    pub(super) fn image_error(&self, why: &impl ToString) -> VolumeError {
        VolumeError::Image {
            volume: self.id,
            why: why.to_string(),
        }
    }

    async fn snapshot(self: Rc<Self>, name: Name) -> Result<ImageId, VolumeError> {
        let _all = self.ranges.take(0..u64::MAX, true).await;
        #[cfg(test)]
        let unreconciled = self.mutated(super::Mutation::UnreconciledSnapshot);
        #[cfg(not(test))]
        let unreconciled = false;
        if !unreconciled {
            self.settle_from(0).await?;
        }
        self.drop_unacknowledged().await?;
        self.commit().await?;
        self.clear_dirty(true).await?;
        let older_images = self.head.borrow().record.id;
        self.keep_head(name).await?;
        let since = self.head.borrow().record.since;
        self.map.set_since(since);
        self.scan_floor.set(self.scan_floor.get().max(since));
        self.add_head_to_older();
        Ok(older_images)
    }

    /// Makes all copies equal of extents from there on. Their ranges are the caller's alone.
    async fn settle_from(&self, first: u32) -> Result<(), VolumeError> {
        let deadline = env::now() + self.settings.deadline;
        let mut tries = 0;
        loop {
            self.usable()?;
            let next = self
                .unreconciled
                .borrow()
                .range(first..)
                .next()
                .map(|it| *it.0);
            let Some(index) = next else {
                return Ok(());
            };
            match self.reconcile(index).await {
                Ok(()) => drop(self.unreconciled.borrow_mut().remove(&index)),
                Err(error) if !error.passes() || env::now() >= deadline => return Err(error),
                Err(_) => self.pause(&mut tries).await,
            }
        }
    }

    /// Gives up extents of which nothing was answered: a clone could not know that they may be nowhere. All ranges are the
    /// caller's.
    pub(super) async fn drop_unacknowledged(&self) -> Result<(), VolumeError> {
        let unacknowledged = |(index, it): (&u32, &Rc<super::ExtentEntry>)| {
            it.unacknowledged.get().then(|| (*index, Rc::clone(it)))
        };
        let unacknowledged: Vec<_> = self
            .extents
            .borrow()
            .iter()
            .filter_map(unacknowledged)
            .collect();
        for (index, placed) in unacknowledged {
            self.forget(index, &placed).await?;
        }
        Ok(())
    }

    /// Makes a snapshot of the head, and goes on with a new one.
    async fn keep_head(&self, name: Name) -> Result<(), VolumeError> {
        let _one = self.changing.acquire(1).await;
        let deadline = env::now() + self.settings.deadline;
        let mut unknown = false;
        loop {
            self.usable()?;
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
    async fn try_to_keep(&self, name: &Name, unknown: &mut bool) -> Result<bool, VolumeError> {
        if *unknown && self.was_kept().await? {
            return Ok(true);
        }
        let failed = |error: MetaError| self.meta_error(error);
        let numbers = match self.meta.get(NUMBERS_KEY).await.map_err(failed)? {
            Some(found) => Versioned {
                record: Numbers::decode(&found.value)?,
                changed: Some(found.changed),
            },
            None => Versioned {
                record: Numbers::first(),
                changed: None,
            },
        };
        let head = self.head.borrow().clone();
        let (record, changed) = self.record.borrow().clone();
        let volume = Versioned {
            record,
            changed: Some(changed),
        };
        let made = image::snapshot(&numbers, &volume, &head, name.clone());
        let (new_head, change) = made.map_err(|error| self.image_error(&error))?;
        match self.meta.txn(change.compares, change.ops).await {
            Ok(Outcome::Done(revision)) => {
                self.go_on_with(new_head, revision);
                Ok(true)
            }
            Ok(Outcome::Refused(_)) => {
                if self.was_kept().await? {
                    return Ok(true);
                }
                *unknown = false;
                let key = snapshot_key(self.id, name);
                match self.meta.get(&key).await.map_err(failed)? {
                    Some(_) => Err(self.image_error(&format!("it has a snapshot {name} already"))),
                    None => Ok(false),
                }
            }
            Err(error) => {
                *unknown |= matches!(error, MetaError::Unknown { .. });
                Err(self.meta_error(error))
            }
        }
    }

    fn go_on_with(&self, head: ImageRecord, revision: crate::meta::Revision) {
        let mut record = self.record.borrow_mut();
        record.0.head = head.id;
        record.1 = revision;
        *self.head.borrow_mut() = Versioned {
            record: head,
            changed: Some(revision),
        };
    }

    /// Reads what the meta store has now: does the volume go on with a new head?
    async fn was_kept(&self) -> Result<bool, VolumeError> {
        let found = self.meta.get(&self.key).await;
        let found = found.map_err(|error| self.meta_error(error))?;
        self.check_epoch(found.as_ref())?;
        let before = self.head.borrow().record.id;
        let entry = found.as_ref().expect("checked");
        let now = crate::record::VolumeRecord::decode(self.id, &entry.value)?.head;
        let head = self.meta.get(&image_key(now)).await;
        let head = head.map_err(|error| self.meta_error(error))?;
        if now == before {
            self.learn(found.as_ref())?;
            self.learn_head(head.as_ref())?;
            return Ok(false);
        }
        let Some(head) = head else {
            return Err(self.fence("its head is gone"));
        };
        let record = ImageRecord::decode(now, &head.value)?;
        self.learn(found.as_ref())?;
        *self.head.borrow_mut() = Versioned {
            record,
            changed: Some(head.changed),
        };
        Ok(true)
    }

    // --- sizes ------------------------------------------------------------------------------------------------

    async fn resize(self: Rc<Self>, size: u64) -> Result<(), VolumeError> {
        crate::record::check_size(size).map_err(|why| self.image_error(&why))?;
        // From the beginning of the extent in which it ends.
        let _held = self
            .ranges
            .take(size / EXTENT * EXTENT..u64::MAX, true)
            .await;
        if size < self.size().0 {
            self.drop_behind(size).await?;
        }
        self.change_head(|volume, head| {
            if head.record.size == size {
                return Ok(None);
            }
            let resized = image::resize(volume, head, size);
            resized.map(Some).map_err(|error| self.image_error(&error))
        })
        .await?;
        let resized = self.map.resize(extents(size)).await;
        resized.map_err(|error| self.map_error(&error))
    }

    /// Drops the extents behind that size, and makes zeroes of the rest of the last one.
    async fn drop_behind(self: &Rc<Self>, size: u64) -> Result<(), VolumeError> {
        let first = (size / EXTENT) as u32;
        self.settle_from(first).await?;
        #[cfg(test)]
        if self.mutated(super::Mutation::KeepsBehind) {
            return Ok(());
        }
        if !size.is_multiple_of(EXTENT) {
            self.zero_behind(first, size % EXTENT).await?;
        }
        let behind = extents(size);
        let all: Vec<u32> = self
            .extents
            .borrow()
            .range(behind..)
            .map(|it| *it.0)
            .collect();
        for index in all {
            let removed = self.map.remove(index).await;
            removed.map_err(|error| self.map_error(&error))?;
            self.forgotten(index);
            self.extents.borrow_mut().remove(&index);
        }
        self.commit().await
    }

    /// Makes zeroes in an extent from there on. Its range is the caller's alone.
    async fn zero_behind(self: &Rc<Self>, index: u32, from: u64) -> Result<(), VolumeError> {
        let deadline = env::now() + self.settings.deadline;
        let piece = ExtentRange {
            index,
            from,
            len: EXTENT - from,
            user: UserId::OWN,
        };
        let mut tries = 0;
        while self.placed(index).is_some() {
            let error = match self.try_change(piece, None).await {
                Ok(Tried::Done) => return Ok(()),
                Ok(
                    Tried::Again(error)
                    | Tried::Indeterminate(error)
                    | Tried::TooFew(error)
                    | Tried::GivenUp(error),
                )
                | Err(error) => error,
            };
            if !error.passes() || env::now() >= deadline {
                return Err(error);
            }
            self.pause(&mut tries).await;
            self.settle_from(index).await?;
        }
        Ok(())
    }
}
