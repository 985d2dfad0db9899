//! What all tasks of a volume share, and what most of them ask of it.
//!
//! Jobs are types of their own, each in its file, that borrow it: see the module's head.
//!
//! Always true: nothing here waits for a store.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Bytes, Instant, Nanos};
use device::meter::{OPS, RequestCounters, Watch};
use env::sync::Semaphore;
use policy::place::{Class, Op, Request};
use replication::state::Phase;
use replication::{Replication, membership};
use store::ClientTag;

use super::commits::Commits;
use super::error::VolumeError;
use super::extent::{ExtentEntry, ExtentTable};
use super::lease::Lease;
use super::life::Life;
#[cfg(test)]
use super::life::Mutation;
use super::node_table::NodeTable;
use super::older_images::OlderImages;
use super::ranges::{RangeLock, Ranges};
use super::repairs::Repairing;
use super::replica::Shared;
use super::replicas::Replicas;
use super::settings::{Settings, StoreInfo};
use super::status::Counters;
use super::under_way::UnderWay;
use super::usage::Usage;
use super::users::{UserId, Users};
use crate::image::tree::{ImageRecord, Versioned};
use crate::map::cache::Cache;
use crate::map::reader::Reader;
use crate::map::{Map, MapError, Nodes};
use crate::meta::{MetaError, MetaStore, Revision};
use crate::names::{EXTENT, Generation, StoreNumber, VolumeId};
use crate::record::{OnMetaLoss, VolumeRecord, extents, volume_key};
use crate::replica::choice::Choice;
use crate::replica::connect::ConnectionError;

/// What the classes of requests are called.
const CLASSES: [&str; 3] = [
    Class::ALL[0].name(),
    Class::ALL[1].name(),
    Class::ALL[2].name(),
];

/// Nodes of the map in memory: those of 2 TiB.
const NODES: Bytes = Bytes::mib(32);

/// What all tasks of a volume share.
pub(crate) struct Core {
    pub id: VolumeId,
    pub settings: Settings,
    pub meta: Rc<dyn MetaStore>,
    pub choice: Choice,
    /// What the writer decides by. No task holds a borrow of it while it waits.
    pub replication: Shared,
    pub replicas: Replicas,
    pub record: Records,
    pub maps: Maps,
    pub extents: ExtentTable,
    pub locks: Locks,
    pub repairing: Repairing,
    pub lease: Lease,
    pub clients: Clients,
    pub life: Life,
}

/// The turns to change the volume's record, and that of the image that is written, as it was last known.
pub(super) struct Records {
    /// Of the volume's record.
    pub key: String,
    pub head: RefCell<Versioned<ImageRecord>>,
    /// One change at a time.
    pub changing: Rc<Semaphore>,
}

impl Records {
    fn new(id: VolumeId, head: Versioned<ImageRecord>) -> Records {
        Records {
            key: volume_key(id),
            head: RefCell::new(head),
            changing: Semaphore::new(1),
        }
    }
}

/// The map of the head, what is to become durable of it, and what older images have.
pub(super) struct Maps {
    pub head: Map,
    /// The map's nodes.
    pub nodes: NodeTable,
    pub older: OlderImages,
    pub commits: Commits,
}

impl Maps {
    fn new(id: VolumeId, head: &ImageRecord, below: Rc<dyn Nodes>) -> Maps {
        let reader = Reader::new(below, Cache::new(NODES));
        let (root, since) = (head.root, head.since);
        Maps {
            head: Map::open(reader, id, root, extents(head.size), since),
            nodes: NodeTable::default(),
            older: OlderImages::default(),
            commits: Commits::default(),
        }
    }
}

/// Ranges of the volume's bytes, and turns of tasks.
pub(super) struct Locks {
    pub ranges: Rc<Ranges>,
    /// Changes in the order they came; those that are tried again keep their place.
    pub turns: Rc<Ranges>,
    /// One task writes dirty bits at a time.
    pub bits: Rc<Semaphore>,
    /// One task stamps fences at a time.
    pub stamping: Rc<Semaphore>,
}

impl Default for Locks {
    fn default() -> Locks {
        Locks {
            ranges: Rc::default(),
            turns: Rc::default(),
            bits: Semaphore::new(1),
            stamping: Semaphore::new(1),
        }
    }
}

/// Who uses the volume.
pub(super) struct Clients {
    pub users: Users,
    pub usage: Usage,
    /// What they asked, and how long it took.
    pub requests: Rc<RequestCounters>,
}

impl Clients {
    /// A user asks for this; it is counted in the user's class.
    pub fn begin(&self, op: device::Op, bytes: u64, user: UserId) -> Watch {
        let class = self.users.get(user).origin.class;
        self.requests.begin(op as usize, class as usize, bytes)
    }
}

impl Core {
    /// What all tasks share of a volume that has a new writer.
    ///
    /// # Errors
    /// [`VolumeError::Settings`] if the settings do not fit it, or a store is named twice.
    pub fn new(
        id: VolumeId,
        (meta, choice): (Rc<dyn MetaStore>, Choice),
        store_infos: Vec<StoreInfo>,
        settings: Settings,
        record: (VolumeRecord, Revision),
        head: Versioned<ImageRecord>,
        below: Rc<dyn Nodes>,
    ) -> Result<Core, VolumeError> {
        let refuse = |why: &str| VolumeError::Settings {
            volume: id,
            why: why.to_owned(),
        };
        let lease = Lease::new(settings.margin);
        if settings.margin >= settings.lease {
            let why = "the margin takes up the whole lease; make it shorter";
            return Err(refuse(why));
        }
        let token = record.0.epoch;
        let scan_floor = head.record.root.generation.max(head.record.since);
        let replication = Replication::new(record.0, record.1, scan_floor);
        let replication = Rc::new(RefCell::new(replication));
        let replicas = Replicas::new(id, settings.drained.clone());
        for info in store_infos {
            if !replicas.add(info, &replication, token) {
                return Err(refuse("a store is named twice"));
            }
        }
        let own = ClientTag {
            origin: settings.origin,
            penalties: settings.penalties,
        };
        Ok(Core {
            id,
            settings,
            meta,
            choice,
            replication,
            replicas,
            maps: Maps::new(id, &head.record, below),
            record: Records::new(id, head),
            extents: ExtentTable::default(),
            locks: Locks::default(),
            repairing: Repairing::default(),
            lease,
            clients: Clients {
                users: Users::new(own),
                usage: Usage::new(),
                requests: RequestCounters::new(&OPS, &CLASSES),
            },
            life: Life::default(),
        })
    }

    /// Takes all of extent `index` alone; none if it is not placed, or its copies may differ.
    pub async fn lock_extent(&self, index: u32) -> Option<(RangeLock, Rc<ExtentEntry>)> {
        let start = u64::from(index) * EXTENT;
        let held = self.locks.ranges.take(start..start + EXTENT, true).await;
        let placed = self.extents.placed(index);
        let equal = placed.filter(|_| !self.is_unreconciled(index));
        equal.map(|placed| (held, placed))
    }

    /// Refuses what comes after the end.
    pub fn usable(&self) -> Result<(), VolumeError> {
        match &self.replication.borrow().phase {
            Phase::Open => Ok(()),
            Phase::Fenced(why) => Err(VolumeError::Fenced {
                volume: self.id,
                why: why.clone(),
            }),
            Phase::Closed => Err(VolumeError::Closed(self.id)),
        }
    }

    /// Another writer has the volume.
    pub fn fence(&self, why: impl Into<String>) -> VolumeError {
        let why = why.into();
        if self.usable().is_ok() {
            tracing::warn!(volume = %self.id, why, "taken over by another node");
            self.replication.borrow_mut().phase = Phase::Fenced(why.clone());
            self.life.changed.notify_all();
        }
        VolumeError::Fenced {
            volume: self.id,
            why,
        }
    }

    pub fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.life.counters.get();
        change(&mut counters);
        self.life.counters.set(counters);
    }

    #[cfg(test)]
    pub fn mutated(&self, mutation: Mutation) -> bool {
        self.life.mutated.get() == Some(mutation)
    }

    /// Bytes of the volume.
    pub fn size(&self) -> Bytes {
        Bytes(self.record.head.borrow().record.size)
    }

    /// Refuses what lies behind the end: it may have moved while its range was waited for.
    pub fn within_size(&self, end: u64) -> Result<(), VolumeError> {
        let (volume, size) = (self.id, self.size().0);
        match end <= size {
            true => Ok(()),
            false => Err(VolumeError::Beyond { volume, size }),
        }
    }

    /// The volume's record, as it was last known.
    pub fn volume_record(&self) -> Ref<'_, VolumeRecord> {
        Ref::map(self.replication.borrow(), |all| all.record.get())
    }

    /// The same, with the revision that changes compare with.
    pub fn versioned_record(&self) -> Versioned<VolumeRecord> {
        let record = &self.replication.borrow().record;
        Versioned {
            record: record.get().clone(),
            changed: Some(record.revision()),
        }
    }

    pub fn generation(&self) -> Generation {
        self.replication.borrow().generation()
    }

    /// A change begins: under this stamp.
    pub fn begin(&self) -> UnderWay<'_> {
        UnderWay::of(&self.replication)
    }

    /// Does a store have all dirty bits?
    pub fn is_bitmap_replica(&self, store: StoreNumber) -> bool {
        self.replication.borrow().bitmap.is_replica(store)
    }

    /// May the copies of an extent differ? No request reads or writes it until then.
    pub fn is_unreconciled(&self, index: u32) -> bool {
        self.replication.borrow().unreconciled.contains(index)
    }

    pub fn no_copy(&self, index: u32, why: &ConnectionError) -> VolumeError {
        VolumeError::NoCopy {
            volume: self.id,
            index,
            why: why.to_string(),
        }
    }

    pub fn meta_error(&self, source: MetaError) -> VolumeError {
        VolumeError::Meta {
            volume: self.id,
            source,
        }
    }

    pub fn map_error(&self, source: &MapError) -> VolumeError {
        VolumeError::Map {
            volume: self.id,
            why: source.to_string(),
        }
    }

    pub fn image_error(&self, why: &impl ToString) -> VolumeError {
        VolumeError::Image {
            volume: self.id,
            why: why.to_string(),
        }
    }

    /// Waits a little, longer after each try, and then for a change. Many changes are the volume's own: without the
    /// wait, what fails at once would be tried without end.
    pub async fn pause(&self, tries: &mut u32) {
        env::sleep(Nanos::millis(1 << (*tries).min(6))).await;
        *tries += 1;
        let _ = env::timeout(Nanos::millis(200), self.life.changed.wait()).await;
    }

    /// How long to wait for something to change, of a request with this deadline.
    pub fn until(&self, deadline: Instant) -> Nanos {
        deadline.since(env::now()).max(self.settings.tick)
    }

    /// Is a request over that was to be done until `deadline`, and met `error` last? Not as long as the meta store is away, where
    /// the volume waits for it.
    pub fn is_late(&self, deadline: Instant, error: &VolumeError) -> bool {
        env::now() >= deadline && !self.waits_for_meta(error)
    }

    pub fn waits_for_meta(&self, error: &VolumeError) -> bool {
        let away = match error {
            VolumeError::Meta { source, .. } => matches!(
                source,
                MetaError::Unavailable { .. }
                    | MetaError::Unknown { .. }
                    | MetaError::NoLease { .. }
            ),
            _ => !self.lease.holds(),
        };
        away && self.volume_record().terms.on_meta_loss == OnMetaLoss::Wait
    }

    /// Waits until the lease is good for an answer.
    pub async fn leased(&self) -> Result<(), VolumeError> {
        let deadline = env::now() + self.settings.deadline;
        loop {
            self.usable()?;
            if self.lease.holds() {
                return Ok(());
            }
            let lost = VolumeError::NoLease(self.id);
            if self.is_late(deadline, &lost) {
                return Err(lost);
            }
            let _ = env::timeout(self.until(deadline), self.life.changed.wait()).await;
        }
    }

    /// One request to a store, no longer than it may take.
    pub async fn within<T>(
        &self,
        request: impl Future<Output = Result<T, ConnectionError>>,
    ) -> Result<T, ConnectionError> {
        match env::timeout(self.settings.timeout, request).await {
            // A later connection of our own has the greater token: this one is over.
            Ok(Err(ConnectionError::Fenced { found, why })) if found <= self.generation().0 => {
                Err(ConnectionError::Gone(why))
            }
            Ok(answer) => answer,
            Err(elapsed) => Err(ConnectionError::Indeterminate(format!(
                "{elapsed} from a store"
            ))),
        }
    }

    pub fn request(&self, op: Op, len: u64, user: UserId) -> Request {
        let caller = self.clients.users.get(user);
        Request {
            origin: caller.origin,
            op,
            bytes: Bytes(len),
            sequential: false,
            penalties: caller.penalties,
        }
    }

    /// Does another image have it too?
    pub fn is_shared(&self, placed: &ExtentEntry) -> bool {
        let since = self.record.head.borrow().record.since;
        placed.name.owner != self.id || placed.name.born <= since
    }

    /// Must the extent have an object of its own, or has it one that no other image has, for a change of it?
    pub fn begins(&self, index: u32) -> bool {
        let placed = self.extents.placed(index);
        placed.is_none_or(|placed| placed.is_unacknowledged() || self.is_shared(&placed))
    }

    /// The map has a store that a layer got, and the meta store does not yet.
    pub fn added(&self, layer: &ExtentEntry, store: StoreNumber) {
        let added = &mut self.replication.borrow_mut().changes;
        added.add(layer.name, store);
    }

    /// Is it gone, and the meta store may not know?
    pub fn is_forgotten(&self, index: u32) -> bool {
        self.replication.borrow().changes.is_forgotten(index)
    }

    /// The least number of in-sync copies of any extent or node, of older images too, with these stores out, as the next opening finds them; as many
    /// as there should be if there is none. No more than the bitmap replicas among them: the next opening must find one.
    pub fn redundancy_floor(&self, out: &BTreeMap<StoreNumber, Generation>, copies: u8) -> u8 {
        let extents = self.extents.all.borrow();
        let all = extents.values();
        let all = all.filter(|it| !it.copies.borrow().stores.is_empty());
        let counts = all.map(|it| it.in_sync(out));
        let counts = counts.chain(self.maps.nodes.redundancy_floor(out));
        let counts = counts.chain(self.maps.older.redundancy_floor(out));
        let bitmap_replicas = self.replication.borrow().bitmap.replicas_without(out);
        membership::floor(copies, counts, bitmap_replicas)
    }

    /// `redundancy_floor` when `newly` more stores are out than the record says; what is not known is as weak as the record says.
    pub fn redundancy_floor_after(&self, record: &VolumeRecord, newly: usize) -> u8 {
        let redundancy_floor = self.redundancy_floor(&record.out, record.copies);
        match self.maps.older.is_known() {
            true => redundancy_floor,
            false => redundancy_floor.min(record.redundancy_floor.saturating_sub(newly as u8)),
        }
    }
}
