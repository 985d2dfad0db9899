//! What a client may do with a store, and what was promised to it meanwhile.
//!
//! ```text
//! Access -> open_session -> Session { lane at the queue, scope, direction, part of the buffers } -> Store
//! ```
//!
//! ```text
//! Early     -> Promised   the slot begins
//! Early     -> Over       the reservation is released before its slot
//! Promised  -> Over       the slot ends, or the reservation is released: nothing more is served
//! Open                    nothing was promised, nothing is
//! ```
//!
//! All clients that show the capability of one reservation share one session, so it is promised once. Whatever nothing
//! is promised to is best effort: each such session has a flow of its own at the queue while there are few, and shares
//! one when there are many. A session ends with its last handle.
//!
//! Source: PROBS 3.1 (an access is only reads or only writes; one queue per access), 3.3 (buffer memory in the ratio of the rates).
//!
//! Choice: a grant to write lets its holder look at names, sizes and attributes too, since a client cannot write well
//! without; a grant to read changes nothing.
//!
//! Always true:
//! 1. Only the manager sees or changes an object whose name begins with ".tanada/".
//! 2. Only sessions with the node key see or change what virtual disks consist of ([`CLUSTER`]).
//! 3. A session whose reservation is over does nothing more.
//! 4. A reservation has at most one flow with its promise at the queue.
//! 5. The parts of the buffer memory add up to no more than there is.

mod promise;
pub(crate) mod work;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use base::{Bytes, Nanos};
use device::Class;
use policy::share::calendar::{BookingId, State};
use policy::share::{
    BytesPerSec, Direction, OpenError as Full, Priority, Second, SessionCounters, SessionId, Slot,
    Terms, Windows, split_memory,
};
use serde::{Deserialize, Serialize};

use crate::object::error::StoreError;
use crate::object::types::Change;
use crate::object::types::ReservationId;
use crate::qos::book::{Record, SYSTEM};
use crate::qos::capability::CapabilityError;
use crate::qos::manager::Manager;
use promise::AttachedReservations;

/// Names that begin so are those of virtual disks: extents, maps, dirty bits and guards. For the node key alone.
pub const CLUSTER: [&str; 4] = ["v/", "m/", "d/", "g/"];

/// What a client shows to be let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access<'a> {
    /// The capability of a reservation.
    Capability(&'a str),
    /// The client has proved that it has the node's key. Everything is allowed, nothing promised.
    NodeKey,
    /// Nothing. Everything is allowed where the manager is open to all, else nothing.
    Open,
}

/// Why the client was not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The capability is not good.
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    /// Its reservation is not there (any more).
    #[error(
        "the capability is genuine, but {store} has no reservation {} any more: it was released; reserve anew",
        .reservation.0
    )]
    NoReservation {
        /// The store's name.
        store: String,
        /// The reservation.
        reservation: BookingId,
    },
    /// Its reservation is another, or not yet made.
    #[error(
        "the capability is genuine, but reservation {} of {store} {why}; show the capability that its commit answered",
        .reservation.0
    )]
    OtherReservation {
        /// The store's name.
        store: String,
        /// The reservation.
        reservation: BookingId,
        /// What it is.
        why: &'static str,
    },
    /// Nothing was shown, and that is not enough here.
    #[error(
        "{store} lets in no client without a capability or the node key; reserve to get the one, or configure \
         it to be open (on loopback only)"
    )]
    NotOpen {
        /// The store's name.
        store: String,
    },
    /// No more sessions.
    #[error("cannot open a session at {store}: {source}")]
    Full {
        /// The store's name.
        store: String,
        /// The limit.
        source: Full,
    },
}

/// Why a session did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// Outside of what its capability is for.
    #[error(
        "cannot {what} {object:?}: the capability of reservation {} is for names that begin with {scope:?}; \
         stay within or reserve for more", .reservation.0
    )]
    Scope {
        /// What was asked.
        what: &'static str,
        /// The object, or the prefix of a listing.
        object: String,
        /// The reservation.
        reservation: BookingId,
        /// What it is for.
        scope: String,
    },
    /// The other way than its capability is for.
    #[error(
        "cannot {what} {object:?}: the capability of reservation {} is for {direction}s only; reserve {}s as well",
        .reservation.0, other(*direction)
    )]
    Direction {
        /// What was asked.
        what: &'static str,
        /// The object.
        object: String,
        /// The reservation.
        reservation: BookingId,
        /// What it is for.
        direction: Direction,
    },
    /// The manager's own.
    #[error("cannot {what} {object:?}: names that begin with \".tanada/\" are the store's own")]
    System {
        /// What was asked.
        what: &'static str,
        /// The object.
        object: String,
    },
    /// A part of a virtual disk.
    #[error(
        "cannot {what} {object:?}: names that begin with v/, m/, d/ or g/ are those of virtual disks, for the node \
         key alone; choose another name, or come with --node-key"
    )]
    Cluster {
        /// What was asked.
        what: &'static str,
        /// The object.
        object: String,
    },
    /// The reservation is over.
    #[error(
        "cannot {what} {object:?}: reservation {} is over, and its capability with it; reserve anew",
        .reservation.0
    )]
    Over {
        /// What was asked.
        what: &'static str,
        /// The object.
        object: String,
        /// The reservation.
        reservation: BookingId,
    },
    /// The store could not.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn other(direction: Direction) -> Direction {
    match direction {
        Direction::Read => Direction::Write,
        Direction::Write => Direction::Read,
    }
}

/// Where a session stands; see the module's arrows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Nothing was promised.
    Open,
    /// Its slot has not begun.
    Early,
    /// It is promised its rate.
    Promised,
    /// Its slot is over, or its reservation released: nothing more is served.
    Over,
}

impl Phase {
    /// The name in metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Open => "open",
            Phase::Early => "early",
            Phase::Promised => "promised",
            Phase::Over => "over",
        }
    }
}

/// What a session may and was promised; none of it for clients that may do everything.
struct Terrain {
    reservation: BookingId,
    scope: String,
    direction: Direction,
    rate: BytesPerSec,
    window: Nanos,
    slot: Slot,
}

/// A client's access to a store. Dropping the last handle ends it.
pub struct Session {
    // Fixed.
    manager: Rc<Manager>,
    number: u64,
    holder: String,
    granted: Option<Terrain>,
    /// It came with the node key.
    trusted: bool,
    opened: Second,
    // As it goes.
    phase: Cell<Phase>,
    /// Its flow at the queue; `None`: the one all others share.
    flow: Cell<Option<SessionId>>,
    /// Room its writes are taken from.
    room: Cell<Option<ReservationId>>,
    /// What it got in flows it had before.
    before: Cell<Sums>,
    memory: Cell<Bytes>,
    buffered: Cell<Bytes>,
    /// The requests that wait for more of it.
    waiting: RefCell<VecDeque<u64>>,
    peers: RefCell<Vec<String>>,
    /// Reservations attached to its requests.
    attached: RefCell<Option<AttachedReservations>>,
    /// Whose they are beside others, where nothing is promised.
    priority: Cell<Priority>,
}

/// What a session got.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sums {
    pub delivered: Bytes,
    pub requests: u64,
    pub windows: Windows,
}

impl Sums {
    fn with(mut self, figures: &SessionCounters) -> Sums {
        self.delivered += figures.delivered;
        self.requests += figures.requests;
        self.windows.kept += figures.windows.kept;
        self.windows.no_demand += figures.windows.no_demand;
        self.windows.capacity += figures.windows.capacity;
        self.windows.scheduler += figures.windows.scheduler;
        self
    }
}

/// A connection of a session, as operators see it; gone when dropped.
pub struct Peer {
    session: Rc<Session>,
    name: String,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut peers = self.session.peers.borrow_mut();
        if let Some(at) = peers.iter().position(|name| *name == self.name) {
            peers.remove(at);
        }
    }
}

/// Part of a session's buffer memory in use; given back when dropped.
pub struct Buffered {
    session: Rc<Session>,
    bytes: Bytes,
}

impl Drop for Buffered {
    fn drop(&mut self) {
        let session = &self.session;
        session.buffered.set(session.buffered.get() - self.bytes);
        session.manager.split.notify_all();
    }
}

/// A request that waits for buffer memory of a session.
struct Place<'a> {
    session: &'a Session,
    number: u64,
}

impl Place<'_> {
    fn behind(session: &Session) -> Place<'_> {
        let mut waiting = session.waiting.borrow_mut();
        let number = waiting.back().map_or(0, |last| last + 1);
        waiting.push_back(number);
        Place { session, number }
    }

    fn is_first(&self) -> bool {
        self.session.waiting.borrow().front() == Some(&self.number)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.session.waiting.borrow_mut();
        waiting.retain(|number| *number != self.number);
        drop(waiting);
        self.session.manager.split.notify_all();
    }
}

/// Windows of a promise, by how they ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WindowsReport {
    /// Delivered what was promised.
    pub kept: u64,
    /// Delivered less, because no more was asked for.
    pub no_demand: u64,
    /// Violated: the device did less than it promised to all.
    pub capacity: u64,
    /// Violated: the device did enough, but for others.
    pub scheduler: u64,
}

impl From<Windows> for WindowsReport {
    fn from(windows: Windows) -> WindowsReport {
        WindowsReport {
            kept: windows.kept,
            no_demand: windows.no_demand,
            capacity: windows.capacity,
            scheduler: windows.scheduler,
        }
    }
}

/// A session, for operators and metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionReport {
    /// Its number at this manager.
    pub session: u64,
    /// Its reservation, if it has one.
    pub reservation: Option<u64>,
    /// Its holder.
    pub holder: String,
    /// Objects it may use begin with this.
    pub scope: String,
    /// `read`, `write`, or nothing: both.
    pub direction: Option<String>,
    /// Where it stands.
    pub phase: Phase,
    /// Whose requests they are beside others, where nothing is promised: `low`, `normal` or `high`.
    #[serde(default)]
    pub priority: String,
    /// Bytes per second it is promised now.
    pub promised: u64,
    /// Bytes it got.
    pub delivered_bytes: u64,
    /// Requests it got an answer to.
    pub requests: u64,
    /// Bytes it asked for and has not got.
    pub outstanding_bytes: u64,
    /// The window its promise is judged by, in nanoseconds.
    pub window_ns: u64,
    /// How its windows went.
    pub windows: WindowsReport,
    /// Its part of the buffer memory.
    pub memory_bytes: u64,
    /// Connections it is used by.
    pub peers: Vec<String>,
    /// Seconds since 1970 when it was opened.
    pub opened: u64,
    /// And closed, if it is.
    pub closed: Option<u64>,
}

/// A reservation that has been, for operators and for the book.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedReport {
    /// Its number.
    pub reservation: u64,
    /// Its holder.
    pub holder: String,
    /// `read` or `write`.
    pub direction: String,
    /// Bytes per second promised.
    pub promised: u64,
    /// Its slot, in seconds since 1970.
    pub from: u64,
    /// And its end.
    pub until: u64,
    /// When it ended.
    pub ended: u64,
    /// Why.
    pub why: String,
    /// Bytes delivered.
    pub delivered_bytes: u64,
    /// How its windows went.
    pub windows: WindowsReport,
}

impl Manager {
    /// Lets a client in. All that show the capability of one reservation get the same session.
    ///
    /// # Errors
    /// [`SessionError`]: for each reason one, and it says what to do.
    pub fn open_session(self: &Rc<Self>, access: Access<'_>) -> Result<Rc<Session>, SessionError> {
        let store = || self.store.name().to_owned();
        match access {
            Access::Open if !self.unauthenticated() => {
                Err(SessionError::NotOpen { store: store() })
            }
            Access::Open => Ok(self.enter("", None, Phase::Open, false)?),
            Access::NodeKey => Ok(self.enter("node key", None, Phase::Open, true)?),
            Access::Capability(token) => {
                let (now, skew) = (self.now(), self.options.skew);
                let grant = self.keys().verify(token, self.uuid(), now, skew)?;
                let id = grant.reservation;
                let record = self.records.borrow().get(&id).cloned();
                let Some(record) = record else {
                    let ended = grant.slot.end;
                    return Err(match now.0.checked_sub(ended.0) {
                        Some(ago) => SessionError::Capability(CapabilityError::Expired {
                            reservation: id,
                            ended,
                            now,
                            ago,
                            skew,
                        }),
                        None => SessionError::NoReservation {
                            store: store(),
                            reservation: id,
                        },
                    });
                };
                let refuse = |why| SessionError::OtherReservation {
                    store: store(),
                    reservation: id,
                    why,
                };
                if self.grant(&record) != grant {
                    return Err(refuse("is another"));
                }
                if record.state != State::Committed {
                    return Err(refuse("is only held"));
                }
                let open = self.open_sessions();
                match open.into_iter().find(|it| it.reservation() == Some(id)) {
                    Some(session) => Ok(session),
                    None => self.enter_granted(&record, now),
                }
            }
        }
    }

    pub(crate) fn enter_granted(
        self: &Rc<Self>,
        record: &Record,
        now: Second,
    ) -> Result<Rc<Session>, SessionError> {
        let contract = &record.contract;
        let granted = Terrain {
            reservation: record.id,
            scope: record.scope.clone(),
            direction: contract.direction,
            rate: contract.rate,
            window: contract.window,
            slot: contract.slot,
        };
        let phase = match contract.slot {
            slot if now < slot.start => Phase::Early,
            slot if now < slot.end => Phase::Promised,
            _ => Phase::Over,
        };
        let session = self.enter(&record.holder, Some(granted), phase, false)?;
        session.room.set(record.room);
        Ok(session)
    }

    fn enter(
        self: &Rc<Self>,
        holder: &str,
        granted: Option<Terrain>,
        phase: Phase,
        trusted: bool,
    ) -> Result<Rc<Session>, SessionError> {
        let session = Rc::new(Session {
            manager: Rc::clone(self),
            number: self.next_session(),
            holder: holder.to_owned(),
            granted,
            trusted,
            opened: self.now(),
            phase: Cell::new(phase),
            flow: Cell::new(None),
            room: Cell::new(None),
            before: Cell::default(),
            memory: Cell::new(Bytes(0)),
            buffered: Cell::new(Bytes(0)),
            waiting: RefCell::default(),
            peers: RefCell::default(),
            attached: RefCell::default(),
            priority: Cell::default(),
        });
        session.open_flow().map_err(|source| SessionError::Full {
            store: self.store.name().to_owned(),
            source,
        })?;
        let weak = Rc::downgrade(&session);
        self.sessions.borrow_mut().insert(session.number, weak);
        self.split_buffers();
        Ok(session)
    }

    /// Splits the buffer memory among the open sessions.
    pub(crate) fn split_buffers(&self) {
        let open = self.open_sessions();
        if open.is_empty() {
            return;
        }
        let total = self.options.memory;
        // One longest write, unless there are so many that this would leave nothing to split by rates.
        let floor = Bytes(
            self.store
                .write_max()
                .min(total.0 / (2 * open.len() as u64)),
        );
        let rates: Vec<BytesPerSec> = open.iter().map(|it| it.promised()).collect();
        let parts = split_memory(total, floor, &rates).expect("floors take half at most");
        for (session, part) in open.iter().zip(parts) {
            session.memory.set(part);
        }
        self.split.notify_all();
    }
}

impl Session {
    /// Its number at this manager.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The manager it is at.
    pub fn manager(&self) -> &Rc<Manager> {
        &self.manager
    }

    /// Its reservation, if it has one.
    pub fn reservation(&self) -> Option<BookingId> {
        self.granted.as_ref().map(|it| it.reservation)
    }

    /// Whose it is, for sentences.
    pub(crate) fn holder_and_number(&self) -> String {
        let number = self.reservation().map_or(0, |id| id.0);
        match self.holder.is_empty() {
            true => format!("number {number}"),
            false => format!("{:?} (number {number})", self.holder),
        }
    }

    /// Where it stands.
    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Whose its requests to the device are.
    pub fn class(&self) -> Class {
        match self.flow.get() {
            Some(flow) => Class::Session(flow.0),
            None => Class::Foreground,
        }
    }

    /// Its part of the buffer memory, as of now.
    pub fn memory(&self) -> Bytes {
        self.memory.get()
    }

    /// What it is promised now.
    pub fn promised(&self) -> BytesPerSec {
        match (&self.granted, self.phase.get()) {
            (Some(granted), Phase::Promised) => granted.rate,
            _ => BytesPerSec(0),
        }
    }

    /// Waits for `bytes` of its buffer memory, first come, first served. What is longer than its part is let through
    /// alone.
    pub async fn buffer(self: &Rc<Self>, bytes: Bytes) -> Buffered {
        let place = Place::behind(self);
        loop {
            let used = self.buffered.get();
            if place.is_first() && (used.0 == 0 || used + bytes <= self.memory.get()) {
                self.buffered.set(used + bytes);
                return Buffered {
                    session: Rc::clone(self),
                    bytes,
                };
            }
            self.manager.split.wait().await;
        }
    }

    /// A connection uses it, as long as the answer lives.
    pub fn joined(self: &Rc<Self>, peer: &str) -> Peer {
        self.peers.borrow_mut().push(peer.to_owned());
        Peer {
            session: Rc::clone(self),
            name: peer.to_owned(),
        }
    }

    // --- its flow at the queue --------------------------------------------------------------------

    /// Takes the flow that its phase gives it, and leaves the one it had.
    fn open_flow(&self) -> Result<(), Full> {
        self.leave_line();
        let queue = &self.manager.queue;
        let best_effort_max = self.manager.options.queue.share.limits.sessions_max / 2;
        let flow = match (&self.granted, self.phase.get()) {
            (Some(granted), Phase::Promised) => Some(queue.open(Terms {
                window: Some(granted.window),
                ..Terms::reserved(granted.direction, granted.rate)
            })?),
            // Half of the flows are for promises.
            _ if queue.totals().open >= best_effort_max => None,
            _ => {
                let terms = Terms {
                    priority: self.priority.get(),
                    ..Terms::best_effort()
                };
                queue.open(terms).ok()
            }
        };
        if let (Some(flow), Phase::Promised, Some(id)) =
            (flow, self.phase.get(), self.reservation())
        {
            self.manager.flows.borrow_mut().insert(flow, id);
        }
        self.flow.set(flow);
        Ok(())
    }

    /// Lets its requests have this priority from here on, where nothing is promised. What waits is done all the same.
    pub fn prefer(&self, priority: Priority) {
        if self.priority.replace(priority) != priority && self.promised().0 == 0 {
            self.open_flow().expect("best effort always finds a flow");
        }
    }

    fn leave_line(&self) {
        if let Some(flow) = self.flow.take()
            && let Some(closed) = self.manager.queue.close(flow)
        {
            self.before.set(self.before.get().with(&closed.figures));
            // What was broken at the end must find whose it was.
            self.manager.take_events();
            self.manager.flows.borrow_mut().remove(&flow);
        }
    }

    /// Its slot began or ended by now, perhaps.
    pub(crate) fn look_at(&self, now: Second) {
        let Some(granted) = &self.granted else { return };
        match self.phase.get() {
            Phase::Early if granted.slot.start <= now && now < granted.slot.end => {
                self.phase.set(Phase::Promised);
                if let Err(error) = self.open_flow() {
                    tracing::warn!(session = self.number, %error, "a promise finds no line");
                    self.phase.set(Phase::Early);
                    return;
                }
                self.manager.split_buffers();
            }
            Phase::Early | Phase::Promised if granted.slot.end <= now => {
                self.lose_promise("its time is out");
            }
            _ => {}
        }
    }

    /// Its reservation is over: it is promised nothing, and does nothing more.
    pub(crate) fn lose_promise(&self, why: &'static str) {
        if matches!(self.phase.get(), Phase::Open | Phase::Over) {
            return;
        }
        self.room.set(None);
        self.phase.set(Phase::Over);
        self.open_flow().expect("best effort always finds a flow");
        self.manager.note_over(self, why);
        self.manager.split_buffers();
        self.manager.revoked.notify_all();
    }

    /// The figures of all its flows.
    pub(crate) fn sums(&self) -> (Sums, Bytes) {
        let before = self.before.get();
        let figures = self
            .flow
            .get()
            .and_then(|flow| self.manager.queue.figures(flow));
        match figures {
            Some(figures) => (before.with(&figures), figures.outstanding),
            None => (before, Bytes(0)),
        }
    }

    /// For operators and metrics.
    pub fn report(&self) -> SessionReport {
        let (sums, outstanding) = self.sums();
        let granted = self.granted.as_ref();
        SessionReport {
            session: self.number,
            reservation: self.reservation().map(|id| id.0),
            holder: self.holder.clone(),
            scope: granted.map_or(String::new(), |it| it.scope.clone()),
            direction: granted.map(|it| it.direction.name().to_owned()),
            phase: self.phase.get(),
            priority: self.priority.get().name().to_owned(),
            promised: self.promised().0,
            delivered_bytes: sums.delivered.0,
            requests: sums.requests,
            outstanding_bytes: outstanding.0,
            window_ns: granted.map_or(0, |it| it.window.0),
            windows: sums.windows.into(),
            memory_bytes: self.memory.get().0,
            peers: self.peers.borrow().clone(),
            opened: self.opened.0,
            closed: None,
        }
    }

    // --- what it may --------------------------------------------------------------------------------

    pub(crate) fn may(
        &self,
        what: &'static str,
        object: &str,
        direction: Option<Direction>,
    ) -> Result<(), OperationError> {
        if object.starts_with(SYSTEM) {
            let object = object.to_owned();
            return Err(OperationError::System { what, object });
        }
        if self.hides(object) {
            let object = object.to_owned();
            return Err(OperationError::Cluster { what, object });
        }
        self.goes_on(what, object)?;
        let Some(granted) = &self.granted else {
            return Ok(());
        };
        if !object.starts_with(&granted.scope) {
            return Err(OperationError::Scope {
                what,
                object: object.to_owned(),
                reservation: granted.reservation,
                scope: granted.scope.clone(),
            });
        }
        if direction.is_some_and(|direction| direction != granted.direction) {
            return Err(OperationError::Direction {
                what,
                object: object.to_owned(),
                reservation: granted.reservation,
                direction: granted.direction,
            });
        }
        Ok(())
    }

    /// Is the name one of a virtual disk's, and this no session that may see it?
    fn hides(&self, object: &str) -> bool {
        !self.trusted && CLUSTER.iter().any(|prefix| object.starts_with(prefix))
    }

    /// The prefix for which a listing leaves the name out.
    fn hidden(&self, object: &str) -> Option<&'static str> {
        let cluster = CLUSTER.iter().copied().filter(|_| !self.trusted);
        let mut prefixes = cluster.chain([SYSTEM]);
        prefixes.find(|prefix| object.starts_with(prefix))
    }

    /// May it do anything at all still?
    fn goes_on(&self, what: &'static str, object: &str) -> Result<(), OperationError> {
        match &self.granted {
            Some(granted) if self.phase.get() == Phase::Over => Err(OperationError::Over {
                what,
                object: object.to_owned(),
                reservation: granted.reservation,
            }),
            _ => Ok(()),
        }
    }

    fn change(&self, change: Change) -> Change {
        Change {
            class: self.class_of(Direction::Write),
            reservation: self.room.get(),
            ..change
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.leave_line();
        self.manager.sessions.borrow_mut().remove(&self.number);
        self.manager.note_closed(self);
        self.manager.split_buffers();
    }
}
