//! What would this stack have done with that trace? The production engine over device models, in virtual time.
//!
//! ```text
//! requests -> layout (where on the volume) -> feed -> open or closed loop -> volume -> answers -> tally -> Outcome
//!                                                                              |
//!                                             Hybrid (the engine of `tanada serve`) over Meter over ModelDisk
//! ```
//!
//! Open loop: each request comes at its time in the trace, over the speed; closed loop: so many are always
//! under way. Response times of an open loop run from the *intended* arrival, also where so many requests
//! are under way that it has to wait outside.
//!
//! Choice: contents are left out. A writer writes zeroes, and the models remember nothing and read zeroes. So every
//! checksum the engine takes and checks is that of a page of zeroes: no step is left out, and none costs memory. A
//! page that went astray in the map would not be noticed here; the engine's own tests notice it.
//!
//! Choice: a request is sent in pieces of 1 MiB at most, side by side, as a kernel would; one that does not
//! begin or end on a sector takes the whole sectors it touches.
//!
//! Always true:
//! 1. The same stack, requests, pace and seed give the same outcome, bit for bit.
//! 2. Memory does not grow with the length of the trace: requests under way, points of the series and rows
//!    of the map of regions are bounded.
//! 3. Every request taken from the trace is counted once: measured, of the warm-up, or left out with a reason.

mod account;
mod build;
mod drive;
mod feed;
mod layout;
mod measure;
mod outcome;
mod plan;
mod send;
mod tally;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use base::Nanos;
use trace::Requests;

pub use tally::Distribution;

pub use layout::{Extent, Fit, Layout, LayoutError, Survey};
pub use outcome::{
    Backlog, Bin, CacheOutcome, ClassBytes, Counts, DeviceOutcome, DevicePoint, Energy, FlashWork,
    Heat, LeftOut, Moved, Outcome, Point, Response, Series, Setup, Speed,
};
pub use plan::{Begun, Made, Modelled, Pace, Replay, RunError, Stack, Stripe, WarmUp, Watch};

/// No watcher.
struct Nobody;

impl Watch for Nobody {
    fn begin(&self, _: Option<Rc<hybrid::Hybrid>>) -> Begun<'_> {
        Box::pin(std::future::ready(()))
    }

    fn answered(&self, _: Nanos, _: Nanos) {}

    fn end(&self) {}
}

/// Replays `requests` on `stack` in virtual time.
///
/// # Errors
/// [`RunError`].
///
/// # Example
/// ```
/// use base::{Bytes, Nanos};
/// use sim::run::{Pace, Replay, Stack, run};
/// use trace::{Op, Request, Requests, TraceError};
///
/// struct Ten(u64);
/// impl Requests for Ten {
///     fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<bool, TraceError> {
///         batch.clear();
///         batch.extend((0..self.0).map(|n| Request {
///             at: Nanos::millis(n * 100),
///             offset: Bytes::mib(n * 64),
///             size: Bytes(4096),
///             device: 0,
///             op: Op::Read,
///         }));
///         self.0 = 0;
///         Ok(!batch.is_empty())
///     }
/// }
/// let disk = Stack::bare("hdd", &device::model::Spec::find("hdd-7200-sata")?, Bytes::gib(1));
/// let outcome = run(&disk, &mut Ten(10), &Replay::default())?;
/// assert_eq!((outcome.counts.requests, outcome.counts.reads), (10, 10));
/// let mean = outcome.response("all").unwrap().mean_us;
/// assert!((1_000.0..40_000.0).contains(&mean), "{mean} us");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn run(
    stack: &Stack,
    requests: &mut dyn Requests,
    replay: &Replay,
) -> Result<Outcome, RunError> {
    run_watched(stack, requests, replay, &mut |_| {})
}

/// As [`run`]; `progress` hears now and then how many requests have been taken from the trace.
///
/// # Errors
/// [`RunError`].
pub fn run_watched(
    stack: &Stack,
    requests: &mut dyn Requests,
    replay: &Replay,
    progress: &mut dyn FnMut(u64),
) -> Result<Outcome, RunError> {
    run_before(stack, requests, replay, Rc::new(Nobody), progress)
}

/// As [`run_watched`], with a watcher.
///
/// # Errors
/// [`RunError`].
pub fn run_before(
    stack: &Stack,
    requests: &mut dyn Requests,
    replay: &Replay,
    watch: Rc<dyn Watch>,
    progress: &mut dyn FnMut(u64),
) -> Result<Outcome, RunError> {
    replay.check()?;
    let grown = (replay.layout.fit() == Fit::Grow).then(|| {
        let mut grown = stack.clone();
        grown.grow(replay.layout.needed());
        grown
    });
    let stack = grown.as_ref().unwrap_or(stack);
    replay
        .layout
        .check(stack.volume_size())
        .map_err(|source| RunError::Layout {
            stack: stack.name.clone(),
            source: Box::new(source),
        })?;
    drive::run(stack, requests, replay, watch, progress)
}
