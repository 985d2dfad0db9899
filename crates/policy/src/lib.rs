//! Decisions without I/O and without a clock: what to cache, evict, move and serve next, what a cap lets pass, which copy to read,
//! and how long to look for work before a thread sleeps.
//!
//! Nothing here knows a clock, a device, a thread or chance of its own: time and observations come in
//! as arguments, decisions go out as values. Engines carry them out; the simulator runs this same code.

pub mod cache;
pub mod place;
pub mod poll;
mod rate;
pub mod share;
pub mod tier;
