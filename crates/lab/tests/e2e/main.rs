//! The laboratory from outside: its commands, as `tanada` hands them on.

mod commands;
mod common;
mod predict;
mod sim_tier;
mod sweep;
mod trace;
