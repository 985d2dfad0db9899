//! Which clients may come in to a store over the network, how much may they hold, and how do they all leave?
//!
//! ```text
//! Listener -> accept -> Connection: TLS, hello, credentials (a deadline for all) -> requests -> leave
//!                          ^ watched: a peer that stalls in a message, leaves answers unread or goes silent is cut
//! ```
//!
//! Always true:
//! 1. What requests hold stays below the server's limit plus a small allowance for each connection, and what those of
//!    one session hold below the memory its manager gives it, whatever clients send or refuse to read. One request alone
//!    may hold more than its session's memory, never more than `data_max`.
//! 2. A connection that holds something gets more only up to an equal part of the limit among those let in; peers that stall are cut sooner
//!    while others wait for memory.
//! 3. With nothing held a connection never waits for others to make a request within its allowance.
//! 4. No client comes in without credentials, unless the manager was opened so, and then only from this very machine.
//! 5. Who shows a revoked certificate is sent away, now or later, within a second.
//! 6. After `drain` the store has no request of this server left.

mod answers;
mod connection;
mod figures;
mod frames;
mod held;
mod limits;
mod opening;
mod pace;
mod requests;
mod terms;

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::rc::Rc;

use base::{Bytes, Nanos};
use env::net::{Address, ConnectionSet, Listener, Member, Stream};
use env::sync::Semaphore;
use tls::Identity;

use crate::net::wire::NodeKey;
use crate::qos::manager::Manager;
use connection::Connection;
pub use figures::{ConnectionFigures, Counters};
pub use limits::Limits;

/// Why a server does not listen somewhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Any client that reaches this address could change everything.
    #[error(
        "cannot serve {store} at {address}: the store takes clients without credentials, and this address can be \
         reached from other machines; listen on 127.0.0.1, ::1 or unix:/path, or set a node key and take only clients \
         with credentials"
    )]
    Exposed {
        /// The store's name.
        store: String,
        /// Where it was to listen.
        address: Address,
    },
    /// TLS is to be spoken there, and there is nothing to show.
    #[error(
        "cannot serve {store} at {address}: TLS needs a certificate of this node; make one with `tanada cluster ca init` and \
         `tanada node create`"
    )]
    NoCertificate {
        /// The store's name.
        store: String,
        /// Where it was to listen.
        address: Address,
    },
    /// The server is shutting down.
    #[error("cannot serve {store} at {address}: the server is shutting down")]
    Draining {
        /// The store's name.
        store: String,
        /// Where it was to listen.
        address: Address,
    },
}

/// What a connection came by.
#[derive(Clone)]
struct Door {
    /// What is shown there, where TLS is spoken.
    tls: Option<Rc<Identity>>,
    /// This machine alone reaches it.
    is_near: bool,
}

/// Can only this machine reach the address?
fn is_local(address: &Address) -> bool {
    match address {
        Address::Tcp(socket) | Address::Tls(socket) => socket.ip().to_canonical().is_loopback(),
        Address::Unix(_) => true,
    }
}

/// Totals of connections that are gone, and of the server's life.
#[derive(Clone, Copy, Default)]
struct Totals {
    not_let_in: u64,
    violations: u64,
    held: u64,
    held_max: u64,
    gone: connection::Counts,
}

/// Serves a manager to clients. Lives on the manager's thread; see the module's head.
///
/// # Example
/// ```
/// use base::{Bytes, View};
/// use store::net::client::{Client, Credentials};
/// use policy::share::{BytesPerSec, Costs};
/// use store::qos::manager::{Manager, ManagerOptions};
/// use store::net::server::{Limits, Server};
/// use store::{Change, ObjectCalls, Settings, Store};
///
/// env::Runtime::simulated(1).block_on(async {
///     let device = device::Memory::new("disk", Bytes::mib(64));
///     Store::format(device.clone(), Settings::default()).await.unwrap().close().await.unwrap();
///     let costs = Costs::flat(BytesPerSec::mb(200));
///     let options = ManagerOptions { unauthenticated: true, ..ManagerOptions::new(costs, [7; 32]) };
///     let manager = Manager::open(device, options).await.unwrap();
///     let server = Server::new(manager, Limits::default());
///     let address = "127.0.0.1:7400".parse().unwrap();
///     server.serve(env::net::Listener::bind(&address).unwrap()).unwrap();
///
///     let client = Client::connect(&address, Credentials::Open).await.unwrap();
///     let change = Change::FUA.creating();
///     client.write("songs/1", 0, View::copy_of(b"hello"), change).await.unwrap();
///     assert_eq!(&client.read("songs/1", 0, 100).await.unwrap()[..], b"hello");
///     client.close().await;
///     server.drain().await;
/// });
/// ```
pub struct Server {
    // Fixed.
    limits: Limits,
    manager: Rc<Manager>,
    key: Option<NodeKey>,
    /// What is shown at addresses where TLS is spoken.
    tls: Option<Rc<Identity>>,
    // Per run.
    connections: Rc<ConnectionSet<Connection>>,
    /// Bytes all connections may hold beyond their allowances.
    pool: Rc<Semaphore>,
    /// Requests that wait for some of them.
    waiting: Rc<Cell<u64>>,
    totals: Cell<Totals>,
}

impl Server {
    /// A server without listeners. Limits too small for one longest request are raised to it.
    pub fn new(manager: Rc<Manager>, limits: Limits) -> Rc<Server> {
        Server::with_tls(manager, limits, None)
    }

    /// As [`Server::new`]; `tls` is shown at addresses where TLS is spoken.
    pub fn with_tls(manager: Rc<Manager>, limits: Limits, tls: Option<Rc<Identity>>) -> Rc<Server> {
        let limits = limits.workable();
        Rc::new(Server {
            limits,
            key: manager.node_key().copied().map(NodeKey),
            manager,
            tls,
            connections: Rc::default(),
            pool: Semaphore::new(limits.bytes.0),
            waiting: Rc::default(),
            totals: Cell::default(),
        })
    }

    /// Takes connections from `listener` until [`Server::drain`].
    ///
    /// # Errors
    /// [`ServeError::Exposed`] if the manager takes clients without credentials and other machines can reach the
    /// listener; [`ServeError::NoCertificate`]; [`ServeError::Draining`].
    pub fn serve(self: &Rc<Self>, listener: Listener) -> Result<(), ServeError> {
        let (store, address) = (self.manager.store().name(), listener.address());
        if self.manager.unauthenticated() && !is_local(address) {
            return Err(ServeError::Exposed {
                store: store.to_owned(),
                address: address.clone(),
            });
        }
        let tls = self.tls.clone().filter(|_| address.is_tls());
        if address.is_tls() && !self.has_certificate() {
            return Err(ServeError::NoCertificate {
                store: store.to_owned(),
                address: address.clone(),
            });
        }
        if self.connections.is_closed() {
            return Err(ServeError::Draining {
                store: store.to_owned(),
                address: address.clone(),
            });
        }
        let is_near = is_local(address);
        let (server, door) = (Rc::clone(self), Door { tls, is_near });
        let admit = move |stream| server.admit(stream, door.clone());
        self.connections.accept(listener, admit, |listener, error| {
            tracing::warn!(%error, address = %listener.address(), "cannot accept");
        });
        Ok(())
    }

    /// May TLS be spoken here: is there a certificate to show?
    pub fn has_certificate(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.own().is_some())
    }

    /// Takes no more connections at `address`; those that came there go on.
    pub fn close_at(&self, address: &Address) {
        self.connections.close_at(address);
    }

    fn admit(self: &Rc<Self>, stream: Stream, door: Door) {
        let (most, most_of_one) = (self.limits.connections, self.limits.connections_per_host);
        let origin = stream.origin();
        let id = match self.connections.number_from(origin, most, most_of_one) {
            Ok(Some(id)) => id,
            Ok(None) => return,
            Err(why) => {
                tracing::warn!(peer = stream.peer(), %why, "turned away");
                return;
            }
        };
        let connection = Connection::new(id, (stream, door), &self.limits, &self.waiting);
        // A stall is noticed at most a quarter of its time late.
        let shortest = (self.limits.stall)
            .min(self.limits.idle)
            .min(self.limits.hurried_stall);
        let interval = Nanos((shortest.0 / 4).max(1_000_000));
        let (server, member) = (Rc::clone(self), Rc::clone(&connection));
        let served = async move {
            if let Err(why) = env::caught(connection.run(&server)).await {
                connection.ended_by(&why);
            }
            server.count(|totals| totals.gone.add(&connection.counts()));
        };
        self.connections.enter(id, member, interval, served);
    }

    /// Stops: no new connections, requests in flight finish and are answered, later ones are refused, connections
    /// end. Peers that do not read their answers are cut after [`Limits::drain`]; what the store has begun is always
    /// waited for.
    pub async fn drain(&self) {
        self.connections.close();
        self.connections.leave(self.limits.drain, |_| true).await;
    }

    /// What one connection may hold of the pool when it holds something already: an equal part. Those that are not let in
    /// yet hold nothing, and take no part.
    fn share(&self) -> u64 {
        let parts = self.connections.count(|it| !it.is_opening());
        self.limits.bytes.0 / (parts as u64).max(1)
    }

    /// What was done so far.
    pub fn figures(&self) -> Counters {
        let totals = self.totals.get();
        let (accepted, turned_away, stalled) = self.connections.counts();
        let connections = self.connections.all();
        let mut counts = totals.gone;
        for connection in &connections {
            counts.add(&connection.counts());
        }
        Counters {
            accepted,
            turned_away,
            not_let_in: totals.not_let_in,
            stalled,
            violations: totals.violations,
            answered: counts.answered,
            failed: counts.failed,
            bytes_in: counts.bytes_in,
            bytes_out: counts.bytes_out,
            held_bytes: Bytes(totals.held),
            held_bytes_max: Bytes(totals.held_max),
            connections: connections.iter().map(|c| c.figures()).collect(),
        }
    }

    fn count(&self, change: impl FnOnce(&mut Totals)) {
        let mut totals = self.totals.get();
        change(&mut totals);
        self.totals.set(totals);
    }
}
