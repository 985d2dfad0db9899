//! The sessions of a manager: who is let in, and what all of them share.
//!
//! ```text
//! admit -> enter -> open; its memory is split anew -> left -> closed lately; what it got is the reservation's
//! ```

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use device::meter::RequestCounters;
use env::sync::Event;
use policy::share::calendar::BookingId;
use policy::share::{BytesPerSec, Direction, Second};

use super::access::{self, Access, SessionError};
use super::accounts::Accounts;
use super::promise::AttachedReservations;
use super::report::{DeliveryReport, SessionReport};
use super::rights::{Granted, Phase};
use super::{Opening, Session, buffers};
use crate::ops;
use crate::qos::book::record::{DeliveredReport, EndedReport, Record, WindowsReport};
use crate::qos::state::Core;
use crate::qos::state::bookings::Whose;

/// Sessions that ended and are still shown.
const CLOSED_MAX: usize = 64;

/// What sessions of one reservation got.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    delivered: u64,
    windows: WindowsReport,
}

impl Totals {
    fn add(&mut self, got: &DeliveryReport) {
        self.delivered += got.delivered_bytes;
        self.windows.add(&got.windows);
    }
}

/// The sessions of a manager.
pub(crate) struct Sessions {
    pub core: Rc<Core>,
    /// Whose they are, and what each account weighs.
    pub accounts: Accounts,
    open: RefCell<BTreeMap<u64, Weak<Session>>>,
    /// The number of the next one.
    next: Cell<u64>,
    closed: RefCell<VecDeque<SessionReport>>,
    /// What closed sessions of each reservation got.
    pub totals: RefCell<BTreeMap<BookingId, Totals>>,
    /// Sessions came or went: buffers are split anew.
    pub split: Rc<Event>,
    /// May clients that show nothing do everything?
    pub unauthenticated: Cell<bool>,
    /// What was asked of objects, by all of them.
    pub requests: Rc<RequestCounters>,
}

impl Sessions {
    /// None yet.
    pub fn new(core: Rc<Core>) -> Rc<Sessions> {
        Rc::new(Sessions {
            unauthenticated: Cell::new(core.options.unauthenticated),
            core,
            accounts: Accounts::default(),
            open: RefCell::default(),
            next: Cell::new(1),
            closed: RefCell::default(),
            totals: RefCell::default(),
            split: Rc::default(),
            requests: RequestCounters::new(&ops::Request::KINDS, &["client"]),
        })
    }

    /// Those that are open.
    pub fn open(&self) -> Vec<Rc<Session>> {
        let open = self.open.borrow();
        open.values().filter_map(Weak::upgrade).collect()
    }

    /// How many are open.
    pub fn count(&self) -> usize {
        self.open.borrow().len()
    }

    /// Those that are open, then those closed lately.
    pub fn reports(&self) -> Vec<SessionReport> {
        let open = self.open();
        let open = open.iter().map(|session| session.report());
        open.chain(self.closed.borrow().iter().cloned()).collect()
    }

    /// Lets a client in. All that show the capability of one reservation get the same session, which is its holder's.
    ///
    /// # Errors
    /// [`SessionError`]: for each reason one, and it says what to do.
    pub fn admit(self: &Rc<Self>, access: Access<'_>) -> Result<Rc<Session>, SessionError> {
        let core = &self.core;
        let open_to_all = |holder, account, trusted| Opening {
            holder,
            account,
            granted: None,
            phase: Phase::Open,
            trusted,
            is_capped: !trusted,
            room: None,
        };
        match access {
            Access::Open | Access::Account(_) if !self.unauthenticated.get() => {
                Err(SessionError::NotOpen {
                    store: core.store.name().to_owned(),
                })
            }
            Access::Open => self.enter(open_to_all("", None, false)),
            Access::Account(name) => self.enter(open_to_all("", Some(name), false)),
            Access::NodeKey => self.enter(open_to_all("node key", None, true)),
            Access::OnBehalf {
                account,
                reservation,
            } => {
                let session = self.enter(Opening {
                    is_capped: true,
                    ..open_to_all("node key", account, true)
                })?;
                let whose = reservation.map(Whose::Whole);
                *session.attached.borrow_mut() = whose.map(AttachedReservations::of);
                Ok(session)
            }
            Access::Capability(token) => {
                let now = core.now();
                let record = self.reservation_of(token, now)?;
                if core.bookings.is_lapsed(&record, now) {
                    return Err(SessionError::Lapsed {
                        store: core.store.name().to_owned(),
                        reservation: record.id,
                    });
                }
                let session = self.granted(&record, now)?;
                session.used.shown.set(true);
                Ok(session)
            }
        }
    }

    /// The reservation that a capability is of: the one it names, or what took its place.
    fn reservation_of(&self, token: &str, now: Second) -> Result<Record, SessionError> {
        let core = &self.core;
        let signed = core.keys.read(token)?;
        let grant = &signed.grant;
        let named = core.bookings.record(grant.reservation).ok();
        // A store that was put back to an older copy may have given the number again.
        if !named.as_ref().is_some_and(|it| it.is_of(grant))
            && let Some(record) = core.bookings.successor(grant)
        {
            // It was renewed: what is written now says until when.
            core.keys.check(&signed, record.contract.slot, now)?;
            return Ok(record);
        }
        core.keys.check(&signed, grant.slot, now)?;
        access::admitted(&core.store, grant, named, now, core.keys.skew())
    }

    /// The session of a reservation.
    fn granted(self: &Rc<Self>, record: &Record, now: Second) -> Result<Rc<Session>, SessionError> {
        let mut open = self.open().into_iter();
        let is_its =
            |it: &Rc<Session>| it.reservation() == Some(record.id) && it.phase() != Phase::Over;
        if let Some(session) = open.find(is_its) {
            return Ok(session);
        }
        self.enter(Opening {
            holder: &record.holder,
            account: Some(&record.holder),
            granted: Some(Granted::of(record)),
            phase: Phase::at(record.contract.slot, now),
            trusted: false,
            is_capped: true,
            room: record.room,
        })
    }

    /// The session of the reservation of `whose` that is for `direction` now, or the next one.
    pub(super) fn promised_to(
        self: &Rc<Self>,
        whose: &Whose,
        direction: Direction,
        now: Second,
    ) -> Option<Rc<Session>> {
        let record = self.core.bookings.next_of(whose, direction, now)?;
        self.granted(&record, now).ok()
    }

    fn enter(self: &Rc<Self>, opening: Opening<'_>) -> Result<Rc<Session>, SessionError> {
        let number = self.next.get();
        self.next.set(number + 1);
        let session = Session::new(self, number, opening);
        session.open_flow().map_err(|source| SessionError::Full {
            store: self.core.store.name().to_owned(),
            source,
        })?;
        let weak = Rc::downgrade(&session);
        self.open.borrow_mut().insert(number, weak);
        self.split_buffers();
        Ok(session)
    }

    /// A session was closed.
    pub(super) fn left(&self, session: &Session) {
        self.open.borrow_mut().remove(&session.number());
        let mut report = session.report();
        report.closed = Some(self.core.now().0);
        // Of what has ended already it was counted while it was open.
        let records = self.core.bookings.records.borrow();
        let reservation = session.reservation().filter(|id| records.contains_key(id));
        drop(records);
        if let Some(id) = reservation {
            if let Some(at) = session.asked() {
                self.core.bookings.asked_until(id, at);
            }
            let mut totals = self.totals.borrow_mut();
            totals.entry(id).or_default().add(&report.delivery);
        }
        let mut closed = self.closed.borrow_mut();
        if closed.len() >= CLOSED_MAX {
            closed.pop_front();
        }
        closed.push_back(report);
        drop(closed);
        self.split_buffers();
    }

    /// What sessions of a reservation got: one that is open, and those that are closed.
    pub(super) fn with_closed(&self, id: BookingId, mut got: DeliveryReport) -> DeliveryReport {
        if let Some(closed) = self.totals.borrow().get(&id) {
            got.delivered_bytes += closed.delivered;
            got.windows.add(&closed.windows);
        }
        got
    }

    /// Sessions of `before`, and what they got, are those of `record`, which has replaced it.
    pub fn replaced(&self, before: BookingId, record: &Record) {
        for session in self.open() {
            if session.reservation() == Some(before) {
                session.amended(record);
            }
        }
        let mut totals = self.totals.borrow_mut();
        if let Some(got) = totals.remove(&before) {
            let sum = totals.entry(record.id).or_default();
            sum.delivered += got.delivered;
            sum.windows.add(&got.windows);
        }
    }

    /// Each second: who begins, who ends?
    pub fn second(&self, now: Second) {
        for session in self.open() {
            session.look_at(now);
            let record = session
                .reservation()
                .map(|id| self.core.bookings.record(id));
            if let Some(Ok(record)) = record
                && self.core.bookings.is_lapsed(&record, now)
            {
                session.lose_promise("its record was out of reach for 10 minutes");
            }
        }
    }

    /// What sessions that are closed got, by reservations that go on.
    pub fn delivered(&self) -> Vec<DeliveredReport> {
        let (totals, records) = (self.totals.borrow(), self.core.bookings.records.borrow());
        let of = |(id, got): (&BookingId, &Totals)| {
            Some(DeliveredReport {
                reservation: id.0,
                holder: records.get(id)?.holder.clone(),
                delivered_bytes: got.delivered,
                windows: got.windows,
            })
        };
        totals.iter().filter_map(of).collect()
    }

    /// A reservation is over.
    pub fn ended(&self, record: &Record, why: &'static str) {
        let closed = self.totals.borrow_mut().remove(&record.id);
        let mut totals = closed.unwrap_or_default();
        for session in self.open() {
            if session.reservation() == Some(record.id) {
                totals.add(&session.report().delivery);
            }
        }
        let contract = &record.contract;
        self.core.history.push(EndedReport {
            reservation: record.id.0,
            holder: record.holder.clone(),
            direction: contract.direction.name().to_owned(),
            promised: contract.rate.0,
            from: contract.slot.start.0,
            until: contract.slot.end.0,
            ended: self.core.now().0,
            why: why.to_owned(),
            delivered_bytes: totals.delivered,
            windows: totals.windows,
        });
    }

    /// Splits the buffer memory among the open sessions.
    pub fn split_buffers(&self) {
        let open = self.open();
        if open.is_empty() {
            return;
        }
        let rates: Vec<BytesPerSec> = open.iter().map(|it| it.promised()).collect();
        let (memory, write_max) = (self.core.options.memory, self.core.store.write_max());
        for (session, part) in open.iter().zip(buffers::parts(memory, write_max, &rates)) {
            session.buffers.set_part(part);
        }
        self.split.notify_all();
    }
}
