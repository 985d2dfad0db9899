//! Clean nodes in memory: what can be read again, and is kept while there is room.
//!
//! Nodes never change once they are written, so one cache serves all maps of a process. The one that was used longest ago
//! leaves first (second chance: a node in use since the hand passed stays for a round).
//!
//! Always true: what the cache holds takes at most its bytes, and one node at least may stay.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use base::{Bytes, Map};

use super::NodeRef;
use super::node::{NODE, Node};
use crate::names::NodeName;

/// What a node takes in memory: its bytes, and what is kept beside them.
const COST: u64 = NODE as u64 + 160;

/// Clean nodes of any number of maps. See the module's head.
pub struct Cache {
    nodes_max: usize,
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    nodes: Map<NodeName, CachedNode>,
    /// Each name that is in `nodes`, and some that were.
    clock: VecDeque<NodeName>,
    counters: Counters,
}

struct CachedNode {
    node: Rc<Node>,
    crc: u32,
    used: bool,
}

/// What a cache did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Nodes that were there.
    pub hits: u64,
    /// Nodes that were not.
    pub misses: u64,
    /// Nodes that left for others.
    pub evicted: u64,
    /// What is held, in bytes.
    pub held: u64,
}

impl Cache {
    /// Holds at most `size`; one node if that is less.
    pub fn new(size: Bytes) -> Rc<Cache> {
        Rc::new(Cache {
            nodes_max: ((size.0 / COST) as usize).max(1),
            inner: RefCell::default(),
        })
    }

    /// A node, if it is there: with the checksum that the reference has, for a name alone may have been given twice.
    pub fn get(&self, reference: &NodeRef) -> Option<Rc<Node>> {
        let inner = &mut *self.inner.borrow_mut();
        let held = inner.nodes.get_mut(&reference.name());
        match held.filter(|held| held.crc == reference.crc) {
            Some(held) => {
                held.used = true;
                inner.counters.hits += 1;
                Some(Rc::clone(&held.node))
            }
            None => {
                inner.counters.misses += 1;
                None
            }
        }
    }

    /// Keeps a node.
    pub fn put(&self, reference: &NodeRef, node: Rc<Node>) {
        let name = reference.name();
        let inner = &mut *self.inner.borrow_mut();
        let held = CachedNode {
            node,
            crc: reference.crc,
            used: false,
        };
        if inner.nodes.insert(name, held).is_none() {
            inner.clock.push_back(name);
        }
        while inner.nodes.len() > self.nodes_max {
            inner.evict();
        }
    }

    /// Drops a node that is no longer anywhere.
    pub fn forget(&self, name: NodeName) {
        let inner = &mut *self.inner.borrow_mut();
        inner.nodes.remove(&name);
        if inner.clock.len() > 2 * inner.nodes.len() + 64 {
            let nodes = &inner.nodes;
            inner.clock.retain(|name| nodes.contains_key(name));
        }
    }

    /// What it did and holds.
    pub fn counters(&self) -> Counters {
        let inner = self.inner.borrow();
        Counters {
            held: inner.nodes.len() as u64 * COST,
            ..inner.counters
        }
    }
}

impl Inner {
    fn evict(&mut self) {
        while let Some(name) = self.clock.pop_front() {
            let Some(held) = self.nodes.get_mut(&name) else {
                continue;
            };
            if !std::mem::take(&mut held.used) {
                self.nodes.remove(&name);
                self.counters.evicted += 1;
                return;
            }
            self.clock.push_back(name);
        }
    }
}
