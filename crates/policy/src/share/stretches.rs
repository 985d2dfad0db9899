//! What contracts promise together, stretch by stretch, from the begin of a slot on.
//!
//! ```text
//! contracts -> coming, by begin -> open, by end -> (slot, demand), ...
//! ```
//!
//! Only as much is put in order as is asked for: the first that will do is often near, also among thousands.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::demand::{Demand, Open};
use super::{Contract, Second, Slot};

/// At which second, and which contract.
type Edge = Reverse<(Second, usize)>;

/// Stretches of a slot between which nothing begins or ends, without gaps.
pub(super) struct Stretches {
    contracts: Vec<Contract>,
    coming: BinaryHeap<Edge>,
    ending: BinaryHeap<Edge>,
    open: Open,
    at: Second,
    end: Second,
}

impl Stretches {
    /// Those of `slot`; of `contracts` all that are in it count.
    pub fn new(contracts: Vec<Contract>, slot: Slot) -> Stretches {
        let inside = contracts.iter().enumerate();
        let inside = inside.filter(|(_, it)| it.slot.overlaps(slot));
        let coming = inside.map(|(i, it)| Reverse((it.slot.start, i)));
        Stretches {
            coming: coming.collect(),
            contracts,
            ending: BinaryHeap::new(),
            open: Open::default(),
            at: slot.start,
            end: slot.end,
        }
    }
}

/// The first of `edges`, if it is not after `at`.
fn passed(edges: &mut BinaryHeap<Edge>, at: Second) -> Option<usize> {
    let Reverse((second, _)) = edges.peek()?;
    let is_there = *second <= at;
    is_there.then(|| edges.pop()).flatten().map(|it| it.0.1)
}

impl Iterator for Stretches {
    type Item = (Slot, Demand);

    fn next(&mut self) -> Option<(Slot, Demand)> {
        if self.at >= self.end {
            return None;
        }
        while let Some(i) = passed(&mut self.ending, self.at) {
            self.open.remove(&self.contracts[i]);
        }
        while let Some(i) = passed(&mut self.coming, self.at) {
            let contract = &self.contracts[i];
            self.open.add(contract);
            self.ending.push(Reverse((contract.slot.end, i)));
        }
        let edges = [self.coming.peek(), self.ending.peek()].into_iter();
        let next = edges.flatten().map(|Reverse((second, _))| *second).min();
        let slot = Slot {
            start: self.at,
            end: next.unwrap_or(self.end).min(self.end),
        };
        self.at = slot.end;
        Some((slot, self.open.demand()))
    }
}
