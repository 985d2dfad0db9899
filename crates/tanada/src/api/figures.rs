//! What was asked of a device or volume, and what that took.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Energy a modelled device has drawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Power {
    pub joules: f64,
    /// The time that covers.
    pub over_ns: u64,
    pub spin_ups: u64,
    pub standby: bool,
}

/// What was asked of a device, volume or store.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = Figures)]
pub struct Counters {
    pub over_ns: u64,
    pub in_flight: u64,
    /// Requests in flight summed over time; divided by the time, the mean queue.
    pub depth_time_ns: u64,
    /// Time with at least one request in flight.
    pub busy_ns: u64,
    pub operations: Vec<Operation>,
}

/// One kind of request and who it was for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// `read`, `write`, `flush`, `discard` or `write zeroes`; of a store, what its figures say.
    pub op: String,
    /// Of a device or hybrid `foreground`, `metadata` or `background`; of a virtual disk its client's: `low`, `normal` or
    /// `high`; of a store `client`.
    pub class: String,
    /// Answers, good and bad.
    pub requests: u64,
    /// Bytes of good answers.
    pub bytes: u64,
    /// Bad answers.
    pub errors: u64,
    /// Requests whose caller went away before the answer.
    pub abandoned: u64,
    pub latency: Latency,
}

/// Latencies in nanoseconds, from the call to the answer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Latency {
    pub count: u64,
    pub sum_ns: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
    /// (largest value, count) of each bucket in use, ascending.
    #[schema(value_type = Vec<Vec<u64>>)]
    pub buckets: Vec<(u64, u64)>,
}

impl Latency {
    /// What was added since `earlier`, bucket by bucket.
    pub fn since(&self, earlier: &Latency) -> Vec<(u64, u64)> {
        let before = |bound: u64| {
            earlier
                .buckets
                .binary_search_by_key(&bound, |bucket| bucket.0)
                .map_or(0, |index| earlier.buckets[index].1)
        };
        self.buckets
            .iter()
            .map(|&(bound, count)| (bound, count.saturating_sub(before(bound))))
            .filter(|bucket| bucket.1 > 0)
            .collect()
    }
}

/// The value that a share `q` of what the buckets hold does not exceed.
pub fn quantile(buckets: &[(u64, u64)], q: f64) -> Option<u64> {
    let count: u64 = buckets.iter().map(|bucket| bucket.1).sum();
    let rank = ((q * count as f64).ceil() as u64).max(1);
    let mut below = 0;
    buckets.iter().find_map(|&(bound, count)| {
        below += count;
        (below >= rank).then_some(bound)
    })
}

/// Reads by where they were served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Share {
    pub requests_fast: u64,
    pub requests_slow: u64,
    /// Requests that needed both devices.
    pub requests_both: u64,
    pub bytes_fast: u64,
    pub bytes_slow: u64,
}

/// Writes by clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Written {
    pub requests: u64,
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_taken_of_what_came_since() {
        let earlier = Latency {
            buckets: vec![(10, 100)],
            ..Latency::default()
        };
        let later = Latency {
            buckets: vec![(10, 100), (20, 9), (500, 1)],
            ..Latency::default()
        };
        let since = later.since(&earlier);
        assert_eq!(since, [(20, 9), (500, 1)]);
        assert_eq!(quantile(&since, 0.5), Some(20));
        assert_eq!(quantile(&since, 0.99), Some(500));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
