//! What a manager's jobs and its sessions share: the store and its queue, what is promised, what is known, what has been.
//!
//! - `options` how it is run.
//! - `bookings` the reservations; `keys` who may show one; `permits` operations under fences.
//! - `capacity` what the device can be trusted to do.
//! - `log`, `history` what happened.
//!
//! Jobs are types of their own, each in its file, that borrow it: those of a session in `session`, the manager's in
//! `manager`.
//!
//! Always true: nothing here knows sessions or the manager.

pub(crate) mod bookings;
pub(crate) mod capacity;
pub(crate) mod history;
pub(crate) mod keys;
pub(crate) mod log;
pub(crate) mod options;
pub(crate) mod permits;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::Bytes;
use device::Device;
use env::sync::Event;
use policy::place;
use policy::place::{Permille, Promised};
use policy::share::calendar::{Booking, BookingId, Calendar, Stretch};
use policy::share::{
    BytesPerSec, Cause, Contract, Costs, Direction, Event as Happened, Second, Share, Slot, Space,
};

use crate::Store;
use crate::object::error::StoreError;
use crate::qos::book::{self, Book};
use crate::qos::load_report::LoadReporter;
use crate::qos::network::{Booked, NoRoom, OfStore};
use crate::qos::queue::Queue;
use bookings::Bookings;
use capacity::Capacity;
use history::History;
use keys::Keys;
use log::{Log, Logged};
use options::ManagerOptions;
use permits::Permits;

/// What is promised is looked at so far ahead, in seconds.
const HOUR: u64 = 3600;
/// Parts per billion in a thousandth.
const PPB_PER_PERMILLE: u64 = 1_000_000;

/// How far the scrub is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Scrubbed {
    pub rounds: u64,
    pub bytes: u64,
    pub bad: u64,
    pub round_ended: Option<Second>,
}

/// What the jobs of a manager and its sessions share.
pub struct Core {
    // Fixed.
    pub(crate) store: Store,
    pub(crate) queue: Rc<Queue>,
    pub(crate) options: ManagerOptions,
    /// The store is not on the device that is promised, but keeps what is promised of it.
    pub(crate) beside: bool,
    // What is promised, and which client may use it.
    pub(crate) bookings: Bookings,
    pub(crate) keys: Keys,
    /// A reservation is over, or keys are void: a session with a capability looks whether it is still good.
    pub(crate) revoked: Rc<Event>,
    pub(crate) permits: Permits,
    // What the device does.
    pub(crate) capacity: RefCell<Capacity>,
    /// How much of the device's time is promised; looked at each second.
    pub(crate) promised: Cell<Promised>,
    /// Reads and writes under way, for clients that choose between copies.
    pub(crate) load: Rc<LoadReporter>,
    pub(crate) scrubbed: Cell<Scrubbed>,
    // What was.
    pub(crate) log: Log,
    pub(crate) history: History,
    /// The manager was closed.
    pub(crate) stopped: Cell<bool>,
}

impl Core {
    /// What `book` says, at work from now on.
    pub(crate) fn new(store: Store, queue: Rc<Queue>, options: ManagerOptions, book: Book) -> Core {
        let configured = options.queue.share.costs;
        let device = queue.info();
        let capacity = Capacity::remembered(
            (&device, options.device_identity.as_deref()),
            configured,
            book.calibration,
            book.trust,
        );
        let costs = capacity.costs;
        let headroom = capacity.headroom(&options.headroom);
        let none = Space::new(Bytes(0), Bytes(0));
        let mut calendar = Calendar::new(costs, options.unit(), headroom, none);
        let floor = queue.floor();
        calendar.set_floors(costs.share(Direction::Read, floor, options.unit()));
        let bookings = Bookings::new(calendar, book.records, book.numbers);
        queue.set_costs(costs);
        Core {
            bookings,
            keys: Keys::new(store.uuid(), &options.signer, options.skew, book.keys),
            revoked: Rc::default(),
            permits: Permits::default(),
            capacity: RefCell::new(capacity),
            promised: Cell::default(),
            load: LoadReporter::new(&costs),
            scrubbed: Cell::default(),
            log: Log::default(),
            history: History::new(book.ended),
            stopped: Cell::new(false),
            store,
            queue,
            options,
            beside: false,
        }
    }

    /// May `contract` be promised of the node's link as well, `replaced` going for it? Where there is no link, it may.
    ///
    /// # Errors
    /// Which line has no room, and what would fit.
    pub(crate) fn check_link(
        &self,
        contract: &Contract,
        replaced: Option<BookingId>,
    ) -> Result<(), NoRoom> {
        let Some(network) = &self.options.network else {
            return Ok(());
        };
        let replaced = replaced.map(|id| (self.store.uuid(), id));
        network.admits(self.now(), contract, replaced)
    }

    /// The store below.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// How long the store's queue is now: what clients that choose between copies need.
    pub fn state(&self) -> place::State {
        place::State {
            promised: self.promised.get(),
            ..self.load.state()
        }
    }

    /// Looks how much of the device's time is promised, now and in the hour to come.
    pub(crate) fn look_at_promises(&self) {
        let now = self.now();
        let stretches = self.bookings.calendar.borrow().sweep(Slot::new(now, HOUR));
        let part = |it: &Stretch| Permille((it.promised.0 / PPB_PER_PERMILLE).min(1000) as u32);
        self.promised.set(Promised {
            now: stretches.first().map_or(Permille(0), part),
            hour: stretches.iter().map(part).max().unwrap_or_default(),
        });
    }

    /// The second it is, by this store's clock.
    pub(crate) fn now(&self) -> Second {
        Second(env::wall_clock().0 / 1_000_000_000)
    }

    /// Sets in the calendar what the device can be trusted to do.
    pub(crate) fn set_trusted_capacity(&self) {
        let (trusted, headroom) = {
            let capacity = self.capacity.borrow();
            (
                capacity.trusted(),
                capacity.headroom(&self.options.headroom),
            )
        };
        let mut calendar = self.bookings.calendar.borrow_mut();
        calendar.set_capacity(trusted, headroom);
        calendar.set_floors(self.floors(&trusted));
    }

    /// The part of a device that costs this which background work is promised.
    pub(crate) fn floors(&self, costs: &Costs) -> Share {
        self.share_of(self.queue.floor(), costs)
    }

    /// The part of a device that costs this which so much background work takes.
    pub(crate) fn share_of(&self, floor: BytesPerSec, costs: &Costs) -> Share {
        costs.share(Direction::Read, floor, self.options.unit())
    }

    /// Writes down how fast the device was seen to be, if that has changed.
    ///
    /// # Errors
    /// [`StoreError`]; then it is to be written still.
    pub(crate) async fn write_trust(&self) -> Result<(), StoreError> {
        let Some(trust) = self.capacity.borrow_mut().take_dirty() else {
            return Ok(());
        };
        let written = book::put_trust(&self.store, &trust).await;
        if written.is_err() {
            self.capacity.borrow_mut().set_dirty();
        }
        written
    }

    /// Logs what the queue's scheduler says has happened.
    pub(crate) fn take_events(&self) {
        let now = self.now();
        for event in self.queue.take_events() {
            match event {
                Happened::Violated {
                    session,
                    windows,
                    promised,
                    delivered,
                    cause,
                    ..
                } => {
                    let whose = self.log.flows.borrow().get(&session).copied();
                    if whose.is_none() && self.bookings.calibrating.get().is_some() {
                        // A trial's own: no client was promised it.
                        continue;
                    }
                    let logged = Logged::violated(now, whose, windows, promised, delivered, cause);
                    if cause != Cause::NoDemand {
                        tracing::warn!(store = %self.store.name(), "{}", logged.what);
                    }
                    self.log.push(logged);
                }
                Happened::Shed { from, to, .. } => {
                    tracing::warn!(store = %self.store.name(), from = from.name(), to = to.name(), "what is given up changed");
                    self.log.shed.set(to);
                    self.log.push(Logged::shed(now, from, to));
                }
                Happened::Lost(events) => self.log.push(Logged::lost(now, events)),
                _ => {}
            }
        }
    }
}

impl Booked for Core {
    fn store(&self) -> u128 {
        self.store.uuid()
    }

    fn bookings(&self) -> Vec<OfStore> {
        let calendar = self.bookings.calendar.borrow();
        let records = self.bookings.records.borrow();
        let of_store = |(id, booking): (BookingId, &Booking)| OfStore {
            id,
            booking: *booking,
            replaces: records.get(&id).and_then(|it| it.replaces),
        };
        calendar.bookings().map(of_store).collect()
    }
}
