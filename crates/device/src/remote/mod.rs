//! Devices of another thread: a *gate* has what their *owner* has, through a pair of rings.
//!
//! ```text
//! gate's thread                                          owner's thread
//! Remote: call -> permit -> request -> ring ---------->  serve: a task for each -> the device
//!         answer <- slot <- task of the gate <-- ring <------------- answer, the buffer with it
//! ```
//!
//! One [`link`] joins two threads, whatever the number of devices: the gate opens them by name. A thread with a queue of a front
//! (a connection, a queue of a kernel's disk) does the protocol's work and copies, and leaves the device to its owner.
//!
//! Always true:
//! 1. Each call is answered once: by the device, or with `DeviceError::Gone` when either thread's end is gone.
//! 2. A call whose caller went away goes on at the owner, and keeps its place in the ring until it ends.
//! 3. No more than `depth` calls of a link are under way; the others wait their turn at the gate, first come, first served.
//! 4. A device is given up by the owner after every call that was made of it before.

mod call;
mod gate;
mod owner;

pub use gate::{Gate, GateEnd, Remote};
pub use owner::{Opened, OwnerEnd};

use call::{Answer, Request};

/// Joins a gate's thread to an owner's: each end goes to its thread. At most `depth` calls are under way at once.
///
/// # Example
/// ```
/// use base::{Bytes, Sector};
/// use device::{DeviceExt, Memory, remote};
///
/// let (gate, owner) = remote::link(32);
/// let thread = std::thread::Builder::new().spawn(move || {
///     let runtime = env::Runtime::real(env::RealConfig::default()).unwrap();
///     runtime.block_on(async move {
///         let disk = Memory::new("disk", Bytes::mib(1));
///         owner.serve(move |_name| device::ready(Ok(remote::Opened::of(disk.clone())))).await;
///     });
/// })?;
/// let runtime = env::Runtime::real(env::RealConfig::default())?;
/// runtime.block_on(async move {
///     let remote = gate.join().open("disk").await?;
///     assert_eq!(remote.read_at(Sector(8), Bytes(512)).await?[..], [0; 512]);
///     Ok::<(), device::DeviceError>(())
/// }).unwrap();
/// thread.join().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn link(depth: usize) -> (GateEnd, OwnerEnd) {
    let depth = depth.max(1);
    // One place more, for a device that is given up.
    let (requests_in, requests_out) = env::handover::<Request>(depth + 1);
    let (answers_in, answers_out) = env::handover::<Answer>(depth + 1);
    (
        GateEnd::new(requests_in, answers_out, depth),
        OwnerEnd::new(requests_out, answers_in),
    )
}
