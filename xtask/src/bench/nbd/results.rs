//! What came out: rounds, spreads, ratios within a round, and whether the aims were reached.

use serde_json::{Value, json};

use super::cases::{Aim, Group, Method};

/// One case of one method in one round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    pub(super) iops: f64,
    pub(super) mb_per_s: f64,
    /// Of the server; of fio itself for the bare loop.
    pub(super) cpu_us_per_io: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metric {
    Iops,
    MbPerS,
    CpuUsPerIo,
}

impl Metric {
    const ALL: [Metric; 3] = [Metric::Iops, Metric::MbPerS, Metric::CpuUsPerIo];

    fn name(self) -> &'static str {
        match self {
            Metric::Iops => "iops",
            Metric::MbPerS => "throughput",
            Metric::CpuUsPerIo => "cpu-per-io",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Metric::Iops => "1/s",
            Metric::MbPerS => "MB/s",
            Metric::CpuUsPerIo => "us",
        }
    }

    fn of(self, sample: Sample) -> f64 {
        match self {
            Metric::Iops => sample.iops,
            Metric::MbPerS => sample.mb_per_s,
            Metric::CpuUsPerIo => sample.cpu_us_per_io,
        }
    }
}

/// Median, least and greatest of some rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Spread {
        assert!(!values.is_empty(), "a spread needs at least one round");
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Spread {
            median,
            low: values[0],
            high: values[values.len() - 1],
        }
    }
}

/// All samples of a group: `samples[method][case][round]`, in the order of `methods()` and `cases()`.
pub(super) struct Results {
    pub(super) group: Group,
    pub(super) samples: Vec<Vec<Vec<Sample>>>,
}

impl Results {
    pub(super) fn new(group: Group) -> Results {
        Results {
            group,
            samples: vec![vec![Vec::new(); group.cases().len()]; group.methods().len()],
        }
    }

    fn rounds(&self, method: Method, case: usize) -> &[Sample] {
        let place = self.group.methods().iter().position(|m| *m == method);
        &self.samples[place.expect("the method is of this group")][case]
    }

    pub(super) fn spread(&self, method: Method, case: usize, metric: Metric) -> Spread {
        let rounds = self.rounds(method, case);
        Spread::of(rounds.iter().map(|sample| metric.of(*sample)).collect())
    }

    /// Tanada over `other`, round by round.
    pub(super) fn ratio(&self, other: Method, case: usize, metric: Metric) -> Spread {
        let ours = self.rounds(Method::Tanada, case);
        let theirs = self.rounds(other, case);
        assert_eq!(ours.len(), theirs.len(), "every round measures everybody");
        let pairs = ours.iter().zip(theirs);
        Spread::of(
            pairs
                .map(|(ours, theirs)| metric.of(*ours) / metric.of(*theirs))
                .collect(),
        )
    }
}

/// One thing to reach, and what was.
pub(super) struct Verdict {
    pub(super) group: Group,
    pub(super) case: &'static str,
    pub(super) aim: Aim,
    pub(super) reached: Spread,
}

impl Verdict {
    pub(super) fn word(&self) -> &'static str {
        match self.aim.is_reached(self.reached) {
            true => "pass",
            false => "short",
        }
    }
}

pub(super) fn verdicts(results: &Results) -> Vec<Verdict> {
    let group = results.group;
    let cases = group.cases().iter().enumerate();
    let aims = cases.flat_map(|(i, case)| group.aims(*case).into_iter().map(move |aim| (i, aim)));
    aims.map(|(i, aim)| Verdict {
        group,
        case: group.cases()[i].name,
        aim,
        reached: results.ratio(aim.of, i, aim.metric),
    })
    .collect()
}

/// Every figure and every verdict as one row.
pub(super) fn rows(all: &[Results]) -> Vec<Value> {
    let mut rows = Vec::new();
    for results in all {
        for (i, case) in results.group.cases().iter().enumerate() {
            for method in results.group.methods() {
                for metric in Metric::ALL {
                    let figure = results.spread(*method, i, metric);
                    let over =
                        (*method != Method::Tanada).then(|| results.ratio(*method, i, metric));
                    rows.push(json!({
                        "bench": "nbd",
                        "device": results.group.name(),
                        "case": case.name,
                        "method": method.name(),
                        "metric": metric.name(),
                        "unit": metric.unit(),
                        "ours": figure.median,
                        "low": figure.low,
                        "high": figure.high,
                        "tanada_over_this": over.map(|r| r.median),
                        "tanada_over_this_low": over.map(|r| r.low),
                        "tanada_over_this_high": over.map(|r| r.high),
                        "devices": "real",
                    }));
                }
            }
        }
        for verdict in verdicts(results) {
            rows.push(json!({
                "bench": "nbd",
                "device": verdict.group.name(),
                "case": verdict.case,
                "aim": verdict.aim.what(),
                "at_most": verdict.aim.at_most,
                "bound": verdict.aim.bound,
                "ours": verdict.reached.median,
                "low": verdict.reached.low,
                "high": verdict.reached.high,
                "verdict": verdict.word(),
            }));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(iops: f64, cpu: f64) -> Sample {
        Sample {
            iops,
            mb_per_s: iops * 4096.0 / 1e6,
            cpu_us_per_io: cpu,
        }
    }

    #[test]
    fn the_median_of_an_even_number_of_rounds_lies_between_the_middle_two() {
        let spread = Spread::of(vec![4.0, 1.0, 2.0, 3.0]);
        assert_eq!(
            spread,
            Spread {
                median: 2.5,
                low: 1.0,
                high: 4.0
            }
        );
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine was twice as fast in the second round: the ratio does not move.
        let mut results = Results::new(Group::Memory);
        for case in 0..Group::Memory.cases().len() {
            results.samples[0][case] = vec![sample(150.0, 2.0), sample(300.0, 1.0)];
            results.samples[1][case] = vec![sample(100.0, 4.0), sample(200.0, 2.0)];
        }
        let iops = results.ratio(Method::Nbdkit, 1, Metric::Iops);
        assert_eq!((iops.low, iops.high), (1.5, 1.5));
        let verdicts = verdicts(&results);
        assert_eq!(verdicts.len(), 6);
        assert!(verdicts.iter().all(|verdict| verdict.word() == "pass"));
    }

    #[test]
    fn falling_short_of_an_aim_is_said() {
        let mut results = Results::new(Group::Memory);
        for case in 0..Group::Memory.cases().len() {
            results.samples[0][case] = vec![sample(129.0, 2.1), sample(99.0, 2.1)];
            results.samples[1][case] = vec![sample(100.0, 4.0); 2];
        }
        assert!(verdicts(&results).iter().all(|v| v.word() == "short"));
        assert!(rows(&[results]).iter().any(|row| row["verdict"] == "short"));
    }

    #[test]
    fn one_slow_round_falls_short_of_what_each_must_reach() {
        let mut results = Results::new(Group::Memory);
        for case in 0..Group::Memory.cases().len() {
            results.samples[0][case] =
                vec![sample(200.0, 1.0), sample(180.0, 1.0), sample(90.0, 1.0)];
            results.samples[1][case] = vec![sample(100.0, 4.0); 3];
        }
        let all = verdicts(&results);
        let mut at_depth_1 = all
            .iter()
            .filter(|verdict| verdict.case == "4k-randread-qd1");
        assert_eq!(at_depth_1.next().unwrap().word(), "pass");
        let each = at_depth_1.next().unwrap();
        assert_eq!((each.word(), each.aim.in_every_round), ("short", true));
    }
}
