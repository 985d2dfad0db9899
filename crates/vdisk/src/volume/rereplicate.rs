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

use std::cell::Cell;
use std::rc::Rc;

use env::sync::join_all;
use store::Change;

use super::membership::{Replica, SyncState};
use super::reconcile::{Copy, CopyError, stamped, unstamped};
use super::{Core, ExtentEntry, VolumeError};
use crate::names::{COPIES_MAX, EXTENT, Generation, StoreNumber};
use crate::replica::connect::{Connection, ConnectionError};

/// Extents re-replicated at a time, when it takes long.
const REREPLICATING_MAX: usize = 8;

/// Unreconciled extents that are looked at before everything else goes on.
const RECONCILED_MAX: usize = 16;

/// A store loses a copy: until the meta store has a map without it, the store does not join.
pub(super) struct Leaving<'a>(&'a Replica);

impl Leaving<'_> {
    pub(super) fn of(replica: &Replica) -> Leaving<'_> {
        replica.leaving.set(replica.leaving.get() + 1);
        Leaving(replica)
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.leaving.set(self.0.leaving.get() - 1);
    }
}

impl Core {
    /// Reconciles extents and clears what is clean, as long as the volume is open.
    pub(super) async fn keep_clean(self: Rc<Self>) {
        let mut turn = 0_u64;
        let mut from = 0;
        while self.usable().is_ok() {
            turn += 1;
            let unreconciled: Vec<u32> = {
                let all = self.unreconciled.borrow();
                all.range(from..)
                    .map(|it| *it.0)
                    .take(RECONCILED_MAX)
                    .collect()
            };
            from = unreconciled.last().map_or(0, |last| last.saturating_add(1));
            for index in &unreconciled {
                // Once: what cannot be reconciled now keeps nothing else waiting.
                if let Err(error) = self.ensure_reconciled(*index, env::now()).await {
                    tracing::debug!(volume = %self.id, index, %error, "still unreconciled");
                }
            }
            if let Err(error) = self.clear_dirty(false).await {
                tracing::debug!(volume = %self.id, %error, "dirty bits stay");
            }
            self.ask_for_room().await;
            if let Err(error) = self.refresh_older_images(turn).await {
                tracing::debug!(volume = %self.id, %error, "what older images have is not known");
            }
            let filled = async {
                self.choose_bitmap_replicas().await?;
                self.rereplicate_all().await?;
                let (out, copies) = {
                    let record = &self.record.borrow().0;
                    (record.out.clone(), record.copies)
                };
                self.renew_thin_nodes(&out, copies).await?;
                self.raise_floor().await
            };
            if let Err(error) = filled.await {
                tracing::debug!(volume = %self.id, %error, "extents lack copies");
            }
            env::sleep(self.settings.tick).await;
        }
    }

    /// Looks at each extent once: gives those that have too few stores another one, and takes one from those that have too
    /// many. One that takes long is gone on with beside the others.
    async fn rereplicate_all(self: &Rc<Self>) -> Result<(), VolumeError> {
        let mut from = 0;
        while let Some(index) = self.next_to_rereplicate(from) {
            from = index + 1;
            if self.rereplicating.borrow().len() >= REREPLICATING_MAX {
                return Ok(());
            }
            let core = Rc::clone(self);
            self.rereplicating.borrow_mut().insert(index);
            let task = env::spawn(async move {
                let done = core.rereplicate(index).await;
                core.rereplicating.borrow_mut().remove(&index);
                done
            });
            match env::timeout(self.settings.timeout, task).await {
                Ok(Err(error)) if error.passes() => {
                    tracing::debug!(volume = %self.id, index, %error, "not the copies it should have");
                }
                Ok(other) => other?,
                Err(_) => {
                    tracing::debug!(volume = %self.id, index, "its copies take long to even out");
                }
            }
        }
        Ok(())
    }

    /// The first extent from there on that has too few stores or too many.
    fn next_to_rereplicate(&self, from: u32) -> Option<u32> {
        let copies = usize::from(self.record.borrow().0.copies);
        let extents = self.extents.borrow();
        let mut all = extents.range(from..).filter(|(index, placed)| {
            let count = |it: &Rc<ExtentEntry>| it.stores.borrow().len();
            let wrong_count = match placed.unacknowledged.get() {
                true => count(placed) < copies,
                false => placed.layers().any(|it| count(&it) != copies),
            };
            wrong_count
                && !self.is_unreconciled(**index)
                && !self.rereplicating.borrow().contains(*index)
        });
        all.next().map(|(index, _)| *index)
    }

    async fn rereplicate(&self, index: u32) -> Result<(), VolumeError> {
        let copies = usize::from(self.record.borrow().0.copies);
        let start = u64::from(index) * EXTENT;
        let _held = self.ranges.take(start..start + EXTENT, true).await;
        let Some(placed) = self.placed(index).filter(|_| !self.is_unreconciled(index)) else {
            return Ok(());
        };
        if placed.unacknowledged.get() {
            // Of no use, and it would count for ever: the next change makes it anew.
            let lacks = placed.stores.borrow().len() < copies;
            return match lacks {
                true => self.forget(index, &placed).await,
                false => Ok(()),
            };
        }
        for layer in placed.layers().filter(|layer| !layer.unacknowledged.get()) {
            let count = layer.stores.borrow().len();
            if count > copies && !self.is_shared(&layer) {
                self.remove_copy(index, &placed, &layer, copies).await?;
            } else if count < copies {
                self.add_copy(index, &placed, &layer).await?;
            }
        }
        Ok(())
    }

    /// Gives one layer of an extent another copy. The extent's range is the caller's alone.
    pub(super) async fn add_copy(
        &self,
        index: u32,
        placed: &Rc<ExtentEntry>,
        layer: &Rc<ExtentEntry>,
    ) -> Result<(), VolumeError> {
        let numbers = layer.stores.borrow().clone();
        // Where one goes away another may come.
        let mut stay = numbers.clone();
        stay.retain(|one| !self.is_drained(*one));
        let Some(number) = self.choose_one(&stay) else {
            return Ok(());
        };
        let _pending = self.pending_placement(&[number]);
        self.list_stores(&[number]).await?;
        let replica = self.replica(number).expect("chosen from the members");
        let sources: Vec<Copy<'_>> = (self.needed(&numbers).into_iter())
            .filter_map(|other| Some((other, other.connection()?)))
            .collect();
        let (Some(connection), Some((source, _))) =
            (replica.connection(), self.source(layer, &sources).await?)
        else {
            return Ok(());
        };
        let named = Cell::new(false);
        let shared = self.is_shared(layer);
        let copied = make_copy(
            self,
            layer,
            (&source, &sources),
            &connection,
            shared,
            &named,
        );
        match copied.await {
            Ok(()) if replica.sync_state.get() == SyncState::InSync => {
                // A store that went out meanwhile may be in again, and had it deleted as an orphan.
                let still = || replica.is_in_by(&connection);
                let leaves = numbers.iter().copied().find(|one| self.is_drained(*one));
                let named = match leaves.filter(|_| numbers.len() >= COPIES_MAX) {
                    Some(leaves) => {
                        let places = (number, leaves);
                        self.take_place(index, placed, layer, places, still).await?
                    }
                    None => self.add(index, placed, layer, number, still).await?,
                };
                match named || shared {
                    true => Ok(()),
                    false => self.discard_copy(layer, number).await,
                }
            }
            // The store left the in-sync set meanwhile: it looks through all it has when it comes back.
            Ok(()) => Ok(()),
            Err(
                CopyError::From(ConnectionError::Fenced { why, .. })
                | CopyError::To(ConnectionError::Fenced { why, .. }),
            ) => Err(self.fence(why)),
            Err(CopyError::From(error)) => {
                tracing::debug!(volume = %self.id, index, store = %self.label(number), %error, "no further copy");
                if error.ends_connection() {
                    self.lose_source(&sources, &source);
                }
                // What is there is not whole: of no account.
                Ok(())
            }
            Err(CopyError::To(error)) => {
                tracing::debug!(volume = %self.id, index, store = %self.label(number), %error, "no further copy");
                if error.ends_connection() {
                    replica.lose(&connection, error.is_indeterminate());
                }
                match named.get() {
                    true => self.discard_copy(layer, number).await?,
                    // It is not whole, or as all others are: of no account.
                    false if error.ends_connection() => {
                        if !self.shrink_set(&[number]).await? {
                            self.renew().await?;
                        }
                    }
                    false => {}
                }
                Ok(())
            }
        }
    }

    /// A store may have a whole copy of an extent that changes do not reach: waits until it is out or the copy gone. The
    /// extent's range is the caller's alone.
    async fn discard_copy(
        &self,
        placed: &ExtentEntry,
        number: StoreNumber,
    ) -> Result<(), VolumeError> {
        let replica = self.replica(number).expect("it was asked just now");
        let mut tries = 0;
        loop {
            if let Some(connection) = replica.connection() {
                let gone = self
                    .within(connection.delete(&placed.object, Change::FUA))
                    .await;
                match gone {
                    Ok(()) | Err(ConnectionError::Absent(_)) => return Ok(()),
                    Err(ConnectionError::Fenced { why, .. }) => return Err(self.fence(why)),
                    Err(error) if error.ends_connection() => {
                        replica.lose(&connection, error.is_indeterminate());
                    }
                    Err(_) => {}
                }
            }
            match self.shrink_set(&[number]).await {
                Ok(true) => return Ok(()),
                Ok(false) => match self.renew().await {
                    Err(error) if !error.passes() => return Err(error),
                    _ => {}
                },
                Err(error) if !error.passes() => return Err(error),
                Err(_) => {}
            }
            self.pause(&mut tries).await;
        }
    }

    /// Takes a copy away that an extent has too many. Its range is the caller's alone, until a root without the copy is in
    /// the meta store. A reader of the map must not count a copy that changes do not reach.
    pub(super) async fn remove_copy(
        &self,
        index: u32,
        top: &Rc<ExtentEntry>,
        layer: &Rc<ExtentEntry>,
        copies: usize,
    ) -> Result<(), VolumeError> {
        let numbers = layer.stores.borrow().clone();
        let replicas = || numbers.iter().rev().filter_map(|one| self.replica(*one));
        let gone = |it: &&Replica| {
            it.sync_state.get() == SyncState::Out || self.is_drained(it.info.number)
        };
        let in_sync = || replicas().filter(|it| it.sync_state.get() == SyncState::InSync);
        let enough = || in_sync().count() > copies;
        let replica = match replicas().find(gone) {
            Some(replica) => replica,
            None if !enough() => return Ok(()),
            None => in_sync().next().expect("there are enough"),
        };
        let number = replica.info.number;
        let _leaving = Leaving::of(replica);
        layer.stores.borrow_mut().retain(|one| *one != number);
        let counted = match self.lower_floor().await {
            Ok(()) if replica.sync_state.get() != SyncState::Out && !enough() => Err(()),
            Ok(()) => self.enter(index, top).await.map_err(drop),
            Err(error) if !error.passes() => return Err(error),
            Err(_) => Err(()),
        };
        if counted.is_err() {
            layer.stores.borrow_mut().push(number);
            return Ok(());
        }
        // What it has of it is freed with the commit.
        self.commit_surely().await
    }

    /// Lowers the record if something has fewer copies in sync than it says. A store that leaves the in-sync set from here
    /// on, or just did, is counted without a copy that was just taken from its extent.
    pub(super) async fn lower_floor(&self) -> Result<(), VolumeError> {
        self.change_record(|record| {
            let redundancy_floor = self.redundancy_floor(&record.out, record.copies);
            let less = 0 < redundancy_floor && redundancy_floor < record.redundancy_floor;
            record.redundancy_floor = record.redundancy_floor.min(redundancy_floor);
            Ok(less)
        })
        .await
    }

    /// Raises the record when extents have more copies in sync than it says.
    async fn raise_floor(&self) -> Result<(), VolumeError> {
        self.change_record(|record| {
            let redundancy_floor = self.redundancy_floor(&record.out, record.copies);
            let more = redundancy_floor > record.redundancy_floor && self.older_images.is_known();
            if !more {
                return Ok(false);
            }
            record.redundancy_floor = redundancy_floor.max(record.redundancy_floor);
            Ok(more)
        })
        .await
    }

    /// Asks all stores for their room. Of one that does not answer the connection is given up: so an idle volume learns that a
    /// store is gone.
    async fn ask_for_room(&self) {
        let linked = self.replicas.values();
        let linked = linked.filter_map(|replica| Some((replica, replica.connection()?)));
        let asked =
            linked.map(
                async |(replica, connection)| match self.within(connection.space()).await {
                    Ok(space) => {
                        replica.says(&space);
                        replica.answered.set(env::now());
                    }
                    Err(error) if error.ends_connection() => replica.lose(&connection, false),
                    Err(_) => {}
                },
            );
        join_all(asked.collect::<Vec<_>>()).await;
    }
}

/// Copies a layer to a store that lacks it. What is `shared` is not stamped anew. `named`: the copy may count from here on.
async fn make_copy(
    core: &Core,
    layer: &Rc<ExtentEntry>,
    (source, sources): (&Rc<dyn Connection>, &[Copy<'_>]),
    connection: &Rc<dyn Connection>,
    shared: bool,
    named: &Cell<bool>,
) -> Result<(), CopyError> {
    let object = &layer.object;
    if shared {
        let stat = core.within(source.stat(object)).await;
        let stamp = stat.map_err(CopyError::From)?.stamp;
        let change = stamped(Generation(stamp), true);
        let put = core.put_beside(layer, source, sources, connection, change);
        return put.await;
    }
    match core.within(connection.delete(object, unstamped())).await {
        Ok(()) | Err(ConnectionError::Absent(_)) => {}
        Err(error) => return Err(CopyError::To(error)),
    }
    // Not whole, and of no account, until it has its stamp.
    core.copy_behind(object, object, source, sources, connection)
        .await?;
    named.set(true);
    let stamp = stamped(core.generation(), true);
    core.within(connection.stamp(object, stamp))
        .await
        .map_err(CopyError::To)
}
