//! How concentrated is the I/O in each window of time, how long does a hot spot live, does it come back?
//!
//! ```text
//! a window's counts by region -> shares of the top 1 % and 10 % (of all regions the trace turns out to have)
//!                             -> hot regions: among the top 1 %, at least twice the mean -> runs of windows
//!                             -> areas: neighbours with at least twice the mean           -> their lives
//! ```
//!
//! Source: AST 2.1 (how much of the I/O how little of the capacity takes, for how long, and how often in
//! the same place).
//!
//! Choice: the paper counts concentrations without saying what one is. A region is *hot* in a window when
//! it is among the hottest 1 % of all regions there and takes at least twice the mean of the regions
//! touched. An *area* is a group of neighbours that each take twice the mean, however many; it is the same
//! from one window to the next if the two share a region (the rule of AST 3.2.2 for groups of subLUNs); of
//! areas that join the eldest lives on. Windows below `min_io` requests are passed over and end every run.
//!
//! Always true:
//! 1. Windows come in order; each is judged once.
//! 2. How many regions make 1 % is known at the end only, so judging waits, within [`PENDING_MAX`].

use std::collections::{BTreeMap, VecDeque};

use base::{Map, Set};
use serde::Serialize;

use super::areas::{AreaFigures, Areas};
use super::round::rounded;

/// Counts kept of windows not judged yet (8 bytes each); beyond that the oldest are judged by the number of
/// regions known so far.
const PENDING_MAX: usize = 4 << 20;
/// AST 4.1 moves at most so many subLUNs in an interval.
const AST_REGIONS: usize = 20;

/// A region of a device, in order of address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) device: u32,
    pub(super) region: u64,
}

/// A window's counts, still to be judged.
#[derive(Debug)]
struct Pending {
    window: u64,
    requests: u64,
    /// Regions with at least twice the mean, the hottest first.
    hot: Vec<(Place, u32)>,
    /// The others: (count, regions with that count), descending.
    rest: Vec<(u32, u32)>,
}

/// The windows of a trace.
#[derive(Debug, Default)]
pub(super) struct Windows {
    pending: VecDeque<Pending>,
    pending_counts: usize,
    /// Regions that made 1 % and 10 % when windows were judged early.
    judged_early: Option<(usize, usize)>,
    judged: Judged,
    areas: Areas,
    /// Smallest and largest number of regions any window was judged with.
    exact: bool,
}

/// What is known of the windows judged.
#[derive(Debug, Default)]
struct Judged {
    windows: Vec<WindowShare>,
    top20: f64,
    spots: Map<Place, Spot>,
    hot_before: Set<Place>,
    before: Option<u64>,
    first: Option<u64>,
    starts: u64,
    revisits: u64,
    adjacent: u64,
    runs: Runs,
}

/// The life of one hot region.
#[derive(Debug, Clone, Copy)]
struct Spot {
    last: u64,
    length: u64,
    requests: u64,
    starts: u32,
}

/// Runs that are over.
#[derive(Debug, Default)]
struct Runs {
    runs: u64,
    windows: u64,
    ge3: u64,
    ge10: u64,
    requests: u64,
    requests_ge3: u64,
    requests_ge10: u64,
}

/// How concentrated one window was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WindowShare {
    /// Number of the window, from 0.
    pub window: u64,
    /// Reads and writes in it.
    pub requests: u64,
    /// Share of them in the hottest 1 % of all regions.
    pub top1: f64,
    /// Share of them in the hottest 10 % of all regions.
    pub top10: f64,
}

/// Concentration of the I/O in windows of time, and the life of hot spots.
///
/// Shares are between 0 and 1 and rounded to three digits. Means are weighted by the requests of a window.
///
/// Source: AST 2.1.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Concentration {
    /// Windows with at least `min_io` requests; the others are left out of what follows.
    pub windows_busy: u64,
    /// How many regions are the hottest 1 %.
    pub top_regions: u64,
    /// How many regions are the hottest 10 %.
    pub top10pct_regions: u64,
    /// What the hottest regions of a window take.
    #[serde(flatten)]
    pub top: TopShares,
    /// How long regions are hot.
    #[serde(flatten)]
    pub runs: HotRuns,
    /// Where regions are hot.
    #[serde(flatten)]
    pub hot: HotRegions,
    /// Areas: hot neighbours taken together.
    pub areas: AreaFigures,
    /// Whether every window was judged by the final number of regions; not so only if the pending counts
    /// outgrew their bound before the highest address appeared.
    pub exact: bool,
}

/// What the hottest regions of a window take.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TopShares {
    /// Share of the I/O in the window's hottest 1 % of regions, mean.
    pub top1pct_share_mean: Option<f64>,
    /// The same in the median window.
    pub top1pct_share_p50: Option<f64>,
    /// The same in the least concentrated window.
    pub top1pct_share_min: Option<f64>,
    /// The same in the most concentrated window.
    pub top1pct_share_max: Option<f64>,
    /// Share of the I/O in the window's hottest 10 % of regions, mean.
    pub top10pct_share_mean: Option<f64>,
    /// The same in the median window.
    pub top10pct_share_p50: Option<f64>,
    /// Share of the I/O in the window's 20 hottest regions, mean.
    pub top20_share_mean: Option<f64>,
}

/// For how many windows in a row regions are hot.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct HotRuns {
    /// Of the I/O to hot regions, the share in regions hot for 3 or more windows in a row.
    pub hot_io_in_runs_ge3: Option<f64>,
    /// The same for 10 or more windows.
    pub hot_io_in_runs_ge10: Option<f64>,
    /// Runs: a region is hot in so many windows in a row.
    pub hot_runs: u64,
    /// Windows in a run, on average.
    pub hot_run_mean: Option<f64>,
    /// Of the runs, the share that lasts 3 or more windows.
    pub hot_runs_ge3: Option<f64>,
    /// Of the runs, the share that lasts 10 or more windows.
    pub hot_runs_ge10: Option<f64>,
}

/// Which regions are hot, and do they come back?
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct HotRegions {
    /// Regions that were hot at least once.
    pub hot_regions: u64,
    /// Of these, the share that was hot, cooled, and was hot again.
    pub hot_regions_again: Option<f64>,
    /// Runs that began after the first window with a hot region.
    pub hot_starts: u64,
    /// Of these, the share in a region that had been hot before.
    pub hot_starts_revisit: Option<f64>,
    /// Of these, the share next to a region that was hot in the window before.
    pub hot_starts_adjacent: Option<f64>,
}

impl Windows {
    /// Takes in the counts of a window that is over; `regions` is how many there are as far as known.
    pub(super) fn put(&mut self, window: u64, mut counts: Vec<(Place, u32)>, regions: u64) {
        let requests: u64 = counts.iter().map(|(_, n)| u64::from(*n)).sum();
        let floor = match counts.len() {
            1 => 0.0,
            touched => 2.0 * requests as f64 / touched as f64,
        };
        counts.sort_unstable_by_key(|&(place, n)| (std::cmp::Reverse(n), place));
        let hot_len = counts.partition_point(|(_, n)| f64::from(*n) >= floor);
        let mut rest: Vec<(u32, u32)> = Vec::new();
        for &(_, n) in &counts[hot_len..] {
            match rest.last_mut() {
                Some((count, times)) if *count == n => *times += 1,
                _ => rest.push((n, 1)),
            }
        }
        counts.truncate(hot_len);
        counts.shrink_to_fit();
        self.areas.put(window, requests, &counts);
        self.pending_counts += counts.len() + rest.len();
        self.pending.push_back(Pending {
            window,
            requests,
            hot: counts,
            rest,
        });
        while self.pending_counts > PENDING_MAX {
            let tops = (top(regions, 0.01), top(regions, 0.1));
            self.exact &= self.judged_early.is_none_or(|before| before == tops);
            self.judged_early = Some(tops);
            self.judge_oldest(tops);
        }
    }

    fn judge_oldest(&mut self, tops: (usize, usize)) {
        if let Some(pending) = self.pending.pop_front() {
            self.pending_counts -= pending.hot.len() + pending.rest.len();
            self.judged.put(&pending, tops);
        }
    }

    /// The figures, and the windows one by one. `regions` is how many there are, of `region_bytes` each.
    pub(super) fn finish(
        mut self,
        regions: u64,
        region_bytes: u64,
    ) -> (Concentration, Vec<WindowShare>) {
        let tops = (top(regions, 0.01), top(regions, 0.1));
        let exact = self.exact && self.judged_early.is_none_or(|before| before == tops);
        while !self.pending.is_empty() {
            self.judge_oldest(tops);
        }
        let areas = self.areas.finish(region_bytes);
        self.judged.finish(tops, areas, exact)
    }

    pub(super) fn new() -> Windows {
        Windows {
            exact: true,
            ..Windows::default()
        }
    }
}

/// How many regions are `share` of all; at least one.
pub(super) fn top(regions: u64, share: f64) -> usize {
    ((regions as f64 * share).ceil() as usize).max(1)
}

impl Pending {
    /// Requests in the `top` hottest regions.
    fn in_top(&self, top: usize) -> u64 {
        let hot = &self.hot[..top.min(self.hot.len())];
        let mut sum: u64 = hot.iter().map(|(_, n)| u64::from(*n)).sum();
        let mut left = (top - hot.len()) as u64;
        for &(n, times) in &self.rest {
            let taken = left.min(u64::from(times));
            sum += taken * u64::from(n);
            left -= taken;
        }
        sum
    }
}

impl Judged {
    fn put(&mut self, pending: &Pending, (top1, top10): (usize, usize)) {
        let window = pending.window;
        let share = |top| pending.in_top(top) as f64 / pending.requests as f64;
        self.windows.push(WindowShare {
            window,
            requests: pending.requests,
            top1: share(top1),
            top10: share(top10),
        });
        self.top20 += pending.in_top(AST_REGIONS) as f64;
        let hot = &pending.hot[..top1.min(pending.hot.len())];
        let follows = self.before.is_some_and(|before| before + 1 == window);
        if !follows {
            self.hot_before.clear();
        }
        if !hot.is_empty() {
            self.first.get_or_insert(window);
        }
        for &(place, n) in hot {
            let n = u64::from(n);
            let known = self.spots.get_mut(&place);
            let was_hot = known.is_some();
            if let Some(spot) = known {
                if spot.last + 1 == window {
                    (spot.last, spot.length) = (window, spot.length + 1);
                    spot.requests += n;
                    continue;
                }
                self.runs.close(spot);
                let starts = spot.starts + 1;
                *spot = Spot::new(window, n, starts);
            } else {
                self.spots.insert(place, Spot::new(window, n, 1));
            }
            if self.first.is_some_and(|first| window > first) {
                self.starts += 1;
                self.revisits += u64::from(was_hot);
                let next_to_hot = [place.region.wrapping_sub(1), place.region + 1]
                    .iter()
                    .any(|&region| self.hot_before.contains(&Place { region, ..place }));
                self.adjacent += u64::from(next_to_hot);
            }
        }
        self.hot_before = hot.iter().map(|(place, _)| *place).collect();
        self.before = Some(window);
    }

    fn finish(
        mut self,
        (top1, top10): (usize, usize),
        areas: AreaFigures,
        exact: bool,
    ) -> (Concentration, Vec<WindowShare>) {
        if self.windows.is_empty() {
            return (
                Concentration {
                    exact,
                    ..Concentration::default()
                },
                self.windows,
            );
        }
        for spot in self.spots.values() {
            self.runs.close(spot);
        }
        let figures = Concentration {
            windows_busy: self.windows.len() as u64,
            top_regions: top1 as u64,
            top10pct_regions: top10 as u64,
            top: self.top_shares(),
            runs: self.runs.figures(),
            hot: self.hot_regions(),
            areas,
            exact,
        };
        (figures, self.windows)
    }

    fn top_shares(&self) -> TopShares {
        let all: u64 = self.windows.iter().map(|window| window.requests).sum();
        let mean = |share: fn(&WindowShare) -> f64| {
            let sum = |window: &WindowShare| share(window) * window.requests as f64;
            Some(rounded(
                self.windows.iter().map(sum).sum::<f64>() / all as f64,
                3,
            ))
        };
        let ordered = |share: fn(&WindowShare) -> f64| {
            let mut shares: Vec<f64> = self.windows.iter().map(share).collect();
            shares.sort_by(f64::total_cmp);
            shares
        };
        let (top1_shares, top10_shares) = (ordered(|w| w.top1), ordered(|w| w.top10));
        TopShares {
            top1pct_share_mean: mean(|window| window.top1),
            top1pct_share_p50: median(&top1_shares),
            top1pct_share_min: top1_shares.first().map(|&share| rounded(share, 3)),
            top1pct_share_max: top1_shares.last().map(|&share| rounded(share, 3)),
            top10pct_share_mean: mean(|window| window.top10),
            top10pct_share_p50: median(&top10_shares),
            top20_share_mean: ratio(self.top20, all as f64),
        }
    }

    fn hot_regions(&self) -> HotRegions {
        let again = self.spots.values().filter(|spot| spot.starts > 1).count() as u64;
        let hot_regions = self.spots.len() as u64;
        HotRegions {
            hot_regions,
            hot_regions_again: of(again, hot_regions),
            hot_starts: self.starts,
            hot_starts_revisit: of(self.revisits, self.starts),
            hot_starts_adjacent: of(self.adjacent, self.starts),
        }
    }
}

impl Spot {
    fn new(window: u64, requests: u64, starts: u32) -> Spot {
        Spot {
            last: window,
            length: 1,
            requests,
            starts,
        }
    }
}

impl Runs {
    fn figures(&self) -> HotRuns {
        HotRuns {
            hot_io_in_runs_ge3: of(self.requests_ge3, self.requests),
            hot_io_in_runs_ge10: of(self.requests_ge10, self.requests),
            hot_runs: self.runs,
            hot_run_mean: of(self.windows, self.runs),
            hot_runs_ge3: of(self.ge3, self.runs),
            hot_runs_ge10: of(self.ge10, self.runs),
        }
    }

    fn close(&mut self, spot: &Spot) {
        let (ge3, ge10) = (u64::from(spot.length >= 3), u64::from(spot.length >= 10));
        self.runs += 1;
        self.windows += spot.length;
        self.ge3 += ge3;
        self.ge10 += ge10;
        self.requests += spot.requests;
        self.requests_ge3 += ge3 * spot.requests;
        self.requests_ge10 += ge10 * spot.requests;
    }
}

/// `part / whole` to three digits; `None` of nothing.
pub(super) fn of(part: u64, whole: u64) -> Option<f64> {
    ratio(part as f64, whole as f64)
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| rounded(part / whole, 3))
}

/// Of values in order.
fn median(values: &[f64]) -> Option<f64> {
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    let value = match values.len() % 2 {
        0 => (values[middle - 1] + upper) / 2.0,
        _ => upper,
    };
    Some(rounded(value, 3))
}

/// Nearest rank among (value, times).
pub(super) fn percentile(values: &BTreeMap<u64, u64>, percent: u64) -> Option<u64> {
    let all: u64 = values.values().sum();
    let rank = (all as u128 * u128::from(percent)).div_ceil(100) as u64;
    let mut below = 0;
    let mut at = values.iter().filter(|(_, n)| {
        below += **n;
        below >= rank
    });
    at.next().map(|(value, _)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(region: u64) -> Place {
        Place { device: 0, region }
    }

    /// Windows as `window: hot regions`; a hot one has 50 requests, 20 cold ones have one each.
    fn judge(windows: &[(u64, &[u64])], regions: u64) -> Concentration {
        let mut all = Windows::new();
        for &(window, hot) in windows {
            let cold = (1000..1020).map(|region| (at(region), 1));
            let counts = hot.iter().map(|&region| (at(region), 50)).chain(cold);
            all.put(window, counts.collect(), regions);
        }
        all.finish(regions, 1 << 30).0
    }

    #[test]
    fn a_hot_region_has_a_run_of_windows_and_may_come_back() {
        // Hot in 0-2, away in 3, back in 4; another takes over in 3 next door.
        let windows: &[(u64, &[u64])] = &[(0, &[7]), (1, &[7]), (2, &[7]), (3, &[8]), (4, &[7])];
        let figures = judge(windows, 100);
        assert_eq!(figures.top_regions, 1);
        assert_eq!((figures.runs.hot_runs, figures.hot.hot_regions), (3, 2));
        assert_eq!(figures.runs.hot_io_in_runs_ge3, Some(0.6));
        assert_eq!(figures.runs.hot_runs_ge3, Some(0.333));
        assert_eq!(figures.hot.hot_starts, 2);
        assert_eq!(figures.hot.hot_starts_revisit, Some(0.5));
        assert_eq!(figures.hot.hot_starts_adjacent, Some(1.0));
        assert_eq!(figures.hot.hot_regions_again, Some(0.5));
        assert_eq!(figures.top.top1pct_share_mean, Some(0.714));
    }

    #[test]
    fn a_quiet_window_ends_every_run() {
        let figures = judge(&[(0, &[7]), (1, &[7]), (3, &[7])], 100);
        assert_eq!(
            (figures.runs.hot_runs, figures.runs.hot_io_in_runs_ge3),
            (2, Some(0.0))
        );
        assert_eq!(figures.hot.hot_starts_adjacent, Some(0.0));
        assert_eq!(figures.areas.concentrations, 2);
        assert_eq!(figures.areas.recurring, Some(1.0));
    }

    #[test]
    fn an_area_that_drifts_is_one_concentration() {
        // Ten windows of three neighbours, one region further each time; then somewhere else.
        let spots: Vec<[u64; 3]> = (0..10).map(|n| [n, n + 1, n + 2]).collect();
        let mut windows: Vec<(u64, &[u64])> = (0..).zip(spots.iter().map(|s| &s[..])).collect();
        windows.push((10, &[40]));
        let areas = judge(&windows, 300).areas;
        assert_eq!(areas.concentrations, 2);
        assert_eq!(
            (areas.lasting_ge3, areas.lasting_ge10),
            (Some(0.5), Some(0.5))
        );
        assert_eq!(areas.life_mean, Some(5.5));
        assert_eq!(areas.recurring, Some(0.0));
        assert_eq!(
            (areas.size_mean_gib, areas.size_p90_gib),
            (Some(2.818), Some(3.0))
        );
    }

    #[test]
    fn of_two_areas_that_join_the_elder_lives_on() {
        let windows: &[(u64, &[u64])] = &[
            (0, &[10, 11]),
            (1, &[10, 11, 13]),
            (2, &[10, 11, 12, 13]),
            // It splits again: both parts are still the one that began in window 0.
            (3, &[10, 13]),
        ];
        let areas = judge(windows, 300).areas;
        assert_eq!(areas.concentrations, 2);
        assert_eq!(areas.life_mean, Some(2.5));
        assert_eq!(areas.life_p50, Some(1));
    }

    #[test]
    fn regions_of_two_devices_are_never_neighbours() {
        let mut all = Windows::new();
        let mut counts: Vec<(Place, u32)> = (100..120).map(|region| (at(region), 1)).collect();
        counts.push((at(5), 50));
        counts.push((
            Place {
                device: 1,
                region: 6,
            },
            50,
        ));
        all.put(0, counts, 200);
        assert_eq!(all.finish(200, 1 << 30).0.areas.concentrations, 2);
    }

    #[test]
    fn the_number_of_regions_known_at_the_end_counts() {
        let mut all = Windows::new();
        let counts: Vec<(Place, u32)> = (0..10).map(|region| (at(region), 10)).collect();
        all.put(0, counts, 10);
        let (figures, windows) = all.finish(500, 1 << 30);
        assert_eq!(
            (figures.top_regions, figures.top.top1pct_share_mean),
            (5, Some(0.5))
        );
        assert_eq!((windows[0].top1, windows[0].top10), (0.5, 1.0));
        // All alike: nothing takes twice the mean.
        assert_eq!(
            (figures.hot.hot_regions, figures.areas.concentrations),
            (0, 0)
        );
        assert!(figures.exact);
    }
}
