//! What the writer of a replicated volume decides, and what all nodes agree on about it.
//!
//! ```text
//! vdisk: requests, answers of stores, clocks -> values of this crate -> what is sent, written to the record, answered
//! ```
//!
//! - [`names`] numbers and the names of objects. [`record`] what all nodes agree on, [`terms`] what operators set of it.
//! - [`lock`] who holds which bytes. [`stamps`] which changes are under way. [`age`] which stores were put back.
//! - [`bitmap`] which extents' copies may differ after a crash. [`membership`] what the record says of stores that leave or join.
//! - [`commit`] of the map what the meta store does not have yet.
//!
//! Always true: nothing here has a clock, a task, or shared state; values change by what they are told, and can be compared.
//!
//! Source: COST 3 (virtual disks with copies on ordinary nodes); who may write, who is in sync and what happens after faults is
//! ours.

pub mod age;
pub mod bitmap;
pub mod commit;
pub mod lock;
pub mod membership;
pub mod names;
pub mod record;
pub mod stamps;
pub mod terms;

pub use names::{EXTENT, ExtentName, Generation, ImageId, NodeName, StoreNumber, Stores, VolumeId};
