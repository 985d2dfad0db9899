//! The daemon: what `tanada serve` builds, runs and answers.
//!
//! ```text
//! serve -> assemble -> thread (data threads) -> common (files, addresses, words)
//!       -> http (admin API) -> thread
//! ```
//!
//! Always true: nothing here imports from `cli`.

pub mod assemble;
pub mod common;
pub mod descriptors;
mod entrances;
pub mod http;
mod listen;
pub mod log;
pub mod look;
pub mod serve;
pub mod thread;
pub mod welcome;
