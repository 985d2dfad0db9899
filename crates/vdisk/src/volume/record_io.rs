//! The volume's record, and that of its head, in the meta store: how do they change, and how does a change become known?
//!
//! ```text
//! change of a copy -> compare-and-swap with the next generation -> here too | refused: what is there is learned, and again
//! ```
//!
//! Always true:
//! 1. The record is changed by compare-and-swap only, one change at a time, and each has a new generation. A writer that
//!    finds a record with another epoch is fenced.
//! 2. A store that is out by the record is out here too, unless it joins.

use std::collections::BTreeSet;
use std::rc::Rc;

use base::Nanos;

use replication::{age, membership};

use super::error::VolumeError;
use super::replica::Replica;
use super::state::Core;
use crate::image::tree::{Change, ImageRecord, ImageState, Versioned, image_key};
use crate::meta::{Compare, Entry, Op, Outcome};
use crate::names::StoreNumber;
use crate::record::{VolumeRecord, gone_key};

/// Reads and changes the volume's record, and that of its head.
#[derive(Clone, Copy)]
pub(super) struct RecordIo<'a> {
    core: &'a Rc<Core>,
}

impl<'a> RecordIo<'a> {
    pub fn of(core: &'a Rc<Core>) -> RecordIo<'a> {
        RecordIo { core }
    }

    /// The record the meta store holds now; another epoch means that another writer has the volume.
    pub(super) fn check_epoch(self, entry: Option<&Entry>) -> Result<VolumeRecord, VolumeError> {
        let Some(entry) = entry else {
            return Err(self.core.fence("its record is gone"));
        };
        let record = VolumeRecord::decode(self.core.id, &entry.value)?;
        let epoch = self.core.volume_record().epoch;
        if record.epoch != epoch {
            let by = record.writer.as_ref().map_or("nobody", |one| &one.node);
            return Err(self.core.fence(format!("by {by}, epoch {}", record.epoch)));
        }
        Ok(record)
    }

    /// Takes what the meta store holds now.
    pub(super) fn learn(self, entry: Option<&Entry>) -> Result<(), VolumeError> {
        let record = self.check_epoch(entry)?;
        let changed = entry.expect("checked").changed;
        let left = self.core.replication.borrow_mut().learn(record, changed);
        self.have_left(left.expect("its epoch was checked"));
        Ok(())
    }

    /// A store is out from here on.
    pub(super) fn leave_set(self, replica: &Replica) {
        let number = replica.info.number;
        if self.core.replication.borrow_mut().leave(number) {
            return self.have_left(vec![number]);
        }
        replica.drop_connection();
        self.core.life.changed.notify_all();
    }

    /// Stores are out that were not before.
    fn have_left(self, stores: Vec<StoreNumber>) {
        for replica in stores.iter().filter_map(|one| self.core.replicas.get(*one)) {
            tracing::warn!(volume = %self.core.id, store = %replica.info.name, "out of sync");
            self.core.count(|counters| counters.isr_shrinks += 1);
            replica.drop_connection();
            self.core.life.changed.notify_all();
        }
    }

    /// Changes the record: `change` makes the new one of the old one and says whether there is anything to change. It may be
    /// asked several times.
    pub(super) async fn change_record(
        self,
        change: impl Fn(&mut VolumeRecord) -> Result<bool, VolumeError>,
    ) -> Result<(), VolumeError> {
        self.change_record_without(&[], change).await
    }

    /// The same, if none of these stores has left the cluster.
    async fn change_record_without(
        self,
        gone: &[StoreNumber],
        change: impl Fn(&mut VolumeRecord) -> Result<bool, VolumeError>,
    ) -> Result<(), VolumeError> {
        let core = self.core;
        let _one = core.record.changing.acquire(1).await;
        let deadline = env::now() + core.settings.deadline;
        let mut last = None;
        loop {
            core.usable()?;
            let mut next = core.volume_record().clone();
            let next = change(&mut next)?.then_some(next);
            let proposed = core.replication.borrow().record.propose(next);
            let Some(mut next) = proposed else {
                return Ok(());
            };
            if let Some(error) = last.take_if(|_| env::now() >= deadline) {
                return Err(core.meta_error(error));
            }
            self.note_ages(&mut next);
            let put = Op::Put {
                key: core.record.key.clone(),
                value: next.encode(),
                lease: None,
            };
            let revision = core.replication.borrow().record.revision();
            let mut compares = vec![Compare::Unchanged(core.record.key.clone(), revision)];
            compares.extend(gone.iter().map(|one| Compare::Absent(gone_key(*one))));
            match core.meta.txn(compares, vec![put]).await {
                Ok(Outcome::Done(revision)) => {
                    let left = core.replication.borrow_mut().swapped(next, revision);
                    self.have_left(left);
                    core.life.changed.notify_all();
                    return Ok(());
                }
                Ok(Outcome::Refused(found)) => {
                    self.learn(found.first().and_then(Option::as_ref))?;
                    self.refuse_gone(gone, found.get(1..).unwrap_or_default())?;
                }
                Err(error) => {
                    core.replication.borrow_mut().record.lost();
                    last = Some(error);
                    if let Ok(found) = core.meta.get(&core.record.key).await {
                        self.learn(found.as_ref())?;
                    }
                    env::sleep(Nanos::millis(100)).await;
                }
            }
        }
    }

    /// Refuses a change for stores that have left the cluster: `found` is what the meta store says of each.
    fn refuse_gone(
        self,
        stores: &[StoreNumber],
        found: &[Option<Entry>],
    ) -> Result<(), VolumeError> {
        let mut left = None;
        for (store, _) in stores
            .iter()
            .zip(found)
            .filter(|(_, found)| found.is_some())
        {
            self.core.replicas.leave(*store);
            left = Some(*store);
        }
        match left {
            None => Ok(()),
            Some(store) => Err(VolumeError::NoRoom {
                volume: self.core.id,
                why: format!(
                    "store {} has left the cluster",
                    self.core.replicas.label(store)
                ),
            }),
        }
    }

    /// What the record says of stores is true of them.
    pub(super) fn learn_ages(self, record: &VolumeRecord) {
        for (number, generation) in &record.seen {
            if let Some(replica) = self.core.replicas.get(*number) {
                replica.age.borrow_mut().reached(*generation);
            }
        }
    }

    /// How far fences are goes into the record with each of its changes. Does it say less now?
    pub(super) fn note_ages(self, record: &mut VolumeRecord) -> bool {
        let ages = self.core.replicas.values();
        age::note_ages(
            record,
            ages.map(|it| (it.info.number, it.age.borrow().least())),
        )
    }

    /// Asks which of these have left since the volume was opened.
    pub(super) async fn learn_who_left(
        self,
        stores: &BTreeSet<StoreNumber>,
    ) -> Result<(), VolumeError> {
        for store in stores
            .iter()
            .filter(|it| !self.core.replicas.has_left(**it))
        {
            let found = self.core.meta.get(&gone_key(*store)).await;
            if found
                .map_err(|error| self.core.meta_error(error))?
                .is_some()
            {
                self.core.replicas.leave(*store);
            }
        }
        Ok(())
    }

    /// Notes in the record that stores may have something of the volume, before they have: the next opening must seal them. A
    /// store that has left the cluster meanwhile is not listed any more.
    pub(super) async fn list_stores(self, numbers: &[StoreNumber]) -> Result<(), VolumeError> {
        if membership::lists(&self.core.volume_record(), numbers) {
            return Ok(());
        }
        self.change_record_without(numbers, |record| Ok(membership::list(record, numbers)))
            .await
    }

    /// Lowers the record if something has fewer copies in sync than it says. A store that leaves the in-sync set from here
    /// on, or just did, is counted without a copy that was just taken from its extent.
    pub(super) async fn lower_floor(self) -> Result<(), VolumeError> {
        self.change_record(|record| {
            Ok(membership::lower_floor(
                record,
                self.core.redundancy_floor(&record.out, record.copies),
            ))
        })
        .await
    }

    /// Raises the record when extents have more copies in sync than it says.
    pub(super) async fn raise_floor(self) -> Result<(), VolumeError> {
        self.change_record(|record| {
            let floor = self.core.redundancy_floor(&record.out, record.copies);
            Ok(self.core.maps.older.is_known() && membership::raise_floor(record, floor))
        })
        .await
    }

    /// New connections, under a greater token, to in-sync stores with indeterminate changes: none of those is under way then.
    pub(super) async fn renew(self) -> Result<(), VolumeError> {
        let most = || self.core.replication.borrow().most_tainted();
        // Others may get there, under the newest token, while the record is changed.
        while let Some(most) = most() {
            self.change_record(|record| Ok(record.generation <= most))
                .await?;
            self.core.replication.borrow_mut().renew_tokens();
            self.core.life.changed.notify_all();
        }
        Ok(())
    }

    /// Changes the head's record: `make` makes the change, or nothing if the head is as it should be. It is asked again for
    /// what the meta store has then, until it makes nothing.
    pub(super) async fn change_head(
        self,
        make: impl Fn(
            &Versioned<VolumeRecord>,
            &Versioned<ImageRecord>,
        ) -> Result<Option<(ImageRecord, Change)>, VolumeError>,
    ) -> Result<(), VolumeError> {
        let _one = self.core.record.changing.acquire(1).await;
        let deadline = env::now() + self.core.settings.deadline;
        let mut last = None;
        loop {
            self.core.usable()?;
            let head = self.core.record.head.borrow().clone();
            let volume = self.core.versioned_record();
            let Some((new_head, change)) = make(&volume, &head)? else {
                return Ok(());
            };
            if let Some(error) = last.take_if(|_| env::now() >= deadline) {
                return Err(self.core.meta_error(error));
            }
            match self.core.meta.txn(change.compares, change.ops).await {
                Ok(Outcome::Done(revision)) => {
                    *self.core.record.head.borrow_mut() = Versioned {
                        record: new_head,
                        changed: Some(revision),
                    };
                }
                Ok(Outcome::Refused(found)) => {
                    self.learn(found.first().and_then(Option::as_ref))?;
                    self.learn_head(found.get(1).and_then(Option::as_ref))?;
                }
                Err(error) => {
                    // Done, or not, or to come: what is compared lets it come about once.
                    last = Some(error);
                    if let Ok(found) = self.core.meta.get(&self.core.record.key).await {
                        self.learn(found.as_ref())?;
                        let key = image_key(head.record.id);
                        if let Ok(found) = self.core.meta.get(&key).await {
                            self.learn_head(found.as_ref())?;
                        }
                    }
                    env::sleep(Nanos::millis(100)).await;
                }
            }
        }
    }

    /// Takes what the meta store holds of the head now: a deletion beside it may have changed it.
    pub(super) fn learn_head(self, entry: Option<&Entry>) -> Result<(), VolumeError> {
        let Some(entry) = entry else {
            return Err(self.core.fence("its head is gone"));
        };
        let id = self.core.record.head.borrow().record.id;
        let record = ImageRecord::decode(id, &entry.value)?;
        if record.state != ImageState::Head {
            return Err(self.core.fence("its head is another image now"));
        }
        *self.core.record.head.borrow_mut() = Versioned {
            record,
            changed: Some(entry.changed),
        };
        Ok(())
    }
}
