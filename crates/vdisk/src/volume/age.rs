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

use super::connections::Connections;
use super::record_io::RecordIo;
use super::replica::{Replica, SyncState};
use super::state::Core;
use crate::replica::connect::{Connection, ConnectionError};

/// Between two stamps of a volume that is written.
const STAMP_EVERY: Nanos = Nanos::secs(10);

/// Stamps the volume's fences at its stores.
#[derive(Clone, Copy)]
pub(super) struct Fences<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Fences<'a> {
    pub fn of(core: &'a Rc<Core>) -> Fences<'a> {
        Fences { core }
    }

    /// Stamps the fence at the in-sync stores where anything was written or copied since the last time, or at all of them this
    /// `last` time. Was any?
    pub(super) async fn stamp_fences(self, last: bool) -> bool {
        let _one = self.core.locks.stamping.acquire(1).await;
        let listed = self.core.volume_record().stores.clone();
        let is_used = |it: &&Replica| {
            let listed = listed.as_ref();
            listed.is_none_or(|all| all.contains(&it.info.number))
        };
        let in_sync = |it: &&Replica| it.sync_state() == SyncState::InSync;
        let is_due = |it: &&Replica| {
            last || it
                .age
                .borrow()
                .is_due(self.core.replication.borrow().stamps.changes())
        };
        let replicas = self.core.replicas.values().filter(is_used).filter(in_sync);
        let replicas = replicas.filter(is_due);
        let stamps = replicas.filter_map(|it| Some(self.stamp_fence(it, it.connection()?)));
        let stamped = join_all(stamps.collect::<Vec<_>>()).await;
        stamped.contains(&true) && self.core.usable().is_ok()
    }

    /// Stamps the fence at one store. Is that durable, and known?
    pub(super) async fn stamp_fence(
        self,
        replica: &Replica,
        connection: Rc<dyn Connection>,
    ) -> bool {
        let token = replica.token().0;
        let changes = self.core.replication.borrow().stamps.changes();
        let change = Change {
            stamp: Some(token),
            ..Change::FUA.only_if(Condition::StampAtMost(token))
        };
        match self
            .core
            .within(connection.stamp(&self.core.replicas.fence_name, change))
            .await
        {
            Ok(()) => {
                let durable = Connections::of(self.core)
                    .look_at_fence(replica, &connection)
                    .await;
                if durable {
                    replica.age.borrow_mut().stamped(changes);
                }
                return durable;
            }
            Err(ConnectionError::Fenced { why, .. }) => drop(self.core.fence(why)),
            Err(error) if error.ends_connection() => {
                replica.lose(&connection, error.is_indeterminate());
            }
            Err(error) => {
                tracing::debug!(volume = %self.core.id, %error, "a fence is not stamped");
            }
        }
        false
    }

    /// Stamps fences as long as the volume is open.
    pub(super) async fn keep_stamped(self) {
        while self.core.usable().is_ok() {
            env::sleep(STAMP_EVERY).await;
            if self.core.usable().is_err() || !self.stamp_fences(false).await {
                continue;
            }
            if let Err(error) = RecordIo::of(self.core).change_record(|_| Ok(true)).await {
                tracing::debug!(volume = %self.core.id, %error, "how far fences are is not in the record yet");
            }
        }
    }
}
