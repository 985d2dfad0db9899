//! Any bytes in a guest's rings, descriptors and record of what is in flight.
#![no_main]

#[path = "../../crates/front/tests/vhost/any_ring.rs"]
mod any_ring;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    any_ring::check(data);
});
