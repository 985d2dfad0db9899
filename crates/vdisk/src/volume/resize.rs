//! Another size of the volume.
//!
//! ```text
//! larger    one transaction
//! smaller   ranges behind the end held -> extents there dropped, the rest of the last one zeroed -> committed -> one transaction
//! ```
//!
//! Always true: behind the end of a volume there are zeroes, whatever was there before it became smaller.

use std::rc::Rc;

use super::commit::MapIo;
use super::error::VolumeError;
#[cfg(test)]
use super::life::Mutation;
use super::pieces::ExtentRange;
use super::reconcile::Reconcile;
use super::record_io::RecordIo;
use super::spread::Tried;
use super::state::Core;
use super::users::UserId;
use super::write::Writes;
use crate::image::tree::{self as image};
use crate::names::EXTENT;
use crate::record::extents;

/// Gives the volume another size.
#[derive(Clone, Copy)]
pub(super) struct Resize<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Resize<'a> {
    pub fn of(core: &'a Rc<Core>) -> Resize<'a> {
        Resize { core }
    }

    pub(super) async fn resize(self, size: u64) -> Result<(), VolumeError> {
        crate::record::check_size(size).map_err(|why| self.core.image_error(&why))?;
        // From the beginning of the extent in which it ends.
        let _held = self
            .core
            .locks
            .ranges
            .take(size / EXTENT * EXTENT..u64::MAX, true)
            .await;
        if size < self.core.size().0 {
            self.drop_behind(size).await?;
        }
        RecordIo::of(self.core)
            .change_head(|volume, head| {
                if head.record.size == size {
                    return Ok(None);
                }
                let resized = image::resize(volume, head, size);
                resized
                    .map(Some)
                    .map_err(|error| self.core.image_error(&error))
            })
            .await?;
        let resized = self.core.maps.head.resize(extents(size)).await;
        resized.map_err(|error| self.core.map_error(&error))
    }

    /// Drops the extents behind that size, and makes zeroes of the rest of the last one.
    async fn drop_behind(self, size: u64) -> Result<(), VolumeError> {
        let first = (size / EXTENT) as u32;
        Reconcile::of(self.core).settle_from(first).await?;
        #[cfg(test)]
        if self.core.mutated(Mutation::KeepsBehind) {
            return Ok(());
        }
        if !size.is_multiple_of(EXTENT) {
            self.zero_behind(first, size % EXTENT).await?;
        }
        let behind = extents(size);
        let all: Vec<u32> = self
            .core
            .extents
            .all
            .borrow()
            .range(behind..)
            .map(|it| *it.0)
            .collect();
        for index in all {
            let removed = self.core.maps.head.remove(index).await;
            removed.map_err(|error| self.core.map_error(&error))?;
            self.core.replication.borrow_mut().changes.forget(index);
            self.core.extents.all.borrow_mut().remove(&index);
        }
        MapIo::of(self.core).commit().await
    }

    /// Makes zeroes in an extent from there on. Its range is the caller's alone.
    async fn zero_behind(self, index: u32, from: u64) -> Result<(), VolumeError> {
        let deadline = env::now() + self.core.settings.deadline;
        let piece = ExtentRange {
            index,
            from,
            len: EXTENT - from,
            user: UserId::OWN,
        };
        let mut tries = 0;
        while self.core.extents.placed(index).is_some() {
            let error = match Writes::of(self.core).try_change(piece, None).await {
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
            self.core.pause(&mut tries).await;
            Reconcile::of(self.core).settle_from(index).await?;
        }
        Ok(())
    }
}
