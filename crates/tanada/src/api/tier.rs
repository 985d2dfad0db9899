//! A tier: its choices, its figures, heat over time and the log of moves.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// By which rules regions move; keys as in `[hybrid.tier]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TierRules {
    /// `on-the-fly`, `static` or `hystor`.
    pub policy: String,
    pub period_seconds: f64,
    pub iops_min: f64,
    pub sub_luns_max: u32,
    /// Percent of the requests.
    pub share_min: f64,
    /// Intervals.
    pub streak_min: u32,
    /// Intervals.
    pub timeout: u32,
    /// Absent: the policy's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look_back_seconds: Option<f64>,
}

/// The choices in force for a tier; keys as in `[hybrid.tier]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TierSettings {
    #[serde(flatten)]
    pub rules: TierRules,
    pub region_bytes: u64,
    pub extent_bytes: u64,
    /// `direct` or `published`.
    pub mover: String,
    pub lazy_down: bool,
    pub flow_control: bool,
    pub break_even: bool,
    pub either: bool,
    /// Percent of the fast device; absent: as measured benefit says.
    pub share: Option<u8>,
    /// Each as `OFFSET+LENGTH`.
    pub pinned: Vec<String>,
    pub barred: Vec<String>,
    /// Each as `22:00-06:00`, in UTC.
    pub windows: Vec<String>,
    pub auto: bool,
}

/// What a tier may hold, and holds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct TierRoom {
    /// Length of a region.
    pub region_bytes: u64,
    /// Length of what is moved together.
    pub extent_bytes: u64,
    /// Regions of the volume.
    pub regions: u32,
    /// Regions that live on the fast device, in whole or in part.
    pub regions_up: u32,
    /// What the tier may hold of the fast device now.
    pub room_bytes: u64,
    /// Data it holds.
    pub held_bytes: u64,
    /// Of them, data that only the fast device has.
    pub held_dirty_bytes: u64,
}

/// Where a tier stands, and what it did since the volume was opened.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Tier {
    #[serde(flatten)]
    pub room: TierRoom,
    /// Intervals of statistics that have ended.
    pub intervals: u64,
    /// Hot regions of the last one.
    pub candidates: u32,
    pub moves_under_way: u32,
    /// Regions decided to go up.
    pub moves_up: u64,
    /// Regions decided to go down.
    pub moves_down: u64,
    /// Moves given up.
    pub moves_cancelled: u64,
    /// Moves that failed.
    pub moves_failed: u64,
    /// Copied upwards.
    pub up_bytes: u64,
    /// Copied downwards.
    pub down_bytes: u64,
    /// What left the fast device without being copied: the slow one had it.
    pub dropped_bytes: u64,
    /// Requests of users that lay in regions that were up.
    pub requests_up: u64,
    /// Writes of a temporary buffer to its destination.
    pub sync_writes: u64,
    /// What flow control lets moves copy now; absent: it does not hold them back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_bytes_per_second: Option<f64>,
}

/// Which part of a record is asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct Ask {
    /// Only what has a greater number.
    pub after: Option<u64>,
    /// At most so many.
    pub limit: Option<usize>,
    /// Only what happened in the last so many seconds.
    pub last_seconds: Option<f64>,
    /// Only moves of this region; those of regions of another length, before a change, are left out.
    pub region: Option<u32>,
}

/// What was asked where in the last intervals, and what lived on the fast device.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Heat {
    pub volume: String,
    /// Length of a region.
    pub region_bytes: u64,
    /// Regions of the volume.
    pub regions: u32,
    /// Oldest first.
    pub intervals: Vec<HeatInterval>,
    /// There is more: ask again with this as `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// One interval of statistics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HeatInterval {
    /// Its number since the volume was opened.
    pub number: u64,
    pub start_unix_seconds: f64,
    /// How long it was.
    pub seconds: f64,
    /// Regions with requests, in order of address.
    pub counts: Vec<RegionCount>,
    /// Regions that were hot.
    pub candidates: Vec<u32>,
    /// Regions with data on the fast device at its end; in mode `both` those of the block cache among them.
    pub resident: Vec<RegionResident>,
    /// Regions that lived there at its end, in whole or in part.
    pub up: Vec<u32>,
}

/// Requests that began in one region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegionCount {
    /// The number of the region in order of address, from 1.
    pub region: u32,
    pub reads: u64,
    pub writes: u64,
}

/// What one region has on the fast device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegionResident {
    /// The number of the region in order of address, from 1.
    pub region: u32,
    pub bytes: u64,
}

/// A part of the log of moves.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Moves {
    pub volume: String,
    /// Length of a region.
    pub region_bytes: u64,
    /// Oldest first.
    pub moves: Vec<Move>,
    /// There is more: ask again with this as `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// One region that moved, or was to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Move {
    /// Counts up from 1 since the volume was opened.
    pub number: u64,
    /// When it was decided.
    pub at_unix_seconds: f64,
    /// The interval it was decided in.
    pub interval: u64,
    /// The number of the region in order of address, from 1.
    pub region: u32,
    /// Length of a region when it was decided.
    pub region_bytes: u64,
    /// To the fast device, or to the slow one.
    pub up: bool,
    pub why: String,
    /// `under-way`, `done`, `cancelled` or `failed`.
    pub end: String,
    /// How long it took; absent while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_seconds: Option<f64>,
    /// Copied for it so far.
    pub copied_bytes: u64,
}
