//! Does a store still have what it had? The generation of the volume's fence there shows it.
//!
//! ```text
//! each seal, and each stamp while the volume is written -> the fence's generation at the store grows, durably
//!    -> kept in the record, by store -> a store whose fence is older was put back to an earlier state: it gets no connection
//! ```
//!
//! A disk that was put back (a snapshot of a virtual machine, an old image) has its identity and its checksums in order, and
//! copies that are out of date. The fence is stamped at each in-sync store every ten seconds while the volume is written or
//! copied, and when it is closed; at a store that comes back, before it is in sync.
//!
//! Always true: a store whose fence is older than that, or gone, counts as one that does not answer: it leaves the in-sync set, and what it
//!    has is read by no request and no resync.

use std::rc::Rc;

use base::Nanos;
use env::sync::join_all;
use store::{Change, Condition};

use super::Core;
use super::membership::{Replica, SyncState};
use crate::names::Generation;
use crate::record::VolumeRecord;
use crate::replica::connect::{Connection, ConnectionError};

/// Between two stamps of a volume that is written.
const STAMP_EVERY: Nanos = Nanos::secs(10);

impl Core {
    /// A connection to `replica` under `token`, if the store is no older than it was.
    pub(super) async fn enter_store(
        &self,
        replica: &Replica,
        token: Generation,
    ) -> Result<Rc<dyn Connection>, ConnectionError> {
        let (connector, least) = (replica.connector(), replica.age.borrow().least());
        let opened = connector.open_since(&self.fence_name, token.0, least);
        let opened = self.within(opened).await;
        if let Err(ConnectionError::PutBack(why)) = &opened {
            if replica.age.borrow_mut().refuse(why.clone()) {
                tracing::error!(volume = %self.id, why);
            }
        } else if opened.is_ok() {
            replica.age.borrow_mut().admit();
        }
        opened
    }

    /// Looks how far the fence of a store is, and makes that durable. Is it known now?
    pub(super) async fn look_at_fence(
        &self,
        replica: &Replica,
        connection: &Rc<dyn Connection>,
    ) -> bool {
        let Ok(stat) = self.within(connection.stat(&self.fence_name)).await else {
            return false;
        };
        let durable = self.within(connection.flush()).await.is_ok();
        if durable {
            replica.age.borrow_mut().reached(stat.version.0);
        }
        durable
    }

    /// Why a store is refused, if one is.
    pub(super) fn refused_store(&self) -> Option<String> {
        let mut replicas = self.replicas.values();
        replicas.find_map(|it| {
            let why = it.age.borrow().refused().map(str::to_owned);
            why.filter(|_| !self.has_left(it.info.number))
        })
    }

    /// What the record says of stores is true of them.
    pub(super) fn learn_ages(&self, record: &VolumeRecord) {
        for (number, generation) in &record.seen {
            if let Some(replica) = self.replica(*number) {
                replica.age.borrow_mut().reached(*generation);
            }
        }
    }

    /// How far fences are goes into the record with each of its changes. Does it say less now?
    pub(super) fn note_ages(&self, record: &mut VolumeRecord) -> bool {
        let ages = self.replicas.values();
        record.note_ages(ages.map(|it| (it.info.number, it.age.borrow().least())))
    }

    /// Stamps the fence at the in-sync stores where anything was written or copied since the last time, or at all of them this
    /// `last` time. Was any?
    pub(super) async fn stamp_fences(&self, last: bool) -> bool {
        let _one = self.stamping.acquire(1).await;
        let listed = self.record.borrow().0.stores.clone();
        let is_used = |it: &&Replica| {
            let listed = listed.as_ref();
            listed.is_none_or(|all| all.contains(&it.info.number))
        };
        let in_sync = |it: &&Replica| it.sync_state.get() == SyncState::InSync;
        let is_due = |it: &&Replica| last || it.age.borrow().is_due(self.stamps.borrow().changes());
        let replicas = self.replicas.values().filter(is_used).filter(in_sync);
        let replicas = replicas.filter(is_due);
        let stamps = replicas.filter_map(|it| Some(self.stamp_fence(it, it.connection()?)));
        let stamped = join_all(stamps.collect::<Vec<_>>()).await;
        stamped.contains(&true) && self.usable().is_ok()
    }

    /// Stamps the fence at one store. Is that durable, and known?
    pub(super) async fn stamp_fence(
        &self,
        replica: &Replica,
        connection: Rc<dyn Connection>,
    ) -> bool {
        let token = replica.token().0;
        let changes = self.stamps.borrow().changes();
        let change = Change {
            stamp: Some(token),
            ..Change::FUA.only_if(Condition::StampAtMost(token))
        };
        match self
            .within(connection.stamp(&self.fence_name, change))
            .await
        {
            Ok(()) => {
                let durable = self.look_at_fence(replica, &connection).await;
                if durable {
                    replica.age.borrow_mut().stamped(changes);
                }
                return durable;
            }
            Err(ConnectionError::Fenced { why, .. }) => drop(self.fence(why)),
            Err(error) if error.ends_connection() => {
                replica.lose(&connection, error.is_indeterminate());
            }
            Err(error) => {
                tracing::debug!(volume = %self.id, %error, "a fence is not stamped");
            }
        }
        false
    }

    /// Stamps fences as long as the volume is open.
    pub(super) async fn keep_stamped(self: Rc<Self>) {
        while self.usable().is_ok() {
            env::sleep(STAMP_EVERY).await;
            if self.usable().is_err() || !self.stamp_fences(false).await {
                continue;
            }
            if let Err(error) = self.change_record(|_| Ok(true)).await {
                tracing::debug!(volume = %self.id, %error, "how far fences are is not in the record yet");
            }
        }
    }
}
