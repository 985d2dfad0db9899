//! What listeners, streams and datagrams need of a socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketFlags};

use crate::executor::start;
use crate::real::Operation;

pub(super) const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

pub(super) async fn ready(socket: &Rc<OwnedFd>, events: PollFlags) -> io::Result<()> {
    let socket = Rc::clone(socket);
    start(Operation::Ready { socket, events })?
        .await
        .0
        .map(drop)
}

pub(super) fn family(address: &SocketAddr) -> AddressFamily {
    match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

pub(super) fn local_address(socket: &OwnedFd) -> io::Result<SocketAddr> {
    SocketAddr::try_from(rustix::net::getsockname(socket)?)
        .map_err(|_| io::Error::other("the socket has no internet address"))
}
