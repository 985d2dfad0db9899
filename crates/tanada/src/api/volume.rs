//! Hybrids: how they stand, what can be changed of them, and what their shadows advise.

use config::tier::TierKeys;
use serde::{Deserialize, Serialize};
use store::qos::manager::ManagerReport;
use utoipa::ToSchema;

use super::figures::{Counters, Share, Written};
use super::tables::{counters, keys};
use super::tier::{Tier, TierSettings};

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
    /// What its clients get at most; none: no cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caps: Option<super::caps::Caps>,
    /// The queue before its slow device, and what is promised of that to exports; none: there is no queue. As a store's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub queue: Option<ManagerReport>,
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

/// What the shadow of a volume saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AdviceSeen {
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
}

/// What the shadow of a volume found since it began: small caches that decide on a sample of what is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Advice {
    #[serde(flatten)]
    pub seen: AdviceSeen,
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

counters! {
    /// What a hybrid's cache holds and did since it was opened.
    pub struct Cache from hybrid::Status {
        /// Room for data on the fast device, in bytes.
        pub cache_bytes: u64 [occupancy.cache_bytes] = Gauge "cache_bytes" "Room for data on the fast device",
        /// Data on the fast device, in bytes.
        pub cached_bytes: u64 [occupancy.cached_bytes] = Gauge "cached_bytes" "Data on the fast device",
        /// Data that only the fast device has, in bytes.
        pub dirty_bytes: u64 [occupancy.dirty_bytes] = Gauge "dirty_bytes" "Data that only the fast device has",
        /// Of those, what the last read of the fast device could not read, in bytes.
        #[serde(default)]
        pub unreadable_dirty_bytes: u64 [occupancy.unreadable_dirty_bytes] = Gauge "unreadable_dirty_bytes" "Dirty data that the fast device could not read",
        /// Rounds of the cleaner that failed since the last one that worked.
        #[serde(default)]
        pub clean_failures: u64 [occupancy.clean_failures] = Gauge "clean_failures" "Rounds of the cleaner that failed since the last that worked",
        /// How long the oldest of them wait, in nanoseconds.
        pub dirty_age_ns: u64 [occupancy.dirty_age_ns],
        /// Regions of 4 MiB marked as about to change on the slow device.
        pub marked_regions: u64 [occupancy.marked_regions] = Gauge "marked_regions" "Regions marked as about to change",
        /// Reads outside sequential streams.
        pub random_reads: Share [requests.random_reads],
        /// Reads in sequential streams.
        pub sequential_reads: Share [requests.sequential_reads],
        /// Writes outside sequential streams.
        pub random_writes: Written [requests.random_writes],
        /// Writes in sequential streams.
        pub sequential_writes: Written [requests.sequential_writes],
        /// Bytes read from the fast device's slots.
        pub fast_bytes_read: u64 [traffic.fast_bytes_read] = Counter "fast_read_bytes" "Read from the fast device's slots",
        /// Bytes written to the fast device's slots.
        pub fast_bytes_written: u64 [traffic.fast_bytes_written] = Counter "fast_written_bytes" "Written to the fast device's slots",
        /// Writes sent to the fast device's slots.
        pub fast_data_writes: u64 [traffic.fast_data_writes] = Counter "fast_data_writes" "Writes to the fast device's slots",
        /// Bytes read from the slow device.
        pub slow_bytes_read: u64 [traffic.slow_bytes_read] = Counter "slow_read_bytes" "Read from the slow device",
        /// Bytes written to the slow device.
        pub slow_bytes_written: u64 [traffic.slow_bytes_written] = Counter "slow_written_bytes" "Written to the slow device",
        /// Pages copied to the fast device after a read miss or a write-through.
        pub fills: u64 [upkeep.fills] = Counter "fills" "Pages copied to the fast device",
        /// Copies given up for want of room or time.
        pub fills_dropped: u64 [upkeep.fills_dropped] = Counter "fills_dropped" "Copies given up",
        /// Pages evicted.
        pub evicted: u64 [upkeep.evicted] = Counter "evicted" "Pages evicted",
        /// Bytes the cleaner destaged.
        pub bytes_cleaned: u64 [upkeep.bytes_cleaned] = Counter "cleaned_bytes" "Destaged by the cleaner",
        /// Rounds of the cleaner.
        pub clean_rounds: u64 [upkeep.clean_rounds] = Counter "clean_rounds" "Rounds of the cleaner",
        /// Times a request had to wait for room.
        pub waits_for_room: u64 [upkeep.waits_for_room] = Counter "waits_for_room" "Requests that waited for room",
        /// Pages whose checksum did not agree.
        pub bad_checksums: u64 [upkeep.bad_checksums] = Counter "bad_checksums" "Pages whose checksum did not agree",
        /// Commits of the map.
        pub commits: u64 [ledger.commits] = Counter "commits" "Commits of the map",
        /// Bytes written to the ledger.
        pub ledger_bytes_written: u64 [ledger.bytes_written] = Counter "ledger_written_bytes" "Written to the ledger",
        /// Writes sent for the ledger.
        pub ledger_writes: u64 [ledger.writes] = Counter "ledger_writes" "Writes for the ledger",
        /// Bytes of the ledger's log in use.
        pub ledger_used_bytes: u64 [ledger.used_bytes] = Gauge "ledger_used_bytes" "Ledger in use",
        /// Size of the ledger's log in bytes.
        pub ledger_size_bytes: u64 [ledger.size_bytes] = Gauge "ledger_size_bytes" "Size of the ledger",
        /// Memory held for the map and the policy, in bytes.
        pub memory_bytes: u64 = Gauge "memory_bytes" "Memory of map and policy",
        /// Is the slow device's spindle at rest?
        pub slow_asleep: bool = Gauge "slow_asleep" "1 while the slow device rests",
        /// Pages the last start recovered.
        pub recovered_pages: u64 [recovered.pages],
        /// Clean pages the last start dropped because their region was marked.
        pub recovered_dropped: u64 [recovered.dropped],
        /// How long the last start took.
        pub recovery_ns: u64 [recovered.took.0.0],
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

keys! {
    /// Settings to change; what is absent stays. Keys are those of `[[hybrid]]`.
    pub struct Change {
        /// `back`, `through`, `around`, `only-writes` or `pass`.
        write: String,
        policy: String,
        /// `second-access` or `always`.
        admission: String,
        /// A power of two from `4KiB` to `1MiB`.
        block: String,
        /// Percent of the cache.
        dirty_low: u8,
        /// Percent of the cache.
        dirty_high: u8,
        /// Let the slow device sleep?
        energy: bool,
        /// How long dirty data wait while it sleeps, such as `30m`.
        age_limit: String,
        /// A size such as `1MiB`, or `off`.
        sequential_bypass: String,
        /// A size such as `100GiB`, or `off`.
        flash_writes_per_day: String,
        /// How much of the fast device to use: a size, or `all`.
        fast_size: String,
        /// Record what is asked into this file of `DATA_DIR/traces`, or `off`.
        trace: String,
        /// What the files of a trace may hold together, such as `1GiB`.
        trace_max: String,
        /// Have a shadow watch, for advice? Setting it again begins anew.
        advise: bool,
        /// `cache`, `tier` or `both`.
        mode: String,
        /// What its clients get at most: bytes per second such as `100MB/s`, or `off`.
        max_read: String,
        max_write: String,
        /// Requests per second such as `500`, or `off`.
        max_read_iops: String,
        max_write_iops: String,
        /// Keys of `[hybrid.tier]`.
        tier: TierKeys,
    }
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

/// How to attach a fast device again.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Attach {
    /// The device to attach; the one it had, if absent.
    pub fast: Option<String>,
    /// Attach it although it holds the cache of another volume, which is lost.
    pub force: bool,
    /// Begin with an empty cache in place of one that is not there.
    pub new_cache: bool,
    /// Also where the cache that is not there may hold what the slow device has not: that is lost.
    pub lose_dirty: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each number of the engine's is another one, so a key that takes its neighbour's field is seen.
    #[test]
    fn each_key_of_a_cache_is_the_engines_figure_of_that_name() {
        let mut last = 0;
        let mut next = || {
            last += 1;
            last
        };
        let status = hybrid::Status {
            occupancy: hybrid::Occupancy {
                cache_bytes: next(),
                cached_bytes: next(),
                dirty_bytes: next(),
                unreadable_dirty_bytes: next(),
                clean_failures: next(),
                dirty_age_ns: next(),
                marked_regions: next(),
            },
            traffic: hybrid::Traffic {
                fast_bytes_read: next(),
                fast_bytes_written: next(),
                fast_data_writes: next(),
                slow_bytes_read: next(),
                slow_bytes_written: next(),
            },
            upkeep: hybrid::Upkeep {
                fills: next(),
                fills_dropped: next(),
                evicted: next(),
                bytes_cleaned: next(),
                clean_rounds: next(),
                waits_for_room: next(),
                bad_checksums: next(),
            },
            ledger: hybrid::LedgerUse {
                commits: next(),
                bytes_written: next(),
                writes: next(),
                used_bytes: next(),
                size_bytes: next(),
            },
            memory_bytes: next(),
            recovered: hybrid::Recovered {
                pages: next(),
                dropped: next(),
                took: hybrid::NanosOf(base::Nanos(next())),
            },
            ..hybrid::Status::default()
        };
        let engine = serde_json::to_value(&status).unwrap();
        let cache = serde_json::to_value(Cache::from(&status)).unwrap();
        let keys = cache.as_object().unwrap().iter();
        let numbers: Vec<_> = keys.filter(|(_, value)| value.is_number()).collect();
        assert_eq!(numbers.len(), last as usize);
        for (key, value) in numbers {
            assert_eq!(Some(value), engine.get(key), "{key}");
        }
    }
}
