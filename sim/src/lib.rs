//! The whole system under faults, in virtual time: do its promises hold whatever fails?
//!
//! - [`linear`] could what clients saw have come from one disk?

pub mod linear;
