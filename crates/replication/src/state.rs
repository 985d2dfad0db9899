//! All that a volume's writer knows when it decides.
//!
//! `vdisk` holds one [`Replication`] for each volume in use; its tasks carry out what the machines of [`spread`](crate::spread) and
//! [`reconcile`](crate::reconcile) ask for, one step after the other, and tell them what became of it. `tests/explore` holds two, beside
//! stores of its own, and looks at every order in which steps can be taken.
//!
//! Always true:
//! 1. Nothing here waits, and nothing here is shared: two values that are equal behave alike.
//! 2. A store that is out by the record is out here too, unless it joins.

use std::collections::{BTreeMap, BTreeSet};

use base::{Instant, Nanos};

use crate::bitmap::DirtyBitmap;
use crate::commit::MapCommit;
use crate::extent::Unreconciled;
use crate::names::{Generation, StoreNumber};
use crate::record::VolumeRecord;
use crate::replica::{ReplicaState, SyncState};
use crate::stamps::{Stamps, UnderWay};
use crate::swap::{RecordState, Revision};

/// Where a volume stands as a whole. Once it is fenced or closed it stays so.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Phase {
    /// In use.
    Open,
    /// Another writer has it; why that is known.
    Fenced(String),
    /// Its use has ended here.
    Closed,
}

/// See the module's head. `C` is a connection to a store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Replication<C> {
    /// Is it in use?
    pub phase: Phase,
    /// The record, as it was last known.
    pub record: RecordState,
    /// The stores of the cluster.
    pub replicas: BTreeMap<StoreNumber, ReplicaState<C>>,
    /// Extents whose copies may differ.
    pub unreconciled: Unreconciled,
    /// Changes under way.
    pub stamps: Stamps,
    /// The dirty bits, and which stores keep them.
    pub bitmap: DirtyBitmap,
    /// What the meta store does not have yet of the map.
    pub changes: MapCommit,
}

impl<C: Clone> Replication<C> {
    /// Of a writer that just opened the volume; what was named in `scan_floor` or before is in its map.
    pub fn new(record: VolumeRecord, revision: Revision, scan_floor: Generation) -> Replication<C> {
        Replication {
            phase: Phase::Open,
            record: RecordState::new(record, revision),
            replicas: BTreeMap::new(),
            unreconciled: Unreconciled::default(),
            stamps: Stamps::default(),
            bitmap: DirtyBitmap::default(),
            changes: MapCommit::new(scan_floor),
        }
    }

    /// A store of the cluster, whose first connection has this token. `false`: it is known already.
    pub fn add_store(&mut self, store: StoreNumber, token: Generation) -> bool {
        let is_new = !self.replicas.contains_key(&store);
        if is_new {
            let sync_state = match self.record.get().out.contains_key(&store) {
                true => SyncState::Out,
                false => SyncState::InSync,
            };
            self.replicas
                .insert(store, ReplicaState::new(sync_state, token));
        }
        is_new
    }

    /// A change begins, with the generation of now as its stamp.
    pub fn begin_change(&mut self) -> UnderWay {
        let now = self.generation();
        self.stamps.begin(now)
    }

    /// Counts openings, changes of the in-sync set and commits.
    pub fn generation(&self) -> Generation {
        self.record.get().generation
    }

    // --- which stores -----------------------------------------------------------------------------------------

    /// Must changes reach this store?
    pub fn is_needed(&self, store: StoreNumber) -> bool {
        self.replicas
            .get(&store)
            .is_some_and(ReplicaState::is_needed)
    }

    /// Does it have every change that was acknowledged?
    pub fn is_in_sync(&self, store: StoreNumber) -> bool {
        self.replicas
            .get(&store)
            .is_some_and(ReplicaState::is_in_sync)
    }

    /// Its connection, if it can be used.
    pub fn connection(&self, store: StoreNumber) -> Option<&C> {
        self.replicas.get(&store)?.connection()
    }

    /// Those of `stores` that changes must reach.
    pub fn needed(&self, stores: &[StoreNumber]) -> Vec<StoreNumber> {
        let needed = stores.iter().copied();
        needed.filter(|store| self.is_needed(*store)).collect()
    }

    /// Those of `stores` that are out, and that changes of this extent keep up to date all the same.
    pub fn followers(&self, stores: &[StoreNumber], index: u32) -> Vec<StoreNumber> {
        let follows = |store: &StoreNumber| {
            let replica = self.replicas.get(store);
            replica.is_some_and(|it| !it.is_needed() && it.synced.contains(&index))
        };
        stores.iter().copied().filter(follows).collect()
    }

    /// Those of `stores` that can be read now.
    pub fn readable(&self, stores: &[StoreNumber]) -> Vec<StoreNumber> {
        let readable = |store: &StoreNumber| {
            let replica = self.replicas.get(store);
            replica.is_some_and(|it| it.is_in_sync() && it.connection().is_some())
        };
        stores.iter().copied().filter(readable).collect()
    }

    /// These stores miss something of an extent: it must be resynced to them again before they join.
    pub fn lack(&mut self, stores: &[StoreNumber], index: u32) {
        for store in stores {
            if let Some(replica) = self.replicas.get_mut(store) {
                replica.lacks(index);
            }
        }
    }

    // --- the in-sync set --------------------------------------------------------------------------------------

    /// Since when a store is out that leaves now, with this record: before every change that it may have missed.
    pub fn out_since(&self, record: &VolumeRecord) -> Generation {
        self.stamps.complete(record.generation)
    }

    /// A store is out from here on. Was it not before?
    pub fn leave(&mut self, store: StoreNumber) -> bool {
        let replica = self.replicas.get_mut(&store);
        replica.is_some_and(ReplicaState::leave)
    }

    /// The meta store has what was asked for. Answers the stores that leave with it.
    pub fn swapped(&mut self, record: VolumeRecord, revision: Revision) -> Vec<StoreNumber> {
        self.record.swapped(record, revision);
        self.leave_by_record()
    }

    /// The meta store holds this record now. Answers the stores that leave with it; `None`: another writer has the volume, and nothing
    /// was taken.
    pub fn learn(&mut self, found: VolumeRecord, changed: Revision) -> Option<Vec<StoreNumber>> {
        let ours = self.record.learn(found, changed);
        ours.then(|| self.leave_by_record())
    }

    /// Stores that are in sync here and out by the record leave: a change whose answer was lost may have removed them. One that joins
    /// does so in spite of the record.
    fn leave_by_record(&mut self) -> Vec<StoreNumber> {
        let out = self.record.get().out.keys().copied();
        let left: Vec<StoreNumber> = out.filter(|store| self.is_in_sync(*store)).collect();
        for store in &left {
            self.leave(*store);
        }
        left
    }

    // --- dirty bits -------------------------------------------------------------------------------------------

    /// Takes the bits away of extents that were not used for `clean_after`, or with `all` of all that no change uses now. Those that the
    /// next opening must find stay: of extents whose copies may differ, that are gone and that the meta store may still have, and of which
    /// no change was answered.
    pub fn take_clean(
        &mut self,
        now: Instant,
        clean_after: Nanos,
        all: bool,
        is_unacknowledged: impl Fn(u32) -> bool,
    ) -> BTreeSet<u32> {
        let (changes, unreconciled) = (&self.changes, &self.unreconciled);
        let keeps = |index| {
            is_unacknowledged(index) || changes.is_forgotten(index) || unreconciled.contains(index)
        };
        self.bitmap.take_clean(now, clean_after, all, keeps)
    }

    // --- tokens -----------------------------------------------------------------------------------------------

    /// The greatest token of stores with indeterminate changes; the record is to come beyond it.
    pub fn most_tainted(&self) -> Option<Generation> {
        let tainted = self.replicas.values().filter(|it| it.is_tainted());
        tainted.map(ReplicaState::token).max()
    }

    /// The record came further: stores with indeterminate changes get new connections, under its generation. Others may have become
    /// so under the newest token, while the record was changed.
    pub fn renew_tokens(&mut self) {
        let now = self.generation();
        let tainted = self.replicas.values_mut().filter(|it| it.is_tainted());
        for replica in tainted.filter(|it| it.token() < now) {
            replica.opened_anew(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{ImageId, VolumeId};

    const ONE: StoreNumber = StoreNumber(1);
    const TWO: StoreNumber = StoreNumber(2);

    fn writer() -> Replication<u8> {
        let mut record = VolumeRecord::new(VolumeId(1), "v".parse().unwrap(), 2, 1, ImageId(1));
        record.generation = Generation(7);
        record.out.insert(TWO, Generation(3));
        let mut writer = Replication::new(record, Revision(1), Generation(0));
        assert!(writer.add_store(ONE, Generation(7)) && writer.add_store(TWO, Generation(7)));
        assert!(!writer.add_store(ONE, Generation(8)));
        writer
    }

    #[test]
    fn a_store_that_is_out_gets_changes_of_what_was_resynced_to_it_alone() {
        let mut writer = writer();
        let both = [ONE, TWO];
        assert_eq!(
            (writer.needed(&both), writer.followers(&both, 5)),
            (vec![ONE], vec![])
        );
        writer.replicas.get_mut(&TWO).unwrap().resynced(5, []);
        assert_eq!(writer.followers(&both, 5), [TWO]);
        writer.lack(&both, 5);
        assert_eq!(writer.followers(&both, 5), []);
    }

    #[test]
    fn only_a_store_in_sync_with_a_connection_is_read() {
        let mut writer = writer();
        assert_eq!(writer.readable(&[ONE, TWO]), []);
        for replica in writer.replicas.values_mut() {
            replica.connect(0);
        }
        assert_eq!(writer.readable(&[ONE, TWO]), [ONE]);
    }

    #[test]
    fn a_tainted_store_gets_a_token_when_the_record_is_beyond_its_last_one() {
        let mut writer = writer();
        assert_eq!(writer.most_tainted(), None);
        writer.replicas.get_mut(&ONE).unwrap().lose(true, true);
        assert_eq!(writer.most_tainted(), Some(Generation(7)));
        writer.renew_tokens();
        assert_eq!(writer.most_tainted(), Some(Generation(7)));
        let mut record = writer.record.get().clone();
        record.generation = Generation(8);
        writer.record.swapped(record, Revision(2));
        writer.renew_tokens();
        assert_eq!(writer.most_tainted(), None);
        assert_eq!(writer.replicas[&ONE].token(), Generation(8));
    }

    #[test]
    fn a_store_that_the_record_removed_leaves_but_not_one_that_joins() {
        let mut writer = writer();
        let mut record = writer.record.get().clone();
        assert_eq!(writer.learn(record.clone(), Revision(1)), Some(vec![]));
        record.out.insert(ONE, Generation(6));
        writer.replicas.get_mut(&TWO).unwrap().begin_join();
        assert_eq!(writer.swapped(record.clone(), Revision(2)), [ONE]);
        assert!(!writer.is_needed(ONE) && writer.is_needed(TWO));
        record.epoch = Generation(9);
        assert_eq!(writer.learn(record, Revision(3)), None);
    }

    #[test]
    fn a_bit_stays_while_the_next_opening_must_find_it() {
        let mut writer = writer();
        writer.bitmap.preset(BTreeSet::from([1, 2, 3, 4]));
        writer.unreconciled.add(1);
        writer.changes.forget(2);
        let clean = writer.take_clean(Instant::default(), Nanos(0), true, |index| index == 3);
        assert_eq!(clean, BTreeSet::from([4]));
    }
}
