//! What came out: figures of each round, their spread, ratios within a round, and whether the aims were reached.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::cases::{Peer, Phase};
use super::parse::Sample;

/// What one guest measured.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) samples: BTreeMap<(Peer, Phase), Sample>,
    /// Peers that were not there or did not end a phase, and why.
    pub(super) absent: BTreeMap<Peer, String>,
}

/// Median, least and greatest of some rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) runs: usize,
}

impl Spread {
    /// `None` of nothing.
    fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            1 => values[middle],
            _ => f64::midpoint(values[middle - 1], values[middle]),
        };
        Some(Spread {
            median,
            low,
            high,
            runs: values.len(),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metric {
    Iops,
    Mean,
    P99,
    /// Processor time of the whole guest for a request; what an idle fio costs is subtracted.
    GuestCpu,
    ServerCpu,
    ClientCpu,
    CopyRate,
    /// Requests that the slow disk did not see, in per cent.
    Hits,
    SlowReads,
    SlowKibRead,
    SlowWrites,
    /// Those until the client's last write.
    SlowWritesBeside,
    SlowKibWritten,
    FastKibWritten,
    Dirty,
    LongestQuiet,
}

impl Metric {
    pub(super) const ALL: [Metric; 16] = [
        Metric::Iops,
        Metric::Mean,
        Metric::P99,
        Metric::GuestCpu,
        Metric::ServerCpu,
        Metric::ClientCpu,
        Metric::CopyRate,
        Metric::Hits,
        Metric::SlowReads,
        Metric::SlowKibRead,
        Metric::SlowWrites,
        Metric::SlowWritesBeside,
        Metric::SlowKibWritten,
        Metric::FastKibWritten,
        Metric::Dirty,
        Metric::LongestQuiet,
    ];

    /// Its name and unit.
    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            Metric::Iops => ("rate", "1/s"),
            Metric::Mean => ("mean", "ms"),
            Metric::P99 => ("p99", "ms"),
            Metric::GuestCpu => ("cpu", "us"),
            Metric::ServerCpu => ("server cpu", "us"),
            Metric::ClientCpu => ("client cpu", "us"),
            Metric::CopyRate => ("rate", "MiB/s"),
            Metric::Hits => ("hits", "%"),
            Metric::SlowReads => ("slow disk reads", ""),
            Metric::SlowKibRead => ("slow disk read", "KiB"),
            Metric::SlowWrites => ("slow disk writes", ""),
            Metric::SlowWritesBeside => ("slow disk writes beside the client's", ""),
            Metric::SlowKibWritten => ("slow disk written", "KiB"),
            Metric::FastKibWritten => ("fast disk written", "KiB"),
            Metric::Dirty => ("dirty after", "KiB"),
            Metric::LongestQuiet => ("longest quiet", "s"),
        }
    }

    /// Does it stand on the page of all benchmarks? The record has all of them.
    fn is_on_the_page(self) -> bool {
        !matches!(
            self,
            Metric::ServerCpu
                | Metric::ClientCpu
                | Metric::SlowKibRead
                | Metric::FastKibWritten
                | Metric::Mean
        )
    }

    /// Of one phase; `floor` is what fio costs that does nothing, in seconds. `None` where it says nothing.
    fn of(self, phase: Phase, sample: &Sample, floor: f64) -> Option<f64> {
        let each = |seconds: f64| {
            let requests = sample.job?.requests as f64;
            Some(seconds.max(0.0) * 1e6 / requests)
        };
        let count = |number: u64| Some(number as f64);
        match self {
            Metric::Iops => sample.job.map(|job| job.iops),
            Metric::Mean => sample.job.map(|job| job.mean_ms),
            Metric::P99 => sample.job.map(|job| job.p99_ms),
            Metric::GuestCpu => each(sample.cpu - floor),
            Metric::ServerCpu => each(sample.server_cpu?),
            Metric::ClientCpu => each(sample.job?.cpu),
            Metric::CopyRate => sample.copy_mib_per_s,
            Metric::Hits => {
                let requests = sample.job?.requests as f64;
                let missed = (sample.slow.reads as f64 / requests).min(1.0);
                phase.shows_hits().then_some(100.0 * (1.0 - missed))
            }
            Metric::SlowReads => count(sample.slow.reads),
            Metric::SlowKibRead => count(sample.slow.kib_read),
            Metric::SlowWrites => count(sample.slow.writes),
            Metric::SlowWritesBeside => sample.slow_during.and_then(count),
            Metric::SlowKibWritten => count(sample.slow.kib_written),
            Metric::FastKibWritten => count(sample.fast.kib_written),
            Metric::Dirty => sample.dirty_kib.and_then(count),
            Metric::LongestQuiet => sample.rest.map(|rest| rest.longest_quiet),
        }
    }
}

/// All rounds.
pub(super) struct Results {
    pub(super) rounds: Vec<Round>,
    /// Processor time of a fio that does nothing, in seconds.
    pub(super) floor: f64,
}

impl Results {
    pub(super) fn spread(&self, peer: Peer, phase: Phase, metric: Metric) -> Option<Spread> {
        let samples = self
            .rounds
            .iter()
            .filter_map(|it| it.samples.get(&(peer, phase)));
        Spread::of(
            samples
                .filter_map(|it| metric.of(phase, it, self.floor))
                .collect(),
        )
    }

    /// `peer` over `other`, guest by guest.
    pub(super) fn ratio(
        &self,
        peer: Peer,
        other: Peer,
        phase: Phase,
        metric: Metric,
    ) -> Option<Spread> {
        let of =
            |round: &Round, peer| metric.of(phase, round.samples.get(&(peer, phase))?, self.floor);
        let pairs = self.rounds.iter().filter_map(|round| {
            let (ours, theirs) = (of(round, peer)?, of(round, other)?);
            (theirs > 0.0).then_some(ours / theirs)
        });
        Spread::of(pairs.collect())
    }

    /// Peers and phases that any round has.
    pub(super) fn measured(&self) -> (Vec<Peer>, Vec<Phase>) {
        let any = |peer, phase| {
            self.rounds
                .iter()
                .any(|it| it.samples.contains_key(&(peer, phase)))
        };
        let phases = Phase::all();
        let peers = Peer::all().into_iter();
        let peers = peers
            .filter(|peer| phases.iter().any(|phase| any(*peer, *phase)))
            .collect::<Vec<_>>();
        let phases = phases.into_iter();
        let phases = phases
            .filter(|phase| peers.iter().any(|peer| any(*peer, *phase)))
            .collect();
        (peers, phases)
    }

    pub(super) fn verdicts(&self) -> Vec<Verdict> {
        let ours = Peer::TanadaUblk;
        let mut verdicts = Vec::new();
        let mut add = |phase, what: &str, reached: Option<Spread>, bound, at_most| {
            verdicts.extend(reached.map(|reached| Verdict {
                phase,
                what: what.to_owned(),
                reached,
                bound,
                at_most,
            }));
        };
        let cold = self.ratio(ours, Peer::Bare, Phase::Cold1, Metric::Iops);
        add(Phase::Cold1, "rate over the bare disk", cold, 0.97, false);
        let warming = self.ratio(ours, Peer::Bcache, Phase::Warming, Metric::Iops);
        add(Phase::Warming, "rate over bcache", warming, 0.9, false);
        for phase in WARM {
            let warm = self.ratio(ours, Peer::Bcache, phase, Metric::Iops);
            add(phase, "rate over bcache", warm, 0.5, false);
        }
        for phase in BURSTS {
            let writes = self.spread(ours, phase, Metric::SlowWritesBeside);
            add(
                phase,
                "slow disk writes beside the client's",
                writes,
                0.0,
                true,
            );
        }
        verdicts
    }

    /// Every figure and every verdict as one row.
    pub(super) fn rows(&self) -> Vec<Value> {
        let (peers, phases) = self.measured();
        let mut rows = Vec::new();
        for phase in &phases {
            for peer in &peers {
                rows.extend(
                    Metric::ALL
                        .iter()
                        .filter_map(|metric| self.row(*peer, *phase, *metric)),
                );
            }
        }
        rows.extend(self.verdicts().iter().map(Verdict::row));
        rows
    }

    fn row(&self, peer: Peer, phase: Phase, metric: Metric) -> Option<Value> {
        let figure = self.spread(peer, phase, metric)?;
        let (name, unit) = metric.words();
        let over = self
            .ratio(peer, Peer::Bcache, phase, metric)
            .filter(|_| metric == Metric::Iops && peer != Peer::Bcache);
        Some(json!({
            "bench": "peers",
            "case": phase.name(),
            "about": phase.about(),
            "method": peer.name(),
            "metric": name,
            "unit": unit,
            "ours": figure.median,
            "low": figure.low,
            "high": figure.high,
            "runs": figure.runs,
            "over_bcache": over.map(|it| it.median),
            "over_bcache_low": over.map(|it| it.low),
            "over_bcache_high": over.map(|it| it.high),
            "devices": "emulated",
            "evidence": "measured",
            "aside": !metric.is_on_the_page(),
            "wide": true,
        }))
    }
}

const WARM: [Phase; 5] = [
    Phase::WarmRead1,
    Phase::WarmRead16,
    Phase::WarmWrite1,
    Phase::WarmWrite16,
    Phase::Warm256k,
];

/// Writes that fit the cache.
const BURSTS: [Phase; 3] = [Phase::WarmWrite1, Phase::WarmWrite16, Phase::Burst];

/// One thing to reach, and whether it was.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) phase: Phase,
    pub(super) what: String,
    pub(super) reached: Spread,
    pub(super) bound: f64,
    /// Is less better?
    pub(super) at_most: bool,
}

impl Verdict {
    pub(super) fn word(&self) -> &'static str {
        let passes = match self.at_most {
            true => self.reached.median <= self.bound,
            false => self.reached.median >= self.bound,
        };
        if passes { "pass" } else { "short" }
    }

    fn row(&self) -> Value {
        json!({
            "bench": "peers",
            "device": Peer::TanadaUblk.name(),
            "case": self.phase.name(),
            "aim": self.what,
            "at_most": self.at_most,
            "bound": self.bound,
            "ours": self.reached.median,
            "low": self.reached.low,
            "high": self.reached.high,
            "verdict": self.word(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::{Disk, Job};
    use super::*;

    fn sample(iops: f64, slow: Disk) -> Sample {
        let job = Job {
            iops,
            mean_ms: 1.0,
            p99_ms: 2.0,
            requests: 1000,
            cpu: 0.5,
        };
        Sample {
            job: Some(job),
            cpu: 3.0,
            slow,
            ..Sample::default()
        }
    }

    fn round(samples: &[(Peer, Phase, Sample)]) -> Round {
        let samples = samples
            .iter()
            .map(|(peer, phase, sample)| ((*peer, *phase), *sample));
        Round {
            samples: samples.collect(),
            absent: BTreeMap::new(),
        }
    }

    #[test]
    fn ratios_are_taken_within_a_guest() {
        // The machine was half as fast in the second: the ratio does not move.
        let of = |factor: f64| {
            round(&[
                (
                    Peer::Bcache,
                    Phase::WarmRead1,
                    sample(4000.0 * factor, Disk::default()),
                ),
                (
                    Peer::TanadaUblk,
                    Phase::WarmRead1,
                    sample(1000.0 * factor, Disk::default()),
                ),
            ])
        };
        let results = Results {
            rounds: vec![of(1.0), of(0.5)],
            floor: 1.0,
        };
        let ratio = results.ratio(
            Peer::TanadaUblk,
            Peer::Bcache,
            Phase::WarmRead1,
            Metric::Iops,
        );
        let ratio = ratio.expect("both were measured");
        assert_eq!((ratio.low, ratio.high, ratio.runs), (0.25, 0.25, 2));
        let rate = results
            .spread(Peer::Bcache, Phase::WarmRead1, Metric::Iops)
            .expect("measured");
        assert_eq!((rate.low, rate.median, rate.high), (2000.0, 3000.0, 4000.0));
        let cpu = results
            .spread(Peer::Bcache, Phase::WarmRead1, Metric::GuestCpu)
            .expect("measured");
        assert_eq!(cpu.median, 2000.0, "2 of 3 seconds for 1,000 requests");
    }

    #[test]
    fn hits_are_the_requests_that_the_slow_disk_did_not_see() {
        let slow = Disk {
            reads: 250,
            ..Disk::default()
        };
        let results = Results {
            rounds: vec![round(&[
                (Peer::Bcache, Phase::AfterCopy, sample(1.0, slow)),
                (Peer::Bcache, Phase::Cold1, sample(1.0, slow)),
            ])],
            floor: 0.0,
        };
        let hits = |phase| results.spread(Peer::Bcache, phase, Metric::Hits);
        assert_eq!(hits(Phase::AfterCopy).map(|it| it.median), Some(75.0));
        assert_eq!(hits(Phase::Cold1), None);
    }

    #[test]
    fn an_aim_is_judged_only_where_both_were_measured_and_missing_it_is_said() {
        let burst = Sample {
            slow_during: Some(3091),
            ..sample(2500.0, Disk::default())
        };
        let results = Results {
            rounds: vec![round(&[
                (Peer::Bare, Phase::Cold1, sample(114.0, Disk::default())),
                (
                    Peer::TanadaUblk,
                    Phase::Cold1,
                    sample(113.0, Disk::default()),
                ),
                (Peer::TanadaUblk, Phase::Burst, burst),
                (
                    Peer::TanadaUblk,
                    Phase::Warming,
                    sample(300.0, Disk::default()),
                ),
            ])],
            floor: 0.0,
        };
        let verdicts = results.verdicts();
        let words: Vec<_> = verdicts.iter().map(|it| (it.phase, it.word())).collect();
        assert_eq!(words, [(Phase::Cold1, "pass"), (Phase::Burst, "short")]);
        let rows = results.rows();
        assert!(
            rows.iter()
                .any(|row| row["verdict"] == "short" && row["ours"] == 3091.0)
        );
        assert!(
            rows.iter()
                .all(|row| row["verdict"].is_string() || row["devices"] == "emulated")
        );
    }
}
