//! Which regions would a tiering rule have had on the fast tier, and when? Its decisions alone.
//!
//! ```text
//! trace -> counts by interval and region -> policy::tier (the production rule) -> one Row per interval -> Summary
//! ```
//!
//! A move is taken as done the instant it is decided; what moving costs is for whole stacks (`sim::run`). So a
//! reader can check a rule by hand.
//!
//! Source: AST 3.2.
//!
//! Choice: the paper is silent on what an interval is. They run from the trace's first request on, numbered from 0;
//! empty ones count, and so does the last partial one, as a whole one. A read or write counts once, in the region of
//! its first byte; flushes and discards count nowhere.
//!
//! Always true:
//! 1. Every interval from the first to the last request has one row.
//! 2. Memory goes by the regions of one interval and those that are up, not by the length of the trace.

#[cfg(test)]
mod tests;

use base::{Bytes, Map, Nanos};
use policy::tier::{
    Count, Interval, Kind, ParameterError, Parameters, Region, StaticTiering, TierPolicy, Way,
    build,
};
use serde::Serialize;

use trace::{Op, Request};

/// What is simulated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// The rule.
    pub kind: Kind,
    /// What it goes by.
    pub parameters: Parameters,
    /// How much of the volume is counted and moved together.
    pub region: Bytes,
    /// How many regions the fast tier holds.
    pub fast_regions: u32,
}

impl Default for Options {
    /// The paper's.
    fn default() -> Self {
        Options {
            kind: Kind::OnTheFly,
            parameters: Parameters::default(),
            region: Bytes::gib(1),
            fast_regions: 24,
        }
    }
}

/// Why nothing is simulated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// Of the rule's parameters.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// Statistics of less than a request.
    #[error("period is {0}, less than 1 ms; say a longer one, such as 60s")]
    Period(Nanos),
    /// Not a region.
    #[error(
        "region is {0} bytes, and a region is a power of two from 1 MiB on; say for example 1GiB"
    )]
    Region(u64),
    /// No fast tier.
    #[error("fast_regions is 0, and a fast tier holds at least one region; say for example 24")]
    FastRegions,
}

impl Options {
    /// Regions are at least so large.
    const REGION_MIN: Bytes = Bytes::mib(1);
    /// Intervals are at least so long: an empty one costs a row too.
    const PERIOD_MIN: Nanos = Nanos::millis(1);

    /// Can this be simulated?
    ///
    /// # Errors
    /// The first option that makes no sense, by name.
    pub fn check(&self) -> Result<(), OptionsError> {
        self.parameters.check()?;
        if self.parameters.period < Self::PERIOD_MIN {
            return Err(OptionsError::Period(self.parameters.period));
        }
        if !self.region.0.is_power_of_two() || self.region < Self::REGION_MIN {
            return Err(OptionsError::Region(self.region.0));
        }
        match self.fast_regions {
            0 => Err(OptionsError::FastRegions),
            _ => Ok(()),
        }
    }

    fn region_of(&self, offset: Bytes) -> Result<Region, TierError> {
        match offset.0 / self.region.0 {
            index if index < u64::from(u32::MAX) => Ok(Region::at(index)),
            _ => Err(TierError::Beyond {
                offset: offset.0,
                region: self.region,
            }),
        }
    }
}

/// Why a request cannot be counted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// Its region has no number.
    #[error(
        "a request lies at byte {offset}, beyond the last of {} regions of {region}; choose larger regions",
        u32::MAX
    )]
    Beyond {
        /// Its first byte.
        offset: u64,
        /// The size of a region.
        region: Bytes,
    },
    /// Of several volumes.
    #[error(
        "the trace has requests on device {first} and on device {second}, and tiering is that of one volume; choose \
         one with --device {first}"
    )]
    Devices {
        /// The device of the first request.
        first: u32,
        /// Another one.
        second: u32,
    },
}

/// What was decided at the end of one interval. Regions are numbered from 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its number, from 0.
    pub interval: u64,
    /// Reads and writes in it.
    pub ios: u64,
    /// The regions that were hot, ascending.
    pub candidates: Vec<u32>,
    /// Those that go up, in this order.
    pub up: Vec<u32>,
    /// Those that go down, before the others go up.
    pub down: Vec<u32>,
    /// Those that are up from now on, ascending.
    pub resident: Vec<u32>,
}

/// What all intervals came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Summary {
    /// How many intervals there were.
    pub intervals: u64,
    /// Reads and writes.
    pub ios: u64,
    /// Those in regions that were up when they came.
    pub resident_ios: u64,
    /// Moves up.
    pub up: u64,
    /// Moves down.
    pub down: u64,
    /// How many regions were up at most.
    pub resident_max: u64,
}

impl Summary {
    /// The share of requests in regions that were up when they came, 0 to 1; 0 without requests.
    pub fn resident_share(&self) -> f64 {
        self.resident_ios as f64 / self.ios.max(1) as f64
    }
}

/// Counts of one interval, or of a whole window.
#[derive(Debug, Clone, Default)]
struct Counts(Map<Region, (u64, u64)>);

impl Counts {
    fn add(&mut self, region: Region, op: Op) {
        let (reads, writes) = self.0.entry(region).or_default();
        match op {
            Op::Read => *reads += 1,
            Op::Write => *writes += 1,
            Op::Discard | Op::Flush => {}
        }
    }

    /// As a rule wants them; empty afterwards.
    fn take(&mut self) -> Vec<Count> {
        let mut counts: Vec<Count> = self
            .0
            .drain()
            .map(|(region, (reads, writes))| Count {
                region,
                reads,
                writes,
            })
            .collect();
        counts.sort_unstable_by_key(|count| count.region);
        counts
    }
}

/// One rule over one trace.
///
/// # Example
/// ```
/// use base::{Bytes, Nanos};
/// use sim::tier::{Options, Simulation};
/// use trace::{Op, Request};
/// let mut simulation = Simulation::new(Options::default())?;
/// let mut rows = Vec::new();
/// for second in 0..180 {
///     for n in 0..100 {
///         let request = Request {
///             at: Nanos::secs(second),
///             offset: Bytes::gib(64) + Bytes(n * 4096),
///             size: Bytes(4096),
///             device: 0,
///             op: Op::Read,
///         };
///         simulation.push(&request, &mut |row| rows.push(row))?;
///     }
/// }
/// let summary = simulation.finish(&mut |row| rows.push(row));
/// assert!(rows[1].up.is_empty());
/// assert_eq!(rows[2].up, [65]);
/// assert_eq!((summary.intervals, summary.ios, summary.up), (3, 18_000, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Simulation {
    // Fixed.
    options: Options,
    // Over the whole trace.
    policy: Box<dyn TierPolicy>,
    device: Option<u32>,
    summary: Summary,
    // Per interval.
    interval: u64,
    counts: Counts,
    /// Those that are up, ascending.
    resident: Vec<Region>,
}

impl Simulation {
    /// Before the first request.
    ///
    /// # Errors
    /// [`OptionsError`] if an option makes no sense.
    pub fn new(options: Options) -> Result<Simulation, OptionsError> {
        options.check()?;
        let policy = build(options.kind, options.parameters, options.fast_regions);
        Ok(Simulation::with(options, policy))
    }

    /// Before the first request, with static tiering decided by the requests of the window before.
    ///
    /// # Source
    /// AST 4.1, table 3.
    ///
    /// # Errors
    /// [`OptionsError`] if an option makes no sense.
    pub fn placed(options: Options, before: &Window) -> Result<Simulation, OptionsError> {
        options.check()?;
        let mut policy = StaticTiering::new(options.parameters, options.fast_regions);
        policy.place(&before.counts.clone().take());
        Ok(Simulation::with(options, Box::new(policy)))
    }

    fn with(options: Options, policy: Box<dyn TierPolicy>) -> Simulation {
        let resident = policy.residents();
        let summary = Summary {
            resident_max: resident.len() as u64,
            ..Summary::default()
        };
        Simulation {
            options,
            resident,
            policy,
            device: None,
            summary,
            interval: 0,
            counts: Counts::default(),
        }
    }

    /// The next request; `each` is handed the rows of all intervals that ended before it.
    ///
    /// # Errors
    /// [`TierError`] if it cannot be counted.
    pub fn push(&mut self, request: &Request, each: &mut dyn FnMut(Row)) -> Result<(), TierError> {
        one_device(&mut self.device, request)?;
        while self.interval < request.at.0 / self.options.parameters.period.0 {
            each(self.close());
        }
        // The last request of a trace may be a flush: its interval counts.
        self.summary.intervals = self.interval + 1;
        if matches!(request.op, Op::Read | Op::Write) {
            let region = self.options.region_of(request.offset)?;
            self.counts.add(region, request.op);
            self.summary.ios += 1;
            self.summary.resident_ios += u64::from(self.resident.binary_search(&region).is_ok());
        }
        Ok(())
    }

    /// The trace is over; `each` is handed the row of the last interval, if there was any request.
    pub fn finish(mut self, each: &mut dyn FnMut(Row)) -> Summary {
        if self.summary.intervals > self.interval {
            each(self.close());
        }
        self.summary
    }

    /// The interval is over.
    fn close(&mut self) -> Row {
        let counts = self.counts.take();
        let decision = self.policy.step(&Interval {
            number: self.interval,
            length: self.options.parameters.period,
            counts: &counts,
        });
        let of = |way: Way| -> Vec<u32> {
            let some = decision.moves.iter().filter(|one| one.way == way);
            some.map(|one| one.region.0).collect()
        };
        let numbers = |regions: &[Region]| regions.iter().map(|region| region.0).collect();
        self.resident = self.policy.residents();
        let row = Row {
            interval: self.interval,
            ios: counts.iter().map(Count::all).sum(),
            candidates: numbers(&decision.candidates),
            up: of(Way::Up),
            down: of(Way::Down),
            resident: numbers(&self.resident),
        };
        self.interval += 1;
        self.summary.up += row.up.len() as u64;
        self.summary.down += row.down.len() as u64;
        let resident = row.resident.len() as u64;
        self.summary.resident_max = self.summary.resident_max.max(resident);
        row
    }
}

/// The requests of a whole window, by region.
#[derive(Debug, Clone)]
pub struct Window {
    options: Options,
    device: Option<u32>,
    counts: Counts,
}

impl Window {
    /// Before its first request.
    ///
    /// # Errors
    /// [`OptionsError`] if an option makes no sense.
    pub fn new(options: Options) -> Result<Window, OptionsError> {
        options.check()?;
        Ok(Window {
            options,
            device: None,
            counts: Counts::default(),
        })
    }

    /// The next request.
    ///
    /// # Errors
    /// [`TierError`] if it cannot be counted.
    pub fn push(&mut self, request: &Request) -> Result<(), TierError> {
        one_device(&mut self.device, request)?;
        if matches!(request.op, Op::Read | Op::Write) {
            let region = self.options.region_of(request.offset)?;
            self.counts.add(region, request.op);
        }
        Ok(())
    }
}

/// Is `request` on the same device as those before?
fn one_device(device: &mut Option<u32>, request: &Request) -> Result<(), TierError> {
    match *device.get_or_insert(request.device) {
        first if first == request.device => Ok(()),
        first => Err(TierError::Devices {
            first,
            second: request.device,
        }),
    }
}
