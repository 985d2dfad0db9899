//! Background work: extents reconciled, bits cleared, as many copies of each extent as configured.
//!
//! ```text
//! too few  -> extent alone -> one more copy, named when it is whole -> counted when a root with it is in the meta store
//! too many -> extent alone -> one is not counted any more -> freed with the root that leaves it out
//! ```
//!
//! Always true:
//! 1. A store that loses a copy does not join before the meta store has a map without it.
//! 2. One extent that nothing can be done about keeps neither the others waiting, nor the closing of the volume.

use std::rc::Rc;

use super::bitmap_io::BitmapIo;
use super::commit::MapIo;
use super::error::VolumeError;
use super::extent::ExtentEntry;
use super::image_io::ImageIo;
use super::layer_copies::LayerCopies;
use super::node_io::NodeIo;
use super::reconcile::Reconcile;
use super::record_io::RecordIo;
use super::room::Room;
use super::state::Core;

/// Extents re-replicated at a time, when it takes long.
const REREPLICATING_MAX: usize = 8;

/// Unreconciled extents that are looked at before everything else goes on.
const RECONCILED_MAX: usize = 16;

/// Looks after extents in the background.
#[derive(Clone, Copy)]
pub(super) struct Rereplicate<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Rereplicate<'a> {
    pub fn of(core: &'a Rc<Core>) -> Rereplicate<'a> {
        Rereplicate { core }
    }

    /// Reconciles extents and clears what is clean, as long as the volume is open.
    pub(super) async fn keep_clean(self) {
        let mut turn = 0_u64;
        let mut from = 0;
        while self.core.usable().is_ok() {
            turn += 1;
            let unreconciled: Vec<u32> = {
                let all = &self.core.replication.borrow().unreconciled;
                all.from(from).take(RECONCILED_MAX).collect()
            };
            from = unreconciled.last().map_or(0, |last| last.saturating_add(1));
            for index in &unreconciled {
                // Once: what cannot be reconciled now keeps nothing else waiting.
                if let Err(error) = Reconcile::of(self.core)
                    .ensure_reconciled(*index, env::now())
                    .await
                {
                    tracing::debug!(volume = %self.core.id, index, %error, "still unreconciled");
                }
            }
            if let Err(error) = BitmapIo::of(self.core).clear_dirty(false).await {
                tracing::debug!(volume = %self.core.id, %error, "dirty bits stay");
            }
            Room::of(self.core).ask_for_room().await;
            if let Err(error) = ImageIo::of(self.core).refresh_older_images(turn).await {
                tracing::debug!(volume = %self.core.id, %error, "what older images have is not known");
            }
            let filled = async {
                BitmapIo::of(self.core).choose_bitmap_replicas().await?;
                self.rereplicate_all().await?;
                let (out, copies) = {
                    let record = &self.core.volume_record();
                    (record.out.clone(), record.copies)
                };
                NodeIo::of(self.core).renew_thin_nodes(&out, copies).await?;
                RecordIo::of(self.core).raise_floor().await
            };
            if let Err(error) = filled.await {
                tracing::debug!(volume = %self.core.id, %error, "extents lack copies");
            }
            env::sleep(self.core.settings.tick).await;
        }
    }

    /// Looks at each extent once: gives those that have too few stores another one, and takes one from those that have too
    /// many. One that takes long is gone on with beside the others.
    async fn rereplicate_all(self) -> Result<(), VolumeError> {
        let mut from = 0;
        while let Some(index) = self.next_to_rereplicate(from) {
            from = index + 1;
            if self.core.extents.rereplicating.borrow().len() >= REREPLICATING_MAX {
                return Ok(());
            }
            let core = Rc::clone(self.core);
            self.core.extents.rereplicating.borrow_mut().insert(index);
            let task = env::spawn(async move {
                let done = Rereplicate::of(&core).rereplicate(index).await;
                core.extents.rereplicating.borrow_mut().remove(&index);
                done
            });
            match env::timeout(self.core.settings.timeout, task).await {
                Ok(Err(error)) if error.passes() => {
                    tracing::debug!(volume = %self.core.id, index, %error, "not the copies it should have");
                }
                Ok(other) => other?,
                Err(_) => {
                    tracing::debug!(volume = %self.core.id, index, "its copies take long to even out");
                }
            }
        }
        Ok(())
    }

    /// The first extent from there on that has too few stores or too many.
    fn next_to_rereplicate(self, from: u32) -> Option<u32> {
        let copies = usize::from(self.core.volume_record().copies);
        let extents = self.core.extents.all.borrow();
        let mut all = extents.range(from..).filter(|(index, placed)| {
            let count = |it: &Rc<ExtentEntry>| it.copies.borrow().stores.len();
            let wrong_count = match placed.is_unacknowledged() {
                true => count(placed) < copies,
                false => placed.layers().any(|it| count(&it) != copies),
            };
            wrong_count
                && !self.core.is_unreconciled(**index)
                && !self.core.extents.rereplicating.borrow().contains(*index)
        });
        all.next().map(|(index, _)| *index)
    }

    async fn rereplicate(self, index: u32) -> Result<(), VolumeError> {
        let copies = usize::from(self.core.volume_record().copies);
        let Some((_held, placed)) = self.core.lock_extent(index).await else {
            return Ok(());
        };
        if placed.is_unacknowledged() {
            // Of no use, and it would count for ever: the next change makes it anew.
            let lacks = placed.copies.borrow().stores.len() < copies;
            return match lacks {
                true => MapIo::of(self.core).forget(index, &placed).await,
                false => Ok(()),
            };
        }
        for layer in placed.layers().filter(|layer| !layer.is_unacknowledged()) {
            let count = layer.copies.borrow().stores.len();
            if count > copies && !self.core.is_shared(&layer) {
                LayerCopies::of(self.core)
                    .remove_copy(index, &placed, &layer, copies)
                    .await?;
            } else if count < copies {
                LayerCopies::of(self.core)
                    .add_copy(index, &placed, &layer)
                    .await?;
            }
        }
        Ok(())
    }
}
