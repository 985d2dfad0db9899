//! How much of a device's time may be promised, and how much a demand takes.

use base::{Bytes, Nanos};

use super::demand::Demand;
use super::{Costs, Direction, Headroom, Mix, Probability, Share};

/// What a device can be trusted to do.
#[derive(Debug, Clone)]
pub(super) struct Promisable {
    pub costs: Costs,
    /// Rates are reckoned in requests of so many bytes.
    pub unit: Bytes,
    pub headroom: Headroom,
    /// For background work.
    pub floors: Share,
}

impl Promisable {
    /// The part of the device's time that a demand takes.
    pub fn share(&self, demand: &Demand) -> Share {
        let Demand { reads, writes, .. } = *demand;
        self.costs.share(Direction::Read, reads, self.unit)
            + self.costs.share(Direction::Write, writes, self.unit)
    }

    /// What must stay free for it.
    pub fn headroom(&self, demand: &Demand) -> Share {
        let mix = match (demand.reads.0 > 0, demand.writes.0 > 0) {
            (true, true) => Mix::Mixed,
            (false, true) => Mix::Writes,
            _ => Mix::Reads,
        };
        let window = demand.window.unwrap_or(Nanos(u64::MAX));
        let probability = demand.probability.unwrap_or(Probability(0));
        self.headroom.at(mix, demand.sessions, window, probability)
    }

    /// May it be promised?
    pub fn fits(&self, demand: Demand) -> bool {
        let Share(promised) = self.share(&demand);
        let aside = self.headroom(&demand) + self.floors;
        promised.saturating_add(aside.0) <= Share::WHOLE.0
    }
}
