//! One module for each command: its options, what it does, what it prints.

pub mod advise;
pub mod bench;
pub mod experiment;
mod interrupt;
pub mod predict;
mod predict_estimate;
pub mod predict_import;
mod predict_pages;
pub mod sim;
pub mod trace;
