//! UDP sockets of the system.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use base::Buf;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketType, sockopt};

use super::socket::{FLAGS, family, local_address, ready};

pub(crate) struct Datagram {
    socket: Rc<OwnedFd>,
}

impl Datagram {
    pub(crate) fn bind(address: SocketAddr) -> io::Result<(Datagram, SocketAddr)> {
        let socket = rustix::net::socket_with(family(&address), SocketType::DGRAM, FLAGS, None)?;
        rustix::net::bind(&socket, &address)?;
        let address = local_address(&socket)?;
        let socket = Rc::new(socket);
        Ok((Datagram { socket }, address))
    }

    pub(crate) fn join(group: SocketAddr) -> io::Result<Datagram> {
        let socket = rustix::net::socket_with(family(&group), SocketType::DGRAM, FLAGS, None)?;
        // Several members on one host share the port.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &group)?;
        match group {
            SocketAddr::V4(group) => sockopt::set_ip_add_membership(
                &socket,
                group.ip(),
                &std::net::Ipv4Addr::UNSPECIFIED,
            )?,
            SocketAddr::V6(group) => {
                sockopt::set_ipv6_add_membership(&socket, group.ip(), group.scope_id())?
            }
        }
        let socket = Rc::new(socket);
        Ok(Datagram { socket })
    }

    pub(crate) async fn send_to(&self, data: &[u8], to: SocketAddr) -> io::Result<()> {
        loop {
            match rustix::net::sendto(&*self.socket, data, SendFlags::DONTWAIT, &to) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => ready(&self.socket, PollFlags::OUT).await?,
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    pub(crate) async fn receive(&self, mut buf: Buf) -> io::Result<(usize, SocketAddr, Buf)> {
        loop {
            let received = rustix::net::recvfrom(&*self.socket, &mut buf[..], RecvFlags::DONTWAIT);
            match received {
                Ok((count, _, Some(from))) => {
                    if let Ok(from) = SocketAddr::try_from(from) {
                        return Ok((count, from, buf));
                    }
                }
                Ok((_, _, None)) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => ready(&self.socket, PollFlags::IN).await?,
                // An earlier message of ours found no receiver: that says nothing about those to come.
                Err(Errno::CONNREFUSED) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}
