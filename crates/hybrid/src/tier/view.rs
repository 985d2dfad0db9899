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
    /// Bytes of each region on the fast device at its end, regions with none left out; ascending. In mode "both"
    /// what the block cache has is among them.
    pub resident: Vec<(Region, Bytes)>,
    /// Regions that lived there at its end, in whole or in part, ascending.
    pub up: Vec<Region>,
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
    /// The region, and its length then: it can be changed while the volume is in use.
    pub region: Region,
    /// See `region`.
    pub region_len: Bytes,
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
    /// How long the published mover copied, without waiting before and synchronizing after.
    pub copying: Nanos,
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

/// Where the tier stands, and what it did since the volume was opened.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TierStatus {
    /// What lives on the fast device, and what may.
    pub room: TierRoom,
    /// Intervals of statistics that have ended.
    pub intervals: u64,
    /// Hot regions of the last one.
    pub candidates: u32,
    /// What was moved.
    pub moves: TierMoves,
    /// Requests of users that lay in regions that were up.
    pub requests_up: u64,
    /// What flow control lets moves copy now, in bytes a second; none: it does not hold them back.
    pub flow_bytes_per_second: Option<f64>,
    /// Writes of a temporary buffer to its destination.
    pub sync_writes: u64,
}

/// What of a volume lives on the fast device, and what may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TierRoom {
    /// Length of a region in bytes.
    pub region_bytes: u64,
    /// Length of what is moved together in bytes.
    pub extent_bytes: u64,
    /// How many regions the volume has.
    pub regions: u32,
    /// Regions that live on the fast device, in whole or in part.
    pub regions_up: u32,
    /// What the tier may hold of the fast device now, in bytes.
    pub room_bytes: u64,
    /// Data it holds, in bytes.
    pub held_bytes: u64,
    /// Of them, data that only the fast device has.
    pub held_dirty_bytes: u64,
}

/// How many regions were moved, how that ended, and what was copied for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TierMoves {
    /// Moves under way.
    pub under_way: u32,
    /// Regions decided to go up.
    pub up: u64,
    /// Regions decided to go down.
    pub down: u64,
    /// Moves given up.
    pub cancelled: u64,
    /// Moves that failed.
    pub failed: u64,
    /// Bytes copied upwards.
    pub bytes_up: u64,
    /// Bytes copied downwards.
    pub bytes_down: u64,
    /// Bytes that left the fast device without being copied: the slow one had them.
    pub bytes_dropped: u64,
}
