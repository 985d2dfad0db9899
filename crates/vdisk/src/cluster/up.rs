//! Which nodes are up, and which of the cluster's stores do they serve?
//!
//! ```text
//! alive/<node>   under the node's lease: {"stores": [identities]}, or anything else: it does not say
//! ```
//!
//! Always true: a store whose node keeps no lease is neither up nor down; only trying shows.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::stores::StoreRecord;

/// What a node says of itself while it is up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Alive {
    /// Identities of the stores it serves.
    stores: BTreeSet<String>,
}

/// The nodes that are up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Up {
    /// With the stores each serves, where it says so.
    nodes: BTreeMap<String, Option<BTreeSet<String>>>,
}

impl Alive {
    pub fn new(stores: BTreeSet<String>) -> Alive {
        Alive { stores }
    }

    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }
}

impl Up {
    pub(super) fn add(&mut self, node: &str, value: &[u8]) {
        let alive: Option<Alive> = serde_json::from_slice(value).ok();
        let stores = alive.map(|it| it.stores);
        self.nodes.insert(node.to_owned(), stores);
    }

    /// Their names.
    pub fn nodes(&self) -> BTreeSet<String> {
        self.nodes.keys().cloned().collect()
    }

    /// Does its node serve a store? `None`: the node keeps no lease, so that is not known.
    pub fn serves(&self, store: &StoreRecord) -> Option<bool> {
        store.leased.then(|| {
            let node = self.nodes.get(store.node.as_str());
            node.is_some_and(|stores| stores.as_ref().is_none_or(|it| it.contains(&store.uuid)))
        })
    }

    /// The node whose turn a piece of work is, by a number that changes with each try.
    pub fn turn(&self, number: u64) -> Option<&str> {
        let count = self.nodes.len() as u64;
        let nth = number.checked_rem(count)? as usize;
        self.nodes.keys().nth(nth).map(String::as_str)
    }
}
