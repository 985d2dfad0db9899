//! What a node or a client shows and whom it trusts: its certificate, the authorities, the revoked numbers.
//!
//! ```text
//! Material (PEM) -> Identity --accept--> Wire + Certificate of the client, if it showed one
//!                      |    \--connect-> Wire + Certificate of the server
//!                      | replace: a renewed certificate, a second authority     new connections have it
//!                      | revoke: numbers; time: certificates that are over      until_over ends
//! ```
//!
//! Lives on one thread: each data thread has its own, and `changed` wakes what waits there.
//!
//! Always true:
//! 1. TLS 1.3 and nothing else; no session is resumed, so every connection shows its certificate anew.
//! 2. A client goes no further with a server whose certificate is revoked; a server asks [`Identity::refusal`] first.
//! 3. What cannot be used leaves what is in use as it is.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::Nanos;
use env::net::{Address, Stream};
use env::sync::Event;
use rustls::client::ClientConnection;
use rustls::pki_types::UnixTime;
use rustls::server::ServerConnection;
use rustls::time_provider::TimeProvider;

use crate::peer::{Certificate, Peer, Serial};
use crate::pem::TlsError;
use crate::settings::{Material, Settings};
use crate::verify::Expected;
use crate::wire::{TlsWire, Wire};

/// So many seconds later it is asked again whether a certificate is over.
const CLOCK: u64 = 3600;

/// The clock by which certificates are judged: the run's own.
#[derive(Debug)]
struct RunClock;

impl TimeProvider for RunClock {
    fn current_time(&self) -> Option<UnixTime> {
        let since = Duration::from_nanos(env::wall_clock().0);
        Some(UnixTime::since_unix_epoch(since))
    }
}

fn settings(material: &Material) -> Result<Settings, TlsError> {
    Settings::with_clock(material, Arc::new(RunClock))
}

/// See the module's head.
///
/// # Example
/// ```
/// use std::rc::Rc;
/// use base::{Buf, View};
/// use env::net::message::Channel as _;
/// use env::net::{Address, Listener, Stream};
/// use tls::authority::{Authority, KeyKind, Subject};
/// use tls::{Client, Expected, Identity, Material, Peer};
///
/// env::Runtime::simulated(1).block_on(async {
///     let now = env::wall_clock().0 / 1_000_000_000;
///     let (ca, _) = Authority::make("ca", KeyKind::Ed25519, (now, 30), [1; 16]).unwrap();
///     let identity = |name: &str, random| {
///         let subject = Subject { peer: Peer::Node(name.into()), account_id: None, hosts: vec![] };
///         let issued = ca.issue(&subject, (now, 1), random).unwrap();
///         let own = Some((issued.certificate.into_bytes(), issued.key.into_bytes()));
///         let authority = ca.certificate.clone().into_bytes();
///         Identity::new(&Material { authority, own }).unwrap()
///     };
///     let (n1, n2) = (identity("n1", [2; 16]), identity("n2", [3; 16]));
///     let listener = Listener::bind(&"tls:127.0.0.1:0".parse().unwrap()).unwrap();
///     let address = listener.address().clone();
///     env::spawn(async move {
///         let stream = Rc::new(listener.accept().await.unwrap());
///         let (wire, client) = n1.accept(stream).await.unwrap();
///         assert_eq!(client.unwrap().peer, Peer::Node("n2".into()));
///         wire.write_all(vec![View::copy_of(b"hello")]).await.unwrap();
///     });
///     let client = Client { identity: n2, expected: Expected::Node("n1".into()) };
///     let stream = Client::stream(&address).await.unwrap();
///     let (wire, _) = client.connect(Rc::new(stream)).await.unwrap();
///     assert_eq!(&wire.read_exact(Buf::for_read(5)).await.unwrap()[..], b"hello");
/// });
/// ```
pub struct Identity {
    current: RefCell<Settings>,
    revoked: RefCell<BTreeSet<Serial>>,
    /// Counts the handshakes that ended well and those that did not.
    counts: Cell<(u64, u64)>,
    /// More numbers are revoked.
    changed: Event,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.peer())
    }
}

impl Identity {
    /// From PEM texts.
    ///
    /// # Errors
    /// [`TlsError`] if a text is not PEM or the parts do not fit together.
    pub fn new(material: &Material) -> Result<Rc<Identity>, TlsError> {
        Ok(Rc::new(Identity {
            current: RefCell::new(settings(material)?),
            revoked: RefCell::default(),
            counts: Cell::default(),
            changed: Event::default(),
        }))
    }

    /// From now on new connections are made with these.
    ///
    /// # Errors
    /// As for [`Identity::new`]; then all is as before.
    pub fn replace(&self, material: &Material) -> Result<(), TlsError> {
        let current = settings(material)?;
        *self.current.borrow_mut() = current;
        Ok(())
    }

    /// These numbers are revoked, and no others; connections under them end.
    pub fn set_revoked(&self, revoked: BTreeSet<Serial>) {
        if *self.revoked.borrow() != revoked {
            *self.revoked.borrow_mut() = revoked;
            self.changed.notify_all();
        }
    }

    /// Is this number revoked?
    pub fn is_revoked(&self, serial: &Serial) -> bool {
        self.revoked.borrow().contains(serial)
    }

    /// How many numbers are revoked.
    pub fn revoked_count(&self) -> usize {
        self.revoked.borrow().len()
    }

    /// What the own certificate says.
    pub fn own(&self) -> Option<Certificate> {
        self.current.borrow().own().cloned()
    }

    /// Who this is to others.
    pub fn peer(&self) -> Peer {
        self.own().map(|own| own.peer).unwrap_or_default()
    }

    /// Handshakes that ended well, and those that did not.
    pub fn handshakes(&self) -> (u64, u64) {
        self.counts.get()
    }

    fn count<T>(&self, done: &io::Result<T>) {
        let (good, bad) = self.counts.get();
        let good_one = u64::from(done.is_ok());
        self.counts.set((good + good_one, bad + 1 - good_one));
    }

    /// The server's side of a handshake on a stream that has just come; with it what the client's certificate says, if it
    /// showed one. One that is revoked is the caller's to send away, with what [`Identity::refusal`] says.
    ///
    /// # Errors
    /// In words: it does not speak TLS 1.3, its certificate is not from an authority of ours, or not in its time. How long all
    /// of it may take is the caller's to limit.
    pub async fn accept(&self, stream: Rc<Stream>) -> io::Result<(Wire, Option<Certificate>)> {
        let config = self.current.borrow().server();
        let done = async {
            let config = config.ok_or_else(|| io::Error::other("there is no own certificate"))?;
            let session = ServerConnection::new(config).map_err(io::Error::other)?;
            self.shake_hands(stream, session.into()).await
        };
        let done = done.await;
        self.count(&done);
        done
    }

    async fn shake_hands(
        &self,
        stream: Rc<Stream>,
        session: rustls::Connection,
    ) -> io::Result<(Wire, Option<Certificate>)> {
        let wire = TlsWire::handshake(stream, session).await?;
        let shown = wire.with_certificates(|shown| {
            let own = shown.and_then(<[_]>::first);
            own.map(|own| Certificate::read(own).ok_or_else(|| io::Error::other("it is none")))
        });
        let shown = shown.transpose()?;
        Ok((Wire::Tls(Box::new(wire)), shown))
    }

    /// Why nothing may be done for a peer that showed this certificate, if it is revoked.
    pub fn refusal(&self, shown: Option<&Certificate>) -> Option<String> {
        let shown = shown.filter(|shown| self.is_revoked(&shown.serial));
        shown.map(gone)
    }

    /// Waits until the certificate that a peer showed is revoked, or its time over; why its connection ends. Never for one
    /// that showed none.
    pub async fn until_over(&self, shown: Option<&Certificate>) -> String {
        let Some(shown) = shown else {
            return std::future::pending().await;
        };
        while !self.is_revoked(&shown.serial) {
            let Some(left) = left(shown) else {
                return over(shown);
            };
            let _ = env::timeout(left, self.changed.wait()).await;
        }
        gone(shown)
    }
}

/// How long a certificate lasts, or until the clock, which may be set, is asked again; `None`: it is over.
fn left(shown: &Certificate) -> Option<Nanos> {
    let now = env::wall_clock().0 / Nanos::secs(1).0;
    let left = shown.not_after.checked_sub(now)?;
    // Its last second is whole.
    Some(Nanos::secs(left.saturating_add(1).min(CLOCK)))
}

/// Why nothing more is done for the holder of a certificate that was good when it was shown.
fn over(shown: &Certificate) -> String {
    format!(
        "the certificate {} of {} has expired; connect again with a renewed one",
        shown.serial, shown.peer
    )
}

/// Why nothing is done for the holder of a revoked certificate.
fn gone(shown: &Certificate) -> String {
    format!(
        "the certificate {} of {} is revoked; issue another one with `tanada cluster ca issue`",
        shown.serial, shown.peer
    )
}

/// A client's side: what it shows, and which server it looks for.
#[derive(Clone, Debug)]
pub struct Client {
    /// What it shows, and whom it trusts.
    pub identity: Rc<Identity>,
    /// The server.
    pub expected: Expected,
}

impl PartialEq for Client {
    fn eq(&self, other: &Client) -> bool {
        Rc::ptr_eq(&self.identity, &other.identity) && self.expected == other.expected
    }
}

impl Client {
    /// One that looks for any server with a certificate for `address`.
    pub fn at(identity: &Rc<Identity>, address: &Address) -> Client {
        Client {
            identity: Rc::clone(identity),
            expected: Expected::at(address),
        }
    }

    /// A stream to a `tls:` address, on which [`Client::connect`] is next.
    ///
    /// # Errors
    /// The system's.
    pub async fn stream(address: &Address) -> io::Result<Stream> {
        match address {
            Address::Tls(socket) => Stream::connect(&Address::Tcp(*socket)).await,
            other => Stream::connect(other).await,
        }
    }

    /// The client's side of a handshake; with it what the server's certificate says.
    ///
    /// # Errors
    /// In words, as for [`Identity::accept`]; also if it is another server than was looked for, or its certificate
    /// is revoked.
    pub async fn connect(&self, stream: Rc<Stream>) -> io::Result<(Wire, Option<Certificate>)> {
        let config = self.identity.current.borrow().client(&self.expected);
        let done = async {
            let config = config.map_err(io::Error::other)?;
            let session =
                ClientConnection::new(config, self.expected.name()).map_err(io::Error::other)?;
            let (wire, shown) = self.identity.shake_hands(stream, session.into()).await?;
            match self.identity.refusal(shown.as_ref()) {
                None => Ok((wire, shown)),
                Some(why) => Err(io::Error::new(io::ErrorKind::PermissionDenied, why)),
            }
        };
        let done = done.await;
        self.identity.count(&done);
        done
    }
}
