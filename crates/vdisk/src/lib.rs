//! Replicated virtual disks: thin volumes of 4 MiB extents, each extent an object with copies in several stores.
//!
//! ```text
//! read, write, flush, discard -> volume -> map -> extents -> copies in the stores that have them
//!                                   |
//!                                 meta: who may write it, which stores are in sync, where its map begins
//! ```
//!
//! - [`broadcast`](replica::broadcast) how long the stores' queues are, sent unasked.
//! - [`cluster`] what one node knows and does as a whole.
//! - [`choice`](replica::choice) which copy is asked, and what when it is late or fails.
//! - [`volume`] a volume in use; [`connect`](replica::connect) one store as it sees it.
//! - [`meta`] small records that all nodes agree on. [`record`] what they agree on about a volume.
//! - [`names`] numbers and the names of objects.
//! - [`map`] which object holds an extent. [`image`] the tree of heads, snapshots and clones; [`collect`](image::collect)
//!   frees what the deleted ones alone had, [`audit`](image::audit) finds what a crash left.
//!
//! [Decision 10](../../../docs/decisions/0010-virtual-disks.md) says how a volume stays one volume whatever fails.
//!
//! Source: COST 3 (virtual disks with copies on ordinary nodes; thin, snapshots and clones by copy-on-write radix trees).

pub mod cluster;
pub mod image;
pub mod map;
pub mod meta;
pub mod replica;
pub mod volume;

pub use replication::{names, record, trash};

pub use names::{EXTENT, ExtentName, Generation, ImageId, NodeName, StoreNumber, Stores, VolumeId};
