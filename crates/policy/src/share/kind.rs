//! Which schedulers are there, and what are they called?

use std::fmt;
use std::str::FromStr;

use base::Nanos;

use super::{Costs, Fifo, Limits, Rounds, RoundsOptions, Scheduler, Tags, TagsOptions};

/// A scheduler by name: `fifo`, `rounds`, `rounds-join`, `tags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Kind {
    /// [`Fifo`]: whole requests in the order they come.
    Fifo,
    /// [`Rounds`] as published.
    Rounds,
    /// [`Rounds`] with tokens for newcomers at once.
    RoundsJoin,
    /// [`Tags`]; the default.
    #[default]
    Tags,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 4] = [Kind::Fifo, Kind::Rounds, Kind::RoundsJoin, Kind::Tags];

    /// The name in configuration, metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Fifo => "fifo",
            Kind::Rounds => "rounds",
            Kind::RoundsJoin => "rounds-join",
            Kind::Tags => "tags",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no scheduler's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no scheduler; choose one of fifo, rounds, rounds-join, tags")]
pub struct UnknownKind(pub String);

impl FromStr for Kind {
    type Err = UnknownKind;
    fn from_str(name: &str) -> Result<Kind, UnknownKind> {
        let known = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| UnknownKind(name.to_owned()))
    }
}

/// What a scheduler of any kind is built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// What the device costs.
    pub costs: Costs,
    /// The window promises are judged by, unless a session has its own.
    pub window: Nanos,
    /// What bounds memory.
    pub limits: Limits,
    /// Requests at the device under [`Kind::Fifo`].
    pub fifo_depth: u32,
    /// For [`Kind::Rounds`] and [`Kind::RoundsJoin`], which sets `join` by itself.
    pub rounds: RoundsOptions,
    /// For [`Kind::Tags`].
    pub tags: TagsOptions,
}

impl Options {
    /// Defaults for a device that costs this: windows of a second, depth 1 where it is fixed.
    pub fn new(costs: Costs) -> Options {
        Options {
            costs,
            window: Nanos::secs(1),
            limits: Limits::default(),
            fifo_depth: 1,
            rounds: RoundsOptions::default(),
            tags: TagsOptions::default(),
        }
    }
}

/// The scheduler `kind`.
///
/// # Example
/// ```
/// use base::{Bytes, Instant};
/// use policy::share::*;
/// let costs = Costs::flat(BytesPerSec::mb(100));
/// let mut queue = build(Kind::Tags, &Options::new(costs));
/// let now = Instant(0);
/// let id = queue.open(now, Terms::reserved(Direction::Read, BytesPerSec::mb(80)))?;
/// let request = Request {
///     ticket: Ticket(7),
///     direction: Direction::Read,
///     bytes: Bytes::kib(512),
///     approach: Approach::Follows,
/// };
/// queue.enqueue(now, Lane::Session(id), request)?;
/// let Next::Dispatch(piece) = queue.next(now) else { panic!("something waits") };
/// assert_eq!((piece.ticket, piece.last), (Ticket(7), false));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn build(kind: Kind, options: &Options) -> Box<dyn Scheduler> {
    let Options {
        costs,
        window,
        limits,
        fifo_depth,
        rounds,
        tags,
    } = *options;
    let rounds = |join| Rounds::new(limits, window, costs, RoundsOptions { join, ..rounds });
    match kind {
        Kind::Fifo => {
            let unit = options.rounds.unit;
            Box::new(Fifo::new(limits, window, costs, unit, fifo_depth))
        }
        Kind::Rounds => Box::new(rounds(false)),
        Kind::RoundsJoin => Box::new(rounds(true)),
        Kind::Tags => Box::new(Tags::new(limits, window, costs, tags)),
    }
}
