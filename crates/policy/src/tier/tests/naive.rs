//! The published decision, read from the paper and written down plainly: lists, sets and whole numbers.
//!
//! Source: AST 3.2.2.

use std::collections::{BTreeMap, BTreeSet};

/// The parameters, by the paper's symbols.
#[derive(Debug, Clone, Copy)]
pub struct Letters {
    pub t: u64,
    pub i: u64,
    pub n: usize,
    pub m: u64,
    pub c: u32,
    pub o: u32,
}

/// A group that was a candidate.
#[derive(Debug, Clone)]
struct SeenGroup {
    members: BTreeSet<u32>,
    times: u32,
    judged: bool,
}

#[derive(Debug, Default, Clone)]
pub struct Naive {
    /// The candidate groups of the last interval that was evaluated.
    before: Vec<SeenGroup>,
    /// Which regions are fast, and how many evaluated intervals in a row it was no candidate.
    pub up: BTreeMap<u32, u32>,
}

/// What an interval came to.
#[derive(Debug, PartialEq, Default)]
pub struct Outcome {
    pub candidates: Vec<u32>,
    pub down: Vec<u32>,
    pub up: Vec<u32>,
}

impl Naive {
    /// `counts` holds every region, also those without a request.
    pub fn interval(&mut self, l: Letters, room: usize, counts: &BTreeMap<u32, u64>) -> Outcome {
        let total: u64 = counts.values().sum();
        // Step 1: IOPS below i?
        if total < l.i * l.t {
            return Outcome::default();
        }
        // Step 2: sort by count, lower id first; cut off after n; do they exceed m percent?
        let mut sorted: Vec<(u32, u64)> = counts.iter().map(|(id, count)| (*id, *count)).collect();
        sorted.retain(|(_, count)| *count != 0);
        sorted.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        while sorted.len() > l.n {
            sorted.pop();
        }
        let together: u64 = sorted.iter().map(|(_, count)| count).sum();
        let mut groups: Vec<Vec<u32>> = Vec::new();
        if together * 100 > l.m * total {
            // Step 3: walk over the volume; a region that follows the last member of the last group belongs to it.
            for id in counts
                .keys()
                .filter(|id| sorted.iter().any(|kept| kept.0 == **id))
            {
                match groups.last_mut() {
                    Some(group) if group.contains(&(*id - 1)) => group.push(*id),
                    _ => groups.push(vec![*id]),
                }
            }
        }
        let ios = |group: &Vec<u32>| group.iter().map(|id| counts[id]).sum::<u64>();
        groups.sort_by(|a, b| ios(b).cmp(&ios(a)).then(a[0].cmp(&b[0])));
        // Step 4: add up until the sum exceeds m percent, that group included.
        let mut candidates: Vec<Vec<u32>> = Vec::new();
        let mut sum = 0;
        for group in groups {
            if sum * 100 > l.m * total {
                break;
            }
            sum += ios(&group);
            candidates.push(group);
        }
        // Step 5: a group that shares a region with a group of before is that group.
        let mut now = Vec::new();
        for group in &candidates {
            let mut seen = SeenGroup {
                members: group.iter().copied().collect(),
                times: 1,
                judged: false,
            };
            for old in &self.before {
                if !old.members.is_disjoint(&seen.members) {
                    seen.times = seen.times.max(old.times + 1);
                    seen.judged = seen.judged || old.judged;
                }
            }
            seen.judged = seen.judged || seen.times >= l.c;
            now.push(seen);
        }
        let mut outcome = Outcome {
            candidates: candidates.concat(),
            ..Outcome::default()
        };
        outcome.candidates.sort();
        // Step 6 comes first: a region that was no candidate o times in a row is demoted.
        for id in self.up.keys().copied().collect::<Vec<u32>>() {
            if outcome.candidates.contains(&id) {
                self.up.insert(id, 0);
                continue;
            }
            let absent = self.up[&id] + 1;
            self.up.insert(id, absent);
            if absent >= l.o {
                self.up.remove(&id);
                outcome.down.push(id);
            }
        }
        // Then up, by group and by id, as long as there is room.
        for seen in now.iter().filter(|seen| seen.judged) {
            for id in &seen.members {
                if !self.up.contains_key(id) && self.up.len() < room {
                    self.up.insert(*id, 0);
                    outcome.up.push(*id);
                }
            }
        }
        self.before = now;
        outcome
    }
}
