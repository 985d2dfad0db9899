//! How does a connection end, and what has happened to it once?

use std::cell::Cell;
use std::io;

/// What happens to a connection once.
#[derive(Default)]
pub(super) struct Flags {
    pub(super) encrypted: Cell<bool>,
    pub(super) draining: Cell<bool>,
    pub(super) cut: Cell<bool>,
    /// Sending failed: replies go nowhere from now on.
    pub(super) deaf: Cell<bool>,
}

/// How the transmission came to its end.
pub(super) enum End {
    /// DISC, or the client hung up between requests.
    Left,
    /// The server drains and nothing is in flight.
    Drained,
    /// The stream failed or ended in the middle of a request.
    Lost(io::Error),
    /// What came is not NBD.
    Violation(&'static str),
}
