//! Static tiering: the busiest regions of the window before live on the fast tier.
//!
//! ```text
//! counts of a whole window -> its busiest regions -> moves at its end, none until the next window ends
//! ```
//!
//! Source: AST 2.2, 4.1 (table 3: the busiest 24 of the window before are placed beforehand).

use base::Nanos;

use super::busiest::Busiest;
use super::{Count, Decision, Interval, Parameters, Region, TierPolicy};

/// The busiest regions of the previous window.
///
/// `iops_min`, `sub_luns_max`, `share_min`, `streak_min` and `timeout` mean nothing here.
///
/// # Example
/// ```
/// use policy::tier::{Count, Parameters, Region, StaticTiering};
/// let mut policy = StaticTiering::new(Parameters::default(), 293, 2);
/// let count = |region, reads| Count { region: Region(region), reads, writes: 0 };
/// let decision = policy.place(&[count(7, 10), count(8, 30), count(9, 20)]);
/// assert_eq!(decision.candidates, [Region(8), Region(9)]);
/// ```
#[derive(Debug, Clone)]
pub struct StaticTiering {
    // Fixed until changed by an administrator.
    parameters: Parameters,
    // Per window.
    busiest: Busiest,
    counters: Vec<u64>,
    /// Intervals of this window so far.
    seen: u64,
}

impl StaticTiering {
    /// How long a window is unless the parameters say.
    ///
    /// Choice: the paper speaks of hours to days; its own comparison took windows of 100 and 120 minutes.
    pub const WINDOW: Nanos = Nanos::secs(3600);

    /// A rule for a volume of `regions` and a fast tier that holds `room` of them, with nothing up.
    ///
    /// # Panics
    /// If `parameters` do not [check](Parameters::check).
    pub fn new(parameters: Parameters, regions: u32, room: u32) -> StaticTiering {
        parameters.assert();
        StaticTiering {
            parameters,
            busiest: Busiest::new(room),
            counters: vec![0; regions as usize],
            seen: 0,
        }
    }

    /// Decides at once from the counts of a whole window that came before, as the paper's comparison did. The
    /// running window is not touched.
    ///
    /// # Panics
    /// If a region lies beyond the volume.
    ///
    /// # Source
    /// AST 4.1, table 3.
    pub fn place(&mut self, window: &[Count]) -> Decision {
        let mut counters = vec![0; self.counters.len()];
        for count in window {
            counters[count.region.index()] += count.all();
        }
        self.busiest.decide(&counters)
    }
}

impl TierPolicy for StaticTiering {
    /// Choice: a window without any request says nothing of the next, so all stays where it is.
    fn step(&mut self, interval: &Interval<'_>) -> Decision {
        for count in interval.counts {
            self.counters[count.region.index()] += count.all();
        }
        self.seen += 1;
        if self.seen < self.parameters.window_intervals(Self::WINDOW) {
            return Decision::default();
        }
        let decision = match self.counters.iter().any(|counter| *counter > 0) {
            true => self.busiest.decide(&self.counters),
            false => Decision::default(),
        };
        self.counters.fill(0);
        self.seen = 0;
        decision
    }

    fn residents(&self) -> Vec<Region> {
        self.busiest.residents()
    }

    fn set_room(&mut self, regions: u32) {
        self.busiest.room = regions as usize;
    }

    fn adopt(&mut self, residents: &[Region]) {
        self.busiest.up.extend(residents);
    }

    fn withdrawn(&mut self, region: Region) {
        self.busiest.up.remove(&region);
    }

    fn set_parameters(&mut self, parameters: Parameters) {
        parameters.assert();
        self.parameters = parameters;
    }
}
