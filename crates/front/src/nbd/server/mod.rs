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

mod connection;
mod counters;
mod ending;
mod handshake;
mod holding;
mod leaving;
mod limits;
mod replies;
mod requests;
mod supply;
mod workers;

pub use counters::{ConnectionSnapshot, Counters, ExportSnapshot, ServerSnapshot};
pub use leaving::Leaving;
pub use limits::Limits;
pub use supply::{Account, Soon, Supplied, Supply};

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use base::{Map, Nanos};
use device::Device;
use env::net::{ConnectionSet, Listener, Member as _, Origin, Stream};
use env::sync::Semaphore;

use super::negotiate::{Catalogue, Offer};
use super::proto::{self, STRING_MAX};
use super::tls::Tls;
use connection::Connection;
use counters::LiveCounters;
use requests::Target;

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

/// Says why an export takes no clients; `None`: it does.
pub type WhyClosed = Rc<dyn Fn() -> Option<String>>;

/// An export in use.
struct Shelf {
    export: Export,
    target: Target,
    counters: Rc<LiveCounters>,
    leaving: Leaving,
    /// Says why new clients are turned away, while they are.
    closed: RefCell<Option<WhyClosed>>,
    /// Of one that was opened for a client: dropped with it.
    _hold: Option<Box<dyn Any>>,
}

impl Shelf {
    fn why_closed(&self) -> Option<String> {
        let why = self.closed.borrow().clone();
        why.and_then(|why| why())
    }
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
    limits: Limits,
    // Per run.
    tls: RefCell<Option<Tls>>,
    shelves: RefCell<Vec<Rc<Shelf>>>,
    default: RefCell<Option<String>>,
    supply: RefCell<Option<Rc<dyn Supply>>>,
    connections: Rc<ConnectionSet<Connection>>,
    /// Bytes all connections may hold beyond their allowances.
    pool: Rc<Semaphore>,
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
            tls: RefCell::new(config.tls),
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
            leaving: Leaving::default(),
            closed: RefCell::default(),
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

    /// Turns clients of an export away for as long as `why` says something, with that sentence. It stays in the list, and
    /// default as it was.
    ///
    /// # Errors
    /// [`ExportError::Unknown`].
    pub fn close_while(&self, name: &str, why: WhyClosed) -> Result<(), ExportError> {
        let shelf = self
            .shelf(name)
            .ok_or_else(|| ExportError::Unknown(name.to_owned()))?;
        *shelf.closed.borrow_mut() = Some(why);
        Ok(())
    }

    /// Opens what clients ask for by name and is not among the exports, from now on.
    pub fn set_supply(&self, supply: Rc<dyn Supply>) {
        *self.supply.borrow_mut() = Some(supply);
    }

    fn supply(&self) -> Option<Rc<dyn Supply>> {
        self.supply.borrow().clone()
    }

    /// Its certificate, and whom it trusts, from the next client on; `None`: STARTTLS is refused.
    pub fn set_tls(&self, tls: Option<Tls>) {
        *self.tls.borrow_mut() = tls;
    }

    fn tls(&self) -> Option<Tls> {
        self.tls.borrow().clone()
    }

    /// Ends the connections to exports of this name: what they asked for is answered, no later request is read. When this
    /// returns their devices are no longer used by them.
    pub async fn end_clients_of(&self, name: &str) {
        let uses = |connection: &Connection| {
            let shelf = connection.shelf.borrow();
            shelf.as_ref().is_some_and(|it| it.export.name == name)
        };
        self.connections.leave(self.limits.drain, uses).await;
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
        self.admit_holding(stream, ());
    }

    /// As [`Server::admit`]; `hold` is dropped when the connection is gone, or is not let in.
    pub fn admit_holding(self: &Rc<Self>, stream: Stream, hold: impl Any) {
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
        let serving = async move {
            connection.run(&server).await;
            drop(hold);
        };
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

    /// Stops: no new connections, requests in flight finish and are answered, no later ones are read, connections end. Clients that do not read their replies are cut after
    /// [`Limits::drain`]; what devices have begun is always waited for.
    pub async fn drain(&self) {
        self.connections.close();
        self.connections.leave(self.limits.drain, |_| true).await;
    }

    /// How many clients an export has.
    pub fn clients_of(&self, export: &str) -> u64 {
        let connections = self.connections.all();
        let theirs = connections.iter().filter(|it| {
            let shelf = it.shelf.borrow();
            shelf.as_ref().is_some_and(|it| it.export.name == export)
        });
        theirs.count() as u64
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

    fn negotiation_failed(&self) {
        self.count(|counters| counters.negotiations_failed += 1);
    }

    fn violated(&self) {
        self.count(|counters| counters.violations += 1);
    }

    /// An export as clients see it.
    fn offer(&self, export: &Export) -> Offer {
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
    fn shelf(&self, name: &str) -> Option<Rc<Shelf>> {
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
        let shelf = self.shelf(name)?;
        let is_open = shelf.why_closed().is_none();
        is_open.then(|| self.offer(&shelf.export))
    }

    fn why_not(&self, name: &str) -> Option<String> {
        self.shelf(name)?.why_closed()
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
