//! Who writes the volume from here on?
//!
//! ```text
//! record -> epoch, writer, lease: compare-and-swap -> what there is of it (`recover`) -> the old writer's lease is over -> open
//! ```
//!
//! Always true:
//! 1. A writer that did not close may answer, from memory or from a store that is not sealed, until its lease is over;
//!    the volume is not open before. No lease is kept that began before another epoch: its holder reads the record.
//! 2. That it is over is known from the clock, or from a meta store whose leases are proof, in the step that gives the volume its epoch.
//!    There a lease runs out later than its holder counts. The proof needs a holder that had no earlier writer to wait for.

use super::error::VolumeError;
use super::keep_lease::writer_lease;
use super::settings::Settings;
use crate::image::tree::{ImageRecord, ImageState, Versioned, image_key};
use crate::meta::{Compare, LeaseId, MetaError, MetaStore, Op, Outcome, Revision};
use crate::names::VolumeId;
use crate::record::{RecordError, VolumeRecord, VolumeState, Writer, volume_key, writer_key};

/// A volume that has a new writer.
pub(super) struct Taken {
    pub record: VolumeRecord,
    pub revision: Revision,
    /// The record as it was.
    pub before: VolumeRecord,
}

/// Makes this node the writer.
pub(super) async fn take(
    id: VolumeId,
    meta: &dyn MetaStore,
    settings: &Settings,
) -> Result<Taken, VolumeError> {
    let failed = |source: MetaError| VolumeError::Meta { volume: id, source };
    let key = volume_key(id);
    let lease = writer_lease(meta, settings).await.map_err(failed)?;
    let found = meta.get(&key).await.map_err(failed)?;
    let found = found.ok_or(VolumeError::Missing(id))?;
    let before = VolumeRecord::decode(id, &found.value)?;
    if before.state != VolumeState::Live {
        let why = "it is being deleted".to_owned();
        return Err(VolumeError::Settings { volume: id, why });
    }
    if let Some(why) = before.refusal() {
        // It was refused once before; nothing is changed any more.
        return Err(VolumeError::Settings { volume: id, why });
    }
    let mut compares = vec![Compare::Unchanged(key.clone(), found.changed)];
    let waits = match &before.writer {
        None => false,
        Some(old) => may_answer(old, meta, &mut compares).await.map_err(failed)?,
    };
    let writer = Writer {
        node: settings.node.clone(),
        lease: lease.0,
        waits,
    };
    let record = replication::opening::take(&before, writer);
    let taken = swap(&record, compares, meta).await.map_err(failed)?;
    let Some(revision) = taken else {
        let why = "another node changed its record while it was opened".to_owned();
        return Err(VolumeError::Fenced { volume: id, why });
    };
    // The old writer learns it at once, if it reaches the meta store; in any case its lease is kept no more.
    let old = before.writer.as_ref().map(|it| LeaseId(it.lease));
    let revoked = match old {
        Some(old) => meta.revoke(old).await,
        None => Ok(()),
    };
    match revoked {
        Ok(()) | Err(MetaError::NoLease { .. }) => {}
        Err(error) => return Err(failed(error)),
    }
    Ok(Taken {
        record,
        revision,
        before,
    })
}

/// Puts a record there, if `compares` hold. None: they do not.
async fn swap(
    record: &VolumeRecord,
    compares: Vec<Compare>,
    meta: &dyn MetaStore,
) -> Result<Option<Revision>, MetaError> {
    let (key, value) = (volume_key(record.id), record.encode());
    let put = Op::Put {
        key: key.clone(),
        value: value.clone(),
        lease: None,
    };
    match meta.txn(compares, vec![put]).await {
        Ok(Outcome::Done(revision)) => Ok(Some(revision)),
        Ok(Outcome::Refused(_)) => Ok(None),
        Err(MetaError::Unknown { .. }) => {
            // Our lease is in it, so it is this writer's own.
            let now = meta.get(&key).await?;
            Ok(now.filter(|now| now.value == value).map(|now| now.changed))
        }
        Err(error) => Err(error),
    }
}

/// May the writer before still answer? If not, `compares` hold as long as that is so.
async fn may_answer(
    old: &Writer,
    meta: &dyn MetaStore,
    compares: &mut Vec<Compare>,
) -> Result<bool, MetaError> {
    let held = writer_key(old.lease);
    let ran_out = meta.get(&held).await?.is_none();
    if ran_out {
        // Once it is gone it does not come back.
        compares.push(Compare::Absent(held));
    }
    Ok(old.waits || !ran_out || !meta.leases_are_proof())
}

/// The image that the volume writes to. Only its writer gives it a root.
pub(super) async fn head_of(
    record: &VolumeRecord,
    meta: &dyn MetaStore,
) -> Result<Versioned<ImageRecord>, VolumeError> {
    let volume = record.id;
    let failed = |source: MetaError| VolumeError::Meta { volume, source };
    let found = meta.get(&image_key(record.head)).await.map_err(failed)?;
    let missing = || RecordError::malformed(&image_key(record.head), "it is not there");
    let found = found.ok_or_else(missing)?;
    let head = ImageRecord::decode(record.head, &found.value)?;
    if head.state != ImageState::Head || head.volume != volume {
        let why = format!("it is no head of volume {volume}");
        return Err(RecordError::malformed(&image_key(record.head), why).into());
    }
    Ok(Versioned {
        record: head,
        changed: Some(found.changed),
    })
}
