//! A session of a manager with reservations attached: which requests does which reservation serve?
//!
//! ```text
//! node key, attached(holder) -> reads:  the reservation of that holder for reads, as long as it is promised, else best effort
//!                            writes: the one for writes, the same
//! ```
//!
//! So the engine of virtual disks, which may do everything everywhere, does it in the flows of the holders that reserved
//! for the disk. All sessions with one reservation attached share its session, also with those that show its capability:
//! it is promised once.
//!
//! Always true: while nothing is promised it is looked for the next reservation, at most once a second.

use std::cell::RefCell;
use std::rc::Rc;

use device::Class;
use policy::share::calendar::State;
use policy::share::{Direction, Second};

use super::{Phase, Session};

/// Under whose reservations.
pub(super) struct AttachedReservations {
    holder: String,
    reads: RefCell<Found>,
    writes: RefCell<Found>,
}

#[derive(Default)]
struct Found {
    session: Option<Rc<Session>>,
    looked: Option<Second>,
}

impl Session {
    /// Attaches to its requests what `holder` has reserved here, now or later; for sessions that may do everything.
    /// `None` detaches.
    ///
    /// # Errors
    /// Why not, if the session is a reservation's own.
    pub fn attach_reservations(&self, holder: Option<&str>) -> Result<(), String> {
        if self.granted.is_some() {
            return Err(
                "a session with a capability is under its own reservation; come with the node key"
                    .to_owned(),
            );
        }
        *self.attached.borrow_mut() = holder.map(|holder| AttachedReservations {
            holder: holder.to_owned(),
            reads: RefCell::default(),
            writes: RefCell::default(),
        });
        Ok(())
    }

    /// Whose its requests of a direction are at the device's queue.
    pub(super) fn class_of(&self, direction: Direction) -> Class {
        let attached = self.attached.borrow();
        let Some(attached) = &*attached else {
            return self.class();
        };
        let mut found = match direction {
            Direction::Read => attached.reads.borrow_mut(),
            Direction::Write => attached.writes.borrow_mut(),
        };
        // One that has not begun may not be the next any more.
        let keeps = |session: &Rc<Session>| session.phase() == Phase::Promised;
        let now = self.manager.now();
        if !found.session.as_ref().is_some_and(keeps) && found.looked != Some(now) {
            *found = Found {
                session: self.promised_to(&attached.holder, direction, now),
                looked: Some(now),
            };
        }
        match found.session.as_ref() {
            Some(session) if session.phase() == Phase::Promised => session.class(),
            _ => self.class(),
        }
    }

    /// The session of the reservation that `holder` has for `direction` now, or the next one.
    fn promised_to(&self, holder: &str, direction: Direction, now: Second) -> Option<Rc<Session>> {
        let record = {
            let records = self.manager.records.borrow();
            let fits = records.values().filter(|record| {
                let contract = &record.contract;
                record.state == State::Committed
                    && record.holder == holder
                    && contract.direction == direction
                    && now < contract.slot.end
            });
            fits.min_by_key(|record| (record.contract.slot.start, record.id))
                .cloned()?
        };
        let open = self.manager.open_sessions();
        let known = (open.into_iter()).find(|it| it.reservation() == Some(record.id));
        known.or_else(|| self.manager.enter_granted(&record, now).ok())
    }
}
