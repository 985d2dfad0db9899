//! Which nodes are up, and which of the cluster's stores do they serve?
//!
//! ```text
//! alive/<node>   under the node's lease: {"stores": [identities], "levels": [min, max]}
//!                without stores, or anything else: it does not say which; without levels: its program knows of none
//! ```
//!
//! Always true: a store whose node keeps no lease is neither up nor down; only trying shows.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::level::LevelRange;
use super::stores::StoreRecord;

/// What a node says of itself while it is up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Alive {
    /// Identities of the stores it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stores: Option<BTreeSet<String>>,
    /// What its program can do. Programs that know of no levels read past it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    levels: Option<LevelRange>,
}

/// The nodes that are up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Up {
    /// With what each says.
    nodes: BTreeMap<String, Alive>,
}

impl Alive {
    pub fn new(stores: Option<BTreeSet<String>>, levels: LevelRange) -> Alive {
        Alive {
            stores,
            levels: Some(levels),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }
}

impl Up {
    pub(super) fn add(&mut self, node: &str, value: &[u8]) {
        let alive = serde_json::from_slice(value);
        let says_nothing = |_| Alive {
            stores: None,
            levels: None,
        };
        let alive = alive.unwrap_or_else(says_nothing);
        self.nodes.insert(node.to_owned(), alive);
    }

    /// What their programs can do.
    pub fn levels(&self) -> impl Iterator<Item = (&str, LevelRange)> {
        let of = |alive: &Alive| alive.levels.unwrap_or(LevelRange::before_levels());
        self.nodes
            .iter()
            .map(move |(node, it)| (node.as_str(), of(it)))
    }

    /// Their names.
    pub fn nodes(&self) -> BTreeSet<String> {
        self.nodes.keys().cloned().collect()
    }

    /// Does its node serve a store? `None`: the node keeps no lease, so that is not known.
    pub fn serves(&self, store: &StoreRecord) -> Option<bool> {
        store.leased.then(|| {
            let node = self.nodes.get(store.node.as_str());
            let serves = |it: &Alive| it.stores.as_ref().is_none_or(|it| it.contains(&store.uuid));
            node.is_some_and(serves)
        })
    }

    /// The node whose turn a piece of work is, by a number that changes with each try.
    pub fn turn(&self, number: u64) -> Option<&str> {
        let count = self.nodes.len() as u64;
        let nth = number.checked_rem(count)? as usize;
        self.nodes.keys().nth(nth).map(String::as_str)
    }
}
