//! What makes copies equal again.
//!
//! ```text
//! unreconciled -> extent alone -> one in-sync copy to the others, stamped anew -> reconciled
//! ```
//!
//! Always true:
//! 1. A copy that others are made from was in sync: every change that was answered is in it.
//! 2. What was copied to others is stamped with the present generation, so that resync gives it to stores that are out.
//! 3. A copy that is being made where there was none does not count before it is whole.

use std::rc::Rc;

use base::{Instant, View};
use device::Class;
use store::Change;

use super::membership::Replica;
use super::{Core, ExtentEntry, VolumeError};
use crate::names::{EXTENT, Generation, StoreNumber};
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

impl Core {
    /// Waits until the copies of `index` are equal; makes them so.
    pub(super) async fn ensure_reconciled(
        &self,
        index: u32,
        deadline: Instant,
    ) -> Result<(), VolumeError> {
        let mut tries = 0;
        let once = env::now() >= deadline;
        loop {
            self.usable()?;
            if !self.is_unreconciled(index) {
                return Ok(());
            }
            let start = u64::from(index) * EXTENT;
            let held = self.ranges.take(start..start + EXTENT, true).await;
            if !self.is_unreconciled(index) {
                return Ok(());
            }
            match self.reconcile(index).await {
                Ok(()) => {
                    // No other task is at this extent: whichever requests left it unreconciled, it is reconciled.
                    self.unreconciled.borrow_mut().remove(&index);
                    return Ok(());
                }
                Err(error) if !error.passes() || once || self.is_late(deadline, &error) => {
                    return Err(error);
                }
                Err(_) => {}
            }
            drop(held);
            self.pause(&mut tries).await;
        }
    }

    /// Waits until the copies of `index` are equal. One task makes them so for all requests that wait, to its end, whether
    /// or not they wait so long. Changes of copies under way belong to this task alone.
    pub(super) async fn await_reconciled(
        self: &Rc<Self>,
        index: u32,
        deadline: Instant,
    ) -> Result<(), VolumeError> {
        while self.is_unreconciled(index) {
            self.usable()?;
            let why = "its copies may differ, and cannot be made equal now".to_owned();
            let error = self.no_copy(index, &ConnectionError::Gone(why));
            if self.is_late(deadline, &error) {
                return Err(error);
            }
            if self.reconciling.borrow_mut().insert(index) {
                let core = Rc::clone(self);
                env::spawn(async move {
                    if let Err(error) = core.ensure_reconciled(index, deadline).await {
                        tracing::debug!(volume = %core.id, index, %error, "still unreconciled");
                    }
                    core.reconciling.borrow_mut().remove(&index);
                    core.changed.notify_all();
                });
            }
            let _ = env::timeout(self.until(deadline), self.changed.wait()).await;
        }
        Ok(())
    }

    /// Every store that is needed, with its connection; one without leaves the in-sync set, if it can be spared.
    async fn reachable(
        &self,
        index: u32,
        numbers: &[StoreNumber],
    ) -> Result<Vec<Copy<'_>>, VolumeError> {
        let needed = self.needed(numbers);
        let (linked, lost): (Vec<_>, Vec<_>) = needed
            .into_iter()
            .partition(|replica| replica.connection().is_some());
        if !lost.is_empty() {
            let lost: Vec<StoreNumber> = lost.iter().map(|it| it.info.number).collect();
            let why =
                ConnectionError::Gone(format!("there is no link to store {}", self.label(lost[0])));
            if linked.is_empty() || !self.shrink_set(&lost).await? {
                self.renew().await?;
                return Err(self.no_copy(index, &why));
            }
        }
        let copies: Vec<Copy<'_>> = (linked.iter())
            .filter_map(|it| Some((*it, it.connection()?)))
            .collect();
        if copies.len() < linked.len() || copies.is_empty() {
            // A store that could not be asked may have it: that none does is only known when all were.
            self.renew().await?;
            let why = ConnectionError::Gone("a link broke meanwhile".to_owned());
            return Err(self.no_copy(index, &why));
        }
        Ok(copies)
    }

    /// Makes the copies of an extent equal. Its range is the caller's alone.
    pub(super) async fn reconcile(&self, index: u32) -> Result<(), VolumeError> {
        let Some(placed) = self.placed(index) else {
            return Ok(());
        };
        if self.is_shared(&placed) {
            // Its copies were equal when it became so; what was unreconciled above it was never named.
            return Ok(());
        }
        let numbers = placed.stores.borrow().clone();
        // A store that is out must have this resynced again before it joins.
        for replica in numbers.iter().filter_map(|one| self.replica(*one)) {
            replica.lacks(index);
        }
        let copies = self.reachable(index, &numbers).await?;
        let under_way = self.begin();
        let source = self.source(&placed, &copies).await?;
        let Some((source, size)) = source else {
            // No store has it, so no write of it was acknowledged. Its bit stays.
            placed.unacknowledged.set(true);
            placed.blocks.forget();
            return Ok(());
        };
        // From here on it may be read.
        placed.unacknowledged.set(false);
        let mut failed = Vec::new();
        for (replica, connection) in &copies {
            let done = match Rc::ptr_eq(connection, &source) {
                true => Ok(()),
                false => {
                    let made = self.make_equal(&placed, (&source, size), &copies, connection);
                    match made.await {
                        Ok(()) => Ok(()),
                        Err(CopyError::To(error)) => Err(error),
                        // Nothing is wrong with the target: no store leaves the in-sync set for this.
                        Err(CopyError::From(error)) if error.ends_connection() => {
                            self.lose_source(&copies, &source);
                            self.renew().await?;
                            return Err(self.no_copy(index, &error));
                        }
                        Err(CopyError::From(error)) => Err(error),
                    }
                }
            };
            let done = match done {
                Ok(()) => {
                    let stamp = connection.stamp(&placed.object, stamped(under_way.stamp(), true));
                    self.within(stamp).await
                }
                error => error,
            };
            match done {
                Ok(()) => {}
                Err(ConnectionError::Fenced { why, .. }) => return Err(self.fence(why)),
                Err(error) => {
                    if error.ends_connection() {
                        replica.lose(connection, error.is_indeterminate());
                    }
                    failed.push((replica.info.number, error));
                }
            }
        }
        if let Some((_, why)) = failed.first() {
            let numbers: Vec<StoreNumber> = failed.iter().map(|(one, _)| *one).collect();
            if failed.len() == copies.len() || !self.shrink_set(&numbers).await? {
                self.renew().await?;
                return Err(self.no_copy(index, why));
            }
        }
        self.count(|counters| counters.reconciled += 1);
        #[cfg(test)]
        if self.mutated(super::Mutation::StaleBlocks) {
            return Ok(());
        }
        placed.blocks.forget();
        Ok(())
    }

    /// Makes one copy of an unreconciled extent what `source` is, of that size, but for its stamp. One that is not there yet
    /// has the stamp 0 until it is whole. An opening after a crash must not take it for a copy.
    async fn make_equal(
        &self,
        placed: &ExtentEntry,
        (source, size): (&Rc<dyn Connection>, u64),
        copies: &[Copy<'_>],
        to: &Rc<dyn Connection>,
    ) -> Result<(), CopyError> {
        let object = &placed.object;
        let stamp = match self.within(to.stat(object)).await {
            Ok(stat) => Generation(stat.stamp),
            Err(ConnectionError::Absent(_)) => Generation(0),
            Err(error) => return Err(CopyError::To(error)),
        };
        self.copy(object, object, source, copies, to, stamp).await?;
        if size == EXTENT {
            return Ok(());
        }
        let rest = to.punch(object, size, EXTENT - size, stamped(stamp, false));
        self.within(rest).await.map_err(CopyError::To)
    }

    /// What was to be copied could not be asked for.
    pub(super) fn lose_source(&self, copies: &[Copy<'_>], source: &Rc<dyn Connection>) {
        for (replica, connection) in copies {
            if Rc::ptr_eq(connection, source) {
                replica.lose(connection, false);
            }
        }
    }

    /// The first whole copy that has the object, and its size.
    pub(super) async fn source(
        &self,
        placed: &ExtentEntry,
        copies: &[Copy<'_>],
    ) -> Result<Option<(Rc<dyn Connection>, u64)>, VolumeError> {
        for (replica, connection) in copies {
            match self.within(connection.stat(&placed.object)).await {
                // Its making was broken off.
                Ok(stat) if stat.stamp == 0 => {}
                Ok(stat) => return Ok(Some((Rc::clone(connection), stat.size.min(EXTENT)))),
                Err(ConnectionError::Absent(_)) => {}
                Err(ConnectionError::Fenced { why, .. }) => return Err(self.fence(why)),
                Err(error) => {
                    if error.ends_connection() {
                        replica.lose(connection, false);
                    }
                    return Err(self.no_copy(placed.name.index, &error));
                }
            }
        }
        Ok(None)
    }

    /// Copies what `source` has of an object to `to`, as `as_object`; where it is damaged, what another of `copies` has.
    pub(super) async fn copy(
        &self,
        object: &str,
        as_object: &str,
        source: &Rc<dyn Connection>,
        copies: &[Copy<'_>],
        to: &Rc<dyn Connection>,
        stamp: Generation,
    ) -> Result<(), CopyError> {
        match self
            .within(to.create(as_object, stamped(stamp, false)))
            .await
        {
            Ok(()) | Err(ConnectionError::Refused(_)) => {}
            Err(error) => return Err(CopyError::To(error)),
        }
        let extents = self.within(source.extents(object, 0, EXTENT)).await;
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
                self.within(hole).await.map_err(CopyError::To)?;
                continue;
            }
            let end = extent.offset + extent.len;
            let mut at = extent.offset;
            // Below this it goes page by page.
            let mut fine = at;
            while at < end {
                let most = if at < fine { PAGE - at % PAGE } else { CHUNK };
                let len = most.min(end - at).min(self.write_max.get());
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
                self.within(write).await.map_err(CopyError::To)?;
                at += len;
            }
        }
        // A disk that is put back to before this is noticed.
        self.stamps.borrow_mut().due();
        Ok(())
    }

    /// As [`Core::copy`], behind what clients ask for.
    pub(super) async fn copy_behind(
        &self,
        object: &str,
        as_object: &str,
        source: &Rc<dyn Connection>,
        copies: &[Copy<'_>],
        to: &Rc<dyn Connection>,
    ) -> Result<(), CopyError> {
        let (source, to) = (self.background(source).await, self.background(to).await);
        self.copy(object, as_object, &source, copies, &to, Generation(0))
            .await
    }

    /// From `source`, or where it is damaged from another copy, page by page.
    async fn read_any(
        &self,
        object: &str,
        source: &Rc<dyn Connection>,
        copies: &[Copy<'_>],
        at: u64,
        len: u64,
    ) -> Result<View, ConnectionError> {
        match self.within(source.read(object, at, len)).await {
            Ok(data) => return Ok(data.freeze()),
            Err(ConnectionError::Damaged(_)) => {}
            Err(error) => return Err(error),
        }
        let mut whole = Vec::with_capacity(len as usize);
        for from in (at..at + len).step_by(PAGE as usize) {
            let len = PAGE.min(at + len - from);
            let mut found = self.within(source.read(object, from, len)).await;
            for (_, connection) in copies {
                if matches!(found, Err(ConnectionError::Damaged(_))) {
                    found = self.within(connection.read(object, from, len)).await;
                }
            }
            let data = found?;
            whole.extend_from_slice(&data);
            whole.resize((from - at + len) as usize, 0);
        }
        Ok(View::copy_of(&whole))
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
