//! How often did an access get less than it was promised?
//!
//! ```text
//! deliveries (moment, bytes) -> windows of the access's own bytes or time -> throughput of each
//!   -> share of windows below the rate -> mean over accesses
//! ```
//!
//! Source: PROBS 4.2 (the violation rate: how many of the measured throughputs lie below the requested
//! one), 4.1 (one measurement per object of 4 MiB, or per round).
//!
//! Choice: an access counts from its first request to its last delivery; a window it did not fill to
//! the end is not judged. What was delivered across the end of a window of time counts in the window
//! in which it arrived.

use base::{Bytes, Instant, Nanos};

use super::BytesPerSec;

/// What one measurement stretches over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Window {
    /// So many of the access's own bytes.
    Bytes(Bytes),
    /// So much of its own time.
    Time(Nanos),
}

impl Window {
    /// The windows in which promises are compared here: 16, 64 and 256 MiB and a second.
    pub const JUDGED: [Window; 4] = [
        Window::Bytes(Bytes::mib(16)),
        Window::Bytes(Bytes::mib(64)),
        Window::Bytes(Bytes::mib(256)),
        Window::Time(Nanos::secs(1)),
    ];
}

impl std::fmt::Display for Window {
    /// `64MiB`, `1s`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Window::Bytes(bytes) if bytes.is_multiple_of(1 << 20) => {
                write!(f, "{}MiB", bytes.0 >> 20)
            }
            Window::Bytes(bytes) => write!(f, "{}B", bytes.0),
            Window::Time(time) => write!(f, "{}s", time.secs_f64()),
        }
    }
}

/// The throughputs of one access, window by window.
///
/// `from` is when it first asked; `deliveries` are in order of time.
///
/// # Panics
/// If the window is empty.
///
/// # Example
/// ```
/// use base::{Bytes, Instant, Nanos};
/// use policy::share::BytesPerSec;
/// use policy::share::violations::{Window, throughputs};
/// let second = |n: u64| Instant(n * 1_000_000_000);
/// let got = [(second(1), Bytes(100)), (second(3), Bytes(100)), (second(4), Bytes(50))];
/// let by_bytes = throughputs(second(0), &got, Window::Bytes(Bytes(100)));
/// assert_eq!(by_bytes, [BytesPerSec(100), BytesPerSec(50)]);
/// let by_time = throughputs(second(0), &got, Window::Time(Nanos::secs(2)));
/// assert_eq!(by_time, [BytesPerSec(50), BytesPerSec(75)]);
/// ```
pub fn throughputs(
    from: Instant,
    deliveries: &[(Instant, Bytes)],
    window: Window,
) -> Vec<BytesPerSec> {
    match window {
        Window::Bytes(bytes) => by_bytes(from, deliveries, bytes),
        Window::Time(time) => by_time(from, deliveries, time),
    }
}

fn by_bytes(from: Instant, deliveries: &[(Instant, Bytes)], window: Bytes) -> Vec<BytesPerSec> {
    assert!(window.0 > 0, "a window of no bytes");
    let (mut begun, mut got) = (from, Bytes(0));
    let mut rates = Vec::new();
    for (at, bytes) in deliveries {
        got += *bytes;
        // One delivery may end several windows; all but the first of them took no time and are one.
        if got >= window {
            let whole = Bytes(got.0 - got.0 % window.0);
            rates.push(BytesPerSec::of(whole, at.since(begun)));
            got -= whole;
            begun = *at;
        }
    }
    rates
}

fn by_time(from: Instant, deliveries: &[(Instant, Bytes)], window: Nanos) -> Vec<BytesPerSec> {
    assert!(window.0 > 0, "a window of no time");
    let (mut end, mut got) = (from + window, Bytes(0));
    let mut rates = Vec::new();
    for (at, bytes) in deliveries {
        while *at > end {
            rates.push(BytesPerSec::of(got, window));
            got = Bytes(0);
            end = end + window;
        }
        got += *bytes;
        if *at == end {
            rates.push(BytesPerSec::of(got, window));
            got = Bytes(0);
            end = end + window;
        }
    }
    rates
}

/// Measurements and how many of them lie below what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Violations {
    /// Below.
    pub below: u64,
    /// All.
    pub of: u64,
}

impl Violations {
    /// Counts the measurements below `asked`.
    pub fn count(asked: BytesPerSec, throughputs: &[BytesPerSec]) -> Violations {
        Violations {
            below: throughputs.iter().filter(|rate| **rate < asked).count() as u64,
            of: throughputs.len() as u64,
        }
    }

    /// Percent below; `None` without a measurement.
    pub fn percent(&self) -> Option<f64> {
        (self.of > 0).then(|| 100.0 * self.below as f64 / self.of as f64)
    }
}

/// The violation rate of several accesses in percent: the mean of theirs, those without a measurement
/// left out; `None` if all are.
///
/// # Example
/// ```
/// use policy::share::violations::{Violations, percent};
/// let accesses = [Violations { below: 1, of: 10 }, Violations { below: 0, of: 40 }];
/// assert_eq!(percent(&accesses), Some(5.0));
/// ```
pub fn percent(accesses: &[Violations]) -> Option<f64> {
    let each: Vec<f64> = accesses.iter().filter_map(Violations::percent).collect();
    (!each.is_empty()).then(|| each.iter().sum::<f64>() / each.len() as f64)
}
