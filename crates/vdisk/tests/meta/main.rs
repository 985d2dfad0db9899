//! The meta stores: one suite for all, a reference model, and what can happen to each.

mod etcd;
mod memory;
mod model;
mod redb;
mod suite;
