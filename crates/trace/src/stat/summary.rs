//! What statistics say of a trace: figures for people and, flat as they always were, for `--json`.
//!
//! Always true: the JSON keys stand in one flat object, in this order, however the figures are grouped here.

use serde::Serialize;

use super::flow::Sequentiality;
use super::heat::HeatMap;
use super::hot::{Concentration, WindowShare};
use super::sizes::{SizeFigures, TopSize};
use super::time::Series;

/// What a trace is like. Shares named `_pct` are in percent, those named `share` between 0 and 1.
///
/// Of no request, a share or a rate is `null`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// How many requests of what kind.
    #[serde(flatten)]
    pub totals: Totals,
    /// Which part of the devices they reach.
    #[serde(flatten)]
    pub extent: Extent,
    /// How many in a time.
    #[serde(flatten)]
    pub rates: Rates,
    /// The hottest regions over the whole trace.
    #[serde(flatten)]
    pub hottest: Hottest,
    /// By kind.
    pub ops: OpsFigures,
    /// By size.
    pub sizes: SizesFigures,
    /// At multiples of a page.
    #[serde(flatten)]
    pub alignment: Alignment,
    /// What follows what.
    #[serde(flatten)]
    pub order: Order,
    /// How it was looked at.
    #[serde(flatten)]
    pub asked: Asked,
    /// Concentration in windows of time.
    pub per_window: Concentration,
    /// The 64 busiest devices, the busiest first.
    pub per_device: Vec<DeviceFigures>,
    /// Requests over time.
    #[serde(flatten)]
    pub minutes: PerMinute,
    /// The load over time in at most 600 bars.
    pub series: Series,
    /// Each busy window.
    pub windows: Vec<WindowShare>,
    /// Reads and writes by place and time.
    pub heat: HeatMap,
}

/// How many requests of what kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Totals {
    /// Requests of every kind.
    pub requests: u64,
    /// From the first request to the last, in seconds.
    pub span_s: f64,
    /// Reads among reads and writes.
    pub read_pct: f64,
    /// Bytes read among bytes read and written.
    pub read_bytes_pct: f64,
    /// Bytes in a read or write, on average, rounded down.
    pub mean_size: u64,
    /// Devices.
    pub devices: u64,
}

/// Which part of the devices the requests reach.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Extent {
    /// Behind the highest byte asked for on any device.
    pub max_offset_gib: f64,
    /// From the lowest byte read or written to the highest, summed over the devices.
    pub address_span_gib: f64,
    /// The MiB in which a read or write *began*, in GiB.
    pub touched_1mib_gib: f64,
    /// What was touched, to the page.
    pub footprint: FootprintFigures,
    /// Regions in which a read or write began.
    pub regions_touched: u64,
    /// Regions up to the highest byte asked for, summed over the devices.
    pub regions_total: u64,
}

/// How many requests and bytes in a time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rates {
    /// Requests per second.
    pub iops_mean: Option<f64>,
    /// Requests per second in the busiest minute.
    pub iops_peak_minute: Option<f64>,
    /// Requests in the busiest second.
    pub iops_peak_second: u64,
    /// Bytes read and written per second.
    pub bytes_per_second_mean: Option<f64>,
    /// Bytes read and written per second in the minute with most of them.
    pub bytes_per_second_peak_minute: Option<f64>,
}

/// What the hottest regions take over the whole trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hottest {
    /// Share of the I/O in the hottest 1 % of regions.
    pub whole_trace_top1pct_share: Option<f64>,
    /// Share of the I/O in the hottest 10 % of regions.
    pub whole_trace_top10pct_share: Option<f64>,
}

/// How many reads and writes lie at multiples of a page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alignment {
    /// Reads and writes that begin and end on a multiple of 4 KiB.
    pub aligned_4kib_pct: f64,
    /// Reads and writes that begin on a multiple of 4 KiB.
    pub offset_aligned_4kib_pct: f64,
}

/// What follows what, in space and time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Order {
    /// Order of the reads and writes in space.
    pub sequentiality: Option<Sequentiality>,
    /// Time between a request and the next.
    pub interarrival: Option<Gaps>,
}

/// How a trace was looked at.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Asked {
    /// Bytes in a region.
    pub region_bytes: u64,
    /// Seconds in a window.
    pub window_s: f64,
    /// Reads and writes from which on a window counts as busy.
    pub min_io: u64,
}

/// Requests minute by minute.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PerMinute {
    /// Seconds that an entry of `iops_per_minute` stands for: 60, more in traces above 45 days.
    pub minute_s: u64,
    /// Requests in each minute.
    pub iops_per_minute: Vec<u64>,
}

/// Requests by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct OpsFigures {
    /// Reads.
    pub read: OpFigures,
    /// Writes.
    pub write: OpFigures,
    /// Ranges given up.
    pub discard: OpFigures,
    /// Orders to make everything durable.
    pub flush: OpFigures,
}

/// Requests by size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SizesFigures {
    /// Of reads.
    pub read: Option<SizeFigures>,
    /// Of writes.
    pub write: Option<SizeFigures>,
    /// Of both.
    pub all: Option<SizeFigures>,
    /// The ten most frequent.
    pub top: Vec<TopSize>,
}

/// Time between the arrival of a request and the next, in milliseconds; percentiles to two digits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gaps {
    /// Mean.
    pub mean_ms: f64,
    /// Standard deviation over mean: 1 if arrivals do not know of each other, more in bursts.
    pub cv: Option<f64>,
    /// Median.
    pub p50_ms: f64,
    /// 99 % are no longer.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// What was touched by reads and writes, in GiB.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FootprintFigures {
    /// In pages of 4 KiB.
    pub pages_gib: f64,
    /// In MiB.
    pub mib_gib: f64,
    /// Pages read.
    pub read_gib: f64,
    /// Pages written.
    pub written_gib: f64,
    /// Whether that is all; otherwise at least so much was touched.
    pub exact: bool,
}

/// One device of a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceFigures {
    /// Its number.
    pub device: u32,
    /// Requests of every kind.
    pub requests: u64,
    /// Reads among reads and writes.
    pub read_pct: f64,
    /// Bytes in a read or write, on average.
    pub mean_size: u64,
    /// Behind the highest byte asked for.
    pub max_offset_gib: f64,
    /// Touched, in pages of 4 KiB.
    pub pages_gib: f64,
}

/// Counts of one kind of request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct OpFigures {
    /// Requests.
    pub requests: u64,
    /// Bytes they ask for.
    pub bytes: u64,
}
