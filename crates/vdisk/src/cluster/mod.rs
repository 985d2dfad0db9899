//! The cluster as one node sees it: which stores and volumes are there, and which volumes are in use here?
//!
//! ```text
//! create, list, clone ... -> records in the meta store (image, record)
//! open -> one engine per volume, shared by its users -> closed some seconds after the last one left
//! background: the node's lease is kept, stores are looked up, deleted images are freed by one node at a time
//! ```
//!
//! - [`stores`] stores and nodes. [`volumes`] what operators do with volumes, [`set`] what they set on them, `forward` on whatever node they ask. [`opened`] volumes in use. [`collect`] freeing, audit, repair. [`damage`] what scrubs found in closed volumes. [`drain`] stores are emptied. `idle` volumes without clients are kept well;
//!   `left` those that their writers did not close. `wants` volumes go from node to node; [`up`] who is up. `shared` one policy for all volumes of the node; [`heard`] load reports of stores, unasked.
//!
//! Always true:
//! 1. A volume has one engine here at most, and one operation on it as a whole runs at a time.
//! 2. A volume is not taken from a node that is up, unless that node gives it up.
//! 3. A store that left the cluster has no data that any volume counts on.

pub mod collect;
pub mod damage;
pub mod drain;
mod error;
mod forgotten;
mod forward;
pub mod heard;
mod idle;
mod left;
mod lost;
pub mod opened;
mod reseal;
pub mod seen;
pub mod set;
mod shared;
pub mod stores;
pub mod up;
pub mod volumes;
mod wants;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use base::{Bytes, Instant, Nanos};
use env::sync::{Permit, Semaphore};
use policy::place::{DiskId, ReplicaPolicy};

use crate::image::records::Images;
use crate::map::cache::Cache;
use crate::meta::{LeaseId, MetaError, MetaStore, Op};
use crate::names::{StoreNumber, VolumeId};
use crate::record::Name;
use crate::replica::connect::Connector;
use crate::volume;

pub use error::ClusterError;
use heard::Heard;
use idle::Idle;
use left::Left;
use opened::Slot;
use seen::{Answers, Records};
use shared::Shared;
use stores::{AllStores, StoreRecord, StoreState, alive_key};
use up::Alive;

/// The ways to stores. Held as `Rc<dyn Ways>`.
pub trait Ways {
    /// The way to a store, and whether it is in this very process.
    fn way(&self, store: &StoreRecord) -> (Rc<dyn Connector>, bool);
}

/// How a node takes part.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This node.
    pub node: Name,
    /// How long the others think it is up when it is not heard of.
    pub lease: Nanos,
    /// A volume is closed when it had no users for so long.
    pub close_after: Nanos,
    /// How long an opening waits for another node that is about to close the volume.
    pub handover: Nanos,
    /// How often background work looks around.
    pub tick: Nanos,
    /// How often is looked for deleted images.
    pub collect_every: Nanos,
    /// How often is looked for idle volumes that are not well.
    pub idle_every: Nanos,
    /// How long is waited for one answer of a store, where no volume asks.
    pub timeout: Nanos,
    /// How volumes are used; whose their requests are comes from their records.
    pub volume: volume::Settings,
    /// Memory for nodes of maps that are being freed or audited.
    pub cache: Bytes,
}

impl Settings {
    /// A lease of 10 s; volumes are closed 5 s after their last user left.
    pub fn new(node: Name) -> Settings {
        let nobody = policy::place::Origin {
            client: policy::place::ClientId(0),
            class: policy::place::Class::Normal,
        };
        Settings {
            lease: Nanos::secs(10),
            close_after: Nanos::secs(5),
            handover: Nanos::secs(7),
            tick: Nanos::secs(1),
            collect_every: Nanos::secs(30),
            idle_every: Nanos::secs(10),
            timeout: Nanos::secs(10),
            volume: volume::Settings::new(node.as_str(), nobody),
            cache: Bytes::mib(16),
            node,
        }
    }
}

/// How often something is tried again that another node's change came before.
const TRIES: usize = 6;

/// The cluster, as one node sees it. Lives on one thread; see the module's head.
pub struct Cluster {
    // Fixed.
    settings: Settings,
    images: Images,
    ways: Rc<dyn Ways>,
    shared: Shared,
    cache: Rc<Cache>,
    /// Itself, for its tasks.
    own: Weak<Cluster>,
    // As it goes.
    open: RefCell<BTreeMap<VolumeId, Rc<Slot>>>,
    /// One operation on a volume as a whole at a time.
    alone: RefCell<BTreeMap<VolumeId, Rc<Semaphore>>>,
    known: RefCell<AllStores>,
    heard: RefCell<BTreeMap<StoreNumber, Heard>>,
    lease: Cell<Option<LeaseId>>,
    stopping: Cell<bool>,
    collecting: Rc<Semaphore>,
    /// Closed volumes that could not be emptied of drained stores, and until when they are left alone.
    stuck: RefCell<BTreeMap<VolumeId, Instant>>,
    idle: Idle,
    /// Volumes that their writers did not close.
    left: Left,
    answers: Answers,
    /// What the meta store said last.
    last_records: RefCell<Records>,
    /// What the others are to know of this node while it is up.
    alive: RefCell<Option<Alive>>,
    /// The same of those with damage that could not be repaired.
    damaged: RefCell<BTreeMap<VolumeId, Instant>>,
}

impl Cluster {
    /// The cluster whose records are in `meta`. Nothing is asked yet; [`Cluster::start`] begins the background work.
    pub fn new(
        settings: Settings,
        meta: Rc<dyn MetaStore>,
        ways: Rc<dyn Ways>,
        policy: Box<dyn ReplicaPolicy>,
    ) -> Rc<Cluster> {
        Rc::new_cyclic(|own| Cluster {
            cache: Cache::new(settings.cache),
            settings,
            images: Images { meta },
            ways,
            shared: Shared::new(policy),
            own: own.clone(),
            open: RefCell::default(),
            alone: RefCell::default(),
            known: RefCell::default(),
            heard: RefCell::default(),
            lease: Cell::new(None),
            stopping: Cell::new(false),
            collecting: Semaphore::new(1),
            stuck: RefCell::default(),
            idle: Idle::default(),
            left: Left::default(),
            answers: Answers::new(),
            last_records: RefCell::default(),
            alive: RefCell::default(),
            damaged: RefCell::default(),
        })
    }

    /// Begins the background work: it ends with the cluster.
    pub fn start(&self) {
        env::spawn(Cluster::keep(
            self.own.clone(),
            self.settings.tick,
            Keep::Lease,
        ));
        env::spawn(Cluster::keep(
            self.own.clone(),
            self.settings.tick,
            Keep::Volumes,
        ));
        env::spawn(Cluster::keep(
            self.own.clone(),
            self.settings.tick,
            Keep::Drained,
        ));
        let pause = self.settings.collect_every;
        env::spawn(Cluster::keep(self.own.clone(), pause, Keep::Deleted));
        env::spawn(Cluster::keep(self.own.clone(), pause, Keep::Repaired));
        let pause = self.settings.idle_every;
        env::spawn(Cluster::keep(self.own.clone(), pause, Keep::Idle));
        let pause = wants::LOOK_FOR_WANTS;
        env::spawn(Cluster::keep(self.own.clone(), pause, Keep::Wants));
    }

    /// The stores that this node serves, by their identities: others that are registered for it count as down.
    pub fn serves(&self, stores: BTreeSet<String>) {
        *self.alive.borrow_mut() = Some(Alive::new(stores));
    }

    /// Closes all volumes and lets the other nodes know. Users get errors from then on.
    pub async fn stop(&self) -> Vec<String> {
        self.stopping.set(true);
        let mut troubles = Vec::new();
        let slots: Vec<Rc<Slot>> = self.open.borrow().values().cloned().collect();
        for slot in slots {
            let _alone = self.alone(slot.id()).await;
            if let Err(error) = self.close_slot(&slot).await {
                troubles.push(format!("volume {}: {error}", slot.name()));
            }
        }
        if let Some(lease) = self.lease.take() {
            match self.images.meta.revoke(lease).await {
                Ok(()) | Err(MetaError::NoLease { .. }) => {}
                Err(error) => tracing::debug!(%error, "the node's lease is left to expire"),
            }
        }
        troubles
    }

    /// This node.
    pub fn node(&self) -> &Name {
        &self.settings.node
    }

    /// The stores as they were looked up last.
    pub fn known_stores(&self) -> Vec<StoreRecord> {
        let known = self.known.borrow();
        known.values().map(|(record, _)| record.clone()).collect()
    }

    /// What a store is called.
    pub fn store_label(&self, number: StoreNumber) -> String {
        match self.known.borrow().get(&number) {
            Some((record, _)) => record.name.to_string(),
            None => format!("number {number} (not in the cluster any more)"),
        }
    }

    fn learn_stores(&self, stores: &AllStores) {
        let takes = |disk: &DiskId| {
            let of = |(record, _): &(StoreRecord, _)| {
                record.state == StoreState::Active && u32::from(record.number.0) == disk.0
            };
            stores.values().any(of)
        };
        // A volume that is open knows those that have left, too.
        let mut known = self.known.borrow_mut();
        let all = known.keys().chain(stores.keys());
        let all: Vec<DiskId> = all.map(|number| DiskId(u32::from(number.0))).collect();
        let mut draining = self.shared.draining.borrow_mut();
        draining.extend(all);
        draining.retain(|disk| !takes(disk));
        known.clone_from(stores);
        drop((known, draining));
        let drained = self.drained();
        for slot in self.open.borrow().values() {
            slot.volume().add_stores(self.store_infos(stores));
            slot.volume().drain(drained.clone());
        }
    }

    /// Leave to do something with a volume as a whole.
    async fn alone(&self, id: VolumeId) -> Permit {
        let one = {
            let mut alone = self.alone.borrow_mut();
            Rc::clone(alone.entry(id).or_insert_with(|| Semaphore::new(1)))
        };
        one.acquire(1).await
    }

    /// Tries something again that another node's change came before, a few times.
    async fn again<T>(
        &self,
        attempt: impl AsyncFn() -> Result<T, ClusterError>,
    ) -> Result<T, ClusterError> {
        for tried in 1..TRIES {
            match attempt().await {
                Err(error) if error.is_conflict() => {
                    let wait = env::rng("again").below(40 * tried as u64);
                    env::sleep(Nanos::millis(5 + wait)).await;
                }
                other => return other,
            }
        }
        attempt().await
    }

    // --- background work ----------------------------------------------------------------------------------

    async fn keep(own: Weak<Cluster>, pause: Nanos, what: Keep) {
        loop {
            let Some(cluster) = own.upgrade().filter(|it| !it.stopping.get()) else {
                return;
            };
            match what {
                Keep::Lease => cluster.keep_lease().await,
                Keep::Volumes => cluster.look_around().await,
                Keep::Deleted => cluster.collect_now_and_then().await,
                Keep::Drained => cluster.drain_now_and_then().await,
                Keep::Idle => cluster.keep_idle_well().await,
                Keep::Wants => cluster.answer_wants().await,
                Keep::Repaired => cluster.repair_now_and_then().await,
            }
            drop(cluster);
            env::sleep(pause).await;
        }
    }

    /// Lets the others know that this node is up.
    async fn keep_lease(&self) {
        let meta = &self.images.meta;
        self.answers.asked();
        if let Some(lease) = self.lease.get() {
            match meta.keep(lease).await {
                Ok(_) => return self.answers.heard(),
                Err(MetaError::NoLease { .. }) => self.lease.set(None),
                Err(error) => {
                    tracing::debug!(%error, "the node's lease was not kept");
                    return;
                }
            }
        }
        let registered = async {
            let lease = meta.lease(self.settings.lease).await?;
            let alive = Op::Put {
                key: alive_key(self.settings.node.as_str()),
                value: match &*self.alive.borrow() {
                    Some(alive) => alive.encode(),
                    None => b"1".to_vec(),
                },
                lease: Some(lease),
            };
            meta.txn(Vec::new(), vec![alive]).await?;
            Ok::<_, MetaError>(lease)
        };
        match registered.await {
            Ok(lease) => {
                self.answers.heard();
                self.lease.set(Some(lease));
            }
            Err(error) => tracing::debug!(%error, "the node has no lease"),
        }
    }

    /// Learns what is new about stores, and closes volumes that no client uses any more.
    async fn look_around(&self) {
        if let Err(error) = self.stores().await {
            tracing::debug!(%error, "the stores were not looked up");
        }
        if let Err(error) = self.answer_others().await {
            tracing::debug!(%error, "what other nodes ask was not read");
        }
        let idle: Vec<Rc<Slot>> = {
            let open = self.open.borrow();
            let after = self.settings.close_after;
            open.values()
                .filter(|it| it.is_idle(after))
                .cloned()
                .collect()
        };
        for slot in idle {
            let _alone = self.alone(slot.id()).await;
            if slot.is_idle(self.settings.close_after)
                && let Err(error) = self.close_slot(&slot).await
            {
                tracing::warn!(volume = %slot.name(), %error, "closed, and something is left unreconciled");
            }
        }
    }
}

/// The background work.
#[derive(Clone, Copy)]
enum Keep {
    Lease,
    Volumes,
    Deleted,
    Drained,
    Idle,
    Wants,
    Repaired,
}
