//! The busiest regions by counters, and the moves that promote them.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use base::Map;

use super::{Count, Decision, Move, Reason, Region, Way};

/// Counters of the regions that have one above zero.
#[derive(Debug, Clone, Default)]
pub(super) struct Counters(Map<Region, u64>);

impl Counters {
    /// Adds `weight` for each request.
    pub fn add(&mut self, counts: &[Count], weight: u64) {
        for count in counts.iter().filter(|count| count.all() > 0) {
            let counter = self.0.entry(count.region).or_insert(0);
            *counter = counter.saturating_add(count.all().saturating_mul(weight));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// All of them age by half.
    pub fn halve(&mut self) {
        self.0.retain(|_, counter| {
            *counter /= 2;
            *counter > 0
        });
    }
}

/// Which regions are fast under a rule that keeps the busiest regions fast.
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

    /// Promotes the busiest by `counters` as far as there is room, and demotes the regions that are fast
    /// and not among them. The demotions come first, ascending, then the promotions, busiest first.
    ///
    /// Choice: equal counters: the lower region first. A region whose counter is zero is not among the busiest.
    pub fn decide(&mut self, counters: &Counters) -> Decision {
        let mut order: Vec<(Region, u64)> = counters.0.iter().map(|(r, n)| (*r, *n)).collect();
        order.sort_unstable_by_key(|(region, counter)| (Reverse(*counter), *region));
        order.truncate(self.room);
        let busiest: Vec<Region> = order.iter().map(|(region, _)| *region).collect();
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
