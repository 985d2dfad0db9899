//! Many policies and sizes over one trace, on all processors: the rows of a comparison.
//!
//! ```text
//! methods x sizes -> cells, the longest first -> rayon -> rows in the order asked for
//! ```
//!
//! Always true: the rows do not depend on the number of threads.

use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use hybrid::{Admission, WriteMode};
use policy::cache::Kind;
use rayon::prelude::*;
use serde::Serialize;

use super::belady::{Bound, Future};
use super::cell::{Mode, ratio, simulate};
use super::size::objects_in;
use super::{Compact, Curve, Part, Shape, Size, SizeError, exact_lru};

/// What decides which object leaves: a policy, or the future itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// A production policy.
    Policy(Kind),
    /// Belady's MIN, the bound.
    Belady,
}

impl Method {
    /// Every policy, then the bound.
    pub fn all() -> Vec<Method> {
        let policies = Kind::ALL.map(Method::Policy);
        policies.into_iter().chain([Method::Belady]).collect()
    }

    /// The methods a list such as `lru,s3-fifo` or `all` names.
    ///
    /// # Errors
    /// [`UnknownMethod`].
    pub fn list(text: &str) -> Result<Vec<Method>, UnknownMethod> {
        match text {
            "all" => Ok(Method::all()),
            _ => text.split(',').map(|name| name.trim().parse()).collect(),
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Method::Policy(kind) => kind.fmt(f),
            Method::Belady => f.pad("belady"),
        }
    }
}

/// A name that is no method's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no replacement policy; choose some of lru, fifo, clock, sieve, s3-fifo, arc, w-tinylfu, belady, \
     separated by commas, or all"
)]
pub struct UnknownMethod(String);

impl FromStr for Method {
    type Err = UnknownMethod;
    fn from_str(name: &str) -> Result<Method, UnknownMethod> {
        match name {
            "belady" => Ok(Method::Belady),
            _ => match name.parse() {
                Ok(kind) => Ok(Method::Policy(kind)),
                Err(_) => Err(UnknownMethod(name.to_owned())),
            },
        }
    }
}

/// One method at one size: a line of the answer.
///
/// `requests` and `misses` count accesses to objects of the unit (each block of a split request is
/// one); `trace_requests` and `trace_request_misses` count lines of the trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The policy, or `belady`.
    pub policy: String,
    /// The size as asked for.
    pub size: String,
    /// The unit.
    pub unit: String,
    /// Objects asked for.
    pub requests: u64,
    /// Those not in the cache.
    pub misses: u64,
    /// Misses per request.
    pub miss_ratio: f64,
    /// Missed bytes per byte asked for.
    pub byte_miss_ratio: f64,
    /// The size in objects.
    pub objects: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Those in objects not in the cache.
    pub missed_bytes: u64,
    /// The same of the lines of the trace.
    #[serde(flatten)]
    pub trace: TraceRequests,
    /// What is moved.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// The write mode.
    pub write: String,
    /// The admission rule.
    pub admission: String,
    /// `simulated`, or what [`NamedCurve::origin`] says.
    pub figures: String,
}

/// Requests of a trace, and those that missed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceRequests {
    /// Requests of the trace.
    pub trace_requests: u64,
    /// Those of which at least one object missed; unknown on an estimated curve.
    pub trace_request_misses: Option<u64>,
    /// Their share.
    pub trace_request_miss_ratio: Option<f64>,
}

/// What a cache moves.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Traffic {
    /// Objects brought into the cache.
    pub promotions: Option<u64>,
    /// Bytes written to the fast device; the bound decides about misses alone.
    pub flash_bytes_written: Option<u64>,
    /// Bytes read from the slow device.
    pub slow_bytes_read: Option<u64>,
    /// Bytes written to the slow device.
    pub slow_bytes_written: Option<u64>,
}

/// What is to be compared.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The methods, in the order of the answer.
    pub methods: Vec<Method>,
    /// The sizes, each under every method.
    pub sizes: Vec<Size>,
    /// How the cache is run.
    pub mode: Mode,
}

impl Plan {
    /// Runs every method at every size over `trace`, in parallel on the threads of the rayon pool this
    /// is called in. `done` hears how many cells are done, of how many.
    ///
    /// # Errors
    /// [`SizeError`] if a size does not fit the unit.
    pub fn run(
        &self,
        trace: &Compact,
        done: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Vec<Row>, SizeError> {
        let rows = self.run_while(trace, &|now, of| {
            done(now, of);
            ControlFlow::Continue(())
        })?;
        Ok(rows.expect("nothing breaks it off"))
    }

    /// As [`Plan::run`], until `done` breaks it off: then `None`. What runs at that moment is finished.
    ///
    /// # Errors
    /// As for [`Plan::run`].
    pub fn run_while(
        &self,
        trace: &Compact,
        done: &(dyn Fn(usize, usize) -> ControlFlow<()> + Sync),
    ) -> Result<Option<Vec<Row>>, SizeError> {
        let mut cells = Vec::new();
        for &method in &self.methods {
            for size in &self.sizes {
                cells.push((method, size, size.objects(trace)?));
            }
        }
        let future = self
            .methods
            .contains(&Method::Belady)
            .then(|| Future::of(trace));
        let finished = AtomicUsize::new(0);
        let rows = cells.par_iter().map(|(method, size, objects)| {
            let row = self.cell(trace, future.as_ref(), *method, size, *objects);
            let goes_on = done(finished.fetch_add(1, Ordering::Relaxed) + 1, cells.len());
            goes_on.is_continue().then_some(row)
        });
        Ok(rows.collect())
    }

    fn cell(
        &self,
        trace: &Compact,
        future: Option<&Future>,
        method: Method,
        size: &Size,
        objects: u64,
    ) -> Row {
        let kind = match (method, future) {
            (Method::Policy(kind), _) => kind,
            (Method::Belady, Some(future)) => {
                let bound = bound_of(self.mode);
                let least = future.misses(trace, objects, bound);
                let row = row(trace, method, size.to_string(), objects, self.mode);
                return Row {
                    misses: least.misses,
                    miss_ratio: least.miss_ratio(),
                    byte_miss_ratio: ratio(least.missed_bytes, least.bytes),
                    missed_bytes: least.missed_bytes,
                    trace: TraceRequests {
                        trace_request_misses: Some(least.missed_requests),
                        trace_request_miss_ratio: Some(ratio(
                            least.missed_requests,
                            least.requests,
                        )),
                        ..row.trace
                    },
                    traffic: Traffic {
                        promotions: Some(least.promotions),
                        ..Traffic::default()
                    },
                    ..row
                };
            }
            (Method::Belady, None) => unreachable!("the future is known when it is asked for"),
        };
        let counters = simulate(trace, kind, objects, self.mode);
        let row = row(trace, method, size.to_string(), objects, self.mode);
        Row {
            misses: counters.misses,
            miss_ratio: counters.miss_ratio(),
            byte_miss_ratio: counters.byte_miss_ratio(),
            missed_bytes: counters.missed_bytes,
            trace: TraceRequests {
                trace_request_misses: Some(counters.missed_reads + counters.missed_writes),
                trace_request_miss_ratio: Some(counters.request_miss_ratio()),
                ..row.trace
            },
            traffic: Traffic {
                promotions: Some(counters.promotions),
                flash_bytes_written: Some(counters.flash_bytes_written),
                slow_bytes_read: Some(counters.slow_bytes_read),
                slow_bytes_written: Some(counters.slow_bytes_written),
            },
            ..row
        }
    }
}

/// A cache that may refuse blocks is bounded by one that may.
fn bound_of(mode: Mode) -> Bound {
    match (mode.admission, mode.write) {
        (Admission::Always, WriteMode::Back | WriteMode::Through) => Bound::Demand,
        _ => Bound::Refusing,
    }
}

/// What is known without any simulation.
fn row(trace: &Compact, method: Method, size: String, objects: u64, mode: Mode) -> Row {
    Row {
        policy: method.to_string(),
        size,
        unit: trace.unit().to_string(),
        requests: trace.accesses(),
        misses: 0,
        miss_ratio: 0.0,
        byte_miss_ratio: 0.0,
        objects,
        bytes: trace.bytes(),
        missed_bytes: 0,
        trace: TraceRequests {
            trace_requests: trace.requests(),
            trace_request_misses: None,
            trace_request_miss_ratio: None,
        },
        traffic: Traffic::default(),
        write: mode.write.to_string(),
        admission: mode.admission.to_string(),
        figures: "simulated".to_owned(),
    }
}

/// Miss-ratio curves of several methods.
#[derive(Clone, Debug)]
pub struct Curves {
    /// The methods.
    pub methods: Vec<Method>,
    /// How the cache is run.
    pub mode: Mode,
    /// The share of blocks to look at; `None`: as many as keep it quick, all of them in a short trace.
    pub rate: Option<f64>,
    /// Which blocks are in the sample.
    pub seed: u64,
}

/// A curve and whose it is.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedCurve {
    /// Whose.
    pub method: Method,
    /// The share of blocks it was made from; 1 is exact at its points.
    pub rate: f64,
    /// The curve.
    pub curve: Curve,
}

/// Accesses that are simulated at each of the sizes without being too many.
const ACCESSES_QUICK: f64 = 2e6;
/// A sample has at least so many blocks, where there are.
const BLOCKS_MIN: f64 = 4096.0;
/// Sizes simulated for the curve of a policy that has no one-pass curve, beside [`SHARES`].
const SIZES: u32 = 32;
/// The sizes at which a table shows curves, in percent of the different objects: each is simulated.
pub const SHARES: [f64; 12] = [
    0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 50.0, 75.0, 100.0,
];

impl Curves {
    /// The curves over `trace`, in the order of the methods.
    pub fn run(&self, trace: &Compact, done: &(dyn Fn(usize, usize) + Sync)) -> Vec<NamedCurve> {
        let rate = self.rate.unwrap_or_else(|| quick_rate(trace));
        let part = Part::draw(trace, rate, self.seed);
        let sizes = curve_sizes(trace.footprint());
        let mut curves = Vec::new();
        for (at, &method) in self.methods.iter().enumerate() {
            let whole = Part::rate(&part) == 1.0;
            let curve = match method {
                // Only then is the stack all there is to LRU.
                Method::Policy(Kind::Lru) if bound_of(self.mode) == Bound::Demand => match whole {
                    true => exact_lru(trace),
                    false => part.lru(trace),
                },
                Method::Policy(kind) => part.policy(trace, kind, self.mode, &sizes),
                Method::Belady => part.bound(trace, bound_of(self.mode), &sizes),
            };
            curves.push(NamedCurve {
                method,
                rate: part.rate(),
                curve,
            });
            done(at + 1, self.methods.len());
        }
        curves
    }
}

/// All of a short trace; of a long one as much as keeps a curve quick, and at least 1 %.
fn quick_rate(trace: &Compact) -> f64 {
    let quick = ACCESSES_QUICK / trace.accesses() as f64;
    let enough = BLOCKS_MIN / f64::from(trace.footprint());
    quick.max(enough).clamp(0.01, 1.0)
}

/// From a thousandth of the footprint to all of it, each size a like factor above the one before; and those of
/// [`SHARES`], so that no figure of a table lies between two that were simulated.
pub(super) fn curve_sizes(footprint: u32) -> Vec<u64> {
    let shares = SHARES.map(|percent| objects_in(percent, footprint));
    let footprint = f64::from(footprint);
    let least = (footprint / 1000.0).max(1.0);
    let mut sizes: Vec<u64> = (0..SIZES)
        .map(|n| least * (footprint / least).powf(f64::from(n) / f64::from(SIZES - 1)))
        .map(|objects| objects.round() as u64)
        .chain(shares)
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

impl NamedCurve {
    /// Its points as rows, at the sizes where policies without a one-pass curve are simulated.
    pub fn rows(&self, trace: &Compact, mode: Mode) -> Vec<Row> {
        let rows = curve_sizes(trace.footprint())
            .into_iter()
            .filter_map(|objects| {
                let first = self.curve.points().get(1)?.objects;
                if self.curve.shape() == Shape::Lines && (objects as f64) < first {
                    return None;
                }
                let point = self.curve.at(objects as f64);
                let of = |ratio: f64, whole: u64| (ratio * whole as f64).round() as u64;
                Some(Row {
                    misses: of(point.miss_ratio, trace.accesses()),
                    miss_ratio: point.miss_ratio,
                    byte_miss_ratio: point.byte_miss_ratio,
                    missed_bytes: of(point.byte_miss_ratio, trace.bytes()),
                    figures: self.origin(),
                    ..row(trace, self.method, format!("{objects}obj"), objects, mode)
                })
            });
        rows.collect()
    }

    /// How it came to be: `exact curve`, `simulated at 42 sizes, lines between`, `curve from 1.00 % of the blocks`,
    /// and of a sample `simulated at 42 sizes, lines between, from 1.00 % of the blocks`.
    pub fn origin(&self) -> String {
        let points = self.curve.points().iter();
        let sizes = points.filter(|point| point.objects > 0.0).count();
        let share = 100.0 * self.rate;
        match (self.curve.shape(), self.rate) {
            (Shape::Steps, 1.0) => "exact curve".to_owned(),
            (Shape::Steps, _) => format!("curve from {share:.2} % of the blocks"),
            (Shape::Lines, 1.0) => format!("simulated at {sizes} sizes, lines between"),
            (Shape::Lines, _) => {
                format!(
                    "simulated at {sizes} sizes, lines between, from {share:.2} % of the blocks"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_read_as_they_are_shown() {
        let all = Method::list("all").unwrap_or_default();
        assert_eq!(all.len(), 8);
        let names: Vec<String> = all.iter().map(Method::to_string).collect();
        assert_eq!(Method::list(&names.join(",")), Ok(all));
        assert_eq!(
            Method::list("lru,mru").unwrap_err().to_string(),
            "'mru' is no replacement policy; choose some of lru, fifo, clock, sieve, s3-fifo, arc, w-tinylfu, \
             belady, separated by commas, or all"
        );
    }

    #[test]
    fn curves_are_drawn_from_the_smallest_size_to_the_footprint() {
        assert_eq!(curve_sizes(1), [1]);
        let sizes = curve_sizes(100_000);
        assert_eq!((sizes[0], sizes.last()), (100, Some(&100_000)));
        assert!(sizes.is_sorted_by(|a, b| a < b));
    }
}
