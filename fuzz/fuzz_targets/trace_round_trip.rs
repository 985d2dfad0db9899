//! Any requests written in the normal form, as text and as Parquet: the same come back.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/lab/tests/traces/check.rs"]
mod check;
#[path = "../../crates/lab/tests/traces/round_trip.rs"]
mod round_trip;

fuzz_target!(|input: &[u8]| round_trip::round_trip(input));
