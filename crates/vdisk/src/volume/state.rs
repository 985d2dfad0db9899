//! What all tasks of a volume share, and what most of them ask of it.
//!
//! Jobs are types of their own, each in its file, that borrow it: see the module's head.
//!
//! Always true: nothing here waits for a store.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Bytes, Instant, Nanos};
use env::sync::Semaphore;
use policy::place::{Op, Request};
use store::ClientTag;

use super::commits::Commits;
use super::dirty::Dirty;
use super::error::VolumeError;
use super::extent::{ExtentEntry, ExtentTable};
use super::lease::Lease;
#[cfg(test)]
use super::life::Mutation;
use super::life::{Life, Phase};
use super::node_table::NodeTable;
use super::older_images::OlderImages;
use super::ranges::{RangeLock, Ranges};
use super::repairs::Repairing;
use super::replica::{Replica, SyncState};
use super::replicas::Replicas;
use super::settings::{Settings, StoreInfo};
use super::status::Counters;
use super::under_way::{StampState, UnderWay};
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

/// Nodes of the map in memory: those of 2 TiB.
const NODES: Bytes = Bytes::mib(32);

/// What all tasks of a volume share.
pub(crate) struct Core {
    pub id: VolumeId,
    pub settings: Settings,
    pub meta: Rc<dyn MetaStore>,
    pub choice: Choice,
    pub replicas: Replicas,
    pub record: Records,
    pub maps: Maps,
    pub extents: ExtentTable,
    pub locks: Locks,
    pub dirty: Dirty,
    pub stamps: StampState,
    pub repairing: Repairing,
    pub lease: Lease,
    pub clients: Clients,
    pub life: Life,
}

/// The volume's record and that of the image that is written, as they were last known.
pub(super) struct Records {
    /// Of the volume's record.
    pub key: String,
    pub volume: RefCell<(VolumeRecord, Revision)>,
    pub head: RefCell<Versioned<ImageRecord>>,
    /// One change at a time.
    pub changing: Rc<Semaphore>,
    /// A change was asked for, and may yet come about.
    pub indeterminate: Cell<bool>,
}

impl Records {
    fn new(
        id: VolumeId,
        volume: (VolumeRecord, Revision),
        head: Versioned<ImageRecord>,
    ) -> Records {
        Records {
            key: volume_key(id),
            volume: RefCell::new(volume),
            head: RefCell::new(head),
            changing: Semaphore::new(1),
            indeterminate: Cell::new(false),
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
            commits: Commits::new(root.generation.max(since)),
        }
    }
}

/// Ranges of the volume's bytes.
#[derive(Default)]
pub(super) struct Locks {
    pub ranges: Rc<Ranges>,
    /// Changes in the order they came; those that are tried again keep their place.
    pub turns: Rc<Ranges>,
}

/// Who uses the volume.
pub(super) struct Clients {
    pub users: Users,
    pub usage: Usage,
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
        let replicas = Replicas::new(id, settings.drained.clone());
        for info in store_infos {
            if !replicas.add(Replica::new(info, token)) {
                return Err(refuse("a store is named twice"));
            }
        }
        for number in record.0.out.keys() {
            if let Some(replica) = replicas.get(*number) {
                replica.sync_state.set(SyncState::Out);
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
            replicas,
            maps: Maps::new(id, &head.record, below),
            record: Records::new(id, record, head),
            extents: ExtentTable::default(),
            locks: Locks::default(),
            dirty: Dirty::default(),
            stamps: StampState::default(),
            repairing: Repairing::default(),
            lease,
            clients: Clients {
                users: Users::new(own),
                usage: Usage::new(),
            },
            life: Life::default(),
        })
    }

    /// Takes all of extent `index` alone; none if it is not placed, or its copies may differ.
    pub async fn lock_extent(&self, index: u32) -> Option<(RangeLock, Rc<ExtentEntry>)> {
        let start = u64::from(index) * EXTENT;
        let held = self.locks.ranges.take(start..start + EXTENT, true).await;
        let placed = self.extents.placed(index);
        let equal = placed.filter(|_| !self.extents.is_unreconciled(index));
        equal.map(|placed| (held, placed))
    }

    /// Refuses what comes after the end.
    pub fn usable(&self) -> Result<(), VolumeError> {
        match &*self.life.phase.borrow() {
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
        if *self.life.phase.borrow() == Phase::Open {
            tracing::warn!(volume = %self.id, why, "taken over by another node");
            *self.life.phase.borrow_mut() = Phase::Fenced(why.clone());
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

    pub fn generation(&self) -> Generation {
        self.record.volume.borrow().0.generation
    }

    /// A change begins: under this stamp.
    pub fn begin(&self) -> UnderWay<'_> {
        self.stamps.begin(self.generation())
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
        away && self.record.volume.borrow().0.on_meta_loss == OnMetaLoss::Wait
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
        placed.is_none_or(|placed| placed.unacknowledged.get() || self.is_shared(&placed))
    }

    /// One more piece of the extent may differ from copy to copy.
    pub fn add_unreconciled(&self, index: u32) {
        *self
            .extents
            .unreconciled
            .borrow_mut()
            .entry(index)
            .or_default() += 1;
        #[cfg(test)]
        if self.mutated(Mutation::StaleBlocks) {
            return;
        }
        if let Some(placed) = self.extents.placed(index) {
            placed.blocks.forget();
        }
    }

    /// The map has a store that a layer got, and the meta store does not yet.
    pub fn added(&self, layer: &ExtentEntry, store: StoreNumber) {
        self.maps
            .commits
            .changes
            .borrow_mut()
            .add(layer.name, store);
    }

    pub fn forgotten(&self, index: u32) {
        self.maps.commits.changes.borrow_mut().forget(index);
    }

    /// Is it gone, and the meta store may not know?
    pub fn is_forgotten(&self, index: u32) -> bool {
        self.maps.commits.changes.borrow().is_forgotten(index)
    }

    /// Is anything gone that the meta store may still have?
    pub fn is_anything_forgotten(&self) -> bool {
        self.maps.commits.changes.borrow().is_anything_forgotten()
    }

    /// The least number of in-sync copies of any extent or node, of older images too, with these stores out, as the next opening finds them; as many
    /// as there should be if there is none. No more than the bitmap replicas among them: the next opening must find one.
    pub fn redundancy_floor(&self, out: &BTreeMap<StoreNumber, Generation>, copies: u8) -> u8 {
        let extents = self.extents.all.borrow();
        let all = extents.values().filter(|it| !it.stores.borrow().is_empty());
        let least = all.map(|it| it.in_sync(out)).min();
        let least = least.unwrap_or(copies).min(copies);
        let least = least.min(self.maps.nodes.redundancy_floor(out).unwrap_or(copies));
        let least = least.min(self.maps.older.redundancy_floor(out).unwrap_or(copies));
        let bitmap_replicas = self.dirty.bitmap.borrow().replicas_without(out);
        match bitmap_replicas {
            Some(bitmap_replicas) if copies > 1 => least.min(bitmap_replicas as u8),
            _ => least,
        }
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
