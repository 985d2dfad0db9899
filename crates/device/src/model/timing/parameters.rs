//! What is a timing core made of? The figures of a model, by kind of device and by part of it.
//!
//! In a model file the figures of a kind stand in one flat table; here each part of a device has its own group.
//! Units are the endings of the names.

use base::Bytes;
use serde::Deserialize;

/// The parameters of a disk.
#[derive(Debug, Clone)]
pub struct HddSpec {
    /// Platters and arm.
    pub mechanics: Mechanics,
    /// How it takes commands.
    pub commands: HddCommands,
    /// What it keeps in memory.
    pub buffers: Buffers,
}

/// Platters and arm of a disk.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mechanics {
    /// Revolutions per minute.
    pub rpm: f64,
    /// Recording surfaces, each with a head.
    pub surfaces: u64,
    /// Zones of equal width, each with one number of sectors per track.
    pub zones: u64,
    /// Sustained rate at the outer edge, in MB/s (track switches included).
    pub outer_mb_s: f64,
    /// Sustained rate at the inner edge, in MB/s.
    pub inner_mb_s: f64,
    /// From one track to the next with the data following each other, in ms.
    pub switch_ms: f64,
    /// Read seek to the next track, mean over random pairs, and full stroke, in ms.
    pub read_seek_ms: [f64; 3],
    /// The same for writes (they settle longer).
    pub write_seek_ms: [f64; 3],
}

/// How a disk takes commands.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HddCommands {
    /// From receiving a command to starting on it, in ms.
    pub overhead_ms: f64,
    /// Rate of the interface in MB/s.
    pub interface_mb_s: f64,
    /// Requests the disk orders by itself.
    pub queue_depth: u64,
    /// A request that waited this long goes first, in ms.
    pub age_limit_ms: f64,
}

/// What a disk keeps in memory.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffers {
    /// Does it hold writes in a volatile cache?
    pub write_cache: bool,
    /// Room in the write cache.
    pub write_cache_size: Bytes,
    /// Separate runs of sectors the write cache holds.
    pub write_cache_runs: u64,
    /// How far it reads ahead.
    pub read_ahead_size: Bytes,
    /// Runs of sectors read earlier that it keeps.
    pub read_segments: u64,
}

/// The parameters of a flash device.
#[derive(Debug, Clone)]
pub struct SsdSpec {
    /// The flash and its layout.
    pub flash: FlashSpec,
    /// Controller and interface.
    pub host: HostSide,
    /// The write buffer.
    pub buffer: WriteBuffer,
}

/// The flash of a device: how it is laid out, and how long it takes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashSpec {
    /// Flash inside, of which the size is what the user sees.
    pub raw_size: Bytes,
    /// Channels between controller and flash.
    pub channels: u64,
    /// Chips per channel.
    pub chips: u64,
    /// Dies per chip; each works by itself.
    pub dies: u64,
    /// Planes per die, programmed together.
    pub planes: u64,
    /// A page of one plane.
    pub page_size: Bytes,
    /// Pages per erase block.
    pub block_pages: u64,
    /// The unit of the mapping.
    pub mapping_size: Bytes,
    /// Sensing a page, in us.
    pub read_us: f64,
    /// Programming a page (of all planes), in us.
    pub program_us: f64,
    /// Erasing a block (of all planes), in us.
    pub erase_us: f64,
    /// Rate of one channel in MB/s.
    pub channel_mb_s: f64,
    /// Garbage is collected while less than this share of a die's blocks is free, in percent.
    pub collect_below_percent: f64,
}

impl FlashSpec {
    /// Bytes of a row: one page of every plane of a die.
    pub fn row_bytes(&self) -> u64 {
        self.page_size.0 * self.planes
    }

    /// Dies of the whole device.
    pub fn all_dies(&self) -> u64 {
        self.channels * self.chips * self.dies
    }
}

/// Controller and interface of a flash device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSide {
    /// Reading rate of the interface in MB/s.
    pub read_mb_s: f64,
    /// Writing rate of the interface in MB/s.
    pub write_mb_s: f64,
    /// From receiving a command to issuing it to the flash, in us.
    pub command_us: f64,
    /// Least time between two read commands, in us: the reciprocal of the highest read IOPS.
    pub read_gap_us: f64,
    /// Least time between two write commands, in us.
    pub write_gap_us: f64,
    /// What a read takes beyond controller, flash and interface, in us.
    pub read_extra_us: f64,
    /// What a write takes beyond controller and interface, in us.
    pub write_extra_us: f64,
    /// Requests it takes at once; more wait outside.
    pub queue_depth: u64,
}

/// The write buffer of a flash device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteBuffer {
    /// Write buffer.
    pub buffer_size: Bytes,
    /// Does the buffer survive a power loss? Then a flush has nothing to do.
    pub power_loss_protection: bool,
}

/// The parameters of a memory-like device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConstantSpec {
    /// Latency of one read by size: pairs of bytes and us, straight lines between.
    pub read_us: Vec<(f64, f64)>,
    /// Latency of one write by size.
    pub write_us: Vec<(f64, f64)>,
    /// Requests served at the same time.
    pub parallel: u64,
    /// Reading rate of all together, in MB/s.
    pub read_mb_s: f64,
    /// Writing rate of all together, in MB/s.
    pub write_mb_s: f64,
    /// How much longer a request takes for each other one in flight when it arrives, in percent.
    #[serde(default)]
    pub each_in_flight_percent: f64,
    /// A cache that takes writes fast until it is full; without one all writes are as `write_us` says.
    pub write_cache: Option<WriteCacheSpec>,
    /// A cache of pages read or written lately; without one all reads are as `read_us` says.
    pub read_cache: Option<ReadCacheSpec>,
}

/// The write cache of a memory-like device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteCacheSpec {
    /// What it holds.
    pub size: Bytes,
    /// How fast it empties, in MB/s.
    pub refill_mb_s: f64,
    /// How many times longer a write takes that does not fit what is empty.
    pub beyond_times: f64,
}

/// The read cache of a memory-like device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadCacheSpec {
    /// What it holds, in pages of 4 KiB; the one used longest ago goes first.
    pub size: Bytes,
    /// Latency of a read whose pages are all there, by size.
    pub hit_us: Vec<(f64, f64)>,
}

/// What a device draws in which state. Zero seconds for a timer means never.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PowerSpec {
    /// Ready and doing nothing.
    pub idle_watts: f64,
    /// Reading.
    pub read_watts: f64,
    /// Writing.
    pub write_watts: f64,
    /// Moving the arm; as reading or writing where absent.
    pub seek_watts: Option<f64>,
    /// Moving the arm to write, where it differs.
    pub seek_write_watts: Option<f64>,
    /// Not spinning, or asleep; a device without it has no standby.
    pub standby_watts: Option<f64>,
    /// Seconds at rest after which the device goes to standby by itself.
    pub standby_after_s: f64,
    /// Gathering speed, or waking.
    pub spin_up_watts: f64,
    /// How long that takes, in seconds.
    pub spin_up_s: f64,
    /// Slowing down.
    pub spin_down_watts: f64,
    /// How long that takes, in seconds.
    pub spin_down_s: f64,
    /// A first step down while at rest.
    pub idle_b: Option<IdleStep>,
    /// A second one.
    pub idle_c: Option<IdleStep>,
}

/// A step down in power while at rest.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdleStep {
    /// After so many seconds at rest.
    pub after_s: f64,
    /// What it draws then.
    pub watts: f64,
    /// What a request then waits, in ms.
    pub recovery_ms: f64,
}
