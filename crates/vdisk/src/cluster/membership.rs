//! Which stores belong to the cluster: they are drained, taken back, and forgotten.
//!
//! ```text
//! removed as lost -> volumes that count it as in sync -> the node that has it open, or this one -> out of sync in their records -> forgotten
//! ```
//!
//! Always true:
//! 1. A store that answers, or that has the last in-sync copy of something, stays in sync.
//! 2. No volume has anything on a store that is forgotten as drained, and none counts on one that is forgotten as lost.

use std::rc::Rc;

use super::ClusterError;
use super::forward::{Forward, Request};
use super::local::LocalVolumes;
use super::node::Node;
use super::records::AllVolumes;
use super::stores::{StoreRecord, StoreState, active_domains, key, lists, lost_key, name_key, put};
use crate::meta::{Compare, Op, Revision};
use crate::names::StoreNumber;
use crate::record::{Name, VolumeRecord, VolumeState, gone_key};

/// Refuses to forget a store that is gone, while a volume counts it as in sync.
fn check_lost(volumes: &AllVolumes, store: &StoreRecord) -> Result<(), ClusterError> {
    let counts = |record: &&VolumeRecord| {
        lists(record, store.number) && !record.out.contains_key(&store.number)
    };
    match volumes.values().map(|it| &it.record).find(counts) {
        None => Ok(()),
        Some(record) => Err(ClusterError::StillInSync {
            name: store.name.clone(),
            volume: record.name.clone(),
        }),
    }
}

/// Refuses to forget a store on which a volume has something.
fn check_left(volumes: &AllVolumes, store: &StoreRecord) -> Result<(), ClusterError> {
    let left = volumes.values().map(|it| &it.record);
    let mut left = left.filter(|record| lists(record, store.number));
    match left.next() {
        None => Ok(()),
        Some(record) => Err(ClusterError::NotEmpty {
            name: store.name.clone(),
            volume: record.name.clone(),
            others: left.count(),
        }),
    }
}

/// What becomes of stores that are there.
pub struct Membership {
    node: Rc<Node>,
    local: Rc<LocalVolumes>,
    forward: Rc<Forward>,
}

impl Membership {
    pub(super) fn new(
        node: &Rc<Node>,
        local: &Rc<LocalVolumes>,
        forward: &Rc<Forward>,
    ) -> Membership {
        Membership {
            node: Rc::clone(node),
            local: Rc::clone(local),
            forward: Rc::clone(forward),
        }
    }

    /// Lets no new data go to a store, and what is there leave; or lets them go there again.
    ///
    /// # Errors
    /// [`ClusterError::NoStore`]; [`ClusterError::TooFewDomains`] if volumes could not be written any more.
    pub async fn set_state(
        &self,
        name: &Name,
        state: StoreState,
    ) -> Result<StoreRecord, ClusterError> {
        let record = self.node.meta.again(async || {
            let (stores, number) = self.node.stores.find(name).await?;
            if state == StoreState::Draining {
                let domains = active_domains(&stores, Some(number));
                let volumes = self.node.meta.volumes().await?;
                let copies = volumes.values().map(|it| it.record.copies).max();
                let copies = copies.unwrap_or(1);
                if domains < usize::from(copies) {
                    return Err(ClusterError::TooFewDomains { copies, domains });
                }
            }
            let (old, revision) = &stores[&number];
            let mut record = old.clone();
            record.state = state;
            if record != *old {
                let compares = vec![Compare::Unchanged(key(number), *revision)];
                let mut ops = vec![put(key(number), record.encode())];
                if state == StoreState::Active {
                    // It may be noted again, though another node was about to forget it.
                    let key = gone_key(number);
                    ops.push(Op::Delete { key });
                }
                self.node.meta.txn(compares, ops).await?;
            }
            Ok(record)
        });
        let record = record.await?;
        self.node.stores.all().await?;
        Ok(record)
    }

    /// Forgets a store: one that was drained and that no volume has anything on, or, with `lost`, one that is gone for good and
    /// that no volume counts on. Volumes that count on it go on without it, if they can.
    ///
    /// # Errors
    /// [`ClusterError::NoStore`], [`ClusterError::Active`], [`ClusterError::NotEmpty`], [`ClusterError::StillInSync`].
    pub async fn remove(&self, name: &Name, lost: bool) -> Result<(), ClusterError> {
        if lost {
            let (_, number) = self.node.stores.find(name).await?;
            self.give_up(number).await?;
        }
        let removed = self.node.meta.again(async || {
            let (stores, number) = self.node.stores.find(name).await?;
            let (record, revision) = &stores[&number];
            if !lost && record.state == StoreState::Active {
                return Err(ClusterError::Active(name.clone()));
            }
            let volumes = self.node.meta.volumes().await?;
            match lost {
                true => check_lost(&volumes, record)?,
                false => {
                    check_left(&volumes, record)?;
                    self.shut(record, *revision).await?;
                }
            }
            let compares = vec![Compare::Unchanged(key(number), *revision)];
            let mut ops = vec![
                Op::Delete { key: key(number) },
                Op::Delete {
                    key: name_key(name),
                },
                // A writer that has not heard of it yet does not put anything there.
                put(gone_key(number), record.uuid.clone().into_bytes()),
            ];
            if lost {
                // Should it turn up again, what it has is out of date.
                let name = name.as_str().as_bytes().to_vec();
                ops.push(put(lost_key(&record.uuid), name));
            }
            self.node.meta.txn(compares, ops).await
        });
        removed.await?;
        self.node.stores.all().await?;
        Ok(())
    }

    /// Lets no volume note a drained store any more, however many there are: a node that has one open may have been about to.
    /// Then looks at them again.
    async fn shut(&self, record: &StoreRecord, revision: Revision) -> Result<(), ClusterError> {
        let compares = || vec![Compare::Unchanged(key(record.number), revision)];
        let gone = put(gone_key(record.number), record.uuid.clone().into_bytes());
        self.node.meta.txn(compares(), vec![gone]).await?;
        let left = check_left(&self.node.meta.volumes().await?, record);
        if left.is_err() {
            let key = gone_key(record.number);
            self.node
                .meta
                .txn(compares(), vec![Op::Delete { key }])
                .await?;
        }
        left
    }

    /// Has each volume go on without a store, as far as it can. What cannot is for the caller to find in the records.
    async fn give_up(&self, store: StoreNumber) -> Result<(), ClusterError> {
        let counts = |record: &VolumeRecord| {
            let live = record.state == VolumeState::Live;
            live && lists(record, store) && !record.out.contains_key(&store)
        };
        for known in self.node.meta.volumes().await?.into_values() {
            let record = known.record;
            if !counts(&record) {
                continue;
            }
            if let Err(error) = self.give_up_one(&record, store).await {
                tracing::info!(volume = %record.name, store = %self.node.stores.label(store), %error, "not given up");
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
        match self
            .forward
            .forward(&record.name, record.id, request)
            .await?
        {
            true => Ok(()),
            false => self.local.give_up(record.id, &record.name, store).await,
        }
    }
}
