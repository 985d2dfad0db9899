//! What the writer of a replicated volume decides, and what all nodes agree on about it.
//!
//! ```text
//! vdisk: requests, answers of stores, clocks -> values of this crate -> what is sent, written to the record, answered
//! ```
//!
//! - [`names`] numbers and the names of objects. [`record`] what all nodes agree on, [`terms`] what operators set of it.
//! - [`state`] all that a writer knows, made of: [`swap`] the record and changes of it, [`replica`] where a store stands, [`extent`]
//!   copies and whether they may differ, [`stamps`] changes under way, [`bitmap`] what may differ after a crash, [`commit`] of the map
//!   what the meta store does not have yet.
//! - [`spread`] one change sent to all copies, [`reconcile`] copies made equal: machines that are told what happened and say what to do.
//! - [`trash`] deleted volumes that may still be restored. [`opening`] what a new writer must know. [`membership`] what the record says of stores that leave or join. [`age`] which stores
//!   were put back. [`lock`] who holds which bytes.
//!
//! Always true: nothing here has a clock, a task, or shared state; values change by what they are told, and can be compared.
//!
//! Source: COST 3 (virtual disks with copies on ordinary nodes); who may write, who is in sync and what happens after faults is
//! ours.

pub mod age;
pub mod bitmap;
pub mod commit;
pub mod extent;
pub mod lock;
pub mod membership;
pub mod names;
pub mod opening;
pub mod reconcile;
pub mod record;
pub mod replica;
pub mod spread;
pub mod stamps;
pub mod state;
pub mod swap;
pub mod terms;
pub mod trash;

pub use names::{EXTENT, ExtentName, Generation, ImageId, NodeName, StoreNumber, Stores, VolumeId};
pub use state::Replication;
