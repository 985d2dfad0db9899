//! vhost-user-blk: a disk of a virtual machine whose requests this process carries out, in the guest's own memory.
//!
//! ```text
//! QEMU, Cloud Hypervisor --Unix socket--> server -> session: message | memory, notifiers and the in-flight region
//! guest's driver --virtqueues in its memory--> queue: ring -> block -> Device          of the client
//! ```
//!
//! A client that connects again after this process died goes on where it was, if the device shows every write that was
//! answered ([`recover`]). Source: QEMU, `docs/interop/vhost-user.rst`; Virtual I/O Device (VIRTIO) 1.2, 2.7 and 5.2.
//!
//! Always true:
//! 1. What a client or its guest says is checked before it is used, and read from shared memory once.
//! 2. Data of a write are copied out of the guest's memory before anything is computed from them.
//! 3. A guest that another one followed on the disk does not go on, over deaths of this process too.
//! 4. A client that is gone: what was under way ends at the device, its memory is left alone, and only then comes the next.

pub mod block;
mod decode;
mod encode;
mod error;
mod guest;
pub mod inflight;
mod last;
pub mod memory;
pub mod message;
mod queue;
pub mod recover;
pub mod ring;
mod server;
mod session;
mod watches;

pub use decode::decode;
pub use encode::{encode, put_config};
pub use last::{GuestBook, MemoryId};
pub use server::{Opened, Server, Snapshot, Source};
