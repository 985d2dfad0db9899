//! What was asked between two looks, per second.
//!
//! ```text
//! earlier counters, later counters -> differences, by their time -> rates; buckets of latencies -> quantiles
//! ```
//!
//! Pure. Always true: without an earlier look the rates are those since the beginning.

use serde::Serialize;
use utoipa::ToSchema;

use super::figures::{Counters, Latency, Power, quantile};

/// What was asked of one thing, or of several together, in a stretch of time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub struct Rates {
    pub reads_per_second: f64,
    pub read_bytes_per_second: f64,
    pub writes_per_second: f64,
    pub write_bytes_per_second: f64,
    /// Half of the reads and writes were at least as quick.
    pub latency_ns_p50: Option<u64>,
    pub latency_ns_p99: Option<u64>,
    /// Mean number of requests in flight.
    pub queue_mean: f64,
    /// Share of the time with a request in flight, 0 to 1; of several things that of the busiest.
    pub busy_share: f64,
}

impl Rates {
    /// Of one thing, from `earlier` to `later`.
    pub fn between(earlier: Option<&Counters>, later: &Counters) -> Rates {
        Rates::of_all([(earlier, later)])
    }

    /// Of several things together.
    pub fn of_all<'a>(
        all: impl IntoIterator<Item = (Option<&'a Counters>, &'a Counters)>,
    ) -> Rates {
        let (mut rates, mut latencies) = (Rates::default(), Vec::new());
        let nothing = Counters::default();
        for (earlier, later) in all {
            rates.add(earlier.unwrap_or(&nothing), later, &mut latencies);
        }
        latencies.sort_unstable();
        rates.latency_ns_p50 = quantile(&latencies, 0.5);
        rates.latency_ns_p99 = quantile(&latencies, 0.99);
        rates
    }

    fn add(&mut self, earlier: &Counters, later: &Counters, latencies: &mut Vec<(u64, u64)>) {
        let over_ns = later.over_ns.saturating_sub(earlier.over_ns).max(1) as f64;
        let over = over_ns / 1e9;
        self.queue_mean +=
            later.depth_time_ns.saturating_sub(earlier.depth_time_ns) as f64 / over_ns;
        let busy = later.busy_ns.saturating_sub(earlier.busy_ns) as f64 / over_ns;
        self.busy_share = self.busy_share.max(busy);
        for of in &later.operations {
            let (requests, bytes) = match of.op.as_str() {
                "read" => (&mut self.reads_per_second, &mut self.read_bytes_per_second),
                "write" | "write zeroes" => (
                    &mut self.writes_per_second,
                    &mut self.write_bytes_per_second,
                ),
                _ => continue,
            };
            let mut before = earlier.operations.iter();
            let old = before.find(|old| old.op == of.op && old.class == of.class);
            let (old_requests, old_bytes) = old.map_or((0, 0), |old| (old.requests, old.bytes));
            *requests += of.requests.saturating_sub(old_requests) as f64 / over;
            *bytes += of.bytes.saturating_sub(old_bytes) as f64 / over;
            let none = Latency::default();
            latencies.extend(of.latency.since(old.map_or(&none, |old| &old.latency)));
        }
    }
}

/// Mean power since `earlier`, in watts; since the start without it. `None`: no time went by.
pub fn watts(earlier: Option<&Power>, later: &Power) -> Option<f64> {
    let (joules, over) = earlier.map_or((0.0, 0), |power| (power.joules, power.over_ns));
    let seconds = later.over_ns.saturating_sub(over) as f64 / 1e9;
    (seconds > 0.0).then(|| (later.joules - joules).max(0.0) / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::figures::Operation;

    fn counters(seconds: u64, op: &str, requests: u64, buckets: &[(u64, u64)]) -> Counters {
        Counters {
            over_ns: seconds * 1_000_000_000,
            busy_ns: seconds * 250_000_000,
            operations: vec![Operation {
                op: op.to_owned(),
                class: "foreground".to_owned(),
                requests,
                bytes: requests * 4096,
                errors: 0,
                abandoned: 0,
                latency: Latency {
                    buckets: buckets.to_vec(),
                    ..Latency::default()
                },
            }],
            ..Counters::default()
        }
    }

    #[test]
    fn rates_of_several_things_add_up_and_their_latencies_are_of_all_requests() {
        let (a, b) = (
            counters(1, "read", 100, &[(10, 100)]),
            counters(3, "read", 200, &[(10, 200)]),
        );
        let one = Rates::between(Some(&a), &b);
        assert_eq!(one.reads_per_second, 50.0);
        assert_eq!(one.read_bytes_per_second, 50.0 * 4096.0);
        assert_eq!(one.latency_ns_p99, Some(10));
        assert_eq!(one.busy_share, 0.25);
        let slow = counters(2, "write zeroes", 4, &[(900, 4)]);
        let both = Rates::of_all([(Some(&a), &b), (None, &slow)]);
        assert_eq!((both.reads_per_second, both.writes_per_second), (50.0, 2.0));
        assert_eq!(
            (both.latency_ns_p50, both.latency_ns_p99),
            (Some(10), Some(900))
        );
        assert_eq!(Rates::between(Some(&b), &b).reads_per_second, 0.0);
        assert_eq!(Rates::of_all([]), Rates::default());
    }
}
