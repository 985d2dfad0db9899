//! First come, first served: what a device does without a scheduler.
//!
//! ```text
//! arrivals of all sessions -> one line -> device
//! ```
//!
//! Metadata go first, as with every scheduler; promises are counted and not kept.

use base::{Bytes, Instant, Nanos};

use super::sessions::Sessions;
use super::{
    Closed, Costs, Dispatch, EnqueueError, Event, Lane, Limits, Next, OpenError, Request,
    Scheduler, SessionCounters, SessionId, Terms, Totals,
};

/// Whole requests in the order they came.
#[derive(Clone)]
pub struct Fifo {
    sessions: Sessions<()>,
    depth: u32,
}

impl Fifo {
    /// At most `depth` requests at the device; promises judged by `window` and reckoned in requests of
    /// `unit` bytes.
    ///
    /// # Panics
    /// If `depth` is zero.
    pub fn new(limits: Limits, window: Nanos, costs: Costs, unit: Bytes, depth: u32) -> Fifo {
        assert!(depth > 0, "a queue depth of zero serves no session");
        Fifo {
            sessions: Sessions::new(limits, window, costs, unit),
            depth,
        }
    }
}

impl Scheduler for Fifo {
    fn open(&mut self, now: Instant, terms: Terms) -> Result<SessionId, OpenError> {
        self.sessions.open(now, terms, ())
    }

    fn close(&mut self, now: Instant, session: SessionId) -> Option<Closed> {
        self.sessions.close(now, session)
    }

    fn enqueue(&mut self, now: Instant, lane: Lane, request: Request) -> Result<(), EnqueueError> {
        self.sessions.enqueue(now, lane, request)
    }

    fn next(&mut self, now: Instant) -> Next {
        if self.sessions.in_flight() >= self.depth {
            return Next::Idle;
        }
        if let Some(dispatch) = self.sessions.take_metadata(now) {
            return Next::Dispatch(dispatch);
        }
        let first = self
            .sessions
            .waiting()
            .min_by_key(|(_, entry)| entry.line[0].number)
            .map(|(id, _)| id);
        first.map_or(Next::Idle, |id| {
            Next::Dispatch(self.sessions.take(now, id, Bytes(u64::MAX)))
        })
    }

    fn completed(&mut self, now: Instant, dispatch: &Dispatch, done: Bytes) {
        self.sessions.completed(now, dispatch, done);
    }

    fn committed(&mut self, _now: Instant) {}

    fn set_costs(&mut self, now: Instant, costs: Costs) {
        self.sessions.set_costs(now, costs);
    }

    fn figures(&mut self, now: Instant, session: SessionId) -> Option<SessionCounters> {
        self.sessions.figures(now, session)
    }

    fn totals(&self) -> Totals {
        self.sessions.totals()
    }

    fn depth(&self) -> u32 {
        self.depth
    }

    fn take_events(&mut self) -> Vec<Event> {
        self.sessions.take_events()
    }
}
