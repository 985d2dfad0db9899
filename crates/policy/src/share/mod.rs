//! Which session may use the device next, how much was promised, and was it kept?
//!
//! ```text
//! contract -> Calendar -> session -> enqueue -> Scheduler::next -> device -> completed -> figures
//!                ^ headroom, capacity <------------- Estimator <------------------'
//! ```
//!
//! A device has *one* queue, and one [`Scheduler`] decides over it: requests of all sessions go in,
//! one dispatch after the other comes out. Four schedulers stand side by side ([`Kind`]): arrival
//! order, the published rounds, the same with tokens for newcomers, and reservation tags.
//!
//! Beside it stands what makes a promise a promise: the [`calendar`] that admits only what fits, the
//! estimator of what the device can do ([`capacity`]), and the count of what was not kept
//! ([`SessionCounters`], [`violations`]).
//!
//! Pure: no clock, device, thread or chance. The store carries the decisions out; experiments run this
//! same code in virtual time.
//!
//! Source: PROBS 3.1-3.3 (queues, rounds, tokens, commit), 4.2 equation (1) (load).
//!
//! Always true:
//! 1. The same calls give the same answers.
//! 2. A request comes out once per piece, its pieces in order, and never more bytes than went in.
//! 3. Memory is bounded: sessions, requests per session and events kept have limits.

mod accounts;
mod booking;
pub mod calendar;
pub mod cap;
pub mod capacity;
mod contract;
mod cost;
mod credit;
mod demand;
mod depth;
mod drift;
mod fifo;
mod figures;
mod headroom;
mod kind;
mod load;
mod promisable;
mod refusal;
mod rounds;
mod sessions;
mod space;
mod split;
mod streak;
mod stretches;
mod tag;
mod tags;
mod tags_options;
#[cfg(test)]
mod tests;
pub mod violations;

use base::{Bytes, Instant, Nanos};

pub use accounts::Account;
pub use contract::{Contract, Probability, Second, Slot};
pub use cost::{Approach, Cost, Costs, Direction, Share};
pub use credit::Credit;
pub use depth::{DepthControl, DepthOptions};
pub use fifo::Fifo;
pub use figures::{Cause, Event, SessionCounters, Shed, Windows};
pub use headroom::{Headroom, Mix, Point};
pub use kind::{Kind, Options, UnknownKind, build};
pub use load::{load, total_of};
pub use rounds::{Round, Rounds, RoundsOptions};
pub use sessions::{Limits, Totals};
pub use space::{Space, SpaceError};
pub use split::{ShareError, share_round, split_memory};
pub use tags::Tags;
pub use tags_options::TagsOptions;

pub use crate::place::Class as Priority;
pub use crate::rate::{BytesPerSec, RateError};

/// A session at one device's queue. Numbers rise in the order of opening and never come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// The engine's own name for a request; the scheduler only carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Class {
    /// One access; with a rate it is promised that rate.
    #[default]
    Session,
    /// Whatever is left over; nothing is promised.
    BestEffort,
    /// Scrub, resync, cleaner, migration: the rate is its floor, the limit its ceiling.
    Background,
}

/// What a session is opened with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// What it is for.
    pub class: Class,
    /// Which way the rate is promised. Requests the other way are served and cost what they cost.
    pub direction: Direction,
    /// Promised bytes per second; zero promises nothing.
    pub rate: BytesPerSec,
    /// At most this much, measured as the promise is; `None`: no limit. Only [`Tags`] keeps it.
    pub limit: Option<BytesPerSec>,
    /// Its part of what is left over, relative to others. `None`: the rate in MB/s, at least 1.
    pub weight: Option<u32>,
    /// Whose requests they are beside others: of what is left over one of high priority gets four times its part, one of
    /// low priority a quarter. Promises do not depend on it. Only [`Tags`] looks at it.
    pub priority: Priority,
    /// Whose they are: spare time is shared among accounts first. Only [`Tags`] looks at it; the published methods know
    /// sessions alone.
    pub account: Account,
    /// The window in which the promise is judged. `None`: the scheduler's.
    pub window: Option<Nanos>,
}

impl Terms {
    /// A session with a promised rate and nothing else special.
    pub fn reserved(direction: Direction, rate: BytesPerSec) -> Terms {
        Terms {
            class: Class::Session,
            direction,
            rate,
            limit: None,
            weight: None,
            priority: Priority::Normal,
            account: Account::OWNER,
            window: None,
        }
    }

    /// A session without a promise.
    pub fn best_effort() -> Terms {
        Terms {
            class: Class::BestEffort,
            ..Terms::reserved(Direction::Read, BytesPerSec(0))
        }
    }

    /// Background work that gets at least `floor` and at most `ceiling`.
    pub fn background(direction: Direction, floor: BytesPerSec, ceiling: BytesPerSec) -> Terms {
        Terms {
            class: Class::Background,
            limit: Some(ceiling),
            weight: Some(1),
            ..Terms::reserved(direction, floor)
        }
    }

    /// The part of what is left over: as set, or the rate in MB/s, at least 1.
    pub fn weight(&self) -> u64 {
        let by_rate = self.rate.0 / 1_000_000;
        self.weight.map_or(by_rate, u64::from).max(1)
    }

    /// The same by its priority, in quarters.
    pub fn weight_quarters(&self) -> u64 {
        let quarters = match self.priority {
            Priority::Low => 1,
            Priority::Normal => 4,
            Priority::High => 16,
        };
        self.weight() * quarters
    }
}

/// Where a request stands in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Metadata: first of all, outside tokens and rounds. [`Tags`] charges it to a session if one is named.
    Metadata {
        /// Whose doing it is.
        charged: Option<SessionId>,
    },
    /// Data of a session, in the order they came.
    Session(SessionId),
}

/// One request to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The engine's name for it.
    pub ticket: Ticket,
    /// Read or write.
    pub direction: Direction,
    /// Its length; not zero.
    pub bytes: Bytes,
    /// How the device comes to it from the same session's last one.
    pub approach: Approach,
}

/// A piece of a request that goes to the device now. Give it back to [`Scheduler::completed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dispatch {
    /// Of which request.
    pub ticket: Ticket,
    /// In which lane it stood.
    pub lane: Lane,
    /// Read or write.
    pub direction: Direction,
    /// Where in the request the piece begins.
    pub offset: Bytes,
    /// Its length.
    pub bytes: Bytes,
    /// Device time it is charged by the cost model.
    pub charge: Nanos,
    /// Is it the request's last piece?
    pub last: bool,
    /// How the device comes to it from the session's piece before.
    pub approach: Approach,
    /// When it was handed out.
    pub at: Instant,
}

/// What the engine does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Send this to the device, then ask again.
    Dispatch(Dispatch),
    /// Write all metadata that are pending, call [`Scheduler::committed`] when they are durable. Ask
    /// again at once: metadata requests come out meanwhile.
    Commit,
    /// Nothing before this moment, unless something is enqueued or completed.
    Wait(Instant),
    /// Nothing until something is enqueued or completed.
    Idle,
}

/// What is left of a session that was closed.
#[derive(Debug, Clone, PartialEq)]
pub struct Closed {
    /// Requests not handed out in full; they will not be. Pieces at the device still complete.
    pub unserved: Vec<Ticket>,
    /// What it got, to the end.
    pub figures: SessionCounters,
}

/// Why no session was opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The table is full.
    #[error(
        "cannot open a session: {open} of {most} are open already; close one or raise sessions_max"
    )]
    Full {
        /// Open sessions.
        open: usize,
        /// The limit.
        most: usize,
    },
    /// A limit below the rate.
    #[error(
        "cannot open a session: its limit of {limit} is below its rate of {rate}; raise the limit or \
         leave it out"
    )]
    LimitBelowRate {
        /// As asked.
        rate: BytesPerSec,
        /// As asked.
        limit: BytesPerSec,
    },
    /// A best-effort session with a rate.
    #[error("cannot promise {rate} to a best-effort session; open it with class session")]
    PromisedBestEffort {
        /// As asked.
        rate: BytesPerSec,
    },
}

/// Why a request was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// No session has this number, or none has it any more.
    #[error("cannot queue a request: session {} is not open; open one first", .0.0)]
    NoSession(SessionId),
    /// Too many wait already.
    #[error(
        "cannot queue a request: {waiting} requests of it wait already, which is the most; try again \
         when one completes"
    )]
    Full {
        /// How many wait.
        waiting: usize,
    },
    /// Zero bytes.
    #[error("cannot queue a request of zero bytes")]
    Empty,
}

/// Decides over the one queue of a device.
///
/// The engine calls [`next`](Self::next) after every `enqueue`, `completed` and `committed`, and at the
/// moment a [`Next::Wait`] names, until it answers [`Next::Wait`] or [`Next::Idle`]. Time never runs
/// backwards from call to call.
pub trait Scheduler {
    /// Opens a session; the ids rise.
    ///
    /// # Errors
    /// [`OpenError`] if the table is full or the terms contradict themselves.
    fn open(&mut self, now: Instant, terms: Terms) -> Result<SessionId, OpenError>;

    /// Ends a session; `None` if there is none of this number.
    fn close(&mut self, now: Instant, session: SessionId) -> Option<Closed>;

    /// Takes a request.
    ///
    /// # Errors
    /// [`EnqueueError`] if the session is not open, its line is full or the request is empty.
    fn enqueue(&mut self, now: Instant, lane: Lane, request: Request) -> Result<(), EnqueueError>;

    /// What to do now.
    fn next(&mut self, now: Instant) -> Next;

    /// The device is done with `dispatch`: `done` of its bytes (zero if it failed or its client is gone).
    fn completed(&mut self, now: Instant, dispatch: &Dispatch, done: Bytes);

    /// The commit that [`Next::Commit`] asked for is durable.
    fn committed(&mut self, now: Instant);

    /// The device is taken to cost this from now on.
    fn set_costs(&mut self, now: Instant, costs: Costs);

    /// The account weighs so much from now on, where it counts and has sessions.
    fn set_account(&mut self, _account: Account) {}

    /// What a session was promised and got until `now`.
    fn figures(&mut self, now: Instant, session: SessionId) -> Option<SessionCounters>;

    /// Sums over all sessions, open and closed.
    fn totals(&self) -> Totals;

    /// Pieces that may be at the device at once, as of now.
    fn depth(&self) -> u32;

    /// The round that ended last, where there are rounds.
    fn last_round(&self) -> Option<&Round> {
        None
    }

    /// What happened since the last call, oldest first; at most [`Limits::events_max`] are kept.
    fn take_events(&mut self) -> Vec<Event>;
}
