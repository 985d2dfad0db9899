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
//! Always true:
//! 1. What the record says of a store was durable there.
//! 2. A store whose fence is older than that, or gone, counts as one that does not answer: it leaves the in-sync set, and what it
//!    has is read by no request and no resync.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::Nanos;
use env::sync::{Semaphore, join_all};
use store::{Change, Condition};

use super::Core;
use super::membership::{Replica, SyncState};
use crate::names::Generation;
use crate::record::VolumeRecord;
use crate::replica::connect::{Connection, ConnectionError};

/// Between two stamps of a volume that is written.
const STAMP_EVERY: Nanos = Nanos::secs(10);

/// How far the volume's fence is at a store.
#[derive(Default)]
pub(super) struct Age {
    /// The greatest generation that was durable there; 0: none is known.
    least: Cell<u64>,
    /// Changes of the volume that had begun or ended when its last stamp was sent.
    stamped: Cell<u64>,
    /// Why the store was refused that shows less.
    refused: RefCell<Option<String>>,
}

impl Age {
    /// It was at this generation, and durable.
    pub fn reached(&self, generation: u64) {
        self.least.set(self.least.get().max(generation));
    }
}

/// Stamps of the volume's fences. One count for the volume, and for each store how much of it its last stamp covers: a store that
/// could not be stamped is due until it is, whatever became of the others.
pub(super) struct Stamps {
    /// Beginnings and ends of changes.
    changes: Cell<u64>,
    one: Rc<Semaphore>,
}

impl Default for Stamps {
    fn default() -> Stamps {
        Stamps {
            changes: Cell::new(0),
            one: Semaphore::new(1),
        }
    }
}

impl Stamps {
    /// A change begins or ends, or something was copied. Also at the end: a stamp that is sent meanwhile may come before the change.
    pub fn due(&self) {
        self.changes.set(self.changes.get() + 1);
    }
}

impl Core {
    /// A connection to `replica` under `token`, if the store is no older than it was.
    pub(super) async fn enter_store(
        &self,
        replica: &Replica,
        token: Generation,
    ) -> Result<Rc<dyn Connection>, ConnectionError> {
        let (connector, age) = (replica.connector(), &replica.age);
        let opened = connector.open_since(&self.fence_name, token.0, age.least.get());
        let opened = self.within(opened).await;
        if let Err(ConnectionError::PutBack(why)) = &opened {
            let first = age.refused.replace(Some(why.clone())).is_none();
            if first {
                tracing::error!(volume = %self.id, why);
            }
        } else if opened.is_ok() {
            age.refused.take();
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
            replica.age.reached(stat.version.0);
        }
        durable
    }

    /// Why a store is refused, if one is.
    pub(super) fn refused_store(&self) -> Option<String> {
        let mut replicas = self.replicas.values();
        replicas.find_map(|it| {
            let why = it.age.refused.borrow().clone();
            why.filter(|_| !self.has_left(it.info.number))
        })
    }

    /// What the record says of stores is true of them.
    pub(super) fn learn_ages(&self, record: &VolumeRecord) {
        for (number, generation) in &record.seen {
            if let Some(replica) = self.replica(*number) {
                replica.age.reached(*generation);
            }
        }
    }

    /// How far fences are goes into the record with each of its changes. Does it say less now?
    pub(super) fn note_ages(&self, record: &mut VolumeRecord) -> bool {
        let before = record.seen.clone();
        for replica in self.replicas.values() {
            let least = replica.age.least.get();
            if least > 0 {
                let known = record.seen.entry(replica.info.number).or_default();
                *known = least.max(*known);
            }
        }
        // Of a store that has nothing of the volume nothing is read.
        if let Some(stores) = &record.stores {
            record.seen.retain(|number, _| stores.contains(number));
        }
        record.seen != before
    }

    /// Stamps the fence at the in-sync stores where anything was written or copied since the last time, or at all of them this
    /// `last` time. Was any?
    pub(super) async fn stamp_fences(&self, last: bool) -> bool {
        let _one = self.stamps.one.acquire(1).await;
        let listed = self.record.borrow().0.stores.clone();
        let is_used = |it: &&Replica| {
            let listed = listed.as_ref();
            listed.is_none_or(|all| all.contains(&it.info.number))
        };
        let in_sync = |it: &&Replica| it.sync_state.get() == SyncState::InSync;
        let is_due = |it: &&Replica| last || it.age.stamped.get() < self.stamps.changes.get();
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
        let changes = self.stamps.changes.get();
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
                    replica.age.stamped.set(changes);
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
