//! What advice consists of.

use serde::Serialize;

use super::timed::{Times, micros, watts};
use crate::cache::NamedCurve;

/// Where figures come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The quick model, which has no sequential bypass and no ledger.
    Model,
    /// The engine of `tanada serve` over modelled devices.
    Engine,
}

/// One cache that was looked at; the figures are of modelled devices.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// The policy.
    pub policy: String,
    /// The size of the cache.
    pub size_bytes: u64,
    /// The write mode.
    pub write: String,
    /// Streams from this length on go past the cache; none: all go through it.
    pub sequential_bypass_bytes: Option<u64>,
    /// What the figures were found with.
    pub by: By,
    /// Requests that read and found all their pages in the cache, per request that reads.
    pub read_hit_ratio: f64,
    /// Mean response time of the requests that were timed.
    pub response_us_mean: f64,
    /// Of reads.
    pub read_us_mean: f64,
    /// Of writes.
    pub write_us_mean: f64,
    /// Requests to the slow device for the timed requests, cleaning included.
    pub slow_requests: u64,
    /// The share of the slow device's requests that is saved; negative where there are more.
    pub slow_requests_saved: f64,
    /// Written to the fast device a day at the pace of the trace; of the engine, its ledger included.
    pub flash_bytes_per_day: f64,
    /// That in sizes of the fast device, which may hold more than the cache.
    pub device_writes_per_day: f64,
    /// Mean power of both devices.
    pub watts: f64,
}

/// The slow device alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alone {
    /// Mean response time.
    pub response_us_mean: f64,
    /// Of reads.
    pub read_us_mean: f64,
    /// Of writes.
    pub write_us_mean: f64,
    /// Requests to it.
    pub slow_requests: u64,
    /// Its mean power.
    pub watts: f64,
}

impl From<&Times> for Alone {
    fn from(times: &Times) -> Alone {
        Alone {
            response_us_mean: micros(times.mean),
            read_us_mean: micros(times.read_mean),
            write_us_mean: micros(times.write_mean),
            slow_requests: times.slow_requests,
            watts: watts(times),
        }
    }
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Advice {
    /// The model of the slow device.
    pub slow: String,
    /// The model of the fast device.
    pub fast: String,
    /// Requests of the trace that read or write.
    pub requests: u64,
    /// Those at its end that all figures are of.
    pub timed_requests: u64,
    /// Requests of any kind before those that warm the cache when the engine is simulated; the quick model
    /// takes all there are.
    pub engine_warm_up_requests: u64,
    /// How long the trace is.
    pub trace_seconds: f64,
    /// What it touches, in whole pages.
    pub touched_bytes: u64,
    /// The slow device alone.
    pub alone: Alone,
    /// The caches looked at.
    pub candidates: Vec<Candidate>,
    /// Which of them is advised; none: leave it as it is.
    pub chosen: Option<usize>,
    /// The lines of its `[[hybrid]]` in the configuration; none if nothing is advised.
    pub configuration: Option<String>,
    /// Why, in sentences.
    pub reasons: Vec<String>,
    /// The miss-ratio curves the policy was chosen by.
    #[serde(skip)]
    pub curves: Vec<NamedCurve>,
}
