//! The writer's lease as its holder counts it, and what requests do when it has run out.
//!
//! ```text
//! clocks when it was asked for -> kept by the meta store, and the record is still ours -> counted on for its time less the margin
//!    the clocks jump against each other -> dropped, and asked for again at once
//! ```
//!
//! Always true:
//! 1. It is counted by a clock that goes on while the machine is suspended.
//! 2. Where even that clock stood still (a virtual machine that its host stopped) the wall clock jumps against it when it is set
//!    right: from then on nothing is answered before the meta store was asked again.

use std::cell::Cell;
use std::rc::Rc;

use base::{Instant, Nanos};
use env::Clocks;
use env::sync::Event;

use super::{Condition, Core, Health, Settings, VolumeError};
use crate::meta::{LeaseId, MetaError, MetaStore, Op};
use crate::record::{OnMetaLoss, Writer, writer_key};

/// A lease that was kept.
#[derive(Debug, Clone, Copy)]
struct Term {
    asked: Clocks,
    /// How long it is counted on from then on.
    span: Nanos,
}

/// The writer's lease.
pub(super) struct Lease {
    term: Cell<Option<Term>>,
    /// When it was kept last, by the clock that counts suspended time too.
    kept: Cell<Nanos>,
    /// The clocks may come apart by less than this while it lasts.
    jump_least: Nanos,
    dropped: Event,
}

impl Lease {
    /// None yet. Half of the margin is for clocks that differ in speed, and half for jumps that are not seen.
    pub fn new(margin: Nanos) -> Lease {
        Lease {
            term: Cell::new(None),
            kept: Cell::new(env::clocks().boot),
            jump_least: Nanos(margin.0 / 2),
            dropped: Event::default(),
        }
    }

    /// It was kept: `asked` is what the clocks showed before the meta store was asked.
    pub fn keep(&self, asked: Clocks, span: Nanos) {
        self.term.set(Some(Term { asked, span }));
        self.kept.set(asked.boot);
    }

    /// May something be answered now?
    pub fn holds(&self) -> bool {
        let Some(term) = self.term.get() else {
            return false;
        };
        let now = env::clocks();
        let jump = now.jumped_since(&term.asked);
        if jump >= self.jump_least {
            tracing::warn!(%jump, "the wall clock jumped: the lease of a volume is dropped, and asked for again");
            self.term.set(None);
            self.dropped.notify_all();
            return false;
        }
        now.boot < term.asked.boot + term.span
    }

    /// Since it was kept.
    pub fn age(&self) -> Nanos {
        env::clocks().boot.saturating_sub(self.kept.get())
    }

    /// Waits until a jump of the clocks ends it.
    pub async fn dropped(&self) {
        self.dropped.wait().await;
    }
}

/// A lease that every node sees, for the writer of a volume.
pub(super) async fn writer_lease(
    meta: &dyn MetaStore,
    settings: &Settings,
) -> Result<LeaseId, MetaError> {
    let lease = meta.lease(settings.lease).await?;
    let put = Op::Put {
        key: writer_key(lease.0),
        value: settings.node.clone().into_bytes(),
        lease: Some(lease),
    };
    meta.txn(Vec::new(), vec![put]).await?;
    Ok(lease)
}

impl Core {
    /// Waits until the lease is good for an answer.
    pub(super) async fn leased(&self) -> Result<(), VolumeError> {
        let deadline = env::now() + self.settings.deadline;
        loop {
            self.usable()?;
            if self.lease.holds() {
                return Ok(());
            }
            let lost = VolumeError::NoLease(self.id);
            if self.is_late(deadline, &lost) {
                return Err(lost);
            }
            let _ = env::timeout(self.until(deadline), self.changed.wait()).await;
        }
    }

    /// How long to wait for something to change, of a request with this deadline.
    pub(super) fn until(&self, deadline: Instant) -> Nanos {
        deadline.since(env::now()).max(self.settings.tick)
    }

    /// Is a request over that was to be done until `deadline`, and met `error` last? Not as long as the meta store is away, where
    /// the volume waits for it.
    pub(super) fn is_late(&self, deadline: Instant, error: &VolumeError) -> bool {
        env::now() >= deadline && !self.waits_for_meta(error)
    }

    fn waits_for_meta(&self, error: &VolumeError) -> bool {
        let away = match error {
            VolumeError::Meta { source, .. } => matches!(
                source,
                MetaError::Unavailable { .. }
                    | MetaError::Unknown { .. }
                    | MetaError::NoLease { .. }
            ),
            _ => !self.lease.holds(),
        };
        away && self.record.borrow().0.on_meta_loss == OnMetaLoss::Wait
    }

    /// Keeps the lease, as long as the volume is open.
    pub(super) async fn keep_lease(self: Rc<Self>) {
        while self.usable().is_ok() {
            let lease = self.record.borrow().0.writer.as_ref().map(|it| it.lease);
            let Some(lease) = lease else { return };
            let asked = env::clocks();
            let wait = match self.meta.keep(LeaseId(lease)).await {
                // It may be kept although another writer has the volume: that one could not end it.
                Ok(ttl) => match self.still_ours().await {
                    Ok(()) => {
                        let ttl = ttl.min(self.settings.lease);
                        let counted = ttl.saturating_sub(self.settings.margin);
                        self.lease.keep(asked, counted);
                        self.changed.notify_all();
                        Nanos(self.settings.lease.0 / 4)
                    }
                    Err(error) => {
                        tracing::debug!(volume = %self.id, %error, "the record was not read");
                        Nanos::millis(200)
                    }
                },
                Err(MetaError::NoLease { .. }) => {
                    if let Err(error) = self.new_lease().await {
                        tracing::warn!(volume = %self.id, %error, "no lease");
                    }
                    Nanos::millis(200)
                }
                Err(error) => {
                    tracing::debug!(volume = %self.id, %error, "the lease was not kept");
                    Nanos::millis(200)
                }
            };
            let _ = env::timeout(wait, self.lease.dropped()).await;
        }
    }

    /// Asks the meta store whether the record still has our epoch. What it says besides is not taken: a change of it may be
    /// under way.
    async fn still_ours(&self) -> Result<(), VolumeError> {
        let found = self.meta.get(&self.key).await;
        let found = found.map_err(|error| self.meta_error(error))?;
        self.check_epoch(found.as_ref()).map(drop)
    }

    /// Takes a lease again, if no other writer has the volume yet.
    async fn new_lease(&self) -> Result<(), VolumeError> {
        let lease = writer_lease(&*self.meta, &self.settings).await;
        let lease = lease.map_err(|error| self.meta_error(error))?;
        self.change_record(|record| {
            let writer = Writer {
                node: self.settings.node.clone(),
                lease: lease.0,
                // It is still awaited, or was: a new lease does not change that.
                waits: record.writer.as_ref().is_some_and(|it| it.waits),
            };
            let changes = record.writer.as_ref() != Some(&writer);
            record.writer = Some(writer);
            Ok(changes)
        })
        .await
    }

    /// No earlier writer answers any more.
    pub(super) async fn waits_no_more(&self) -> Result<(), VolumeError> {
        self.change_record(|record| {
            let writer = record.writer.as_mut();
            Ok(writer.is_some_and(|it| std::mem::take(&mut it.waits)))
        })
        .await
    }

    /// What the lease says of the volume's health, if it says anything.
    pub(super) fn health_of_lease(&self) -> Option<Health> {
        let age = self.lease.age();
        let requests = match self.record.borrow().0.on_meta_loss {
            OnMetaLoss::Wait => "wait until it does".to_owned(),
            OnMetaLoss::Fail => format!("fail after {}", self.settings.deadline),
        };
        let on = self.record.borrow().0.on_meta_loss.as_str();
        if !self.lease.holds() {
            let why = format!(
                "the meta store has not answered for {age}, and the lease has run out: requests {requests} (on_meta_loss = {on})"
            );
            let condition = Condition::Offline;
            return Some(Health { condition, why });
        }
        let counted = self.settings.lease.saturating_sub(self.settings.margin);
        if age.0 < self.settings.lease.0 / 2 {
            return None;
        }
        let why = format!(
            "the meta store has not answered for {age}; from {} on requests {requests} (on_meta_loss = {on})",
            counted
        );
        let condition = Condition::Degraded;
        Some(Health { condition, why })
    }
}
