//! The surroundings of all other crates: clock, random numbers, files, network and tasks, simulated or real.
//!
//! ```text
//!            tasks, timers, channels            one thread, FIFO, no locks on the data path
//!          _____________|______________
//!         |                            |
//!   virtual driver               real driver
//!   nanosecond clock,            io_uring: files, sockets, timers, wake-ups
//!   one seed                     from other threads (a thread pool where refused)
//! ```
//!
//! The same async code runs on both. Nothing outside this crate reads a clock, sleeps, spawns or
//! draws a random number (`clippy.toml` sees to it).
//!
//! Always true:
//! 1. Tasks that become ready in some order run in that order.
//! 2. Two runs of the same program on the virtual driver with one seed make the same steps at the same
//!    nanoseconds; [`Runtime::trace_hash`] shows it.
//! 3. A task runs on the thread that spawned it.

mod caught;
mod chance;
mod clocks;
pub mod commands;
mod critical;
mod executor;
pub mod fs;
mod handover;
mod mailbox;
mod mapping;
pub mod net;
mod real;
pub mod scsi;
pub mod shared;
mod spinning;
pub mod sync;
mod time;

pub use caught::{Panicked, catch_panics, caught};
pub use chance::{Rng, rng, secret};
pub use clocks::{Clocks, clocks};
pub use critical::{Change, Critical, CriticalSection, critical_section};
pub use executor::{
    CancelOnDrop, Remote, Runtime, Task, cancel_scope, events, is_simulated, now, spawn, true_now,
    yield_now,
};
pub use handover::{Consumer, Producer, Refused, handover};
pub use mailbox::{Mailbox, Poster, mailbox};
pub use mapping::Mapping;
pub use real::{Choice, Polling, RealConfig, SpinCounters, SpinPolicy, Wait, Watched};
pub use spinning::{ClientRequest, client_request, is_spinning, spin_counters, watch};
pub use time::{Elapsed, Sleep, sleep, sleep_until, timeout, wall_clock};
