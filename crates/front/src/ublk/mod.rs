//! ublk: a disk of the kernel whose requests this process carries out (Linux 6.5 or later).
//!
//! ```text
//! kernel block layer -> ublk driver -> queue: a task a tag -> Device
//!                            ^
//!                       control: make, start, recover, stop, remove
//! ```
//!
//! A disk of a crash-keeping device outlives its server: its requests wait, and the next server goes on where the dead one
//! stopped ([`recover`]). Another one ends with its server.

pub mod control;
mod growth;
pub mod proto;
pub mod queue;
pub mod recover;

pub use control::{Control, Kernel};
pub use growth::{Growth, keep_size};
pub use queue::{Port, Server};
