//! Experiments: the production crates in virtual time, measured as the papers measured theirs.
//!
//! ```text
//! device models + engines on a virtual clock -> experiment -> rows -> report (one HTML file, or JSON)
//! ```
//!
//! Always true:
//! 1. The same options give the same rows, bit for bit.
//! 2. Every figure says its unit, whether the device was modelled, and what the paper says beside it.

pub mod advise;
pub mod dmssd;
pub mod experiment;
pub mod generate;
pub mod predict;
pub mod record;
pub mod report;
pub mod sim;
pub mod tap;
pub mod trace;
