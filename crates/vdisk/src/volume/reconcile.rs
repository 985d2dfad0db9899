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

use base::Instant;

use super::copies::{Copies, Copy, CopyError, stamped};
use super::error::VolumeError;
use super::extent::ExtentEntry;
#[cfg(test)]
use super::life::Mutation;
use super::membership::Membership;
use super::record_io::RecordIo;
use super::state::Core;
use crate::names::{EXTENT, Generation, StoreNumber};
use crate::replica::connect::{Connection, ConnectionError};

/// Makes the copies of unreconciled extents equal.
#[derive(Clone, Copy)]
pub(super) struct Reconcile<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Reconcile<'a> {
    pub fn of(core: &'a Rc<Core>) -> Reconcile<'a> {
        Reconcile { core }
    }

    /// Waits until the copies of `index` are equal; makes them so.
    pub(super) async fn ensure_reconciled(
        self,
        index: u32,
        deadline: Instant,
    ) -> Result<(), VolumeError> {
        let mut tries = 0;
        let once = env::now() >= deadline;
        loop {
            self.core.usable()?;
            if !self.core.extents.is_unreconciled(index) {
                return Ok(());
            }
            let start = u64::from(index) * EXTENT;
            let held = self
                .core
                .locks
                .ranges
                .take(start..start + EXTENT, true)
                .await;
            if !self.core.extents.is_unreconciled(index) {
                return Ok(());
            }
            match self.reconcile(index).await {
                Ok(()) => {
                    // No other task is at this extent: whichever requests left it unreconciled, it is reconciled.
                    self.core.extents.unreconciled.borrow_mut().remove(&index);
                    return Ok(());
                }
                Err(error) if !error.passes() || once || self.core.is_late(deadline, &error) => {
                    return Err(error);
                }
                Err(_) => {}
            }
            drop(held);
            self.core.pause(&mut tries).await;
        }
    }

    /// Waits until the copies of `index` are equal. One task makes them so for all requests that wait, to its end, whether
    /// or not they wait so long. Changes of copies under way belong to this task alone.
    pub(super) async fn await_reconciled(
        self,
        index: u32,
        deadline: Instant,
    ) -> Result<(), VolumeError> {
        while self.core.extents.is_unreconciled(index) {
            self.core.usable()?;
            let why = "its copies may differ, and cannot be made equal now".to_owned();
            let error = self.core.no_copy(index, &ConnectionError::Gone(why));
            if self.core.is_late(deadline, &error) {
                return Err(error);
            }
            if self.core.extents.reconciling.borrow_mut().insert(index) {
                let core = Rc::clone(self.core);
                env::spawn(async move {
                    if let Err(error) = Reconcile::of(&core)
                        .ensure_reconciled(index, deadline)
                        .await
                    {
                        tracing::debug!(volume = %core.id, index, %error, "still unreconciled");
                    }
                    core.extents.reconciling.borrow_mut().remove(&index);
                    core.life.changed.notify_all();
                });
            }
            let _ = env::timeout(self.core.until(deadline), self.core.life.changed.wait()).await;
        }
        Ok(())
    }

    /// Makes all copies equal of extents from there on. Their ranges are the caller's alone.
    pub(super) async fn settle_from(self, first: u32) -> Result<(), VolumeError> {
        let deadline = env::now() + self.core.settings.deadline;
        let mut tries = 0;
        loop {
            self.core.usable()?;
            let next = self
                .core
                .extents
                .unreconciled
                .borrow()
                .range(first..)
                .next()
                .map(|it| *it.0);
            let Some(index) = next else {
                return Ok(());
            };
            match self.reconcile(index).await {
                Ok(()) => drop(self.core.extents.unreconciled.borrow_mut().remove(&index)),
                Err(error) if !error.passes() || env::now() >= deadline => return Err(error),
                Err(_) => self.core.pause(&mut tries).await,
            }
        }
    }

    /// Every store that is needed, with its connection; one without leaves the in-sync set, if it can be spared.
    async fn reachable(
        self,
        index: u32,
        numbers: &[StoreNumber],
    ) -> Result<Vec<Copy<'a>>, VolumeError> {
        let needed = self.core.replicas.needed(numbers);
        let (linked, lost): (Vec<_>, Vec<_>) = needed
            .into_iter()
            .partition(|replica| replica.connection().is_some());
        if !lost.is_empty() {
            let lost: Vec<StoreNumber> = lost.iter().map(|it| it.info.number).collect();
            let why = ConnectionError::Gone(format!(
                "there is no link to store {}",
                self.core.replicas.label(lost[0])
            ));
            if linked.is_empty() || !Membership::of(self.core).shrink_set(&lost).await? {
                RecordIo::of(self.core).renew().await?;
                return Err(self.core.no_copy(index, &why));
            }
        }
        let copies: Vec<Copy<'_>> = (linked.iter())
            .filter_map(|it| Some((*it, it.connection()?)))
            .collect();
        if copies.len() < linked.len() || copies.is_empty() {
            // A store that could not be asked may have it: that none does is only known when all were.
            RecordIo::of(self.core).renew().await?;
            let why = ConnectionError::Gone("a link broke meanwhile".to_owned());
            return Err(self.core.no_copy(index, &why));
        }
        Ok(copies)
    }

    /// Makes the copies of an extent equal. Its range is the caller's alone.
    pub(super) async fn reconcile(self, index: u32) -> Result<(), VolumeError> {
        let core = self.core;
        let Some(placed) = core.extents.placed(index) else {
            return Ok(());
        };
        if core.is_shared(&placed) {
            // Its copies were equal when it became so; what was unreconciled above it was never named.
            return Ok(());
        }
        let numbers = placed.stores.borrow().clone();
        // A store that is out must have this resynced again before it joins.
        for replica in numbers.iter().filter_map(|one| core.replicas.get(*one)) {
            replica.lacks(index);
        }
        let copies = self.reachable(index, &numbers).await?;
        let under_way = core.begin();
        let source = Copies::of(core).source(&placed, &copies).await?;
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
            let (from, stamp) = ((&source, size), under_way.stamp());
            let done = self.equal_copy(&placed, from, &copies, connection, stamp);
            match done.await {
                Ok(()) => {}
                Err(CopyError::To(ConnectionError::Fenced { why, .. })) => {
                    return Err(core.fence(why));
                }
                // Nothing is wrong with the target: no store leaves the in-sync set for this.
                Err(CopyError::From(error)) => {
                    Copies::of(core).lose_source(&copies, &source);
                    RecordIo::of(core).renew().await?;
                    return Err(core.no_copy(index, &error));
                }
                Err(CopyError::To(error)) => {
                    if error.ends_connection() {
                        replica.lose(connection, error.is_indeterminate());
                    }
                    failed.push((replica.info.number, error));
                }
            }
        }
        self.leave_behind(index, &failed, copies.len()).await?;
        core.count(|counters| counters.reconciled += 1);
        #[cfg(test)]
        if core.mutated(Mutation::StaleBlocks) {
            return Ok(());
        }
        placed.blocks.forget();
        Ok(())
    }

    /// Copies that could not be made equal leave the in-sync set, if that is not all of them.
    async fn leave_behind(
        self,
        index: u32,
        failed: &[(StoreNumber, ConnectionError)],
        all: usize,
    ) -> Result<(), VolumeError> {
        let Some((_, why)) = failed.first() else {
            return Ok(());
        };
        let numbers: Vec<StoreNumber> = failed.iter().map(|(one, _)| *one).collect();
        if failed.len() < all && Membership::of(self.core).shrink_set(&numbers).await? {
            return Ok(());
        }
        RecordIo::of(self.core).renew().await?;
        Err(self.core.no_copy(index, why))
    }

    /// Makes one copy what `source` is, and stamps it. [`CopyError::From`]: the source's connection is of no more use.
    async fn equal_copy(
        self,
        placed: &ExtentEntry,
        source: (&Rc<dyn Connection>, u64),
        copies: &[Copy<'_>],
        to: &Rc<dyn Connection>,
        stamp: Generation,
    ) -> Result<(), CopyError> {
        if !Rc::ptr_eq(to, source.0) {
            match self.make_equal(placed, source, copies, to).await {
                Err(CopyError::From(error)) if !error.ends_connection() => {
                    return Err(CopyError::To(error));
                }
                other => other?,
            }
        }
        let stamp = to.stamp(&placed.object, stamped(stamp, true));
        self.core.within(stamp).await.map_err(CopyError::To)
    }

    /// Makes one copy of an unreconciled extent what `source` is, of that size, but for its stamp. One that is not there yet
    /// has the stamp 0 until it is whole. An opening after a crash must not take it for a copy.
    async fn make_equal(
        self,
        placed: &ExtentEntry,
        (source, size): (&Rc<dyn Connection>, u64),
        copies: &[Copy<'_>],
        to: &Rc<dyn Connection>,
    ) -> Result<(), CopyError> {
        let object = &placed.object;
        let stamp = match self.core.within(to.stat(object)).await {
            Ok(stat) => Generation(stat.stamp),
            Err(ConnectionError::Absent(_)) => Generation(0),
            Err(error) => return Err(CopyError::To(error)),
        };
        Copies::of(self.core)
            .copy(object, object, source, copies, to, stamp)
            .await?;
        if size == EXTENT {
            return Ok(());
        }
        let rest = to.punch(object, size, EXTENT - size, stamped(stamp, false));
        self.core.within(rest).await.map_err(CopyError::To)
    }
}
