//! A store with a memory for promises: what is reserved, which client may use it, and is it kept?
//!
//! ```text
//! request -> hold -> commit -> capability -> open_session -> Session -> Store -> Queue -> device
//!              \______/                          |                        ^
//!            the book: objects ".tanada/..."     '-> terms of its own ----'
//!   every second: slots begin and end, capacity is estimated, violations are logged; beside it the scrub
//! ```
//!
//! - `reserve` hold, commit, release; groups over several stores.
//! - [`crate::qos::session`] what a holder does with its capability.
//! - `ticks` the periodic work; `report` what operators see.
//!
//! Source: PROBS 3.1 (access by a capability the storage manager signed), 3.3 (buffers by rates, throughput fed back).
//!
//! Choice: a slot begins and ends by the store's own clock, to the second.
//!
//! Always true:
//! 1. What was answered (a hold, a commit, a release, a key) is found again after any crash.
//! 2. Room in the store is promised to exactly the reservations in the book.
//! 3. `free + reserved + used = total` in the store, as without a manager.

mod report;
mod reserve;
mod ticks;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use base::Bytes;
use device::{Device, Info};
use env::sync::{Event, Semaphore};
use policy::place::State;
use policy::share::calendar::{BookingId, Calendar};
use policy::share::capacity::{Estimator, EstimatorOptions};
use policy::share::{
    BytesPerSec, Costs, Headroom, Kind, Mix, Second, SessionId, Share, Shed, Slot, Space,
};

use crate::Store;
use crate::object::error::{OpenError, StoreError};
use crate::qos::book::{self, Book, Record, Trust};
use crate::qos::calibrate::{self, CalibrateError, Plan, Progress, Surface};
use crate::qos::capability::{Keyring, Signer};
use crate::qos::fence::Fences;
use crate::qos::load_report::LoadReporter;
use crate::qos::queue::{Queue, QueueOptions};
use crate::qos::session::{EndedReport, Session, SessionReport};

pub use crate::qos::book::{Calibration, Group};
pub use report::{
    CalendarReport, CapacityReport, Logged, ManagerReport, ScrubReport, SpaceReport, StretchReport,
};
pub use reserve::{Decision, Outcome, ReservationRequest, ReserveError, Reserved, reconcile};

/// Sessions that ended and are still shown.
const CLOSED_MAX: usize = 64;
/// Lines of the log of violations.
const LOG_MAX: usize = 256;

/// How fast data are read over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Bytes per second, as far as users leave room for it.
    pub rate: BytesPerSec,
    /// So long after a round ended the next one begins.
    pub pause: base::Nanos,
}

impl Default for ScrubOptions {
    /// 16 MiB/s, a day between rounds.
    fn default() -> Self {
        ScrubOptions {
            rate: BytesPerSec(16 << 20),
            pause: base::Nanos::secs(24 * 3600),
        }
    }
}

/// How a manager is run.
#[derive(Clone)]
pub struct ManagerOptions {
    /// The scheduler, what the device is taken to cost until it was calibrated, and background's floor and ceiling.
    pub queue: QueueOptions,
    /// What must stay free until it was calibrated.
    pub headroom: Headroom,
    /// Signs capabilities: 32 secret bytes.
    pub signer: [u8; 32],
    /// A client that has these 32 secret bytes may do everything.
    pub node_key: Option<[u8; 32]>,
    /// May clients that show nothing do everything, too?
    pub unauthenticated: bool,
    /// Buffer memory, split among sessions by their rates.
    pub memory: Bytes,
    /// Seconds by which clocks may differ.
    pub skew: u64,
    /// `None`: data are never read over.
    pub scrub: Option<ScrubOptions>,
}

impl ManagerOptions {
    /// Reservation tags on a device that costs this; 64 MiB of buffers, clocks within 5 s, and a scrub.
    pub fn new(costs: Costs, signer: [u8; 32]) -> ManagerOptions {
        ManagerOptions {
            queue: QueueOptions::new(costs),
            headroom: Headroom::default(),
            signer,
            node_key: None,
            unauthenticated: false,
            memory: Bytes::mib(64),
            skew: 5,
            scrub: Some(ScrubOptions::default()),
        }
    }
}

/// What the manager takes the device to be able to do.
#[derive(Debug, Clone)]
pub(crate) struct Capacity {
    pub estimator: Estimator,
    /// By the model: configured or calibrated.
    pub costs: Costs,
    /// Parts of the model's speed that reads, writes and both at once were seen to reach; `None`: not yet known.
    pub seen: [Option<Share>; 3],
    /// The device no longer does what it did when it was calibrated, or is another.
    pub drifted: bool,
    /// What was seen is not written down yet.
    pub dirty: bool,
    /// Samples since the guarantee was last reckoned.
    pub fresh: u32,
}

impl Capacity {
    /// By this model, with nothing seen yet.
    fn new(costs: Costs) -> Capacity {
        Capacity {
            estimator: Estimator::new(EstimatorOptions {
                // Reckoned on the data path's own thread: a quarter of what the default keeps.
                samples_max: 1024,
                ..EstimatorOptions::default()
            }),
            costs,
            seen: [None; 3],
            drifted: false,
            dirty: false,
            fresh: 0,
        }
    }

    /// Parts of the model's speed that reads and writes can be trusted to reach; `None`: not yet known.
    pub fn speeds(&self) -> (Option<Share>, Option<Share>) {
        let [reads, writes, both] = self.seen;
        let least = |alone: Option<Share>| match (alone, both) {
            (Some(alone), Some(both)) => Some(alone.min(both)),
            (alone, both) => alone.or(both),
        };
        (least(reads), least(writes))
    }

    fn trust(&self) -> Trust {
        Trust {
            costs: self.costs,
            speeds: self.seen,
            drifted: self.drifted,
        }
    }
}

/// How far the scrub is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Scrubbed {
    pub rounds: u64,
    pub bytes: u64,
    pub bad: u64,
    pub round_ended: Option<Second>,
}

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
    // Fixed.
    pub(crate) store: Store,
    pub(crate) queue: Rc<Queue>,
    pub(crate) options: ManagerOptions,
    me: Weak<Manager>,
    // What is promised; changed by one at a time.
    changing: Rc<Semaphore>,
    pub(crate) calendar: RefCell<Calendar>,
    pub(crate) records: RefCell<BTreeMap<BookingId, Record>>,
    /// Bookings that were there when the manager opened.
    adopted: RefCell<std::collections::BTreeSet<BookingId>>,
    /// Numbers below are set aside.
    numbers: Cell<u64>,
    signer: RefCell<Signer>,
    keys: RefCell<Keyring>,
    /// How often keys became void.
    voided: Cell<u64>,
    calibration: RefCell<Option<Rc<Calibration>>>,
    capacity: RefCell<Capacity>,
    /// The device is taken by a calibration.
    calibrating: Cell<Option<Slot>>,
    // Open sessions.
    pub(crate) sessions: RefCell<BTreeMap<u64, Weak<Session>>>,
    next_session: Cell<u64>,
    /// Which reservation has which flow at the queue.
    pub(crate) flows: RefCell<BTreeMap<SessionId, BookingId>>,
    pub(crate) closed: RefCell<VecDeque<SessionReport>>,
    /// What closed sessions of each reservation got.
    pub(crate) totals: RefCell<BTreeMap<BookingId, ticks::Totals>>,
    /// Sessions came or went: buffers are split anew.
    pub(crate) split: Event,
    /// A reservation is over, or keys are void: a session with a capability looks whether it is still good.
    pub(crate) revoked: Event,
    pub(crate) fences: Fences,
    /// Reads and writes under way, for clients that choose between copies.
    pub(crate) load: Rc<LoadReporter>,
    // What was.
    pub(crate) ended: RefCell<Vec<EndedReport>>,
    ended_dirty: Cell<bool>,
    log: RefCell<VecDeque<Logged>>,
    shed: Cell<Shed>,
    /// Seconds in a row without a request to the device.
    idle_seconds: Cell<u32>,
    scrubbed: Cell<Scrubbed>,
    // At the end.
    stopped: Cell<bool>,
    stop: Event,
}

impl Manager {
    /// How long the store's queue is now: what clients that choose between copies need.
    pub fn state(&self) -> State {
        self.load.state()
    }

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
        let book = Book::load(&store).await?;
        let manager = Rc::new_cyclic(|me| Manager::new(me, store, queue, options, book));
        let settled = manager.settle().await;
        settled.map_err(|source| OpenError::Write {
            store: manager.store.name().to_owned(),
            source: Box::new(source),
        })?;
        env::spawn(ticks::every_second(Rc::downgrade(&manager)));
        if let Some(scrub) = manager.options.scrub {
            env::spawn(ticks::scrub(Rc::downgrade(&manager), scrub));
        }
        Ok(manager)
    }

    fn new(
        me: &Weak<Manager>,
        store: Store,
        queue: Rc<Queue>,
        options: ManagerOptions,
        book: Book,
    ) -> Manager {
        let (calibration, other) = calibration_of(&queue.info(), book.calibration);
        let (costs, headroom) = match &calibration {
            Some(it) => (
                it.costs,
                Headroom::new(it.points.iter().copied(), it.beyond),
            ),
            None => (options.queue.share.costs, options.headroom.clone()),
        };
        let unit = unit(&options.queue);
        let none = Space::new(Bytes(0), Bytes(0));
        let mut calendar = Calendar::new(costs, unit, headroom, none);
        calendar.set_floors(floors(&options.queue, &costs, unit));
        for record in book.records.values() {
            let adopted = calendar.adopt(record.id, record.booking(), Bytes(0));
            adopted.expect("the calendar keeps no room");
        }
        calendar.number_from(BookingId(book.numbers));
        queue.set_costs(costs);
        let mut capacity = Capacity::new(costs);
        if let Some(trust) = book.trust.filter(|it| it.costs == costs) {
            (capacity.seen, capacity.drifted) = (trust.speeds, trust.drifted);
            let mixes = [Mix::Reads, Mix::Writes, Mix::Mixed];
            for (mix, speed) in mixes.into_iter().zip(trust.speeds) {
                if let Some(speed) = speed {
                    capacity.estimator.begin_with(mix, speed);
                }
            }
        }
        capacity.drifted |= other;
        Manager {
            signer: RefCell::new(Signer::new(&options.signer)),
            store,
            queue,
            options,
            me: me.clone(),
            changing: Semaphore::new(1),
            calendar: RefCell::new(calendar),
            adopted: RefCell::new(book.records.keys().copied().collect()),
            records: RefCell::new(book.records),
            numbers: Cell::new(book.numbers),
            keys: RefCell::new(book.keys),
            voided: Cell::new(0),
            calibration: RefCell::new(calibration.map(Rc::new)),
            capacity: RefCell::new(capacity),
            calibrating: Cell::new(None),
            sessions: RefCell::default(),
            next_session: Cell::new(1),
            flows: RefCell::default(),
            closed: RefCell::default(),
            totals: RefCell::default(),
            split: Event::default(),
            revoked: Event::default(),
            fences: Fences::default(),
            load: LoadReporter::new(&costs),
            ended: RefCell::new(book.ended),
            ended_dirty: Cell::new(false),
            log: RefCell::default(),
            shed: Cell::new(Shed::Nothing),
            idle_seconds: Cell::new(0),
            scrubbed: Cell::default(),
            stopped: Cell::new(false),
            stop: Event::default(),
        }
    }

    /// After opening: the key, what is over, and room that no reservation has.
    async fn settle(&self) -> Result<(), StoreError> {
        self.set_trusted_capacity();
        let public = self.signer.borrow().public();
        self.accept_signer(public).await?;
        let _changing = self.changing.acquire(1).await;
        self.expire().await?;
        let owned: Vec<_> = self
            .records
            .borrow()
            .values()
            .filter_map(|it| it.room)
            .collect();
        for room in self.store.reservations() {
            if !owned.contains(&room.id) {
                tracing::info!(store = %self.store.name(), room = %room.id, left = %room.left,
                    "room of a reservation that was never answered is free again");
                self.store.release(room.id).await?;
            }
        }
        Ok(())
    }

    /// Ends the periodic work and closes the store; sessions get errors from now on.
    ///
    /// # Errors
    /// As for [`Store::close`]; also if what has been cannot be written down, but the store is closed then.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.stopped.set(true);
        self.stop.notify_all();
        let _changing = self.changing.acquire(1).await;
        let history = self.keep_history().await;
        let trust = self.keep_trust().await;
        self.store.close().await.and(history).and(trust)
    }

    /// The store below.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The queue below the store.
    pub fn queue(&self) -> &Rc<Queue> {
        &self.queue
    }

    /// The store's number, as capabilities name it.
    pub fn uuid(&self) -> u128 {
        self.store.uuid()
    }

    /// The secret of clients that may do everything, for the code that checks that they have it.
    pub fn node_key(&self) -> Option<&[u8; 32]> {
        self.options.node_key.as_ref()
    }

    /// May clients that show nothing do everything?
    pub fn unauthenticated(&self) -> bool {
        self.options.unauthenticated
    }

    /// The second it is, by this store's clock.
    pub fn now(&self) -> Second {
        Second(env::wall_clock().0 / 1_000_000_000)
    }

    /// What the device was measured to do, if it was.
    pub fn calibration(&self) -> Option<Rc<Calibration>> {
        self.calibration.borrow().clone()
    }

    /// From now on the manager takes the device to do what was measured; durable at completion.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be written; then nothing changes.
    pub async fn set_calibration(&self, calibration: Calibration) -> Result<(), StoreError> {
        let _changing = self.changing.acquire(1).await;
        book::put_calibration(&self.store, &calibration).await?;
        let costs = calibration.costs;
        // What was seen was reckoned by the model before.
        *self.capacity.borrow_mut() = Capacity {
            dirty: true,
            ..Capacity::new(costs)
        };
        self.queue.set_costs(costs);
        self.queue.take_interval();
        *self.calibration.borrow_mut() = Some(Rc::new(calibration));
        self.set_trusted_capacity();
        Ok(())
    }

    /// Measures what the device can do, as [`calibrate::through`], and goes by it from then on. Nothing may be reserved
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
        calibrate::streams(&plan)?;
        let _changing = self.changing.acquire(1).await;
        let store = || self.store.name().to_owned();
        if self.calibrating.get().is_some() {
            return Err(CalibrateError::Running { store: store() });
        }
        let slot = Slot::new(self.now(), plan.longest().0.div_ceil(1_000_000_000));
        let records = self.records.borrow();
        let overlapping = |it: &&Record| it.contract.slot.overlaps(slot);
        let mut in_the_way: Vec<_> = records.values().filter(overlapping).collect();
        in_the_way.sort_by_key(|it| it.contract.slot.start);
        if let Some(first) = in_the_way.first() {
            return Err(CalibrateError::Reserved {
                store: store(),
                reservation: first.id,
                reserved: first.contract.slot,
                needed: slot,
            });
        }
        self.calibrating.set(Some(slot));
        let manager = self.strong();
        Ok(Taken { manager, plan })
    }

    /// Sets in the calendar what the device can be trusted to do.
    fn set_trusted_capacity(&self) {
        let (costs, speeds) = {
            let capacity = self.capacity.borrow();
            (capacity.costs, capacity.speeds())
        };
        let headroom = match &*self.calibration.borrow() {
            Some(it) => Headroom::new(it.points.iter().copied(), it.beyond),
            None => self.options.headroom.clone(),
        };
        let trusted = Costs {
            read: scaled(costs.read, speeds.0),
            write: scaled(costs.write, speeds.1),
        };
        let unit = self.unit();
        let mut calendar = self.calendar.borrow_mut();
        calendar.set_capacity(trusted, headroom);
        calendar.set_floors(floors(&self.options.queue, &trusted, unit));
    }

    /// The part of the device that background work is promised.
    fn floors(&self) -> Share {
        let costs = self.capacity.borrow().costs;
        floors(&self.options.queue, &costs, self.unit())
    }

    /// The length in which promises are reckoned.
    fn unit(&self) -> Bytes {
        unit(&self.options.queue)
    }

    pub(crate) fn strong(&self) -> Rc<Manager> {
        self.me.upgrade().expect("the caller has it")
    }

    pub(crate) fn open_sessions(&self) -> Vec<Rc<Session>> {
        let sessions = self.sessions.borrow();
        sessions.values().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn next_session(&self) -> u64 {
        let number = self.next_session.get();
        self.next_session.set(number + 1);
        number
    }
}

/// The device is a calibration's until this is dropped; then the queue goes by the manager's own figures again.
pub struct Taken {
    manager: Rc<Manager>,
    plan: Plan,
}

impl Taken {
    /// Measures by the plan; what is found is kept, and the manager goes by it from then on.
    ///
    /// # Errors
    /// [`CalibrateError`]; the manager goes by what it had before.
    pub async fn measure(self, progress: &mut Progress<'_>) -> Result<Surface, CalibrateError> {
        let Taken { manager, plan } = &self;
        let found = calibrate::through(&manager.store, &manager.queue, plan, progress).await?;
        manager.set_calibration(found.calibration()).await?;
        Ok(found)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let manager = &self.manager;
        manager.calibrating.set(None);
        manager.queue.set_costs(manager.capacity.borrow().costs);
        manager.queue.take_interval();
    }
}

/// The calibration if it is of this device, else a warning and whether it was of another.
fn calibration_of(info: &Info, found: Option<Calibration>) -> (Option<Calibration>, bool) {
    let Some(found) = found else {
        return (None, false);
    };
    let (name, size) = &found.device;
    if (name, *size) == (&info.name, info.size) {
        return (Some(found), false);
    }
    tracing::warn!(device = %info.name, size = %info.size, calibrated = %name, calibrated_size = %size,
        "the store was calibrated on another device: the configured costs count until it is calibrated on this one");
    (None, true)
}

/// The length in which the scheduler reckons promises.
fn unit(queue: &QueueOptions) -> Bytes {
    match queue.kind {
        Kind::Tags => queue.share.tags.quantum,
        Kind::Fifo | Kind::Rounds | Kind::RoundsJoin => queue.share.rounds.unit,
    }
}

/// What requests cost at a part of the model's speed.
fn scaled(cost: policy::share::Cost, speed: Option<Share>) -> policy::share::Cost {
    let Some(speed) = speed else {
        return cost;
    };
    let whole = u128::from(Share::WHOLE.0);
    let longer = |time: base::Nanos| {
        base::Nanos((u128::from(time.0) * whole / u128::from(speed.0.max(1))) as u64)
    };
    let rate = u128::from(cost.rate.0) * u128::from(speed.0) / whole;
    policy::share::Cost {
        fixed: longer(cost.fixed),
        jump: longer(cost.jump),
        rate: BytesPerSec((rate as u64).max(1)),
    }
}

/// The part of the device that background work is promised.
fn floors(queue: &QueueOptions, costs: &Costs, unit: Bytes) -> Share {
    costs.share(policy::share::Direction::Read, queue.floor, unit)
}
