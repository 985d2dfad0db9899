//! The published choice: the disk that finishes the request at the least cost.
//!
//! ```text
//! last multicast (cost', h') of each disk -> cost' + c_r -> read: the least
//!                                                       -> place: the k least in distinct domains
//! ```
//!
//! Source: COST 3, 3.1, 3.2.
//!
//! Choice: between two multicasts a disk counts as it was at the last one; what this client sent since is not added
//! (the paper is silent). A disk never heard of counts as idle with its head at the start. Of equal costs the first
//! listed is taken. A state that was overtaken by a newer one is ignored. Answers carry no state here.
//!
//! Always true: nothing but the last states and the request decides.

use base::{Instant, Nanos};

use super::disks::Disks;
use super::spread::cheapest;
use super::{Candidate, DiskId, PlaceError, ReplicaPolicy, Request, State, Target, Weights, term};

/// Queue cost as published.
#[derive(Debug, Clone)]
pub struct QueueCost {
    /// Of disks that were not heard of.
    weights: Weights,
    states: Disks<State>,
}

impl QueueCost {
    /// A client that has heard nothing; unknown disks have `weights`.
    pub fn new(weights: Weights) -> QueueCost {
        QueueCost {
            weights,
            states: Disks::default(),
        }
    }

    /// What a disk's queue costs with `request` behind it.
    ///
    /// Source: COST 3.2, `cost' + a_r*l_r + b*min(1, |o_r - h'|)`.
    pub fn cost(&self, request: &Request, on: &Candidate) -> Nanos {
        let unknown = State::idle(self.weights);
        let state = self.states.get(on.disk).unwrap_or(&unknown);
        state.cost + term(&state.weights, request, on.local, on.at, &state.tail)
    }
}

/// The first of those with the least cost.
pub(super) fn least<K: Ord>(copies: &[Candidate], cost: impl FnMut(&&Candidate) -> K) -> DiskId {
    let first = copies.iter().min_by_key(cost);
    first.expect("a block has at least one copy").disk
}

impl ReplicaPolicy for QueueCost {
    fn read(&mut self, _now: Instant, request: &Request, copies: &[Candidate]) -> DiskId {
        least(copies, |copy| self.cost(request, copy))
    }

    fn place(
        &mut self,
        _now: Instant,
        request: &Request,
        copies: usize,
        disks: &[Target],
    ) -> Result<Vec<DiskId>, PlaceError> {
        cheapest(disks, request.bytes, copies, |disk| {
            self.cost(request, &disk.candidate)
        })
    }

    fn heard(&mut self, _now: Instant, disk: DiskId, state: &State) {
        let known = self.states.entry(disk, || *state);
        if known.at <= state.at {
            *known = state.bounded();
        }
    }
}

/// The greedy choice by the exact present content of every queue, which no real client has: a bound for the others.
///
/// Choice: it weighs as the published method does, with the disks' true weights, but counts waiting as device time.
#[derive(Debug, Clone)]
pub struct Oracle(QueueCost);

impl Oracle {
    /// Unknown disks have `weights`.
    pub fn new(weights: Weights) -> Oracle {
        Oracle(QueueCost::new(weights))
    }
}

impl ReplicaPolicy for Oracle {
    fn read(&mut self, now: Instant, request: &Request, copies: &[Candidate]) -> DiskId {
        self.0.read(now, request, copies)
    }

    fn place(
        &mut self,
        now: Instant,
        request: &Request,
        copies: usize,
        disks: &[Target],
    ) -> Result<Vec<DiskId>, PlaceError> {
        self.0.place(now, request, copies, disks)
    }

    fn heard(&mut self, now: Instant, disk: DiskId, state: &State) {
        let cost = state.work;
        self.0.heard(now, disk, &State { cost, ..*state });
    }

    fn needs_exact_states(&self) -> bool {
        true
    }
}
