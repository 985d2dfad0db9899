//! How the protocol's frames come and go on a stream, in the clear or in TLS: [`env::net::message`], with buffers of this
//! length.

use std::rc::Rc;

use base::Bytes;
use env::net::message;
use tls::Wire;

pub(crate) use env::net::message::{Pieces, TransferTimeout};

/// Length of the receive buffer: of a megabyte that follows a header at most 6 % come along and are copied.
const RECEIVE_BUFFER: Bytes = Bytes::kib(64);
/// A rest longer than this is received straight into its own buffer.
const DIRECT_FROM: Bytes = Bytes::kib(16);

/// Bytes received and not used yet.
pub(crate) type Inbox = message::Inbox<Wire>;

/// What arrives on `wire`, from a peer that may take so long.
pub(crate) fn receiving(wire: &Rc<Wire>, timeout: &Rc<TransferTimeout>) -> Inbox {
    Inbox::new(
        Rc::clone(wire),
        RECEIVE_BUFFER,
        DIRECT_FROM,
        Rc::clone(timeout),
    )
}
