//! The kernel's NBD client: a block device of this machine whose connection can be made anew.
//!
//! ```text
//! stream -> greet: agreed -> netlink: connect -> /dev/nbdN -> its requests wait while there is no connection
//!                                     reconfigure <- another stream
//! ```
//!
//! Source: Linux `include/uapi/linux/nbd-netlink.h`.
//!
//! Always true: each command goes over a netlink socket of its own, and waits for its end.

pub mod greet;
mod netlink;

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use greet::Offered;
use netlink::{Answers, Attributes};

const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;

const INDEX: u16 = 1;
const SIZE: u16 = 2;
const BLOCK: u16 = 3;
const TIMEOUT: u16 = 4;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const DEAD_CONNECTION_TIMEOUT: u16 = 8;
/// Within `SOCKETS`.
const SOCKET_ITEM: u16 = 1;
const SOCKET: u16 = 1;

/// How long requests may take, and wait for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// A request without an answer for so long ends its connection.
    pub request: Duration,
    /// Without a connection for so long requests fail.
    pub dead_connection: Duration,
}

/// A block device of the kernel that is connected.
#[derive(Debug, PartialEq, Eq)]
pub struct KernelDisk {
    /// The N of `/dev/nbdN`.
    pub index: u32,
}

impl KernelDisk {
    /// Connects a device, that of this number or any free one, by a stream that was agreed on.
    ///
    /// # Errors
    /// The kernel has no NBD (`NotFound`), the device is in use, or the caller may not.
    pub fn connect(
        index: Option<u32>,
        stream: impl AsFd,
        offered: &Offered,
        timeouts: Timeouts,
    ) -> io::Result<KernelDisk> {
        let mut asked = Attributes::default();
        if let Some(index) = index {
            asked.put_u32(INDEX, index);
        }
        asked.put_u64(SIZE, offered.size);
        asked.put_u64(BLOCK, offered.block.into());
        asked.put_u64(TIMEOUT, timeouts.request.as_secs());
        asked.put_u64(DEAD_CONNECTION_TIMEOUT, timeouts.dead_connection.as_secs());
        asked.put_u64(SERVER_FLAGS, offered.flags.into());
        put_socket(&mut asked, &stream);
        let answers = command(CONNECT, &asked)?;
        let found = answers.attributes.iter().find(|it| it.0 == INDEX);
        let index = found
            .and_then(|it| it.1.first_chunk())
            .map(|it| u32::from_ne_bytes(*it));
        let index =
            index.ok_or_else(|| io::Error::other("the kernel does not say which device it is"))?;
        Ok(KernelDisk { index })
    }

    /// Gives it another stream in place of one that ended.
    ///
    /// # Errors
    /// `StorageFull` as long as the kernel has not seen that the former one ended.
    pub fn reconnect(&self, stream: impl AsFd) -> io::Result<()> {
        let mut asked = Attributes::default();
        asked.put_u32(INDEX, self.index);
        put_socket(&mut asked, &stream);
        command(RECONFIGURE, &asked).map(drop)
    }

    /// A request that waits for longer is looked at: one that was asked over a connection which has ended is asked again.
    /// The kernel's own time is 30 s. One over a connection that goes on waits on.
    ///
    /// # Errors
    /// The system's: `/sys` may not be writable.
    pub fn ask_again_after(&self, wait: Duration) -> io::Result<()> {
        let path = format!("/sys/block/nbd{}/queue/io_timeout", self.index);
        std::fs::write(path, wait.as_millis().to_string())
    }

    /// Ends it: requests fail from now on.
    ///
    /// # Errors
    /// The system's.
    pub fn disconnect(&self) -> io::Result<()> {
        let mut asked = Attributes::default();
        asked.put_u32(INDEX, self.index);
        command(DISCONNECT, &asked).map(drop)
    }
}

fn put_socket(asked: &mut Attributes, stream: &impl AsFd) {
    let mut socket = Attributes::default();
    let number = stream.as_fd().as_raw_fd();
    socket.put_u32(SOCKET, number.unsigned_abs());
    let mut sockets = Attributes::default();
    sockets.put_nested(SOCKET_ITEM, &socket);
    asked.put_nested(SOCKETS, &sockets);
}

/// Sends a command to the driver, and waits for its end.
fn command(command: u8, asked: &Attributes) -> io::Result<Answers> {
    let family = netlink::family(&exchange(&netlink::which_family("nbd"))?);
    let family = family.ok_or(io::ErrorKind::NotFound)?;
    exchange(&netlink::request(family, command, asked))
}

/// Sends a message, and reads answers up to the last one.
fn exchange(message: &[u8]) -> io::Result<Answers> {
    let flags = SocketFlags::CLOEXEC;
    let kind = SocketType::RAW;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, kind, flags, Some(GENERIC))?;
    rustix::net::connect(&socket, &SocketAddrNetlink::new(0, 0))?;
    rustix::net::send(&socket, message, SendFlags::empty())?;
    let mut all = Answers::default();
    let mut datagram = vec![0; 32 << 10];
    loop {
        let (got, _) = rustix::net::recv(&socket, &mut datagram[..], RecvFlags::empty())?;
        let answers = netlink::answers(&datagram[..got]);
        all.attributes.extend(answers.attributes);
        match answers.ended {
            None => {}
            Some(0) => return Ok(all),
            Some(number) => return Err(io::Error::from_raw_os_error(number)),
        }
    }
}
