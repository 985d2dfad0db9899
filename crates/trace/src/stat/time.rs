//! How does the load run over time? Minutes, and series of at most 600 bars whatever the span.
//!
//! ```text
//! moment -> bar; a moment behind the last bar: bars are joined by 2, 5, 10 ... until it fits
//! ```
//!
//! Always true: joining bars loses no request; widths divide each other, so no bar is ever cut.

use serde::Serialize;

/// Bars of a series.
pub(super) const BARS_MAX: usize = 600;
/// Minutes kept one by one: 45 days. Longer traces are counted by 2, 4, 8 ... minutes.
const MINUTES_MAX: usize = 1 << 16;
/// In nanoseconds.
pub(super) const MINUTE: u64 = 60_000_000_000;
/// Widths of bars in milliseconds, each a multiple of the one before; the last is 10,000 days.
const WIDTHS_MS: [u64; 16] = [
    1,
    10,
    100,
    1_000,
    5_000,
    15_000,
    60_000,
    300_000,
    900_000,
    3_600_000,
    21_600_000,
    86_400_000,
    864_000_000,
    8_640_000_000,
    86_400_000_000,
    864_000_000_000,
];

/// Which bar does a moment fall into? Shared by all that is drawn over time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bars {
    step: usize,
}

impl Bars {
    /// Width of a bar in nanoseconds.
    pub(super) fn width(self) -> u64 {
        WIDTHS_MS[self.step] * 1_000_000
    }

    /// The bar of moment `at`, and how many bars must be joined into one before it can be used.
    pub(super) fn place(&mut self, at: u64) -> (usize, usize) {
        let before = self.width();
        while at / self.width() >= BARS_MAX as u64 && self.step + 1 < WIDTHS_MS.len() {
            self.step += 1;
        }
        let bar = ((at / self.width()) as usize).min(BARS_MAX - 1);
        (bar, (self.width() / before) as usize)
    }
}

/// Joins each `by` neighbours of `bars` into one.
pub(super) fn join(bars: &mut Vec<u64>, by: usize) {
    if by > 1 {
        let sum = |chunk: &[u64]| chunk.iter().fold(0, |a: u64, b| a.saturating_add(*b));
        *bars = bars.chunks(by).map(sum).collect();
    }
}

/// Adds `amount` to bar `at`.
pub(super) fn put(bars: &mut Vec<u64>, at: usize, amount: u64) {
    if at >= bars.len() {
        bars.resize(at + 1, 0);
    }
    bars[at] = bars[at].saturating_add(amount);
}

/// The load over time in at most 600 bars of one width.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Series {
    /// Width of a bar in milliseconds.
    pub bar_ms: u64,
    /// Requests that read, per bar.
    pub reads: Vec<u64>,
    /// Requests that write, per bar.
    pub writes: Vec<u64>,
    /// Discards and flushes, per bar.
    pub others: Vec<u64>,
    /// Bytes read, per bar.
    pub read_bytes: Vec<u64>,
    /// Bytes written, per bar.
    pub write_bytes: Vec<u64>,
}

/// What happened since the load was last entered into the series.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) others: u64,
    pub(super) read_bytes: u64,
    pub(super) write_bytes: u64,
}

impl Series {
    pub(super) fn join(&mut self, by: usize) {
        for bars in [
            &mut self.reads,
            &mut self.writes,
            &mut self.others,
            &mut self.read_bytes,
            &mut self.write_bytes,
        ] {
            join(bars, by);
        }
    }

    pub(super) fn put(&mut self, bar: usize, load: Load) {
        put(&mut self.reads, bar, load.reads);
        put(&mut self.writes, bar, load.writes);
        put(&mut self.others, bar, load.others);
        put(&mut self.read_bytes, bar, load.read_bytes);
        put(&mut self.write_bytes, bar, load.write_bytes);
    }
}

/// Requests per minute, and the busiest minute.
#[derive(Debug)]
pub(super) struct Minutes {
    /// Minutes per entry: a power of two.
    per_entry: u64,
    counts: Vec<u64>,
    now: u64,
    requests: u64,
    bytes: u64,
    peak_requests: u64,
    peak_bytes: u64,
}

impl Minutes {
    pub(super) fn new() -> Minutes {
        Minutes {
            per_entry: 1,
            counts: Vec::new(),
            now: 0,
            requests: 0,
            bytes: 0,
            peak_requests: 0,
            peak_bytes: 0,
        }
    }

    /// Enters what happened in the minute of `at`; minutes come in order, one may come in parts.
    pub(super) fn put(&mut self, at: u64, requests: u64, bytes: u64) {
        let minute = at / MINUTE;
        if minute != self.now {
            (self.now, self.requests, self.bytes) = (minute, 0, 0);
        }
        self.requests += requests;
        self.bytes = self.bytes.saturating_add(bytes);
        self.peak_requests = self.peak_requests.max(self.requests);
        self.peak_bytes = self.peak_bytes.max(self.bytes);
        while minute / self.per_entry >= MINUTES_MAX as u64 {
            self.per_entry *= 2;
            join(&mut self.counts, 2);
        }
        put(
            &mut self.counts,
            (minute / self.per_entry) as usize,
            requests,
        );
    }

    /// (requests, bytes) of the minutes that had most of each.
    pub(super) fn peak(&self) -> (u64, u64) {
        (self.peak_requests, self.peak_bytes)
    }

    /// Seconds per entry, and the requests of each.
    pub(super) fn counts(self) -> (u64, Vec<u64>) {
        (60 * self.per_entry, self.counts)
    }
}

/// First moment behind the bar of `width` that holds `at`.
pub(super) fn edge(at: u64, width: u64) -> u64 {
    (at / width).saturating_add(1).saturating_mul(width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_divide_each_other_and_reach_the_end_of_time() {
        for pair in WIDTHS_MS.windows(2) {
            assert!(pair[1].is_multiple_of(pair[0]) && pair[1] > pair[0]);
        }
        let last = WIDTHS_MS[WIDTHS_MS.len() - 1] * 1_000_000;
        assert!(u64::MAX / last < BARS_MAX as u64);
    }

    #[test]
    fn joined_bars_keep_every_request() {
        let (mut bars, mut series) = (Bars::default(), Series::default());
        let load = Load {
            reads: 1,
            ..Load::default()
        };
        // 0, 1 ms, 3 ms, 9 ms ... 3^40 ms.
        let mut at = 0u64;
        for n in 0..24u32 {
            let (bar, by) = bars.place(at);
            series.join(by);
            series.put(bar, load);
            assert_eq!(series.reads.iter().sum::<u64>(), u64::from(n) + 1);
            assert!(series.reads.len() <= BARS_MAX);
            at = at * 3 + 1_000_000;
        }
        assert_eq!(series.reads[series.reads.len() - 1], 1);
    }

    #[test]
    fn a_century_of_minutes_stays_small() {
        let mut minutes = Minutes::new();
        minutes.put(0, 5, 50);
        minutes.put(MINUTE, 7, 10);
        minutes.put(MINUTE, 1, 10);
        minutes.put(100 * 365 * 24 * 60 * MINUTE, 2, 20);
        assert_eq!(minutes.peak(), (8, 50));
        let (seconds, counts) = minutes.counts();
        assert!(counts.len() <= MINUTES_MAX && seconds > 60);
        assert_eq!(counts.iter().sum::<u64>(), 15);
    }
}
