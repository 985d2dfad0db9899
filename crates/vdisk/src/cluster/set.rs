//! What operators set on a volume that is there: class, fairness, how many copies a write must reach, whose reservations it is
//! under.
//!
//! ```text
//! closed                                   -> its record, by compare-and-swap
//! open here, or left open by who is gone   -> its record, by its engine -> its connections say anew whose requests come
//! open on another node                     -> that node does it
//! ```
//!
//! Always true:
//! 1. What a writer changes in the record meanwhile stays.
//! 2. What is answered as done is in the record, and in force where the volume is open.

use super::volumes::Overview;
use super::{Cluster, ClusterError};
use crate::meta::{Compare, Op};
use crate::names::VolumeId;
use crate::record::{Fairness, Name, OnMetaLoss, PriorityClass, VolumeRecord, volume_key};

/// What is to be set; all else stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Setting {
    /// Its clients beside others.
    pub priority: Option<PriorityClass>,
    /// How far they and others of their class are kept apart.
    pub fairness: Option<Fairness>,
    /// How many copies a write must reach at least.
    pub min_isr: Option<u8>,
    /// The holder of the reservations attached to its requests; `Some(None)`: none.
    pub holder: Option<Option<String>>,
    /// What requests do while the meta store is away.
    pub on_meta_loss: Option<OnMetaLoss>,
}

impl Setting {
    /// Nothing at all?
    pub fn is_empty(&self) -> bool {
        *self == Setting::default()
    }

    /// Sets it; is anything different then?
    fn apply(&self, record: &mut VolumeRecord) -> bool {
        let before = record.clone();
        record.priority = self.priority.unwrap_or(record.priority);
        record.fairness = self.fairness.or(record.fairness);
        record.min_isr = self.min_isr.unwrap_or(record.min_isr);
        record.on_meta_loss = self.on_meta_loss.unwrap_or(record.on_meta_loss);
        if let Some(holder) = &self.holder {
            record.reservation.clone_from(holder);
        }
        *record != before
    }

    fn check(&self, record: &VolumeRecord) -> Result<(), ClusterError> {
        match self.min_isr {
            Some(asked) if asked == 0 || asked > record.copies => Err(ClusterError::MinCopies {
                volume: record.name.clone(),
                asked,
                copies: record.copies,
            }),
            _ => Ok(()),
        }
    }
}

impl Cluster {
    /// Sets something of a volume, which may be in use, also on another node; it is in force at once.
    ///
    /// # Errors
    /// [`ClusterError::NoVolume`], [`ClusterError::MinCopies`], [`ClusterError::Elsewhere`]; [`ClusterError::Volume`] if it was
    /// left open and cannot be opened.
    pub async fn set(&self, name: &Name, setting: &Setting) -> Result<Overview, ClusterError> {
        let id = self.find(name).await?;
        setting.check(&self.images.volume(id).await?.record)?;
        if let Some(now) = self.forward(name, id, setting.into()).await? {
            return Ok(now);
        }
        self.set_here(id, setting).await?;
        self.overview(name).await
    }

    pub(super) async fn set_here(
        &self,
        id: VolumeId,
        setting: &Setting,
    ) -> Result<(), ClusterError> {
        let _alone = self.alone(id).await;
        self.again(async || self.try_set(id, setting).await).await
    }

    async fn try_set(&self, id: VolumeId, setting: &Setting) -> Result<(), ClusterError> {
        let known = self.images.volume(id).await?;
        let mut record = known.record;
        setting.check(&record)?;
        if self.slot(id).is_none() && record.writer.is_none() {
            if !setting.apply(&mut record) {
                return Ok(());
            }
            let changed = known.changed.expect("it was read");
            let compares = vec![Compare::Unchanged(volume_key(id), changed)];
            let ops = vec![Op::Put {
                key: volume_key(id),
                value: record.encode(),
                lease: None,
            }];
            return self.txn(compares, ops).await;
        }
        self.wait_for_others("change", id).await?;
        let in_use = self.open_alone(id).await?;
        let volume = in_use.volume();
        let setting = setting.clone();
        volume.set(move |record| setting.apply(record)).await?;
        volume.become_one_of(self.caller_of(&volume.record())).await;
        Ok(())
    }
}
