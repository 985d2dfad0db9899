//! A store with a memory for promises: what is reserved, which client may use it, and is it kept?
//!
//! ```text
//! request -> hold -> commit -> capability -> open_session -> Session -> Store -> Queue -> device
//!              \______/                          |                        ^
//!            the book: objects ".tanada/..."     '-> terms of its own ----'
//!   every second: slots begin and end, capacity is estimated, violations are logged; beside it the scrub
//! ```
//!
//! [`Manager`] is the handle; each job is a type of its own over what all share, [`Core`] and the
//! table of sessions:
//!
//! - `reserve` hold, commit, release; `hold` what is held; `request` what is asked and refused; `groups` reservations over several stores.
//! - `accounts` what each weighs; `keys` other keys for capabilities; [`crate::qos::session`] what a holder does with one.
//! - `terms` what changes while it runs; `ticks` the work of each second; `watch` the device's capacity; `calibration` measures it; `scrub` reads all data over.
//! - `report` what operators see. `beside`: the device is a hybrid's, and what is promised is kept elsewhere.
//!
//! Source: PROBS 3.1 (access by a capability the storage manager signed), 3.3 (buffers by rates, throughput fed back).
//!
//! Choice: a slot begins and ends by the store's own clock, to the second.
//!
//! Always true:
//! 1. What was answered (a hold, a commit, a release, a key) is found again after any crash.
//! 2. Room in the store is promised to exactly the reservations in the book.
//! 3. `free + reserved + used = total` in the store, as without a manager.

mod accounts;
mod beside;
mod calibration;
mod groups;
mod hold;
mod keys;
mod report;
mod request;
mod reserve;
mod scrub;
mod terms;
mod ticks;
mod watch;

use std::rc::{Rc, Weak};

use device::Device;
use device::meter::Snapshot;
use env::sync::Event;
use policy::place::State;
use policy::share::calendar::{BookingId, Refusal, Stretch};
use policy::share::{Contract, Second, Slot};

use crate::Store;
use crate::object::error::{OpenError, StoreError};
use crate::qos::book::Book;
use crate::qos::calibrate::{CalibrateError, Plan, Progress, Surface};
use crate::qos::capability::CapabilityError;
use crate::qos::network::Booked;
use crate::qos::queue::Queue;
use crate::qos::session::table::Sessions;
use crate::qos::session::{Access, Session, SessionError, SessionReport};
use crate::qos::state::Core;
use keys::KeyChanger;
use reserve::Reserver;

pub use crate::qos::book::record::{Calibration, Group, PartName};
pub use crate::qos::state::bookings::{PartState, Unconfirmed};
pub use crate::qos::state::log::Logged;
pub use crate::qos::state::options::{ManagerOptions, ScrubOptions};
pub use accounts::set_account_weights;
pub use beside::{BookDevice, open_beside};
pub use calibration::Taken;
pub use groups::{Outcome, Parts, Reconciled, reconcile};
pub use report::{
    CalendarReport, CapacityReport, ManagerReport, QueueReport, RoundReport, ScrubReport,
    SpaceReport, StretchReport,
};
pub use request::{Decision, Quote, ReservationRequest, ReserveError, Reserved};
pub use terms::{ManagerTerms, TermsError, check_terms, set_terms};

/// A store with reservations. See the module's head.
///
/// # Example
/// ```
/// use base::{Bytes, View};
/// use policy::share::{BytesPerSec, Costs, Direction, Second, Slot};
/// use store::qos::manager::{Manager, ManagerOptions, ReservationRequest};
/// use store::qos::session::Access;
/// use store::{Change, ObjectCalls, Settings, Store};
/// env::Runtime::simulated(1).block_on(async {
///     let device = device::Memory::new("disk", Bytes::mib(16));
///     Store::format(device.clone(), Settings::default()).await.unwrap();
///     let options = ManagerOptions::new(Costs::flat(BytesPerSec::mb(200)), [7; 32]);
///     let manager = Manager::open(device, options).await.unwrap();
///     let slot = Slot::new(manager.now(), 60);
///     let request = ReservationRequest::new(Direction::Write, BytesPerSec::mb(85), slot).scope("songs/").space(Bytes::mib(4));
///     let id = manager.hold(&request, None, Second(manager.now().0 + 10)).await.unwrap();
///     let capability = manager.commit(id).await.unwrap();
///     let session = manager.open_session(Access::Capability(&capability)).unwrap();
///     let change = Change::default().creating();
///     session.write("songs/1", 0, View::copy_of(b"la la"), change).await.unwrap();
///     let refused = session.write("books/1", 0, View::copy_of(b"x"), change).await;
///     assert!(refused.unwrap_err().to_string().contains("\"songs/\""));
/// });
/// ```
pub struct Manager {
    pub(crate) core: Rc<Core>,
    pub(crate) sessions: Rc<Sessions>,
    reserver: Reserver,
    /// A reservation is over, or keys are void: a session with a capability looks whether it is still good.
    pub(crate) revoked: Rc<Event>,
}

impl Manager {
    /// Opens the store on `device` with what it promised.
    ///
    /// What was held too long is gone, what was committed stays, and room that no reservation has is free again.
    ///
    /// # Errors
    /// As for [`Store::open`]; [`OpenError::System`] and [`OpenError::SystemVersion`] if what the manager should remember
    /// cannot be read: then nothing is changed.
    pub async fn open(
        device: Rc<dyn Device>,
        options: ManagerOptions,
    ) -> Result<Rc<Manager>, OpenError> {
        let queue = Queue::new(device, options.queue);
        let store = Store::open(queue.clone()).await?;
        commit_with(&queue, &store);
        over(store, queue, options, false).await
    }

    /// Ends the periodic work and closes the store; sessions get errors from now on.
    ///
    /// # Errors
    /// As for [`Store::close`]; also if what has been cannot be written down, but the store is closed then.
    pub async fn close(&self) -> Result<(), StoreError> {
        let core = &self.core;
        core.stopped.set(true);
        let _changing = core.bookings.changing.acquire(1).await;
        let history = core.history.write(&core.store).await;
        let trust = core.write_trust().await;
        core.store.close().await.and(history).and(trust)
    }

    /// The store below.
    pub fn store(&self) -> &Store {
        &self.core.store
    }

    /// The queue below the store.
    pub fn queue(&self) -> &Rc<Queue> {
        &self.core.queue
    }

    /// The secret of clients that may do everything, for the code that checks that they have it.
    pub fn node_key(&self) -> Option<&[u8; 32]> {
        self.core.options.node_key.as_ref()
    }

    /// May clients that show nothing do everything?
    pub fn unauthenticated(&self) -> bool {
        self.sessions.unauthenticated.get()
    }

    /// The second it is, by this store's clock.
    pub fn now(&self) -> Second {
        self.core.now()
    }

    /// How long the store's queue is now: what clients that choose between copies need.
    pub fn state(&self) -> State {
        self.core.state()
    }

    // --- what it knows ----------------------------------------------------------------------------

    /// The sessions that are open, then those closed lately.
    pub fn sessions(&self) -> Vec<SessionReport> {
        self.sessions.reports()
    }

    /// What was asked of its objects since it was opened, however that came in.
    pub fn requests(&self) -> Snapshot {
        self.sessions.requests.snapshot(self.core.store.name())
    }

    /// What is to be known about it.
    pub fn report(&self) -> ManagerReport {
        report::of(&self.sessions)
    }

    /// What is promised in `slot`, stretch by stretch.
    pub fn calendar(&self, slot: Slot) -> Vec<Stretch> {
        self.core.bookings.calendar.borrow().sweep(slot)
    }

    /// What the device was measured to do, if it was.
    pub fn calibration(&self) -> Option<Rc<Calibration>> {
        self.core.capacity.borrow().calibration.clone()
    }

    /// From now on the manager takes the device to do what was measured; durable at completion.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be written; then nothing changes.
    pub async fn set_calibration(&self, calibration: Calibration) -> Result<(), StoreError> {
        calibration::set(&self.core, calibration).await
    }

    /// Measures what the device can do, as [`crate::qos::calibrate::through`], and goes by it from then on. Nothing may be reserved
    /// for as long as the plan may take, and nothing can be meanwhile; sessions that are promised nothing are served
    /// beside it.
    ///
    /// # Errors
    /// [`CalibrateError`], [`CalibrateError::Reserved`] with the reservation in the way; what the manager takes the device
    /// to do stays as it is.
    pub async fn calibrate(
        &self,
        plan: &Plan,
        progress: &mut Progress<'_>,
    ) -> Result<Surface, CalibrateError> {
        let taken = self.begin_calibration(plan.clone()).await?;
        taken.measure(progress).await
    }

    /// Takes the device for a calibration, which [`Taken::measure`] carries out: from here on nothing can be reserved for
    /// as long as the plan may take.
    ///
    /// # Errors
    /// [`CalibrateError::Running`], [`CalibrateError::Reserved`], [`CalibrateError::Plan`]; then nothing was taken.
    pub async fn begin_calibration(&self, plan: Plan) -> Result<Taken, CalibrateError> {
        Taken::by(&self.sessions, plan).await
    }

    // --- who may use it ---------------------------------------------------------------------------

    /// Lets a client in. All that show the capability of one reservation get the same session.
    ///
    /// # Errors
    /// [`SessionError`]: for each reason one, and it says what to do.
    pub fn open_session(&self, access: Access<'_>) -> Result<Rc<Session>, SessionError> {
        self.sessions.admit(access)
    }

    /// Signs with another key from now on. Capabilities signed with the one before are accepted until the last
    /// reservation committed by now ends. Durable when answered.
    ///
    /// # Errors
    /// [`ReserveError::Store`]; then the old key goes on.
    pub async fn rotate_key(&self, secret: [u8; 32]) -> Result<(), ReserveError> {
        KeyChanger(&self.core).sign_with(secret, false).await
    }

    /// Signs with another key from now on. What was signed with any before is void at once, also on connections that are
    /// open; [`Manager::capability`] gives holders the new one. Durable when answered.
    ///
    /// # Errors
    /// [`ReserveError::Store`]; then the old key goes on.
    pub async fn replace_key(&self, secret: [u8; 32]) -> Result<(), ReserveError> {
        KeyChanger(&self.core).sign_with(secret, true).await
    }

    /// How often keys became void so far.
    pub(crate) fn voided(&self) -> u64 {
        self.core.keys.voided()
    }

    /// Is a capability signed with a key that is accepted here?
    ///
    /// # Errors
    /// [`CapabilityError`] if it is not good any more.
    pub(crate) fn is_signed(&self, token: &str) -> Result<(), CapabilityError> {
        self.core.keys.is_signed(token, self.now())
    }

    // --- reservations -----------------------------------------------------------------------------

    /// Would it fit now? Nothing is set aside.
    ///
    /// # Errors
    /// [`Refusal`] with the earliest slot and the largest rate that would fit.
    pub fn offer(&self, request: &ReservationRequest) -> Result<Contract, Refusal> {
        self.reserver.offer(request)
    }

    /// Would these, all for one slot, fit together now, and when would they? Nothing is set aside.
    pub fn quote(&self, wanted: &[ReservationRequest]) -> Quote {
        self.reserver.quote(wanted)
    }

    /// Every reservation, by number.
    pub fn reservations(&self) -> Vec<Reserved> {
        self.reserver.all()
    }

    /// The capability of a committed reservation, once more; signed with the key of today.
    pub fn capability(&self, id: BookingId) -> Option<String> {
        self.reserver.capability(id)
    }

    /// Sets a reservation aside until `until`: its time in the calendar and its room in the store. Durable when
    /// answered.
    ///
    /// # Errors
    /// [`ReserveError::Refused`] with what would fit; [`ReserveError::Request`], [`ReserveError::Store`].
    pub async fn hold(
        &self,
        request: &ReservationRequest,
        group: Option<Group>,
        until: Second,
    ) -> Result<BookingId, ReserveError> {
        self.reserver.hold(request.clone(), group, until).await
    }

    /// Sets aside until `until` what is to replace the committed reservation `replaced`: another rate, another end. Once it is
    /// committed, sessions and clients of `replaced` go on under its terms without a gap; room, scope and holder stay.
    /// Until then, and if it is released, `replaced` is as it was. Durable when answered.
    ///
    /// # Errors
    /// [`ReserveError::NoBooking`] if there is no `replaced` of that group; [`ReserveError::Request`] if it is only held or of the other
    /// direction; else as for [`Manager::hold`].
    pub async fn amend(
        &self,
        replaced: BookingId,
        request: &ReservationRequest,
        group: Option<Group>,
        until: Second,
    ) -> Result<BookingId, ReserveError> {
        let request = request.clone();
        self.reserver.amend(replaced, request, group, until).await
    }

    /// Promises what was held; answers the capability. Committing twice is committing once. Durable when answered. What is
    /// part of a whole is named with it.
    ///
    /// # Errors
    /// [`ReserveError::NoBooking`] if it expired, was never held, or is part of another whole; [`ReserveError::Store`].
    pub async fn commit(&self, part: impl Into<PartName>) -> Result<String, ReserveError> {
        self.reserver.commit(part.into()).await
    }

    /// Ends a reservation: its capability is refused from now on, its sessions do nothing more, what is left of its room
    /// is free. Durable when answered. What is part of a whole is named with it.
    ///
    /// # Errors
    /// [`ReserveError::NoBooking`], also if it is part of another whole; [`ReserveError::Store`].
    pub async fn release(&self, part: impl Into<PartName>) -> Result<(), ReserveError> {
        self.reserver.release(part.into()).await
    }

    /// What becomes of parts of reservations over several stores.
    pub fn parts(&self) -> Parts<'_> {
        Parts(&self.reserver)
    }
}

/// What `store` remembers, of the device behind `queue`; `beside`: the store is not on it.
async fn over(
    store: Store,
    queue: Rc<Queue>,
    options: ManagerOptions,
    beside: bool,
) -> Result<Rc<Manager>, OpenError> {
    let mut book = Book::load(&store).await?;
    let replaced = std::mem::take(&mut book.replaced);
    let mut core = Core::new(store, queue, options, book);
    core.beside = beside;
    let core = Rc::new(core);
    if let Some(network) = &core.options.network {
        let booked: Weak<dyn Booked> = Rc::downgrade(&core) as _;
        network.joined(booked);
    }
    let sessions = Sessions::new(Rc::clone(&core));
    let reserver = Reserver(Rc::clone(&sessions));
    settle(&core, &reserver, replaced)
        .await
        .map_err(|source| OpenError::Write {
            store: core.store.name().to_owned(),
            source: Box::new(source),
        })?;
    env::spawn(ticks::every_second(Rc::downgrade(&sessions)));
    if let Some(options) = core.options.scrub {
        env::spawn(scrub::scrub(Rc::downgrade(&sessions), options));
    }
    Ok(Rc::new(Manager {
        revoked: Rc::clone(&core.revoked),
        core,
        sessions,
        reserver,
    }))
}

/// When the queue's scheduler asks for a commit, the store's changes are made durable.
fn commit_with(queue: &Queue, store: &Store) {
    let inner = Rc::downgrade(&store.inner);
    queue.on_commit(Rc::new(move || {
        let inner = inner.upgrade();
        Box::pin(async move {
            if let Some(inner) = inner {
                // A client that needs it durable flushes and sees the error.
                let _ = inner.committed().await;
            }
        })
    }));
}

/// After opening: the key, what is over, and room that no reservation has.
async fn settle(
    core: &Core,
    reserver: &Reserver,
    replaced: Vec<BookingId>,
) -> Result<(), StoreError> {
    core.set_trusted_capacity();
    KeyChanger(core).accept(core.keys.public(), false).await?;
    reserver.settle(replaced).await
}
