//! Streams, listeners and datagrams: the same code on simulated and real runtimes.
//!
//! ```text
//! Listener --accept--> Stream <--connect-- Stream        Datagram --send_to--> Datagram
//!               |                                            |
//!     real: TCP, Unix sockets              real: UDP; simulated: delay, loss, duplication,
//!     simulated: [`sim`]                   reordering, partition
//! ```
//!
//! Always true:
//! 1. A stream's bytes arrive in order, once, or the stream ends with an error.
//! 2. A read future dropped early loses no byte: the next read gets it. A write future dropped early
//!    leaves the stream in mid-message: abort it.
//! 3. One task reads and one writes at a time; they may be two tasks that share an `Rc<Stream>`.

mod common;
mod connection_set;
pub mod message;
mod real;
pub mod sim;

pub use common::{Address, AddressError, Origin, host_of, inherited};
pub use connection_set::{ConnectionSet, Full, Member, accept_each};
pub use real::{give_inherited_mode, give_socket_mode, peer_groups, watch_peer};

use std::io;
use std::net::SocketAddr;

use base::{Buf, View};

use crate::shared::Descriptor;

/// Is this the simulated network?
fn simulated() -> bool {
    crate::executor::try_current(|core| core.is_simulated()) == Some(true)
}

/// Permissions of a Unix socket's file unless others are asked for: its owner and its group may connect.
pub const SOCKET_MODE: u32 = 0o660;

// --- listeners --------------------------------------------------------------------------------------

enum AnyListener {
    Real(real::Listener),
    Simulated(sim::Listener),
}

/// Takes connections at an address. Stops when dropped, and then removes its Unix socket's file, unless the socket
/// outlives the process ([`inherited`]).
pub struct Listener {
    kind: AnyListener,
    address: Address,
}

impl Listener {
    /// Listens at `address`; port 0 takes a free one.
    ///
    /// The file of a Unix socket on which no process listens any more is replaced.
    ///
    /// # Errors
    /// `AddrInUse` if another listens there, or if a file that is no socket has the path of a Unix
    /// socket; else the system's.
    pub fn bind(address: &Address) -> io::Result<Listener> {
        Listener::bind_as(address, SOCKET_MODE)
    }

    /// As [`Listener::bind`]; a Unix socket's file has the permissions `mode` from its first moment.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn bind_as(address: &Address, mode: u32) -> io::Result<Listener> {
        let (kind, address) = if simulated() {
            let (listener, address) = sim::Listener::bind(address)?;
            (AnyListener::Simulated(listener), address)
        } else {
            let (listener, address) = real::Listener::bind(address, mode)?;
            (AnyListener::Real(listener), address)
        };
        Ok(Listener { kind, address })
    }

    /// The next connection.
    pub async fn accept(&self) -> io::Result<Stream> {
        Ok(Stream(match &self.kind {
            AnyListener::Real(listener) => AnyStream::Real(listener.accept().await?),
            AnyListener::Simulated(listener) => AnyStream::Simulated(listener.accept().await),
        }))
    }

    /// Where it listens, with the port the system chose.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

// --- streams ----------------------------------------------------------------------------------------

enum AnyStream {
    Real(real::Stream),
    Simulated(sim::Stream),
}

/// A connection. See the module's head.
///
/// # Example
/// ```
/// use base::{Buf, View};
/// use env::net::{Address, Listener, Stream};
/// // Works the same with `Runtime::real`.
/// let runtime = env::Runtime::simulated(7);
/// let answer = runtime.block_on(async {
///     let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap())?;
///     let address = listener.address().clone();
///     env::spawn(async move {
///         let stream = listener.accept().await?;
///         let request = stream.read_exact(Buf::for_read(4)).await?;
///         stream.write_all(vec![request.freeze(), View::copy_of(b" pong")]).await
///     });
///     let stream = Stream::connect(&address).await?;
///     stream.write_all(vec![View::copy_of(b"ping")]).await?;
///     stream.read_exact(Buf::for_read(9)).await
/// });
/// assert_eq!(&answer?[..], b"ping pong");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Stream(AnyStream);

impl Stream {
    /// Connects to `address`.
    ///
    /// # Errors
    /// The system's; `InvalidInput` for an address where TLS is spoken, which a stream does not.
    pub async fn connect(address: &Address) -> io::Result<Stream> {
        if address.is_tls() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("at {address} TLS is spoken, and this client speaks in the clear"),
            ));
        }
        Ok(Stream(if simulated() {
            AnyStream::Simulated(sim::Stream::connect(address).await?)
        } else {
            AnyStream::Real(real::Stream::connect(address).await?)
        }))
    }

    /// Reads what is there: at least one byte, at most the buffer, waiting if need be. The count is 0
    /// at the end (and for an empty buffer).
    pub async fn read(&self, buf: Buf) -> io::Result<(usize, Buf)> {
        match &self.0 {
            AnyStream::Real(stream) => stream.receive(buf, false).await,
            AnyStream::Simulated(stream) => stream.receive(buf, false).await,
        }
    }

    /// Fills the whole buffer; `UnexpectedEof` if the stream ends first. Unlike [`Stream::read`], a
    /// future dropped early loses what it had read.
    pub async fn read_exact(&self, buf: Buf) -> io::Result<Buf> {
        let (filled, buf) = match &self.0 {
            AnyStream::Real(stream) => stream.receive(buf, true).await?,
            AnyStream::Simulated(stream) => stream.receive(buf, true).await?,
        };
        self.whole(filled, buf)
    }

    fn whole(&self, filled: usize, buf: Buf) -> io::Result<Buf> {
        if filled < buf.len() {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!(
                    "{} closed the connection {filled} bytes into a message of {}",
                    self.peer(),
                    buf.len()
                ),
            ));
        }
        Ok(buf)
    }

    /// As [`Stream::read_exact`], with the descriptors that came with the bytes, of which a Unix socket carries up to 16.
    /// A stream read so is read in no other way.
    ///
    /// # Errors
    /// As [`Stream::read_exact`]; `InvalidData` if more came.
    pub async fn read_exact_with(&self, buf: Buf) -> io::Result<(Buf, Vec<Descriptor>)> {
        let (filled, buf, descriptors) = match &self.0 {
            AnyStream::Real(stream) => stream.receive_with(buf).await?,
            AnyStream::Simulated(stream) => stream.receive_with(buf, true).await?,
        };
        self.whole(filled, buf).map(|buf| (buf, descriptors))
    }

    /// Sends `data`, which is not empty, and with it `descriptors`, 16 at most.
    ///
    /// # Errors
    /// The system's; also if the stream is not a Unix socket.
    pub async fn write_all_with(&self, data: View, descriptors: Vec<Descriptor>) -> io::Result<()> {
        match &self.0 {
            AnyStream::Real(stream) => stream.send_with(data, &descriptors).await,
            AnyStream::Simulated(stream) => stream.send_with(vec![data], descriptors).await,
        }
    }

    /// The stream that a descriptor is which came from a peer; a simulated one only once.
    ///
    /// # Errors
    /// `InvalidInput` if it is no connected Unix socket; else the system's.
    pub fn of_descriptor(descriptor: &Descriptor) -> io::Result<Stream> {
        let stream = match descriptor.as_real() {
            Some(socket) => AnyStream::Real(real::Stream::of_descriptor(socket)?),
            None => AnyStream::Simulated(
                descriptor
                    .take_of_simulation()
                    .ok_or(io::ErrorKind::InvalidInput)?,
            ),
        };
        Ok(Stream(stream))
    }

    /// A simulated stream as it travels to a peer.
    ///
    /// # Panics
    /// If it is the system's.
    pub fn into_descriptor(self) -> Descriptor {
        match self.0 {
            AnyStream::Simulated(stream) => Descriptor::of_simulation(Box::new(stream)),
            AnyStream::Real(_) => panic!("only simulated streams are made descriptors"),
        }
    }

    /// The stream on its way to another thread, before anything is read of it. None, and the connection ends, if it was read
    /// from, if the system has no further descriptor, or in virtual time, which has one thread.
    pub fn detach(self) -> Option<Detached> {
        match self.0 {
            AnyStream::Real(stream) => stream.detach().map(Detached),
            AnyStream::Simulated(_) => None,
        }
    }

    /// Sends all pieces in order; ends when the last is in the system's hands.
    pub async fn write_all(&self, pieces: Vec<View>) -> io::Result<()> {
        match &self.0 {
            AnyStream::Real(stream) => stream.send(pieces).await,
            AnyStream::Simulated(stream) => stream.send(pieces).await,
        }
    }

    /// Ends the stream towards the peer; reading goes on.
    pub fn shutdown_write(&self) {
        match &self.0 {
            AnyStream::Real(stream) => stream.shutdown_write(),
            AnyStream::Simulated(stream) => stream.shutdown_write(),
        }
    }

    /// Ends the connection both ways; reads and writes, pending and later, end with
    /// `ConnectionAborted`.
    pub fn abort(&self) {
        match &self.0 {
            AnyStream::Real(stream) => stream.abort(),
            AnyStream::Simulated(stream) => stream.abort(),
        }
    }

    /// Has the other end hung up, as far as is known here? What it sent before may still be unread.
    ///
    /// # Example
    /// ```
    /// use base::View;
    /// use env::net::{Listener, Stream};
    /// let hung_up = || async {
    ///     let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap())?;
    ///     let client = Stream::connect(listener.address()).await?;
    ///     let taken = listener.accept().await?;
    ///     client.write_all(vec![View::copy_of(b"hello")]).await?;
    ///     let before = taken.is_hung_up();
    ///     drop(client);
    ///     env::sleep(base::Nanos::millis(50)).await;
    ///     Ok::<_, std::io::Error>([before, taken.is_hung_up()])
    /// };
    /// let real = env::Runtime::real(env::RealConfig::default())?;
    /// for runtime in [real, env::Runtime::simulated(1)] {
    ///     assert_eq!(runtime.block_on(hung_up())?, [false, true]);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_hung_up(&self) -> bool {
        match &self.0 {
            AnyStream::Real(stream) => stream.is_hung_up(),
            AnyStream::Simulated(stream) => stream.is_hung_up(),
        }
    }

    /// Who is at the other end, for logs.
    pub fn peer(&self) -> String {
        match &self.0 {
            AnyStream::Real(stream) => stream.peer().to_owned(),
            AnyStream::Simulated(stream) => stream.peer(),
        }
    }

    /// Where the other end is.
    pub fn origin(&self) -> Origin {
        match &self.0 {
            AnyStream::Real(stream) => stream.origin(),
            AnyStream::Simulated(stream) => Origin::of(stream.peer_host()),
        }
    }
}

/// A connection that one thread took and another one will serve. Closed when dropped.
///
/// # Example
/// ```
/// use base::{Buf, View};
/// use env::net::{Listener, Stream};
/// let runtime = || env::Runtime::real(env::RealConfig::default());
/// let greeting = runtime()?.block_on(async move {
///     let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap())?;
///     let client = Stream::connect(listener.address()).await?;
///     let taken = listener.accept().await?.detach().ok_or(std::io::ErrorKind::Other)?;
///     let other = std::thread::Builder::new().spawn(move || {
///         runtime()?.block_on(async { taken.join()?.write_all(vec![View::copy_of(b"hello")]).await })
///     })?;
///     let greeting = client.read_exact(Buf::for_read(5)).await?;
///     other.join().expect("it ends").map(|()| greeting)
/// });
/// assert_eq!(&greeting?[..], b"hello");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Detached(real::Detached);

impl Detached {
    /// The connection, on the thread that serves it.
    ///
    /// # Errors
    /// The system's.
    pub fn join(self) -> io::Result<Stream> {
        self.0.join().map(|stream| Stream(AnyStream::Real(stream)))
    }
}

// --- datagrams --------------------------------------------------------------------------------------

enum AnyDatagram {
    Real(real::Datagram),
    Simulated(sim::Datagram),
}

/// A UDP socket: whole messages of up to 65,507 bytes that may come late, twice, in another order, or
/// not at all.
pub struct Datagram {
    kind: AnyDatagram,
    address: SocketAddr,
}

impl Datagram {
    /// Sends from and receives at `address`; port 0 takes a free one.
    pub fn bind(address: SocketAddr) -> io::Result<Datagram> {
        Ok(if simulated() {
            let (datagram, address) = sim::Datagram::bind(address)?;
            Datagram {
                kind: AnyDatagram::Simulated(datagram),
                address,
            }
        } else {
            let (datagram, address) = real::Datagram::bind(address)?;
            Datagram {
                kind: AnyDatagram::Real(datagram),
                address,
            }
        })
    }

    /// Receives what is sent to the multicast `group` and port; any number of sockets can.
    ///
    /// # Errors
    /// `InvalidInput` if `group` is no multicast address; else the system's.
    pub fn join(group: SocketAddr) -> io::Result<Datagram> {
        if !group.ip().is_multicast() || group.port() == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{group} is no multicast group and port, such as 239.1.2.3:7000"),
            ));
        }
        let kind = if simulated() {
            AnyDatagram::Simulated(sim::Datagram::join(group))
        } else {
            AnyDatagram::Real(real::Datagram::join(group)?)
        };
        Ok(Datagram {
            kind,
            address: group,
        })
    }

    /// Sends `data` to `to`, a host or a multicast group. Success says only that it is on its way.
    pub async fn send_to(&self, data: &[u8], to: SocketAddr) -> io::Result<()> {
        match &self.kind {
            AnyDatagram::Real(datagram) => datagram.send_to(data, to).await,
            AnyDatagram::Simulated(datagram) => datagram.send_to(data, to),
        }
    }

    /// The next message: its length, its sender, and the buffer. What does not fit is cut off.
    pub async fn receive(&self, buf: Buf) -> io::Result<(usize, SocketAddr, Buf)> {
        match &self.kind {
            AnyDatagram::Real(datagram) => datagram.receive(buf).await,
            AnyDatagram::Simulated(datagram) => Ok(datagram.receive(buf).await),
        }
    }

    /// Where it receives, with the port the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
