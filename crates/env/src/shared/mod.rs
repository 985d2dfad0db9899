//! What another process hands over: memory that both see, and notifiers by which one wakes the other.
//!
//! ```text
//! net::Stream -> Descriptor -> map -> SharedMemory     read, written by both sides at any moment
//!                           -> notifier -> Notifier    eventfd or pipe: 8 bytes wake the other side
//! ```
//!
//! In a simulated runtime descriptors are objects of the simulation, made by [`Descriptor::memory`] and
//! [`Descriptor::event`], and travel over simulated streams.
//!
//! Always true:
//! 1. What a peer does to its memory (changes, cuts short) never ends this process: what is gone reads as zeroes, and
//!    [`SharedMemory::is_broken`] says so.
//! 2. Bytes of shared memory are copied before anything is computed from them.

mod descriptor;
mod guard;
mod memory;
mod notifier;

pub use descriptor::Descriptor;
pub use memory::SharedMemory;
pub use notifier::Notifier;
