//! The whole daemon at one moment: its devices, volumes, stores, exports and NBD listeners.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::certificates::OwnCertificate;
use super::clients::NbdListener;
use super::figures::{Counters, Power};
use super::health::Health;
use super::store::Store;
use super::volume::Volume;

/// The whole daemon at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    pub version: String,
    pub pid: u32,
    /// Where the configuration came from.
    pub config: String,
    /// When the daemon started, in seconds since 1970.
    pub started_unix_seconds: u64,
    pub uptime_seconds: f64,
    /// What stood on data threads that died: nothing of it is served.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dead: Vec<String>,
    /// How each data thread waits for its files and sockets: `io_uring` or `thread pool`.
    pub drivers: Vec<String>,
    /// What each data thread did while it had nothing to do, in the same order.
    #[serde(default)]
    pub threads: Vec<Thread>,
    /// Threads that serve NBD clients for them, address by address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Gate>,
    pub devices: Vec<Device>,
    /// Hybrids.
    pub volumes: Vec<Volume>,
    #[serde(default)]
    pub stores: Vec<Store>,
    pub exports: Vec<Export>,
    pub nbd: Vec<NbdListener>,
    #[serde(flatten)]
    pub machine: Machine,
}

/// The daemon as a whole, and its machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Machine {
    /// The verdict, and the reasons for it.
    #[serde(default)]
    pub health: Health,
    /// Data threads that gave no figures in time: what is on them is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<String>,
    /// Block devices of the daemon's machine (ublk) that wait for a daemon, this one or another: whatever reads or writes
    /// them waits too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ublk_waiting: Vec<WaitingDisk>,
    /// What the daemon shows to other nodes and clients where TLS is spoken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<OwnCertificate>,
}

/// A block device that waits for a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitingDisk {
    /// Such as `/dev/ublkb3`.
    pub path: String,
    /// The daemon that served it, as far as the driver knows.
    pub process: Option<u32>,
}

impl WaitingDisk {
    /// For people.
    pub fn said(&self) -> String {
        let last = self
            .process
            .map(|process| format!(", process {process} ended"));
        let last = last.unwrap_or_default();
        format!("{} waits for a daemon{last}", self.path)
    }
}

/// A gate: a thread that serves NBD clients of an address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Gate {
    /// Its number and address: `gate 0 of 127.0.0.1:10809`.
    pub name: String,
    /// As of `drivers`.
    pub driver: String,
    /// It has ended, and with it the connections of its clients; the others of its address serve.
    pub dead: bool,
    /// Absent if it is dead, or gave no answer in time.
    pub thread: Option<Thread>,
}

/// A data thread or a gate, and how it waited for work since it began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Thread {
    /// What stands at its top; of a gate, its number and address.
    pub names: Vec<String>,
    /// `off`: it sleeps at once; `adaptive`: it looks for work before that where it pays; `always`: it never sleeps.
    pub poll: String,
    /// Since it began.
    pub seconds: f64,
    /// Of them, spent looking for work without sleeping.
    pub spun_seconds: f64,
    /// Of these, those in which nothing came.
    pub spun_in_vain_seconds: f64,
}

/// A device of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Device {
    pub name: String,
    /// `file`, `block device`, `model`, `memory` or `stripe`.
    pub kind: String,
    /// The model's name, for a model.
    pub model: Option<String>,
    /// Where its data are, if not in memory.
    pub path: Option<String>,
    pub size_bytes: u64,
    pub physical_block_bytes: u64,
    pub rotational: bool,
    pub read_only: bool,
    /// The stripe or volume it is part of.
    pub part_of: Option<String>,
    pub figures: Counters,
    /// Energy, for a model. A stripe's is that of its devices.
    pub power: Option<Power>,
    /// Of the slow device of a hybrid in energy mode: does it sleep?
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spindle: Option<Spindle>,
}

/// The spindle of a disk that may sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Spindle {
    /// It stands still; else it turns.
    pub asleep: bool,
    /// When it fell asleep or woke, in seconds since 1970. What the disk did by itself is seen within ten seconds.
    pub since_unix_seconds: u64,
}

impl Spindle {
    /// Does it sleep, for people.
    pub fn word(&self) -> &'static str {
        if self.asleep { "asleep" } else { "awake" }
    }
}

/// What clients of an export are beside others, and what they get at most.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExportTerms {
    /// Of a volume of the cluster: its clients beside others, `low`, `normal` or `high`.
    pub priority: Option<String>,
    /// Of a volume of the cluster: how often a seek behind another client of its class counts; none: once.
    pub fairness: Option<f64>,
    /// What all its clients together get at most; none: no cap of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caps: Option<super::caps::Caps>,
}

/// Something clients see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Export {
    pub name: String,
    /// The device or volume behind it; `volume:NAME`: a volume of the cluster.
    pub device: String,
    /// 0 as long as it is not known.
    pub size_bytes: u64,
    /// Where clients connect.
    pub nbd: Vec<String>,
    /// The block device of the daemon's machine that it is, such as `/dev/ublkb0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ublk: Option<String>,
    /// What that block device was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ublk_requests: Option<DiskRequests>,
    /// What NBD clients asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbd_requests: Option<NbdRequests>,
    /// Where virtual machines connect (vhost-user-blk).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost_user: Option<String>,
    /// What they asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost_user_requests: Option<DiskRequests>,
    pub read_only: bool,
    pub tls: bool,
    #[serde(flatten)]
    pub terms: ExportTerms,
    /// Clients connected now.
    pub connections: u64,
    /// Requests answered with an error, refused ones among them.
    pub errors: u64,
    /// Why no client gets it now.
    pub why: Option<String>,
}

/// What NBD clients asked of an export since the daemon began, what was refused among it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct NbdRequests {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub flushes: u64,
    pub discards: u64,
    pub write_zeroes: u64,
}

/// What the kernel, or virtual machines, asked of a disk since the daemon began, without what failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct DiskRequests {
    /// Under way.
    pub in_flight: u64,
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub flushes: u64,
    pub discards: u64,
    pub write_zeroes: u64,
    /// Writes and zeroes that were durable before they were answered (FUA, or a virtual machine without a write cache).
    pub forced: u64,
    /// Answered with an error.
    pub errors: u64,
}

impl Export {
    /// Where clients find it, in a line.
    pub fn places(&self) -> String {
        let all = self.nbd.iter().chain(&self.ublk);
        let vhost = self.vhost_user.iter().map(|at| format!("vhost-user {at}"));
        let all: Vec<String> = all.cloned().chain(vhost).collect();
        all.join(" ")
    }
}
