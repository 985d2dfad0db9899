//! What is in a trace: mix, sizes, order, load over time, footprint, concentration and the life of hot spots.
//!
//! ```text
//! batches of requests -> Statistics -> Summary (for people: a page, for programs: JSON)
//!                        | sizes      how big
//!                        | flow       does one start where another ended
//!                        | rates      per second, minute and bar; how far apart
//!                        | places     what was touched, to the page
//!                        | regions, hot, areas  who takes the I/O of a window, for how long
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

mod areas;
mod disks;
mod flow;
mod heat;
mod hot;
mod places;
mod rates;
mod regions;
mod round;
mod sizes;
mod summary;
mod time;

use base::{Bytes, Nanos};

use super::{Op, Request, Requests, TraceError};
pub use areas::AreaFigures;
pub use flow::Sequentiality;
pub use heat::{HeatMap, HeatRow};
pub use hot::{Concentration, HotRegions, HotRuns, TopShares, WindowShare};
pub use sizes::{SizeFigures, TopSize};
pub use summary::{
    Alignment, Asked, DeviceFigures, Extent, FootprintFigures, Gaps, Hottest, OpFigures,
    OpsFigures, Order, PerMinute, Rates, SizesFigures, Summary, Totals,
};
pub use time::Series;

use disks::{DEVICES_MAX, Disks};
use flow::Runs;
use places::{Footprint, Touched};
use rates::{Clock, GapSums};
use regions::{REGIONS_MAX, Regions};
use round::{GIB, percent, rounded};
use sizes::Sizes;

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
/// assert_eq!((summary.totals.requests, summary.totals.span_s, summary.totals.read_pct), (3, 1.0, 66.67));
/// # Ok::<(), trace::stat::StatError>(())
/// ```
#[derive(Debug)]
pub struct Statistics {
    options: Options,

    ops: [OpFigures; 4],
    read_sizes: Sizes,
    write_sizes: Sizes,
    aligned: u64,
    offset_aligned: u64,

    disks: Disks,
    regions: Regions,
    footprint: Footprint,
    runs: Runs,

    clock: Clock,
    gaps: GapSums,
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
        Ok(Statistics {
            options,
            ops: [OpFigures::default(); 4],
            read_sizes: Sizes::new(),
            write_sizes: Sizes::new(),
            aligned: 0,
            offset_aligned: 0,
            disks: Disks::new(),
            regions: Regions::new(options.region),
            footprint: Footprint::default(),
            runs: Runs::default(),
            clock: Clock::new(),
            gaps: GapSums::new(),
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
        self.advance(request);
        let (offset, size) = (request.offset.0, request.size.0);
        let end = offset.saturating_add(size);
        let op = &mut self.ops[request.op as usize];
        op.requests += 1;
        op.bytes = op.bytes.saturating_add(size);

        let disk = self.disks.get(request.device)?;
        disk.requests += 1;
        self.clock.count(request);
        match request.op {
            Op::Read => self.read_sizes.add(size),
            Op::Write => self.write_sizes.add(size),
            Op::Discard => {
                self.regions.total += disk.reach(end, self.options.region);
                return Ok(());
            }
            Op::Flush => return Ok(()),
        }
        disk.add(request.op, size);
        let offset_aligned = offset.is_multiple_of(4096);
        self.offset_aligned += u64::from(offset_aligned);
        self.aligned += u64::from(offset_aligned && size.is_multiple_of(4096));
        disk.first = disk.first.min(offset);
        self.regions.total += disk.reach(end, self.options.region);
        if size > 0 {
            disk.streams.add(&mut self.runs, offset, size);
        }
        let is_read = request.op == Op::Read;
        self.footprint.mark(&mut disk.mibs, offset, size, is_read);
        if let Some(heat) = &mut disk.heat {
            heat.add(offset, self.clock.bar);
        }
        self.regions.add(disk, offset)
    }

    /// Moves time on to a request.
    #[inline]
    fn advance(&mut self, request: &Request) {
        let at = request.at.0.max(self.clock.now);
        let is_first = self.clock.is_new();
        if self.clock.is_over(at) {
            self.turn(at);
        }
        let gap = self.clock.step(at);
        if !is_first {
            self.gaps.add(gap);
        }
    }

    /// A bar, a second, a minute or a window is over.
    #[cold]
    fn turn(&mut self, at: u64) {
        let window = self.options.window.0;
        let by = self.clock.turn(at, window);
        if by > 1 {
            self.disks.join_bars(by);
        }
        self.regions.enter(at / window, self.options.min_io);
    }

    /// What the trace is like.
    ///
    /// # Errors
    /// [`StatError::Empty`] if there was no request.
    pub fn finish(mut self) -> Result<Summary, StatError> {
        self.clock.enter_load();
        self.regions.close_window(self.options.min_io);
        if self.ops.iter().all(|op| op.requests == 0) {
            return Err(StatError::Empty);
        }
        for disk in &self.disks.all {
            disk.streams.close(&mut self.runs);
        }
        let totals = self.totals();
        let order = Order {
            sequentiality: self.runs.figures(),
            interarrival: self.gaps.figures(totals.requests, self.clock.now),
        };
        let (extent, per_device) = self.extent();
        let rates = self.rates(totals.requests);
        let hottest = self.hottest();
        let (ops, sizes, alignment) = (self.ops_figures(), self.sizes(), self.alignment());

        let (per_window, windows) = self
            .regions
            .windows
            .finish(self.regions.total, self.options.region.0);
        let bar_ms = self.clock.bar_ms();
        let mut series = self.clock.series;
        series.bar_ms = bar_ms;
        let (minute_s, iops_per_minute) = self.clock.minutes.counts();
        Ok(Summary {
            totals,
            extent,
            rates,
            hottest,
            ops,
            sizes,
            alignment,
            order,
            asked: Asked {
                region_bytes: self.options.region.0,
                window_s: rounded(self.options.window.secs_f64(), 3),
                min_io: self.options.min_io,
            },
            per_window,
            per_device,
            minutes: PerMinute {
                minute_s,
                iops_per_minute,
            },
            heat: self.disks.heat(series.reads.len(), bar_ms),
            series,
            windows,
        })
    }

    /// Reads and writes, and their bytes.
    fn io(&self) -> OpFigures {
        let [reads, writes, ..] = self.ops;
        OpFigures {
            requests: reads.requests + writes.requests,
            bytes: reads.bytes.saturating_add(writes.bytes),
        }
    }

    fn totals(&self) -> Totals {
        let (io, reads) = (self.io(), self.ops[Op::Read as usize]);
        Totals {
            requests: self.ops.iter().map(|op| op.requests).sum(),
            span_s: rounded(Nanos(self.clock.now).secs_f64(), 3),
            read_pct: rounded(percent(reads.requests, io.requests.max(1)), 2),
            read_bytes_pct: rounded(percent(reads.bytes, io.bytes.max(1)), 2),
            mean_size: io.bytes / io.requests.max(1),
            devices: self.disks.all.len() as u64,
        }
    }

    /// What is reached, and what each of the busiest devices got.
    fn extent(&self) -> (Extent, Vec<DeviceFigures>) {
        let disks = &self.disks.all;
        let mut touched = Touched::default();
        let mut per_device = Vec::with_capacity(disks.len());
        for disk in disks {
            let own = self.footprint.touched(&disk.mibs);
            touched += own;
            per_device.push(disk.figures(own));
        }
        per_device.sort_by_key(|disk| (std::cmp::Reverse(disk.requests), disk.device));
        per_device.truncate(DEVICES_LISTED);
        let end = disks.iter().map(|disk| disk.end).max().unwrap_or(0);
        let spans = disks.iter().map(|disk| disk.end.saturating_sub(disk.first));
        let address_span = spans.fold(0, u64::saturating_add);
        let gib = |pages: u64| rounded(pages as f64 * 4096.0 / GIB, 6);
        let extent = Extent {
            max_offset_gib: rounded(end as f64 / GIB, 3),
            address_span_gib: rounded(address_span as f64 / GIB, 3),
            touched_1mib_gib: rounded(touched.entered_mib as f64 / 1024.0, 3),
            footprint: FootprintFigures {
                pages_gib: gib(touched.pages),
                mib_gib: rounded(touched.mib as f64 / 1024.0, 3),
                read_gib: gib(touched.read_pages),
                written_gib: gib(touched.written_pages),
                exact: self.footprint.is_exact(),
            },
            regions_touched: self.regions.touched(),
            regions_total: self.regions.total,
        };
        (extent, per_device)
    }

    fn rates(&self, requests: u64) -> Rates {
        let seconds = Nanos(self.clock.now).secs_f64();
        let per_second =
            |n: u64, digits| (seconds > 0.0).then(|| rounded(n as f64 / seconds, digits));
        let (peak_requests, peak_bytes) = self.clock.minutes.peak();
        // A shorter trace has no whole minute.
        let peak = |n: u64| (seconds > 0.0).then(|| n as f64 / seconds.min(60.0));
        Rates {
            iops_mean: per_second(requests, 2),
            iops_peak_minute: peak(peak_requests).map(|iops| rounded(iops, 2)),
            iops_peak_second: self.clock.peak_second,
            bytes_per_second_mean: per_second(self.io().bytes, 0),
            bytes_per_second_peak_minute: peak(peak_bytes).map(|rate| rounded(rate, 0)),
        }
    }

    fn hottest(&self) -> Hottest {
        let io = self.io().requests;
        let totals = self.regions.totals();
        let share = |share: f64| {
            let top = hot::top(self.regions.total, share).min(totals.len());
            (io > 0).then(|| rounded(totals[..top].iter().sum::<u64>() as f64 / io as f64, 3))
        };
        Hottest {
            whole_trace_top1pct_share: share(0.01),
            whole_trace_top10pct_share: share(0.1),
        }
    }

    fn ops_figures(&self) -> OpsFigures {
        OpsFigures {
            read: self.ops[Op::Read as usize],
            write: self.ops[Op::Write as usize],
            discard: self.ops[Op::Discard as usize],
            flush: self.ops[Op::Flush as usize],
        }
    }

    fn sizes(&self) -> SizesFigures {
        let (reads, writes) = (&self.read_sizes, &self.write_sizes);
        SizesFigures {
            read: sizes::figures(&[reads], self.ops[Op::Read as usize].bytes),
            write: sizes::figures(&[writes], self.ops[Op::Write as usize].bytes),
            all: sizes::figures(&[reads, writes], self.io().bytes),
            top: sizes::top(&[reads, writes]),
        }
    }

    fn alignment(&self) -> Alignment {
        let io = self.io().requests.max(1);
        Alignment {
            aligned_4kib_pct: rounded(percent(self.aligned, io), 2),
            offset_aligned_4kib_pct: rounded(percent(self.offset_aligned, io), 2),
        }
    }
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

#[cfg(test)]
mod tests;
