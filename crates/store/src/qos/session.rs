//! What a client may do with a store, and what was promised to it meanwhile.
//!
//! ```text
//! Access -> open_session -> Session { lane at the queue, scope, direction, part of the buffers } -> Store
//! ```
//!
//! - `table` the sessions of a manager; `access` which client is let in; `accounts` whose they are.
//! - `rights` what a session may in which phase; `work` what it does; `fence` refuses a writer that was replaced.
//! - `flow`, `promise` by which flow it is served; `flowed` a device that is used so; `buffers` its memory.
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

mod access;
mod accounts;
mod buffers;
mod error;
pub mod fence;
pub mod fenced;
mod flow;
mod flowed;
mod link;
mod peer;
mod promise;
mod report;
mod rights;
pub(crate) mod table;
pub(crate) mod work;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Bytes, Instant};
use device::{Class, ThrottleUser};
use policy::place::State;
use policy::share::calendar::BookingId;
use policy::share::{BytesPerSec, Direction, OpenError as Full, Priority, Second};

use crate::object::types::Change;
use crate::object::types::ReservationId;
use crate::qos::book::record::Record;
use crate::qos::state::Core;
use crate::qos::state::bookings::Whose;
use crate::qos::state::log::Logged;
use accounts::Named;
use buffers::Buffers;
use fence::Fence;
use flow::Flow;
use promise::AttachedReservations;
use rights::Granted;
use table::Sessions;

pub use crate::qos::book::record::{EndedReport, WindowsReport};
pub use access::{Access, SessionError};
pub use error::OperationError;
pub use flowed::Flowed;
pub use peer::Peer;
pub use report::{DeliveryReport, SessionReport};
pub use rights::{CLUSTER, Phase};

/// A client's access to a store. Dropping the last handle ends it.
pub struct Session {
    // Fixed.
    manager: Rc<Core>,
    sessions: Rc<Sessions>,
    number: u64,
    holder: String,
    /// By its reservation, which an amendment may have replaced.
    granted: RefCell<Option<Rc<Granted>>>,
    /// It came with the node key.
    trusted: bool,
    paying: Paying,
    opened: Second,
    // As it goes.
    phase: Cell<Phase>,
    flow: Flow,
    /// Room its writes are taken from.
    room: Cell<Option<ReservationId>>,
    buffers: Buffers,
    peers: RefCell<Vec<String>>,
    /// Reservations attached to its requests.
    attached: RefCell<Option<AttachedReservations>>,
    used: Used,
}

/// For whom a session is served where nothing is promised.
struct Paying {
    /// Whose requests they are beside others.
    account: RefCell<Rc<Named>>,
    /// What its account gets at most, where it has one and comes in for itself.
    cap: Option<ThrottleUser>,
}

/// What became of a session so far.
#[derive(Default)]
struct Used {
    /// A client showed the reservation's capability.
    shown: Cell<bool>,
    /// When something was asked last, by the steady clock.
    asked: Cell<Option<Instant>>,
}

/// Part of a session's buffer memory in use; given back when dropped.
pub struct Buffered {
    session: Rc<Session>,
    bytes: Bytes,
}

impl Drop for Buffered {
    fn drop(&mut self) {
        self.session.buffers.give_back(self.bytes);
    }
}

/// Who opens a session, and with what.
struct Opening<'a> {
    holder: &'a str,
    /// Its account, as far as that is not the daemon's owner.
    account: Option<&'a str>,
    granted: Option<Granted>,
    phase: Phase,
    trusted: bool,
    /// The cap of its account is its own, too.
    is_capped: bool,
    room: Option<ReservationId>,
}

impl Session {
    /// A session of this number, without a flow yet.
    fn new(sessions: &Rc<Sessions>, number: u64, opening: Opening<'_>) -> Rc<Session> {
        let core = &sessions.core;
        let account = sessions.accounts.of(opening.account);
        let capped = Some(account.name()).filter(|name| !name.is_empty() && opening.is_capped);
        let caps = core.options.account_caps.as_ref();
        let throttle = caps.zip(capped).map(|(caps, name)| caps.of(name));
        Rc::new(Session {
            manager: Rc::clone(core),
            sessions: Rc::clone(sessions),
            number,
            holder: opening.holder.to_owned(),
            granted: RefCell::new(opening.granted.map(Rc::new)),
            trusted: opening.trusted,
            paying: Paying {
                account: RefCell::new(account),
                cap: throttle.map(ThrottleUser::new),
            },
            opened: core.now(),
            phase: Cell::new(opening.phase),
            flow: Flow::default(),
            room: Cell::new(opening.room),
            buffers: Buffers::new(Rc::clone(&sessions.split)),
            peers: RefCell::default(),
            attached: RefCell::default(),
            used: Used::default(),
        })
    }

    /// Its number at this manager.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What its manager's jobs share.
    pub fn manager(&self) -> &Rc<Core> {
        &self.manager
    }

    /// Its reservation, if it has one.
    pub fn reservation(&self) -> Option<BookingId> {
        self.granted().map(|it| it.reservation)
    }

    fn granted(&self) -> Option<Rc<Granted>> {
        self.granted.borrow().clone()
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

    /// Its part of the buffer memory, as of now.
    pub fn memory(&self) -> Bytes {
        self.buffers.part()
    }

    /// What it is promised now.
    pub fn promised(&self) -> BytesPerSec {
        self.promise().map_or(BytesPerSec(0), |it| it.rate)
    }

    fn promise(&self) -> Option<Rc<Granted>> {
        self.granted()
            .filter(|_| self.phase.get() == Phase::Promised)
    }

    /// Waits for `bytes` of its buffer memory, first come, first served. What is longer than its part is let through
    /// alone.
    pub async fn buffer(self: &Rc<Self>, bytes: Bytes) -> Buffered {
        self.buffers.take(bytes).await;
        Buffered {
            session: Rc::clone(self),
            bytes,
        }
    }

    /// A connection uses it, as long as the answer lives.
    pub fn joined(self: &Rc<Self>, peer: &str) -> Peer {
        Peer::of(self, peer)
    }

    /// For operators and metrics.
    pub fn report(&self) -> SessionReport {
        let (sums, outstanding) = self.flow.sums(&self.manager);
        let granted = self.granted();
        let granted = granted.as_deref();
        SessionReport {
            session: self.number,
            reservation: self.reservation().map(|id| id.0),
            holder: self.holder.clone(),
            account: self.paying.account.borrow().name().to_owned(),
            scope: granted.map_or(String::new(), |it| it.scope.clone()),
            direction: granted.map(|it| it.direction.name().to_owned()),
            phase: self.phase.get(),
            priority: self.flow.priority.get().name().to_owned(),
            promised: self.promised().0,
            delivery: DeliveryReport {
                delivered_bytes: sums.delivered.0,
                requests: sums.requests,
                outstanding_bytes: outstanding.0,
                window_ns: granted.map_or(0, |it| it.window.0),
                windows: sums.windows.into(),
            },
            memory_bytes: self.memory().0,
            peers: self.peers.borrow().clone(),
            opened: self.opened.0,
            closed: None,
        }
    }

    /// Waits until so much of what was read may leave the node, or of what is written come in.
    pub(crate) async fn cross_link(self: &Rc<Self>, direction: Direction, bytes: u64) {
        let Some(network) = self.manager.options.network.as_ref().filter(|_| bytes > 0) else {
            return;
        };
        // One with a reservation attached goes by that one's.
        let attached = promise::serving(self, direction);
        let whose = attached.as_ref().unwrap_or(self);
        let class = whose.flow.link.class(direction);
        network.pass(direction, bytes, class).await;
    }

    // --- which flow serves its requests -------------------------------------------------------------

    /// Whose its requests to the device are.
    pub fn class(&self) -> Class {
        self.flow.class()
    }

    /// When something was asked last under its reservation; `None`: not yet. What is under way is asked now.
    pub(crate) fn asked(&self) -> Option<Instant> {
        let (_, outstanding) = self.flow.sums(&self.manager);
        match outstanding.0 {
            0 => self.used.asked.get(),
            _ => Some(env::now()),
        }
    }

    /// Whose its requests of a direction are at the device's queue.
    fn class_of(&self, direction: Direction) -> Class {
        let serving = promise::serving(self, direction);
        let serving = serving.as_deref().unwrap_or(self);
        serving.used.asked.set(Some(env::now()));
        serving.class()
    }

    /// How long the store's queue is now, and what of reads is promised to this session's requests.
    pub fn load_report(&self) -> State {
        let serving = promise::serving(self, Direction::Read);
        let reads = |it: Rc<Granted>| (it.direction == Direction::Read).then_some(it.rate);
        let booked = match &serving {
            Some(session) => session.promise().and_then(reads),
            None => self.promise().and_then(reads),
        };
        State {
            booked: booked.unwrap_or(BytesPerSec(0)),
            ..self.manager.state()
        }
    }

    /// Attaches to its requests what `holder` has reserved here, now or later; for sessions that may do everything.
    /// What is served without a promise is then that holder's account's. `None` detaches.
    ///
    /// # Errors
    /// Why not, if the session is a reservation's own.
    pub fn attach_reservations(&self, holder: Option<&str>) -> Result<(), String> {
        if self.granted().is_some() {
            return Err(
                "a session with a capability is under its own reservation; come with the node key"
                    .to_owned(),
            );
        }
        let whose = holder.map(|it| Whose::Holder(it.to_owned()));
        *self.attached.borrow_mut() = whose.map(AttachedReservations::of);
        let account = self.sessions.accounts.of(holder);
        if !Rc::ptr_eq(&account, &self.paying.account.replace(Rc::clone(&account))) {
            self.open_flow().expect("best effort always finds a flow");
        }
        Ok(())
    }

    /// What came of the reservation that promises its requests of `direction` something now; `None`: none does.
    pub fn attached_delivery(&self, direction: Direction) -> Option<DeliveryReport> {
        let serving = promise::serving(self, direction)?;
        let delivery = serving.report().delivery;
        Some(self.sessions.with_closed(serving.reservation()?, delivery))
    }

    /// Lets its requests have this priority from here on, where nothing is promised. What waits is done all the same.
    pub fn prefer(&self, priority: Priority) {
        if self.flow.priority.replace(priority) != priority && self.promised().0 == 0 {
            self.open_flow().expect("best effort always finds a flow");
        }
    }

    /// Takes the flow that its phase gives it, and leaves the one it had.
    fn open_flow(&self) -> Result<(), Full> {
        let account = self
            .sessions
            .accounts
            .at_queue(&self.paying.account.borrow());
        let promise = self.promise();
        self.flow.open(&self.manager, account, promise.as_deref())
    }

    /// Its reservation was replaced by `record`: it goes on under those terms.
    pub(crate) fn amended(&self, record: &Record) {
        let before = self.promised();
        *self.granted.borrow_mut() = Some(Rc::new(Granted::of(record)));
        if self.phase.get() == Phase::Promised && self.promised() != before {
            // More or less of the same: a flow closed for one opened finds its place.
            if let Err(error) = self.open_flow() {
                tracing::warn!(session = self.number, %error, "an amended promise finds no flow");
                self.phase.set(Phase::Early);
            }
            self.sessions.split_buffers();
        }
        self.look_at(self.manager.now());
    }

    /// Its slot began or ended by now, perhaps.
    pub(crate) fn look_at(&self, now: Second) {
        let Some(granted) = self.granted() else {
            return;
        };
        match self.phase.get().following(granted.slot, now) {
            Some(Phase::Promised) => {
                self.phase.set(Phase::Promised);
                if let Err(error) = self.open_flow() {
                    tracing::warn!(session = self.number, %error, "a promise finds no line");
                    self.phase.set(Phase::Early);
                    return;
                }
                self.sessions.split_buffers();
            }
            Some(_) => self.lose_promise("its time is out"),
            None => {}
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
        let core = &self.manager;
        let logged = Logged::over(core.now(), (self.number, self.reservation()), why);
        core.log.push(logged);
        tracing::info!(store = %core.store.name(), session = self.number, why, "a session is over");
        self.sessions.split_buffers();
        core.revoked.notify_all();
    }

    // --- fences -------------------------------------------------------------------------------------

    /// A fence for what is done here on behalf of `object`'s owner under `token`. The object need not be there yet.
    ///
    /// # Errors
    /// [`OperationError`] if the object is not the session's to see, or can have no such name.
    pub fn fence(&self, object: &str, token: u64) -> Result<Fence, OperationError> {
        Fence::new(self, object, token)
    }

    /// Fences all writers under `object` with a token below `token`: when this is answered none of their operations
    /// is under way, none will be begun, and that is durable.
    ///
    /// # Errors
    /// [`StoreError::Fenced`](crate::StoreError::Fenced) if its token is greater already;
    /// [`StoreError::Request`](crate::StoreError::Request) above [`fence::SEAL_MAX`]; else [`OperationError`]. Then nothing is
    /// known: some may be fenced.
    ///
    /// # Example
    /// ```
    /// # use base::{Bytes, View};
    /// # use store::{Change, ObjectCalls, Settings, Store, qos::{fenced::Fenced, manager::{Manager, ManagerOptions}, session::Access}};
    /// # use policy::share::{BytesPerSec, Costs};
    /// # env::Runtime::simulated(1).block_on(async {
    /// # let device = device::Memory::new("disk", Bytes::mib(16));
    /// # Store::format(device.clone(), Settings::default()).await.unwrap().close().await.unwrap();
    /// # let options = ManagerOptions { node_key: Some([1; 32]), ..ManagerOptions::new(Costs::flat(BytesPerSec::mb(9)), [7; 32]) };
    /// # let manager = Manager::open(device, options).await.unwrap();
    /// let session = manager.open_session(Access::NodeKey).unwrap();
    /// session.seal("g/7", 1).await.unwrap();
    /// let first = Fenced::new(&session, "g/7", 1).unwrap();
    /// first.create("a", &[], Change::FUA).await.unwrap();
    /// session.seal("g/7", 2).await.unwrap();
    /// let refused = first.stat("a").await.unwrap_err().to_string();
    /// assert!(refused.starts_with("fenced: what \"g/7\" in "), "{refused}");
    /// # });
    /// ```
    pub async fn seal(&self, object: &str, token: u64) -> Result<(), OperationError> {
        fence::seal(self, object, token).await
    }

    // --- what it may --------------------------------------------------------------------------------

    pub(crate) fn may(
        &self,
        what: &'static str,
        object: &str,
        direction: Option<Direction>,
    ) -> Result<(), OperationError> {
        rights::visible(self.trusted, what, object)?;
        self.goes_on(what, object)?;
        let granted = self.granted();
        granted.map_or(Ok(()), |it| it.covers(what, object, direction))
    }

    /// May it do anything at all still?
    fn goes_on(&self, what: &'static str, object: &str) -> Result<(), OperationError> {
        match self.granted() {
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
        self.flow.leave(&self.manager);
        self.sessions.left(self);
    }
}
