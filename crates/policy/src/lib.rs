//! Pure decisions: what to keep, evict, move, serve next.
//!
//! Nothing here knows a clock, a device, a thread or chance of its own: time and observations come in
//! as arguments, decisions go out as values. Engines carry them out; the simulator runs this same code.

pub mod cache;
pub mod place;
pub mod share;
pub mod tier;
