//! The nodes of maps, and which stores have them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::map::NodeRef;
use crate::map::node::Place;
use crate::names::{Generation, NodeName, StoreNumber};

/// Nodes of the volume's maps.
#[derive(Default)]
pub(super) struct NodeTable(RefCell<BTreeMap<NodeName, (NodeRef, Place)>>);

impl NodeTable {
    pub fn add(&self, nodes: impl IntoIterator<Item = (NodeRef, Place)>) {
        let nodes = nodes.into_iter();
        (self.0.borrow_mut()).extend(nodes.map(|(node, place)| (node.name(), (node, place))));
    }

    pub fn remove<'a>(&self, nodes: impl IntoIterator<Item = &'a NodeRef>) {
        let mut known = self.0.borrow_mut();
        for node in nodes {
            known.remove(&node.name());
        }
    }

    pub fn add_all(&self, other: &NodeTable) {
        self.0.borrow_mut().extend(other.0.borrow().clone());
    }

    pub fn become_those_of(&self, other: NodeTable) {
        *self.0.borrow_mut() = other.0.into_inner();
    }

    pub fn names(&self) -> BTreeSet<NodeName> {
        self.0.borrow().keys().copied().collect()
    }

    pub fn get(&self, name: &NodeName) -> Option<NodeRef> {
        self.0.borrow().get(name).map(|(node, _)| *node)
    }

    /// Those that a store should have.
    pub fn on(&self, store: StoreNumber) -> Vec<NodeRef> {
        let known = self.0.borrow();
        let on = known
            .values()
            .filter(|(node, _)| node.stores.contains(store));
        on.map(|(node, _)| *node).collect()
    }

    /// The least number of copies that any has with these stores out.
    pub fn redundancy_floor(&self, out: &BTreeMap<StoreNumber, Generation>) -> Option<u8> {
        let known = self.0.borrow();
        known.values().map(|(node, _)| in_sync(node, out)).min()
    }

    pub fn any(&self, are: impl Fn(&[StoreNumber]) -> bool) -> bool {
        let known = self.0.borrow();
        known.values().any(|(node, _)| are(node.stores.as_slice()))
    }

    /// An extent below each that one of these stores has.
    pub fn below_on(&self, stores: &BTreeSet<StoreNumber>) -> Vec<u32> {
        let known = self.0.borrow();
        let on = |node: &NodeRef| node.stores.iter().any(|one| stores.contains(&one));
        let all = known.values().filter(|(node, _)| on(node));
        all.map(|(_, place)| place.first(0) as u32).collect()
    }

    /// An extent below each that has fewer than `least`.
    pub fn below_thin(&self, out: &BTreeMap<StoreNumber, Generation>, least: u8) -> Vec<u32> {
        let known = self.0.borrow();
        let thin = known
            .values()
            .filter(|(node, _)| in_sync(node, out) < least);
        thin.map(|(_, place)| place.first(0) as u32).collect()
    }
}

fn in_sync(node: &NodeRef, out: &BTreeMap<StoreNumber, Generation>) -> u8 {
    node.stores
        .iter()
        .filter(|one| !out.contains_key(one))
        .count() as u8
}
