//! Copies of objects, from store to store.
//!
//! Always true:
//! 1. A copy that others are made from was in sync: every change that was answered is in it.
//! 2. A copy that is being made where there was none does not count before it is whole.
//! 3. A stale copy stays until the fresh one is whole, if the store has room for both.

use std::rc::Rc;

use base::View;
use device::Class;
use replication::replica::must_resync;
use store::Change;

use super::connections::Connections;
use super::error::VolumeError;
use super::extent::ExtentEntry;
use super::replica::Replica;
use super::state::Core;
use crate::names::{EXTENT, Generation, StoreNumber, filling};
use crate::replica::connect::{Connection, ConnectionError};

/// Copied at once.
pub(super) const CHUNK: u64 = 1 << 20;

/// The unit in which damage is repaired.
pub(super) const PAGE: u64 = 4096;

/// A store and its connection.
pub(super) type Copy<'a> = (&'a Replica, Rc<dyn Connection>);

/// Which end of a copy failed.
pub(super) enum CopyError {
    From(ConnectionError),
    To(ConnectionError),
}

/// Why something was not resynced to a store that is out.
pub(super) enum ResyncError {
    /// By the store itself: it begins anew.
    Store(String),
    /// By what was to be resynced: everything else can be.
    Extent(String),
}

impl ResyncError {
    pub fn by_store(error: ConnectionError) -> ResyncError {
        ResyncError::Store(error.to_string())
    }

    pub fn by_extent(error: VolumeError) -> ResyncError {
        ResyncError::Extent(error.to_string())
    }
}

/// Copies objects from store to store.
#[derive(Clone, Copy)]
pub(super) struct Copies<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Copies<'a> {
    pub fn of(core: &'a Rc<Core>) -> Copies<'a> {
        Copies { core }
    }

    /// What is filled before it gets its name, or takes the place of what has it.
    pub(super) fn beside(self, placed: &ExtentEntry) -> String {
        filling(&placed.object, self.core.id)
    }

    /// One change at a store, whose connection is of no more use if it ends it.
    pub(super) async fn change_at(
        self,
        replica: &Replica,
        connection: &Rc<dyn Connection>,
        change: impl Future<Output = Result<(), ConnectionError>>,
    ) -> Result<(), ConnectionError> {
        let answer = self.core.within(change).await;
        if let Err(error) = &answer
            && error.ends_connection()
        {
            replica.lose(connection, error.is_indeterminate());
        }
        answer
    }

    /// What was to be copied could not be asked for.
    pub(super) fn lose_source(self, copies: &[Copy<'_>], source: &Rc<dyn Connection>) {
        for (replica, connection) in copies {
            if Rc::ptr_eq(connection, source) {
                replica.lose(connection, false);
            }
        }
    }

    /// Of these stores those that changes must reach, and that have a connection.
    pub(super) fn linked(self, numbers: &[StoreNumber]) -> Vec<Copy<'a>> {
        let needed = self.core.replicas.needed(numbers).into_iter();
        needed
            .filter_map(|it| Some((it, it.connection()?)))
            .collect()
    }

    /// The first whole copy that has the object, and its size.
    pub(super) async fn source(
        self,
        placed: &ExtentEntry,
        copies: &[Copy<'_>],
    ) -> Result<Option<(Rc<dyn Connection>, u64)>, VolumeError> {
        for (replica, connection) in copies {
            match self.core.within(connection.stat(&placed.object)).await {
                // Its making was broken off.
                Ok(stat) if stat.stamp == 0 => {}
                Ok(stat) => return Ok(Some((Rc::clone(connection), stat.size.min(EXTENT)))),
                Err(ConnectionError::Absent(_)) => {}
                Err(ConnectionError::Fenced { why, .. }) => return Err(self.core.fence(why)),
                Err(error) => {
                    if error.ends_connection() {
                        replica.lose(connection, false);
                    }
                    return Err(self.core.no_copy(placed.name.index, &error));
                }
            }
        }
        Ok(None)
    }

    /// Copies what `source` has of an object to `to`, as `as_object`; where it is damaged, what another of `copies` has.
    pub(super) async fn copy(
        self,
        object: &str,
        as_object: &str,
        source: &Rc<dyn Connection>,
        copies: &[Copy<'_>],
        to: &Rc<dyn Connection>,
        stamp: Generation,
    ) -> Result<(), CopyError> {
        match self
            .core
            .within(to.create(as_object, stamped(stamp, false)))
            .await
        {
            Ok(()) | Err(ConnectionError::Refused(_)) => {}
            Err(error) => return Err(CopyError::To(error)),
        }
        let extents = self.core.within(source.extents(object, 0, EXTENT)).await;
        let extents = extents.map_err(CopyError::From)?;
        // Is the one that gets it a copy that is read like the others?
        let is_copy = object == as_object
            && copies
                .iter()
                .any(|(_, connection)| Rc::ptr_eq(connection, to));
        for extent in extents {
            if !extent.data {
                let change = stamped(stamp, false);
                let hole = to.punch(as_object, extent.offset, extent.len, change);
                self.core.within(hole).await.map_err(CopyError::To)?;
                continue;
            }
            let end = extent.offset + extent.len;
            let mut at = extent.offset;
            // Below this it goes page by page.
            let mut fine = at;
            while at < end {
                let most = if at < fine { PAGE - at % PAGE } else { CHUNK };
                let len = most.min(end - at).min(self.core.replicas.write_max.get());
                let data = match self.read_any(object, source, copies, at, len).await {
                    // What no copy has stays as it is on each: none is out of sync for it.
                    Err(ConnectionError::Damaged(_)) if is_copy && len > PAGE => {
                        fine = at + len;
                        continue;
                    }
                    Err(ConnectionError::Damaged(_)) if is_copy => {
                        at += len;
                        continue;
                    }
                    data => data.map_err(CopyError::From)?,
                };
                let write = to.write(as_object, at, data, stamped(stamp, false));
                self.core.within(write).await.map_err(CopyError::To)?;
                self.core.count(|counters| counters.copied_bytes += len);
                at += len;
            }
        }
        // A disk that is put back to before this is noticed.
        self.core.replication.borrow_mut().stamps.due();
        Ok(())
    }

    /// As [`Core::copy`], behind what clients ask for.
    pub(super) async fn copy_behind(
        self,
        object: &str,
        as_object: &str,
        source: &Rc<dyn Connection>,
        copies: &[Copy<'_>],
        to: &Rc<dyn Connection>,
    ) -> Result<(), CopyError> {
        let (source, to) = (
            Connections::of(self.core).background(source).await,
            Connections::of(self.core).background(to).await,
        );
        self.copy(object, as_object, &source, copies, &to, Generation(0))
            .await
    }

    /// From `source`, or where it is damaged from another copy, page by page.
    async fn read_any(
        self,
        object: &str,
        source: &Rc<dyn Connection>,
        copies: &[Copy<'_>],
        at: u64,
        len: u64,
    ) -> Result<View, ConnectionError> {
        match self.core.within(source.read(object, at, len)).await {
            Ok(data) => return Ok(data.freeze()),
            Err(ConnectionError::Damaged(_)) => {}
            Err(error) => return Err(error),
        }
        let mut whole = Vec::with_capacity(len as usize);
        for from in (at..at + len).step_by(PAGE as usize) {
            let len = PAGE.min(at + len - from);
            let mut found = self.core.within(source.read(object, from, len)).await;
            for (_, connection) in copies {
                if matches!(found, Err(ConnectionError::Damaged(_))) {
                    found = self.core.within(connection.read(object, from, len)).await;
                }
            }
            let data = found?;
            whole.extend_from_slice(&data);
            whole.resize((from - at + len) as usize, 0);
        }
        Ok(View::copy_of(&whole))
    }

    /// Puts a copy of a shared object on a store, in one step: a client may be reading what is there.
    pub(super) async fn put_beside(
        self,
        placed: &ExtentEntry,
        source: &Rc<dyn Connection>,
        copies: &[Copy<'_>],
        to: &Rc<dyn Connection>,
        change: Change,
    ) -> Result<(), CopyError> {
        let beside = self.beside(placed);
        match self.core.within(to.delete(&beside, unstamped())).await {
            Ok(()) | Err(ConnectionError::Absent(_)) => {}
            Err(error) => return Err(CopyError::To(error)),
        }
        let object = &placed.object;
        self.copy_behind(object, &beside, source, copies, to)
            .await?;
        let named = self.core.within(to.rename(&beside, object, true, change));
        named.await.map_err(CopyError::To)
    }

    /// Resyncs one object to a store that is out. No write changes it meanwhile.
    pub(super) async fn resync_layer(
        self,
        connection: &Rc<dyn Connection>,
        placed: &ExtentEntry,
        numbers: &[StoreNumber],
        since: Generation,
    ) -> Result<(), ResyncError> {
        let core = self.core;
        let copies = self.linked(numbers);
        let source = self.source(placed, &copies).await;
        let Some((source, _)) = source.map_err(ResyncError::by_extent)? else {
            let why = format!("no in-sync copy of {} can be reached", placed.object);
            return Err(ResyncError::Extent(why));
        };
        let held = |halt: CopyError| match halt {
            CopyError::To(error) => ResyncError::by_store(error),
            CopyError::From(error) => {
                if error.ends_connection() {
                    self.lose_source(&copies, &source);
                }
                ResyncError::Extent(format!("{} cannot be read: {error}", placed.object))
            }
        };
        let object = &placed.object;
        let stat = core.within(source.stat(object)).await;
        let stamp = stat.map_err(|error| held(CopyError::From(error)))?.stamp;
        let there = core.within(connection.stat(object)).await;
        // A copy that is not whole has the stamp 0.
        let whole = there.is_ok_and(|there| there.stamp > 0);
        if !must_resync(Generation(stamp), since, whole) {
            return Ok(());
        }
        core.count(|counters| counters.resynced += 1);
        let change = stamped(Generation(stamp), false);
        // Beside what is there, and in its place in one step: until the fresh copy is whole the stale one may be all that is left, if
        // the sources fail meanwhile. Where it is shared it may be read meanwhile, too.
        let put = self.put_beside(placed, &source, &copies, connection, change);
        match put.await {
            Err(CopyError::To(ConnectionError::Full(_)))
                if !core.is_shared(placed) && core.extents.is_heads(placed) => {}
            other => return other.map_err(held),
        }
        self.make_room(placed, connection).await?;
        let copied = self.copy_behind(object, object, &source, &copies, connection);
        copied.await.map_err(held)?;
        let stamp = core.within(connection.stamp(object, change)).await;
        stamp.map_err(ResyncError::by_store)
    }

    /// There is no room for two copies on a store: the stale one goes first, and what was begun beside it.
    async fn make_room(
        self,
        placed: &ExtentEntry,
        connection: &Rc<dyn Connection>,
    ) -> Result<(), ResyncError> {
        for object in [&self.beside(placed), &placed.object] {
            let gone = connection.delete(object, unstamped());
            match self.core.within(gone).await {
                Ok(()) | Err(ConnectionError::Absent(_)) => {}
                Err(error) => return Err(ResyncError::by_store(error)),
            }
        }
        Ok(())
    }
}

/// A copied change.
pub(super) fn stamped(stamp: Generation, fua: bool) -> Change {
    Change {
        class: Class::Foreground,
        fua,
        stamp: Some(stamp.0),
        ..Change::default()
    }
}

pub(super) fn unstamped() -> Change {
    Change::default()
}
