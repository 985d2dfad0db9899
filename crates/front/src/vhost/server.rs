//! Who is let in at a disk's socket?
//!
//! ```text
//! connection -> is another client there? turned away -> device opened -> session -> quiet -> the next one
//! ```
//!
//! Always true: one client at a time. The next one comes when nothing of the last one is under way.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;

use base::{Bytes, Nanos};
use device::Device;
use env::Watched;
use env::net::{Listener, Stream};
use env::sync::{Event, Semaphore};

use super::block::ID;
use super::error::SessionError;
use super::last::{GuestBook, Last, Offer};
use super::queue::Disk;
use super::session::Session;
use super::watches::Watches;
use crate::counters::Counters;
use crate::pieces::Pieces;

/// Bytes that the requests of a client hold at once.
const BUDGET: Bytes = Bytes::mib(64);
/// How long a client that connects waits for the end of the one before.
const TURN: Nanos = Nanos::secs(1);
/// After a failure of the socket.
const PAUSE: Nanos = Nanos::millis(100);

/// A device as a client gets it.
pub struct Opened {
    /// It.
    pub device: Rc<dyn Device>,
    /// A number that no other disk of any daemon has, and this one keeps: records of guests are of this disk by it.
    pub identity: u64,
    /// Clients cannot write.
    pub read_only: bool,
    /// It shows every write that an earlier process answered, and the next process will show those of this one.
    pub found_all: bool,
    /// Which guest had it last.
    pub book: Rc<dyn GuestBook>,
    /// Keeps it open.
    pub hold: Box<dyn Any>,
}

/// Where the device comes from, for each client.
pub trait Source {
    /// Opens it.
    ///
    /// # Errors
    /// In words: no client can have it now.
    fn open(&self) -> Pin<Box<dyn Future<Output = Result<Opened, String>> + '_>>;
}

/// How a server stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// Who is connected.
    pub client: Option<String>,
    /// What the disk did.
    pub requests: Counters,
    /// Clients turned away.
    pub turned_away: u64,
}

/// A client that is connected.
struct Current {
    peer: String,
    session: RefCell<Option<Rc<Session>>>,
}

/// The server of one disk; see the module's head.
pub struct Server {
    // Fixed.
    name: String,
    source: Rc<dyn Source>,
    counters: Rc<Cell<Counters>>,
    watches: Rc<Watches>,
    // As it goes.
    current: RefCell<Option<Rc<Current>>>,
    last: RefCell<Option<Rc<Last>>>,
    turned_away: Cell<u64>,
    /// Does a client wait for the end of the current one? Others are turned away at once.
    waiting: Cell<bool>,
    /// Was a guest refused, and none served since? Its client asks again every second.
    refusing: Cell<bool>,
    /// The client that was connected is gone.
    gone: Event,
    accepting: RefCell<Option<env::CancelOnDrop<()>>>,
    /// No client is served any more.
    draining: Cell<bool>,
}

impl Server {
    /// A server of the disk called `name`.
    pub fn new(name: &str, source: Rc<dyn Source>) -> Rc<Server> {
        Rc::new(Server {
            name: name.to_owned(),
            source,
            counters: Rc::default(),
            watches: Rc::default(),
            current: RefCell::default(),
            last: RefCell::default(),
            turned_away: Cell::default(),
            waiting: Cell::default(),
            refusing: Cell::default(),
            gone: Event::default(),
            accepting: RefCell::default(),
            draining: Cell::default(),
        })
    }

    /// What this runtime's thread looks at while it spins, instead of being kicked by the guest.
    pub fn watched(&self) -> Rc<dyn Watched> {
        Rc::clone(&self.watches) as Rc<dyn Watched>
    }

    /// Takes clients from `listener`.
    pub fn serve(self: &Rc<Self>, listener: Listener) {
        env::watch(&self.watched());
        let server = Rc::downgrade(self);
        let accepting = env::spawn(async move {
            loop {
                let accepted = listener.accept().await;
                let Some(server) = server.upgrade() else {
                    return;
                };
                match accepted {
                    Ok(stream) => {
                        env::spawn(server.admit(stream));
                    }
                    Err(error) => {
                        tracing::warn!(export = server.name, %error, "a client could not be accepted");
                        env::sleep(PAUSE).await;
                    }
                }
            }
        });
        *self.accepting.borrow_mut() = Some(env::cancel_scope(accepting));
    }

    /// How it stands.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            client: self.current.borrow().as_ref().map(|it| it.peer.clone()),
            requests: self.counters.get(),
            turned_away: self.turned_away.get(),
        }
    }

    /// Takes no more clients; the one that is there gets its answers, and is gone.
    pub async fn drain(&self) {
        self.draining.set(true);
        let accepting = self.accepting.borrow_mut().take();
        drop(accepting);
        loop {
            let current = self.current.borrow().clone();
            let Some(current) = current else {
                return;
            };
            let session = current.session.borrow().clone();
            if let Some(session) = session {
                session.drain().await;
            }
            if self.current.borrow().is_some() {
                self.gone.wait().await;
            }
        }
    }

    /// Is no client there? One that connects waits a moment for the end of the one before.
    async fn is_its_turn(&self) -> bool {
        if self.current.borrow().is_none() {
            return true;
        }
        if self.waiting.replace(true) {
            return false;
        }
        let turn = async {
            while self.current.borrow().is_some() {
                self.gone.wait().await;
            }
        };
        let came = env::timeout(TURN, turn).await.is_ok();
        self.waiting.set(false);
        came
    }

    /// Serves a client from its beginning to its end.
    async fn admit(self: Rc<Self>, stream: Stream) {
        let peer = stream.peer();
        if !self.is_its_turn().await {
            self.turned_away.set(self.turned_away.get() + 1);
            let holder = self.current.borrow().as_ref().map(|it| it.peer.clone());
            tracing::warn!(
                export = self.name,
                peer,
                holder,
                "a client was turned away: another one has the disk, or requests of the one before are under way"
            );
            return;
        }
        let current = Rc::new(Current {
            peer: peer.clone(),
            session: RefCell::default(),
        });
        *self.current.borrow_mut() = Some(Rc::clone(&current));
        // Also if what follows panics.
        let _ended = Ended(&self);
        match self.source.open().await {
            Ok(_) if self.draining.get() => {}
            Ok(opened) => self.session(stream, opened, &current).await,
            Err(why) => {
                self.turned_away.set(self.turned_away.get() + 1);
                tracing::warn!(export = self.name, peer, why, "a client was turned away");
            }
        }
    }

    async fn session(&self, stream: Stream, opened: Opened, current: &Current) {
        let mut name = [0; ID];
        for (to, from) in name.iter_mut().zip(self.name.bytes()) {
            *to = from;
        }
        let read_only = opened.read_only || opened.device.info().read_only;
        let disk = Rc::new(Disk {
            pieces: Pieces::new(opened.device),
            read_only,
            name,
            identity: opened.identity,
            write_through: Cell::new(true),
            budget: Semaphore::new(BUDGET.0),
            counters: Rc::clone(&self.counters),
            ended: Event::default(),
            is_gone: Cell::default(),
            broke: Event::default(),
            is_broken: Cell::default(),
            watches: Rc::clone(&self.watches),
        });
        let offer = Offer {
            found_all: opened.found_all,
            last: self.last.borrow().clone(),
            book: opened.book,
        };
        let session = Session::new(Rc::new(stream), disk, offer);
        *current.session.borrow_mut() = Some(Rc::clone(&session));
        let (export, peer) = (&self.name, &current.peer);
        match self.refusing.get() {
            false => tracing::info!(export, peer, "a virtual machine is connected"),
            true => tracing::debug!(export, peer, "a virtual machine is connected"),
        }
        let (error, left) = session.run().await;
        self.report(&error, &current.peer);
        // A client that only looked, or whose guest was refused, has changed nothing.
        if left.is_some() {
            *self.last.borrow_mut() = left;
        }
        drop(opened.hold);
    }

    fn report(&self, error: &SessionError, peer: &str) {
        let export = &self.name;
        match error {
            SessionError::Lost(error) => {
                tracing::info!(export, peer, %error, "a virtual machine is gone");
            }
            _ if error.is_refusal() => {
                self.turned_away.set(self.turned_away.get() + 1);
                match self.refusing.replace(true) {
                    false => {
                        tracing::error!(export, peer, %error, "a virtual machine is not served")
                    }
                    true => {
                        tracing::debug!(export, peer, %error, "a virtual machine is not served")
                    }
                }
                return;
            }
            _ => tracing::warn!(export, peer, %error, "a client was disconnected"),
        }
        self.refusing.set(false);
    }
}

/// The current client is gone when it is dropped.
struct Ended<'a>(&'a Server);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.current.take();
        self.0.gone.notify_all();
    }
}
