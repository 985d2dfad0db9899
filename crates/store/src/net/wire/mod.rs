//! What do the bytes between a client and a store's server mean?
//!
//! ```text
//! client hello -> server hello -> open -> (request -> answer)*, many at once, answers in any order
//!
//! frame: header (40 bytes, checksummed) | meta: the operation's fields | data: the bytes of a read or write
//! ```
//!
//! Numbers, layouts, and the functions that read and write them; `docs/wire.md` has every byte. Everything is
//! little-endian. Pure but for `stream`, which moves bytes: no clock, no store.
//!
//! - `hello` the first bytes each way, `auth` who knows the node key;
//! - `header` frames; `request` and `response` what is in them, `objects` what of it is on objects;
//! - `failure` and `device_failure` every error, word for word; `fields` numbers and texts; `state` how long a queue is;
//! - `stream` received bytes waiting, bytes gathered to be sent, and timeouts.
//!
//! Always true:
//! 1. A parser looks only at the bytes it was given and answers any bytes at all without a panic.
//! 2. A length from the wire is compared with a limit before anything is sized by it.
//! 3. What was encoded decodes to the same, and what decodes has one encoding.

mod auth;
mod device_failure;
mod failure;
mod fields;
mod header;
mod hello;
mod objects;
mod request;
mod reserve;
mod response;
pub(crate) mod state;
pub(crate) mod stream;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use tests::failures;

pub use auth::{Challenge, NodeKey};
pub use failure::{Failure, RefusedKind};
pub use fields::Malformed;
pub use header::{HEADER_LEN, Header, Kind};
pub use hello::{CLIENT_HELLO_LEN, ClientHello, SERVER_HELLO_LEN, ServerHello, Ways};
pub(crate) use objects::{RANGES_MAX, fitting};
pub use request::{Op, Proof, Request};
pub use response::{Opened, Response};
pub use state::{Announced, DATAGRAM_MAX};

/// The version of the protocol this program speaks; no other yet.
pub const VERSION: u16 = 1;
/// The longest meta of a request in bytes.
pub const REQUEST_META_MAX: usize = 16 << 10;
/// The longest meta of an answer in bytes.
pub const RESPONSE_META_MAX: usize = 1 << 20;
/// The longest data of any frame in bytes; a hello may say less.
pub const DATA_MAX: u32 = 64 << 20;
