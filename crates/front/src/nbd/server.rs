//! Who may come in, to what, and how do they all leave? Exports, listeners, limits, drain.
//!
//! ```text
//! Listener -> accept -> Connection: negotiate (a deadline for all of it) -> transmit -> leave
//!                          ^ watched: a client that stalls in the middle of a message is cut
//! ```
//!
//! Always true:
//! 1. Requests held for one connection stay below its own limit, and for all connections together below
//!    the server's limit plus a small allowance each, whatever clients send or refuse to read.
//! 2. Up to its allowance a connection never waits for what another one holds.
//! 3. The connections of one host together never hold more of the server's limit than its share.
//! 4. After `drain` no device has a request of this server left.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use base::{Bytes, Map, Nanos};
use device::Device;
use env::net::{ConnectionSet, Listener, Member as _, Origin, Stream};
use env::sync::Semaphore;

use super::connection::Connection;
use super::counters::{ConnectionSnapshot, ExportSnapshot, LiveCounters, ServerSnapshot};
use super::negotiate::{Catalogue, Offer};
use super::proto::{self, STRING_MAX};
use super::requests::Target;
use super::supply::Supply;
use super::tls::Tls;

/// How much the server takes on, and how long it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once. One more takes the place of the oldest that still negotiates, or is
    /// turned away.
    pub connections: usize,
    /// Connections at once of one host; those by Unix sockets count as none's.
    pub connections_per_host: usize,
    /// Longest read or write: a power of two from 64 KiB to 32 MiB.
    pub payload_max: Bytes,
    /// Requests of one connection accepted and not answered; beyond them it is not read from.
    pub requests_per_connection: usize,
    /// Their bytes; at least one request of `payload_max` fits.
    pub bytes_per_connection: Bytes,
    /// Bytes of each connection that never wait for others.
    pub allowance: Bytes,
    /// Bytes of all connections together beyond their allowances; at least one `payload_max`.
    pub bytes: Bytes,
    /// Of these, bytes of all connections of one client host (or of one user, by Unix sockets); at least one `payload_max`.
    pub bytes_per_host: Bytes,
    /// Time for the whole negotiation, TLS included.
    pub negotiation: Nanos,
    /// How long a client may stall in the middle of a message, or leave a reply unread.
    pub stall: Nanos,
    /// Slowest pace of a long payload, in bytes per second, either way.
    pub rate_min_bytes_per_second: u64,
    /// How long a client may take to hang up after the last reply.
    pub linger: Nanos,
    /// How long `drain` waits for replies to be read before it cuts connections.
    pub drain: Nanos,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 1024,
            connections_per_host: 512,
            payload_max: Bytes::mib(32),
            requests_per_connection: 256,
            bytes_per_connection: Bytes::mib(64),
            allowance: Bytes::kib(256),
            bytes: Bytes::mib(512),
            bytes_per_host: Bytes::mib(128),
            negotiation: Nanos::secs(15),
            stall: Nanos::secs(30),
            rate_min_bytes_per_second: 64 << 10,
            linger: Nanos::secs(1),
            drain: Nanos::secs(30),
        }
    }
}

impl Limits {
    /// The nearest limits the server can keep: each at least what one longest request needs.
    fn workable(mut self) -> Limits {
        let payload = self.payload_max.0.clamp(64 << 10, 32 << 20);
        self.payload_max = Bytes(1 << payload.ilog2());
        // A request that warms a cache holds up to 8 MiB.
        let most = self.payload_max.max(Bytes::mib(8));
        self.connections = self.connections.max(1);
        self.connections_per_host = self.connections_per_host.clamp(1, self.connections);
        self.requests_per_connection = self.requests_per_connection.max(1);
        self.bytes_per_connection = self.bytes_per_connection.max(most);
        self.bytes = self.bytes.max(most);
        self.bytes_per_host = self.bytes_per_host.max(most);
        self
    }
}

/// How a server is set up.
#[derive(Clone, Default)]
pub struct Config {
    /// What it takes on.
    pub limits: Limits,
    /// Its certificate, if it has one: without, STARTTLS is refused.
    pub tls: Option<Tls>,
}

/// A device and the name clients ask for.
#[derive(Clone)]
pub struct Export {
    /// The name; at most 4096 bytes of UTF-8 without NUL, not empty.
    pub name: String,
    /// A description for people; may be empty.
    pub description: String,
    /// What is served. Its size counts at the moment a client connects.
    pub device: Rc<dyn Device>,
    /// Refuse writes even if the device takes them.
    pub read_only: bool,
}

/// Why an export was not added or not found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The name is taken.
    #[error("cannot export '{0}' twice: remove the first one or choose another name")]
    Taken(String),
    /// The name cannot be sent to clients.
    #[error("'{0}' is not an export's name: use 1 to 4096 bytes of text without NUL")]
    Name(String),
    /// There is no such export.
    #[error("there is no export named '{0}'")]
    Unknown(String),
}

/// An export in use.
pub(super) struct Shelf {
    pub(super) export: Export,
    pub(super) target: Target,
    pub(super) counters: Rc<LiveCounters>,
    /// Of one that was opened for a client: dropped with it.
    pub(super) _hold: Option<Box<dyn std::any::Any>>,
}

/// Totals of the server's life.
#[derive(Clone, Copy, Default)]
struct ServerCounters {
    negotiations_failed: u64,
    violations: u64,
}

/// Serves exports to NBD clients. Lives on one thread; see the module's head.
///
/// # Example
/// ```
/// use base::Bytes;
/// use front::nbd::{Client, ClientOptions, Config, Export, Server};
/// use device::{Device as _, Memory};
///
/// let size = env::Runtime::simulated(1).block_on(async {
///     let server = Server::new(Config::default());
///     let device = Memory::new("ram", Bytes::mib(1));
///     server.add_export(Export {
///         name: "vol0".into(),
///         description: "a megabyte of memory".into(),
///         device,
///         read_only: false,
///     })?;
///     let address = "127.0.0.1:10809".parse().expect("an address");
///     server.serve(env::net::Listener::bind(&address).expect("a free port"));
///     let client = Client::connect(&address, &ClientOptions::default()).await.expect("connected");
///     let size = client.info().size;
///     client.close().await;
///     server.drain().await;
///     Ok::<_, front::nbd::ExportError>(size)
/// });
/// assert_eq!(size, Ok(Bytes::mib(1)));
/// ```
pub struct Server {
    // Fixed.
    pub(super) limits: Limits,
    pub(super) tls: Option<Tls>,
    // Per run.
    shelves: RefCell<Vec<Rc<Shelf>>>,
    default: RefCell<Option<String>>,
    supply: RefCell<Option<Rc<dyn Supply>>>,
    connections: Rc<ConnectionSet<Connection>>,
    /// Bytes all connections may hold beyond their allowances.
    pub(super) pool: Rc<Semaphore>,
    /// Of these, what each host with a connection may hold.
    shares: RefCell<Map<Origin, Weak<Semaphore>>>,
    counters: Cell<ServerCounters>,
}

impl Server {
    /// A server without exports or listeners. Limits too small for one longest request are raised to it.
    pub fn new(config: Config) -> Rc<Server> {
        let limits = config.limits.workable();
        Rc::new(Server {
            limits,
            tls: config.tls,
            shelves: RefCell::default(),
            default: RefCell::default(),
            supply: RefCell::default(),
            connections: Rc::default(),
            pool: Semaphore::new(limits.bytes.0),
            shares: RefCell::default(),
            counters: Cell::default(),
        })
    }

    /// Offers a device from now on. The first one is also the default export until
    /// [`Server::set_default`] says otherwise.
    ///
    /// # Errors
    /// [`ExportError::Taken`], [`ExportError::Name`].
    pub fn add_export(&self, export: Export) -> Result<(), ExportError> {
        if export.name.is_empty() || proto::text(export.name.as_bytes()).is_none() {
            return Err(ExportError::Name(
                proto::shortened(&export.name, 64).to_owned(),
            ));
        }
        if self.shelf(&export.name).is_some() {
            return Err(ExportError::Taken(export.name));
        }
        let target = Target::new(Rc::clone(&export.device));
        let shelf = Shelf {
            export,
            target,
            counters: Rc::default(),
            _hold: None,
        };
        self.shelves.borrow_mut().push(Rc::new(shelf));
        Ok(())
    }

    /// Makes `name` the export of clients that ask for none.
    ///
    /// # Errors
    /// [`ExportError::Unknown`].
    pub fn set_default(&self, name: &str) -> Result<(), ExportError> {
        self.shelf(name)
            .ok_or_else(|| ExportError::Unknown(name.to_owned()))?;
        *self.default.borrow_mut() = Some(name.to_owned());
        Ok(())
    }

    /// Opens what clients ask for by name and is not among the exports, from now on.
    pub fn set_supply(&self, supply: Rc<dyn Supply>) {
        *self.supply.borrow_mut() = Some(supply);
    }

    pub(super) fn supply(&self) -> Option<Rc<dyn Supply>> {
        self.supply.borrow().clone()
    }

    /// Takes an export away: new clients do not find it, requests in flight on it finish, further ones
    /// are refused, its connections end. When this returns the device is no longer used.
    ///
    /// # Errors
    /// [`ExportError::Unknown`].
    pub async fn remove_export(&self, name: &str) -> Result<(), ExportError> {
        let shelf = self
            .shelf(name)
            .ok_or_else(|| ExportError::Unknown(name.to_owned()))?;
        self.shelves
            .borrow_mut()
            .retain(|other| !Rc::ptr_eq(other, &shelf));
        if self.default.borrow().as_deref() == Some(name) {
            *self.default.borrow_mut() = None;
        }
        let uses = |connection: &Connection| connection.uses(&shelf);
        self.connections.leave(self.limits.drain, uses).await;
        Ok(())
    }

    /// Takes connections from `listener` until [`Server::drain`].
    pub fn serve(self: &Rc<Self>, listener: Listener) {
        if self.connections.is_closed() {
            return;
        }
        let server = Rc::clone(self);
        let admit = move |stream| server.admit(stream);
        self.connections.accept(listener, admit, |listener, error| {
            tracing::warn!(%error, address = %listener.address(), "cannot accept");
        });
    }

    /// Serves one connection that came in some other way.
    pub fn admit(self: &Rc<Self>, stream: Stream) {
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
        let connection = Connection::new(id, stream, &self.limits, self.share(origin));
        // A stall is noticed at most a quarter of its time late.
        let interval = Nanos((self.limits.stall.0 / 4).max(1_000_000));
        let (server, member) = (Rc::clone(self), Rc::clone(&connection));
        let serving = async move { connection.run(&server).await };
        self.connections.enter(id, member, interval, serving);
    }

    /// What all connections of `origin` hold of the pool together.
    fn share(&self, origin: Origin) -> Rc<Semaphore> {
        let mut shares = self.shares.borrow_mut();
        if let Some(share) = shares.get(&origin).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Semaphore::new(self.limits.bytes_per_host.0);
        shares.insert(origin, Rc::downgrade(&share));
        share
    }

    /// Ends the connections of which `which` is true, at once; what their requests have begun still runs to its end.
    /// Those that were ended.
    pub fn disconnect(
        &self,
        which: impl Fn(&ConnectionSnapshot) -> bool,
    ) -> Vec<ConnectionSnapshot> {
        let mut ended = Vec::new();
        for connection in self.connections.all() {
            let snapshot = connection.snapshot();
            if !connection.is_cut() && which(&snapshot) {
                connection.cut("disconnected by a command");
                ended.push(snapshot);
            }
        }
        ended
    }

    /// Stops: no new connections, requests in flight finish and are answered, later ones are refused
    /// with `ESHUTDOWN`, connections end. Clients that do not read their replies are cut after
    /// [`Limits::drain`]; what devices have begun is always waited for.
    pub async fn drain(&self) {
        self.connections.close();
        self.connections.leave(self.limits.drain, |_| true).await;
    }

    /// What was done so far.
    pub fn snapshot(&self) -> ServerSnapshot {
        let counters = self.counters.get();
        let (accepted, turned_away, stalled) = self.connections.counts();
        let connections = self.connections.all();
        let connections: Vec<ConnectionSnapshot> = connections
            .iter()
            .map(|connection| connection.snapshot())
            .collect();
        let using = |name: &str| {
            connections
                .iter()
                .filter(|c| c.export.as_deref() == Some(name))
                .count() as u64
        };
        let shelves = self.shelves.borrow();
        let exports = shelves.iter().map(|shelf| ExportSnapshot {
            name: shelf.export.name.clone(),
            connections: using(&shelf.export.name),
            counts: shelf.counters.counts(),
        });
        ServerSnapshot {
            exports: exports.collect(),
            accepted,
            turned_away,
            negotiations_failed: counters.negotiations_failed,
            stalled,
            violations: counters.violations,
            connections,
        }
    }

    fn count(&self, change: impl FnOnce(&mut ServerCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    pub(super) fn negotiation_failed(&self) {
        self.count(|counters| counters.negotiations_failed += 1);
    }

    pub(super) fn violated(&self) {
        self.count(|counters| counters.violations += 1);
    }

    /// An export as clients see it.
    pub(super) fn offer(&self, export: &Export) -> Offer {
        let payload_max = self.limits.payload_max.0 as u32;
        Offer::of_device(
            &export.name,
            proto::shortened(&export.description, STRING_MAX),
            &export.device.info(),
            export.read_only,
            payload_max,
        )
    }

    /// The export of that name; the empty name asks for the default one.
    pub(super) fn shelf(&self, name: &str) -> Option<Rc<Shelf>> {
        let shelves = self.shelves.borrow();
        let default = self.default.borrow();
        let name = match (name, default.as_deref()) {
            ("", None) => return shelves.first().map(Rc::clone),
            ("", Some(default)) => default,
            (name, _) => name,
        };
        shelves
            .iter()
            .find(|shelf| shelf.export.name == name)
            .map(Rc::clone)
    }
}

impl Catalogue for Server {
    fn find(&self, name: &str) -> Option<Offer> {
        Some(self.offer(&self.shelf(name)?.export))
    }

    fn list(&self) -> Vec<(String, String)> {
        let shelves = self.shelves.borrow();
        let pair = |shelf: &Rc<Shelf>| {
            let description = proto::shortened(&shelf.export.description, STRING_MAX);
            (shelf.export.name.clone(), description.to_owned())
        };
        shelves.iter().map(pair).collect()
    }

    fn closing(&self) -> bool {
        self.connections.is_closed()
    }
}
