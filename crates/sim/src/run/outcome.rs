//! What came out: every figure with its unit in its name, for programs (JSON), tables and reports.

use base::Bytes;
use device::model::{Spent, Work};
use hybrid::Status;
use serde::Serialize;

use super::layout::Fit;
use super::plan::{Pace, WarmUp};

/// One stack under one trace. Serialized, it is the same text for the same stack, trace, pace and seed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// What was run.
    #[serde(flatten)]
    pub setup: Setup,
    /// How many requests there were.
    #[serde(flatten)]
    pub counts: Counts,
    /// How fast they were answered.
    #[serde(flatten)]
    pub speed: Speed,
    /// Every device, in the order of the configuration.
    pub devices: Vec<DeviceOutcome>,
    /// Every hybrid, in the order of the configuration.
    pub caches: Vec<CacheOutcome>,
    /// What the devices drew.
    #[serde(flatten)]
    pub energy: Energy,
    /// Over time.
    pub series: Series,
    /// Regions of the volume over time, if wanted.
    pub heat: Option<Heat>,
    /// The configuration, to repeat it.
    pub config: String,
}

/// What was run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setup {
    /// The stack's name.
    pub stack: String,
    /// What the trace was replayed on.
    pub volume: String,
    /// How much that holds.
    pub volume_bytes: u64,
    /// When requests came.
    pub pace: Pace,
    /// What was not measured.
    pub warm_up: WarmUp,
    /// What was done with requests beyond the end.
    pub fit: Fit,
    /// At most so many requests of the trace were taken.
    pub limit: Option<u64>,
    /// The seed of all chance.
    pub seed: u64,
    /// A digest of every step of the simulation: equal for equal runs of one program.
    pub trace_hash: String,
}

/// How many requests there were, and of how many bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Counts {
    /// Requests measured.
    pub requests: u64,
    /// Reads among them.
    pub reads: u64,
    /// Writes among them.
    pub writes: u64,
    /// Discards among them.
    pub discards: u64,
    /// Flushes among them.
    pub flushes: u64,
    /// Bytes read, in whole sectors.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes discarded.
    pub discarded_bytes: u64,
    /// Requests of the warm-up.
    pub warm_up_requests: u64,
    /// Requests of the trace that were not replayed.
    pub left_out: LeftOut,
}

/// How fast requests were answered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Speed {
    /// Virtual time from the end of the warm-up to the last answer.
    pub seconds: f64,
    /// What the measured part of the trace covers, as recorded; 0 in a closed loop means nothing.
    pub trace_seconds: f64,
    /// Requests answered in a second.
    pub iops: f64,
    /// Bytes read and written in a second.
    pub bytes_per_second: f64,
    /// Response times: all together first, then of each operation there was.
    pub responses: Vec<Response>,
    /// Requests under way on the volume, over time.
    pub queue_depth_mean: f64,
    /// The most at once.
    pub queue_depth_max: u64,
    /// How late an open loop ran.
    pub backlog: Backlog,
}

/// What all devices drew.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Energy {
    /// Energy of all devices.
    pub joules: f64,
    /// Their mean power.
    pub watts: f64,
    /// How often spindles were spun up.
    pub spin_ups: u64,
}

/// Response times of one operation (`all`: of every one), in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)] // The names say it.
pub struct Response {
    /// `all`, `read`, `write`, `discard` or `flush`.
    pub op: String,
    pub requests: u64,
    /// Exact.
    pub mean_us: f64,
    /// This and the others: at most 0.1 % above the true one.
    pub p50_us: f64,
    pub p90_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    /// Exact.
    pub max_us: f64,
    /// Points of the distribution: a time, and the share of requests (0..=1) answered within it.
    pub cdf: Vec<(f64, f64)>,
}

/// Requests that were not replayed, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LeftOut {
    /// Beyond the end of the volume.
    pub beyond: u64,
    /// Of other devices than the one chosen.
    pub other_devices: u64,
    /// Reads, writes and discards of no bytes.
    pub no_bytes: u64,
}

impl LeftOut {
    /// All together.
    pub fn sum(&self) -> u64 {
        self.beyond + self.other_devices + self.no_bytes
    }
}

/// How late requests of an open loop were sent because so many were under way already. Response times
/// count from the intended arrival all the same.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Backlog {
    /// So many requests may be under way.
    pub under_way_max: u64,
    /// Requests that were sent late.
    pub late: u64,
    /// Their mean delay, in seconds.
    pub late_mean_s: f64,
    /// The longest one.
    pub late_max_s: f64,
}

/// Bytes by who they were for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ClassBytes {
    /// A user waited.
    pub foreground: u64,
    /// Metadata a user waited for.
    pub metadata: u64,
    /// No user waited: fills, cleaning.
    pub background: u64,
}

/// What was moved in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Moved {
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
    /// The same bytes by class.
    pub by_class: ClassBytes,
}

/// One device while it was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceOutcome {
    /// Its name.
    pub name: String,
    /// Its model.
    pub model: String,
    /// How much it holds.
    pub size_bytes: u64,
    /// Reads.
    pub read: Moved,
    /// Writes.
    pub written: Moved,
    /// Flushes.
    pub flushes: u64,
    /// Requests under way, over time.
    pub queue_depth_mean: f64,
    /// The most at once.
    pub queue_depth_max: u64,
    /// The share of the time with a request under way.
    pub utilisation: f64,
    /// Energy.
    pub joules: f64,
    /// Mean power.
    pub watts: f64,
    /// How often the spindle was spun up.
    pub spin_ups: u64,
    /// Where the energy went: time and watts by power state, since the stack was put together.
    pub states: Vec<Spent>,
    /// What its flash translation layer did since then, if it has one.
    pub flash: Option<FlashWork>,
}

/// Work of a flash translation layer, in units of its mapping.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FlashWork {
    /// Units written by the host.
    pub host_units: u64,
    /// Units moved by garbage collection.
    pub moved_units: u64,
    /// Units programmed, padding included.
    pub programmed_units: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Units programmed per unit written.
    pub amplification: f64,
}

impl From<Work> for FlashWork {
    fn from(work: Work) -> FlashWork {
        FlashWork {
            host_units: work.host_units,
            moved_units: work.moved_units,
            programmed_units: work.programmed_units,
            erases: work.erases,
            amplification: work.amplification(),
        }
    }
}

/// One hybrid while it was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CacheOutcome {
    /// Its name.
    pub name: String,
    /// Bytes of reads that came from the fast device.
    pub hit_bytes: u64,
    /// Bytes of reads that came from the slow one.
    pub miss_bytes: u64,
    /// The first of both together; none without reads.
    pub hit_share: Option<f64>,
    /// Read requests that needed the fast device alone, of all; none without reads.
    pub request_hit_share: Option<f64>,
    /// Bytes copied to the fast device after a miss or a write-through.
    pub promoted_bytes: u64,
    /// Bytes evicted.
    pub evicted_bytes: u64,
    /// Bytes of data written to the fast device.
    pub flash_data_bytes: u64,
    /// Bytes of the map's ledger written to the fast device.
    pub flash_ledger_bytes: u64,
    /// Bytes the cleaner wrote back to the slow device.
    pub written_back_bytes: u64,
    /// Dirty data at the end.
    pub dirty_bytes: u64,
    /// Data on the fast device at the end.
    pub cached_bytes: u64,
    /// Room for them.
    pub room_bytes: u64,
    /// What the engine itself says at the end, counted since it was made.
    pub status: Status,
}

/// Over time: points of one length, the last one shorter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// The length of a point.
    pub interval_ns: u64,
    /// In order.
    pub points: Vec<Point>,
}

/// One span of time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// When it begins, since the measurement began.
    pub at_s: f64,
    /// How long it is.
    pub seconds: f64,
    /// Requests answered in it.
    pub requests: u64,
    /// Requests answered in a second.
    pub iops: f64,
    /// Bytes of reads answered.
    pub read_bytes: u64,
    /// Bytes of writes answered.
    pub written_bytes: u64,
    /// Their mean response time; none where nothing was answered.
    pub mean_us: Option<f64>,
    /// 95 % were answered within this, at most 1/16 above the true figure.
    pub p95_us: Option<f64>,
    /// Requests under way on the volume.
    pub queue_depth: f64,
    /// The share of read bytes that came from the fast device; none without reads or cache.
    pub hit_share: Option<f64>,
    /// Dirty data at its end.
    pub dirty_bytes: u64,
    /// The longest delay of a request that was sent late.
    pub late_max_s: f64,
    /// Power of all devices.
    pub watts: f64,
    /// Each device, in the order of [`Outcome::devices`].
    pub devices: Vec<DevicePoint>,
}

/// One device in one span of time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DevicePoint {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Requests under way.
    pub queue_depth: f64,
    /// The share of the time with a request under way.
    pub utilisation: f64,
    /// Power.
    pub watts: f64,
}

/// Regions of the volume over time: which were asked for, and which lived on the fast device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Heat {
    /// How much of the volume is one region.
    pub region_bytes: u64,
    /// One for each point of the series.
    pub bins: Vec<Bin>,
}

/// The regions in one span of time, from the volume's start on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bin {
    /// Requests that came and began in the region.
    pub requests: Vec<u32>,
    /// The share of the region on the fast device at the end (0..=1); empty without a cache.
    pub resident: Vec<f32>,
}

impl Outcome {
    /// The response times of `op` (`all`, `read`, ...), if there was such a request.
    pub fn response(&self, op: &str) -> Option<&Response> {
        self.speed
            .responses
            .iter()
            .find(|response| response.op == op)
    }

    /// Bytes that all devices read and wrote.
    pub fn device_bytes(&self) -> Bytes {
        let each = |device: &DeviceOutcome| Bytes(device.read.bytes + device.written.bytes);
        self.devices.iter().map(each).sum()
    }
}
