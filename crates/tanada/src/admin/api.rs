//! What travels over the admin API: the same types on both sides, and in the OpenAPI document.
//!
//! Names carry their unit. Counters run from the start of the daemon and only grow.

use std::fmt;

use config::tier::TierKeys;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::store::Store;
use super::tier::{Tier, TierSettings};

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
    pub devices: Vec<Device>,
    pub volumes: Vec<Volume>,
    #[serde(default)]
    pub stores: Vec<Store>,
    pub exports: Vec<Export>,
    pub nbd: Vec<NbdListener>,
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
}

/// A hybrid: one disk made of a slow and a fast device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    pub name: String,
    pub size_bytes: u64,
    pub slow: String,
    /// The fast device; absent while detached.
    pub fast: Option<String>,
    /// Which cache is on it; absent while detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<Attachment>,
    /// `healthy`, `degraded`, `pass-through`, `evacuating`, `failed` or `closed`.
    pub health: String,
    /// Why, where there is something to say.
    pub why: String,
    pub settings: Settings,
    pub cache: Cache,
    /// Where its tier stands; absent: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// The trace being recorded; absent: none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
    /// Does a shadow watch it, for `GET /v1/volumes/{name}/advice`?
    #[serde(default)]
    pub advise: bool,
    /// What clients asked of it.
    pub figures: Counters,
}

/// The cache that a volume has, as the record of pairs and the fast device's label name it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Attachment {
    /// Its identity, 32 hexadecimal digits.
    pub cache: String,
    /// The number of the attachment: each making and each start counts one up.
    pub generation: u64,
}

impl From<hybrid::AttachmentId> for Attachment {
    fn from(attachment: hybrid::AttachmentId) -> Attachment {
        Attachment {
            cache: format!("{:032x}", attachment.cache),
            generation: attachment.generation,
        }
    }
}

/// A trace being recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Trace {
    /// Where; earlier files are this one's name with `.1`, `.2`, ...
    pub file: String,
    /// What all files together may hold.
    pub max_bytes: u64,
    /// Requests recorded, those in files rotated away since included.
    pub requests: u64,
    /// Requests missing, because the file could not be written fast enough.
    pub dropped: u64,
    /// Bytes written, those in files rotated away since included.
    pub written_bytes: u64,
    /// Why it ended by itself, or could not begin; absent: it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl From<trace::record::Recording> for Trace {
    fn from(recording: trace::record::Recording) -> Trace {
        Trace {
            file: recording.file.display().to_string(),
            max_bytes: recording.max.0,
            requests: recording.written,
            dropped: recording.dropped,
            written_bytes: recording.bytes.0,
            failed: recording.failed,
        }
    }
}

/// What the shadow of a volume found since it began: small caches that decide on a sample of what is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Advice {
    pub volume: String,
    /// How long the shadow has watched.
    pub watched_seconds: f64,
    /// Requests that read or wrote.
    pub requests: u64,
    /// Pages of 4 KiB they asked for.
    pub pages: u64,
    /// Of those, pages that went past the cache in long streams.
    pub passed_pages: u64,
    /// Uses of pages in the sample.
    pub sampled: u64,
    /// The share of pages in the sample.
    pub sampling_rate: f64,
    /// Different pages asked for outside long streams, estimated, in bytes.
    pub footprint_bytes: u64,
    /// The policy the figures hold for.
    pub policy: String,
    /// The write mode they hold for.
    pub write: String,
    /// The admission they hold for.
    pub admission: String,
    /// The present size of the cache.
    pub present_bytes: u64,
    /// Share of bytes read that came from the fast device, measured since the daemon began; absent: nothing was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_read_share: Option<f64>,
    /// A quarter, a half, once, twice and four times the present size.
    pub sizes: Vec<AdviceAtSize>,
    /// LRU at sizes evenly spread up to the footprint.
    pub lru: Vec<AdvicePoint>,
    /// The size advised; absent: too little was seen, or no size does much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advised_bytes: Option<u64>,
    /// The advice and why, in sentences.
    pub reasons: Vec<String>,
    /// Memory the shadow holds.
    pub memory_bytes: u64,
}

/// What one size of the cache is expected to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AdviceAtSize {
    pub size_bytes: u64,
    /// Pages found in the cache, per page asked for; those that go past it are misses.
    pub hit_ratio: f64,
    /// The same of pages read.
    pub read_hit_ratio: f64,
    /// With LRU that takes in every miss.
    pub lru_hit_ratio: f64,
    /// Pages the slow device would read and write.
    pub slow_pages: u64,
    /// Share of the pages asked for that the slow device is spared; negative where it has more to do.
    pub slow_saved: f64,
    /// Fills and writes of the fast device in a day.
    pub flash_bytes_per_day: f64,
}

/// A point of the LRU curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AdvicePoint {
    pub size_bytes: u64,
    pub hit_ratio: f64,
}

impl Advice {
    /// What was found, and what the cache itself counted.
    pub fn new(volume: &str, found: sim::advise::shadow::Findings, cache: &Cache) -> Advice {
        let advised_bytes = found.chosen.map(|chosen| found.sizes[chosen].size_bytes);
        let (fast, all) = cache.read_bytes();
        let sizes = found.sizes.into_iter().map(|at| AdviceAtSize {
            size_bytes: at.size_bytes,
            hit_ratio: at.hit_ratio,
            read_hit_ratio: at.read_hit_ratio,
            lru_hit_ratio: at.lru_hit_ratio,
            slow_pages: at.slow_pages,
            slow_saved: at.slow_saved,
            flash_bytes_per_day: at.flash_bytes_per_day,
        });
        let lru = found.lru.into_iter().map(|point| AdvicePoint {
            size_bytes: point.size_bytes,
            hit_ratio: point.hit_ratio,
        });
        Advice {
            volume: volume.to_owned(),
            watched_seconds: found.watched_seconds,
            requests: found.requests,
            pages: found.pages,
            passed_pages: found.passed_pages,
            sampled: found.sampled,
            sampling_rate: found.rate,
            footprint_bytes: found.footprint_bytes,
            policy: found.policy,
            write: found.write,
            admission: found.admission,
            present_bytes: found.present_bytes,
            measured_read_share: (all > 0).then(|| fast as f64 / all as f64),
            sizes: sizes.collect(),
            lru: lru.collect(),
            advised_bytes,
            reasons: found.reasons,
            memory_bytes: found.memory_bytes,
        }
    }
}

/// The choices in force; keys as in `[[hybrid]]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Settings {
    /// `cache`, `tier` or `both`.
    pub mode: String,
    pub policy: String,
    pub write: String,
    pub admission: String,
    pub block_bytes: u64,
    /// Streams of this length bypass the cache; absent: none does.
    pub sequential_bypass_bytes: Option<u64>,
    /// Percent of the cache.
    pub dirty_low: u8,
    /// Percent of the cache.
    pub dirty_high: u8,
    pub energy: bool,
    /// How long dirty data wait while the slow device sleeps, in energy mode.
    pub age_limit_seconds: Option<f64>,
    /// How long the slow device is idle before it is sent to sleep, in energy mode.
    pub standby_after_seconds: Option<f64>,
    pub flash_writes_per_day_bytes: Option<u64>,
    /// How much of the fast device is used; absent: all of it.
    pub fast_size_bytes: Option<u64>,
    /// The choices for the tier; absent in mode `cache`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<TierSettings>,
}

/// Reads by where they were served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Share {
    pub requests_fast: u64,
    pub requests_slow: u64,
    /// Requests that needed both devices.
    pub requests_both: u64,
    pub bytes_fast: u64,
    pub bytes_slow: u64,
}

/// Writes by clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Written {
    pub requests: u64,
    pub bytes: u64,
}

/// What a hybrid's cache holds and did since it was opened.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Cache {
    /// Room for data on the fast device, in bytes.
    pub cache_bytes: u64,
    /// Data on the fast device, in bytes.
    pub cached_bytes: u64,
    /// Data that only the fast device has, in bytes.
    pub dirty_bytes: u64,
    /// Of those, what the last read of the fast device could not read, in bytes.
    #[serde(default)]
    pub unreadable_dirty_bytes: u64,
    /// Rounds of the cleaner that failed since the last one that worked.
    #[serde(default)]
    pub clean_failures: u64,
    /// How long the oldest of them wait, in nanoseconds.
    pub dirty_age_ns: u64,
    /// Regions of 4 MiB marked as about to change on the slow device.
    pub marked_regions: u64,
    /// Reads outside sequential streams.
    pub random_reads: Share,
    /// Reads in sequential streams.
    pub sequential_reads: Share,
    /// Writes outside sequential streams.
    pub random_writes: Written,
    /// Writes in sequential streams.
    pub sequential_writes: Written,
    /// Bytes read from the fast device's slots.
    pub fast_bytes_read: u64,
    /// Bytes written to the fast device's slots.
    pub fast_bytes_written: u64,
    /// Writes sent to the fast device's slots.
    pub fast_data_writes: u64,
    /// Bytes read from the slow device.
    pub slow_bytes_read: u64,
    /// Bytes written to the slow device.
    pub slow_bytes_written: u64,
    /// Pages copied to the fast device after a read miss or a write-through.
    pub fills: u64,
    /// Copies given up for want of room or time.
    pub fills_dropped: u64,
    /// Pages evicted.
    pub evicted: u64,
    /// Bytes the cleaner destaged.
    pub bytes_cleaned: u64,
    /// Rounds of the cleaner.
    pub clean_rounds: u64,
    /// Times a request had to wait for room.
    pub waits_for_room: u64,
    /// Pages whose checksum did not agree.
    pub bad_checksums: u64,
    /// Commits of the map.
    pub commits: u64,
    /// Bytes written to the ledger.
    pub ledger_bytes_written: u64,
    /// Writes sent for the ledger.
    pub ledger_writes: u64,
    /// Bytes of the ledger's log in use.
    pub ledger_used_bytes: u64,
    /// Size of the ledger's log in bytes.
    pub ledger_size_bytes: u64,
    /// Memory held for the map and the policy, in bytes.
    pub memory_bytes: u64,
    /// Is the slow device's spindle at rest?
    pub slow_asleep: bool,
    /// Pages the last start recovered.
    pub recovered_pages: u64,
    /// Clean pages the last start dropped because their region was marked.
    pub recovered_dropped: u64,
    /// How long the last start took.
    pub recovery_ns: u64,
}

/// Energy a modelled device has drawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Power {
    pub joules: f64,
    /// The time that covers.
    pub over_ns: u64,
    pub spin_ups: u64,
    pub standby: bool,
}

/// What was asked of a device or volume.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = Figures)]
pub struct Counters {
    pub over_ns: u64,
    pub in_flight: u64,
    /// Requests in flight summed over time; divided by the time, the mean queue.
    pub depth_time_ns: u64,
    /// Time with at least one request in flight.
    pub busy_ns: u64,
    pub operations: Vec<Operation>,
}

/// One kind of request and who it was for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// `read`, `write`, `flush`, `discard` or `write zeroes`.
    pub op: String,
    /// `foreground`, `metadata` or `background`.
    pub class: String,
    /// Answers, good and bad.
    pub requests: u64,
    /// Bytes of good answers.
    pub bytes: u64,
    /// Bad answers.
    pub errors: u64,
    /// Requests whose caller went away before the answer.
    pub abandoned: u64,
    pub latency: Latency,
}

/// Latencies in nanoseconds, from the call to the answer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Latency {
    pub count: u64,
    pub sum_ns: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
    /// (largest value, count) of each bucket in use, ascending.
    #[schema(value_type = Vec<Vec<u64>>)]
    pub buckets: Vec<(u64, u64)>,
}

impl Latency {
    /// What was added since `earlier`, bucket by bucket.
    pub fn since(&self, earlier: &Latency) -> Vec<(u64, u64)> {
        let before = |bound: u64| {
            earlier
                .buckets
                .binary_search_by_key(&bound, |bucket| bucket.0)
                .map_or(0, |index| earlier.buckets[index].1)
        };
        self.buckets
            .iter()
            .map(|&(bound, count)| (bound, count.saturating_sub(before(bound))))
            .filter(|bucket| bucket.1 > 0)
            .collect()
    }
}

/// The value that a share `q` of what the buckets hold does not exceed.
pub fn quantile(buckets: &[(u64, u64)], q: f64) -> Option<u64> {
    let count: u64 = buckets.iter().map(|bucket| bucket.1).sum();
    let rank = ((q * count as f64).ceil() as u64).max(1);
    let mut below = 0;
    buckets.iter().find_map(|&(bound, count)| {
        below += count;
        (below >= rank).then_some(bound)
    })
}

impl From<device::meter::Snapshot> for Counters {
    fn from(figures: device::meter::Snapshot) -> Counters {
        let operations = figures.operations.into_iter().map(|of| Operation {
            op: of.op,
            class: of.class,
            requests: of.requests,
            bytes: of.bytes,
            errors: of.errors,
            abandoned: of.abandoned,
            latency: Latency {
                count: of.latency.count,
                sum_ns: of.latency.sum_ns,
                p50_ns: of.latency.p50_ns,
                p90_ns: of.latency.p90_ns,
                p99_ns: of.latency.p99_ns,
                p999_ns: of.latency.p999_ns,
                max_ns: of.latency.max_ns,
                buckets: of.latency.buckets,
            },
        });
        Counters {
            over_ns: figures.over_ns,
            in_flight: figures.in_flight,
            depth_time_ns: figures.depth_time_ns,
            busy_ns: figures.busy_ns,
            operations: operations.collect(),
        }
    }
}

impl From<device::Power> for Power {
    fn from(power: device::Power) -> Power {
        Power {
            joules: power.joules,
            over_ns: power.over.0,
            spin_ups: power.spin_ups,
            standby: power.standby,
        }
    }
}

impl From<hybrid::Share> for Share {
    fn from(share: hybrid::Share) -> Share {
        Share {
            requests_fast: share.requests_fast,
            requests_slow: share.requests_slow,
            requests_both: share.requests_both,
            bytes_fast: share.bytes_fast,
            bytes_slow: share.bytes_slow,
        }
    }
}

impl From<hybrid::Written> for Written {
    fn from(written: hybrid::Written) -> Written {
        Written {
            requests: written.requests,
            bytes: written.bytes,
        }
    }
}

impl From<&hybrid::Settings> for Settings {
    fn from(settings: &hybrid::Settings) -> Settings {
        let energy = settings.energy;
        Settings {
            mode: settings.mode.to_string(),
            policy: settings.policy.to_string(),
            write: settings.write.to_string(),
            admission: settings.admission.to_string(),
            block_bytes: settings.block.0,
            sequential_bypass_bytes: settings.sequential_bypass.map(|bytes| bytes.0),
            dirty_low: settings.dirty_low,
            dirty_high: settings.dirty_high,
            energy: energy.is_some(),
            age_limit_seconds: energy.map(|energy| energy.age_limit.secs_f64()),
            standby_after_seconds: energy.map(|energy| energy.standby_after.secs_f64()),
            flash_writes_per_day_bytes: settings.flash_writes_per_day.map(|bytes| bytes.0),
            fast_size_bytes: settings.fast_bytes.map(|bytes| bytes.0),
            tier: settings.mode.has_tier().then(|| (&settings.tier).into()),
        }
    }
}

impl From<&hybrid::Status> for Cache {
    fn from(status: &hybrid::Status) -> Cache {
        Cache {
            cache_bytes: status.cache_bytes,
            cached_bytes: status.cached_bytes,
            dirty_bytes: status.dirty_bytes,
            unreadable_dirty_bytes: status.unreadable_dirty_bytes,
            clean_failures: status.clean_failures,
            dirty_age_ns: status.dirty_age_ns,
            marked_regions: status.marked_regions,
            random_reads: status.random_reads.into(),
            sequential_reads: status.sequential_reads.into(),
            random_writes: status.random_writes.into(),
            sequential_writes: status.sequential_writes.into(),
            fast_bytes_read: status.fast_bytes_read,
            fast_bytes_written: status.fast_bytes_written,
            fast_data_writes: status.fast_data_writes,
            slow_bytes_read: status.slow_bytes_read,
            slow_bytes_written: status.slow_bytes_written,
            fills: status.fills,
            fills_dropped: status.fills_dropped,
            evicted: status.evicted,
            bytes_cleaned: status.bytes_cleaned,
            clean_rounds: status.clean_rounds,
            waits_for_room: status.waits_for_room,
            bad_checksums: status.bad_checksums,
            commits: status.commits,
            ledger_bytes_written: status.ledger_bytes_written,
            ledger_writes: status.ledger_writes,
            ledger_used_bytes: status.ledger_used_bytes,
            ledger_size_bytes: status.ledger_size_bytes,
            memory_bytes: status.memory_bytes,
            slow_asleep: status.slow_asleep,
            recovered_pages: status.recovered_pages,
            recovered_dropped: status.recovered_dropped,
            recovery_ns: status.recovery.0.0,
        }
    }
}

impl Cache {
    /// Bytes of reads that came from the fast device, and of all reads.
    pub fn read_bytes(&self) -> (u64, u64) {
        let fast = self.random_reads.bytes_fast + self.sequential_reads.bytes_fast;
        let slow = self.random_reads.bytes_slow + self.sequential_reads.bytes_slow;
        (fast, fast + slow)
    }
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
    pub read_only: bool,
    pub tls: bool,
    /// Of a volume of the cluster: its clients beside others, `low`, `normal` or `high`.
    pub priority: Option<String>,
    /// Of a volume of the cluster: how often a seek behind another client of its class counts; none: once.
    pub fairness: Option<f64>,
    /// Clients connected now.
    pub connections: u64,
    /// Requests answered with an error, refused ones among them.
    pub errors: u64,
    /// Why no client gets it now.
    pub why: Option<String>,
}

/// One address at which NBD clients connect, and who did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NbdListener {
    pub address: String,
    pub clients: Vec<NbdClient>,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Turned away or cut because there were too many.
    #[serde(rename = "crowded_out")]
    pub turned_away: u64,
    /// Connections that never agreed on an export.
    pub negotiations_failed: u64,
    /// Cut because the client stalled.
    pub stalled: u64,
    /// Ended because the client broke the protocol.
    pub violations: u64,
}

/// A client connected now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NbdClient {
    /// Its number at this listener, in the order clients came.
    #[serde(default)]
    pub id: u64,
    pub peer: String,
    /// The export it uses; absent while it negotiates.
    pub export: Option<String>,
    pub tls: bool,
    pub connected_seconds: f64,
    pub in_flight: u64,
}

/// Settings to change; what is absent stays. Keys are those of `[[hybrid]]`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Change {
    /// `back`, `through`, `around`, `only-writes` or `pass`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// `second-access` or `always`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<String>,
    /// A power of two from `4KiB` to `1MiB`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<String>,
    /// Percent of the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty_low: Option<u8>,
    /// Percent of the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty_high: Option<u8>,
    /// Let the slow device sleep?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<bool>,
    /// How long dirty data wait while it sleeps, such as `30m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_limit: Option<String>,
    /// A size such as `1MiB`, or `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequential_bypass: Option<String>,
    /// A size such as `100GiB`, or `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flash_writes_per_day: Option<String>,
    /// How much of the fast device to use: a size, or `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_size: Option<String>,
    /// Record what is asked into this file of `DATA_DIR/traces`, or `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// What the files of a trace may hold together, such as `1GiB`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_max: Option<String>,
    /// Have a shadow watch, for advice? Setting it again begins anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advise: Option<bool>,
    /// `cache`, `tier` or `both`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Keys of `[hybrid.tier]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<TierKeys>,
}

impl Change {
    /// What is to change, as `tanada volume set` takes it.
    pub fn words(&self) -> String {
        let settings = serde_json::to_value(self).unwrap_or_default();
        let settings = settings.as_object().into_iter().flatten();
        let words = settings.map(|(key, value)| match value.as_str() {
            Some(text) => format!("{key}={text}"),
            None => format!("{key}={value}"),
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

impl Change {
    /// Keys in the order of the struct.
    pub const KEYS: [&'static str; 16] = [
        "write",
        "policy",
        "admission",
        "block",
        "dirty_low",
        "dirty_high",
        "energy",
        "age_limit",
        "sequential_bypass",
        "flash_writes_per_day",
        "fast_size",
        "trace",
        "trace_max",
        "advise",
        "mode",
        "tier",
    ];
}

/// How to attach a fast device again.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Attach {
    /// The device to attach; the one it had, if absent.
    pub fast: Option<String>,
    /// Attach it although it holds the cache of another volume, which is lost.
    pub force: bool,
}

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refusal {
    /// What was asked and what stood in the way.
    pub error: String,
    /// What to do next.
    pub what_to_do: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what_to_do.is_empty() {
            true => f.write_str(&self.error),
            false => write!(f, "{}; {}", self.error, self.what_to_do),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_taken_of_what_came_since() {
        let earlier = Latency {
            buckets: vec![(10, 100)],
            ..Latency::default()
        };
        let later = Latency {
            buckets: vec![(10, 100), (20, 9), (500, 1)],
            ..Latency::default()
        };
        let since = later.since(&earlier);
        assert_eq!(since, [(20, 9), (500, 1)]);
        assert_eq!(quantile(&since, 0.5), Some(20));
        assert_eq!(quantile(&since, 0.99), Some(500));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn the_list_of_keys_is_the_struct() {
        let full = Change {
            write: Some("back".into()),
            policy: Some("lru".into()),
            admission: Some("always".into()),
            block: Some("8KiB".into()),
            dirty_low: Some(1),
            dirty_high: Some(2),
            energy: Some(true),
            age_limit: Some("1m".into()),
            sequential_bypass: Some("off".into()),
            flash_writes_per_day: Some("off".into()),
            fast_size: Some("all".into()),
            trace: Some("off".into()),
            trace_max: Some("1GiB".into()),
            advise: Some(true),
            mode: Some("both".into()),
            tier: Some(TierKeys::default()),
        };
        let value = serde_json::to_value(&full).unwrap();
        let object = value.as_object().unwrap();
        assert_eq!(object.len(), Change::KEYS.len());
        assert!(Change::KEYS.iter().all(|key| object.contains_key(*key)));
    }
}
