//! The map of an image: which object holds an extent, and on which stores.
//!
//! ```text
//! Root -> interior node -> ... -> leaf -> Entry { top, base }        510 entries of 32 bytes in each node of 16 KiB
//!
//! get, next      from memory, or from nodes read on demand into a cache of bounded size
//! set, remove    change copies of the nodes in memory: dirty
//! commit(g)      dirty nodes -> new objects, children before parents -> a new Root; the old one stays whole
//! ```
//!
//! Images share nodes: a snapshot has the root of its head, and what the head changes later it writes anew. So two maps
//! differ only where their references do.
//!
//! - [`node`] the bytes of a node. [`cache`] and [`reader`] clean nodes in memory. [`tree`] the map in use. [`commit`] how
//!   it becomes durable. [`memory`] nodes in memory, for tests.
//!
//! Always true:
//! 1. A node that was written is never written again: a reader with an old root reads the old map.
//! 2. Nothing that a node's bytes say is used before all of it was checked, against the reference that led there too.
//! 3. What is clean can be read again, so memory is bounded by the cache and by what changed since the last commit.
//!
//! Source: COST 2 and 4 (thin images by copy-on-write radix trees, extended from Parallax).
//!
//! Choice: the paper has blocks of 4 KiB in its maps; extents of 4 MiB keep a map a thousandth as long, and overlays give
//! back copy-on-write of 64 KiB.

pub mod cache;
pub mod commit;
pub mod memory;
pub mod node;
pub mod objects;
pub mod reader;
mod state;
pub mod tree;
mod view;

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

pub use commit::{Commit, Committing};
pub use tree::Map;

use base::View;
use serde::{Deserialize, Serialize};

use crate::names::{ExtentName, Generation, NodeName, StoreNumber, Stores, VolumeId};

/// An object that holds an extent, or what was written of it since its base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layer {
    /// The volume that allocated it.
    pub owner: VolumeId,
    /// The generation it was allocated in.
    pub born: Generation,
    /// Which stores have it.
    pub stores: Stores,
}

impl Layer {
    /// The object's name as that of extent `index`.
    pub fn name(&self, index: u32) -> ExtentName {
        ExtentName {
            owner: self.owner,
            born: self.born,
            index,
        }
    }

    /// Is it the same object, wherever its copies are?
    pub fn is(&self, other: &Layer) -> bool {
        (self.owner, self.born) == (other.owner, other.born)
    }
}

/// What holds an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Read first. Without a base it is full: its holes read as zeroes. Above a base it is an overlay, and its holes are the
    /// base's.
    pub top: Layer,
    /// What the overlay does not cover; always full.
    pub base: Option<Layer>,
}

impl Entry {
    /// One object.
    pub fn full(top: Layer) -> Entry {
        Entry { top, base: None }
    }

    /// An overlay on a full object.
    pub fn overlay(top: Layer, base: Layer) -> Entry {
        Entry {
            top,
            base: Some(base),
        }
    }

    /// Top first.
    pub fn layers(&self) -> impl Iterator<Item = Layer> + use<> {
        [Some(self.top), self.base].into_iter().flatten()
    }

    /// Does it need this object?
    pub fn has(&self, layer: &Layer) -> bool {
        self.layers().any(|own| own.is(layer))
    }
}

/// Where a node is, and how to know it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeRef {
    /// The volume that wrote it.
    pub owner: VolumeId,
    /// The generation of the commit that did.
    pub born: Generation,
    /// Which of that commit's nodes.
    pub number: u32,
    /// Which stores have it.
    pub stores: Stores,
    /// CRC-32C of its bytes.
    pub crc: u32,
}

impl NodeRef {
    /// The object's name.
    pub fn name(&self) -> NodeName {
        NodeName {
            owner: self.owner,
            born: self.born,
            number: self.number,
        }
    }
}

/// Where a map begins: all that the meta store holds of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Root {
    /// Of the commit that made it: all that was allocated in it or before is in the map or nowhere.
    pub generation: Generation,
    /// Levels above the leaves.
    pub level: u8,
    /// The first node; `None`: nothing is allocated.
    pub node: Option<NodeRef>,
}

impl Root {
    /// A map with nothing in it.
    pub fn empty(generation: Generation) -> Root {
        Root {
            generation,
            level: 0,
            node: None,
        }
    }
}

/// What is in use no more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Freed {
    /// Nodes.
    pub nodes: Vec<NodeRef>,
    /// Extents, with the stores that have them no longer: another copy may be in use.
    pub extents: Vec<(u32, Layer)>,
}

impl Freed {
    /// Is there nothing?
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.extents.is_empty()
    }

    /// Of it what was born later than `since`: with the `since` of a head, what no other image has.
    #[must_use]
    pub fn later_than(mut self, since: Generation) -> Freed {
        self.nodes.retain(|node| node.born > since);
        self.extents.retain(|(_, layer)| layer.born > since);
        self
    }

    /// This and `other`.
    pub fn join(&mut self, other: Freed) {
        self.nodes.extend(other.nodes);
        self.extents.extend(other.extents);
    }
}

/// What went wrong below, in its own words.
pub type Trouble = Box<dyn std::error::Error>;

/// An answer of the stores, some time.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Trouble>> + 'a>>;

/// A node to be written.
#[derive(Debug, Clone)]
pub struct NewNode {
    /// Under this name.
    pub name: NodeName,
    /// All its bytes: [`node::NODE`] of them.
    pub bytes: View,
}

/// Where nodes are: objects with copies. Held as `Rc<dyn Nodes>`; lives on one thread.
pub trait Nodes {
    /// The bytes of a node, from any copy whose checksum is `node.crc` ([`NodeRef::is_of`]); `None` if no store has it.
    ///
    /// # Errors
    /// If no copy can be read now, or none is whole.
    fn read<'a>(&'a self, node: &'a NodeRef) -> Pending<'a, Option<View>>;

    /// Writes new objects, each with copies on stores of its choice, and answers which, in the order of `nodes`; all are
    /// durable then. A name may have been tried before: what is there is replaced.
    ///
    /// # Errors
    /// If any is not durable. Some may then be there unrecorded, until an audit finds them: take back what can be.
    fn write(&self, nodes: Vec<NewNode>) -> Pending<'_, Vec<Stores>>;
}

impl NodeRef {
    /// Does it lead to the same bytes, wherever they are?
    pub fn is(&self, other: &NodeRef) -> bool {
        (self.name(), self.crc) == (other.name(), other.crc)
    }

    /// Are these its bytes?
    pub fn is_of(&self, bytes: &[u8]) -> bool {
        base::crc::crc32c(bytes) == self.crc
    }
}

/// Why a map could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// No store gave a node.
    #[error(
        "cannot read the map's node {node}: {source}; what lies below it is out of reach until its stores answer"
    )]
    Read {
        /// Which.
        node: NodeName,
        /// What stood in the way.
        source: Trouble,
    },
    /// The stores answer, and none has it.
    #[error(
        "the map's node {node} is on none of its stores {stores:?}; an audit says what is lost with it"
    )]
    Absent {
        /// Which.
        node: NodeName,
        /// Where it should be.
        stores: Stores,
    },
    /// A node is not what the reference to it says, or not what this program writes.
    #[error("the map's node {node} is damaged: {source}; an audit says what is lost with it")]
    Damaged {
        /// Which.
        node: NodeName,
        /// What is wrong.
        source: node::NodeError,
    },
    /// A commit wrote less than it had to; the old root is whole, and the changes are kept for the next commit.
    #[error(
        "cannot write {count} nodes of the map in generation {generation}: {source}; nothing is lost, commit again"
    )]
    Write {
        /// How many it was about.
        count: usize,
        /// Of the commit.
        generation: Generation,
        /// What stood in the way.
        source: Trouble,
    },
    /// An extent that no map has.
    #[error("extent {index} is beyond the map's {extents}; make the volume larger first")]
    Beyond {
        /// Which was asked for.
        index: u32,
        /// How many there are.
        extents: u32,
    },
    /// An object of the volume's own that is entered too late.
    #[error(
        "cannot enter extent {index}, allocated in generation {born}: the map is at {last} already; allocate it anew in a later one"
    )]
    Late {
        /// Of which extent.
        index: u32,
        /// When it was allocated.
        born: Generation,
        /// Of the last commit, or the one under way.
        last: Generation,
    },
    /// A commit in a generation that cannot be.
    #[error(
        "cannot commit generation {asked} of a map that is at {last}; generations rise with each commit"
    )]
    Generation {
        /// What was asked.
        asked: Generation,
        /// The last one.
        last: Generation,
    },
    /// One commit at a time.
    #[error("a commit of this map is under way; wait for it, its changes go first")]
    Busy,
}

impl fmt::Display for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {:?}", self.name(), self.stores)
    }
}

/// The stores of an entry, each once.
pub fn stores_of(entry: &Entry) -> Vec<StoreNumber> {
    let mut stores: Vec<StoreNumber> = entry
        .layers()
        .flat_map(|layer| layer.stores.as_slice().to_vec())
        .collect();
    stores.sort_unstable();
    stores.dedup();
    stores
}
