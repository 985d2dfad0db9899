//! A replicated volume in use: one writer, copies of each extent in several stores.
//!
//! ```text
//! read  -> reconciled   -> range shared -> which copy? (choice) -> a store -> data      failed: another copy, and repaired
//! write -> reconciled   -> range alone -> placed -> dirty bit -> all in-sync copies, durable -> answer
//!                                                                 '-- one failed: out, by compare-and-swap, before the answer
//! ```
//!
//! ```text
//! InSync  -> Out      a change may have missed it: the record says so before it is acknowledged
//! Out     -> Joining  resync has given it everything; changes need it again from here on
//! Joining -> InSync   the record says so
//! Joining -> Out      a change missed it
//! ```
//!
//! - `older_images` what older images have. `nodes` where the map's nodes are; `commit` how the map becomes durable.
//! - `open` from a record to a volume. `membership` stores and the record. `io` reads and writes. `ranges` locks of bytes.
//!   `overlay` what is shared with other images; `snapshot` how it becomes so, and other sizes. `dirty` which extents' copies
//!   may differ after a crash. `reconcile` what makes copies equal again. `repair` what scrubs and reads found damaged. `room`
//!   what finds no place. `resync` resync of stores that come back. `rereplicate` as many copies as configured, and other background work. `drain` what leaves stores that are
//!   to be empty, `relocate` rewrites older images' maps to other stores. `users` clients with a class of their own. `age` which stores were put back.
//!
//! The map is read when a volume is opened, and what was allocated since its last commit is found by listing; it is in memory
//! while the volume is open, and committed beside reads and writes.
//!
//! Source: COST 3.2 (reads by cost, new extents on the cheapest disks, overwrites go to their copies, a write is answered
//! when all copies are on disk); who may write, who is in sync and what happens after faults is ours.
//!
//! Always true:
//! 1. A change that was answered is durable on every store that is in sync and has the extent.
//! 2. A store that may have missed a change is out, in the record, before the change is answered.
//! 3. No store leaves the in-sync set that has the last in-sync copy of an extent.
//! 4. What a read answered stays until it is written, whichever copy is read later: an extent whose copies may differ is not
//!    read before they are equal.
//! 5. Nothing is answered under a lease that may have run out, nor after a greater token was seen.

mod age;
mod commit;
mod dirty;
mod drain;
mod io;
mod lease;
mod membership;
mod nodes;
mod older_images;
mod open;
mod overlay;
mod ranges;
mod reconcile;
mod relocate;
mod repair;
mod repairs;
mod replicas;
mod rereplicate;
mod resync;
mod room;
mod snapshot;
#[cfg(test)]
mod tests;
mod usage;
mod users;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, SECTOR, Sector, Span, View};
use device::{Class, Device, DeviceError, Info, Op, Pending, WriteFlags};
use env::sync::{Event, Semaphore};
use policy::place::{DomainId, Origin, Penalties, PlaceError};

use replication::stamps::{self, Stamps};

use crate::image::tree::{ImageRecord, Versioned};
use crate::map::{Entry, Freed, Layer, Map};
use crate::meta::{MetaError, MetaStore, Revision};
use crate::names::{COPIES_MAX, ExtentName, Generation, StoreNumber, Stores, VolumeId};
use crate::record::{RecordError, VolumeRecord};
use crate::replica::choice::Choice;
use crate::replica::connect::{ConnectionError, Connector};
use commit::Uncommitted;
use dirty::Dirty;
pub use drain::Left;
use lease::Lease;
use older_images::OlderImages;
use ranges::Ranges;
use repair::Repairing;
pub use repairs::{LEFT_MAX, Repairs, Unrepaired};
use replicas::Replicas;
use usage::Usage;
pub use users::{User, UserVolume};
use users::{UserId, Users};

/// A store of the cluster.
#[derive(Clone)]
pub struct StoreInfo {
    /// Its number.
    pub number: StoreNumber,
    /// Its name, for messages.
    pub name: String,
    /// What it fails together with.
    pub domain: DomainId,
    /// Is it in this very node?
    pub local: bool,
    /// Does it have heads to move?
    pub rotating: bool,
    /// The way to it.
    pub connector: Rc<dyn Connector>,
}

/// How a volume is used.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This node's name.
    pub node: String,
    /// How long the writer's lease lasts, the same on all nodes; after an unclean close the next writer waits for it.
    pub lease: Nanos,
    /// By how much it counts as shorter: more than clocks drift apart in that time.
    pub margin: Nanos,
    /// How long is waited for one store's answer to one request.
    pub timeout: Nanos,
    /// How long a request is tried before it fails.
    pub deadline: Nanos,
    /// An extent that was not written for so long is clean.
    pub clean_after: Nanos,
    /// How often the map is committed while it changes.
    pub commit_after: Nanos,
    /// How often background work looks around.
    pub tick: Nanos,
    /// Whose its requests are.
    pub origin: Origin,
    /// How other clients before it in a queue count.
    pub penalties: Penalties,
    /// Stores that are being drained: nothing goes there, and what is there leaves.
    pub drained: BTreeSet<StoreNumber>,
}

impl Settings {
    /// A lease of 10 s counted as 8, 5 s for a store's answer, 30 s for a request.
    pub fn new(node: &str, origin: Origin) -> Settings {
        Settings {
            node: node.to_owned(),
            lease: Nanos::secs(10),
            margin: Nanos::secs(2),
            timeout: Nanos::secs(5),
            deadline: Nanos::secs(30),
            clean_after: Nanos::secs(5),
            commit_after: Nanos::secs(3),
            tick: Nanos::secs(1),
            origin,
            penalties: Penalties::default(),
            drained: BTreeSet::new(),
        }
    }
}

/// Why a volume did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// There is no record of it.
    #[error("there is no volume {0}; list shows what there is")]
    Missing(VolumeId),
    /// Its record cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The settings do not fit the volume.
    #[error("cannot open volume {volume}: {why}")]
    Settings {
        /// Which.
        volume: VolumeId,
        /// What is wrong and what would do.
        why: String,
    },
    /// The meta store did not answer, or refused.
    #[error("volume {volume} needs the meta store: {source}")]
    Meta {
        /// Which.
        volume: VolumeId,
        /// What it said.
        source: MetaError,
    },
    /// Another writer has it now.
    #[error(
        "volume {volume} was taken over ({why}); nothing is done here any more: open it again if it should be here"
    )]
    Fenced {
        /// Which.
        volume: VolumeId,
        /// How that was seen.
        why: String,
    },
    /// Too few stores can be reached to know what was written last.
    #[error(
        "volume {volume} is offline: an extent may have only {redundancy_floor} in-sync copies, and {} cannot be sealed: {why}; \
         bring them back",
        stores(missing)
    )]
    Offline {
        /// Which.
        volume: VolumeId,
        /// The least number of in-sync copies of any extent.
        redundancy_floor: u8,
        /// The stores that do not answer.
        missing: Vec<String>,
        /// What the first said.
        why: String,
    },
    /// The record is older than the stores.
    #[error(
        "volume {volume} is not opened: its record is at generation {generation}, and store {store} was used in {found} \
         already; the meta store is older than the stores: bring back the newer one"
    )]
    OldMeta {
        /// Which.
        volume: VolumeId,
        /// Of the record.
        generation: Generation,
        /// A store that is ahead of it.
        store: String,
        /// Where that is.
        found: u64,
    },
    /// A store is sealed for a generation that no writer ever had.
    #[error(
        "volume {volume} is not opened: its record is at generation {generation}, and store {store} is sealed for {found}, \
         where no writer of it was ever; `tanada volume repair` puts the stores right"
    )]
    Sealed {
        /// Which.
        volume: VolumeId,
        /// Of the record.
        generation: Generation,
        /// The store.
        store: String,
        /// What it is sealed for.
        found: u64,
    },
    /// Too few in-sync copies to write.
    #[error(
        "volume {volume} takes no writes there: {copies} of the extent's copies are in sync, it asks for at least {least}; \
         bring back {}",
        stores(out)
    )]
    ReadOnly {
        /// Which.
        volume: VolumeId,
        /// In-sync copies.
        copies: usize,
        /// The volume's `min_isr`.
        least: u8,
        /// The stores that are out.
        out: Vec<String>,
    },
    /// The map cannot be read or written.
    #[error("volume {volume} cannot use its map: {why}")]
    Map {
        /// Which.
        volume: VolumeId,
        /// What stood in the way.
        why: String,
    },
    /// What is asked of its images cannot be.
    #[error("volume {volume}: {why}")]
    Image {
        /// Which.
        volume: VolumeId,
        /// What stood in the way.
        why: String,
    },
    /// It became smaller.
    #[error("volume {volume} ends at byte {size} now; ask for what lies before")]
    Beyond {
        /// Which.
        volume: VolumeId,
        /// Its size in bytes.
        size: u64,
    },
    /// Nowhere to put a new extent.
    #[error("volume {volume} has no room for a new extent: {why}")]
    NoRoom {
        /// Which.
        volume: VolumeId,
        /// What the policy or the stores said.
        why: String,
    },
    /// No copy does it.
    #[error("no copy of extent {index} of volume {volume} answers: {why}")]
    NoCopy {
        /// Which.
        volume: VolumeId,
        /// The extent.
        index: u32,
        /// What the last one said.
        why: String,
    },
    /// The lease could not be kept.
    #[error(
        "volume {0} cannot keep its lease: the meta store does not answer, and another writer may have the volume"
    )]
    NoLease(VolumeId),
    /// It was closed while requests were under way.
    #[error(
        "volume {volume} was closed, but requests were still under way after {waited}; the next opening reconciles what \
         they left"
    )]
    Busy {
        /// Which.
        volume: VolumeId,
        /// How long they were waited for.
        waited: Nanos,
    },
    /// It was closed.
    #[error("volume {0} is closed; open it again")]
    Closed(VolumeId),
}

fn stores(names: &[String]) -> String {
    let all: Vec<String> = names.iter().map(|one| format!("store {one}")).collect();
    match all.is_empty() {
        true => "no store".to_owned(),
        false => all.join(", "),
    }
}

impl VolumeError {
    /// Is it transient: may a later try succeed?
    fn passes(&self) -> bool {
        !matches!(
            self,
            VolumeError::Fenced { .. }
                | VolumeError::Closed(_)
                | VolumeError::Record(_)
                | VolumeError::Beyond { .. }
        )
    }
}

/// How a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Every extent has all its copies in sync.
    Healthy,
    /// Some copies are missing, and none is re-replicated or resynced now.
    Degraded,
    /// Some copies are missing, and are being re-replicated or resynced.
    Resyncing,
    /// There is no room for all copies of what is written anew.
    Full,
    /// There are extents that cannot be written.
    ReadOnly,
    /// Nothing can be done.
    Offline,
}

/// How a volume is, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// How.
    pub condition: Condition,
    /// Why it is not healthy; empty if it is.
    pub why: String,
}

/// What a volume has done since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Read repairs: copies that failed a read and were repaired from another.
    pub read_repairs: u64,
    /// Damaged bytes that were written anew from another copy.
    pub repaired_bytes: u64,
    /// Stores that left the in-sync set.
    pub isr_shrinks: u64,
    /// Stores that joined the in-sync set again.
    pub isr_expands: u64,
    /// Extents copied to stores that were out.
    pub resynced: u64,
    /// Extents whose copies were made equal.
    pub reconciled: u64,
    /// Extents allocated.
    pub allocated: u64,
    /// Overlays and their bases made one.
    pub merged: u64,
    /// Roots given to the meta store.
    pub commits: u64,
    /// Extents of older images that left drained stores, or got copies they lacked.
    pub relocated: u64,
}

/// An extent that is allocated.
pub(crate) struct ExtentEntry {
    name: ExtentName,
    /// The same as text.
    object: String,
    stores: RefCell<Vec<StoreNumber>>,
    /// Those of them that no root in the meta store names yet.
    uncommitted: RefCell<Vec<StoreNumber>>,
    /// No change of it was answered, nor anything of it read: copies may lack the object.
    unacknowledged: Cell<bool>,
    /// It came after the record's `redundancy_floor` was last known to hold for it: no change of it is sent before that is so again.
    uncounted: Cell<bool>,
    /// Holds what this one, an overlay, does not have.
    base: RefCell<Option<Rc<ExtentEntry>>>,
    blocks: Blocks,
}

/// The blocks an overlay has.
#[derive(Default)]
struct Blocks {
    /// Those that were written, and those that were found.
    has: Cell<u64>,
    /// Were they looked for?
    known: Cell<bool>,
    /// How often that was forgotten.
    times_forgotten: Cell<u64>,
}

impl Blocks {
    fn add(&self, more: u64) {
        self.has.set(self.has.get() | more);
    }

    fn are_known(&self) -> bool {
        self.known.get()
    }

    /// Copies may differ: what they have is to be looked for again.
    fn forget(&self) {
        self.has.set(0);
        self.known.set(false);
        self.times_forgotten.set(self.times_forgotten.get() + 1);
    }
}

impl ExtentEntry {
    fn new(name: ExtentName, stores: Vec<StoreNumber>, unacknowledged: bool) -> Rc<ExtentEntry> {
        Rc::new(ExtentEntry {
            name,
            object: name.to_string(),
            stores: RefCell::new(stores),
            uncommitted: RefCell::default(),
            unacknowledged: Cell::new(unacknowledged),
            uncounted: Cell::new(false),
            base: RefCell::default(),
            blocks: Blocks::default(),
        })
    }

    fn base(&self) -> Option<Rc<ExtentEntry>> {
        self.base.borrow().clone()
    }

    /// Its layers, the overlay first.
    fn layers(self: &Rc<Self>) -> impl Iterator<Item = Rc<ExtentEntry>> + use<> {
        [Some(Rc::clone(self)), self.base()].into_iter().flatten()
    }

    /// As the map has it: of copies too many those that were there first.
    fn layer(&self) -> Option<Layer> {
        let stores = self.stores.borrow();
        let first = &stores[..stores.len().min(COPIES_MAX)];
        Some(Layer {
            owner: self.name.owner,
            born: self.name.born,
            stores: Stores::new(first)?,
        })
    }

    /// Copies that the next opening finds in sync.
    fn in_sync(&self, out: &BTreeMap<StoreNumber, Generation>) -> u8 {
        let (stores, uncommitted) = (self.stores.borrow(), self.uncommitted.borrow());
        let counts = |one: &&StoreNumber| !out.contains_key(one) && !uncommitted.contains(one);
        let own = stores.iter().filter(counts).count() as u8;
        self.base().map_or(own, |base| own.min(base.in_sync(out)))
    }

    fn entry(&self) -> Option<Entry> {
        let top = self.layer()?;
        Some(match self.base() {
            None => Entry::full(top),
            Some(base) => Entry::overlay(top, base.layer()?),
        })
    }
}

/// Where the volume stands as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Open,
    Fenced(String),
    Closed,
}

/// Mutations: mistakes that tests plant to see that the checkers catch them.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A change is answered before the record says which store missed it.
    AnswerBeforeSwap,
    /// Reads do not wait for writes under way.
    LooseRead,
    /// Extents are not noted as dirty.
    NoDirtyBit,
    /// Stores are not sealed when a volume is opened.
    NoSeal,
    /// A store leaves an extent before a root without it is in the meta store.
    NoCommit,
    /// A write to a part of a block that an overlay lacks leaves out the rest.
    HalfBlock,
    /// Which blocks an overlay has is not looked for again when its copies were made equal.
    StaleBlocks,
    /// A snapshot is taken of unreconciled extents.
    UnreconciledSnapshot,
    /// A change that is tried again lets others to its range meanwhile.
    FreeRange,
    /// What lies behind the end stays when a volume becomes smaller.
    KeepsBehind,
    /// Stores that come back get what the head has, and nothing of snapshots.
    HeadOnlyResync,
    /// An older image's map is written anew whichever store went out meanwhile.
    UncountedRelocation,
    /// A damaged copy is repaired without its range: a write may come between.
    LooseRepair,
    /// An indeterminate change on a user's own connection does not end the volume's.
    UntaintedByClients,
}

/// What all tasks of a volume share.
pub(crate) struct Core {
    // Fixed.
    id: VolumeId,
    settings: Settings,
    fence_name: String,
    key: String,
    meta: Rc<dyn MetaStore>,
    choice: Choice,
    replicas: Replicas,
    users: Users,
    /// Those that are to be empty, and those that the record may list no more.
    drained: RefCell<BTreeSet<StoreNumber>>,
    cordoned: RefCell<BTreeSet<StoreNumber>>,
    /// Those that have left the cluster, as the meta store said when they were to be listed.
    gone: RefCell<BTreeSet<StoreNumber>>,
    /// Those on which copies of older images are being freed just now: what comes there may be freed with them.
    freeing: RefCell<BTreeSet<StoreNumber>>,
    /// Stores that were chosen for something that no table has yet, and for how much.
    pending_placements: RefCell<BTreeMap<StoreNumber, u64>>,
    /// The longest change of one object in bytes.
    write_max: Cell<u64>,
    // As it goes.
    record: RefCell<(VolumeRecord, Revision)>,
    /// The image that is written.
    head: RefCell<Versioned<ImageRecord>>,
    /// One change of the record at a time.
    changing: Rc<Semaphore>,
    map: Map,
    /// The map's nodes.
    nodes: nodes::NodeTable,
    /// What older images have.
    older_images: OlderImages,
    committing: Rc<Semaphore>,
    /// Changed in the map since the last commit began; by the one whose nodes are being written; and by commits whose root
    /// the meta store may not have.
    uncommitted: RefCell<Uncommitted>,
    writing: RefCell<Uncommitted>,
    written: RefCell<Uncommitted>,
    /// What those commits replaced.
    deferred_frees: RefCell<Freed>,
    /// What is named in it or before is in the map, in that of another image, or of no use.
    scan_floor: Cell<Generation>,
    extents: RefCell<BTreeMap<u32, Rc<ExtentEntry>>>,
    /// Extents whose copies may differ, and how many pieces say so; no request reads or writes them until then.
    unreconciled: RefCell<BTreeMap<u32, u64>>,
    ranges: Rc<Ranges>,
    /// Changes in the order they came; those that are tried again keep their place.
    turns: Rc<Ranges>,
    /// Extents that get or lose copies just now.
    rereplicating: RefCell<BTreeSet<u32>>,
    /// Extents whose copies are made equal just now for reads that wait.
    reconciling: RefCell<BTreeSet<u32>>,
    dirty: Dirty,
    stamps: RefCell<Stamps>,
    /// One task stamps fences at a time.
    stamping: Rc<Semaphore>,
    repairing: Repairing,
    /// A change of the record was asked for, and may yet come about.
    record_indeterminate: Cell<bool>,
    lease: Lease,
    phase: RefCell<Phase>,
    /// Something changed that a task may wait for.
    changed: Event,
    counters: Cell<Counters>,
    usage: Usage,
    #[cfg(test)]
    mutated: Cell<Option<Mutation>>,
}

/// A change under way: its stamp is remembered until it is over.
struct UnderWay<'a> {
    core: &'a Core,
    change: stamps::UnderWay,
}

impl UnderWay<'_> {
    fn stamp(&self) -> Generation {
        self.change.stamp
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.core.stamps.borrow_mut().end(self.change);
    }
}

impl Core {
    fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    #[cfg(test)]
    fn mutated(&self, mutation: Mutation) -> bool {
        self.mutated.get() == Some(mutation)
    }

    /// Refuses what comes after the end.
    fn usable(&self) -> Result<(), VolumeError> {
        match &*self.phase.borrow() {
            Phase::Open => Ok(()),
            Phase::Fenced(why) => Err(VolumeError::Fenced {
                volume: self.id,
                why: why.clone(),
            }),
            Phase::Closed => Err(VolumeError::Closed(self.id)),
        }
    }

    /// Another writer has the volume.
    fn fence(&self, why: impl Into<String>) -> VolumeError {
        let why = why.into();
        if *self.phase.borrow() == Phase::Open {
            tracing::warn!(volume = %self.id, why, "taken over by another node");
            *self.phase.borrow_mut() = Phase::Fenced(why.clone());
            self.changed.notify_all();
        }
        VolumeError::Fenced {
            volume: self.id,
            why,
        }
    }

    /// Bytes of the volume.
    fn size(&self) -> Bytes {
        Bytes(self.head.borrow().record.size)
    }

    /// Refuses what lies behind the end: it may have moved while its range was waited for.
    fn within_size(&self, end: u64) -> Result<(), VolumeError> {
        let (volume, size) = (self.id, self.size().0);
        match end <= size {
            true => Ok(()),
            false => Err(VolumeError::Beyond { volume, size }),
        }
    }

    fn generation(&self) -> Generation {
        self.record.borrow().0.generation
    }

    /// A change begins: under this stamp.
    fn begin(&self) -> UnderWay<'_> {
        let change = self.stamps.borrow_mut().begin(self.generation());
        UnderWay { core: self, change }
    }

    fn placed(&self, index: u32) -> Option<Rc<ExtentEntry>> {
        self.extents.borrow().get(&index).map(Rc::clone)
    }

    fn is_unreconciled(&self, index: u32) -> bool {
        self.unreconciled.borrow().contains_key(&index)
    }

    /// One more piece of the extent may differ from copy to copy.
    fn add_unreconciled(&self, index: u32) {
        *self.unreconciled.borrow_mut().entry(index).or_default() += 1;
        #[cfg(test)]
        if self.mutated(Mutation::StaleBlocks) {
            return;
        }
        if let Some(placed) = self.placed(index) {
            placed.blocks.forget();
        }
    }

    /// One piece that said so does not differ any more.
    fn remove_unreconciled(&self, index: u32) {
        let mut unreconciled = self.unreconciled.borrow_mut();
        let count = unreconciled.get_mut(&index).expect("it was unreconciled");
        *count -= 1;
        if *count == 0 {
            unreconciled.remove(&index);
        }
    }

    fn no_copy(&self, index: u32, why: &ConnectionError) -> VolumeError {
        VolumeError::NoCopy {
            volume: self.id,
            index,
            why: why.to_string(),
        }
    }

    fn no_room(&self, why: &PlaceError) -> VolumeError {
        VolumeError::NoRoom {
            volume: self.id,
            why: self.full_in_words().unwrap_or_else(|| why.to_string()),
        }
    }

    /// Waits a little, longer after each try, and then for a change. Many changes are the volume's own: without the
    /// wait, what fails at once would be tried without end.
    async fn pause(&self, tries: &mut u32) {
        env::sleep(Nanos::millis(1 << (*tries).min(6))).await;
        *tries += 1;
        let _ = env::timeout(Nanos::millis(200), self.changed.wait()).await;
    }
}

/// A volume in use. Held as `Rc<dyn Device>` by the export; see the module's head.
///
/// Every write is durable when it is answered, so a flush has nothing to do.
pub struct Volume {
    core: Rc<Core>,
}

impl Drop for Volume {
    /// As a crash of its node, if it was not closed: nothing goes on, and the lease runs out.
    fn drop(&mut self) {
        let mut phase = self.core.phase.borrow_mut();
        if *phase == Phase::Open {
            *phase = Phase::Closed;
        }
        drop(phase);
        self.core.changed.notify_all();
    }
}

impl Volume {
    /// How it is, and why.
    pub fn health(&self) -> Health {
        self.core.health()
    }

    /// What it has done since it was opened.
    pub fn counters(&self) -> Counters {
        self.core.counters.get()
    }

    /// The record as this node knows it.
    pub fn record(&self) -> VolumeRecord {
        self.core.record.borrow().0.clone()
    }

    fn device_error(&self, op: Op, span: Span, error: VolumeError) -> DeviceError {
        let device = self.name();
        let why = error.to_string();
        match error {
            VolumeError::Fenced { .. } | VolumeError::Closed(_) => {
                DeviceError::Gone { device, op, why }
            }
            VolumeError::NoRoom { .. } => DeviceError::NoSpace { device, op, why },
            _ => DeviceError::Io {
                device,
                op,
                span,
                why,
            },
        }
    }

    fn name(&self) -> String {
        self.core.record.borrow().0.name.to_string()
    }

    fn read_as(&self, at: Sector, buf: Buf, user: UserId) -> Pending<'_, Buf> {
        let span = Span::new(at, Bytes(buf.len() as u64));
        if let Err(error) = self.info().check(Op::Read, at, span.len.0) {
            return device::ready(Err(error));
        }
        Box::pin(async move {
            let _request = self.core.usage.begin();
            let read = async {
                let buf = self.core.read(at.byte(), buf, user).await?;
                self.core.leased().await?;
                Ok(buf)
            };
            read.await
                .map_err(|error| self.device_error(Op::Read, span, error))
        })
    }

    fn change(&self, op: Op, span: Span, data: Option<View>, user: UserId) -> Pending<'_, ()> {
        if let Err(error) = self.info().check(op, span.start, span.len.0) {
            return device::ready(Err(error));
        }
        let core = Rc::clone(&self.core);
        // To its end, whether or not the caller still waits.
        let task = env::spawn(async move {
            let _request = core.usage.begin();
            core.change(span.start.byte(), span.len.0, data, user)
                .await?;
            core.leased().await
        });
        Box::pin(async move {
            task.await
                .map_err(|error| self.device_error(op, span, error))
        })
    }
}

impl Device for Volume {
    fn info(&self) -> Info {
        Info {
            name: self.name(),
            size: self.core.size(),
            physical_block: Bytes::kib(4),
            max_io: Bytes::mib(32),
            volatile_cache: false,
            discards: true,
            rotational: false,
            read_only: false,
        }
    }

    fn read(&self, at: Sector, buf: Buf, _class: Class) -> Pending<'_, Buf> {
        self.read_as(at, buf, UserId::OWN)
    }

    fn write(&self, at: Sector, data: View, _flags: WriteFlags) -> Pending<'_, ()> {
        let span = Span::new(at, Bytes(data.len() as u64));
        self.change(Op::Write, span, Some(data), UserId::OWN)
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let _request = self.core.usage.begin();
            let leased = self.core.leased().await;
            leased.map_err(|error| self.device_error(Op::Flush, Span::default(), error))
        })
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.change(Op::Discard, span, None, UserId::OWN)
    }

    fn write_zeroes(&self, span: Span, _flags: WriteFlags) -> Pending<'_, ()> {
        self.change(Op::WriteZeroes, span, None, UserId::OWN)
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        if let Err(error) = self.info().check(Op::Read, span.start, span.len.0) {
            return device::ready(Err(error));
        }
        device::ready(Ok(self
            .core
            .allocation(span.start.byte(), span.len.0.max(SECTOR))))
    }
}
