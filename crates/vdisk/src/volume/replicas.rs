//! The stores of a volume, by number, and what is known of them all: which are to be empty, which have left.
//!
//! A store stays in it: requests hold a [`Replica`] while they wait, and stores that join the cluster meanwhile are added
//! behind.
//!
//! Always true: a store that is not in it counts as one that has left.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use elsa::FrozenVec;
use policy::place::{DiskId, Target};

use super::replica::{Replica, Shared, SyncState};
use super::settings::StoreInfo;
use crate::names::{Generation, StoreNumber, VolumeId};

/// See the module's head.
pub(super) struct Replicas {
    all: FrozenVec<Box<Replica>>,
    /// Where in `all`.
    at: RefCell<BTreeMap<StoreNumber, usize>>,
    /// What the volume's fence is called there.
    pub fence_name: String,
    /// The longest change of one object in bytes.
    pub write_max: Cell<u64>,
    /// Those that are to be empty, and those that the record may list no more.
    pub drained: RefCell<BTreeSet<StoreNumber>>,
    pub cordoned: RefCell<BTreeSet<StoreNumber>>,
    /// Those that have left the cluster, as the meta store said when they were to be listed.
    pub gone: RefCell<BTreeSet<StoreNumber>>,
    /// Those on which copies of older images are being freed just now: what comes there may be freed with them.
    pub freeing: RefCell<BTreeSet<StoreNumber>>,
    /// Stores that were chosen for something that no table has yet, and for how much.
    pub pending_placements: RefCell<BTreeMap<StoreNumber, u64>>,
}

/// No change of one object is longer.
const WRITE_MAX: u64 = 1 << 20;

impl Replicas {
    /// None yet, and these are to be empty.
    pub fn new(volume: VolumeId, drained: BTreeSet<StoreNumber>) -> Replicas {
        Replicas {
            all: FrozenVec::default(),
            at: RefCell::default(),
            fence_name: format!("g/{volume}"),
            write_max: Cell::new(WRITE_MAX),
            drained: RefCell::new(drained),
            cordoned: RefCell::default(),
            gone: RefCell::default(),
            freeing: RefCell::default(),
            pending_placements: RefCell::default(),
        }
    }

    /// Adds a store whose first connection has this token; nothing if it is there.
    pub fn add(&self, info: StoreInfo, replication: &Shared, token: Generation) -> bool {
        let number = info.number;
        if !replication.borrow_mut().add_store(number, token) {
            return false;
        }
        self.at.borrow_mut().insert(number, self.all.len());
        self.all.push(Box::new(Replica::new(info, replication)));
        true
    }

    pub fn get(&self, number: StoreNumber) -> Option<&Replica> {
        let at = self.at.borrow().get(&number).copied()?;
        self.all.get(at)
    }

    pub fn contains_key(&self, number: &StoreNumber) -> bool {
        self.at.borrow().contains_key(number)
    }

    /// In the order in which they came.
    pub fn values(&self) -> impl Iterator<Item = &Replica> {
        self.all.iter()
    }

    pub fn keys(&self) -> impl Iterator<Item = &StoreNumber> {
        self.values().map(|replica| &replica.info.number)
    }

    /// What a store is called.
    pub fn label(&self, number: StoreNumber) -> String {
        match self.get(number) {
            Some(replica) => replica.info.name.clone(),
            None => format!("number {number} (not in the cluster any more)"),
        }
    }

    pub fn labels<'a>(&self, numbers: impl IntoIterator<Item = &'a StoreNumber>) -> Vec<String> {
        let numbers = numbers.into_iter();
        numbers.map(|number| self.label(*number)).collect()
    }

    pub fn of_disk(&self, disk: DiskId) -> Option<&Replica> {
        self.get(StoreNumber(disk.0 as u16))
    }

    /// Those of `numbers` that changes must reach.
    pub fn needed(&self, numbers: &[StoreNumber]) -> Vec<&Replica> {
        let replicas = numbers.iter().filter_map(|number| self.get(*number));
        replicas.filter(|replica| replica.is_needed()).collect()
    }

    /// Where new copies may go.
    pub fn targets(&self, but: &[StoreNumber]) -> Vec<Target> {
        let taken: Vec<_> = (but.iter())
            .filter_map(|number| self.get(*number).map(|replica| replica.info.domain))
            .collect();
        let fit = self.values().filter(|replica| {
            replica.sync_state() == SyncState::InSync
                && replica.connection().is_some()
                && !taken.contains(&replica.info.domain)
                && !self.is_drained(replica.info.number)
                && !self.freeing.borrow().contains(&replica.info.number)
        });
        fit.map(Replica::target).collect()
    }

    /// A store has left the cluster, and this volume had not heard of it.
    pub fn leave(&self, store: StoreNumber) {
        self.gone.borrow_mut().insert(store);
    }

    /// Is it being drained, or is it no store of the cluster any more?
    pub fn is_drained(&self, number: StoreNumber) -> bool {
        let either = [&self.drained, &self.cordoned, &self.gone];
        let is_in = either.iter().any(|it| it.borrow().contains(&number));
        is_in || self.get(number).is_none()
    }

    /// Is it no store of the cluster any more, as far as is known here?
    pub fn has_left(&self, number: StoreNumber) -> bool {
        self.get(number).is_none() || self.gone.borrow().contains(&number)
    }

    /// Does nothing go there, not even where no other store is left?
    pub fn is_cordoned(&self, number: StoreNumber) -> bool {
        let either = [&self.cordoned, &self.gone];
        either.iter().any(|it| it.borrow().contains(&number))
    }

    /// Something is on its way to these stores, until the answer is dropped.
    pub fn pending_placement(&self, stores: &[StoreNumber]) -> PendingPlacement<'_> {
        let mut pending_placements = self.pending_placements.borrow_mut();
        for store in stores {
            *pending_placements.entry(*store).or_default() += 1;
        }
        PendingPlacement(self, stores.to_vec())
    }
}

/// Stores were chosen for something that no table has yet: they stay in the record.
pub(super) struct PendingPlacement<'a>(&'a Replicas, Vec<StoreNumber>);

impl Drop for PendingPlacement<'_> {
    fn drop(&mut self) {
        let mut pending_placements = self.0.pending_placements.borrow_mut();
        for store in &self.1 {
            let count = pending_placements
                .get_mut(store)
                .expect("counted when it was chosen");
            *count -= 1;
            if *count == 0 {
                pending_placements.remove(store);
            }
        }
    }
}

/// Copies on some stores are being freed, until this is dropped.
pub(super) struct Freeing<'a>(pub &'a Replicas);

impl Drop for Freeing<'_> {
    fn drop(&mut self) {
        self.0.freeing.borrow_mut().clear();
    }
}
