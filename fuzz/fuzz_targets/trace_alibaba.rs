//! Any bytes as a trace in the format `alibaba`: nothing panics, and what is read are requests in order of time.
#![no_main]

use trace::Format;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/lab/tests/traces/check.rs"]
mod check;

fuzz_target!(|input: &[u8]| check::check(Format::Alibaba, input));
