//! A plain reading of the published decision, to see what it does with a generated workload.
//!
//! Source: AST 3.2.2, table 3 (t = 60, i = 50, n = 20, m = 60, c = 3, o = 10).
//!
//! Choice: nothing limits how many regions are up; moves take no time.

use std::cmp::Reverse;
use std::collections::BTreeMap;

const SECONDS: u64 = 60;
const IOPS_MIN: u64 = 50;
const SUB_LUNS_MAX: usize = 20;
const SHARE_MIN: u64 = 60;
const STREAK_MIN: u32 = 3;
const TIMEOUT: u32 = 10;

/// A candidate group of the last interval that was looked at.
struct Group {
    regions: Vec<u32>,
    streak: u32,
    moves: bool,
}

/// What one interval sent up and down.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moves {
    /// Regions that went to the fast tier.
    pub up: u32,
    /// Regions that left it.
    pub down: u32,
}

/// The decision, one interval after the other.
#[derive(Default)]
pub struct OnTheFly {
    groups: Vec<Group>,
    /// Regions that are up, and for how many intervals each was no candidate.
    pub up: BTreeMap<u32, u32>,
}

impl OnTheFly {
    /// Closes an interval with so many requests on each region.
    pub fn step(&mut self, counts: &[u32]) -> Moves {
        let all: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        if all < IOPS_MIN * SECONDS {
            return Moves::default();
        }
        let candidates = candidates(counts, all);
        // Step 5: what overlaps a group of before is that group, one interval older.
        let shares = |a: &[u32], b: &[u32]| a.iter().any(|region| b.contains(region));
        let groups: Vec<Group> = candidates
            .into_iter()
            .map(|regions| {
                let old = || {
                    self.groups
                        .iter()
                        .filter(|old| shares(&old.regions, &regions))
                };
                let streak = 1 + old().map(|old| old.streak).max().unwrap_or(0);
                let moves = streak >= STREAK_MIN || old().any(|old| old.moves);
                Group {
                    regions,
                    streak,
                    moves,
                }
            })
            .collect();
        self.groups = groups;
        // Step 6 first, then the ups.
        for (region, absent) in &mut self.up {
            let is_candidate = self
                .groups
                .iter()
                .any(|group| group.regions.contains(region));
            *absent = if is_candidate { 0 } else { *absent + 1 };
        }
        let before = self.up.len();
        self.up.retain(|_, absent| *absent < TIMEOUT);
        let down = (before - self.up.len()) as u32;
        let left = self.up.len();
        for group in self.groups.iter().filter(|group| group.moves) {
            for region in &group.regions {
                self.up.entry(*region).or_insert(0);
            }
        }
        let up = (self.up.len() - left) as u32;
        Moves { up, down }
    }
}

/// Steps 2 to 4: the busiest regions of an interval with `all` requests, in groups of neighbours, the first groups that
/// exceed the share.
fn candidates(counts: &[u32], all: u64) -> Vec<Vec<u32>> {
    let count = |region: &u32| u64::from(counts[*region as usize]);
    let sum = |regions: &[u32]| regions.iter().map(count).sum::<u64>();
    let mut kept: Vec<u32> = (0..counts.len() as u32).filter(|r| count(r) > 0).collect();
    kept.sort_by_key(|region| (Reverse(count(region)), *region));
    kept.truncate(SUB_LUNS_MAX);
    let mut candidates: Vec<Vec<u32>> = Vec::new();
    if sum(&kept) * 100 > SHARE_MIN * all {
        kept.sort_unstable();
        let mut groups: Vec<Vec<u32>> = kept
            .chunk_by(|a, b| a + 1 == *b)
            .map(<[u32]>::to_vec)
            .collect();
        groups.sort_by_key(|group| (Reverse(sum(group)), group[0]));
        let mut taken = 0;
        for group in groups {
            taken += sum(&group);
            candidates.push(group);
            if taken * 100 > SHARE_MIN * all {
                break;
            }
        }
    }
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worked_example_of_the_paper() {
        // Figure 2: three minutes in a row send 65-68 up; 69 then joins at once.
        let minute = |hot: std::ops::RangeInclusive<u32>| {
            let mut counts = vec![1; 300];
            hot.for_each(|region| counts[region as usize] = 4_000);
            counts
        };
        let mut otf = OnTheFly::default();
        let mut ups = |hot| {
            otf.step(&minute(hot));
            otf.up.keys().copied().collect::<Vec<_>>()
        };
        assert_eq!(ups(66..=67), [0u32; 0]);
        assert_eq!(ups(65..=67), [0u32; 0]);
        let third = ups(65..=68);
        assert!(
            [65, 66, 67, 68].iter().all(|region| third.contains(region)),
            "{third:?}"
        );
        assert!(!third.contains(&69));
        assert!(ups(65..=69).contains(&69));
    }
}
