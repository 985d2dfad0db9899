//! One connection of the system: TCP or a Unix socket.
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
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;

use base::{Buf, Nanos, View};
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketType,
    sockopt,
};

use super::super::common::{Address, Origin, aborted};
use super::detached::Detached;
use super::peer::watch_peer;
use super::socket::{FLAGS, family, ready};
use crate::executor::{start, with_current};
use crate::real::{Completion, Message, Operation, Outcome};
use crate::shared::Descriptor;

/// Asked of each Unix socket, so that a whole large request fits; the system may grant less.
const UNIX_BUFFER: usize = 2 << 20;
/// Reads or writes done in a row without waiting before other tasks get a turn.
const EAGER_MAX: u32 = 32;
/// Descriptors that one read takes, in all of its parts.
const DESCRIPTORS_MAX: usize = 8;
/// Time between tries to connect to a Unix socket whose backlog is full.
const UNIX_RETRY: Nanos = Nanos::millis(1);

pub(crate) struct Stream {
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
    pub(super) fn new(
        socket: OwnedFd,
        tcp: bool,
        peer: String,
        origin: Origin,
    ) -> io::Result<Stream> {
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

    pub(crate) async fn connect(address: &Address) -> io::Result<Stream> {
        let unreached = |errno: Errno| {
            let error = io::Error::from(errno);
            io::Error::new(error.kind(), format!("connecting to {address}: {error}"))
        };
        let peer = address.to_string();
        match address {
            Address::Tcp(to) | Address::Tls(to) => {
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
                watch_peer(socket.as_fd())?;
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

    /// The connected Unix socket that came from a peer.
    pub(crate) fn of_descriptor(socket: &OwnedFd) -> io::Result<Stream> {
        let is_unix = sockopt::socket_domain(socket)? == AddressFamily::UNIX;
        if !is_unix || sockopt::socket_type(socket)? != SocketType::STREAM {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let peer = "a socket of the peer's".to_owned();
        Stream::new(socket.try_clone()?, false, peer, Origin::Unknown)
    }

    /// Itself on its way to another thread; none if it has been read from, or there is no further descriptor.
    pub(crate) fn detach(mut self) -> Option<Detached> {
        let is_fresh = self.receiving.get_mut().is_none() && self.left_over.get_mut().is_none();
        if !is_fresh || Rc::strong_count(&self.socket) > 1 {
            return None;
        }
        // `Stream` ends its receive when dropped: there is none, and the socket lives on as a copy of the descriptor.
        let socket = self.socket.try_clone().ok()?;
        let peer = std::mem::take(&mut self.peer);
        Some(Detached::new(socket, peer, self.origin))
    }

    /// Receives into `buf`: until full or the end if `whole`, else what is there. How much came.
    pub(crate) async fn receive(&self, mut buf: Buf, whole: bool) -> io::Result<(usize, Buf)> {
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

    /// Fills `buf`, up to the end; how much came, and the descriptors that came with it. Only for a stream that nothing
    /// reads otherwise.
    pub(crate) async fn receive_with(
        &self,
        mut buf: Buf,
    ) -> io::Result<(usize, Buf, Vec<Descriptor>)> {
        let (mut filled, mut with) = (0, Vec::new());
        while filled < buf.len() {
            self.check().await?;
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut came = RecvAncillaryBuffer::new(&mut space);
            let mut pieces = [io::IoSliceMut::new(&mut buf[filled..])];
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let received = rustix::net::recvmsg(&*self.socket, &mut pieces, &mut came, flags);
            let before = with.len();
            for message in came.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    with.extend(descriptors.map(Descriptor::from));
                }
            }
            let is_cut = matches!(&received, Ok(it) if it.flags.contains(ReturnFlags::CTRUNC));
            if is_cut && with.len() - before < DESCRIPTORS_MAX {
                // There was room for them, and this process may open no more.
                return Err(Errno::MFILE.into());
            }
            if is_cut || with.len() > DESCRIPTORS_MAX {
                let why = format!("more than {DESCRIPTORS_MAX} descriptors came with one message");
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            match received {
                Ok(received) if received.bytes == 0 => break,
                Ok(received) => filled += received.bytes,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => ready(&self.socket, PollFlags::IN).await?,
                Err(errno) => return Err(self.reason(errno.into())),
            }
        }
        Ok((filled, buf, with))
    }

    /// Sends all of `data`; the descriptors go with its first byte.
    pub(crate) async fn send_with(&self, data: View, with: &[Descriptor]) -> io::Result<()> {
        let descriptors: Vec<_> = with.iter().filter_map(Descriptor::as_real).collect();
        let descriptors: Vec<_> = descriptors.iter().map(|it| it.as_fd()).collect();
        let sent = loop {
            self.check().await?;
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut goes = SendAncillaryBuffer::new(&mut space);
            if !descriptors.is_empty() && !goes.push(SendAncillaryMessage::ScmRights(&descriptors))
            {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let pieces = [io::IoSlice::new(&data)];
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::sendmsg(&*self.socket, &pieces, &mut goes, flags) {
                Ok(sent) => break sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => ready(&self.socket, PollFlags::OUT).await?,
                Err(errno) => return Err(self.reason(errno.into())),
            }
        };
        self.send(vec![data.slice(sent, data.len() - sent)]).await
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

    pub(crate) async fn send(&self, pieces: Vec<View>) -> io::Result<()> {
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

    pub(crate) fn shutdown_write(&self) {
        // Fails only if the connection is gone, which the next read reports.
        let _ = rustix::net::shutdown(&*self.socket, Shutdown::Write);
    }

    pub(crate) fn abort(&self) {
        self.aborted.set(true);
        // Wakes whatever waits; fails only if the connection is gone.
        let _ = rustix::net::shutdown(&*self.socket, Shutdown::Both);
    }

    pub(crate) fn is_hung_up(&self) -> bool {
        let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut asked = [PollFd::new(&*self.socket, PollFlags::RDHUP)];
        let now = Timespec::default();
        // It does not wait; what fails says nothing.
        poll(&mut asked, Some(&now)).is_ok() && asked[0].revents().intersects(ends)
    }

    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    pub(crate) fn origin(&self) -> Origin {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::super::listener::Listener;
    use super::*;
    use crate::{RealConfig, Runtime};

    #[test]
    fn a_peer_that_dies_without_a_word_is_noticed_within_a_minute() {
        let runtime = Runtime::real(RealConfig::default()).unwrap();
        runtime.block_on(async {
            let any = "127.0.0.1:0".parse().unwrap();
            let (listener, address) = Listener::bind(&any, 0o600).unwrap();
            let client = Stream::connect(&address).await.unwrap();
            let accepted = listener.accept().await.unwrap();
            for socket in [&*accepted.socket, &*client.socket] {
                assert!(sockopt::socket_keepalive(socket).unwrap());
                let asked = sockopt::tcp_keepidle(socket).unwrap()
                    + sockopt::tcp_keepintvl(socket).unwrap()
                        * sockopt::tcp_keepcnt(socket).unwrap();
                assert_eq!(asked, Duration::from_secs(60));
                assert_eq!(sockopt::tcp_user_timeout(socket).unwrap(), 60_000);
            }
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
