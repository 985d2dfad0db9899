//! The stores of a cluster as reservations see them: their calendars, and which of them are there.
//!
//! ```text
//! Cluster -> facts: stores, volumes, exports of this node, nodes that are up
//!         -> calendar of a store or export: here (a manager), or somewhere else (a client with the node key)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use policy::share::cap::Caps;
use vdisk::StoreNumber;
use vdisk::meta::MetaError;

use crate::calendar::{Calendar, PartError};
use crate::record::{Place, QUEUE, Target};

/// An answer, some time.
pub type Pending<'a, T, E = PartError> = Pin<Box<dyn Future<Output = Result<T, E>> + 'a>>;

/// A store of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFact {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: u128,
    /// Where clients reach it.
    pub address: String,
    /// Does its node serve it now, as far as is known?
    pub is_up: bool,
    /// Does it take new data?
    pub is_active: bool,
}

/// A virtual disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeFact {
    /// Its name.
    pub name: String,
    /// Copies of each extent.
    pub copies: u8,
    /// Stores that have something of it; empty: none yet.
    pub stores: BTreeSet<StoreNumber>,
    /// The holder whose reservations are attached to its requests, if an operator named one.
    pub holder: Option<String>,
    /// What its clients get at most.
    pub caps: Caps,
}

/// The cluster at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Its stores.
    pub stores: BTreeMap<StoreNumber, StoreFact>,
    /// Its volumes, by their numbers.
    pub volumes: BTreeMap<u32, VolumeFact>,
    /// The nodes that are up.
    pub nodes: BTreeSet<String>,
    /// This node.
    pub node: String,
    /// Its exports of hybrids with a queue, by name, with the identity of each calendar.
    pub exports: BTreeMap<String, u128>,
}

impl Facts {
    /// The stores at which a volume needs parts: those that have something of it, or where there are fewer than it has
    /// copies, all that take new data, as any of them may be chosen.
    pub fn stores_of(&self, volume: &VolumeFact) -> BTreeSet<StoreNumber> {
        let known = |it: &&StoreNumber| self.stores.contains_key(it);
        let stores: BTreeSet<_> = volume.stores.iter().filter(known).copied().collect();
        if stores.len() >= usize::from(volume.copies) {
            return stores;
        }
        let active = self.stores.iter().filter(|(_, it)| it.is_active);
        stores
            .into_iter()
            .chain(active.map(|(number, _)| *number))
            .collect()
    }

    /// The identity of the store, or of the queue, that has a part of `target`.
    pub(crate) fn identity(&self, target: &Target, store: StoreNumber) -> Option<u128> {
        match target.place(store) {
            Place::Store(store) => self.stores.get(&store).map(|it| it.uuid),
            Place::Export { name, .. } => self.exports.get(name).copied(),
        }
    }

    /// Is it served now, as far as is known?
    pub(crate) fn is_up(&self, target: &Target, store: StoreNumber) -> bool {
        match target.place(store) {
            Place::Store(store) => self.stores.get(&store).is_some_and(|it| it.is_up),
            // Whether it is there its own node alone knows.
            Place::Export { node, name } => {
                let is_there = *node != self.node || self.exports.contains_key(name);
                is_there && self.nodes.contains(node)
            }
        }
    }

    /// A store's name, or its number where it has left.
    pub fn label(&self, store: StoreNumber) -> String {
        if store == QUEUE {
            return "the export's queue".to_owned();
        }
        let known = self.stores.get(&store);
        known.map_or_else(|| format!("number {}", store.0), |it| it.name.clone())
    }
}

/// The cluster. Held as `Rc<dyn ClusterStores>`.
pub trait ClusterStores {
    /// How it is now.
    fn facts(&self) -> Pending<'_, Facts, MetaError>;

    /// The calendar at a place: a store's, or that of an export of this node.
    ///
    /// # Errors
    /// [`PartError::Unreachable`].
    fn calendar<'a>(&'a self, place: Place<'a>) -> Pending<'a, Rc<dyn Calendar>>;
}
