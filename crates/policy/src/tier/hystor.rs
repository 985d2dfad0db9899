//! In the manner of Hystor: counters that never start afresh, looked at every quarter of an hour.
//!
//! ```text
//! counts -> counter per region --every 15 minutes--> the largest go up -> all counters halved
//! ```
//!
//! Source: AST 2.2 (Hystor watches in windows of 15 minutes or more), after Chen, Koufaty and Zhang, "Hystor",
//! ICS 2011, sections 3.1 and 4.
//!
//! Choice: a counter counts requests. Hystor's block table weighs small requests more, by a counter in powers of
//! two of the inverse size; statistics by interval do not hold sizes, and the requests compared here are mostly
//! of one size.
//!
//! Choice: Hystor halves all counters when one of them overflows; here all are halved after every window, so that
//! what was hot an hour ago weighs a sixteenth.

use base::Nanos;

use super::busiest::{Busiest, Counters};
use super::{Decision, Interval, Parameters, Region, TierPolicy};

/// The busiest regions by counters that age.
///
/// `iops_min`, `sub_luns_max`, `share_min`, `streak_min` and `timeout` mean nothing here.
#[derive(Debug, Clone)]
pub struct Hystor {
    // Fixed until changed by an administrator.
    parameters: Parameters,
    // Per window.
    busiest: Busiest,
    counters: Counters,
    /// Intervals of this window so far.
    seen: u64,
}

impl Hystor {
    /// How long a window is unless the parameters say.
    ///
    /// Source: AST 2.2.
    pub const WINDOW: Nanos = Nanos::secs(15 * 60);

    /// Whole requests in a counter's unit, so that a few requests outlive a few halvings.
    const UNIT: u64 = 1 << 10;

    /// A rule for a fast tier that holds `room` regions, with nothing up.
    ///
    /// # Panics
    /// If `parameters` do not [check](Parameters::check).
    pub fn new(parameters: Parameters, room: u32) -> Hystor {
        parameters.assert();
        Hystor {
            parameters,
            busiest: Busiest::new(room),
            counters: Counters::default(),
            seen: 0,
        }
    }
}

impl TierPolicy for Hystor {
    fn step(&mut self, interval: &Interval<'_>) -> Decision {
        self.counters.add(interval.counts, Self::UNIT);
        self.seen += 1;
        if self.seen < self.parameters.window_intervals(Self::WINDOW) {
            return Decision::default();
        }
        self.seen = 0;
        let decision = self.busiest.decide(&self.counters);
        self.counters.halve();
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
