//! The hybrid disk from outside, in virtual time: what it promises whoever puts a slow and a fast device
//! together. (Power cuts at every step are in the crate itself, beside the engine they look into.)

mod attaching;
mod caching;
mod common;
mod failing;
mod guarding;
mod modes;
mod pairing;
mod plain;
mod published;
mod reopening;
mod rescuing;
mod tiering;
#[path = "../../../device/tests/twin/mod.rs"]
mod twin;
