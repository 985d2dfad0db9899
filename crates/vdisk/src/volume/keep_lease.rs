//! The writer's lease at the meta store: asked for, kept, and asked for again.
//!
//! ```text
//! clocks when it was asked for -> kept by the meta store, and the record is still ours -> counted on for its time less the margin
//! ```
//!
//! Always true: a lease counts only if the record still had the volume's epoch when it was kept.

use std::rc::Rc;

use base::Nanos;

use super::error::VolumeError;
use super::record_io::RecordIo;
use super::settings::Settings;
use super::state::Core;
use crate::meta::{LeaseId, MetaError, MetaStore, Op};
use crate::record::{Writer, writer_key};

/// Keeps the writer's lease in the meta store.
#[derive(Clone, Copy)]
pub(super) struct LeaseKeeper<'a> {
    core: &'a Rc<Core>,
}

impl<'a> LeaseKeeper<'a> {
    pub fn of(core: &'a Rc<Core>) -> LeaseKeeper<'a> {
        LeaseKeeper { core }
    }

    /// Keeps the lease, as long as the volume is open.
    pub(super) async fn keep_lease(self) {
        while self.core.usable().is_ok() {
            let lease = self.core.volume_record().writer.as_ref().map(|it| it.lease);
            let Some(lease) = lease else { return };
            let asked = env::clocks();
            let wait = match self.core.meta.keep(LeaseId(lease)).await {
                // It may be kept although another writer has the volume: that one could not end it.
                Ok(ttl) => match self.still_ours().await {
                    Ok(()) => {
                        let counted = self.core.settings.counted(ttl);
                        self.core.lease.keep(asked, counted);
                        self.core.life.changed.notify_all();
                        Nanos(self.core.settings.lease.0 / 4)
                    }
                    Err(error) => {
                        tracing::debug!(volume = %self.core.id, %error, "the record was not read");
                        Nanos::millis(200)
                    }
                },
                Err(MetaError::NoLease { .. }) => {
                    if let Err(error) = self.new_lease().await {
                        tracing::warn!(volume = %self.core.id, %error, "no lease");
                    }
                    Nanos::millis(200)
                }
                Err(error) => {
                    tracing::debug!(volume = %self.core.id, %error, "the lease was not kept");
                    Nanos::millis(200)
                }
            };
            let _ = env::timeout(wait, self.core.lease.dropped()).await;
        }
    }

    /// Asks the meta store whether the record still has our epoch. What it says besides is not taken: a change of it may be
    /// under way.
    async fn still_ours(self) -> Result<(), VolumeError> {
        let found = self.core.meta.get(&self.core.record.key).await;
        let found = found.map_err(|error| self.core.meta_error(error))?;
        RecordIo::of(self.core)
            .check_epoch(found.as_ref())
            .map(drop)
    }

    /// Takes a lease again, if no other writer has the volume yet.
    async fn new_lease(self) -> Result<(), VolumeError> {
        let lease = writer_lease(&*self.core.meta, &self.core.settings).await;
        let lease = lease.map_err(|error| self.core.meta_error(error))?;
        RecordIo::of(self.core)
            .change_record(|record| {
                let writer = Writer {
                    node: self.core.settings.node.clone(),
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
    pub(super) async fn waits_no_more(self) -> Result<(), VolumeError> {
        RecordIo::of(self.core)
            .change_record(|record| {
                let writer = record.writer.as_mut();
                Ok(writer.is_some_and(|it| std::mem::take(&mut it.waits)))
            })
            .await
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
