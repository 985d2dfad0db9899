//! Violations and the like: what happened, and whose promise it concerns.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

use base::Bytes;
use policy::share::calendar::{BookingId, Stretch};
use policy::share::{Cause, Mix, Second, SessionId, Shed};
use serde::{Deserialize, Serialize};

/// Lines of the log of violations.
const LOG_MAX: usize = 256;

/// A line of the log of violations and the like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// Seconds since 1970.
    pub at: u64,
    /// `violated`, `shed`, `over`, `drift`, `overcommitted`, `lost`.
    pub kind: String,
    /// Whose promise, if one's.
    pub reservation: Option<u64>,
    /// `capacity` or `scheduler`, of a violated one.
    pub cause: Option<String>,
    /// In words.
    pub what: String,
}

impl Logged {
    fn new(at: Second, kind: &str, what: String) -> Logged {
        Logged {
            at: at.0,
            kind: kind.to_owned(),
            reservation: None,
            cause: None,
            what,
        }
    }

    pub(crate) fn violated(
        at: Second,
        whose: Option<BookingId>,
        windows: u64,
        promised: Bytes,
        delivered: Bytes,
        cause: Cause,
    ) -> Logged {
        let name = match whose {
            Some(id) => format!("reservation {}", id.0),
            None => "a session".to_owned(),
        };
        let blame = match cause {
            Cause::Capacity => "the device did less than was promised to all",
            Cause::Scheduler => "the device did enough, but for others",
            Cause::NoDemand => "no more was asked for",
        };
        Logged {
            reservation: whose.map(|id| id.0),
            cause: Some(cause.name().to_owned()),
            ..Logged::new(
                at,
                "violated",
                format!(
                    "{name} got {delivered} of {promised} promised in a window ({windows} in a row): {blame}"
                ),
            )
        }
    }

    pub(crate) fn shed(at: Second, from: Shed, to: Shed) -> Logged {
        let what = format!("given up: {} (before: {})", to.name(), from.name());
        Logged::new(at, "shed", what)
    }

    pub(crate) fn over(
        at: Second,
        (session, reservation): (u64, Option<BookingId>),
        why: &str,
    ) -> Logged {
        Logged {
            reservation: reservation.map(|id| id.0),
            ..Logged::new(at, "over", format!("session {session} is over: {why}"))
        }
    }

    pub(crate) fn drift(at: Second, mix: Mix, which: &str) -> Logged {
        let what = format!(
            "the device is {which} than it was ({}): a calibration is due",
            mix.name()
        );
        Logged::new(at, "drift", what)
    }

    pub(crate) fn overcommitted(at: Second, first: &Stretch) -> Logged {
        let what = format!(
            "more is promised than the device can do, first in {}: {} promised, {} to stay free",
            first.slot, first.promised, first.headroom
        );
        Logged::new(at, "overcommitted", what)
    }

    pub(crate) fn lost(at: Second, events: u64) -> Logged {
        Logged::new(at, "lost", format!("{events} events were dropped"))
    }
}

/// What happened lately.
pub(crate) struct Log {
    lines: RefCell<VecDeque<Logged>>,
    /// What is given up now.
    pub shed: Cell<Shed>,
    /// Which reservation has which flow at the queue.
    pub flows: RefCell<BTreeMap<SessionId, BookingId>>,
}

impl Default for Log {
    fn default() -> Log {
        Log {
            lines: RefCell::default(),
            shed: Cell::new(Shed::Nothing),
            flows: RefCell::default(),
        }
    }
}

impl Log {
    /// Adds a line; the oldest goes where there are too many.
    pub fn push(&self, line: Logged) {
        let mut lines = self.lines.borrow_mut();
        if lines.len() >= LOG_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// All lines, the latest last.
    pub fn lines(&self) -> Vec<Logged> {
        self.lines.borrow().iter().cloned().collect()
    }
}
