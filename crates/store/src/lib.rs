//! Objects with names on one device: found again after any crash, each byte checked whenever it is read.
//!
//! ```text
//! write(object, offset, data)                      read(object, offset, len)
//!   -> free pages -> data on the device              -> where are they? -> device -> checksums -> data
//!   -> the object's pages in memory point there
//! flush -> device flushed -> all changes as one ledger batch -> durable -> old pages free again
//! ```
//!
//! What is written goes to free pages, never over old ones; the map of the object moves there in one step. So each
//! change is atomic, whatever its length (see [`Store::write_max`]), and after a crash the store is as it was at
//! some moment after the last flush that was answered: all changes before it, none after it.
//!
//! - `layout` the superblocks; `record`, `segment` what lies in the ledger.
//! - `table` the objects in memory; `space` pages, units and zones; `locks` which task changes what.
//! - [`Store`]: `open` from a device to its `parts`; over them, one job each: `names` objects as wholes; `write`, `truncate` and
//!   `read` their bytes; `commit` what makes it durable; `reserve` promised room; `scrub` and `check` whether all is well;
//!   `reap` and `trim` what comes after a deletion.
//! - [`ops`]: what can be asked of objects, here, through a session, under a fence or over a network.
//! - [`queue`](qos::queue) in front of a device: which requests wait, and which is next.
//! - [`fence`](qos::fence): a replaced writer changes and sees nothing any more; `load_report`: how long the queue is, for those who
//!   choose between copies.
//! - [`server`](net::server) and [`client`](net::client): all of it over a network; [`wire`](net::wire) what they say to each other.
//!
//! # Example
//! ```
//! use base::{Bytes, View};
//! use device::Class;
//! use store::{Change, Condition, Settings, Store, StoreError};
//!
//! env::Runtime::simulated(1).block_on(async {
//!     let device = device::Memory::new("disk", Bytes::mib(16));
//!     let store = Store::format(device.clone(), Settings::default()).await?;
//!     let first = store.write("songs/1", 0, View::copy_of(b"hello"), Change::FUA.creating()).await.unwrap();
//!     let second = store.write("songs/1", 5, View::copy_of(b", sea"), Change::default()).await.unwrap();
//!     assert_eq!(&store.read("songs/1", 0, 100, Class::Foreground).await.unwrap()[..], b"hello, sea");
//!
//!     let late = Change::default().only_if(Condition::Version(first));
//!     let refused = store.write("songs/1", 0, View::copy_of(b"J"), late).await;
//!     assert!(matches!(refused, Err(StoreError::Condition { found, .. }) if found == second));
//!
//!     store.close().await.unwrap();
//!     let store = Store::open(device).await?;
//!     assert_eq!(store.list("songs/", None, 10).objects[0].size, 10);
//!     Ok::<(), store::OpenError>(())
//! })?;
//! # Ok::<(), store::OpenError>(())
//! ```
//!
//! Source: PROBS 3.1 (objects by offset and length on a device of their own; used, reserved and free room); overwrites,
//! checksums, versions and crash safety are ours.
//!
//! Always true:
//! 1. After a crash at any instant the store is in the state after some change, and no change whose flush was
//!    answered is missing.
//! 2. A page is used again only after the commit that forgets it is durable and its last reader is done.
//! 3. No read gives bytes whose checksum differs from that of what was written.
//! 4. `free + reserved + used = total`, and no page is in two objects: looked at in every open.

pub mod net;
mod object;
pub mod ops;
pub mod qos;
#[cfg(test)]
mod tests;

pub use crate::object::check::{Report, check};
pub use crate::object::damage::Damage;
pub use crate::object::error::{OpenError, StoreError};
pub use crate::object::finding::{BadBlock, Finding};
pub use crate::object::layout::Settings;
pub use crate::object::open::occupant;
pub use crate::object::reserve::Reservation;
pub use crate::object::scrub::ScrubStep;
pub use crate::object::store::Store;
pub use crate::object::trim::KeepsBlocks;
pub use crate::object::types::{
    ATTRIBUTES_MAX, AllocatedRange, Change, Condition, Counters, Listing, NAME_MAX, ReservationId,
    SpaceFigures, Stat, Version,
};
pub use crate::ops::{ObjectCalls, ObjectOps};
pub use crate::qos::load_report::{ClientTag, place_of};
