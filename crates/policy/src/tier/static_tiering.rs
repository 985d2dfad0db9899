//! Static tiering: the busiest regions of the window before live on the fast tier.
//!
//! ```text
//! counts of a whole window -> its busiest regions -> moves at its end, none until the next window ends
//! ```
//!
//! Source: AST 2.2, 4.1 (table 3: the busiest 24 of the window before are placed beforehand).

use base::Nanos;

use super::busiest::{Busiest, Counters};
use super::{Count, Decision, Interval, Parameters, Region, TierPolicy};

/// The busiest regions of the previous window.
///
/// `iops_min`, `sub_luns_max`, `share_min`, `streak_min` and `timeout` mean nothing here.
///
/// # Example
/// ```
/// use policy::tier::{Count, Parameters, Region, StaticTiering};
/// let mut policy = StaticTiering::new(Parameters::default(), 2);
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
    counters: Counters,
    /// Intervals of this window so far.
    seen: u64,
}

impl StaticTiering {
    /// How long a window is unless the parameters say.
    ///
    /// Choice: the paper speaks of hours to days; its own comparison took windows of 100 and 120 minutes.
    pub const WINDOW: Nanos = Nanos::secs(3600);

    /// A rule for a fast tier that holds `room` regions, with nothing up.
    ///
    /// # Panics
    /// If `parameters` do not [check](Parameters::check).
    pub fn new(parameters: Parameters, room: u32) -> StaticTiering {
        parameters.assert();
        StaticTiering {
            parameters,
            busiest: Busiest::new(room),
            counters: Counters::default(),
            seen: 0,
        }
    }

    /// Decides at once from the counts of a whole window that came before, as the paper's comparison did. The
    /// running window is not touched.
    ///
    /// # Source
    /// AST 4.1, table 3.
    pub fn place(&mut self, window: &[Count]) -> Decision {
        let mut counters = Counters::default();
        counters.add(window, 1);
        self.busiest.decide(&counters)
    }
}

impl TierPolicy for StaticTiering {
    /// Choice: a window without any request says nothing of the next, so all stays where it is.
    fn step(&mut self, interval: &Interval<'_>) -> Decision {
        self.counters.add(interval.counts, 1);
        self.seen += 1;
        if self.seen < self.parameters.window_intervals(Self::WINDOW) {
            return Decision::default();
        }
        let decision = match self.counters.is_empty() {
            true => Decision::default(),
            false => self.busiest.decide(&self.counters),
        };
        self.counters.clear();
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
