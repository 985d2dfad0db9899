//! Which regions of a volume should live on the fast tier now?
//!
//! ```text
//! one interval of counts -> TierPolicy::step -> candidates and moves -> an engine carries them out
//! ```
//!
//! A volume is cut into regions of one size (the paper's subLUNs), numbered in address order from 1.
//!
//! Pure: no clock, no device, no task. The engine in `hybrid` carries the moves out; the simulator in `sim`
//! runs this same code over traces.
//!
//! Beside the rules stand the movers' decisions: how hot an extent is ([`heat`]) and for how much longer ([`lives`]),
//! whether promoting it pays ([`worth`]), how fast data may move ([`flow`]) and when moves may begin ([`schedule`]).
//! Others are which device answers reads of what both have ([`either`]), and where the boundary between tier and
//! block cache lies ([`split`]).
//!
//! Source: AST 3.2.
//!
//! Always true:
//! 1. The same state and counts give the same decision.
//! 2. A region is never sent to the tier it already lives on.

mod busiest;
pub mod either;
pub mod flow;
pub mod heat;
mod hystor;
mod kind;
pub mod lives;
mod on_the_fly;
mod parameters;
pub mod schedule;
pub mod split;
mod static_tiering;
#[cfg(test)]
mod tests;
pub mod worth;

pub use hystor::Hystor;
pub use kind::{Kind, UnknownKind, build};
pub use on_the_fly::OnTheFly;
pub use parameters::{ParameterError, Parameters};
pub use static_tiering::StaticTiering;

use std::fmt;

use base::Nanos;

/// The number of a region of a volume in address order; the first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region(pub u32);

impl Region {
    /// The region at `index`, counted from 0.
    pub fn at(index: u64) -> Region {
        Region(index as u32 + 1)
    }

    /// Its place in a list of all regions, counted from 0.
    pub fn index(self) -> usize {
        self.0 as usize - 1
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Requests that began in one region during one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Where.
    pub region: Region,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

impl Count {
    /// Reads and writes.
    pub fn all(&self) -> u64 {
        self.reads + self.writes
    }
}

/// What happened in one interval.
#[derive(Debug, Clone, Copy)]
pub struct Interval<'a> {
    /// Its number since the start of the statistics, from 0.
    pub number: u64,
    /// How long it lasted.
    pub length: Nanos,
    /// Regions with at least one request, ascending, each once.
    pub counts: &'a [Count],
}

/// Which way a region goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// To the fast tier.
    Up,
    /// To the slow tier.
    Down,
}

/// One region to move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Move {
    /// Which.
    pub region: Region,
    /// Where to.
    pub way: Way,
    /// Why.
    pub why: Reason,
}

/// Why a region moves.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// Its group has been a candidate so many intervals in a row.
    Streak(u32),
    /// It joined a group that had been judged to move before.
    Joined,
    /// It has not been a candidate for so many intervals in a row.
    Absent(u32),
    /// It was among the busiest: its place among them, from 1.
    Busiest(u32),
    /// It is no longer among the busiest.
    Overtaken,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Streak(intervals) => {
                write!(f, "its group was hot {intervals} intervals in a row")
            }
            Reason::Joined => f.write_str("it joined a group that was moved before"),
            Reason::Absent(intervals) => write!(f, "it was not hot for {intervals} intervals"),
            Reason::Busiest(rank) => write!(f, "it was number {rank} of the window before"),
            Reason::Overtaken => f.write_str("others were busier in the window before"),
        }
    }
}

/// What was decided at the end of one interval.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decision {
    /// The regions that were hot, ascending.
    pub candidates: Vec<Region>,
    /// What moves, in the order it should.
    pub moves: Vec<Move>,
}

/// A rule that decides, once per interval, which regions live on the fast tier.
///
/// The policy keeps the list of what it has promoted; the engine reports what became of that without the policy.
pub trait TierPolicy {
    /// One interval of counts in, the moves to make out.
    fn step(&mut self, interval: &Interval<'_>) -> Decision;

    /// Regions sent up and not down since, ascending.
    fn residents(&self) -> Vec<Region>;

    /// How many regions the fast tier holds from now on. No region is demoted for it before the next step.
    fn set_room(&mut self, regions: u32);

    /// After a restart: these are up already.
    fn adopt(&mut self, residents: &[Region]);

    /// The engine did not promote `region`, or demoted it without being asked.
    fn withdrawn(&mut self, region: Region);

    /// From the next step on `parameters` hold; what was observed so far stays.
    ///
    /// # Panics
    /// If they do not [check](Parameters::check).
    fn set_parameters(&mut self, parameters: Parameters);
}
