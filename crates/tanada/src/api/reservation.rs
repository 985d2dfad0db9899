//! Reservations over whatever a cluster has: a volume, a set of stores, an export.
//!
//! Rates, spans and times are texts as the command line takes them: `200MB/s`, `2h`, `20:00`. What is answered has
//! numbers, their units in the names.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The cause of one that was ended by a request, before its time.
pub const RELEASED: &str = "released";

/// What a reservation is for: exactly one of `volume`, `stores` and `export`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReservationTarget {
    /// A virtual disk: parts at all of its stores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Stores, by their names in the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stores: Vec<String>,
    /// The rate is that of all stores together: requests go to all of them in turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stripe: bool,
    /// With `stores`: only objects whose names begin so. Must be given and not empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// An export of a node's hybrid that has a queue. It is asked for at that node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// With `export`: the node that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Of stores: capabilities are good at stores that do not reach the meta store, too; else they lapse there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub offline: bool,
}

/// What a reservation has to do with allotments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum AllotmentAsk {
    /// Is it one? No client uses it then, its account books out of it.
    Is(bool),
    /// It is booked inside this one of the account, and needs no free rate at the stores.
    Inside(String),
}

/// A reservation as it is asked for. Asking twice with the same name reserves once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReservationAsk {
    /// Unique in its account.
    pub name: String,
    pub target: ReservationTarget,
    /// Reads at this rate, such as `200MB/s`; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<String>,
    /// Writes at this rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<String>,
    /// When it begins, such as `now`, `+30m`, `20:00`, `2026-11-22T20:00:00Z`; absent: now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// How long it lasts, such as `2h`.
    #[serde(rename = "for")]
    pub span: String,
    /// Of a volume: how many of its stores may be lost with the promise kept; absent: 1, 0 with one copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerate: Option<u8>,
    /// Of a volume: `any` (the promise holds for any pattern) or `spread` (for requests that all extents get evenly).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The window in which the rate is to be reached; absent: `1s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// The share of windows in which it is, in percent; absent: 99.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability_percent: Option<f64>,
    /// Room for what is written, at each store, such as `100GiB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<String>,
    /// It ends by itself when nothing was asked under it for so long, such as `10m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<String>,
    /// `true`: it is an allotment. A name or id: it is booked inside that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allotment: Option<AllotmentAsk>,
    /// An account that may have its capability beside its own, to hand it to its user, as an agent of Slurm does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Whose it is; absent: the caller's. Another account than the caller's own takes the role `operator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
}

/// What is to be different about a reservation; what is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReservationChange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<String>,
    /// It ends so long after now, or after its begin if that is to come, such as `2h`.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub span: Option<String>,
}

/// What of a reservation one store keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReservationPart {
    /// The store's name, or its number where the name is not known.
    pub store: String,
    /// The part's number in that store's calendar.
    pub number: u64,
    /// `read` or `write`.
    pub direction: String,
    pub rate_bytes_per_second: u64,
}

/// What the parts of a reservation come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PromisedNow {
    pub read_bytes_per_second: u64,
    pub write_bytes_per_second: u64,
}

/// What else holds for a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WholeTerms {
    pub tolerate: u8,
    /// `any` or `spread`.
    pub plan: String,
    /// It ends when nothing was asked under it for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<u64>,
    /// It is one out of which its account books.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allotment: bool,
    /// The id of the allotment that it is booked inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_allotment: Option<String>,
    /// The account that may have its capability beside its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Its capabilities are good at stores that do not reach the meta store, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub offline: bool,
}

/// A reservation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WholeReservation {
    /// `r-` and 32 hexadecimal digits; the name of the reservation serves as well.
    pub id: String,
    pub name: String,
    /// Whose it is; empty: the daemon's owner.
    pub account: String,
    pub target: ReservationTarget,
    /// `holding`, `committed`, `degraded`, `aborted` or `ended`.
    pub state: String,
    /// Why it is not, or no longer, whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    pub read_bytes_per_second: u64,
    pub write_bytes_per_second: u64,
    /// What its parts come to now; less than promised where it is degraded.
    pub promised_now: PromisedNow,
    pub from_unix_seconds: u64,
    pub until_unix_seconds: u64,
    #[serde(flatten)]
    pub terms: WholeTerms,
    pub parts: Vec<ReservationPart>,
    /// Of stores: the capability set, where it was just made or asked for by its owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
    #[serde(flatten)]
    pub lacks: WholeLacks,
}

/// What a reservation lacks that was just made or changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WholeLacks {
    /// Why its capability is not here, though it was made or changed: ask for it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability_error: Option<String>,
    /// Where it was just made: nodes of its stores whose link is not booked with it, since its speed is not known there
    /// (`[network] speed`). Only the node that was asked is looked at, and only stores that are reached over a link.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links_not_booked: Vec<String>,
}

/// Which account's reservation is meant, and whether it is only asked about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub struct ReservationQuery {
    /// Whose; absent: the caller's.
    #[serde(default)]
    pub account: String,
    /// With POST: nothing is set aside, the answer is what would fit.
    #[serde(default)]
    pub dry_run: bool,
}

/// What would fit instead.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReservationOffer {
    /// Does it fit as asked?
    pub fits: bool,
    /// The earliest begin at which it fits, at this rate and for this long; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earliest_unix_seconds: Option<u64>,
    /// The largest part of the asked rates that fits in the asked time, in permille; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_permille: Option<u32>,
    /// That part of the asked rate, of reads if reads were asked for; no more than fits, so it is granted when sent back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest: Option<String>,
    /// That part of the reads asked for, to the byte; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_read_bytes_per_second: Option<u64>,
    /// And of the writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_write_bytes_per_second: Option<u64>,
    /// From the asked begin on it fits for so long; absent: not for a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_seconds: Option<u64>,
    /// Why it does not fit as asked, by store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
}

impl ReservationOffer {
    /// Is there anything that would fit?
    pub fn has_some(&self) -> bool {
        self.earliest_unix_seconds.is_some()
            || self.largest_permille.is_some()
            || self.longest_seconds.is_some()
    }
}

/// A reservation that was not made, or not changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReservationRefusal {
    pub error: String,
    pub what_to_do: String,
    /// What would fit instead, where the question is of room or rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<ReservationOffer>,
}
