//! Writes of a volume, piece by piece.
//!
//! ```text
//! a request -> pieces within one extent each -> tried until it is answered, or for `deadline`
//! ```
//!
//! Always true:
//! 1. Stores for a new extent are noted before the first byte is sent to any of them.
//! 2. Of two changes of the same bytes the one that came first is over before the other one begins, however often it is tried: one
//!    that its client gave up long ago cannot land on what was answered later.

use std::rc::Rc;

use base::{Instant, View};
use env::sync::join_all;

use super::bitmap_io::BitmapIo;
use super::commit::MapIo;
use super::error::VolumeError;
use super::extent::ExtentEntry;
#[cfg(test)]
use super::life::Mutation;
use super::overlay::Overlay;
use super::pieces::{ExtentRange, extent_ranges};
use super::ranges::RangeLock;
use super::reconcile::Reconcile;
use super::record_io::RecordIo;
use super::replica::SyncState;
use super::room::Room;
use super::spread::{Spread, Tried};
use super::state::Core;
use super::users::UserId;
use crate::names::{EXTENT, ExtentName};
use crate::replica::connect::ConnectionError;

/// Carries out what clients change.
#[derive(Clone, Copy)]
pub(super) struct Writes<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Writes<'a> {
    pub fn of(core: &'a Rc<Core>) -> Writes<'a> {
        Writes { core }
    }

    /// Writes, or makes zeroes of (`None`).
    pub(super) async fn change(
        self,
        at: u64,
        len: u64,
        data: Option<View>,
        user: UserId,
    ) -> Result<(), VolumeError> {
        let longest = match data {
            Some(_) => self.core.replicas.write_max.get(),
            None => EXTENT,
        };
        let all = extent_ranges(at, len, longest, user).into_iter();
        let changes = all.map(|(done, piece)| {
            let data = data.as_ref();
            let data = data.map(|data| data.slice(done as usize, piece.len as usize));
            self.change_piece(piece, data)
        });
        for answer in join_all(changes.collect::<Vec<_>>()).await {
            answer?;
        }
        Ok(())
    }

    async fn change_piece(self, piece: ExtentRange, data: Option<View>) -> Result<(), VolumeError> {
        let begun = env::now();
        let deadline = begun + self.core.settings.deadline;
        let turn = self.turn(piece, deadline).await?;
        let mut tries = 0;
        loop {
            match Reconcile::of(self.core)
                .ensure_reconciled(piece.index, deadline)
                .await
            {
                Ok(()) => {}
                Err(error) if !error.passes() || self.core.is_late(deadline, &error) => {
                    return Err(error);
                }
                Err(_) => {
                    self.core.pause(&mut tries).await;
                    continue;
                }
            }
            let index = piece.index;
            let Some(held) = self.lock(piece).await else {
                continue;
            };
            self.core.within_size(piece.range(false).end)?;
            let tried = match data.is_none() && self.core.extents.placed(index).is_none() {
                // What was given up and never answered must not come back after that.
                true if self.core.is_forgotten(index) => {
                    MapIo::of(self.core).commit().await.map(|()| Tried::Done)
                }
                true => return Ok(()),
                false => self.try_change(piece, data.clone()).await,
            };
            let error = match tried {
                Ok(Tried::Done) => return Ok(()),
                Ok(Tried::TooFew(error)) => {
                    let placed = self.core.extents.placed(index);
                    drop((held, turn));
                    return self.enough(placed, error, deadline).await;
                }
                Ok(Tried::GivenUp(error)) => return Err(error),
                Ok(Tried::Again(error) | Tried::Indeterminate(error)) => error,
                Err(error) if error.passes() => error,
                Err(error) => return Err(error),
            };
            drop(held);
            // Room that is being freed comes within seconds; a request that waits longer waits for more stores.
            let full = matches!(error, VolumeError::NoRoom { .. });
            let given_up = full && env::now() >= begun + self.core.settings.timeout;
            if given_up || self.core.is_late(deadline, &error) {
                return Err(error);
            }
            self.core.pause(&mut tries).await;
        }
    }

    /// Locks what a change of a piece needs for itself: an unacknowledged extent, or the blocks of an overlay, whole. None: another
    /// range is needed by now, or the extent is to be reconciled first.
    async fn lock(self, piece: ExtentRange) -> Option<RangeLock> {
        let (core, index) = (self.core, piece.index);
        let (begins, overlay) = (core.begins(index), core.extents.is_overlay(index));
        let range = match overlay && !begins {
            true => piece.blocks(),
            false => piece.range(begins),
        };
        let held = core.locks.ranges.take(range, true).await;
        let stays = !core.is_unreconciled(index) && core.begins(index) == begins;
        let became_overlay = core.extents.is_overlay(index) && !overlay && !begins;
        (stays && !became_overlay).then_some(held)
    }

    /// Waits until all changes of these bytes that came before are over, as long as a request is tried.
    async fn turn(
        self,
        piece: ExtentRange,
        deadline: Instant,
    ) -> Result<Option<RangeLock>, VolumeError> {
        #[cfg(test)]
        if self.core.mutated(Mutation::FreeRange) {
            return Ok(None);
        }
        let mut turn = std::pin::pin!(self.core.locks.turns.take(piece.range(false), true));
        loop {
            if let Ok(held) = env::timeout(self.core.until(deadline), &mut turn).await {
                return Ok(Some(held));
            }
            let why = "an earlier change of the same bytes is not over".to_owned();
            let error = self.core.no_copy(piece.index, &ConnectionError::Gone(why));
            if self.core.is_late(deadline, &error) {
                return Err(error);
            }
        }
    }

    /// A change is on all in-sync copies of an extent: waits until those are as many as must be, which get it when they come
    /// back. It is not done again: others may be there by now.
    async fn enough(
        self,
        placed: Option<Rc<ExtentEntry>>,
        error: VolumeError,
        deadline: Instant,
    ) -> Result<(), VolumeError> {
        let Some(placed) = placed else {
            return Ok(());
        };
        let mut tries = 0;
        while !self.core.is_late(deadline, &error) {
            self.core.usable()?;
            let numbers = placed.stores();
            let replicas = numbers
                .iter()
                .filter_map(|number| self.core.replicas.get(*number));
            let in_sync = replicas.filter(|it| it.sync_state() == SyncState::InSync);
            if in_sync.count() >= usize::from(self.core.volume_record().terms.min_isr) {
                return Ok(());
            }
            self.core.pause(&mut tries).await;
        }
        Err(error)
    }

    pub(super) async fn try_change(
        self,
        piece: ExtentRange,
        data: Option<View>,
    ) -> Result<Tried, VolumeError> {
        self.core.usable()?;
        let found = self.core.extents.placed(piece.index);
        let copies = self.core.volume_record().copies;
        let _dirty = match copies > 1 || self.core.begins(piece.index) {
            true => Some(BitmapIo::of(self.core).note_dirty(piece.index).await?),
            false => None,
        };
        let placed = match found {
            Some(placed) if placed.is_unacknowledged() || !self.core.is_shared(&placed) => placed,
            Some(placed) if placed.base().is_some() => {
                Overlay::of(self.core).merge(piece.index, &placed).await?
            }
            shared => self.place(piece, shared).await?,
        };
        Spread::of(self.core).count_copies(&placed).await?;
        if (data.is_some() || placed.base().is_some()) && !placed.is_unacknowledged() {
            Room::of(self.core).check_room(&placed, piece).await?;
        }
        match placed.base() {
            None => Spread::of(self.core).spread(&placed, piece, data).await,
            Some(_) => {
                Overlay::of(self.core)
                    .change_overlay(&placed, piece, data)
                    .await
            }
        }
    }

    /// A new extent, or an overlay on one that is shared: in the map and in the table before the first byte of it is sent. Its
    /// range is the caller's alone.
    async fn place(
        self,
        piece: ExtentRange,
        base: Option<Rc<ExtentEntry>>,
    ) -> Result<Rc<ExtentEntry>, VolumeError> {
        let index = piece.index;
        if self.core.is_forgotten(index) {
            // Else the next opening takes the one before for something that is still there.
            MapIo::of(self.core).commit().await?;
        }
        let stores = Room::of(self.core)
            .choose_with_room(piece.len, piece.user)
            .await?;
        let _pending = self.core.replicas.pending_placement(&stores);
        RecordIo::of(self.core).list_stores(&stores).await?;
        let name = ExtentName {
            owner: self.core.id,
            born: self.core.generation(),
            index,
        };
        let placed = ExtentEntry::new(name, stores, true);
        *placed.base.borrow_mut() = base.clone();
        placed.blocks.known.set(true);
        // Counts of copies from here on count it.
        placed.copies.borrow_mut().uncounted = true;
        self.core
            .extents
            .all
            .borrow_mut()
            .insert(index, Rc::clone(&placed));
        if let Err(error) = MapIo::of(self.core).enter(index, &placed).await {
            let mut extents = self.core.extents.all.borrow_mut();
            match base {
                Some(base) => extents.insert(index, base),
                None => extents.remove(&index),
            };
            return Err(error);
        }
        self.core.count(|counters| counters.allocated += 1);
        Ok(placed)
    }
}
