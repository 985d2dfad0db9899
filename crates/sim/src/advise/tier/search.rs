//! Which parameters would have done best with this history?
//!
//! ```text
//! starts: what is set now, the defaults, the paper's -> one coordinate at a time through its list, the best stays,
//!         until a whole round changes nothing        -> Setting
//! first half of the history -> search -> Setting -> scored on the second half: what can be hoped for
//! ```
//!
//! Choice: coordinate descent over short lists, by the net share of [`score`](super::score): it
//! needs some hundred scores, is the same every time, and people can follow it. A coordinate changes only for a
//! gain of [`STEP`], and the start that is set now comes first, so nothing is proposed for its own sake.
//!
//! Always true:
//! 1. The same history and setting give the same answer.
//! 2. The answer scores at least as much over the history as every start.

use std::collections::BTreeMap;

use base::{Bytes, Nanos};
use policy::tier::Parameters;

use super::history::History;
use super::score::{Score, Terms, score};

/// What is learned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// Length of a region.
    pub region: Bytes,
    /// Parameters of the rule.
    pub parameters: Parameters,
}

/// What may differ from what is set now, beside i, n, m, c and o.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freedom {
    /// Region and period too.
    All,
    /// They stay: what was counted by others is not known.
    Parameters,
}

/// What was learned, and what it is worth.
#[derive(Debug, Clone, PartialEq)]
pub struct Learned {
    /// The best setting over the whole history.
    pub setting: Setting,
    /// Its score there.
    pub score: Score,
    /// What is set now, scored there.
    pub present: Score,
    /// Found in the first half, scored in the second.
    pub held_out: Score,
    /// What is set now, scored in the second half.
    pub present_held_out: Score,
    /// Settings that were scored.
    pub tried: usize,
}

impl Learned {
    /// Is what is learned from the first half better than what is set now over the second?
    pub fn lasts(&self) -> bool {
        self.held_out.net() > self.present_held_out.net()
    }
}

/// A smaller gain of net share changes no coordinate.
const STEP: f64 = 0.002;
/// Rounds at most.
const ROUNDS: usize = 4;

const PERIODS_S: [u64; 7] = [10, 20, 30, 60, 120, 300, 600];
const REGIONS_MIB: [u64; 7] = [1, 4, 16, 64, 128, 256, 1024];
const IOPS_MIN: [f64; 7] = [0.0, 1.0, 5.0, 10.0, 20.0, 50.0, 100.0];
const SUB_LUNS_MAX: [u32; 10] = [1, 2, 5, 10, 20, 40, 80, 160, 320, 640];
const SHARE_MIN: [f64; 9] = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0];
const STREAK_MIN: [u32; 6] = [1, 2, 3, 4, 6, 10];
const TIMEOUT: [u32; 12] = [1, 2, 3, 5, 7, 10, 15, 20, 30, 60, 120, 240];

/// Searches; `present` is what is set now.
pub fn learn(history: &History, present: &Setting, terms: &Terms, freedom: Freedom) -> Learned {
    let half = history.intervals.len() / 2;
    let mut early = history.clone();
    early.intervals.truncate(half);
    let first = Search::new(&early, terms, freedom, 0).run(present);
    let mut later = Search::new(history, terms, freedom, half);
    let held_out = later.score(&first);
    let present_held_out = later.score(present);
    let mut whole = Search::new(history, terms, freedom, 0);
    let setting = whole.run(present);
    let score = whole.score(&setting);
    let now = whole.score(present);
    Learned {
        setting,
        score,
        present: now,
        held_out,
        present_held_out,
        tried: whole.tried,
    }
}

/// Scores settings over one history, which it merges as they need it.
struct Search<'a> {
    history: &'a History,
    terms: &'a Terms,
    freedom: Freedom,
    /// Intervals of the history that are not measured.
    warm_up: usize,
    merged: BTreeMap<(u64, usize), History>,
    /// Nets that were found; rounds come by the same settings again.
    nets: BTreeMap<Key, f64>,
    tried: usize,
}

/// A setting that can be looked up.
type Key = (u64, u64, u64, u32, u64, u32, u32);

fn key(setting: &Setting) -> Key {
    let p = &setting.parameters;
    (
        setting.region.0,
        p.period.0,
        p.iops_min.to_bits(),
        p.sub_luns_max,
        p.share_min.to_bits(),
        p.streak_min,
        p.timeout,
    )
}

impl<'a> Search<'a> {
    fn new(history: &'a History, terms: &'a Terms, freedom: Freedom, warm_up: usize) -> Self {
        Search {
            history,
            terms,
            freedom,
            warm_up,
            merged: BTreeMap::new(),
            nets: BTreeMap::new(),
            tried: 0,
        }
    }

    /// How many regions and intervals of the history make one of the setting's; none if it cuts them.
    fn grain(&self, setting: &Setting) -> Option<(u64, usize)> {
        let (region, period) = (setting.region.0, setting.parameters.period.0);
        let whole = region.is_multiple_of(self.history.region.0)
            && period.is_multiple_of(self.history.period.0);
        let grain = (
            region / self.history.region.0,
            (period / self.history.period.0) as usize,
        );
        whole
            .then_some(grain)
            .filter(|(regions, periods)| *regions > 0 && *periods > 0)
    }

    fn score(&mut self, setting: &Setting) -> Score {
        self.tried += 1;
        let grain = self.grain(setting).unwrap_or((1, 1));
        let history = self.history;
        let merged = self
            .merged
            .entry(grain)
            .or_insert_with(|| history.merged(grain.0, grain.1));
        score(
            merged,
            &setting.parameters,
            self.terms,
            self.warm_up / grain.1,
        )
    }

    fn net(&mut self, setting: &Setting) -> f64 {
        let key = key(setting);
        if let Some(net) = self.nets.get(&key) {
            return *net;
        }
        let net = self.score(setting).net();
        self.nets.insert(key, net);
        net
    }

    fn run(&mut self, present: &Setting) -> Setting {
        let mut best: Option<(f64, Setting)> = None;
        for start in self.starts(present) {
            let (net, setting) = self.descend(start);
            if best.is_none_or(|(most, _)| net > most + STEP) {
                best = Some((net, setting));
            }
        }
        best.map_or(*present, |(_, setting)| setting)
    }

    fn starts(&self, present: &Setting) -> Vec<Setting> {
        let usual = hybrid::Tier::default();
        let mut starts = vec![*present];
        for (region, parameters) in [
            (usual.region, usual.parameters),
            (Bytes::gib(1), Parameters::default()),
        ] {
            let start = match self.freedom {
                Freedom::All => Setting { region, parameters },
                // The streak and the timeout last as long as they would there.
                Freedom::Parameters => Setting {
                    region: present.region,
                    parameters: at_period(&parameters, present.parameters.period),
                },
            };
            if self.grain(&start).is_some() && !starts.contains(&start) {
                starts.push(start);
            }
        }
        starts
    }

    /// One coordinate at a time, until a round changes nothing.
    fn descend(&mut self, start: Setting) -> (f64, Setting) {
        let mut here = start;
        let mut net = self.net(&here);
        for _ in 0..ROUNDS {
            let mut changed = false;
            for coordinate in 0..COORDINATES {
                for next in self.along(coordinate, &here) {
                    let found = self.net(&next);
                    if found > net + STEP {
                        (net, here, changed) = (found, next, true);
                    }
                }
            }
            if !changed {
                break;
            }
        }
        (net, here)
    }

    /// The settings that differ from `from` in one coordinate.
    fn along(&self, coordinate: usize, from: &Setting) -> Vec<Setting> {
        let with = |change: &dyn Fn(&mut Parameters)| {
            let mut setting = *from;
            change(&mut setting.parameters);
            setting
        };
        let all: Vec<Setting> = match coordinate {
            0 if self.freedom == Freedom::All => REGIONS_MIB
                .iter()
                .map(|mib| Setting {
                    region: Bytes::mib(*mib),
                    ..*from
                })
                .collect(),
            1 if self.freedom == Freedom::All => PERIODS_S
                .iter()
                .map(|s| Setting {
                    parameters: at_period(&from.parameters, Nanos::secs(*s)),
                    ..*from
                })
                .collect(),
            0 | 1 => Vec::new(),
            2 => SUB_LUNS_MAX
                .iter()
                .map(|n| with(&|p| p.sub_luns_max = *n))
                .collect(),
            3 => SHARE_MIN
                .iter()
                .map(|m| with(&|p| p.share_min = *m))
                .collect(),
            4 => STREAK_MIN
                .iter()
                .map(|c| with(&|p| p.streak_min = *c))
                .collect(),
            5 => TIMEOUT.iter().map(|o| with(&|p| p.timeout = *o)).collect(),
            _ => IOPS_MIN
                .iter()
                .map(|i| with(&|p| p.iops_min = *i))
                .collect(),
        };
        let usable = |next: &Setting| {
            next != from && next.region >= self.terms.extent && self.grain(next).is_some()
        };
        all.into_iter().filter(usable).collect()
    }
}

/// Region, period, n, m, c, o, i.
const COORDINATES: usize = 7;

/// `parameters` with intervals of `period`; what is counted in intervals lasts as long as before.
pub fn at_period(parameters: &Parameters, period: Nanos) -> Parameters {
    let intervals = |count: u32| {
        let long = parameters.period.0 as f64 * f64::from(count) / period.0.max(1) as f64;
        long.round().clamp(1.0, 1e6) as u32
    };
    Parameters {
        period,
        streak_min: intervals(parameters.streak_min),
        timeout: intervals(parameters.timeout),
        ..*parameters
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use policy::tier::worth::Costs;
    use policy::tier::{Count, Kind, Region};

    /// Hot spots of four regions in 300 that take nine tenths of sixty requests a second and stay for `life`; the
    /// rest goes everywhere.
    pub(crate) fn made(life: Nanos, intervals: u64, seed: u64) -> History {
        let mut state = seed;
        let mut below = move |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let mut history = History::new(Bytes::mib(64), Nanos::secs(10));
        let mut hot = 0;
        let life = life.0 / history.period.0;
        for number in 0..intervals {
            if number % life == 0 {
                hot = below(296);
            }
            let mut sums = BTreeMap::new();
            for _ in 0..600 {
                let region = match below(10) {
                    0..9 => hot + below(4),
                    _ => 5 * below(60),
                };
                *sums.entry(Region::at(region)).or_insert(0) += 1;
            }
            let count = |(region, reads)| Count {
                region,
                reads,
                writes: 0,
            };
            history.push(sums.into_iter().map(count).collect());
        }
        history
    }

    pub(crate) fn terms() -> Terms {
        Terms {
            kind: Kind::OnTheFly,
            room: Bytes::gib(1),
            extent: Bytes::mib(1),
            costs: Costs::default(),
        }
    }

    fn paper() -> Setting {
        Setting {
            region: Bytes::mib(64),
            parameters: at_period(&Parameters::default(), Nanos::secs(60)),
        }
    }

    #[test]
    fn hot_spots_of_two_minutes_get_other_advice_than_those_of_twenty() {
        let short = made(Nanos::secs(120), 240, 1);
        let long = made(Nanos::secs(1200), 480, 1);
        let learn = |history| learn(history, &paper(), &terms(), Freedom::All);
        let (short, long) = (learn(&short), learn(&long));
        assert_ne!(short.setting, long.setting);
        let wait = |learned: &Learned| {
            let p = &learned.setting.parameters;
            p.period * u64::from(p.streak_min)
        };
        assert!(wait(&short) < Nanos::secs(60), "{:?}", short.setting);
        for (learned, least) in [(&short, 0.3), (&long, 0.03)] {
            // Better than what was set, also on what it had not seen.
            let gain = learned.held_out.net() - learned.present_held_out.net();
            assert!(gain > least, "{learned:?}");
            assert!(learned.score.net() >= learned.present.net());
        }
    }

    #[test]
    fn what_may_not_change_does_not() {
        let history = made(Nanos::secs(120), 200, 2);
        let present = Setting {
            parameters: at_period(&Parameters::default(), Nanos::secs(10)),
            ..paper()
        };
        let learned = learn(&history, &present, &terms(), Freedom::Parameters);
        assert_eq!(learned.setting.region, present.region);
        assert_eq!(learned.setting.parameters.period, present.parameters.period);
        assert!(learned.score.net() > learned.present.net());
    }

    #[test]
    fn where_nothing_helps_nothing_changes() {
        // One request in each of a thousand regions: there is nothing to learn.
        let mut history = History::new(Bytes::mib(64), Nanos::secs(10));
        for _ in 0..100 {
            let count = |index| Count {
                region: Region::at(index),
                reads: 1,
                writes: 0,
            };
            history.push((0..1000).map(count).collect());
        }
        let learned = learn(&history, &paper(), &terms(), Freedom::Parameters);
        let present = paper();
        assert!(learned.score.net() <= learned.present.net() + STEP || learned.setting != present);
        let empty = History::new(Bytes::mib(64), Nanos::secs(10));
        let learned = learn(&empty, &present, &terms(), Freedom::All);
        assert_eq!(learned.setting, present);
    }

    #[test]
    fn at_another_period_streak_and_timeout_last_as_long() {
        let paper = Parameters::default();
        let short = at_period(&paper, Nanos::secs(10));
        assert_eq!((short.streak_min, short.timeout), (18, 60));
        let long = at_period(&paper, Nanos::secs(600));
        assert_eq!((long.streak_min, long.timeout), (1, 1));
    }
}
