//! Front ends: how clients outside reach a device.
//!
//! ```text
//! nbd    any NBD client (Linux, QEMU, libnbd) over TCP or a Unix socket, with or without TLS
//! ublk   a block device of this machine's kernel
//! vhost  a disk of a virtual machine, in the memory of its guest (vhost-user-blk)
//! ```
//!
//! A front end owns no data: it turns bytes from strangers into requests a [`device::Device`] can
//! trust, and its answers into bytes.

mod counters;
pub mod nbd;
mod pieces;
pub mod ublk;
pub mod vhost;

pub use counters::Counters;
