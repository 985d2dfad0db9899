//! Virtual disks, and the nodes and stores that they are kept in.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::figures::Counters;
use super::level::ClusterLevel;

/// What a virtual disk is, and what holds for its requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DiskTerms {
    /// `virtual`.
    pub kind: String,
    pub name: String,
    /// Its number, as names of objects have it.
    pub id: String,
    pub size_bytes: u64,
    /// Copies of each extent, and how many a write must reach at least.
    pub copies: u8,
    pub min_copies: u8,
    /// `low`, `normal` or `high`.
    pub priority: String,
    /// How often a seek behind another client of its class counts; none: once.
    pub fairness: Option<f64>,
    /// Who holds the reservations that its requests are attached to.
    pub holder: Option<String>,
    /// What requests do while the meta store is away: `wait` or `fail`.
    #[serde(default)]
    pub on_meta_loss: String,
    /// What its clients get at most; none: no cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caps: Option<super::caps::Caps>,
}

/// A virtual disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Disk {
    #[serde(flatten)]
    pub terms: DiskTerms,
    /// `healthy`, `degraded`, `resyncing`, `full`, `read-only` or `offline`.
    pub health: String,
    /// Why it is not healthy.
    pub why: String,
    /// The node that has it open.
    pub open_on: Option<String>,
    /// NBD clients of it, where it is open on this node.
    pub clients: u64,
    /// The snapshot it goes on from.
    pub from: Option<String>,
    /// Oldest first.
    pub snapshots: Vec<Snapshot>,
    /// Stores that miss writes, and the generation since which they do.
    pub out: Vec<Out>,
    /// The least number of in-sync copies any extent may have.
    #[serde(rename = "weakest")]
    pub redundancy_floor: u8,
    pub generation: u64,
    pub epoch: u64,
    /// Where clients of this node find it.
    pub nbd: Vec<String>,
    /// What its clients asked, where it is open on this node: since it was opened, by their class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<Counters>,
    /// Copies being made, where it is open on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync: Option<Resync>,
}

/// How far copies are that a virtual disk lacks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Resync {
    /// To be copied at most until each extent has all its copies in sync.
    pub left_bytes: u64,
    /// Copied from store to store since it was opened, so that copies are equal and as many as configured.
    pub copied_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Out {
    /// Its number.
    pub store: u16,
    /// Its name.
    #[serde(default)]
    pub name: String,
    pub since_generation: u64,
}

/// A snapshot of a virtual disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    pub name: String,
    pub size_bytes: u64,
    /// Volumes that were cloned from it.
    pub clones: Vec<String>,
}

/// A volume to be made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewDisk {
    pub name: String,
    pub size_bytes: u64,
    /// 1 to 3; none: 2, or 1 where all stores are in one failure domain.
    pub copies: Option<u8>,
    /// How many a write must reach at least; none: 1 of up to 2, 2 of 3.
    pub min_copies: Option<u8>,
    /// `low`, `normal` or `high`.
    pub priority: Option<String>,
    /// How often a seek behind another client of its class counts, 1 to 100; none: once.
    pub fairness: Option<f64>,
    /// Its requests are attached to what this holder has reserved at the stores.
    pub holder: Option<String>,
    /// What requests do while the meta store is away: `wait` (none: that) or `fail`.
    pub on_meta_loss: Option<String>,
}

/// A change of a volume.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiskChange {
    pub name: Option<String>,
    pub size_bytes: Option<u64>,
    /// It may become smaller: what lies behind its new end is gone then.
    pub shrink: bool,
    /// `low`, `normal` or `high`.
    pub priority: Option<String>,
    /// How often a seek behind another client of its class counts, 1 to 100.
    pub fairness: Option<f64>,
    /// How many copies a write must reach at least.
    pub min_copies: Option<u8>,
    /// Its requests are attached to what this holder has reserved at the stores; empty: to nothing any more.
    pub holder: Option<String>,
    /// What requests do while the meta store is away: `wait` or `fail`.
    pub on_meta_loss: Option<String>,
    /// What its clients get at most: bytes per second such as `100MB/s`, or `off`.
    pub max_read: Option<String>,
    pub max_write: Option<String>,
    /// Requests per second such as `500`, or `off`.
    pub max_read_iops: Option<String>,
    pub max_write_iops: Option<String>,
}

/// A name for what is to be made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Called {
    pub name: String,
}

/// What a repair may do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RepairAsk {
    /// How long to wait for the resync of copies; none: as long as copies are made, 300 s at most.
    #[serde(rename = "patience_seconds")]
    pub timeout_seconds: Option<u64>,
    /// Delete what no map needs, of all volumes.
    pub free: bool,
}

/// What a repair found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Repaired {
    pub volume: Disk,
    /// Since the volume was opened.
    pub reconciled_extents: u64,
    pub resynced_extents: u64,
    #[serde(rename = "mended_copies")]
    pub repaired_copies: u64,
    /// Of what scrubs and reads found damaged: bytes that were written anew from another copy.
    #[serde(default)]
    pub repaired_bytes: u64,
    /// And what could not be, one line each: of what no copy has 1,000 at most, and of the rest.
    #[serde(default)]
    pub damage_left: Vec<String>,
    /// How much more could not be.
    #[serde(default)]
    pub damage_left_more: u64,
    /// In-sync copies that extents lack.
    #[serde(default)]
    pub missing_copies: u64,
    /// Copies that maps need and that are not there, one line each.
    pub losses: Vec<String>,
    /// Numbers of stores of which nothing is known.
    pub unknown_stores: Vec<u16>,
    /// Their names.
    #[serde(default)]
    pub unknown_store_names: Vec<String>,
    /// Copies that no map needs, of all volumes.
    pub leaked_copies: u64,
    pub freed: bool,
}

/// How a volume is taken over.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TakeOverAsk {
    /// Its clients elsewhere sent nothing for so long (30 s unless said; 5 s at least).
    pub idle_seconds: Option<u64>,
}

/// A store of the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterStore {
    pub name: String,
    pub number: u16,
    pub node: String,
    /// Does its node keep its lease? None: it is one that keeps none.
    pub node_up: Option<bool>,
    pub address: String,
    /// What it fails together with.
    pub domain: String,
    pub rotating: bool,
    /// `active` or `draining`.
    pub state: String,
    /// Its identity.
    pub uuid: String,
    /// How often it said how long its queue is without being asked, since this node began; and how long ago it did so last.
    pub states_heard: u64,
    pub heard_ago_ms: Option<u64>,
    /// While it is drained: volumes that may still have something there, and what those have that are open on this node.
    pub volumes_left: Option<Vec<String>>,
    pub extents_left_here: u64,
    /// In the answer to what began a drain: its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
}

/// A store to be registered by hand.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoreAsk {
    pub name: String,
    pub node: String,
    pub address: String,
    /// None: the node.
    pub domain: Option<String>,
    pub number: Option<u16>,
    pub rotating: bool,
}

/// Another state of a store.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoreChange {
    /// `active` or `draining`.
    pub state: String,
}

/// How a store is removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub struct RemoveAsk {
    /// It is gone for good.
    pub lost: bool,
}

/// This node of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Here {
    pub node: String,
    /// Where its records are.
    pub meta: String,
    /// Where every volume is exported by its name.
    pub nbd: Vec<String>,
    pub tls: bool,
    /// To whom load reports of the stores' queues are sent unasked; none: to no node.
    pub announce: Option<String>,
    /// By which policy a copy is read and new extents are placed, such as `tanada`.
    #[serde(default)]
    pub replica_choice: String,
    /// Why other nodes are not heard, though that is wanted.
    pub deaf: Option<String>,
    /// What is wrong with the meta store as a whole, as this node found it when it began.
    #[serde(default)]
    pub warning: Option<String>,
    /// Stores of this node that could not be registered yet, and why.
    pub unregistered: Vec<String>,
    /// For how long the meta store has not answered, where that is long: all else is what it said before.
    #[serde(default)]
    pub meta_silent_seconds: Option<f64>,
    /// Which records its nodes write; none: the meta store has not said it yet.
    #[serde(default)]
    pub level: Option<ClusterLevel>,
    pub stores: Vec<ClusterStore>,
}

/// Done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Done {
    pub done: bool,
}
