//! What people see of the tier: heat over time, the log of moves, figures.

use base::{Bytes, Instant, Nanos};
use policy::tier::{Count, Region};
use serde::Serialize;

/// The last intervals of a volume: what was asked where, and what was up.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Heat {
    /// Length of a region.
    pub region: Bytes,
    /// How many regions the volume has.
    pub regions: u32,
    /// The intervals, oldest first.
    pub intervals: Vec<HeatInterval>,
}

/// One interval of [`Heat`].
#[derive(Debug, Clone, PartialEq)]
pub struct HeatInterval {
    /// Its number since the volume was opened.
    pub number: u64,
    /// When it began.
    pub start: Instant,
    /// How long it was.
    pub length: Nanos,
    /// Regions with requests, ascending.
    pub counts: Vec<Count>,
    /// Hot regions, ascending.
    pub candidates: Vec<Region>,
    /// Bytes of each region on the fast device at its end, regions with none left out; ascending.
    pub resident: Vec<(Region, Bytes)>,
}

/// One line of the log of moves.
#[derive(Debug, Clone, PartialEq)]
pub struct MoveRecord {
    /// Counts up from 1 since the volume was opened.
    pub number: u64,
    /// When it was decided.
    pub at: Instant,
    /// The interval it was decided in.
    pub interval: u64,
    /// The region.
    pub region: Region,
    /// Up or down.
    pub up: bool,
    /// Why, in words.
    pub why: String,
    /// How it ended.
    pub end: MoveEnd,
    /// When it ended.
    pub ended: Option<Instant>,
    /// Bytes copied for it so far.
    pub copied: Bytes,
}

/// How a move ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MoveEnd {
    /// It has not.
    UnderWay,
    /// Everything that was to go is there.
    Done,
    /// It was given up: the region cooled, or the other way was decided meanwhile.
    Cancelled,
    /// A device failed.
    Failed,
}
