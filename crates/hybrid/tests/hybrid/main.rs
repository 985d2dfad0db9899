//! The hybrid disk from outside, in virtual time: what a user of a slow and a fast device put together may rely
//! on. (Power cuts at every step are in the crate itself, beside the engine they look into.)

mod attaching;
mod caching;
mod common;
mod failing;
mod guarding;
mod laned;
mod large;
mod modes;
mod pairing;
mod plain;
mod published;
mod reopening;
mod rescuing;
mod restarting;
mod sleeping;
mod tiering;
#[path = "../../../device/tests/reference/mod.rs"]
mod twin;
