//! The meta stores: one suite for all, a naive twin, and what can happen to each.

mod etcd;
mod model;
mod redb;
mod suite;
mod twin;
