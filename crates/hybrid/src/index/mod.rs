//! What is where, in memory: pages in slots, slots in use, extents on the fast device, pages under change.
//!
//! Pure but for the locks' queue: no clock, no device.

pub(crate) mod extents;
pub(crate) mod locks;
pub(crate) mod page_map;
pub(crate) mod slots;
