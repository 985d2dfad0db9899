//! Any bytes from a vhost-user client: a message within bounds, or an error.
#![no_main]

#[path = "../../crates/front/tests/vhost/any_message.rs"]
mod any_message;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    any_message::check(data);
});
