//! From a record to a volume that can be read and written.
//!
//! ```text
//! record -> epoch, writer, lease: compare-and-swap
//!   -> seal every in-sync store with the epoch; fewer than `redundancy_floor` may fail -> out, by compare-and-swap
//!   -> the map, whole; what was allocated since its commit, by name -> bitmaps: which are unreconciled
//!   -> the old writer's lease is over -> open
//! ```
//!
//! Always true:
//! 1. Nothing is read before every in-sync store is sealed or out.
//! 2. Every change that was ever answered is on a store that is sealed.
//! 3. A writer that did not close may answer, from memory or from a store that is not sealed, until its lease is over;
//!    the volume is not open before. No lease is kept that began before another epoch: its holder reads the record.
//! 4. That it is over is known from the clock, or from a meta store whose leases are proof, in the step that gives the volume its epoch.
//!    There a lease runs out later than its holder counts. The proof needs a holder that had no earlier writer to wait for.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::Bytes;
use env::sync::{Event, Semaphore, join_all};
use store::{Change, ClientTag, Stat};

use super::dirty::Dirty;
use super::lease::{Lease, writer_lease};
use super::membership::{Replica, SyncState};
use super::nodes::{self, InStores};
use super::older_images::OlderImages;
use super::repair::Repairing;
use super::replicas::Replicas;
use super::usage::Usage;
use super::users::Users;
use super::{Core, ExtentEntry, Phase, Settings, StoreInfo, Volume, VolumeError};
use crate::image::tree::{ImageRecord, ImageState, Versioned, image_key};
use crate::map::cache::Cache;
use crate::map::reader::Reader;
use crate::map::{Entry, Map};
use crate::meta::{Compare, LeaseId, MetaError, MetaStore, Op, Outcome, Revision};
use crate::names::{ExtentName, Generation, StoreNumber, VolumeId};
use crate::record::{
    RecordError, VolumeRecord, VolumeState, Writer, extents, volume_key, writer_key,
};
use crate::replica::choice::Choice;
use crate::replica::connect::{Connection, ConnectionError};

/// Nodes of the map in memory: those of 2 TiB.
const NODES: Bytes = Bytes::mib(32);
/// No change of one object is longer.
const WRITE_MAX: u64 = 1 << 20;

impl Volume {
    /// Opens a volume here, whichever writer has it now: that one is fenced.
    ///
    /// # Errors
    /// [`VolumeError::Missing`], [`VolumeError::Record`], [`VolumeError::Settings`]; [`VolumeError::Offline`] if too few
    /// stores can be sealed; [`VolumeError::Meta`]; [`VolumeError::Fenced`] if another node opened it at the same time.
    pub async fn open(
        id: VolumeId,
        meta: Rc<dyn MetaStore>,
        choice: Choice,
        store_infos: Vec<StoreInfo>,
        settings: Settings,
    ) -> Result<Rc<Volume>, VolumeError> {
        let asked = env::clocks();
        let Taken {
            record,
            revision,
            before,
        } = take(id, &*meta, &settings).await?;
        let waits = record.writer.as_ref().is_some_and(|it| it.waits);
        let own = record.writer.as_ref().map(|it| LeaseId(it.lease));
        // From here on no lease of an earlier writer is made longer.
        let alone = env::now() + settings.lease;
        let head = head_of(&record, &*meta).await?;
        let below = Rc::new(InStores::default());
        let core = Rc::new(Core::new(
            id,
            meta,
            choice,
            store_infos,
            settings,
            (record, revision),
            head,
            Rc::clone(&below),
        )?);
        below.are_of(&core);
        // The record's lease was asked for after that, and no node has since taken the volume without awaiting its end.
        let lease = core.settings.lease.saturating_sub(core.settings.margin);
        core.lease.keep(asked, lease);
        if let Err(error) = core.begin_with(&before).await {
            if !matches!(error, VolumeError::Meta { .. }) {
                core.give_back(&before).await;
            }
            // Nothing was answered under it: the next one need not wait for its end.
            if let Some(own) = own
                && let Err(error) = core.meta.revoke(own).await
            {
                tracing::debug!(volume = %id, %error, "the lease of an opening that failed is left to expire");
            }
            return Err(error);
        }
        let volume = Volume { core };
        let core = &volume.core;
        // From here on: a lease of our own does not run out while that of another is awaited.
        env::spawn(Rc::clone(core).keep_lease());
        if waits {
            // The old writer may answer from memory, or from a store whose removal it never heard of.
            env::sleep(alone.since(env::now())).await;
            if let Err(error) = core.waits_no_more().await {
                // The next writer waits longer than it need.
                tracing::debug!(volume = %id, %error, "the record still says that an earlier writer is waited for");
            }
        }
        core.start();
        Ok(Rc::new(volume))
    }

    /// Ends the use of the volume. It waits for what is under way, no longer than a request may take, and leaves
    /// nothing unreconciled if it can.
    ///
    /// # Errors
    /// [`VolumeError`] if something is left unreconciled: the next opening reconciles it. It is closed all the same.
    pub async fn close(&self) -> Result<(), VolumeError> {
        let core = &self.core;
        let waited = core.settings.deadline;
        let all = env::timeout(waited, core.ranges.take(0..u64::MAX, true)).await;
        let left = match &all {
            Ok(_) => core.leave_clean().await,
            Err(_) => Err(VolumeError::Busy {
                volume: core.id,
                waited,
            }),
        };
        *core.phase.borrow_mut() = Phase::Closed;
        core.changed.notify_all();
        left
    }
}

/// A volume that has a new writer.
struct Taken {
    record: VolumeRecord,
    revision: Revision,
    /// The record as it was.
    before: VolumeRecord,
}

/// Makes this node the writer.
async fn take(
    id: VolumeId,
    meta: &dyn MetaStore,
    settings: &Settings,
) -> Result<Taken, VolumeError> {
    let failed = |source: MetaError| VolumeError::Meta { volume: id, source };
    let key = volume_key(id);
    let lease = writer_lease(meta, settings).await.map_err(failed)?;
    let found = meta.get(&key).await.map_err(failed)?;
    let found = found.ok_or(VolumeError::Missing(id))?;
    let before = VolumeRecord::decode(id, &found.value)?;
    if before.state != VolumeState::Live {
        let why = "it is being deleted".to_owned();
        return Err(VolumeError::Settings { volume: id, why });
    }
    if let Some(why) = before.refusal() {
        // It was refused once before; nothing is changed any more.
        return Err(VolumeError::Settings { volume: id, why });
    }
    let mut compares = vec![Compare::Unchanged(key.clone(), found.changed)];
    let waits = match &before.writer {
        None => false,
        Some(old) => {
            let held = writer_key(old.lease);
            let ran_out = meta.get(&held).await.map_err(failed)?.is_none();
            if ran_out {
                // Once it is gone it does not come back.
                compares.push(Compare::Absent(held));
            }
            old.waits || !ran_out || !meta.leases_are_proof()
        }
    };
    let mut record = before.clone();
    record.older_than = None;
    record.generation = before.generation.next();
    record.epoch = record.generation;
    record.writer = Some(Writer {
        node: settings.node.clone(),
        lease: lease.0,
        waits,
    });
    let value = record.encode();
    let put = Op::Put {
        key: key.clone(),
        value: value.clone(),
        lease: None,
    };
    let taken = match meta.txn(compares, vec![put]).await {
        Ok(Outcome::Done(revision)) => Some(revision),
        Ok(Outcome::Refused(_)) => None,
        Err(MetaError::Unknown { .. }) => {
            // Our lease is in it, so it is this writer's own.
            let now = meta.get(&key).await.map_err(failed)?;
            now.filter(|now| now.value == value).map(|now| now.changed)
        }
        Err(error) => return Err(failed(error)),
    };
    let Some(revision) = taken else {
        let why = "another node changed its record while it was opened".to_owned();
        return Err(VolumeError::Fenced { volume: id, why });
    };
    if let Some(old) = &before.writer {
        // The old writer learns it at once, if it reaches the meta store; in any case its lease is kept no more.
        match meta.revoke(LeaseId(old.lease)).await {
            Ok(()) | Err(MetaError::NoLease { .. }) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(Taken {
        record,
        revision,
        before,
    })
}

/// The image that the volume writes to. Only its writer gives it a root.
async fn head_of(
    record: &VolumeRecord,
    meta: &dyn MetaStore,
) -> Result<Versioned<ImageRecord>, VolumeError> {
    let volume = record.id;
    let failed = |source: MetaError| VolumeError::Meta { volume, source };
    let found = meta.get(&image_key(record.head)).await.map_err(failed)?;
    let missing = || RecordError::malformed(&image_key(record.head), "it is not there");
    let found = found.ok_or_else(missing)?;
    let head = ImageRecord::decode(record.head, &found.value)?;
    if head.state != ImageState::Head || head.volume != volume {
        let why = format!("it is no head of volume {volume}");
        return Err(RecordError::malformed(&image_key(record.head), why).into());
    }
    Ok(Versioned {
        record: head,
        changed: Some(found.changed),
    })
}

impl Core {
    #[allow(clippy::too_many_arguments)] // All that a volume begins with.
    fn new(
        id: VolumeId,
        meta: Rc<dyn MetaStore>,
        choice: Choice,
        store_infos: Vec<StoreInfo>,
        settings: Settings,
        record: (VolumeRecord, Revision),
        head: Versioned<ImageRecord>,
        below: Rc<InStores>,
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
        let reader = Reader::new(below, Cache::new(NODES));
        let (root, since) = (head.record.root, head.record.since);
        let map = Map::open(reader, id, root, extents(head.record.size), since);
        let replicas = Replicas::default();
        for info in store_infos {
            if !replicas.add(Replica::new(info, token)) {
                return Err(refuse("a store is named twice"));
            }
        }
        for number in record.0.out.keys() {
            if let Some(replica) = replicas.get(number) {
                replica.sync_state.set(SyncState::Out);
            }
        }
        Ok(Core {
            id,
            fence_name: format!("g/{id}"),
            key: volume_key(id),
            drained: RefCell::new(settings.drained.clone()),
            cordoned: RefCell::default(),
            gone: RefCell::default(),
            freeing: RefCell::default(),
            pending_placements: RefCell::default(),
            users: Users::new(ClientTag {
                origin: settings.origin,
                penalties: settings.penalties,
            }),
            settings,
            meta,
            choice,
            replicas,
            write_max: Cell::new(WRITE_MAX),
            record: RefCell::new(record),
            head: RefCell::new(head),
            changing: Semaphore::new(1),
            map,
            nodes: nodes::NodeTable::default(),
            older_images: OlderImages::default(),
            committing: Semaphore::new(1),
            uncommitted: RefCell::default(),
            writing: RefCell::default(),
            written: RefCell::default(),
            deferred_frees: RefCell::default(),
            scan_floor: Cell::new(root.generation.max(since)),
            extents: RefCell::default(),
            unreconciled: RefCell::default(),
            ranges: Rc::default(),
            turns: Rc::default(),
            rereplicating: RefCell::default(),
            reconciling: RefCell::default(),
            dirty: Dirty::default(),
            stamps: RefCell::default(),
            stamping: Semaphore::new(1),
            repairing: Repairing::default(),
            record_indeterminate: Cell::new(false),
            lease,
            phase: RefCell::new(Phase::Open),
            changed: Event::default(),
            counters: Cell::default(),
            usage: Usage::new(),
            #[cfg(test)]
            mutated: Cell::new(None),
        })
    }

    /// From a new epoch to copies of which it is known where they are, and which may differ.
    async fn begin_with(self: &Rc<Self>, before: &VolumeRecord) -> Result<(), VolumeError> {
        self.learn_ages(before);
        let sealed = self.seal(before).await?;
        let unreconciled = self.recover(&sealed).await?;
        if let Err(error) = self.read_older_images().await {
            // Until it is, no store leaves the in-sync set that something older may need.
            tracing::warn!(volume = %self.id, %error, "what older images have is not known yet");
        }
        self.dirty.bitmap.borrow_mut().preset(unreconciled.clone());
        *self.unreconciled.borrow_mut() =
            unreconciled.into_iter().map(|index| (index, 1)).collect();
        self.write_all_bits().await
    }

    /// After an opening that failed the record names the writer that it named before: nothing was answered by this one, and
    /// others who look at the record see how long that one has been gone.
    async fn give_back(&self, before: &VolumeRecord) {
        if self.record.borrow().0.older_than.is_some() {
            return;
        }
        let given = self.change_record(|record| {
            let waits = record.writer.as_ref().is_some_and(|it| it.waits);
            record.writer = before.writer.clone().map(|it| Writer { waits, ..it });
            Ok(true)
        });
        if let Err(error) = given.await {
            tracing::debug!(volume = %self.id, %error, "the record names a writer whose opening failed");
        }
    }

    /// Seals all in-sync stores; puts out those that cannot be, if the volume can do without them.
    async fn seal(
        &self,
        before: &VolumeRecord,
    ) -> Result<Vec<(StoreNumber, Rc<dyn Connection>)>, VolumeError> {
        let needed = self.replicas.values().filter(|replica| replica.is_needed());
        let opened = needed.map(|replica| async move {
            (replica.info.number, self.open_connection(replica).await)
        });
        let listed = before.stores.clone();
        let is_used = |number: &StoreNumber| listed.as_ref().is_none_or(|it| it.contains(number));
        let mut sealed = Vec::new();
        let mut missing = unnamed(self, before);
        let mut why = match missing.is_empty() {
            true => String::new(),
            false => "not all stores that may have something of it were named".to_owned(),
        };
        for (number, connection) in join_all(opened.collect::<Vec<_>>()).await {
            match connection {
                Ok(connection) => sealed.push((number, connection)),
                Err(ConnectionError::Fenced { found, why }) => {
                    return Err(self.behind(number, found, why).await);
                }
                // It has nothing, and is used when it answers.
                Err(_) if !is_used(&number) => {}
                Err(error) => {
                    if missing.is_empty() {
                        why = error.to_string();
                    }
                    missing.push(number);
                }
            }
        }
        let redundancy_floor = self.record.borrow().0.redundancy_floor;
        let none_sealed = sealed.is_empty() && listed.as_ref().is_none_or(|it| !it.is_empty());
        if missing.len() >= usize::from(redundancy_floor) || none_sealed {
            return Err(self.offline(why, &missing));
        }
        for (number, connection) in &sealed {
            let replica = self.replica(*number).expect("just sealed");
            replica.set_connection(Rc::clone(connection));
        }
        sealed.retain(|(number, _)| is_used(number));
        if missing.is_empty() {
            return Ok(sealed);
        }
        // All that was answered has the stamp of the generation before this opening at most, and they have it; what was under
        // way is unreconciled, and will be stamped anew.
        self.change_record(|record| {
            let mut anything = false;
            for number in &missing {
                anything |= !record.out.contains_key(number);
                record.out.entry(*number).or_insert(before.generation);
            }
            if anything {
                record.redundancy_floor -= missing.len() as u8;
            }
            Ok(anything)
        })
        .await?;
        for number in &missing {
            if let Some(replica) = self.replica(*number) {
                replica.sync_state.set(SyncState::Out);
            }
        }
        Ok(sealed)
    }

    /// Finds out which stores have which extent, and which extents are unreconciled.
    async fn recover(
        &self,
        sealed: &[(StoreNumber, Rc<dyn Connection>)],
    ) -> Result<BTreeSet<u32>, VolumeError> {
        let failed = |why: ConnectionError| match why {
            ConnectionError::Fenced { why, .. } => self.fence(why),
            // Tried again as a whole: the store leaves the in-sync set then, or answers.
            other => self.offline(other.to_string(), &[]),
        };
        let most = extents(self.size().0);
        let root = self.map.root();
        let walked = self.walk(root, &BTreeSet::new()).await;
        let walked = walked.map_err(|error| self.offline(error.to_string(), &[]))?;
        self.nodes.add(walked.nodes);
        let entries = walked.entries.into_iter();
        let placed = entries.filter(|(index, _)| *index < most).map(hydrated);
        *self.extents.borrow_mut() = placed.collect();
        let mut found: BTreeMap<u32, (ExtentName, Vec<StoreNumber>)> = BTreeMap::new();
        let mut unreconciled = BTreeSet::new();
        for (number, connection) in sealed {
            // What was named before is in the map, or of no use.
            let mut after = Some(ExtentName::before(self.id, root.generation.next()));
            loop {
                let prefix = ExtentName::prefix(self.id);
                let part = connection.list(&prefix, after.as_deref());
                let part = self.within(part).await.map_err(failed)?;
                // What was not copied to its end has the stamp 0: it does not count as a copy.
                let ours = |stat: &&Stat| ExtentName::parse(&stat.name).is_some();
                for part in part.objects.iter().filter(ours).filter(|it| it.stamp == 0) {
                    let gone = self.within(connection.delete(&part.name, Change::default()));
                    gone.await.map_err(failed)?;
                }
                let whole = part.objects.iter().filter(|stat| stat.stamp > 0);
                for name in whole.filter_map(|stat| ExtentName::parse(&stat.name)) {
                    if name.index < most {
                        gather(&mut found, name, *number);
                    }
                }
                match part.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
            unreconciled.extend(self.bitmap(connection, most).await.map_err(failed)?);
        }
        self.enter_found(found).await?;
        unreconciled.retain(|index| self.extents.borrow().contains_key(index));
        self.change_record(|record| {
            // It grows when the bitmap replicas have the bits of what is unreconciled.
            let redundancy_floor = self.redundancy_floor(&record.out, record.copies).max(1);
            let redundancy_floor = redundancy_floor.min(record.redundancy_floor.max(1));
            let mut changes = record.redundancy_floor != redundancy_floor;
            record.redundancy_floor = redundancy_floor;
            // Before anything is answered: a disk that is put back beyond this opening is noticed.
            changes |= self.note_ages(record);
            if record.stores.is_none() {
                let all = self.replicas.keys().chain(record.out.keys());
                record.stores = Some(all.copied().collect());
                changes = true;
            }
            Ok(changes)
        })
        .await?;
        Ok(unreconciled)
    }

    /// A store has a greater token than this opening: another one's, or the record is an old one.
    async fn behind(&self, store: StoreNumber, found: u64, why: String) -> VolumeError {
        let now = match self.meta.get(&self.key).await {
            Ok(now) => now,
            Err(error) => return self.meta_error(error),
        };
        let generation = match self.check_epoch(now.as_ref()) {
            Ok(record) => record.generation,
            Err(error) => return error,
        };
        if found <= generation.0 {
            return self.fence(why);
        }
        // Else each try would come closer to the store's token, until one opens the volume by an old list of out stores.
        let noted = self.change_record(|record| {
            record.older_than = Some(Generation(found));
            // A writer that is still waited for is so when the fence was put right, too.
            record.writer = record.writer.take().filter(|it| it.waits);
            Ok(true)
        });
        match noted.await {
            Ok(()) if self.record.borrow().0.is_beyond_reason(found) => VolumeError::Sealed {
                volume: self.id,
                generation,
                store: self.label(store),
                found,
            },
            Ok(()) => VolumeError::OldMeta {
                volume: self.id,
                generation,
                store: self.label(store),
                found,
            },
            Err(error) => error,
        }
    }

    fn offline(&self, why: String, missing: &[StoreNumber]) -> VolumeError {
        VolumeError::Offline {
            volume: self.id,
            redundancy_floor: self.record.borrow().0.redundancy_floor,
            missing: self.labels(missing),
            why,
        }
    }

    /// Enters what was allocated since the map was committed, and is found by its name.
    async fn enter_found(
        &self,
        found: BTreeMap<u32, (ExtentName, Vec<StoreNumber>)>,
    ) -> Result<(), VolumeError> {
        let epoch = self.record.borrow().0.epoch;
        for (index, (name, stores)) in found {
            if name.born >= epoch {
                // It would hide what is newer, and be in the way of all commits.
                return Err(VolumeError::OldMeta {
                    volume: self.id,
                    generation: self.generation(),
                    store: self.label(stores[0]),
                    found: name.born.0,
                });
            }
            let placed = ExtentEntry::new(name, stores, false);
            // Over a single object stands an overlay: what takes the place of two has all that both had.
            let below = self.placed(index).filter(|below| below.base().is_none());
            *placed.base.borrow_mut() = below;
            let entry = placed.entry().expect("found on a store at least");
            let set = self.map.set(index, entry).await;
            set.map_err(|error| self.map_error(&error))?;
            self.extents.borrow_mut().insert(index, placed);
        }
        Ok(())
    }

    /// Leaves nothing for the next opening: neither a map to be found by names, nor unreconciled extents, nor a writer.
    async fn leave_clean(&self) -> Result<(), VolumeError> {
        // Unacknowledged extents may be on no store, and a reader of the map cannot know.
        self.drop_unacknowledged().await?;
        let committed = self.commit().await;
        let cleared = self.clear_dirty(true).await;
        committed.and(cleared)?;
        self.stamp_fences(true).await;
        self.change_record(|record| Ok(record.writer.take().is_some()))
            .await
    }

    /// The background work for one store.
    pub(super) fn start_with(self: &Rc<Self>, number: StoreNumber) {
        env::spawn(Rc::clone(self).keep_in_sync(number));
    }

    /// The background work from now on.
    fn start(self: &Rc<Self>) {
        env::spawn(Rc::clone(self).keep_connected());
        env::spawn(Rc::clone(self).keep_clean());
        env::spawn(Rc::clone(self).keep_committed());
        env::spawn(Rc::clone(self).keep_stamped());
        env::spawn(Rc::clone(self).keep_drained());
        env::spawn(Rc::clone(self).keep_repaired());
        for number in self.replicas.keys() {
            self.start_with(*number);
        }
    }
}

/// What listings of in-sync stores say of the extents: the one allocated last, and which stores have it.
fn gather(
    found: &mut BTreeMap<u32, (ExtentName, Vec<StoreNumber>)>,
    name: ExtentName,
    store: StoreNumber,
) {
    let entry = found.entry(name.index).or_insert((name, Vec::new()));
    if name.born > entry.0.born {
        *entry = (name, Vec::new());
    }
    if name == entry.0 {
        entry.1.push(store);
    }
}

/// Stores that may have something of the volume and were not named: they cannot be sealed either.
fn unnamed(core: &Core, before: &VolumeRecord) -> Vec<StoreNumber> {
    let listed = before.stores.iter().flatten();
    let known = |it: &StoreNumber| before.out.contains_key(it) || core.replicas.contains_key(it);
    listed.filter(|it| !known(it)).copied().collect()
}

/// An extent as the map has it.
fn hydrated((index, entry): (u32, Entry)) -> (u32, Rc<ExtentEntry>) {
    let stores = entry.top.stores.as_slice().to_vec();
    let placed = ExtentEntry::new(entry.top.name(index), stores, false);
    *placed.base.borrow_mut() = entry.base.map(|base| {
        let stores = base.stores.as_slice().to_vec();
        ExtentEntry::new(base.name(index), stores, false)
    });
    (index, placed)
}
