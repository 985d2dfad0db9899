//! The daemon: what `tanada serve` builds, runs and answers.
//!
//! ```text
//! serve -> assemble -> thread (data threads) -> common (files, addresses, words)
//!       -> http (admin API) -> thread
//!                          -> health (the verdict)
//!                          -> jobs (long work: what runs, how far it is)
//!                           -> metrics (a page for Prometheus, from types of `api`)
//! ```
//!
//! Always true: nothing here imports from `cli`.

pub mod assemble;
pub mod common;
pub mod descriptors;
mod entrances;
pub mod health;
pub mod http;
pub mod jobs;
mod lifetime;
mod listeners;
pub mod look;
pub mod metrics;
mod plan;
pub mod reload;
pub mod s3;
pub mod serve;
mod service_manager;
pub mod thread;
pub mod welcome;
