//! A connection on its way to another thread.
//!
//! Always true: nothing reads or writes it on the way, and nothing was read of it before.

use std::io;
use std::os::fd::OwnedFd;

use super::super::common::Origin;
use super::stream::Stream;

/// A connection between two threads; closed when dropped.
pub(crate) struct Detached {
    socket: OwnedFd,
    peer: String,
    origin: Origin,
}

impl Detached {
    pub(super) fn new(socket: OwnedFd, peer: String, origin: Origin) -> Detached {
        Detached {
            socket,
            peer,
            origin,
        }
    }

    pub(crate) fn join(self) -> io::Result<Stream> {
        let is_tcp = matches!(self.origin, Origin::Host(_));
        Stream::new(self.socket, is_tcp, self.peer, self.origin)
    }
}
