//! Single copies of one layer of an extent: given, taken, put in another's place.
//!
//! ```text
//! given  -> copied beside or unnamed -> whole -> in the map -> counted when a root with it is in the meta store
//! taken  -> not counted any more -> freed with the root that leaves it out
//! ```
//!
//! Always true: the extent's range is the caller's alone, until no store has a whole copy that changes do not reach.

use std::cell::Cell;
use std::rc::Rc;

use store::Change;

use super::commit::MapIo;
use super::copies::{Copies, Copy, CopyError, stamped, unstamped};
use super::error::VolumeError;
use super::extent::ExtentEntry;
use super::membership::Membership;
use super::record_io::RecordIo;
use super::replica::{Leaving, Replica, SyncState};
use super::room::Room;
use super::state::Core;
use crate::names::{COPIES_MAX, Generation, StoreNumber};
use crate::replica::connect::{Connection, ConnectionError};

/// Gives and takes single copies of layers.
#[derive(Clone, Copy)]
pub(super) struct LayerCopies<'a> {
    core: &'a Rc<Core>,
}

impl<'a> LayerCopies<'a> {
    pub fn of(core: &'a Rc<Core>) -> LayerCopies<'a> {
        LayerCopies { core }
    }

    /// Gives one layer of an extent another copy. The extent's range is the caller's alone.
    pub(super) async fn add_copy(
        self,
        index: u32,
        placed: &Rc<ExtentEntry>,
        layer: &Rc<ExtentEntry>,
    ) -> Result<(), VolumeError> {
        let core = self.core;
        let numbers = layer.stores();
        // Where one goes away another may come.
        let mut stay = numbers.clone();
        stay.retain(|one| !core.replicas.is_drained(*one));
        let Some(number) = Room::of(core).choose_one(&stay) else {
            return Ok(());
        };
        let _pending = core.replicas.pending_placement(&[number]);
        RecordIo::of(core).list_stores(&[number]).await?;
        self.add_copy_on(index, placed, layer, &numbers, number)
            .await
    }

    /// Gives a layer that `numbers` have a copy on a store that was chosen, and that the record lists.
    async fn add_copy_on(
        self,
        index: u32,
        placed: &Rc<ExtentEntry>,
        layer: &Rc<ExtentEntry>,
        numbers: &[StoreNumber],
        number: StoreNumber,
    ) -> Result<(), VolumeError> {
        let core = self.core;
        let chosen = core.replicas.get(number);
        let replica = chosen.expect("chosen from the members");
        let sources = Copies::of(core).linked(numbers);
        let (Some(connection), Some((source, _))) = (
            replica.connection(),
            Copies::of(core).source(layer, &sources).await?,
        ) else {
            return Ok(());
        };
        let named = Cell::new(false);
        let shared = core.is_shared(layer);
        let from = (&source, &sources[..]);
        let copied = make_copy(core, layer, from, &connection, shared, &named);
        match copied.await {
            Ok(()) if replica.sync_state() == SyncState::InSync => {
                // A store that went out meanwhile may be in again, and had it deleted as an orphan.
                let still = || replica.is_in_by(&connection);
                let named = self
                    .name_copy(index, placed, layer, (number, numbers), still)
                    .await?;
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
            ) => Err(core.fence(why)),
            Err(CopyError::From(error)) => {
                tracing::debug!(volume = %core.id, index, store = %core.replicas.label(number), %error, "no further copy");
                if error.ends_connection() {
                    Copies::of(core).lose_source(&sources, &source);
                }
                // What is there is not whole: of no account.
                Ok(())
            }
            Err(CopyError::To(error)) => {
                tracing::debug!(volume = %core.id, index, store = %core.replicas.label(number), %error, "no further copy");
                let ended = error.ends_connection();
                if ended {
                    replica.lose(&connection, error.is_indeterminate());
                }
                self.undo_copy(layer, number, named.get(), ended).await
            }
        }
    }

    /// A copy was not made to its end. `named`: it may count; `ended`: what was asked last may still come about.
    async fn undo_copy(
        self,
        layer: &ExtentEntry,
        number: StoreNumber,
        named: bool,
        ended: bool,
    ) -> Result<(), VolumeError> {
        match named {
            true => self.discard_copy(layer, number).await,
            // It is not whole, or as all others are: of no account.
            false if ended => self.give_up_on(number).await,
            false => Ok(()),
        }
    }

    /// The map has a whole copy from now on, in the place of one on a drained store where there is no room for more. Has it?
    async fn name_copy(
        self,
        index: u32,
        placed: &Rc<ExtentEntry>,
        layer: &Rc<ExtentEntry>,
        (number, before): (StoreNumber, &[StoreNumber]),
        still: impl Fn() -> bool,
    ) -> Result<bool, VolumeError> {
        let mut leaves = before.iter().copied();
        let leaves = leaves.find(|one| self.core.replicas.is_drained(*one));
        match leaves.filter(|_| before.len() >= COPIES_MAX) {
            Some(leaves) => {
                let places = (number, leaves);
                self.take_place(index, placed, layer, places, still).await
            }
            None => {
                let map = MapIo::of(self.core);
                map.add(index, placed, layer, number, still).await
            }
        }
    }

    /// Whether a store did something is not known: it leaves the in-sync set, or its next connection has a greater token.
    async fn give_up_on(self, number: StoreNumber) -> Result<(), VolumeError> {
        match Membership::of(self.core).shrink_set(&[number]).await? {
            true => Ok(()),
            false => RecordIo::of(self.core).renew().await,
        }
    }

    /// A store may have a whole copy of an extent that changes do not reach: waits until it is out or the copy gone. The
    /// extent's range is the caller's alone.
    async fn discard_copy(
        self,
        placed: &ExtentEntry,
        number: StoreNumber,
    ) -> Result<(), VolumeError> {
        let replica = self
            .core
            .replicas
            .get(number)
            .expect("it was asked just now");
        let mut tries = 0;
        loop {
            if let Some(connection) = replica.connection() {
                let gone = self
                    .core
                    .within(connection.delete(&placed.object, Change::FUA))
                    .await;
                match gone {
                    Ok(()) | Err(ConnectionError::Absent(_)) => return Ok(()),
                    Err(ConnectionError::Fenced { why, .. }) => return Err(self.core.fence(why)),
                    Err(error) if error.ends_connection() => {
                        replica.lose(&connection, error.is_indeterminate());
                    }
                    Err(_) => {}
                }
            }
            match Membership::of(self.core).shrink_set(&[number]).await {
                Ok(true) => return Ok(()),
                Ok(false) => match RecordIo::of(self.core).renew().await {
                    Err(error) if !error.passes() => return Err(error),
                    _ => {}
                },
                Err(error) if !error.passes() => return Err(error),
                Err(_) => {}
            }
            self.core.pause(&mut tries).await;
        }
    }

    /// Takes a copy away that an extent has too many. Its range is the caller's alone, until a root without the copy is in
    /// the meta store. A reader of the map must not count a copy that changes do not reach.
    pub(super) async fn remove_copy(
        self,
        index: u32,
        top: &Rc<ExtentEntry>,
        layer: &Rc<ExtentEntry>,
        copies: usize,
    ) -> Result<(), VolumeError> {
        let numbers = layer.stores();
        let replicas = || {
            numbers
                .iter()
                .rev()
                .filter_map(|one| self.core.replicas.get(*one))
        };
        let gone = |it: &&Replica| {
            it.sync_state() == SyncState::Out || self.core.replicas.is_drained(it.info.number)
        };
        let in_sync = || replicas().filter(|it| it.sync_state() == SyncState::InSync);
        let enough = || in_sync().count() > copies;
        let replica = match replicas().find(gone) {
            Some(replica) => replica,
            None if !enough() => return Ok(()),
            None => in_sync().next().expect("there are enough"),
        };
        let number = replica.info.number;
        let _leaving = Leaving::of(replica);
        layer
            .copies
            .borrow_mut()
            .stores
            .retain(|one| *one != number);
        let counted = match RecordIo::of(self.core).lower_floor().await {
            Ok(()) if replica.sync_state() != SyncState::Out && !enough() => Err(()),
            Ok(()) => MapIo::of(self.core).enter(index, top).await.map_err(drop),
            Err(error) if !error.passes() => return Err(error),
            Err(_) => Err(()),
        };
        if counted.is_err() {
            layer.copies.borrow_mut().stores.push(number);
            return Ok(());
        }
        // What it has of it is freed with the commit.
        MapIo::of(self.core).commit_surely().await
    }

    /// Are there as many copies in sync elsewhere as there should be?
    pub(super) fn has_enough(self, layer: &ExtentEntry) -> bool {
        let copies = usize::from(self.core.volume_record().copies);
        let stores = &layer.copies.borrow().stores;
        let replicas = stores
            .iter()
            .filter(|one| !self.core.replicas.is_drained(**one));
        let replicas = replicas.filter_map(|one| self.core.replicas.get(*one));
        replicas
            .filter(|it| it.sync_state() == SyncState::InSync)
            .count()
            >= copies
    }

    /// Takes the copy on one store from what the map has of a layer. The extent's range is the caller's alone, until a root
    /// without the copy is in the meta store. A reader of the map must not count a copy that changes do not reach.
    pub(super) async fn give_away(
        self,
        index: u32,
        top: &Rc<ExtentEntry>,
        layer: &Rc<ExtentEntry>,
        number: StoreNumber,
    ) -> Result<(), VolumeError> {
        let _leaving = self.core.replicas.get(number).map(Leaving::of);
        layer
            .copies
            .borrow_mut()
            .stores
            .retain(|one| *one != number);
        let entered = match RecordIo::of(self.core).lower_floor().await {
            Ok(()) if !self.has_enough(layer) => Ok(false),
            Ok(()) => MapIo::of(self.core).enter(index, top).await.map(|()| true),
            Err(error) => Err(error),
        };
        match entered {
            Ok(true) => {}
            Ok(false) | Err(_) => {
                layer.copies.borrow_mut().stores.push(number);
                return entered.map(drop);
            }
        }
        MapIo::of(self.core).commit_surely().await
    }

    /// One store takes another's place in a layer of an extent, if `still` holds when the map says so: where there are as many
    /// copies as a map has room for, the other one must not be freed while it counts. Did it? The extent's range is the
    /// caller's alone.
    async fn take_place(
        self,
        index: u32,
        top: &Rc<ExtentEntry>,
        layer: &Rc<ExtentEntry>,
        (new, gone): (StoreNumber, StoreNumber),
        still: impl Fn() -> bool,
    ) -> Result<bool, VolumeError> {
        let _leaving = self.core.replicas.get(gone).map(Leaving::of);
        let before = layer.stores();
        layer.copies.borrow_mut().uncommitted.push(new);
        {
            let stores = &mut layer.copies.borrow_mut().stores;
            stores.retain(|one| *one != gone);
            stores.push(new);
        }
        let entered = match RecordIo::of(self.core).lower_floor().await {
            Ok(()) => MapIo::of(self.core).enter_if(index, top, still).await,
            Err(error) => Err(error),
        };
        match entered {
            Ok(true) => {}
            not => {
                layer.copies.borrow_mut().stores = before;
                layer
                    .copies
                    .borrow_mut()
                    .uncommitted
                    .retain(|one| *one != new);
                return match not {
                    Err(error) if !error.passes() => Err(error),
                    _ => Ok(false),
                };
            }
        }
        self.core.added(layer, new);
        MapIo::of(self.core).commit_surely().await.map(|()| true)
    }
}

/// Copies a layer to a store that lacks it. What is `shared` is not stamped anew. `named`: the copy may count from here on.
async fn make_copy(
    core: &Rc<Core>,
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
        let put = Copies::of(core).put_beside(layer, source, sources, connection, change);
        return put.await;
    }
    match core.within(connection.delete(object, unstamped())).await {
        Ok(()) | Err(ConnectionError::Absent(_)) => {}
        Err(error) => return Err(CopyError::To(error)),
    }
    // Not whole, and of no account, until it has its stamp.
    Copies::of(core)
        .copy_behind(object, object, source, sources, connection)
        .await?;
    named.set(true);
    let stamp = stamped(core.generation(), true);
    core.within(connection.stamp(object, stamp))
        .await
        .map_err(CopyError::To)
}
