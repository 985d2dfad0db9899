//! What do the bytes on an NBD connection mean?
//!
//! ```text
//! greeting -> client flags -> (option -> option replies)* -> (request -> reply)*
//! ```
//!
//! Numbers, layouts, and the functions that read and write them. Everything is big-endian. Pure: no
//! stream, no clock, no device.
//!
//! Source: the NBD protocol as kept with the reference implementation (`doc/proto.md`), fixed newstyle.
//!
//! Always true:
//! 1. A parser looks only at the bytes it was given and answers any bytes at all without a panic.
//! 2. A length from the wire is compared with a limit before anything is sized by it.

mod errno;
mod judge;
mod layout;
mod numbers;

pub use errno::Errno;
pub use judge::{Command, Refusal, Terms, judge};
pub use layout::{Fields, Request, chunk_head, greeting, option_head, put_option};
pub use layout::{put_option_reply, put_string, shortened, simple_reply, text};
pub use numbers::*;
