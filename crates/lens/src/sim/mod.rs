//! Simulation: the production policies and engines over a trace, without a single device.
//!
//! ```text
//! trace -> run: the whole stack over device models, in virtual time -> response times, bytes, energy
//! points of a plan -> sweep: many simulations, resumable, in parts -> one table
//! ```

pub mod run;
pub mod sweep;
