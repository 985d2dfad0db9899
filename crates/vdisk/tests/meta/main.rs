//! The meta stores: one suite for all, a naive twin, and what can happen to each.

mod suite;
mod twin;
