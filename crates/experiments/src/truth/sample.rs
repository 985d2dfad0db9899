//! What one run of one case gave, and by how much two sides differ.
//!
//! Always true: a difference is of the real side beside the virtual one, in percent of the latter.

use serde::{Deserialize, Serialize};
use sim::run::Distribution;

/// The response times that are compared, in the order of [`Sample::times`].
pub(super) const TIMES: [&str; 4] = ["mean_ms", "p50_ms", "p95_ms", "p99_ms"];
/// Smaller counts differ in percent of this: a page more or less of a few says nothing.
const LEAST: f64 = 1e6;

/// Bytes of something, such as those read from a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Count {
    pub name: String,
    pub bytes: u64,
    /// A part of another count, and chance decides which part: not judged by itself.
    pub is_drawn: bool,
}

impl Count {
    pub fn new(name: &str, bytes: u64) -> Count {
        Count {
            name: name.to_owned(),
            bytes,
            is_drawn: false,
        }
    }

    /// The same, drawn.
    #[must_use]
    pub fn drawn(self) -> Count {
        Count {
            is_drawn: true,
            ..self
        }
    }
}

/// With the reads of all disks of a volume together: which copy is read is chosen by what each store was seen to take, and by
/// chance where they are alike.
pub(super) fn with_all_reads(counts: Vec<Count>) -> Vec<Count> {
    let reads = |count: &Count| count.name.ends_with("_read");
    let all: u64 = counts
        .iter()
        .filter(|it| reads(it))
        .map(|it| it.bytes)
        .sum();
    let drawn = counts.into_iter().map(|count| match reads(&count) {
        true => count.drawn(),
        false => count,
    });
    drawn.chain([Count::new("all_read", all)]).collect()
}

/// What was counted between two moments.
pub(super) fn since(before: &[Count], after: &[Count]) -> Vec<Count> {
    let grown = |(before, after): (&Count, &Count)| Count {
        bytes: after.bytes.saturating_sub(before.bytes),
        ..after.clone()
    };
    before.iter().zip(after).map(grown).collect()
}

/// What one run gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample {
    pub requests: u64,
    /// In ms, as [`TIMES`] names them.
    pub times: [f64; 4],
    pub counts: Vec<Count>,
    /// What the path takes without a device, in ms: mean and median. None in virtual time.
    pub floor: Option<[f64; 2]>,
}

impl Sample {
    /// Of response times and counts, without a floor.
    pub fn new(took: &Distribution, counts: Vec<Count>) -> Sample {
        let response = took.response("all");
        Sample {
            requests: response.requests,
            times: times(&response),
            counts,
            floor: None,
        }
    }

    /// With the floor that was measured before it.
    #[must_use]
    pub fn over(self, floor: &Distribution) -> Sample {
        let response = floor.response("all");
        Sample {
            floor: Some([response.mean_us / 1e3, response.p50_us / 1e3]),
            ..self
        }
    }

    /// The times, of which the floor was taken off: its mean of the mean, its median of every other.
    pub fn less_floor(&self) -> [f64; 4] {
        let [mean, median] = self.floor.unwrap_or_default();
        let [own, rest @ ..] = self.times;
        let [p50, p95, p99] = rest.map(|it| it - median);
        [own - mean, p50, p95, p99]
    }
}

/// In ms.
pub(super) fn times(response: &sim::run::Response) -> [f64; 4] {
    let us = [
        response.mean_us,
        response.p50_us,
        response.p95_us,
        response.p99_us,
    ];
    us.map(|it| it / 1e3)
}

/// Of nothing, nothing.
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// By how much each real figure is above the mean of the virtual ones, in percent of that.
pub(super) fn off_percent(real: &[f64], modelled: &[f64]) -> Vec<f64> {
    let Some(beside) = mean(modelled) else {
        return Vec::new();
    };
    let off = |real: &f64| 100.0 * (real - beside) / beside;
    real.iter().map(off).filter(|it| it.is_finite()).collect()
}

/// The same of bytes, where small counts are judged as if they were a megabyte.
pub(super) fn bytes_off_percent(real: &[f64], modelled: &[f64]) -> Vec<f64> {
    let Some(beside) = mean(modelled) else {
        return Vec::new();
    };
    let off = |real: &f64| 100.0 * (real - beside) / beside.max(LEAST);
    real.iter().map(off).collect()
}

#[cfg(test)]
mod tests {
    use base::Nanos;

    use super::*;

    #[test]
    fn differences_are_in_percent_of_the_mean_of_the_virtual_side() {
        assert_eq!(off_percent(&[11.0, 9.0], &[8.0, 12.0]), [10.0, -10.0]);
        assert_eq!(off_percent(&[1.0], &[]), [] as [f64; 0]);
        assert_eq!(off_percent(&[1.0], &[0.0]), [] as [f64; 0]);
    }

    #[test]
    fn bytes_that_are_few_differ_in_percent_of_a_megabyte() {
        assert_eq!(bytes_off_percent(&[2.2e6], &[2e6]), [10.0]);
        assert_eq!(bytes_off_percent(&[10_000.0], &[0.0]), [1.0]);
        assert_eq!(bytes_off_percent(&[0.0], &[0.0]), [0.0]);
    }

    #[test]
    fn the_floor_is_taken_off_each_time_by_its_mean_or_its_median() {
        let mut took = Distribution::new();
        let mut floor = Distribution::new();
        for n in 1..=100 {
            took.record(Nanos::millis(n));
        }
        floor.record(Nanos::micros(100));
        floor.record(Nanos::micros(500));
        let sample = Sample::new(&took, Vec::new());
        assert_eq!(sample.less_floor(), sample.times);
        let sample = sample.over(&floor);
        let near = |one: f64, other: f64| (one / other - 1.0).abs() < 0.002;
        assert!(near(sample.times[0], 50.5) && near(sample.times[3], 99.0));
        let [mean, p50, _, p99] = sample.less_floor();
        assert!(near(mean, 50.2), "{mean}");
        assert!(near(p50, 49.9), "{p50}");
        assert!(near(p99, 98.9), "{p99}");
    }

    #[test]
    fn reads_of_copies_are_judged_together() {
        let counts = ["hdd0_read", "hdd0_written", "hdd1_read"].map(|name| Count::new(name, 5));
        let counts = with_all_reads(counts.to_vec());
        let judged: Vec<_> = counts.iter().filter(|it| !it.is_drawn).collect();
        let expected = [Count::new("hdd0_written", 5), Count::new("all_read", 10)];
        assert!(judged.into_iter().eq(&expected));
    }

    #[test]
    fn counts_are_those_between_two_moments() {
        let at = |read, written| [Count::new("read", read), Count::new("written", written)];
        assert_eq!(since(&at(5, 7), &at(6, 7)), at(1, 0));
    }
}
