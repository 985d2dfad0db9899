//! The whole system under faults, in virtual time: do its promises hold whatever fails?
//!
//! - [`cluster`] store nodes, volume hosts, a meta store and a network, and what goes wrong.
//! - [`linear`] could what clients saw have come from one disk?

pub mod cluster;
pub mod linear;
