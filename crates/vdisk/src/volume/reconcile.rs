//! What makes copies equal again.
//!
//! ```text
//! unreconciled -> extent alone -> one in-sync copy to the others, stamped anew -> reconciled
//! ```
//!
//! [`replication::reconcile`] decides which stores are asked, and which leave.
//!
//! Always true:
//! 1. What was copied to others is stamped with the present generation, so that resync gives it to stores that are out.
//! 2. A copy that is being made where there was none does not count before it is whole.

use std::rc::Rc;

use base::Instant;
use replication::reconcile::{self, Ended, Step};

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
            if !self.core.is_unreconciled(index) {
                return Ok(());
            }
            let start = u64::from(index) * EXTENT;
            let held = self
                .core
                .locks
                .ranges
                .take(start..start + EXTENT, true)
                .await;
            if !self.core.is_unreconciled(index) {
                return Ok(());
            }
            match self.reconcile(index).await {
                Ok(()) => {
                    // No other task is at this extent: whichever requests left it unreconciled, it is reconciled.
                    self.core
                        .replication
                        .borrow_mut()
                        .unreconciled
                        .reconciled(index);
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
        while self.core.is_unreconciled(index) {
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
                .replication
                .borrow()
                .unreconciled
                .from(first)
                .next();
            let Some(index) = next else {
                return Ok(());
            };
            match self.reconcile(index).await {
                Ok(()) => self
                    .core
                    .replication
                    .borrow_mut()
                    .unreconciled
                    .reconciled(index),
                Err(error) if !error.passes() || env::now() >= deadline => return Err(error),
                Err(_) => self.core.pause(&mut tries).await,
            }
        }
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
        let mut equal = reconcile::Reconcile::new(index);
        let mut step = equal.begin(&mut core.replication.borrow_mut(), &placed.copies.borrow());
        let broke = || ConnectionError::Gone("a link broke meanwhile".to_owned());
        let mut why = match equal.unlinked().first() {
            Some(store) => no_link(core, *store),
            None => broke(),
        };
        let (mut copies, mut source, mut under_way) = (Vec::new(), None, None);
        loop {
            step = match step {
                Step::Shrink(stores) => {
                    let out = Membership::of(core).shrink_set(&stores).await?;
                    if out {
                        why = broke();
                    }
                    equal.shrunk(out, &core.replication.borrow())
                }
                Step::Look(stores) => {
                    copies = Copies::of(core).linked(&stores);
                    under_way = Some(core.begin());
                    source = Copies::of(core).source(&placed, &copies).await?;
                    equal.found(source.is_some(), &mut placed.copies.borrow_mut())
                }
                Step::Equalize => {
                    let stamp = under_way.as_ref().expect("looked for before").stamp();
                    let from = source.as_ref().expect("found");
                    let failed = self.equalize(&placed, from, &copies, stamp, &mut why);
                    equal.equalized(failed.await?)
                }
                Step::Renew => {
                    RecordIo::of(core).renew().await?;
                    equal.renewed()
                }
                Step::Over(ended) => return self.over(ended, &placed, &why),
            }
        }
    }

    fn over(
        self,
        ended: Ended,
        placed: &ExtentEntry,
        why: &ConnectionError,
    ) -> Result<(), VolumeError> {
        match ended {
            Ended::NotNow => return Err(self.core.no_copy(placed.name.index, why)),
            // Its bit stays.
            Ended::NoneHasIt => {}
            Ended::Equal => {
                self.core.count(|counters| counters.reconciled += 1);
                #[cfg(test)]
                if self.core.mutated(Mutation::StaleBlocks) {
                    return Ok(());
                }
            }
        }
        placed.blocks.forget();
        Ok(())
    }

    /// Makes all copies what `source` is, and stamps them; answers the stores where that was not done, and why for the first of them.
    /// None: the source could not be read.
    async fn equalize(
        self,
        placed: &ExtentEntry,
        source: &(Rc<dyn Connection>, u64),
        copies: &[Copy<'_>],
        stamp: Generation,
        why: &mut ConnectionError,
    ) -> Result<Option<Vec<StoreNumber>>, VolumeError> {
        let mut failed = Vec::new();
        for (replica, connection) in copies {
            let from = (&source.0, source.1);
            let done = self.equal_copy(placed, from, copies, connection, stamp);
            match done.await {
                Ok(()) => {}
                Err(CopyError::To(ConnectionError::Fenced { why, .. })) => {
                    return Err(self.core.fence(why));
                }
                // Nothing is wrong with the target: no store leaves the in-sync set for this.
                Err(CopyError::From(error)) => {
                    Copies::of(self.core).lose_source(copies, &source.0);
                    *why = error;
                    return Ok(None);
                }
                Err(CopyError::To(error)) => {
                    if error.ends_connection() {
                        replica.lose(connection, error.is_indeterminate());
                    }
                    if failed.is_empty() {
                        *why = error;
                    }
                    failed.push(replica.info.number);
                }
            }
        }
        Ok(Some(failed))
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

fn no_link(core: &Core, store: StoreNumber) -> ConnectionError {
    let label = core.replicas.label(store);
    ConnectionError::Gone(format!("there is no link to store {label}"))
}
