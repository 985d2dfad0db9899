//! A store that is gone for good: volumes go on without it.
//!
//! ```text
//! removed as lost -> volumes that count it as in sync -> the node that has it open, or this one -> out of sync in their records -> forgotten
//! ```
//!
//! Always true:
//! 1. A store that answers, or that has the last in-sync copy of something, stays in sync.

use super::forward::Request;
use super::stores::lists;
use super::{Cluster, ClusterError};
use crate::names::StoreNumber;
use crate::record::{Name, VolumeRecord, VolumeState};

impl Cluster {
    /// Has each volume go on without a store, as far as it can. What cannot is for the caller to find in the records.
    pub(super) async fn give_up(&self, store: StoreNumber) -> Result<(), ClusterError> {
        let counts = |record: &VolumeRecord| {
            let live = record.state == VolumeState::Live;
            live && lists(record, store) && !record.out.contains_key(&store)
        };
        for known in self.records().await?.into_values() {
            let record = known.record;
            if !counts(&record) {
                continue;
            }
            if let Err(error) = self.give_up_one(&record, store).await {
                tracing::info!(volume = %record.name, store = %self.store_label(store), %error, "not given up");
            }
        }
        Ok(())
    }

    async fn give_up_one(
        &self,
        record: &VolumeRecord,
        store: StoreNumber,
    ) -> Result<(), ClusterError> {
        let request = Request::GiveUp { store: store.0 };
        match self.forward(&record.name, record.id, request).await? {
            Some(_) => Ok(()),
            None => self.give_up_here(&record.name, store).await,
        }
    }

    pub(super) async fn give_up_here(
        &self,
        volume: &Name,
        store: StoreNumber,
    ) -> Result<(), ClusterError> {
        let in_use = self.open(volume).await?;
        if !in_use.volume().give_up(store).await? {
            tracing::info!(%volume, store = %self.store_label(store), "not given up: it answers, or has the last copy");
        }
        Ok(())
    }
}
