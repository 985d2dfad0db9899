//! What there is of a volume that has a new writer.
//!
//! ```text
//! seal every in-sync store with the epoch; fewer than `redundancy_floor` may fail -> out, by compare-and-swap
//!   -> the map, whole; what was allocated since its commit, by name -> bitmaps: which are unreconciled
//! ```
//!
//! Always true:
//! 1. Nothing is read before every in-sync store is sealed or out.
//! 2. Every change that was ever answered is on a store that is sealed.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use env::sync::join_all;
use store::{Change, Stat};

use replication::{membership, opening};

use super::age::Fences;
use super::bitmap_io::BitmapIo;
use super::commit::MapIo;
use super::connections::Connections;
use super::error::VolumeError;
use super::extent::ExtentEntry;
use super::image_io::ImageIo;
use super::node_io::NodeIo;
use super::record_io::RecordIo;
use super::state::Core;
use crate::map::Entry;
use crate::names::{ExtentName, Generation, StoreNumber};
use crate::record::{VolumeRecord, Writer, extents};
use crate::replica::connect::{Connection, ConnectionError};

/// Finds out what there is of a volume that has a new writer.
#[derive(Clone, Copy)]
pub(super) struct Recovery<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Recovery<'a> {
    pub fn of(core: &'a Rc<Core>) -> Recovery<'a> {
        Recovery { core }
    }

    /// From a new epoch to copies of which it is known where they are, and which may differ.
    pub(super) async fn begin_with(self, before: &VolumeRecord) -> Result<(), VolumeError> {
        RecordIo::of(self.core).learn_ages(before);
        let sealed = self.seal(before).await?;
        let unreconciled = self.recover(&sealed).await?;
        if let Err(error) = ImageIo::of(self.core).read_older_images().await {
            // Until it is, no store leaves the in-sync set that something older may need.
            tracing::warn!(volume = %self.core.id, %error, "what older images have is not known yet");
        }
        {
            let replication = &mut *self.core.replication.borrow_mut();
            replication.bitmap.preset(unreconciled.clone());
            replication.unreconciled.preset(unreconciled);
        }
        BitmapIo::of(self.core).write_all_bits().await
    }

    /// After an opening that failed the record names the writer that it named before: nothing was answered by this one, and
    /// others who look at the record see how long that one has been gone.
    pub(super) async fn give_back(self, before: &VolumeRecord) {
        if self.core.volume_record().older_than.is_some() {
            return;
        }
        let given = RecordIo::of(self.core).change_record(|record| {
            let waits = record.writer.as_ref().is_some_and(|it| it.waits);
            record.writer = before.writer.clone().map(|it| Writer { waits, ..it });
            Ok(true)
        });
        if let Err(error) = given.await {
            tracing::debug!(volume = %self.core.id, %error, "the record names a writer whose opening failed");
        }
    }

    /// Seals all in-sync stores; puts out those that cannot be, if the volume can do without them.
    async fn seal(
        self,
        before: &VolumeRecord,
    ) -> Result<Vec<(StoreNumber, Rc<dyn Connection>)>, VolumeError> {
        let needed = self
            .core
            .replicas
            .values()
            .filter(|replica| replica.is_needed());
        let opened = needed.map(|replica| async move {
            (
                replica.info.number,
                Connections::of(self.core).open_connection(replica).await,
            )
        });
        let listed = before.stores.clone();
        let is_used = |number: &StoreNumber| listed.as_ref().is_none_or(|it| it.contains(number));
        let mut sealed = Vec::new();
        let mut missing = unnamed(self.core, before);
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
        let redundancy_floor = self.core.volume_record().redundancy_floor;
        if !opening::can_open(before, redundancy_floor, sealed.len(), missing.len()) {
            return Err(self.offline(why, &missing));
        }
        for (number, connection) in &sealed {
            let replica = self.core.replicas.get(*number).expect("just sealed");
            replica.set_connection(Rc::clone(connection));
        }
        sealed.retain(|(number, _)| is_used(number));
        if missing.is_empty() {
            return Ok(sealed);
        }
        self.go_on_without(&missing, before.generation).await?;
        Ok(sealed)
    }

    /// Stores that cannot be sealed are out, `since` the generation before this opening.
    async fn go_on_without(
        self,
        missing: &[StoreNumber],
        since: Generation,
    ) -> Result<(), VolumeError> {
        // All that was answered has the stamp of the generation before this opening at most, and they have it; what was under
        // way is unreconciled, and will be stamped anew.
        RecordIo::of(self.core)
            .change_record(|record| Ok(membership::go_on_without(record, missing, since)))
            .await
    }

    /// Finds out which stores have which extent, and which extents are unreconciled.
    async fn recover(
        self,
        sealed: &[(StoreNumber, Rc<dyn Connection>)],
    ) -> Result<BTreeSet<u32>, VolumeError> {
        let failed = |why: ConnectionError| match why {
            ConnectionError::Fenced { why, .. } => self.core.fence(why),
            // Tried again as a whole: the store leaves the in-sync set then, or answers.
            other => self.offline(other.to_string(), &[]),
        };
        let most = extents(self.core.size().0);
        let root = self.core.maps.head.root();
        let walked = NodeIo::of(self.core).walk(root, &BTreeSet::new()).await;
        let walked = walked.map_err(|error| self.offline(error.to_string(), &[]))?;
        self.core.maps.nodes.add(walked.nodes);
        let entries = walked.entries.into_iter();
        let placed = entries.filter(|(index, _)| *index < most).map(hydrated);
        *self.core.extents.all.borrow_mut() = placed.collect();
        let mut found: BTreeMap<u32, (ExtentName, Vec<StoreNumber>)> = BTreeMap::new();
        let mut unreconciled = BTreeSet::new();
        for (number, connection) in sealed {
            let scanned = self.scan(*number, connection, root.generation, &mut found);
            scanned.await.map_err(failed)?;
            unreconciled.extend(
                BitmapIo::of(self.core)
                    .bitmap(connection, most)
                    .await
                    .map_err(failed)?,
            );
        }
        self.enter_found(found).await?;
        unreconciled.retain(|index| self.core.extents.all.borrow().contains_key(index));
        RecordIo::of(self.core)
            .change_record(|record| {
                let floor = self.core.redundancy_floor(&record.out, record.copies);
                let mut changes = opening::recovered(record, floor);
                // Before anything is answered: a disk that is put back beyond this opening is noticed.
                changes |= RecordIo::of(self.core).note_ages(record);
                if record.stores.is_none() {
                    let all = self.core.replicas.keys().chain(record.out.keys());
                    record.stores = Some(all.copied().collect());
                    changes = true;
                }
                Ok(changes)
            })
            .await?;
        Ok(unreconciled)
    }

    /// Finds what a store has that was named after the map was committed in `root`.
    async fn scan(
        self,
        number: StoreNumber,
        connection: &Rc<dyn Connection>,
        root: Generation,
        found: &mut BTreeMap<u32, (ExtentName, Vec<StoreNumber>)>,
    ) -> Result<(), ConnectionError> {
        let most = extents(self.core.size().0);
        let prefix = ExtentName::prefix(self.core.id);
        // What was named before is in the map, or of no use.
        let mut after = Some(ExtentName::before(self.core.id, root.next()));
        loop {
            let part = connection.list(&prefix, after.as_deref());
            let part = self.core.within(part).await?;
            // What was not copied to its end has the stamp 0: it does not count as a copy.
            let ours = |stat: &&Stat| ExtentName::parse(&stat.name).is_some();
            for part in part.objects.iter().filter(ours).filter(|it| it.stamp == 0) {
                let gone = connection.delete(&part.name, Change::default());
                self.core.within(gone).await?;
            }
            let whole = part.objects.iter().filter(|stat| stat.stamp > 0);
            for name in whole.filter_map(|stat| ExtentName::parse(&stat.name)) {
                if name.index < most {
                    gather(found, name, number);
                }
            }
            match part.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// A store has a greater token than this opening: another one's, or the record is an old one.
    async fn behind(self, store: StoreNumber, found: u64, why: String) -> VolumeError {
        let now = match self.core.meta.get(&self.core.record.key).await {
            Ok(now) => now,
            Err(error) => return self.core.meta_error(error),
        };
        let generation = match RecordIo::of(self.core).check_epoch(now.as_ref()) {
            Ok(record) => record.generation,
            Err(error) => return error,
        };
        if found <= generation.0 {
            return self.core.fence(why);
        }
        // Else each try would come closer to the store's token, until one opens the volume by an old list of out stores.
        let noted = RecordIo::of(self.core).change_record(|record| {
            record.older_than = Some(Generation(found));
            // A writer that is still waited for is so when the fence was put right, too.
            record.writer = record.writer.take().filter(|it| it.waits);
            Ok(true)
        });
        match noted.await {
            Ok(()) if self.core.volume_record().is_beyond_reason(found) => VolumeError::Sealed {
                volume: self.core.id,
                generation,
                store: self.core.replicas.label(store),
                found,
            },
            Ok(()) => VolumeError::OldMeta {
                volume: self.core.id,
                generation,
                store: self.core.replicas.label(store),
                found,
            },
            Err(error) => error,
        }
    }

    fn offline(self, why: String, missing: &[StoreNumber]) -> VolumeError {
        VolumeError::Offline {
            volume: self.core.id,
            redundancy_floor: self.core.volume_record().redundancy_floor,
            missing: self.core.replicas.labels(missing),
            why,
        }
    }

    /// Enters what was allocated since the map was committed, and is found by its name.
    async fn enter_found(
        self,
        found: BTreeMap<u32, (ExtentName, Vec<StoreNumber>)>,
    ) -> Result<(), VolumeError> {
        let epoch = self.core.volume_record().epoch;
        for (index, (name, stores)) in found {
            if name.born >= epoch {
                // It would hide what is newer, and be in the way of all commits.
                return Err(VolumeError::OldMeta {
                    volume: self.core.id,
                    generation: self.core.generation(),
                    store: self.core.replicas.label(stores[0]),
                    found: name.born.0,
                });
            }
            let placed = ExtentEntry::new(name, stores, false);
            // Over a single object stands an overlay: what takes the place of two has all that both had.
            let below = self
                .core
                .extents
                .placed(index)
                .filter(|below| below.base().is_none());
            *placed.base.borrow_mut() = below;
            let entry = placed.entry().expect("found on a store at least");
            let set = self.core.maps.head.set(index, entry).await;
            set.map_err(|error| self.core.map_error(&error))?;
            self.core.extents.all.borrow_mut().insert(index, placed);
        }
        Ok(())
    }

    /// Leaves nothing for the next opening: neither a map to be found by names, nor unreconciled extents, nor a writer.
    pub(super) async fn leave_clean(self) -> Result<(), VolumeError> {
        // Unacknowledged extents may be on no store, and a reader of the map cannot know.
        MapIo::of(self.core).drop_unacknowledged().await?;
        let committed = MapIo::of(self.core).commit().await;
        let cleared = BitmapIo::of(self.core).clear_dirty(true).await;
        committed.and(cleared)?;
        Fences::of(self.core).stamp_fences(true).await;
        RecordIo::of(self.core)
            .change_record(|record| Ok(record.writer.take().is_some()))
            .await
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
fn unnamed(core: &Rc<Core>, before: &VolumeRecord) -> Vec<StoreNumber> {
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
