//! Sockets of the system.
//!
//! ```text
//! read:  recv without waiting -> nothing there? -> ring: a receive in flight | else: wait until readable
//! write: sendmsg without waiting -> short? -> ring: the rest of it | else: wait until writable
//! ```
//!
//! Trying first saves a turn of the executor when the peer is ahead of us.
//!
//! Always true: a receive in flight belongs to the stream, not to the future that waits for it, so a
//! future dropped early loses nothing.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use base::{Buf, Nanos, View};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use super::{Address, Origin, aborted};
use crate::executor::{start, with_current};
use crate::real::{Completion, Message, Operation, Outcome};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Asked of each Unix socket, so that a whole large request fits; the system may grant less.
const UNIX_BUFFER: usize = 2 << 20;
/// Reads or writes done in a row without waiting before other tasks get a turn.
const EAGER_MAX: u32 = 32;
/// Time between tries to connect to a Unix socket whose backlog is full.
const UNIX_RETRY: Nanos = Nanos::millis(1);

/// A TCP peer that says nothing for so long is asked whether it is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// Time between two such questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Questions without an answer after which it is gone.
const KEEPALIVE_PROBES: u32 = 3;
/// Bytes sent that the peer does not acknowledge for so long end the connection: as long as all questions take.
const USER_TIMEOUT_MS: u32 = 60_000;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

async fn ready(socket: &Rc<OwnedFd>, events: PollFlags) -> io::Result<()> {
    let socket = Rc::clone(socket);
    start(Operation::Ready { socket, events })?
        .await
        .0
        .map(drop)
}

fn family(address: &SocketAddr) -> AddressFamily {
    match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

fn local_address(socket: &OwnedFd) -> io::Result<SocketAddr> {
    SocketAddr::try_from(rustix::net::getsockname(socket)?)
        .map_err(|_| io::Error::other("the socket has no internet address"))
}

// --- listeners --------------------------------------------------------------------------------------

pub(super) struct Listener {
    socket: Rc<OwnedFd>,
    /// The file of a Unix socket, by path, device and inode: only our own is removed.
    file: Option<(PathBuf, u64, u64)>,
}

impl Listener {
    pub(super) fn bind(address: &Address, mode: u32) -> io::Result<(Listener, Address)> {
        match address {
            Address::Tcp(at) => {
                let socket = rustix::net::socket_with(family(at), SocketType::STREAM, FLAGS, None)?;
                sockopt::set_socket_reuseaddr(&socket, true)?;
                rustix::net::bind(&socket, at).map_err(|errno| refused(address, errno))?;
                rustix::net::listen(&socket, BACKLOG).map_err(|errno| refused(address, errno))?;
                let address = Address::Tcp(local_address(&socket)?);
                let socket = Rc::new(socket);
                Ok((Listener { socket, file: None }, address))
            }
            Address::Unix(path) => {
                let name = SocketAddrUnix::new(path)?;
                let socket =
                    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
                // The file takes over the socket's own mode, so it is never open wider than asked for.
                rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(mode))?;
                match rustix::net::bind(&socket, &name) {
                    Err(Errno::ADDRINUSE) => {
                        remove_stale(path, &name)?;
                        rustix::net::bind(&socket, &name)
                    }
                    answer => answer,
                }
                .map_err(|errno| refused(address, errno))?;
                // What the umask took away is given back.
                give_socket_mode(path, mode)?;
                let status = std::fs::symlink_metadata(path)?;
                let listener = Listener {
                    socket: Rc::new(socket),
                    file: Some((path.clone(), status.dev(), status.ino())),
                };
                rustix::net::listen(&*listener.socket, BACKLOG)?;
                Ok((listener, address.clone()))
            }
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Stream> {
        loop {
            match rustix::net::acceptfrom_with(&*self.socket, FLAGS) {
                Ok((socket, from)) => {
                    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                    let (peer, origin) = match from {
                        Some(from) => {
                            watch_peer(&socket)?;
                            let host = Origin::of(from.ip());
                            (from.to_string(), host)
                        }
                        None => unix_peer(&socket),
                    };
                    return Stream::new(socket, from.is_some(), peer, origin);
                }
                // The client gave up before we came, or a signal came between.
                Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => {}
                Err(Errno::AGAIN) => ready(&self.socket, PollFlags::IN).await?,
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Who is at the other end of a Unix socket.
fn unix_peer(socket: &OwnedFd) -> (String, Origin) {
    match sockopt::socket_peercred(socket) {
        Ok(who) => {
            let (process, user) = (who.pid.as_raw_nonzero(), who.uid.as_raw());
            let peer = format!("unix client, process {process}, user {user}");
            (peer, Origin::User(user))
        }
        Err(_) => ("unix client".to_owned(), Origin::Unknown),
    }
}

/// Has the system notice that the peer is gone without a word: its host lost power, or the way to it is cut.
fn watch_peer(socket: &OwnedFd) -> io::Result<()> {
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_user_timeout(socket, USER_TIMEOUT_MS)?;
    Ok(())
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((path, device, inode)) = &self.file {
            let ours = std::fs::symlink_metadata(path)
                .is_ok_and(|status| (status.dev(), status.ino()) == (*device, *inode));
            if ours {
                // Gone already, or the folder is closed to us now: nothing more to do.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

fn refused(address: &Address, errno: Errno) -> io::Error {
    let error = io::Error::from(errno);
    io::Error::new(error.kind(), format!("listening at {address}: {error}"))
}

/// Sets the mode of the Unix socket at `path`, which this process has bound.
///
/// A folder's owner can put a link in the socket's place at any moment, so the link is not followed.
///
/// # Errors
/// If what is there is no socket of this user's, or the system refuses.
pub fn give_socket_mode(path: &Path, mode: u32) -> io::Result<()> {
    use rustix::fs::{FileType, OFlags};
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
    let status = rustix::fs::fstat(&file)?;
    let is_socket = FileType::from_raw_mode(status.st_mode) == FileType::Socket;
    if !is_socket || status.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!(
            "{} was replaced while the socket was made; use a folder that only this user can change",
            path.display()
        )));
    }
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::chmod(itself, rustix::fs::Mode::from_raw_mode(mode))?;
    Ok(())
}

/// Removes the file of a Unix socket on which no process listens.
fn remove_stale(path: &Path, name: &SocketAddrUnix) -> io::Result<()> {
    let in_use = |why: &str| {
        io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("listening at unix:{}: {why}", path.display()),
        )
    };
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(in_use(
            "there is a file of this name that is no socket; choose another path or remove it",
        ));
    }
    let probe = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    match rustix::net::connect(&probe, name) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        // It answers, or its backlog is full: alive.
        _ => Err(in_use(
            "another process listens there; stop it or choose another path",
        )),
    }
}

// --- streams ----------------------------------------------------------------------------------------

pub(super) struct Stream {
    // Fixed.
    socket: Rc<OwnedFd>,
    has_ring: bool,
    peer: String,
    origin: Origin,
    // Per stream.
    aborted: Cell<bool>,
    /// Reads and writes since other tasks last had a turn.
    eager: Cell<u32>,
    /// A receive in flight. Stays when the future that started it is dropped.
    receiving: RefCell<Option<Completion>>,
    /// Received for a future that was dropped: the buffer, and what of it is not yet read.
    left_over: RefCell<Option<(Buf, std::ops::Range<usize>)>>,
}

impl Stream {
    fn new(socket: OwnedFd, tcp: bool, peer: String, origin: Origin) -> io::Result<Stream> {
        if tcp {
            sockopt::set_tcp_nodelay(&socket, true)?;
        } else {
            // Larger is faster; what the system grants will do.
            if sockopt::set_socket_send_buffer_size_force(&socket, UNIX_BUFFER).is_err() {
                let _ = sockopt::set_socket_send_buffer_size(&socket, UNIX_BUFFER);
            }
            if sockopt::set_socket_recv_buffer_size_force(&socket, UNIX_BUFFER).is_err() {
                let _ = sockopt::set_socket_recv_buffer_size(&socket, UNIX_BUFFER);
            }
        }
        Ok(Stream {
            socket: Rc::new(socket),
            has_ring: with_current(|core| core.reactor().is_some_and(|reactor| reactor.has_ring())),
            peer,
            origin,
            aborted: Cell::new(false),
            eager: Cell::new(0),
            receiving: RefCell::default(),
            left_over: RefCell::default(),
        })
    }

    pub(super) async fn connect(address: &Address) -> io::Result<Stream> {
        let unreached = |errno: Errno| {
            let error = io::Error::from(errno);
            io::Error::new(error.kind(), format!("connecting to {address}: {error}"))
        };
        let peer = address.to_string();
        match address {
            Address::Tcp(to) => {
                let socket = rustix::net::socket_with(family(to), SocketType::STREAM, FLAGS, None)?;
                let socket = Rc::new(socket);
                match rustix::net::connect(&*socket, to) {
                    Ok(()) => {}
                    Err(Errno::INPROGRESS | Errno::INTR) => {
                        ready(&socket, PollFlags::OUT).await?;
                        sockopt::socket_error(&*socket)?.map_err(unreached)?;
                    }
                    Err(errno) => return Err(unreached(errno)),
                }
                let socket = Rc::into_inner(socket).expect("the wait for it has ended");
                Stream::new(socket, true, peer, Origin::of(to.ip()))
            }
            Address::Unix(path) => {
                let name = SocketAddrUnix::new(path)?;
                let socket =
                    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
                loop {
                    match rustix::net::connect(&socket, &name) {
                        Ok(()) => return Stream::new(socket, false, peer, Origin::Unknown),
                        Err(Errno::AGAIN | Errno::INTR) => crate::sleep(UNIX_RETRY).await,
                        Err(errno) => return Err(unreached(errno)),
                    }
                }
            }
        }
    }

    /// Receives into `buf`: until full or the end if `whole`, else what is there. How much came.
    pub(super) async fn receive(&self, mut buf: Buf, whole: bool) -> io::Result<(usize, Buf)> {
        let mut filled = 0;
        while filled < buf.len() {
            self.check().await?;
            if self.receiving.borrow().is_some() {
                // Started for a future that was dropped.
                self.catch_up().await?;
                continue;
            }
            let count = match self.take_left_over(&mut buf[filled..]) {
                0 => {
                    match rustix::net::recv(&*self.socket, &mut buf[filled..], RecvFlags::DONTWAIT)
                    {
                        Ok((0, _)) => break,
                        Ok((count, _)) => count,
                        Err(Errno::INTR) => continue,
                        Err(Errno::AGAIN) if self.has_ring => {
                            let (result, back) = self.receive_in_flight(buf, filled, whole).await?;
                            buf = back;
                            match result {
                                Ok(0) => break,
                                Ok(count) => count,
                                Err(error) if is_passing(&error) => continue,
                                Err(error) => return Err(self.reason(error)),
                            }
                        }
                        Err(Errno::AGAIN) => {
                            ready(&self.socket, PollFlags::IN).await?;
                            continue;
                        }
                        Err(errno) => return Err(self.reason(errno.into())),
                    }
                }
                count => count,
            };
            filled += count;
            if !whole {
                break;
            }
        }
        if self.aborted.get() {
            return Err(aborted());
        }
        Ok((filled, buf))
    }

    async fn receive_in_flight(
        &self,
        buf: Buf,
        filled: usize,
        whole: bool,
    ) -> io::Result<(io::Result<usize>, Buf)> {
        let socket = Rc::clone(&self.socket);
        let completion = start(Operation::Receive {
            socket,
            buf,
            filled,
            whole,
        })?;
        *self.receiving.borrow_mut() = Some(completion);
        let (result, operation) = self.received().await;
        let Operation::Receive { buf, .. } = operation else {
            unreachable!("an operation comes back as it went");
        };
        Ok((result, buf))
    }

    /// Waits for the receive in flight, which stays in flight if this future is dropped.
    async fn received(&self) -> Outcome {
        poll_fn(|cx| {
            let mut receiving = self.receiving.borrow_mut();
            let completion = receiving.as_mut().expect("only the reader takes it");
            let outcome = Pin::new(completion).poll(cx);
            if outcome.is_ready() {
                *receiving = None;
            }
            outcome
        })
        .await
    }

    async fn catch_up(&self) -> io::Result<()> {
        let (result, operation) = self.received().await;
        let Operation::Receive { buf, filled, .. } = operation else {
            unreachable!("an operation comes back as it went");
        };
        match result {
            Ok(count) => {
                *self.left_over.borrow_mut() = Some((buf, filled..filled + count));
                Ok(())
            }
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(self.reason(error)),
        }
    }

    fn take_left_over(&self, to: &mut [u8]) -> usize {
        let mut left_over = self.left_over.borrow_mut();
        let Some((buf, range)) = &mut *left_over else {
            return 0;
        };
        let count = range.len().min(to.len());
        to[..count].copy_from_slice(&buf[range.start..range.start + count]);
        range.start += count;
        if range.start == range.end {
            *left_over = None;
        }
        count
    }

    pub(super) async fn send(&self, pieces: Vec<View>) -> io::Result<()> {
        let mut message = Message::new(pieces);
        while !message.is_sent() {
            self.check().await?;
            match message.try_send(&self.socket) {
                Ok(count) => message.advance(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(self.reason(error)),
            }
            if message.is_sent() {
                break;
            }
            // The socket is full.
            if !self.has_ring {
                ready(&self.socket, PollFlags::OUT).await?;
                continue;
            }
            let send = Operation::Send {
                socket: Rc::clone(&self.socket),
                message: Box::new(message),
            };
            let (result, operation) = start(send)?.await;
            let Operation::Send { message: back, .. } = operation else {
                unreachable!("an operation comes back as it went");
            };
            message = *back;
            match result {
                Ok(count) => message.advance(count),
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(self.reason(error)),
            }
        }
        Ok(())
    }

    /// Refuses if aborted; gives other tasks a turn now and then.
    async fn check(&self) -> io::Result<()> {
        self.eager.set(self.eager.get() + 1);
        if self.eager.get() > EAGER_MAX {
            self.eager.set(0);
            crate::yield_now().await;
        }
        match self.aborted.get() {
            true => Err(aborted()),
            false => Ok(()),
        }
    }

    fn reason(&self, error: io::Error) -> io::Error {
        match self.aborted.get() {
            true => aborted(),
            false => error,
        }
    }

    pub(super) fn shutdown_write(&self) {
        // Fails only if the connection is gone, which the next read reports.
        let _ = rustix::net::shutdown(&*self.socket, Shutdown::Write);
    }

    pub(super) fn abort(&self) {
        self.aborted.set(true);
        // Wakes whatever waits; fails only if the connection is gone.
        let _ = rustix::net::shutdown(&*self.socket, Shutdown::Both);
    }

    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    pub(super) fn origin(&self) -> Origin {
        self.origin
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.receiving.borrow().is_some() {
            // The receive in flight owns the socket until its cancellation comes through; the peer
            // shall not wait for that.
            let _ = rustix::net::shutdown(&*self.socket, Shutdown::Both);
        }
    }
}

/// The call only has to be made again.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
    )
}

// --- datagrams --------------------------------------------------------------------------------------

pub(super) struct Datagram {
    socket: Rc<OwnedFd>,
}

impl Datagram {
    pub(super) fn bind(address: SocketAddr) -> io::Result<(Datagram, SocketAddr)> {
        let socket = rustix::net::socket_with(family(&address), SocketType::DGRAM, FLAGS, None)?;
        rustix::net::bind(&socket, &address)?;
        let address = local_address(&socket)?;
        let socket = Rc::new(socket);
        Ok((Datagram { socket }, address))
    }

    pub(super) fn join(group: SocketAddr) -> io::Result<Datagram> {
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

    pub(super) async fn send_to(&self, data: &[u8], to: SocketAddr) -> io::Result<()> {
        loop {
            match rustix::net::sendto(&*self.socket, data, SendFlags::DONTWAIT, &to) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => ready(&self.socket, PollFlags::OUT).await?,
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    pub(super) async fn receive(&self, mut buf: Buf) -> io::Result<(usize, SocketAddr, Buf)> {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::{RealConfig, Runtime};

    #[test]
    fn a_client_that_dies_without_a_word_is_noticed_within_a_minute() {
        let runtime = Runtime::real(RealConfig::default()).unwrap();
        runtime.block_on(async {
            let any = "127.0.0.1:0".parse().unwrap();
            let (listener, address) = Listener::bind(&any, 0o600).unwrap();
            let _client = Stream::connect(&address).await.unwrap();
            let accepted = listener.accept().await.unwrap();
            let socket = &*accepted.socket;
            assert!(sockopt::socket_keepalive(socket).unwrap());
            let asked = sockopt::tcp_keepidle(socket).unwrap()
                + sockopt::tcp_keepintvl(socket).unwrap() * sockopt::tcp_keepcnt(socket).unwrap();
            assert_eq!(asked, Duration::from_secs(60));
            assert_eq!(sockopt::tcp_user_timeout(socket).unwrap(), 60_000);
            let local = "127.0.0.1".parse().unwrap();
            assert_eq!(accepted.origin(), Origin::Host(local));
        });
    }

    #[test]
    fn a_unix_socket_is_open_to_those_it_was_made_for() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::real(RealConfig::default()).unwrap();
        let dir = dir.path().to_owned();
        runtime.block_on(async move {
            for mode in [0o600, 0o660, 0o666] {
                let path = dir.join(format!("{mode:o}.sock"));
                let address = Address::Unix(path.clone());
                let (listener, _) = Listener::bind(&address, mode).unwrap();
                let found = std::fs::metadata(&path).unwrap().permissions().mode();
                assert_eq!(found & 0o777, mode);
                let _client = Stream::connect(&address).await.unwrap();
                let accepted = listener.accept().await.unwrap();
                let me = rustix::process::geteuid().as_raw();
                assert_eq!(accepted.origin(), Origin::User(me));
            }
        });
    }
}
