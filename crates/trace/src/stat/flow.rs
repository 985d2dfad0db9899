//! Does a request start where an earlier one of its device ended?
//!
//! ```text
//! request -> ends where the last one did?          sequential
//!         -> ends where one of 32 streams does?    continues that stream
//!         -> a new stream, in the place of the one that has waited longest; that one's run is over
//! ```
//!
//! Always true: every request with a size belongs to exactly one run.

use serde::Serialize;

use super::round::{percent, rounded};

/// Streams followed per device.
const STREAMS: usize = 32;
/// Run lengths are counted by powers of two: 1, 2-3, 4-7, ...
const LENGTHS: usize = 32;

/// The streams of one device.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    /// Where each ends; `u64::MAX` where there is none yet.
    ends: [u64; STREAMS],
    /// Requests in its run so far.
    lengths: [u32; STREAMS],
    /// When it was last continued, in requests of the device.
    used: [u64; STREAMS],
    requests: u64,
    last_end: u64,
}

/// What all devices' streams add up to.
#[derive(Debug, Default)]
pub(super) struct Runs {
    pub(super) requests: u64,
    sequential: u64,
    continued: u64,
    /// Runs that are over, by the power of two of their length.
    lengths: [u64; LENGTHS],
    runs: u64,
    longest: u64,
}

/// How sequential the trace is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sequentiality {
    /// Requests that start where the device's last one ended, in percent.
    pub sequential_pct: f64,
    /// Requests that start where one of the device's last 32 streams ended, in percent.
    pub streams_pct: f64,
    /// Runs of requests, each starting where the one before ended.
    pub runs: u64,
    /// Requests in a run, on average.
    pub run_mean: f64,
    /// Requests in the longest run.
    pub run_max: u64,
    /// Runs of 1, 2-3, 4-7, 8-15, ... requests.
    pub runs_by_length: Vec<u64>,
}

impl Streams {
    pub(super) fn new() -> Streams {
        Streams {
            ends: [u64::MAX; STREAMS],
            lengths: [0; STREAMS],
            used: [0; STREAMS],
            requests: 0,
            last_end: u64::MAX,
        }
    }

    /// Takes one request in; `size` is not 0.
    #[inline]
    pub(super) fn add(&mut self, runs: &mut Runs, offset: u64, size: u64) {
        let end = offset.saturating_add(size);
        self.requests += 1;
        runs.requests += 1;
        runs.sequential += u64::from(offset == self.last_end);
        self.last_end = end;
        let stream = match self.ends.iter().position(|&stream| stream == offset) {
            Some(stream) => {
                runs.continued += 1;
                self.lengths[stream] = self.lengths[stream].saturating_add(1);
                stream
            }
            None => {
                let stream = self.longest_waiting();
                runs.close(self.lengths[stream]);
                self.lengths[stream] = 1;
                stream
            }
        };
        self.ends[stream] = end;
        self.used[stream] = self.requests;
    }

    fn longest_waiting(&self) -> usize {
        let mut oldest = 0;
        for stream in 1..STREAMS {
            if self.used[stream] < self.used[oldest] {
                oldest = stream;
            }
        }
        oldest
    }

    /// The trace is over, and with it the runs.
    pub(super) fn close(&self, runs: &mut Runs) {
        for &length in &self.lengths {
            runs.close(length);
        }
    }
}

impl Runs {
    #[inline]
    fn close(&mut self, length: u32) {
        if length > 0 {
            self.runs += 1;
            self.lengths[length.ilog2() as usize] += 1;
            self.longest = self.longest.max(u64::from(length));
        }
    }

    /// The figures; `None` without a request.
    pub(super) fn figures(&self) -> Option<Sequentiality> {
        if self.requests == 0 {
            return None;
        }
        let used = self.lengths.iter().rposition(|&n| n > 0).unwrap_or(0);
        Some(Sequentiality {
            sequential_pct: rounded(percent(self.sequential, self.requests), 2),
            streams_pct: rounded(percent(self.continued, self.requests), 2),
            runs: self.runs,
            run_mean: rounded(self.requests as f64 / self.runs as f64, 2),
            run_max: self.longest,
            runs_by_length: self.lengths[..=used].to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(requests: &[(u64, u64)]) -> Sequentiality {
        let (mut streams, mut runs) = (Streams::new(), Runs::default());
        for &(offset, size) in requests {
            streams.add(&mut runs, offset, size);
        }
        streams.close(&mut runs);
        runs.figures().expect("requests")
    }

    #[test]
    fn one_stream_is_sequential_but_for_its_first_request() {
        let requests: Vec<(u64, u64)> = (0..100).map(|n| (n * 4096, 4096)).collect();
        let figures = figures(&requests);
        assert_eq!(figures.sequential_pct, 99.0);
        assert_eq!(figures.streams_pct, 99.0);
        assert_eq!(
            (figures.runs, figures.run_max, figures.run_mean),
            (1, 100, 100.0)
        );
    }

    #[test]
    fn interleaved_streams_are_distinguished_from_random_requests() {
        let streams = |count: u64| -> Vec<(u64, u64)> {
            (0..100)
                .flat_map(|n| (0..count).map(move |stream| ((stream << 40) + n * 4096, 4096)))
                .collect()
        };
        let followed = figures(&streams(32));
        assert_eq!((followed.sequential_pct, followed.streams_pct), (0.0, 99.0));
        assert_eq!((followed.runs, followed.run_max), (32, 100));
        // The stream that has waited longest is always the one that comes next.
        let lost = figures(&streams(33));
        assert_eq!((lost.streams_pct, lost.runs), (0.0, 3300));
        assert_eq!(lost.runs_by_length, [3300]);
    }
}
