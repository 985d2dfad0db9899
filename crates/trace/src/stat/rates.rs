//! How many requests come in a bar, a second, a minute, and how long after each other?
//!
//! ```text
//! request -> load -> (a bar, second, minute or window is over) -> series, minutes, the busiest second
//! ```
//!
//! Always true: the moment at hand never goes back.

use hdrhistogram::Histogram;

use super::round::rounded;
use super::summary::Gaps;
use super::time::{Bars, Load, MINUTE, Minutes, Series, edge};
use crate::{Op, Request};

const SECOND: u64 = 1_000_000_000;

/// The load over time.
#[derive(Debug)]
pub(super) struct Clock {
    /// The moment at hand, in ns.
    pub(super) now: u64,
    next_edge: u64,
    load: Load,
    bars: Bars,
    pub(super) bar: usize,
    pub(super) series: Series,
    pub(super) minutes: Minutes,
    second_requests: u64,
    pub(super) peak_second: u64,
}

impl Clock {
    pub(super) fn new() -> Clock {
        Clock {
            now: 0,
            next_edge: 0,
            load: Load::default(),
            bars: Bars::default(),
            bar: 0,
            series: Series::default(),
            minutes: Minutes::new(),
            second_requests: 0,
            peak_second: 0,
        }
    }

    /// Has no request come yet?
    #[inline]
    pub(super) fn is_new(&self) -> bool {
        self.next_edge == 0
    }

    /// Is a bar, a second, a minute or a window over at `at`?
    #[inline]
    pub(super) fn is_over(&self, at: u64) -> bool {
        at >= self.next_edge
    }

    /// The clock stands at `at`; returns how long after the moment before.
    #[inline]
    pub(super) fn step(&mut self, at: u64) -> u64 {
        let gap = at - self.now;
        self.now = at;
        gap
    }

    /// A request has come.
    #[inline]
    pub(super) fn count(&mut self, request: &Request) {
        let size = request.size.0;
        match request.op {
            Op::Read => {
                self.load.reads += 1;
                self.load.read_bytes = self.load.read_bytes.saturating_add(size);
            }
            Op::Write => {
                self.load.writes += 1;
                self.load.write_bytes = self.load.write_bytes.saturating_add(size);
            }
            Op::Discard | Op::Flush => self.load.others += 1,
        }
    }

    /// A bar, a second, a minute or a window of `window` ns is over; returns how many bars are joined into one.
    #[cold]
    pub(super) fn turn(&mut self, at: u64, window: u64) -> usize {
        self.enter_load();
        if at / SECOND != self.now / SECOND {
            self.second_requests = 0;
        }
        let (bar, by) = self.bars.place(at);
        self.series.join(by);
        self.bar = bar;
        let widths = [self.bars.width(), SECOND, MINUTE, window];
        let edges = widths.map(|width| edge(at, width));
        self.next_edge = edges.into_iter().min().unwrap_or(u64::MAX);
        by
    }

    /// What came since the last turn belongs to the bar, second and minute of `now`.
    pub(super) fn enter_load(&mut self) {
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

    /// Width of a bar in ms.
    pub(super) fn bar_ms(&self) -> u64 {
        self.bars.width() / 1_000_000
    }
}

/// Times between a request and the next.
#[derive(Debug)]
pub(super) struct GapSums {
    spread: Histogram<u64>,
    squares: f64,
    max: u64,
}

impl GapSums {
    pub(super) fn new() -> GapSums {
        GapSums {
            spread: Histogram::new_with_bounds(1, u64::MAX / 2, 2)
                .expect("bounds and digits are ones the histogram takes"),
            squares: 0.0,
            max: 0,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, gap: u64) {
        self.spread.saturating_record(gap);
        self.squares += gap as f64 * gap as f64;
        self.max = self.max.max(gap);
    }

    /// The figures of `requests` over `span` ns; `None` of a single one.
    pub(super) fn figures(&self, requests: u64, span: u64) -> Option<Gaps> {
        if requests <= 1 {
            return None;
        }
        let n = (requests - 1) as f64;
        let mean = span as f64 / n;
        let variance = (self.squares / n - mean * mean).max(0.0);
        let at = |quantile| {
            let gap = self.spread.value_at_quantile(quantile).min(self.max);
            rounded(gap as f64 / 1e6, 3)
        };
        Some(Gaps {
            mean_ms: rounded(mean / 1e6, 6),
            cv: (mean > 0.0).then(|| rounded(variance.sqrt() / mean, 3)),
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            max_ms: rounded(self.max as f64 / 1e6, 3),
        })
    }
}
