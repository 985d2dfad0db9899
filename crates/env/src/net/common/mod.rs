//! What real and simulated sockets share: addresses, where a peer is, how an aborted stream answers.

mod address;
pub mod inherited;
mod origin;

pub use address::{Address, AddressError};
pub use origin::{Origin, host_of};

use std::io;

/// The answer of a stream that was aborted here.
pub(super) fn aborted() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionAborted,
        "the connection was aborted at this end",
    )
}
