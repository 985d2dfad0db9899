//! Parameters of a tier, learned from its statistics.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What decisions alone would have done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Simulated {
    /// Requests to regions that were up, of all.
    pub share: f64,
    /// Time of the slow device that is saved, moves taken off, of all.
    pub net_share: f64,
    /// The most regions up at once.
    pub regions_up_most: usize,
    pub moves_up: u64,
    pub moves_down: u64,
}

/// What was counted of a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TierSeen {
    pub volume: String,
    /// How long a time is known.
    pub known_seconds: f64,
    /// Requests in it.
    pub requests: u64,
    /// As counted; another one cannot be learned from a running volume.
    pub region_bytes: u64,
    /// As counted.
    pub period_seconds: f64,
}

/// Parameters for a volume's tier, learned from its statistics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TierAdvice {
    #[serde(flatten)]
    pub seen: TierSeen,
    pub iops_min: f64,
    pub sub_luns_max: u32,
    /// Percent of the requests.
    pub share_min: f64,
    /// Intervals.
    pub streak_min: u32,
    /// Intervals.
    pub timeout: u32,
    /// With these, over all that is known.
    pub simulated: Simulated,
    /// With what is set now.
    pub present: Simulated,
    /// With parameters found in the first half alone, over the second.
    pub held_out: Simulated,
    /// With what is set now, over the second half.
    pub present_held_out: Simulated,
    /// Would `auto` set them?
    pub worth_it: bool,
    /// The arguments of `tanada volume set`.
    pub changes: Vec<String>,
}
