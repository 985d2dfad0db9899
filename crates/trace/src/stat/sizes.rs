//! How big are the requests? Counts of each size, without a hash for the usual ones.
//!
//! Always true: counts of sizes add up to the requests; sizes stay exact until more than 65,536 unusual
//! ones were met, then further unusual ones count as the next power of two.

use base::Map;
use serde::Serialize;

use super::round::{percent, rounded};

/// Multiples of a sector up to 4 MiB are counted in an array.
const USUAL_MAX: u64 = 4 << 20;
const SECTOR: u64 = 512;
/// So many other sizes are counted apart.
const UNUSUAL_MAX: usize = 1 << 16;
/// So many of the most frequent sizes are listed.
const TOP: usize = 10;

/// How often each size was asked for.
#[derive(Debug)]
pub(super) struct Sizes {
    usual: Vec<u64>,
    unusual: Map<u64, u64>,
}

/// Figures of the sizes of requests, in bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SizeFigures {
    /// Requests counted.
    pub requests: u64,
    /// Sum of their sizes.
    pub bytes: u64,
    /// Mean, rounded down.
    pub mean: u64,
    /// The smallest.
    pub min: u64,
    /// Half are no bigger.
    pub p50: u64,
    /// 90 % are no bigger.
    pub p90: u64,
    /// 99 % are no bigger.
    pub p99: u64,
    /// The biggest.
    pub max: u64,
}

/// One of the most frequent sizes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopSize {
    /// The size in bytes.
    pub size: u64,
    /// Requests of it.
    pub requests: u64,
    /// Their share of all requests that read or write.
    pub pct: f64,
}

impl Sizes {
    pub(super) fn new() -> Sizes {
        Sizes {
            usual: vec![0; (USUAL_MAX / SECTOR) as usize + 1],
            unusual: Map::default(),
        }
    }

    #[inline]
    pub(super) fn add(&mut self, size: u64) {
        if size <= USUAL_MAX && size.is_multiple_of(SECTOR) {
            self.usual[(size / SECTOR) as usize] += 1;
        } else {
            self.add_unusual(size);
        }
    }

    fn add_unusual(&mut self, size: u64) {
        if let Some(count) = self.unusual.get_mut(&size) {
            *count += 1;
            return;
        }
        let known = match self.unusual.len() < UNUSUAL_MAX {
            true => size,
            false => size.checked_next_power_of_two().unwrap_or(u64::MAX),
        };
        *self.unusual.entry(known).or_insert(0) += 1;
    }

    /// (size, requests), ascending.
    fn ascending(&self) -> Vec<(u64, u64)> {
        let usual = self.usual.iter().enumerate().filter(|(_, n)| **n > 0);
        let mut all: Vec<(u64, u64)> = usual
            .map(|(at, &n)| (at as u64 * SECTOR, n))
            .chain(self.unusual.iter().map(|(&size, &n)| (size, n)))
            .collect();
        all.sort_unstable();
        all
    }
}

/// The figures of `parts` together; `None` without a request. `bytes` is the sum of all sizes.
pub(super) fn figures(parts: &[&Sizes], bytes: u64) -> Option<SizeFigures> {
    let counts = together(parts);
    let requests: u64 = counts.iter().map(|(_, n)| n).sum();
    let (min, max) = (counts.first()?.0, counts.last()?.0);
    // Nearest rank.
    let percentile = |percent: u64| {
        let rank = (requests as u128 * u128::from(percent)).div_ceil(100) as u64;
        let mut below = 0;
        let at = counts.iter().find(|(_, n)| {
            below += n;
            below >= rank
        });
        at.map_or(max, |(size, _)| *size)
    };
    Some(SizeFigures {
        requests,
        bytes,
        mean: bytes / requests,
        min,
        p50: percentile(50),
        p90: percentile(90),
        p99: percentile(99),
        max,
    })
}

/// The most frequent sizes, the most frequent first.
pub(super) fn top(parts: &[&Sizes]) -> Vec<TopSize> {
    let mut counts = together(parts);
    let requests: u64 = counts.iter().map(|(_, n)| n).sum();
    counts.sort_by_key(|&(size, n)| (std::cmp::Reverse(n), size));
    counts.truncate(TOP);
    let one = |(size, n)| TopSize {
        size,
        requests: n,
        pct: rounded(percent(n, requests), 2),
    };
    counts.into_iter().map(one).collect()
}

fn together(parts: &[&Sizes]) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = parts.iter().flat_map(|part| part.ascending()).collect();
    all.sort_unstable();
    all.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 += next.1;
        }
        same
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_sizes_that_were_asked_for() {
        let mut sizes = Sizes::new();
        for size in 1..=100 {
            sizes.add(size * 512);
        }
        let figures = figures(&[&sizes], 512 * 5050).expect("requests");
        assert_eq!(
            [
                figures.min,
                figures.p50,
                figures.p90,
                figures.p99,
                figures.max
            ],
            [512, 50 * 512, 90 * 512, 99 * 512, 100 * 512]
        );
        assert_eq!(figures.mean, 25_856);
    }

    #[test]
    fn the_most_frequent_sizes_come_first_whatever_their_kind() {
        let (mut reads, mut writes) = (Sizes::new(), Sizes::new());
        for size in [4096, 4096, 1000, 8192] {
            reads.add(size);
        }
        for size in [1000, 1000, 1000] {
            writes.add(size);
        }
        let top = top(&[&reads, &writes]);
        let listed: Vec<(u64, u64)> = top.iter().map(|one| (one.size, one.requests)).collect();
        assert_eq!(listed, [(1000, 4), (4096, 2), (8192, 1)]);
        assert_eq!(top[0].pct, 57.14);
    }

    #[test]
    fn too_many_unusual_sizes_are_counted_by_powers_of_two() {
        let mut sizes = Sizes::new();
        let asked = 2 * UNUSUAL_MAX as u64;
        for n in 0..asked {
            sizes.add(2 * n + 1);
        }
        assert!(sizes.unusual.len() < UNUSUAL_MAX + 64);
        let all: u64 = sizes.ascending().iter().map(|(_, n)| n).sum();
        assert_eq!(all, asked);
    }
}
