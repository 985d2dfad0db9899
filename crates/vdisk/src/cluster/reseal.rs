//! Stores that are sealed for a generation that no writer of a volume ever had are put right.
//!
//! ```text
//! record says so -> no node opens the volume -> as the only collector: each store's fence looked at, those beyond reason deleted
//!    -> the record says so no more -> the next opening seals all stores anew
//! ```
//!
//! Always true:
//! 1. A fence that a writer of the volume may have sealed stays: a record that is older than its stores is refused as before.
//! 2. The volume is not opened before the fences beyond reason are gone from all of its stores.

use std::rc::Rc;

use super::ClusterError;
use super::collect::{Collecting, FENCE_OF, Objective};
use super::node::Node;
use super::stores::lists;
use crate::image::records::ImagesError;
use crate::meta::{Compare, Op, Outcome, Revision};
use crate::names::{StoreNumber, VolumeId};
use crate::record::{VolumeRecord, volume_key};

/// What puts them right.
pub(super) struct Unsealing {
    node: Rc<Node>,
    collecting: Rc<Collecting>,
}

impl Unsealing {
    pub fn new(node: &Rc<Node>, collecting: &Rc<Collecting>) -> Unsealing {
        Unsealing {
            node: Rc::clone(node),
            collecting: Rc::clone(collecting),
        }
    }

    /// Puts the stores of a volume right that is not opened because one is sealed beyond reason. Nothing where that is not so.
    pub async fn unseal(&self, id: VolumeId) -> Result<(), ClusterError> {
        let _alone = self.node.slots.alone(id).await;
        let known = self.node.meta.images.volume(id).await?;
        let (mut record, changed) = (known.record, known.changed.expect("it was read"));
        let beyond = record
            .older_than
            .is_some_and(|it| record.is_beyond_reason(it.0));
        if !beyond {
            return Ok(());
        }
        let stores = self.node.stores.all().await?;
        let there: Vec<StoreNumber> = stores.keys().copied().collect();
        let refused = |record: &VolumeRecord, (store, why): (StoreNumber, String)| {
            ClusterError::NotUnsealed {
                volume: record.name.clone(),
                store: stores[&store].0.name.clone(),
                why,
            }
        };
        let found = self
            .collecting
            .as_collector_of(async |objects| Ok(beyond_reason(objects, &record, &there).await));
        let beyond = found.await?.map_err(|why| refused(&record, why))?;
        // The next fence there is a later object: what is known of this one goes before it does.
        record.seen.retain(|store, _| !beyond.contains(store));
        let revision = self.write_record(&record, changed).await?;
        let lowered = self
            .collecting
            .as_collector_of(async |objects| Ok(lower(objects, &record, &beyond).await));
        lowered.await?.map_err(|why| refused(&record, why))?;
        record.older_than = None;
        self.write_record(&record, revision).await?;
        tracing::warn!(volume = %record.name, "stores that were sealed beyond reason are put right");
        Ok(())
    }

    /// Puts a volume's record in the place of one that nothing changed since; its revision.
    async fn write_record(
        &self,
        record: &VolumeRecord,
        since: Revision,
    ) -> Result<Revision, ClusterError> {
        let key = volume_key(record.id);
        let put = Op::Put {
            key: key.clone(),
            value: record.encode(),
            lease: None,
        };
        let compares = vec![Compare::Unchanged(key.clone(), since)];
        match self.node.meta.images.meta.txn(compares, vec![put]).await? {
            Outcome::Done(revision) => Ok(revision),
            Outcome::Refused(_) => Err(ImagesError::Conflict(key).into()),
        }
    }
}

/// Stores with a fence of the volume that is beyond reason. An opening seals stores that have nothing of it, too: those are looked
/// at if they answer.
async fn beyond_reason(
    objects: &Objective,
    record: &VolumeRecord,
    stores: &[StoreNumber],
) -> Result<Vec<StoreNumber>, (StoreNumber, String)> {
    let fence = format!("{FENCE_OF}{}", record.id);
    let mut beyond = Vec::new();
    for store in stores {
        let must = lists(record, *store) || record.out.contains_key(store);
        match objects.mark_of(*store, &fence).await {
            Ok(Some(token)) if record.is_beyond_reason(token) => beyond.push(*store),
            Ok(_) => {}
            Err(error) if must => return Err((*store, error.to_string())),
            Err(error) => {
                tracing::debug!(volume = %record.name, store = store.0, %error, "its fence is not looked at");
            }
        }
    }
    Ok(beyond)
}

/// Deletes the volume's fence at these stores.
async fn lower(
    objects: &Objective,
    record: &VolumeRecord,
    stores: &[StoreNumber],
) -> Result<(), (StoreNumber, String)> {
    let fence = format!("{FENCE_OF}{}", record.id);
    for store in stores {
        let gone = objects.remove(*store, &fence).await;
        gone.map_err(|error| (*store, error.to_string()))?;
    }
    Ok(())
}
