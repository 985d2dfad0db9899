//! What is in a trace: mix, sizes, order, load over time, footprint, concentration and the life of hot spots.
//!
//! ```text
//! batches of requests -> Statistics -> Summary (for people: a page, for programs: JSON)
//!                        | sizes      how big
//!                        | flow       does one start where another ended
//!                        | time       per minute, per bar
//!                        | places     what was touched, to the page
//!                        | hot        who takes the I/O of a window, for how long
//!                        | heat       where and when, as a picture
//! ```
//!
//! Reads and writes are I/O; discards and flushes count as requests and in the load over time only (a
//! discard also shows how far its device reaches).
//!
//! Memory, whatever the number of requests: about 80 bytes for each MiB touched (exact to the 4 KiB page up
//! to 16 TiB touched, a lower bound beyond that, and said so), 60 for each region touched, 24 for each busy
//! window, some KiB for each device and up to 32 MiB for windows that wait to be judged.
//!
//! Always true:
//! 1. The same requests give the same summary, however they are cut into batches.
//! 2. Reads, writes, discards and flushes add up to the requests.

mod flow;
mod heat;
mod hot;
mod places;
mod sizes;
mod time;

use base::{Bytes, Nanos};
use hdrhistogram::Histogram;
use serde::Serialize;

use super::{Op, Request, Requests, TraceError};
pub use flow::Sequentiality;
pub use heat::{HeatMap, HeatRow};
pub use hot::{AreaFigures, Concentration, WindowShare};
pub use sizes::{SizeFigures, TopSize};
pub use time::Series;

use flow::{Runs, Streams};
use heat::Grid;
use hot::{Place, Windows};
use places::{Footprint, Table, Touched};
use sizes::Sizes;
use time::{Bars, Load, MINUTE, Minutes, edge};

const GIB: f64 = (1u64 << 30) as f64;
const SECOND: u64 = 1_000_000_000;
/// Regions counted apart; their counters are half a GiB.
const REGIONS_MAX: usize = 1 << 24;
/// Devices counted apart.
const DEVICES_MAX: usize = 1 << 17;
/// The first devices find their places without a hash.
const DENSE_DEVICES: usize = 16;
/// The first devices are in the heat map.
const HEAT_DEVICES: usize = 64;
/// Devices listed one by one, the busiest first.
const DEVICES_LISTED: usize = 64;

/// How to look at a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How much of a device one region is.
    pub region: Bytes,
    /// How long a window is.
    pub window: Nanos,
    /// Windows with fewer reads and writes say nothing about concentration.
    pub min_io: u64,
}

impl Default for Options {
    /// Source: AST 4.1 (regions of 1 GiB, intervals of a minute).
    ///
    /// Choice: one request a second is the least from which a share of 1 % can be measured.
    fn default() -> Options {
        Options {
            region: Bytes::gib(1),
            window: Nanos::secs(60),
            min_io: 60,
        }
    }
}

/// Why there are no statistics.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatError {
    /// Nothing to divide by.
    #[error("a {what} of 0 makes no sense; give one above 0")]
    Zero {
        /// Region or window.
        what: &'static str,
    },
    /// The trace does not fit the bounds of memory.
    #[error(
        "the trace touches more than {REGIONS_MAX} regions of {region}, more than are told apart; ask \
         for larger regions"
    )]
    Regions {
        /// The size asked for.
        region: Bytes,
    },
    /// The trace does not fit the bounds of memory.
    #[error(
        "the trace has more than {DEVICES_MAX} devices, more than are told apart; is its format the \
         right one?"
    )]
    Devices,
    /// The trace has nothing to report.
    #[error("the trace has no requests")]
    Empty,
    /// It cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// One device while it is looked at.
#[derive(Debug)]
struct Disk {
    number: u32,
    requests: u64,
    reads: u64,
    writes: u64,
    read_bytes: u64,
    write_bytes: u64,
    /// The lowest byte read or written.
    first: u64,
    /// Behind the highest byte asked for.
    end: u64,
    regions_total: u64,
    regions: Table,
    mibs: Table,
    streams: Box<Streams>,
    heat: Option<Grid>,
}

/// A region while it is looked at.
#[derive(Debug)]
struct Region {
    place: Place,
    total: u64,
    in_window: u32,
}

/// Counts of one kind of request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct OpFigures {
    /// Requests.
    pub requests: u64,
    /// Bytes they ask for.
    pub bytes: u64,
}

/// Takes in a trace, bit by bit, and says what it is like.
///
/// # Example
/// ```
/// use base::{Bytes, Nanos};
/// use trace::{Op, Request, stat::{Options, Statistics}};
/// let at = |ms, offset, op| Request {
///     at: Nanos::millis(ms), offset: Bytes(offset), size: Bytes(4096), device: 0, op,
/// };
/// let mut statistics = Statistics::new(Options::default())?;
/// statistics.add(&[at(0, 0, Op::Read), at(500, 4096, Op::Read), at(1000, 8192, Op::Write)])?;
/// let summary = statistics.finish()?;
/// assert_eq!((summary.requests, summary.span_s, summary.read_pct), (3, 1.0, 66.67));
/// # Ok::<(), trace::stat::StatError>(())
/// ```
#[derive(Debug)]
pub struct Statistics {
    options: Options,
    /// Regions of a power of two are found by a shift.
    region_shift: Option<u32>,

    ops: [OpFigures; 4],
    read_sizes: Sizes,
    write_sizes: Sizes,
    aligned: u64,
    offset_aligned: u64,

    disks: Vec<Disk>,
    disk_table: Table,
    last_disk: usize,
    regions: Vec<Region>,
    regions_total: u64,
    footprint: Footprint,
    runs: Runs,

    now: u64,
    next_edge: u64,
    load: Load,
    bars: Bars,
    bar: usize,
    series: Series,
    minutes: Minutes,
    second_requests: u64,
    peak_second: u64,
    gaps: Histogram<u64>,
    gap_squares: f64,
    gap_max: u64,

    window: u64,
    window_requests: u64,
    touched_now: Vec<u32>,
    windows: Windows,
}

impl Statistics {
    /// Nothing seen yet.
    ///
    /// # Errors
    /// [`StatError::Zero`] if a region or a window has no extent.
    pub fn new(options: Options) -> Result<Statistics, StatError> {
        if options.region.0 == 0 {
            return Err(StatError::Zero { what: "region" });
        }
        if options.window.0 == 0 {
            return Err(StatError::Zero { what: "window" });
        }
        let region = options.region.0;
        Ok(Statistics {
            options,
            region_shift: region.is_power_of_two().then(|| region.ilog2()),
            ops: [OpFigures::default(); 4],
            read_sizes: Sizes::new(),
            write_sizes: Sizes::new(),
            aligned: 0,
            offset_aligned: 0,
            disks: Vec::new(),
            disk_table: Table::new(false),
            last_disk: 0,
            regions: Vec::new(),
            regions_total: 0,
            footprint: Footprint::default(),
            runs: Runs::default(),
            now: 0,
            next_edge: 0,
            load: Load::default(),
            bars: Bars::default(),
            bar: 0,
            series: Series::default(),
            minutes: Minutes::new(),
            second_requests: 0,
            peak_second: 0,
            gaps: Histogram::new_with_bounds(1, u64::MAX / 2, 2)
                .expect("bounds and digits are ones the histogram takes"),
            gap_squares: 0.0,
            gap_max: 0,
            window: 0,
            window_requests: 0,
            touched_now: Vec::new(),
            windows: Windows::new(),
        })
    }

    /// Takes in the next requests, in order of time; one that is earlier than the last counts as at its
    /// moment.
    ///
    /// # Errors
    /// [`StatError::Regions`] or [`StatError::Devices`] if the trace outgrows what is counted apart.
    pub fn add(&mut self, requests: &[Request]) -> Result<(), StatError> {
        for request in requests {
            self.add_one(request)?;
        }
        Ok(())
    }

    #[inline]
    fn add_one(&mut self, request: &Request) -> Result<(), StatError> {
        let at = request.at.0.max(self.now);
        let is_first = self.next_edge == 0;
        if at >= self.next_edge {
            self.turn(at);
        }
        let gap = at - self.now;
        self.now = at;
        if !is_first {
            self.gaps.saturating_record(gap);
            self.gap_squares += gap as f64 * gap as f64;
            self.gap_max = self.gap_max.max(gap);
        }

        let (offset, size) = (request.offset.0, request.size.0);
        let end = offset.saturating_add(size);
        let op = &mut self.ops[request.op as usize];
        op.requests += 1;
        op.bytes = op.bytes.saturating_add(size);

        let disk = self.disk(request.device)?;
        let disk = &mut self.disks[disk];
        disk.requests += 1;
        let is_read = match request.op {
            Op::Read => {
                self.load.reads += 1;
                self.load.read_bytes = self.load.read_bytes.saturating_add(size);
                disk.reads += 1;
                disk.read_bytes = disk.read_bytes.saturating_add(size);
                self.read_sizes.add(size);
                true
            }
            Op::Write => {
                self.load.writes += 1;
                self.load.write_bytes = self.load.write_bytes.saturating_add(size);
                disk.writes += 1;
                disk.write_bytes = disk.write_bytes.saturating_add(size);
                self.write_sizes.add(size);
                false
            }
            Op::Discard | Op::Flush => {
                self.load.others += 1;
                if request.op == Op::Discard && end > disk.end {
                    disk.end = end;
                    let total = end.div_ceil(self.options.region.0);
                    self.regions_total += total - disk.regions_total;
                    disk.regions_total = total;
                }
                return Ok(());
            }
        };
        let offset_aligned = offset.is_multiple_of(4096);
        self.offset_aligned += u64::from(offset_aligned);
        self.aligned += u64::from(offset_aligned && size.is_multiple_of(4096));
        disk.first = disk.first.min(offset);
        if end > disk.end {
            disk.end = end;
            let total = end.div_ceil(self.options.region.0);
            self.regions_total += total - disk.regions_total;
            disk.regions_total = total;
        }
        if size > 0 {
            disk.streams.add(&mut self.runs, offset, size);
        }
        self.footprint.mark(&mut disk.mibs, offset, size, is_read);
        if let Some(heat) = &mut disk.heat {
            heat.add(offset, self.bar);
        }

        let number = match self.region_shift {
            Some(shift) => offset >> shift,
            None => offset / self.options.region.0,
        };
        let region = match disk.regions.get(number) {
            Some(region) => region,
            None if self.regions.len() >= REGIONS_MAX => {
                return Err(StatError::Regions {
                    region: self.options.region,
                });
            }
            None => {
                let region = self.regions.len() as u32;
                disk.regions.put(number, region);
                self.regions.push(Region {
                    place: Place {
                        device: disk.number,
                        region: number,
                    },
                    total: 0,
                    in_window: 0,
                });
                region
            }
        };
        let counts = &mut self.regions[region as usize];
        if counts.in_window == 0 {
            self.touched_now.push(region);
        }
        counts.in_window = counts.in_window.saturating_add(1);
        counts.total += 1;
        self.window_requests += 1;
        Ok(())
    }

    /// The position of device `number`.
    #[inline]
    fn disk(&mut self, number: u32) -> Result<usize, StatError> {
        if let Some(disk) = self.disks.get(self.last_disk)
            && disk.number == number
        {
            return Ok(self.last_disk);
        }
        self.last_disk = match self.disk_table.get(u64::from(number)) {
            Some(disk) => disk as usize,
            None if self.disks.len() >= DEVICES_MAX => return Err(StatError::Devices),
            None => self.new_disk(number),
        };
        Ok(self.last_disk)
    }

    #[cold]
    fn new_disk(&mut self, number: u32) -> usize {
        let position = self.disks.len();
        let sparse = position >= DENSE_DEVICES;
        self.disk_table.put(u64::from(number), position as u32);
        self.disks.push(Disk {
            number,
            requests: 0,
            reads: 0,
            writes: 0,
            read_bytes: 0,
            write_bytes: 0,
            first: u64::MAX,
            end: 0,
            regions_total: 0,
            regions: Table::new(sparse),
            mibs: Table::new(sparse),
            streams: Box::new(Streams::new()),
            heat: (position < HEAT_DEVICES).then(Grid::new),
        });
        position
    }

    /// A bar, a second, a minute or a window is over.
    #[cold]
    fn turn(&mut self, at: u64) {
        self.enter_load();
        if at / SECOND != self.now / SECOND {
            self.second_requests = 0;
        }
        let (bar, by) = self.bars.place(at);
        self.series.join(by);
        if by > 1 {
            for heat in self.disks.iter_mut().filter_map(|disk| disk.heat.as_mut()) {
                heat.join_bars(by);
            }
        }
        self.bar = bar;
        let window = at / self.options.window.0;
        if window != self.window {
            self.close_window();
            self.window = window;
        }
        let widths = [self.bars.width(), SECOND, MINUTE, self.options.window.0];
        let edges = widths.map(|width| edge(at, width));
        self.next_edge = edges.into_iter().min().unwrap_or(u64::MAX);
    }

    /// What came since the last turn belongs to the bar, second and minute of `now`.
    fn enter_load(&mut self) {
        let load = std::mem::take(&mut self.load);
        let requests = load.reads + load.writes + load.others;
        if requests == 0 {
            return;
        }
        let bytes = load.read_bytes.saturating_add(load.write_bytes);
        self.series.put(self.bar, load);
        self.minutes.put(self.now, requests, bytes);
        self.second_requests += requests;
        self.peak_second = self.peak_second.max(self.second_requests);
    }

    fn close_window(&mut self) {
        let is_busy = self.window_requests >= self.options.min_io.max(1);
        self.window_requests = 0;
        let mut counts = Vec::with_capacity(if is_busy { self.touched_now.len() } else { 0 });
        for region in self.touched_now.drain(..) {
            let region = &mut self.regions[region as usize];
            if is_busy {
                counts.push((region.place, region.in_window));
            }
            region.in_window = 0;
        }
        if is_busy {
            self.windows.put(self.window, counts, self.regions_total);
        }
    }

    /// What the trace is like.
    ///
    /// # Errors
    /// [`StatError::Empty`] if there was no request.
    pub fn finish(mut self) -> Result<Summary, StatError> {
        self.enter_load();
        self.close_window();
        let requests: u64 = self.ops.iter().map(|op| op.requests).sum();
        if requests == 0 {
            return Err(StatError::Empty);
        }
        for disk in &self.disks {
            disk.streams.close(&mut self.runs);
        }
        let [reads, writes, ..] = self.ops;
        let io = reads.requests + writes.requests;
        let io_bytes = reads.bytes.saturating_add(writes.bytes);
        let span = Nanos(self.now);
        let seconds = span.secs_f64();
        let per_second =
            |n: u64, digits| (seconds > 0.0).then(|| rounded(n as f64 / seconds, digits));
        let (peak_requests, peak_bytes) = self.minutes.peak();
        // A shorter trace has no whole minute.
        let peak = |n: u64| (seconds > 0.0).then(|| n as f64 / seconds.min(60.0));

        let mut totals: Vec<u64> = self.regions.iter().map(|region| region.total).collect();
        totals.sort_unstable_by(|a, b| b.cmp(a));
        let hottest = |share: f64| {
            let top = hot::top(self.regions_total, share).min(totals.len());
            (io > 0).then(|| rounded(totals[..top].iter().sum::<u64>() as f64 / io as f64, 3))
        };
        let (top1, top10) = (hottest(0.01), hottest(0.1));

        let mut touched = Touched::default();
        let mut per_device = Vec::with_capacity(self.disks.len());
        for disk in &self.disks {
            let own = self.footprint.touched(&disk.mibs);
            touched += own;
            per_device.push(disk.figures(own));
        }
        let is_exact = self.footprint.is_exact();
        per_device.sort_by_key(|disk| (std::cmp::Reverse(disk.requests), disk.device));
        per_device.truncate(DEVICES_LISTED);
        let end = self.disks.iter().map(|disk| disk.end).max().unwrap_or(0);
        let spans = self
            .disks
            .iter()
            .map(|disk| disk.end.saturating_sub(disk.first));
        let address_span = spans.fold(0, u64::saturating_add);

        let regions_touched = self.regions.len() as u64;
        let (per_window, windows) = self
            .windows
            .finish(self.regions_total, self.options.region.0);
        let bars = self.series.reads.len();
        self.series.bar_ms = self.bars.width() / 1_000_000;
        let left_out = self.disks.len().saturating_sub(HEAT_DEVICES) as u64;
        let devices = self.disks.len() as u64;
        let grids = self.disks.into_iter();
        let grids = grids.filter_map(|disk| Some((disk.number, disk.heat?)));
        let heat = heat::map(grids.collect(), bars, self.series.bar_ms, left_out);
        let (minute_s, iops_per_minute) = self.minutes.counts();
        let gaps = (requests > 1).then(|| {
            let n = (requests - 1) as f64;
            let mean = self.now as f64 / n;
            let variance = (self.gap_squares / n - mean * mean).max(0.0);
            let at = |quantile| {
                rounded(
                    self.gaps.value_at_quantile(quantile).min(self.gap_max) as f64 / 1e6,
                    3,
                )
            };
            Gaps {
                mean_ms: rounded(mean / 1e6, 6),
                cv: (mean > 0.0).then(|| rounded(variance.sqrt() / mean, 3)),
                p50_ms: at(0.5),
                p99_ms: at(0.99),
                max_ms: rounded(self.gap_max as f64 / 1e6, 3),
            }
        });
        let gib = |pages: u64| rounded(pages as f64 * 4096.0 / GIB, 6);
        Ok(Summary {
            requests,
            span_s: rounded(seconds, 3),
            read_pct: rounded(percent(reads.requests, io.max(1)), 2),
            read_bytes_pct: rounded(percent(reads.bytes, io_bytes.max(1)), 2),
            mean_size: io_bytes / io.max(1),
            devices,
            max_offset_gib: rounded(end as f64 / GIB, 3),
            address_span_gib: rounded(address_span as f64 / GIB, 3),
            touched_1mib_gib: rounded(touched.entered_mib as f64 / 1024.0, 3),
            footprint: FootprintFigures {
                pages_gib: gib(touched.pages),
                mib_gib: rounded(touched.mib as f64 / 1024.0, 3),
                read_gib: gib(touched.read_pages),
                written_gib: gib(touched.written_pages),
                exact: is_exact,
            },
            regions_touched,
            regions_total: self.regions_total,
            iops_mean: per_second(requests, 2),
            iops_peak_minute: peak(peak_requests).map(|iops| rounded(iops, 2)),
            iops_peak_second: self.peak_second,
            bytes_per_second_mean: per_second(io_bytes, 0),
            bytes_per_second_peak_minute: peak(peak_bytes).map(|rate| rounded(rate, 0)),
            whole_trace_top1pct_share: top1,
            whole_trace_top10pct_share: top10,
            ops: OpsFigures {
                read: reads,
                write: writes,
                discard: self.ops[Op::Discard as usize],
                flush: self.ops[Op::Flush as usize],
            },
            sizes: SizesFigures {
                read: sizes::figures(&[&self.read_sizes], reads.bytes),
                write: sizes::figures(&[&self.write_sizes], writes.bytes),
                all: sizes::figures(&[&self.read_sizes, &self.write_sizes], io_bytes),
                top: sizes::top(&[&self.read_sizes, &self.write_sizes]),
            },
            aligned_4kib_pct: rounded(percent(self.aligned, io.max(1)), 2),
            offset_aligned_4kib_pct: rounded(percent(self.offset_aligned, io.max(1)), 2),
            sequentiality: self.runs.figures(),
            interarrival: gaps,
            region_bytes: self.options.region.0,
            window_s: rounded(self.options.window.secs_f64(), 3),
            min_io: self.options.min_io,
            per_window,
            per_device,
            minute_s,
            iops_per_minute,
            series: self.series,
            windows,
            heat,
        })
    }
}

impl Disk {
    fn figures(&self, touched: Touched) -> DeviceFigures {
        let io = self.reads + self.writes;
        let bytes = self.read_bytes.saturating_add(self.write_bytes);
        DeviceFigures {
            device: self.number,
            requests: self.requests,
            read_pct: rounded(percent(self.reads, io.max(1)), 2),
            mean_size: bytes / io.max(1),
            max_offset_gib: rounded(self.end as f64 / GIB, 3),
            pages_gib: rounded(touched.pages as f64 * 4096.0 / GIB, 6),
        }
    }
}

/// What a trace is like. Shares named `_pct` are in percent, those named `share` between 0 and 1.
///
/// Of no request, a share or a rate is `null`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
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
    /// Share of the I/O in the hottest 1 % of regions.
    pub whole_trace_top1pct_share: Option<f64>,
    /// Share of the I/O in the hottest 10 % of regions.
    pub whole_trace_top10pct_share: Option<f64>,
    /// By kind.
    pub ops: OpsFigures,
    /// By size.
    pub sizes: SizesFigures,
    /// Reads and writes that begin and end on a multiple of 4 KiB.
    pub aligned_4kib_pct: f64,
    /// Reads and writes that begin on a multiple of 4 KiB.
    pub offset_aligned_4kib_pct: f64,
    /// Order of the reads and writes in space.
    pub sequentiality: Option<Sequentiality>,
    /// Time between a request and the next.
    pub interarrival: Option<Gaps>,
    /// Bytes in a region.
    pub region_bytes: u64,
    /// Seconds in a window.
    pub window_s: f64,
    /// Reads and writes from which on a window counts as busy.
    pub min_io: u64,
    /// Concentration in windows of time.
    pub per_window: Concentration,
    /// The 64 busiest devices, the busiest first.
    pub per_device: Vec<DeviceFigures>,
    /// Seconds that an entry of `iops_per_minute` stands for: 60, more in traces above 45 days.
    pub minute_s: u64,
    /// Requests in each minute.
    pub iops_per_minute: Vec<u64>,
    /// The load over time in at most 600 bars.
    pub series: Series,
    /// Each busy window.
    pub windows: Vec<WindowShare>,
    /// Reads and writes by place and time.
    pub heat: HeatMap,
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

/// Reads `requests` to the end and says what they are like.
///
/// # Errors
/// As [`Statistics::add`] and [`Statistics::finish`], and [`StatError::Trace`] if the trace cannot be read.
pub fn of(requests: &mut dyn Requests, options: Options) -> Result<Summary, StatError> {
    let mut statistics = Statistics::new(options)?;
    let mut batch = Vec::new();
    while requests.next_batch(&mut batch)? {
        statistics.add(&batch)?;
    }
    statistics.finish()
}

/// `value` to so many digits behind the point, halves to the even digit, as `round` of other languages.
fn rounded(value: f64, digits: usize) -> f64 {
    format!("{value:.digits$}").parse().unwrap_or(value)
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * (part as f64 / whole as f64)
}

#[cfg(test)]
mod tests;
