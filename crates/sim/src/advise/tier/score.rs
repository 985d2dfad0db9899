//! What are these parameters worth? Decisions alone over a history, and what carrying them out would cost.
//!
//! ```text
//! interval of counts -> requests to regions that are up: fast
//!                    -> the production rule steps        -> regions up and down -> copies, in time of the slow device
//! ```
//!
//! Moves are taken as instant. A region that is up costs what is touched of it: an extent is copied when it is
//! first touched, and each request touches any extent of its region as probably as any other. A region that goes
//! down costs the extents that were written. So the figures rank; the engine decides.
//!
//! Always true:
//! 1. The same history and setting give the same score.
//! 2. Requests of an interval count as fast by what was up before its decision.

use std::collections::BTreeMap;

use base::{Bytes, Nanos};
use policy::tier::worth::Costs;
use policy::tier::{Count, Interval, Kind, Parameters, Region, Way, build};

use super::history::History;

/// What the moves of a tier go by, beside its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    /// The rule.
    pub kind: Kind,
    /// What the tier may hold.
    pub room: Bytes,
    /// What is moved together.
    pub extent: Bytes,
    /// What reading and copying costs.
    pub costs: Costs,
}

/// What one setting does with a history.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Score {
    /// Requests.
    pub requests: u64,
    /// Of them to regions that were up, as far as there was room for what is touched of them.
    pub fast: f64,
    /// Regions that went up.
    pub ups: u64,
    /// Regions that went down.
    pub downs: u64,
    /// The most regions up at once.
    pub up_most: usize,
    /// Time of the slow device for copying both ways.
    pub moving: Nanos,
    /// Time of the slow device that the fast requests would have taken.
    pub saved: Nanos,
    /// What all requests would have taken it.
    pub all: Nanos,
}

impl Score {
    /// The share of requests on the fast tier, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.fast / (self.requests as f64).max(1.0)
    }

    /// The share of the slow device's time that is saved, moves taken off; below 0 where moving costs more.
    ///
    /// Choice: what is compared. A share of requests alone would move everything all the time.
    pub fn net(&self) -> f64 {
        (self.saved.0 as f64 - self.moving.0 as f64) / (self.all.0 as f64).max(1.0)
    }
}

/// What a region that is up has been asked since it went up.
#[derive(Debug, Clone, Copy, Default)]
struct Life {
    requests: f64,
    writes: f64,
}

/// The regions that are up, and what that saves and costs so far, in requests and in copies of an extent.
struct Up<'a> {
    terms: &'a Terms,
    extent: Bytes,
    /// Extents of a region.
    extents: f64,
    lives: BTreeMap<Region, Life>,
    /// Nanoseconds of one copy.
    copy: f64,
    moving: f64,
    fast: f64,
}

impl Up<'_> {
    /// Extents of a region that so many requests touch, each any of them.
    fn touched(&self, requests: f64) -> f64 {
        self.extents * (1.0 - (-requests / self.extents).exp())
    }

    /// Do extents go up one by one, not whole regions?
    fn by_extent(&self) -> bool {
        self.extents > 1.0
    }

    /// The share of what is touched that there is room for.
    fn fits(&self) -> f64 {
        let lives = self.lives.values();
        let held: f64 = lives.map(|life| self.touched(life.requests)).sum();
        (self.terms.room.0 as f64 / (held * self.extent.0 as f64).max(1.0)).min(1.0)
    }

    /// The requests to one region in an interval.
    fn ask(&mut self, count: &Count, fits: f64, measured: bool) {
        let Some(life) = self.lives.get_mut(&count.region) else {
            return;
        };
        let requests = count.all() as f64;
        let before = life.requests;
        life.requests += requests;
        life.writes += count.writes as f64;
        let after = life.requests;
        if measured {
            self.fast += requests * fits;
            // A whole region was copied when it went up.
            if self.by_extent() {
                self.moving += (self.touched(after) - self.touched(before)) * self.copy * fits;
            }
        }
    }

    /// One region goes up or down.
    fn go(&mut self, region: Region, way: Way, measured: bool) {
        let copies = match way {
            Way::Up => {
                self.lives.insert(region, Life::default());
                if self.by_extent() { 0.0 } else { 1.0 }
            }
            Way::Down => {
                let life = self.lives.remove(&region).unwrap_or_default();
                self.touched(life.writes)
            }
        };
        if measured {
            self.moving += copies * self.copy;
        }
    }
}

/// Scores `parameters` over `history`, whose regions and intervals are those of the setting; the first `warm_up`
/// intervals are not measured.
pub fn score(history: &History, parameters: &Parameters, terms: &Terms, warm_up: usize) -> Score {
    let counts = history.intervals.iter().flatten();
    let regions_max = counts.map(|count| count.region.0).max();
    let extent = terms.extent.min(history.region);
    let mut up = Up {
        terms,
        extent,
        extents: (history.region.0 / extent.0) as f64,
        lives: BTreeMap::new(),
        copy: terms.costs.copy(extent).0 as f64,
        moving: 0.0,
        fast: 0.0,
    };
    let room = match up.by_extent() {
        // Extents go up one by one: a region takes what it needs.
        true => regions_max.unwrap_or(0),
        false => (terms.room.0 / history.region.0).min(u64::from(u32::MAX)) as u32,
    };
    let mut policy = build(terms.kind, *parameters, room);
    let mut score = Score::default();
    for (number, counts) in history.intervals.iter().enumerate() {
        let measured = number >= warm_up;
        let fits = up.fits();
        for count in counts {
            score.requests += if measured { count.all() } else { 0 };
            up.ask(count, fits, measured);
        }
        let decision = policy.step(&Interval {
            number: number as u64,
            length: history.period,
            counts,
        });
        for step in &decision.moves {
            up.go(step.region, step.way, measured);
            match step.way {
                Way::Up => score.ups += u64::from(measured),
                Way::Down => score.downs += u64::from(measured),
            }
        }
        score.up_most = score.up_most.max(up.lives.len());
    }
    let saves = terms.costs.saved().0 as f64;
    score.fast = up.fast;
    score.moving = Nanos(up.moving as u64);
    score.saved = Nanos((up.fast * saves) as u64);
    score.all = Nanos((score.requests as f64 * saves) as u64);
    score
}

/// The requests of one interval.
pub(super) fn all(counts: &[Count]) -> u64 {
    counts.iter().map(Count::all).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One region of 1 GiB with 1,000 reads in every interval.
    fn steady(intervals: usize) -> History {
        let mut history = History::new(Bytes::gib(1), Nanos::secs(10));
        for _ in 0..intervals {
            history.push(vec![Count {
                region: Region(7),
                reads: 1000,
                writes: 0,
            }]);
        }
        history
    }

    fn terms() -> Terms {
        Terms {
            kind: Kind::OnTheFly,
            room: Bytes::gib(4),
            extent: Bytes::mib(1),
            costs: Costs::default(),
        }
    }

    #[test]
    fn a_steady_region_is_fast_once_it_is_up_and_is_copied_once() {
        let parameters = Parameters {
            period: Nanos::secs(10),
            streak_min: 3,
            ..Parameters::default()
        };
        let found = score(&steady(100), &parameters, &terms(), 0);
        assert_eq!((found.requests, found.ups, found.downs), (100_000, 1, 0));
        assert_eq!(found.fast, 97_000.0);
        // A thousand and twenty-four copies of 1 MiB.
        let whole = terms().costs.copy(Bytes::mib(1)).0 * 1024;
        assert!(
            found.moving.0.abs_diff(whole) < whole / 100,
            "{}",
            found.moving
        );
        assert!(found.net() < found.share() && found.net() > 0.9);
        let later = score(&steady(100), &parameters, &terms(), 50);
        assert_eq!((later.requests, later.share()), (50_000, 1.0));
    }

    #[test]
    fn what_there_is_no_room_for_is_not_fast() {
        let small = Terms {
            room: Bytes::mib(256),
            ..terms()
        };
        let parameters = Parameters {
            period: Nanos::secs(10),
            streak_min: 1,
            ..Parameters::default()
        };
        let found = score(&steady(100), &parameters, &small, 50);
        assert!((0.2..0.3).contains(&found.share()), "{}", found.share());
    }

    #[test]
    fn whole_regions_cost_a_whole_copy_when_they_go_up() {
        let whole = Terms {
            extent: Bytes::gib(1),
            ..terms()
        };
        let parameters = Parameters {
            period: Nanos::secs(10),
            ..Parameters::default()
        };
        let found = score(&steady(10), &parameters, &whole, 0);
        assert_eq!(found.moving, whole.costs.copy(Bytes::gib(1)));
    }
}
