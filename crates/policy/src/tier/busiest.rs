//! The busiest regions by counters, and the moves that bring them up.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::{Decision, Move, Reason, Region, Way};

/// Who is up under a rule that keeps the busiest regions up.
#[derive(Debug, Clone, Default)]
pub(super) struct Busiest {
    pub room: usize,
    pub up: BTreeSet<Region>,
}

impl Busiest {
    pub fn new(room: u32) -> Busiest {
        Busiest {
            room: room as usize,
            up: BTreeSet::new(),
        }
    }

    /// Brings up the busiest by `counters` (one per region) as far as there is room, and sends down who is up
    /// and not among them: first those, ascending, then the others, busiest first.
    ///
    /// Choice: equal counters: the lower region first. A region whose counter is zero is not among the busiest.
    pub fn decide(&mut self, counters: &[u64]) -> Decision {
        let mut order: Vec<usize> = (0..counters.len()).filter(|at| counters[*at] > 0).collect();
        order.sort_unstable_by_key(|at| (Reverse(counters[*at]), *at));
        order.truncate(self.room);
        let busiest: Vec<Region> = order.iter().map(|at| Region::at(*at as u64)).collect();
        let mut candidates = busiest.clone();
        candidates.sort_unstable();
        let mut moves = Vec::new();
        self.up.retain(|region| {
            let stays = candidates.binary_search(region).is_ok();
            if !stays {
                moves.push(Move {
                    region: *region,
                    way: Way::Down,
                    why: Reason::Overtaken,
                });
            }
            stays
        });
        for (rank, region) in (1..).zip(busiest) {
            if self.up.insert(region) {
                moves.push(Move {
                    region,
                    way: Way::Up,
                    why: Reason::Busiest(rank),
                });
            }
        }
        Decision { candidates, moves }
    }

    pub fn residents(&self) -> Vec<Region> {
        self.up.iter().copied().collect()
    }
}
