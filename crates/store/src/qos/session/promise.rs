//! A session of a manager with reservations attached: which requests does which reservation serve?
//!
//! ```text
//! node key, attached(whose) -> reads:  the reservation of those for reads, as long as it is promised, else best effort
//!                            writes: the one for writes, the same
//! whose: a holder's | this store's parts of one reservation over several stores
//! ```
//!
//! So the engine of virtual disks, which may do everything everywhere, does it in the flows of the holders that reserved
//! for the disk; and a gateway does it in those of the reservation that a client's access key names. All sessions with one reservation attached share its session, also with those that show its capability:
//! it is promised once.
//!
//! Always true: while nothing is promised it is looked for the next reservation, at most once a second.

use std::cell::RefCell;
use std::rc::Rc;

use policy::share::{Direction, Second};

use super::table::Sessions;
use super::{Phase, Session};
use crate::qos::state::bookings::Whose;

/// Under whose reservations.
pub(super) struct AttachedReservations {
    whose: Whose,
    reads: RefCell<Found>,
    writes: RefCell<Found>,
}

#[derive(Default)]
struct Found {
    session: Option<Rc<Session>>,
    looked: Option<Second>,
}

/// The session that what is attached to `session` promises a rate for requests of `direction`.
pub(super) fn serving(session: &Session, direction: Direction) -> Option<Rc<Session>> {
    let attached = session.attached.borrow();
    attached.as_ref()?.serving(&session.sessions, direction)
}

impl AttachedReservations {
    /// Those.
    pub fn of(whose: Whose) -> AttachedReservations {
        AttachedReservations {
            whose,
            reads: RefCell::default(),
            writes: RefCell::default(),
        }
    }

    /// The session that is promised a rate for requests of `direction`.
    pub fn serving(&self, sessions: &Rc<Sessions>, direction: Direction) -> Option<Rc<Session>> {
        let mut found = match direction {
            Direction::Read => self.reads.borrow_mut(),
            Direction::Write => self.writes.borrow_mut(),
        };
        // One that has not begun may not be the next any more.
        let promised = |session: &Rc<Session>| session.phase() == Phase::Promised;
        let now = sessions.core.now();
        // Of one that is over, what follows is looked for at once: an amendment leaves no gap.
        let look = match found.session.as_ref().map(|it| it.phase()) {
            Some(Phase::Promised) => false,
            Some(Phase::Over) => true,
            _ => found.looked != Some(now),
        };
        if look {
            *found = Found {
                session: sessions.promised_to(&self.whose, direction, now),
                looked: Some(now),
            };
        }
        found.session.clone().filter(promised)
    }
}
