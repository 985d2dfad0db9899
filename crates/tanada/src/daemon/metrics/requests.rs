//! Requests of devices, volumes and stores: how many, how much, how long.
//!
//! ```text
//! operations of a thing -> rows by labels, those of equal labels summed -> counters, and a histogram of 12 bounds
//! ```
//!
//! Always true: no two rows have equal labels.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Family, Labels, Row, counters, gauges, seconds};
use crate::api::figures::{Counters, Latency, Operation};

/// Upper bounds of latency buckets in nanoseconds: what a fast device does, a disk, and one that is overrun.
const BOUNDS_NS: [u64; 12] = [
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    100_000_000,
    500_000_000,
    2_500_000_000,
];

/// What was asked under one set of labels.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Requests {
    requests: u64,
    bytes: u64,
    errors: u64,
    latency_sum_ns: u64,
    latency_count: u64,
    /// In each bucket alone; the last has no bound.
    buckets: [u64; BOUNDS_NS.len() + 1],
}

impl Requests {
    fn add(&mut self, of: &Operation) {
        self.requests += of.requests;
        self.bytes += of.bytes;
        self.errors += of.errors;
        self.latency_sum_ns = self.latency_sum_ns.saturating_add(of.latency.sum_ns);
        self.latency_count += of.latency.count;
        self.sort_in(&of.latency);
    }

    fn join(&mut self, other: &Requests) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.latency_sum_ns = self.latency_sum_ns.saturating_add(other.latency_sum_ns);
        self.latency_count += other.latency_count;
        for (own, other) in self.buckets.iter_mut().zip(other.buckets) {
            *own += other;
        }
    }

    /// A measured bucket is at most 1/16 wide; it counts where its upper end lies.
    fn sort_in(&mut self, latency: &Latency) {
        for &(bound, count) in &latency.buckets {
            let place = BOUNDS_NS.partition_point(|limit| *limit < bound);
            self.buckets[place] += count;
        }
    }

    fn bounded(&self) -> Vec<(f64, u64)> {
        let bounds = BOUNDS_NS.iter().map(|ns| *ns as f64 / 1e9);
        bounds.chain([f64::INFINITY]).zip(self.buckets).collect()
    }
}

/// Rows of one kind of things.
#[derive(Default)]
pub(super) struct Rows<'a>(Vec<(Labels<'a>, Requests)>);

impl<'a> Rows<'a> {
    /// The operations of one thing, each under the labels that `of` gives it.
    pub fn add(&mut self, figures: &'a Counters, of: impl Fn(&'a Operation) -> Labels<'a>) {
        // Those of this thing alone can have equal labels.
        let first = self.0.len();
        for operation in &figures.operations {
            let labels = of(operation);
            let known = self.0[first..].iter().position(|(it, _)| *it == labels);
            let at = known.map_or(self.0.len(), |at| first + at);
            if at == self.0.len() {
                self.0.push((labels, Requests::default()));
            }
            self.0[at].1.add(operation);
        }
    }

    /// Writes them down as `PREFIX_requests_total` and so on.
    pub fn write(&self, encoder: &mut DescriptorEncoder<'_>, prefix: &str) -> Result<(), Error> {
        self.totals(encoder, prefix)?;
        self.latencies(encoder, prefix)
    }

    /// As [`Rows::write`], with one histogram for all that differ in the label `dropped` alone: a series has some 15 lines.
    pub fn write_without(
        &self,
        dropped: &str,
        encoder: &mut DescriptorEncoder<'_>,
        prefix: &str,
    ) -> Result<(), Error> {
        self.totals(encoder, prefix)?;
        self.without(dropped).latencies(encoder, prefix)
    }

    fn totals(&self, encoder: &mut DescriptorEncoder<'_>, prefix: &str) -> Result<(), Error> {
        let rows = self.0.iter();
        let rows: Vec<(Labels<'_>, &Requests)> =
            rows.map(|(labels, it)| (labels.clone(), it)).collect();
        counters(encoder, prefix, &ANSWERED, &rows)
    }

    /// The same without a label, those that are equal then summed.
    fn without(&self, dropped: &str) -> Rows<'a> {
        let mut summed: Vec<(Labels<'a>, Requests)> = Vec::new();
        for (labels, of) in &self.0 {
            let mut labels = labels.clone();
            labels.retain(|(name, _)| *name != dropped);
            // Those of one thing stand together.
            let others = summed.iter().rev();
            let same = others.take_while(|(it, _)| it.first() == labels.first());
            let first = summed.len() - same.count();
            let known = summed[first..].iter().position(|(it, _)| *it == labels);
            let at = known.map_or(summed.len(), |at| first + at);
            if at == summed.len() {
                summed.push((labels, Requests::default()));
            }
            summed[at].1.join(of);
        }
        Rows(summed)
    }

    fn latencies(&self, encoder: &mut DescriptorEncoder<'_>, prefix: &str) -> Result<(), Error> {
        let name = format!("{prefix}_latency_seconds");
        let help = "From the call to the answer, good and bad";
        let mut family = Family::of_histograms(encoder, &name, help)?;
        for (labels, of) in &self.0 {
            let (sum, count) = (of.latency_sum_ns as f64 / 1e9, of.latency_count);
            family.histogram(labels, (sum, count), &of.bounded())?;
        }
        Ok(())
    }
}

/// What became of requests.
const ANSWERED: [Row<Requests, u64>; 3] = [
    ("requests", "Requests answered, good and bad", |of| {
        of.requests
    }),
    ("bytes", "Bytes of requests answered well", |of| of.bytes),
    ("errors", "Requests answered with an error", |of| of.errors),
];

/// How busy devices or volumes are, and were.
pub(super) fn load(
    encoder: &mut DescriptorEncoder<'_>,
    prefix: &str,
    all: &[(Labels<'_>, &Counters)],
) -> Result<(), Error> {
    gauges(encoder, prefix, &[IN_FLIGHT], all)?;
    seconds(encoder, prefix, &LOAD_SECONDS, all)
}

const IN_FLIGHT: Row<Counters, f64> = ("in_flight", "Requests begun and not answered", |of| {
    of.in_flight as f64
});

const LOAD_SECONDS: [Row<Counters, f64>; 2] = [
    (
        "busy_seconds",
        "Time with at least one request in flight",
        |of| of.busy_ns as f64 / 1e9,
    ),
    (
        "queue_seconds",
        "Requests in flight summed over time; its rate is the mean queue",
        |of| of.depth_time_ns as f64 / 1e9,
    ),
];

#[cfg(test)]
mod tests {
    use super::super::family::labels;
    use super::*;

    fn operation(class: &str, bound: u64) -> Operation {
        Operation {
            op: "read".to_owned(),
            class: class.to_owned(),
            requests: 2,
            bytes: 8192,
            errors: 1,
            abandoned: 0,
            latency: Latency {
                count: 2,
                sum_ns: 2 * bound,
                buckets: vec![(bound, 2)],
                ..Latency::default()
            },
        }
    }

    #[test]
    fn operations_of_equal_labels_are_summed_and_lie_where_they_end() {
        let figures = Counters {
            operations: vec![
                operation("metadata", 50_000),
                operation("background", 3_000_000_000),
                operation("foreground", 50_001),
            ],
            ..Counters::default()
        };
        let mut rows = Rows::default();
        rows.add(&figures, |of| {
            let class = if of.class == "foreground" {
                "normal"
            } else {
                "internal"
            };
            labels([("class", class)])
        });
        let [(internal, sum), (normal, alone)] = &rows.0[..] else {
            panic!("two rows");
        };
        assert_eq!(*internal, labels([("class", "internal")]));
        assert_eq!((sum.requests, sum.bytes, sum.errors), (4, 16_384, 2));
        assert_eq!((sum.latency_count, sum.latency_sum_ns), (4, 6_000_100_000));
        assert_eq!((sum.buckets[0], sum.buckets[12]), (2, 2));
        assert_eq!(*normal, labels([("class", "normal")]));
        assert_eq!((alone.buckets[1], alone.requests), (2, 2));
        assert_eq!(sum.bounded()[12], (f64::INFINITY, 2));
    }

    #[test]
    fn a_label_that_is_dropped_sums_the_rows_of_each_thing_and_of_no_other() {
        let figures = Counters {
            operations: vec![
                operation("metadata", 50_000),
                operation("background", 3_000_000_000),
            ],
            ..Counters::default()
        };
        let mut rows = Rows::default();
        for device in ["a", "b"] {
            rows.add(&figures, |of| {
                let mut labels = labels([("device", device)]);
                labels.push(("work", of.class.as_str().into()));
                labels
            });
        }
        assert_eq!(rows.0.len(), 4);
        let summed = rows.without("work").0;
        let names: Vec<_> = summed.iter().map(|(labels, _)| labels.clone()).collect();
        assert_eq!(
            names,
            [labels([("device", "a")]), labels([("device", "b")])]
        );
        for (_, of) in &summed {
            assert_eq!(
                (of.requests, of.latency_count, of.buckets[0], of.buckets[12]),
                (4, 4, 2, 2)
            );
        }
    }
}
