//! Hot neighbours taken together: how big are such areas, how long do they live, do they come back?
//!
//! An *area* is a group of neighbours that each take twice the mean, however many; it is the same from one window to the
//! next if the two share a region; of areas that join the eldest lives on.
//!
//! Always true: each area of a window belongs to one concentration, and each concentration ends once.

use std::collections::BTreeMap;

use base::Set;
use serde::Serialize;

use super::hot::{Place, of, percentile};
use super::round::{GIB, rounded};

/// The figures of areas: groups of neighbouring regions that each take at least twice the mean I/O.
///
/// Source: AST 2.1 (83 % last 3 minutes or more, about half 10 or more, about 30 % recur, 6 GB on average
/// and 90 % below 12 GB, in the trace it cites).
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AreaFigures {
    /// Concentrations: areas, each counted once for its whole life.
    pub concentrations: u64,
    /// Share of the I/O of busy windows that went to areas.
    pub io_share: Option<f64>,
    /// Windows a concentration lasts, on average.
    pub life_mean: Option<f64>,
    /// Windows the median concentration lasts.
    pub life_p50: Option<u64>,
    /// Share of the concentrations that last 3 or more windows.
    pub lasting_ge3: Option<f64>,
    /// Share of the concentrations that last 10 or more windows.
    pub lasting_ge10: Option<f64>,
    /// Of the regions of concentrations that began after the first window with one, the share that had
    /// been in one before.
    pub recurring: Option<f64>,
    /// Size of an area in a window, mean, in GiB.
    pub size_mean_gib: Option<f64>,
    /// 90 % of the areas are no bigger, in GiB.
    pub size_p90_gib: Option<f64>,
}

/// The areas of the windows so far.
#[derive(Debug, Default)]
pub(super) struct Areas {
    before: Vec<Area>,
    window: Option<u64>,
    first: Option<u64>,
    next_id: u64,
    /// Areas by size in regions.
    sizes: BTreeMap<u64, u64>,
    /// Concentrations that are over, by the windows they lasted.
    lives: BTreeMap<u64, u64>,
    seen: Set<Place>,
    starting: u64,
    recurring: u64,
    requests: u64,
    requests_in: u64,
}

/// Neighbouring hot regions of one window.
#[derive(Debug, Clone, Copy)]
struct Area {
    first: Place,
    last: u64,
    /// The first window of the concentration it belongs to; with `id` its name.
    born: u64,
    id: u64,
}

impl Areas {
    /// Takes in the regions of a window with at least twice the mean.
    pub(super) fn put(&mut self, window: u64, requests: u64, hot: &[(Place, u32)]) {
        self.requests += requests;
        self.requests_in += hot.iter().map(|(_, n)| u64::from(*n)).sum::<u64>();
        if self.window.is_none_or(|before| before + 1 != window) {
            self.end_all_but(&[]);
        }
        let mut places: Vec<Place> = hot.iter().map(|(place, _)| *place).collect();
        places.sort_unstable();
        let are_neighbours =
            |a: &Place, b: &Place| a.device == b.device && a.region + 1 == b.region;
        let mut now: Vec<Area> = Vec::new();
        let mut earlier = self.before.as_slice();
        for group in places.chunk_by(are_neighbours) {
            let (first, last) = (group[0], group[group.len() - 1]);
            *self.sizes.entry(group.len() as u64).or_insert(0) += 1;
            // Both lists are in order: what ended below this group is below all that follow.
            let below = |area: &Area| (area.first.device, area.last) < (first.device, first.region);
            earlier = &earlier[earlier.partition_point(below)..];
            let shares_a_region = |area: &&Area| area.first <= last;
            let eldest = earlier.iter().take_while(shares_a_region);
            let eldest = eldest.map(|area| (area.born, area.id)).min();
            let (born, id) = eldest.unwrap_or_else(|| {
                self.next_id += 1;
                (window, self.next_id)
            });
            if eldest.is_none() && self.first.is_some_and(|first| window > first) {
                self.starting += group.len() as u64;
                let seen = group.iter().filter(|place| self.seen.contains(place));
                self.recurring += seen.count() as u64;
            }
            now.push(Area {
                first,
                last: last.region,
                born,
                id,
            });
        }
        if !places.is_empty() {
            self.first.get_or_insert(window);
        }
        self.seen.extend(places);
        self.end_all_but(&now);
        (self.before, self.window) = (now, Some(window));
    }

    /// Ends the concentrations that none of `now` belongs to.
    fn end_all_but(&mut self, now: &[Area]) {
        let mut living: Vec<u64> = now.iter().map(|area| area.id).collect();
        living.sort_unstable();
        let mut ended = std::mem::take(&mut self.before);
        ended.sort_unstable_by_key(|area| area.id);
        ended.dedup_by_key(|area| area.id);
        let Some(window) = self.window else { return };
        for area in ended {
            if living.binary_search(&area.id).is_err() {
                *self.lives.entry(window - area.born + 1).or_insert(0) += 1;
            }
        }
    }

    pub(super) fn finish(mut self, region_bytes: u64) -> AreaFigures {
        self.end_all_but(&[]);
        let concentrations: u64 = self.lives.values().sum();
        let lasting = |windows: u64| self.lives.range(windows..).map(|(_, n)| n).sum::<u64>();
        let sum = |of: &BTreeMap<u64, u64>| of.iter().map(|(value, n)| value * n).sum::<u64>();
        let areas: u64 = self.sizes.values().sum();
        let gib = |regions: f64| rounded(regions * region_bytes as f64 / GIB, 3);
        AreaFigures {
            concentrations,
            io_share: of(self.requests_in, self.requests),
            life_mean: of(sum(&self.lives), concentrations),
            life_p50: percentile(&self.lives, 50),
            lasting_ge3: of(lasting(3), concentrations),
            lasting_ge10: of(lasting(10), concentrations),
            recurring: of(self.recurring, self.starting),
            size_mean_gib: (areas > 0).then(|| gib(sum(&self.sizes) as f64 / areas as f64)),
            size_p90_gib: percentile(&self.sizes, 90).map(|regions| gib(regions as f64)),
        }
    }
}
