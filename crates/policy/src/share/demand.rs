//! What is promised at one time, as contracts come and go.

use std::collections::BTreeMap;

use base::Nanos;

use super::{BytesPerSec, Contract, Direction, Probability, Second, Slot};

/// What is promised at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Demand {
    /// Sum of read rates.
    pub reads: BytesPerSec,
    /// Sum of write rates.
    pub writes: BytesPerSec,
    /// Reservations.
    pub sessions: u32,
    /// The shortest window among them.
    pub window: Option<Nanos>,
    /// The surest among them.
    pub probability: Option<Probability>,
}

impl Demand {
    /// With one more.
    pub fn with(mut self, contract: &Contract) -> Demand {
        let rate = match contract.direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        };
        rate.0 = rate.0.saturating_add(contract.rate.0);
        self.sessions += 1;
        self.window = Some(
            self.window
                .map_or(contract.window, |it| it.min(contract.window)),
        );
        self.probability = self.probability.max(Some(contract.probability));
        self
    }
}

/// The contracts open at one edge of the sweep.
#[derive(Default)]
pub(super) struct Open {
    demand: Demand,
    windows: BTreeMap<Nanos, u32>,
    probabilities: BTreeMap<Probability, u32>,
}

impl Open {
    pub(super) fn add(&mut self, contract: &Contract) {
        self.demand = self.demand.with(contract);
        *self.windows.entry(contract.window).or_default() += 1;
        *self.probabilities.entry(contract.probability).or_default() += 1;
    }

    pub(super) fn remove(&mut self, contract: &Contract) {
        match contract.direction {
            Direction::Read => self.demand.reads.0 -= contract.rate.0,
            Direction::Write => self.demand.writes.0 -= contract.rate.0,
        }
        self.demand.sessions -= 1;
        forget(&mut self.windows, contract.window);
        forget(&mut self.probabilities, contract.probability);
    }

    pub(super) fn demand(&self) -> Demand {
        Demand {
            window: self.windows.keys().next().copied(),
            probability: self.probabilities.keys().next_back().copied(),
            ..self.demand
        }
    }
}

/// One less of `key`.
fn forget<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

/// The greater of a contract and the one that is to replace it, piece by piece in time; both of one direction.
pub(super) fn both(before: &Contract, after: &Contract) -> Vec<Contract> {
    let of = |it: &Contract| [it.slot.start, it.slot.end];
    let mut edges: Vec<Second> = of(before).into_iter().chain(of(after)).collect();
    edges.sort_unstable();
    edges.dedup();
    let slots = edges.windows(2).map(|pair| Slot {
        start: pair[0],
        end: pair[1],
    });
    let greater = |slot: Slot| {
        let there = [before, after].into_iter();
        let there = there.filter(|it| it.slot.overlaps(slot));
        let piece = there.copied().reduce(|a, b| Contract {
            rate: a.rate.max(b.rate),
            window: a.window.min(b.window),
            probability: a.probability.max(b.probability),
            ..a
        });
        piece.map(|piece| Contract { slot, ..piece })
    };
    slots.filter_map(greater).collect()
}
