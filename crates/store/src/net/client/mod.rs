//! A store somewhere else, used as if it were here.
//!
//! ```text
//! call -> slot (id) -> outgoing -> writer: one vectored send
//!           ^ answer <- reader: headers, fields, data straight into the caller's buffer
//!           ^ late or lost <- watch: pings, deadlines
//! ```
//!
//! Many calls may be under way at once; answers come in any order, and so may the store carry requests out: what
//! must come after something is asked when that was answered. A [`Client::flush`] makes durable what was answered
//! before it was called.
//!
//! Always true:
//! 1. Each call gets exactly one answer: the store's, or why there is none and whether the request was sent.
//! 2. A call dropped half-way keeps its place and its buffer until the server has answered.
//! 3. Every byte a server sends is checked as a server checks a client's; what is not the protocol ends the connection.

mod connection;
mod error;

#[cfg(test)]
mod tests;

use std::rc::Rc;

use base::{Buf, Bytes, Nanos, View};
use device::Class;
use env::net::{Address, Stream};
use policy::place::State;
use policy::share::Second;
use policy::share::calendar::BookingId;

use crate::net::wire::{DATA_MAX, Op, Request, Response};
use crate::object::damage::Damage;
use crate::object::error::StoreError;
use crate::object::types::{AllocatedRange, Change, Listing, SpaceFigures, Stat, Version};
use crate::qos::load_report::ClientTag;
use crate::qos::manager::{Decision, Group, ReservationRequest, Reserved};
use connection::{Got, Shared};

pub use crate::net::wire::{NodeKey, RefusedKind};
pub use error::ClientError;

/// How a client comes in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Without any: only to a store that was opened so, on this machine.
    Open,
    /// With the key that the cluster's nodes share; it is never sent.
    NodeKey([u8; 32]),
    /// With the capability of a reservation; a listener on the connection can read it.
    Capability(String),
}

/// How long a client waits, and how much it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientOptions {
    /// For connecting, hello and credentials.
    pub opening: Nanos,
    /// For one answer, waiting for its turn included; noticed at most a quarter late. A server of which nothing at all
    /// is heard for so long, pings unanswered too, is given up.
    pub timeout: Nanos,
    /// Longest data of one answer.
    pub data_max: Bytes,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            opening: Nanos::secs(10),
            timeout: Nanos::secs(30),
            data_max: Bytes::mib(16),
        }
    }
}

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
            let stream = Stream::connect(address).await;
            let stream = stream.map_err(|error| ClientError::unreachable(&server, &error))?;
            Client::open(stream, &server, credentials, options).await
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

    /// Opens a session over a stream that is there already, with no deadline of its own; `server` names the other side in
    /// errors.
    ///
    /// # Errors
    /// As for [`Client::connect`].
    pub async fn open(
        stream: Stream,
        server: &str,
        credentials: Credentials,
        options: &ClientOptions,
    ) -> Result<Client, ClientError> {
        let mut options = *options;
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

    // --- objects ------------------------------------------------------------------------------------

    /// As [`crate::Store::create`].
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Store`] has the store's own.
    pub async fn create(
        &self,
        object: &str,
        attributes: &[(&str, &[u8])],
        change: Change,
    ) -> Result<Version, ClientError> {
        let pairs = attributes.iter();
        let owned = pairs.map(|(name, value)| ((*name).to_owned(), value.to_vec()));
        self.version(
            Request::Create {
                object: object.to_owned(),
                attributes: owned.collect(),
                change: self.checked(object, change)?,
            },
            None,
        )
        .await
    }

    /// As [`crate::Store::write`]. The data are sent from where they are, without a copy.
    ///
    /// # Errors
    /// As for [`Client::create`]. After [`ClientError::Lost`] or [`ClientError::Late`] the write may have happened or
    /// may yet happen, unless they say that it was not sent; with a [`crate::Condition`] it can be repeated safely.
    pub async fn write(
        &self,
        object: &str,
        offset: u64,
        data: View,
        change: Change,
    ) -> Result<Version, ClientError> {
        let most = self.write_max();
        if data.len() as u64 > most {
            return Err(self.request(
                "write",
                object,
                format!(
                    "{} are more than the {} that one write takes; split it",
                    Bytes(data.len() as u64),
                    Bytes(most)
                ),
            ));
        }
        let request = Request::Write {
            object: object.to_owned(),
            offset,
            change: self.checked(object, change)?,
        };
        self.version(request, Some(data)).await
    }

    /// As [`crate::Store::read`], as far as one frame holds: at most [`Client::read_max`] bytes.
    ///
    /// # Errors
    /// As for [`Client::create`].
    pub async fn read(&self, object: &str, offset: u64, len: u64) -> Result<Buf, ClientError> {
        let request = self.read_request(object, offset, len)?;
        match self.shared().call(request, None, None).await? {
            Got::Bytes(_, buf) => Ok(buf),
            Got::Response(answer) => Err(self.unfit(&answer)),
        }
    }

    /// Reads into `buf` without a copy; gives back how much of it was read: less where the object ends before.
    ///
    /// # Errors
    /// As for [`Client::create`].
    pub async fn read_into(
        &self,
        object: &str,
        offset: u64,
        buf: Buf,
    ) -> Result<(usize, Buf), ClientError> {
        let request = self.read_request(object, offset, buf.len() as u64)?;
        match self.shared().call(request, None, Some(buf)).await? {
            Got::Bytes(len, buf) => Ok((len, buf)),
            Got::Response(answer) => Err(self.unfit(&answer)),
        }
    }

    fn read_request(&self, object: &str, offset: u64, len: u64) -> Result<Request, ClientError> {
        let most = self.read_max();
        if len > most {
            let why = format!(
                "{} are more than the {} that travel at once; split it",
                Bytes(len),
                Bytes(most)
            );
            return Err(self.request("read", object, why));
        }
        Ok(Request::Read {
            object: object.to_owned(),
            offset,
            len: len as u32,
        })
    }

    /// As [`crate::Store::truncate`].
    ///
    /// # Errors
    /// As for [`Client::write`].
    pub async fn truncate(
        &self,
        object: &str,
        size: u64,
        change: Change,
    ) -> Result<Version, ClientError> {
        let request = Request::Truncate {
            object: object.to_owned(),
            size,
            change: self.checked(object, change)?,
        };
        self.version(request, None).await
    }

    /// As [`crate::Store::punch`].
    ///
    /// # Errors
    /// As for [`Client::write`].
    pub async fn punch(
        &self,
        object: &str,
        offset: u64,
        len: u64,
        change: Change,
    ) -> Result<Version, ClientError> {
        let request = Request::Punch {
            object: object.to_owned(),
            offset,
            len,
            change: self.checked(object, change)?,
        };
        self.version(request, None).await
    }

    /// As [`crate::Store::delete`].
    ///
    /// # Errors
    /// As for [`Client::write`].
    pub async fn delete(&self, object: &str, change: Change) -> Result<(), ClientError> {
        let request = Request::Delete {
            object: object.to_owned(),
            change: self.checked(object, change)?,
        };
        self.done(request).await
    }

    /// As [`crate::Store::rename`].
    ///
    /// # Errors
    /// As for [`Client::write`].
    pub async fn rename(
        &self,
        object: &str,
        to: &str,
        replace: bool,
        change: Change,
    ) -> Result<Version, ClientError> {
        let request = Request::Rename {
            object: object.to_owned(),
            to: to.to_owned(),
            replace,
            change: self.checked(object, change)?,
        };
        self.version(request, None).await
    }

    /// As [`crate::Store::list`]; a part may hold fewer than `most` although there are more; `next` says so.
    ///
    /// # Errors
    /// As for [`Client::create`].
    pub async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<Listing, ClientError> {
        let request = Request::List {
            prefix: prefix.to_owned(),
            after: after.map(str::to_owned),
            most: u32::try_from(most).unwrap_or(u32::MAX),
        };
        match self.answer(request, None).await? {
            Response::Listing(listing) => Ok(listing),
            other => Err(self.unfit(&other)),
        }
    }

    /// Stretches of objects whose names begin so that the store knows to be damaged: found by scrubs and reads, and not written
    /// since. Servers of an earlier version refuse.
    ///
    /// # Errors
    /// As for [`Client::create`].
    pub async fn damage(&self, prefix: &str) -> Result<Vec<Damage>, ClientError> {
        let mut all: Vec<Damage> = Vec::new();
        loop {
            let (object, offset) = match all.last() {
                Some(last) => (last.object.clone(), last.offset.saturating_add(last.len)),
                None => (String::new(), 0),
            };
            let request = Request::Damage {
                prefix: prefix.to_owned(),
                object,
                offset,
            };
            let (part, more) = match self.answer(request, None).await? {
                Response::Damage { damage, more } => (damage, more),
                other => return Err(self.unfit(&other)),
            };
            let ends = part.is_empty();
            for one in part {
                if all.last().is_some_and(|last| *last >= one) || one.len == 0 {
                    let why = "the damage it tells of is in no order".to_owned();
                    return Err(self.shared().broken(why));
                }
                all.push(one);
            }
            if !more || ends {
                return Ok(all);
            }
        }
    }

    /// As [`crate::Store::attributes`].
    ///
    /// # Errors
    /// As for [`Client::create`].
    pub async fn attributes(&self, object: &str) -> Result<Vec<(String, Vec<u8>)>, ClientError> {
        let object = object.to_owned();
        match self.answer(Request::Attributes { object }, None).await? {
            Response::Attributes(attributes) => Ok(attributes),
            other => Err(self.unfit(&other)),
        }
    }

    /// As [`crate::Store::set_attributes`].
    ///
    /// # Errors
    /// As for [`Client::write`].
    pub async fn set_attributes(
        &self,
        object: &str,
        changes: &[(&str, Option<&[u8]>)],
        change: Change,
    ) -> Result<Version, ClientError> {
        let pairs = changes.iter();
        let owned = pairs.map(|(name, value)| ((*name).to_owned(), value.map(<[u8]>::to_vec)));
        let request = Request::SetAttributes {
            object: object.to_owned(),
            changes: owned.collect(),
            change: self.checked(object, change)?,
        };
        self.version(request, None).await
    }

    /// As [`crate::Store::stat`].
    ///
    /// # Errors
    /// As for [`Client::create`].
    pub async fn stat(&self, object: &str) -> Result<Stat, ClientError> {
        let object = object.to_owned();
        match self.answer(Request::Stat { object }, None).await? {
            Response::Stat(stat) => Ok(stat),
            other => Err(self.unfit(&other)),
        }
    }

    /// As [`crate::Store::allocated_ranges`]. A long stretch takes several requests, between which the object may change: what
    /// changed has a later version then.
    ///
    /// # Errors
    /// As for [`Client::create`].
    pub async fn allocated_ranges(
        &self,
        object: &str,
        offset: u64,
        len: u64,
    ) -> Result<Vec<AllocatedRange>, ClientError> {
        let end = offset.saturating_add(len);
        let mut all: Vec<AllocatedRange> = Vec::new();
        let mut from = offset;
        loop {
            let request = Request::AllocatedRanges {
                object: object.to_owned(),
                offset: from,
                len: end - from,
            };
            let (part, more) = match self.answer(request, None).await? {
                Response::AllocatedRanges {
                    allocated_ranges,
                    more,
                } => (allocated_ranges, more),
                other => return Err(self.unfit(&other)),
            };
            for range in part {
                if range.offset != from || range.len == 0 || range.len > end - from {
                    let why = "the extents it tells of leave gaps or overlap".to_owned();
                    return Err(self.shared().broken(why));
                }
                from += range.len;
                match all.last_mut() {
                    Some(last) if last.data == range.data && last.version == range.version => {
                        last.len += range.len;
                    }
                    _ => all.push(range),
                }
            }
            if !more || from == end {
                return Ok(all);
            }
        }
    }

    /// As [`crate::Store::flush`].
    ///
    /// # Errors
    /// As for [`Client::write`].
    pub async fn flush(&self) -> Result<(), ClientError> {
        self.done(Request::Flush).await
    }

    /// As [`crate::Store::space`].
    ///
    /// # Errors
    /// As for [`Client::create`].
    pub async fn space(&self) -> Result<SpaceFigures, ClientError> {
        match self.answer(Request::Space, None).await? {
            Response::Space(space) => Ok(space),
            other => Err(self.unfit(&other)),
        }
    }

    /// From now on all of this connection is done under `token`, as [`crate::qos::fence`] says; for its whole life.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if a successor sealed the fence already; else as for [`Client::create`].
    pub async fn fence(&self, object: &str, token: u64) -> Result<(), ClientError> {
        let object = object.to_owned();
        self.done(Request::Fence { object, token }).await
    }

    /// As [`crate::qos::session::Session::seal`].
    ///
    /// # Errors
    /// As for [`Client::write`].
    pub async fn seal(&self, object: &str, token: u64) -> Result<(), ClientError> {
        let object = object.to_owned();
        self.done(Request::Seal { object, token }).await
    }

    /// Says whose reads and writes come from here on, and asks to hear how long the store's queue is: at once, and beside
    /// answers, at most `every` so often. Answers whether reports will come; a server without them is as good.
    ///
    /// # Errors
    /// As for [`Client::create`].
    ///
    /// # Source
    /// COST 3.2 (clients learn cost' and h' of each disk); on answers rather than by multicast alone is ours.
    pub async fn set_client_tag(&self, tag: ClientTag, every: Nanos) -> Result<bool, ClientError> {
        match self.answer(Request::ClientTag { tag, every }, None).await {
            Ok(Response::State(state)) => {
                let at = env::now();
                if let Some(state) = state {
                    self.shared().state.set(Some(State { at, ..state }));
                }
                Ok(true)
            }
            Ok(other) => Err(self.unfit(&other)),
            Err(ClientError::Refused { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// As [`crate::qos::session::Session::attach_reservations`], for what this connection asks from here on.
    ///
    /// # Errors
    /// As for [`Client::create`].
    pub async fn attach_reservations(&self, holder: Option<&str>) -> Result<(), ClientError> {
        let holder = holder.map(str::to_owned);
        self.done(Request::AttachReservation { holder }).await
    }

    /// How long the store's queue was when that was last heard.
    pub fn state(&self) -> Option<State> {
        self.shared().state.get()
    }

    /// Is the server there?
    ///
    /// # Errors
    /// As for [`Client::create`].
    pub async fn ping(&self) -> Result<(), ClientError> {
        self.done(Request::Ping).await
    }

    // --- reservations, with the node key --------------------------------------------------------------

    /// As [`crate::qos::manager::Manager::offer`].
    ///
    /// # Errors
    /// [`ClientError::Refused`] with what would fit; else as for [`Client::create`].
    pub async fn offer(&self, wanted: &ReservationRequest) -> Result<(), ClientError> {
        self.done(Request::Offer(wanted.clone())).await
    }

    /// As [`crate::qos::manager::Manager::hold`].
    ///
    /// # Errors
    /// As for [`Client::offer`].
    pub async fn hold(
        &self,
        wanted: &ReservationRequest,
        group: Option<Group>,
        until: Second,
    ) -> Result<BookingId, ClientError> {
        let request = Request::Hold {
            wanted: wanted.clone(),
            group,
            until,
        };
        match self.answer(request, None).await? {
            Response::Booking(id) => Ok(id),
            other => Err(self.unfit(&other)),
        }
    }

    /// As [`crate::qos::manager::Manager::commit`]: the capability.
    ///
    /// # Errors
    /// As for [`Client::create`].
    pub async fn commit(&self, id: BookingId) -> Result<String, ClientError> {
        match self.answer(Request::Commit(id), None).await? {
            Response::Capability(Some(token)) => Ok(token),
            other => Err(self.unfit(&other)),
        }
    }

    /// As [`crate::qos::manager::Manager::release`].
    ///
    /// # Errors
    /// As for [`Client::create`].
    pub async fn release(&self, id: BookingId) -> Result<(), ClientError> {
        self.done(Request::Release(id)).await
    }

    /// As [`crate::qos::manager::Manager::capability`].
    ///
    /// # Errors
    /// As for [`Client::create`].
    pub async fn capability(&self, id: BookingId) -> Result<Option<String>, ClientError> {
        match self.answer(Request::Capability(id), None).await? {
            Response::Capability(token) => Ok(token),
            other => Err(self.unfit(&other)),
        }
    }

    /// As [`crate::qos::manager::Manager::reservations`].
    ///
    /// # Errors
    /// As for [`Client::create`].
    pub async fn reservations(&self) -> Result<Vec<Reserved>, ClientError> {
        let mut all: Vec<Reserved> = Vec::new();
        loop {
            let after = all.last().map(|last| last.id);
            match self.answer(Request::Reservations { after }, None).await? {
                Response::Reservations { reservations, more } => {
                    let more = more && !reservations.is_empty();
                    all.extend(reservations);
                    if !more {
                        return Ok(all);
                    }
                }
                other => return Err(self.unfit(&other)),
            }
        }
    }

    /// As [`crate::qos::manager::Manager::undecided`].
    ///
    /// # Errors
    /// As for [`Client::create`].
    pub async fn undecided(&self) -> Result<Vec<(BookingId, Group)>, ClientError> {
        match self.answer(Request::Undecided, None).await? {
            Response::Undecided(parts) => Ok(parts),
            other => Err(self.unfit(&other)),
        }
    }

    /// As [`crate::qos::manager::Manager::decision`].
    ///
    /// # Errors
    /// As for [`Client::create`].
    pub async fn decision(&self, group: u128) -> Result<Decision, ClientError> {
        match self.answer(Request::Decision { group }, None).await? {
            Response::Decision(decision) => Ok(decision),
            other => Err(self.unfit(&other)),
        }
    }

    /// As [`crate::qos::manager::Manager::decide`].
    ///
    /// # Errors
    /// As for [`Client::create`].
    pub async fn decide(&self, id: BookingId, decision: Decision) -> Result<(), ClientError> {
        self.done(Request::Decide { id, decision }).await
    }

    /// How the manager is ([`crate::qos::manager::ManagerReport`]), as JSON.
    ///
    /// # Errors
    /// As for [`Client::create`].
    pub async fn report(&self) -> Result<serde_json::Value, ClientError> {
        let answer = self.answer(Request::Report, None).await?;
        let Response::Data(json) = &answer else {
            return Err(self.unfit(&answer));
        };
        serde_json::from_slice(json).map_err(|error| {
            self.shared()
                .broken(format!("its report is no JSON ({error})"))
        })
    }

    // --- calls --------------------------------------------------------------------------------------

    fn shared(&self) -> &Rc<Shared> {
        &self.handle.0
    }

    fn request(&self, what: &str, object: &str, why: String) -> ClientError {
        ClientError::Store(StoreError::Request {
            what: format!("{what} {object:?} in {}", self.store_name()),
            why,
        })
    }

    fn checked(&self, object: &str, change: Change) -> Result<Change, ClientError> {
        let why = match (change.reservation, change.class) {
            (Some(_), _) => {
                "a reservation of room is not named from outside: a session writes on its own; connect with its capability"
            }
            (None, Class::Foreground) => return Ok(change),
            (None, _) => {
                "a request from outside goes as its session, not in a class of its own; leave the class as it is"
            }
        };
        Err(self.request("change", object, why.to_owned()))
    }

    async fn answer(&self, request: Request, data: Option<View>) -> Result<Response, ClientError> {
        match self.shared().call(request, data, None).await? {
            Got::Response(answer) => Ok(answer),
            Got::Bytes(_, buf) => Ok(Response::Data(buf.freeze())),
        }
    }

    async fn version(&self, request: Request, data: Option<View>) -> Result<Version, ClientError> {
        match self.answer(request, data).await? {
            Response::Version(version) => Ok(version),
            other => Err(self.unfit(&other)),
        }
    }

    async fn done(&self, request: Request) -> Result<(), ClientError> {
        match self.answer(request, None).await? {
            Response::Done => Ok(()),
            other => Err(self.unfit(&other)),
        }
    }

    /// Answers are decoded by what was asked, so that one of another shape is the server's mistake.
    fn unfit(&self, answer: &Response) -> ClientError {
        self.shared().broken(format!(
            "its answer is not one to what was asked: {answer:?}"
        ))
    }
}

/// What a request was, for errors.
fn in_words(request: &Request, data: Option<&View>) -> String {
    let data = data.map_or(0, |data| data.len() as u64);
    let op = request.op().name();
    match request {
        Request::Write { object, offset, .. } => {
            format!("{op} {} at byte {offset} of {object:?}", Bytes(data))
        }
        Request::Read {
            object,
            offset,
            len,
        } => {
            let len = Bytes(u64::from(*len));
            format!("{op} {len} at byte {offset} of {object:?}")
        }
        Request::Create { object, .. }
        | Request::Truncate { object, .. }
        | Request::Punch { object, .. }
        | Request::Delete { object, .. }
        | Request::Rename { object, .. }
        | Request::Attributes { object }
        | Request::SetAttributes { object, .. }
        | Request::Stat { object }
        | Request::AllocatedRanges { object, .. }
        | Request::Fence { object, .. }
        | Request::Seal { object, .. } => format!("{op} {object:?}"),
        Request::List { prefix, .. } | Request::Damage { prefix, .. } => format!("{op} {prefix:?}"),
        _ => op.to_owned(),
    }
}

/// May it be repeated whatever became of it?
fn changes_nothing(op: Op) -> bool {
    matches!(
        op,
        Op::Open
            | Op::Ping
            | Op::ClientTag
            | Op::AttachReservation
            | Op::Fence
            | Op::Read
            | Op::List
            | Op::Attributes
            | Op::Stat
            | Op::AllocatedRanges
            | Op::Damage
            | Op::Space
            | Op::Offer
            | Op::Reservations
            | Op::Capability
            | Op::Undecided
            | Op::Decision
            | Op::Report
    )
}
