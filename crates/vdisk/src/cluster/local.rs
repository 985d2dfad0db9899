//! What is done with a volume as a whole, by the node that has it open or opens it for that.
//!
//! Always true: one such operation on a volume runs at a time.

use std::rc::Rc;

use base::Bytes;
use device::Device;

use super::ClusterError;
use super::node::Node;
use super::opened::Openings;
use super::set::Setting;
use crate::image::tree::snapshot_key;
use crate::meta::{Compare, Op};
use crate::names::{StoreNumber, VolumeId};
use crate::record::{Name, volume_key};

/// Volumes on this node.
pub(super) struct LocalVolumes {
    node: Rc<Node>,
    openings: Rc<Openings>,
}

impl LocalVolumes {
    pub fn new(node: &Rc<Node>, openings: &Rc<Openings>) -> LocalVolumes {
        LocalVolumes {
            node: Rc::clone(node),
            openings: Rc::clone(openings),
        }
    }

    pub async fn snapshot(
        &self,
        id: VolumeId,
        volume: &Name,
        name: &Name,
    ) -> Result<(), ClusterError> {
        let _alone = self.node.slots.alone(id).await;
        let found = self
            .node
            .meta
            .images
            .meta
            .get(&snapshot_key(id, name))
            .await?;
        if found.is_some() {
            return Err(ClusterError::SnapshotExists {
                volume: volume.clone(),
                name: name.clone(),
            });
        }
        let in_use = self.openings.open_alone(id).await?;
        in_use.volume().snapshot(name.clone()).await?;
        Ok(())
    }

    pub async fn resize(
        &self,
        id: VolumeId,
        name: &Name,
        size: u64,
        shrink: bool,
    ) -> Result<(), ClusterError> {
        let _alone = self.node.slots.alone(id).await;
        let in_use = self.openings.open_alone(id).await?;
        if in_use.is_for_one() {
            let volume = name.clone();
            return Err(ClusterError::Taken { volume });
        }
        let (now, asked) = (in_use.volume().info().size, Bytes(size));
        if asked < now && !shrink {
            let volume = name.clone();
            return Err(ClusterError::Shrinks { volume, now, asked });
        }
        Ok(in_use.volume().resize(asked).await?)
    }

    pub async fn set(&self, id: VolumeId, setting: &Setting) -> Result<(), ClusterError> {
        let _alone = self.node.slots.alone(id).await;
        self.node
            .meta
            .again(async || self.try_set(id, setting).await)
            .await
    }

    async fn try_set(&self, id: VolumeId, setting: &Setting) -> Result<(), ClusterError> {
        let known = self.node.meta.images.volume(id).await?;
        let mut record = known.record;
        setting.check(&record, |holder| self.node.stores.booked(holder))?;
        if self.node.slots.get(id).is_none() && record.writer.is_none() {
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
            return self.node.meta.txn(compares, ops).await;
        }
        self.openings.claims.wait_for_others("change", id).await?;
        let in_use = self.openings.open_alone(id).await?;
        let volume = in_use.volume();
        let setting = setting.clone();
        volume.set(move |record| setting.apply(record)).await?;
        in_use.throttle().set(volume.record().terms.caps.into());
        in_use.set_account_cap(self.node.stores.account_cap(&volume.record()));
        volume
            .become_one_of(self.openings.caller_of(&volume.record()))
            .await;
        Ok(())
    }

    pub async fn give_up(
        &self,
        id: VolumeId,
        volume: &Name,
        store: StoreNumber,
    ) -> Result<(), ClusterError> {
        let in_use = {
            let _alone = self.node.slots.alone(id).await;
            self.openings.open_alone(id).await?
        };
        if !in_use.volume().give_up(store).await? {
            tracing::info!(%volume, store = %self.node.stores.label(store), "not given up: it answers, or has the last copy");
        }
        Ok(())
    }
}
