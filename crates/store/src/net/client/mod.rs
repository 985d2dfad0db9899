//! A store somewhere else, used as if it were here.
//!
//! ```text
//! call -> slot (id) -> outgoing -> writer: one vectored send
//!           ^ answer <- reader: headers, fields, data straight into the caller's buffer
//!           ^ late or lost <- watch: pings, deadlines
//! ```
//!
//! Many calls may be under way at once; answers come in any order, and so may the store carry requests out: what
//! must come after something is asked when that was answered. A [`flush`](crate::ObjectCalls::flush) makes durable what was answered
//! before it was called.
//!
//! Always true:
//! 1. Each call gets exactly one answer: the store's, or why there is none and whether the request was sent.
//! 2. A call dropped half-way keeps its place and its buffer until the server has answered.
//! 3. Every byte a server sends is checked as a server checks a client's; what is not the protocol ends the connection.

mod connection;
mod error;
mod opening;
mod options;
mod pages;
mod reader;
mod reserve;
mod watch;

#[cfg(test)]
mod tests;

use std::rc::Rc;

use base::{Buf, Bytes, Nanos};
use device::Class;
use env::net::{Address, Stream};
use policy::place::{Op as Direction, State};

use crate::net::wire::{DATA_MAX, Request, Response};
use crate::object::error::StoreError;
use crate::ops::{self, Limits, ObjectOps, Pending};
use crate::qos::load_report::ClientTag;
use connection::{Got, Shared};

pub use crate::net::wire::{NodeKey, RefusedKind};
pub use error::ClientError;
pub use options::{ClientOptions, Credentials};

/// A connection to a store. Clones share it; the last one dropped says goodbye, [`Client::close`] waits until the
/// server has heard. It does not reconnect on its own: the writer must know what a break may have cut off.
///
/// # Example
/// See [`crate::net::server::Server`].
#[derive(Clone)]
pub struct Client {
    handle: Rc<Handle>,
}

/// Its drop is the goodbye.
struct Handle(Rc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.say_goodbye();
    }
}

impl Client {
    /// Connects to `address` and opens a session there, with the default options.
    ///
    /// # Errors
    /// [`ClientError`]: no server there, none that speaks this version, credentials refused, too slow.
    pub async fn connect(
        address: &Address,
        credentials: Credentials,
    ) -> Result<Client, ClientError> {
        Client::connect_with(address, credentials, &ClientOptions::default()).await
    }

    /// As [`Client::connect`], with these options.
    ///
    /// # Errors
    /// As for [`Client::connect`].
    pub async fn connect_with(
        address: &Address,
        credentials: Credentials,
        options: &ClientOptions,
    ) -> Result<Client, ClientError> {
        let server = address.to_string();
        let opening = async {
            if address.is_tls() && options.tls.is_none() {
                return Err(ClientError::no_authority(&server));
            }
            let stream = tls::Client::stream(address).await;
            let stream = stream.map_err(|error| ClientError::unreachable(&server, &error))?;
            let tls = options.tls.as_ref().filter(|_| address.is_tls());
            Client::open_over(stream, (&server, tls), credentials, options).await
        };
        match env::timeout(options.opening, opening).await {
            Ok(opened) => opened,
            Err(elapsed) => Err(ClientError::Unreachable {
                server,
                kind: std::io::ErrorKind::TimedOut,
                why: format!("{elapsed} for connecting, hello and credentials"),
            }),
        }
    }

    /// Opens a session over a stream that is there already, in the clear, with no deadline of its own; `server` names the other
    /// side in errors.
    ///
    /// # Errors
    /// As for [`Client::connect`].
    pub async fn open(
        stream: Stream,
        server: &str,
        credentials: Credentials,
        options: &ClientOptions,
    ) -> Result<Client, ClientError> {
        Client::open_over(stream, (server, None), credentials, options).await
    }

    async fn open_over(
        stream: Stream,
        server: (&str, Option<&tls::Client>),
        credentials: Credentials,
        options: &ClientOptions,
    ) -> Result<Client, ClientError> {
        let mut options = options.clone();
        options.data_max = Bytes(options.data_max.0.clamp(4096, u64::from(DATA_MAX)));
        let shared = Shared::open(stream, server, credentials, &options).await?;
        Ok(Client {
            handle: Rc::new(Handle(shared)),
        })
    }

    // --- the other side -----------------------------------------------------------------------------

    /// The store's name.
    pub fn store_name(&self) -> &str {
        &self.shared().opened.name
    }

    /// The store's number.
    pub fn store_uuid(&self) -> u128 {
        self.shared().server.store
    }

    /// The longest write in bytes.
    pub fn write_max(&self) -> u64 {
        self.shared().server.write_max.into()
    }

    /// The longest read in bytes.
    pub fn read_max(&self) -> u64 {
        self.shared().server.data_max.into()
    }

    /// What the session's requests may hold at the server at once; more wait their turn. As it was when this client came.
    pub fn memory(&self) -> Bytes {
        self.shared().opened.memory
    }

    /// How far the server's clock was before this one when the session was opened, in nanoseconds, the way there and
    /// back not taken off.
    pub fn clock_ahead_ns(&self) -> i64 {
        self.shared().clock_ahead_ns
    }

    /// Why the connection ended; `None` while it stands.
    pub fn ended(&self) -> Option<String> {
        self.shared().ended()
    }

    /// Waits until the connection ends; why it did.
    pub async fn over(&self) -> String {
        self.shared().over().await
    }

    /// Says goodbye and waits until the server has heard, or for the timeout. Calls under way are answered first.
    pub async fn close(self) {
        let shared = Rc::clone(self.shared());
        shared.say_goodbye();
        drop(self);
        shared.over().await;
    }

    /// Reads into `buf` without a copy; gives back how much of it was read: less where the object ends before.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Store`] has the store's own.
    pub async fn read_into(
        &self,
        object: &str,
        offset: u64,
        buf: Buf,
    ) -> Result<(usize, Buf), ClientError> {
        let request = ops::Request::Read {
            object: object.to_owned(),
            offset,
            len: buf.len() as u64,
            class: Class::Foreground,
        };
        fits(self, &request)?;
        let shared = self.shared();
        match shared.call(Request::Object(request), Some(buf)).await? {
            Got::Bytes(len, buf) => Ok((len, buf)),
            Got::Response(answer) => Err(shared.unfit(&answer)),
        }
    }

    // --- the connection -------------------------------------------------------------------------------

    /// From now on all of this connection is done under `token`, as [`crate::qos::fence`] says; for its whole life.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if a successor sealed the fence already; else as for [`Client::read_into`].
    pub async fn fence(&self, object: &str, token: u64) -> Result<(), ClientError> {
        let object = object.to_owned();
        self.shared().done(Request::Fence { object, token }).await
    }

    /// As [`crate::qos::session::Session::seal`].
    ///
    /// # Errors
    /// As for [`Client::read_into`].
    pub async fn seal(&self, object: &str, token: u64) -> Result<(), ClientError> {
        let object = object.to_owned();
        self.shared().done(Request::Seal { object, token }).await
    }

    /// Says whose reads and writes come from here on, and asks to hear how long the store's queue is: at once, and beside
    /// answers, at most `every` so often. Answers whether reports will come; a server without them is as good.
    ///
    /// # Errors
    /// As for [`Client::read_into`].
    ///
    /// # Source
    /// COST 3.2 (clients learn cost' and h' of each disk); on answers rather than by multicast alone is ours.
    pub async fn set_client_tag(&self, tag: ClientTag, every: Nanos) -> Result<bool, ClientError> {
        match self
            .shared()
            .answer(Request::ClientTag { tag, every })
            .await
        {
            Ok(Response::State(state)) => {
                let at = env::now();
                if let Some(state) = state {
                    self.shared().state.set(Some(State { at, ..state }));
                }
                Ok(true)
            }
            Ok(other) => Err(self.shared().unfit(&other)),
            Err(ClientError::Refused { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// As [`crate::qos::session::Session::attach_reservations`], for what this connection asks from here on.
    ///
    /// # Errors
    /// As for [`Client::read_into`].
    pub async fn attach_reservations(&self, holder: Option<&str>) -> Result<(), ClientError> {
        let holder = holder.map(str::to_owned);
        self.shared()
            .done(Request::AttachReservation { holder })
            .await
    }

    /// Is the server there?
    ///
    /// # Errors
    /// As for [`Client::read_into`].
    pub async fn ping(&self) -> Result<(), ClientError> {
        self.shared().done(Request::Ping).await
    }

    fn shared(&self) -> &Rc<Shared> {
        &self.handle.0
    }
}

/// After [`ClientError::Lost`] or [`ClientError::Late`] a change may have happened or may yet happen, unless they say that it
/// was not sent; with a [`crate::Condition`] it can be repeated safely.
impl ObjectOps for Client {
    type Error = ClientError;

    fn call(&self, request: ops::Request) -> Pending<'_, ops::Response, ClientError> {
        Box::pin(async move {
            fits(self, &request)?;
            let shared = self.shared();
            match request {
                ops::Request::AllocatedRanges {
                    object,
                    offset,
                    len,
                } => pages::allocated_ranges(shared, &object, offset, len).await,
                ops::Request::Damage {
                    prefix,
                    object,
                    offset,
                    ..
                } => pages::damage(shared, &prefix, object, offset).await,
                request => shared.on_objects(request).await,
            }
        })
    }

    fn limits(&self) -> Limits {
        Limits {
            write_max: self.shared().server.write_max.into(),
            read_max: self.shared().server.data_max.into(),
        }
    }

    fn load(&self) -> Option<State> {
        self.shared().state.get()
    }
}

/// Can it be asked for over a connection?
fn fits(client: &Client, request: &ops::Request) -> Result<(), ClientError> {
    let refuse = |what: &str, why: String| {
        let object = request.object().unwrap_or("");
        Err(ClientError::Store(StoreError::Request {
            what: format!("{what} {object:?} in {}", client.store_name()),
            why,
        }))
    };
    let limits = client.limits();
    match request.transfer() {
        Some((Direction::Write, _, _, len)) if len > limits.write_max => {
            let (len, most) = (Bytes(len), Bytes(limits.write_max));
            let why = format!("{len} are more than the {most} that one write takes; split it");
            return refuse("write", why);
        }
        Some((Direction::Read, _, _, len)) if len > limits.read_max => {
            let (len, most) = (Bytes(len), Bytes(limits.read_max));
            let why = format!("{len} are more than the {most} that travel at once; split it");
            return refuse("read", why);
        }
        _ => {}
    }
    let why = match request.change() {
        Some(change) if change.reservation.is_some() => {
            "a reservation of room is not named from outside: a session writes on its own; connect with its capability"
        }
        Some(change) if change.class != Class::Foreground => {
            "a request from outside goes as its session, not in a class of its own; leave the class as it is"
        }
        _ => return Ok(()),
    };
    refuse("change", why.to_owned())
}
