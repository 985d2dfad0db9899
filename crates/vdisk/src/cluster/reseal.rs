//! Stores that are sealed for a generation that no writer of a volume ever had are put right.
//!
//! ```text
//! record says so -> nobody opens the volume -> as the only collector: each store's fence looked at, those beyond reason deleted
//!    -> the record says so no more -> the next opening seals all stores anew
//! ```
//!
//! Always true:
//! 1. A fence that a writer of the volume may have sealed stays: a record that is older than its stores is refused as before.
//! 2. The volume is not opened before the fences beyond reason are gone from all of its stores.

use super::collect::{GUARD_OF, Objective};
use super::{Cluster, ClusterError};
use crate::meta::{Compare, Op};
use crate::names::{StoreNumber, VolumeId};
use crate::record::{VolumeRecord, volume_key};

impl Cluster {
    /// Puts the stores of a volume right that is not opened because one is sealed beyond reason. Nothing where that is not so.
    pub(super) async fn unseal(&self, id: VolumeId) -> Result<(), ClusterError> {
        let _alone = self.alone(id).await;
        let known = self.images.volume(id).await?;
        let (mut record, changed) = (known.record, known.changed.expect("it was read"));
        let beyond = record
            .older_than
            .is_some_and(|it| record.is_beyond_reason(it.0));
        if !beyond {
            return Ok(());
        }
        let stores = self.stores().await?;
        let listed = record.stores.clone();
        let all = listed
            .into_iter()
            .flatten()
            .chain(record.out.keys().copied());
        let there = all.filter(|it| stores.contains_key(it)).collect::<Vec<_>>();
        let looked =
            self.as_collector_of(async |objects| Ok(lower(objects, &record, &there).await));
        if let Err((store, why)) = looked.await? {
            let name = stores[&store].0.name.clone();
            let volume = record.name;
            return Err(ClusterError::NotUnsealed {
                volume,
                store: name,
                why,
            });
        }
        record.older_than = None;
        let put = Op::Put {
            key: volume_key(id),
            value: record.encode(),
            lease: None,
        };
        let compares = vec![Compare::Unchanged(volume_key(id), changed)];
        self.txn(compares, vec![put]).await?;
        tracing::warn!(volume = %record.name, "stores that were sealed beyond reason are put right");
        Ok(())
    }
}

/// Deletes a volume's fences that are beyond reason.
async fn lower(
    objects: &Objective,
    record: &VolumeRecord,
    stores: &[StoreNumber],
) -> Result<(), (StoreNumber, String)> {
    let fence = format!("{GUARD_OF}{}", record.id);
    for store in stores {
        let failed = |error: crate::link::LinkError| (*store, error.to_string());
        let sealed = objects.mark_of(*store, &fence).await.map_err(failed)?;
        if sealed.is_some_and(|mark| record.is_beyond_reason(mark)) {
            objects.remove(*store, &fence).await.map_err(failed)?;
        }
    }
    Ok(())
}
