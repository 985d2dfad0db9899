//! What travels over the admin API about stores: their figures, and reservations in their calendars.
//!
//! Names carry their unit; moments are seconds since 1970 by the daemon's clock. A reservation is called `STORE/NUMBER`.

use serde::{Deserialize, Serialize};
use store::qos::manager::{ManagerReport, StretchReport};
use store::qos::session::SessionReport;
use utoipa::ToSchema;

use super::figures::Counters;

/// What a store is, and how large its tables are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StoreBasics {
    pub name: String,
    /// What it stands on.
    pub device: String,
    /// Where clients connect.
    pub listen: Vec<String>,
    /// Are clients that show nothing let in, as best effort?
    pub unauthenticated: bool,
    pub unit_bytes: u64,
    pub page_bytes: u64,
    /// Of the object table, what is taken and what there is.
    pub table_bytes: u64,
    pub table_max_bytes: u64,
    /// Memory its tables take.
    pub memory_bytes: u64,
}

/// A store: objects on a device, with reserved throughput.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Store {
    #[serde(flatten)]
    pub basics: StoreBasics,
    /// Scheduler, room, what was done, what the device is trusted to do, what is promised, what is given up (`shed`),
    /// broken promises (`log`).
    #[schema(value_type = Object)]
    pub node: ManagerReport,
    /// Those that are open, then those closed lately: promised, delivered, windows by how they ended.
    #[schema(value_type = Vec<Object>)]
    pub sessions: Vec<SessionReport>,
    pub scrub: Scrub,
    pub calibrating: Calibrating,
    /// Pages known to be bad and not written since.
    pub bad_blocks: u64,
    /// The first of them, in words.
    pub first_bad: Vec<String>,
    pub server: Server,
    /// What was asked of its objects, by `read`, `write`, `create`, `delete`, `change`, `look` and `flush`.
    #[serde(default)]
    pub figures: Counters,
    /// In the answer to what began long work: its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
}

/// How the calibration goes that runs, or ran last since the start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Calibrating {
    pub running: bool,
    /// What it does now.
    pub what: String,
    pub done_percent: f64,
    /// Why it found nothing.
    pub failed: Option<String>,
}

/// How a store's key is to be changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct RotateAsk {
    /// Capabilities given out stay good as long as their reservations last; else they are void at once.
    pub keep_old: bool,
}

/// How a store is to be calibrated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CalibrateAsk {
    /// Everything, which takes some hours; else a quarter of an hour.
    pub full: bool,
}

/// How the scrub goes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Scrub {
    pub running: bool,
    /// How fast it reads by itself, once a day; absent: only when asked.
    pub bytes_per_second: Option<u64>,
    /// Rounds finished since the store was made, as far as one ended since the start.
    pub rounds: u64,
    /// Read in the round that runs, or ran last, of what held data when it began.
    pub read_bytes: u64,
    pub of_bytes: u64,
    /// Pages that round found bad.
    pub bad: u64,
    pub ended_unix_seconds: Option<u64>,
    /// Why it was cut off.
    pub failed: Option<String>,
}

/// The server in front of it, since the start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Server {
    pub connections: u64,
    pub accepted: u64,
    /// Turned away because there were too many.
    #[serde(rename = "crowded_out")]
    pub turned_away: u64,
    /// Did not show that they may come in.
    pub not_let_in: u64,
    /// Cut because the peer stalled or went silent.
    pub stalled: u64,
    /// Cut because what came was not the protocol.
    pub violations: u64,
    pub answered: u64,
    pub failed: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// What requests hold.
    pub held_bytes: u64,
}

/// A reservation as asked for: on every one of the stores, or not at all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReserveAsk {
    pub stores: Vec<String>,
    /// `read` or `write`.
    pub direction: String,
    pub rate_bytes_per_second: u64,
    /// When; absent: now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_unix_seconds: Option<u64>,
    pub for_seconds: u64,
    /// The window it is judged by; absent: a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ns: Option<u64>,
    /// The share of windows to be kept; absent: 99.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability_percent: Option<f64>,
    /// Room for what is written, on each store.
    #[serde(default)]
    pub space_bytes: u64,
    /// Only objects whose names begin so; must be given, and not be empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Who it is for, for people.
    #[serde(default)]
    pub holder: String,
}

/// A rate for an export, as asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportReserveAsk {
    /// `read` or `write`.
    pub direction: String,
    pub rate_bytes_per_second: u64,
    /// When; absent: now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_unix_seconds: Option<u64>,
    pub for_seconds: u64,
}

/// A reservation in one store's calendar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Reservation {
    /// `STORE/NUMBER`.
    pub id: String,
    pub store: String,
    /// `committed`, or `held` while a reservation over several stores is being made.
    pub state: String,
    pub direction: String,
    pub rate_bytes_per_second: u64,
    pub window_ns: u64,
    pub probability_percent: f64,
    pub from_unix_seconds: u64,
    pub until_unix_seconds: u64,
    pub space_bytes: u64,
    /// Of that, not yet written.
    pub space_left_bytes: u64,
    pub scope: String,
    pub holder: String,
    /// Of a reservation over several stores: its number, in hexadecimal. Cancelling one part cancels all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(flatten)]
    pub given: ReservationGiven,
}

/// What is said of a reservation where it was just made, or is asked for alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReservationGiven {
    /// The token to show to the store; only where one reservation is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
    /// Where it was just made: is the link of the store's node booked with it (`[network] speed`)? Absent: the store is of no
    /// cluster, or reached over Unix sockets alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_booked: Option<bool>,
}

/// What would come of asking for a reservation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Offer {
    /// Would it be granted as asked?
    pub fits: bool,
    pub from_unix_seconds: u64,
    pub until_unix_seconds: u64,
    /// The earliest slot of this length in which all stores could; absent: none.
    pub earliest_unix_seconds: Option<u64>,
    /// The largest rate in the asked slot on all stores; absent: none.
    pub largest_bytes_per_second: Option<u64>,
    /// Why it does not fit, by store.
    pub refused: Vec<StoreRefusal>,
}

/// Why one store cannot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreRefusal {
    pub store: String,
    pub error: String,
}

/// A reservation that was not made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReserveRefusal {
    pub error: String,
    pub what_to_do: String,
    /// What would fit instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<Offer>,
}

/// What a store has promised, over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Calendar {
    pub store: String,
    pub now_unix_seconds: u64,
    /// Without gaps, from the beginning to the end of what was asked for.
    #[schema(value_type = Vec<Object>)]
    pub stretches: Vec<StretchReport>,
    /// All that overlap it, by their beginning.
    pub reservations: Vec<Reservation>,
}

/// Which stretch of a calendar is asked for.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams,
)]
#[serde(deny_unknown_fields)]
pub struct CalendarAsk {
    /// From then on; absent: now.
    pub from_unix_seconds: Option<u64>,
    /// For so long; absent: until the last reservation ends, a day at least.
    pub for_seconds: Option<u64>,
}
