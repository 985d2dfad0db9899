//! Block devices: everything that holds blocks is a [`Device`].
//!
//! ```text
//! Device: read, write, flush, discard, write zeroes; owned aligned buffers; completion-based
//!    file or block device | memory | models of HDD, SSD, SCM, DRAM | striped | a part | capped | of another thread | crash | fault | hybrid | ...
//! ```
//!
//! Always true (the durability contract, one for all levels):
//! 1. A write is complete when the level below has it. A flush is complete when every write completed
//!    before it is durable; a write with FUA is a write with its own durability.
//! 2. A failed flush fails the following ones too, until the failure is repaired.
//! 3. Addresses and lengths are multiples of 512 bytes and within the device; all else is refused.

mod api;
pub mod cap;
pub mod crash;
pub mod fault;
pub mod file;
pub mod memory;
pub mod meter;
pub mod model;
pub mod remote;
pub mod shared;
mod sleep;
pub mod striped;

pub use api::{
    Class, Device, DeviceError, DeviceExt, Info, Op, Pending, Power, Spindle, WriteFlags, ready,
};
pub use cap::{AccountCaps, Capped, HeldAtCap, Throttle, ThrottleUser};
pub use crash::Crash;
pub use fault::Fault;
pub use file::{File, FileOptions, OpenError};
pub use memory::Memory;
pub use meter::Meter;
pub use remote::Remote;
pub use striped::{StripeError, Striped};
