//! What can this device be trusted to do? The paper's experiment without an operator: run, measured, kept.
//!
//! ```text
//! requests of several lengths, both ways -> fixed cost and rate -> Costs
//! N sessions by equation (1), so much set aside -> windows kept? -> bisect -> a point of the headroom
//!     for reads, writes, both x N                                              -> Surface
//! ```
//!
//! It works on objects of its own, ".tanada/calibration/...", through the store and its queue as they are, so a store in
//! use loses nothing but time. Sessions that are open meanwhile are served beside it; what it finds then is too little
//! rather than too much.
//!
//! Source: PROBS 4.2 (the experiment), 4.3 and 5 (that it be made a benchmark which runs by itself, and the guarantee be
//! found by it).
//!
//! Choice: overheads are parts of the device's time by the costs found, as the calendar reckons. An overhead is
//! enough if half as many windows are violated as the promise allows, in the trial that found it and in one twice as
//! long, and one step more is set aside than that takes: a run has few windows, and the next ones are others.
//!
//! Always true:
//! 1. Its objects are gone when it ends, however it ends, or before the next one begins.
//! 2. It takes no longer than the plan's budget, what measuring costs takes, and one trial.
//! 3. Where it fails the queue goes by the costs it went by before.

mod bench;
mod error;
mod ground;
mod plan;
mod reckon;
mod surface;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use base::{Bytes, Instant, View};
use device::Device;
use policy::share::{Costs, Direction};

use crate::object::store::Store;
use crate::object::types::Change;
use crate::qos::queue::{Queue, QueueOptions};
use bench::Bench;
use ground::{Objects, clear, name};
use plan::{IO, hardest_first};

pub use error::CalibrateError;
pub use ground::{Answer, Ground};
pub use plan::{Plan, streams};
pub use reckon::promises;
pub use surface::{Found, Identity, Measured, Surface};

/// Where a long calibration stands: what it does now, and the share that is done (0 to 1).
pub type Progress<'a> = dyn FnMut(&str, f64) + 'a;

/// Calibrates a device that holds a store: opens it behind a queue of its own, measures, closes it.
///
/// # Errors
/// [`CalibrateError`].
///
/// # Source
/// PROBS 4.3, 5.
pub async fn calibrate(
    device: Rc<dyn Device>,
    options: QueueOptions,
    plan: &Plan,
    progress: &mut Progress<'_>,
) -> Result<Surface, CalibrateError> {
    let info = device.info();
    let queue = Queue::new(device, options);
    let store = Store::open(queue.clone())
        .await
        .map_err(|source| CalibrateError::Open {
            device: info.name.clone(),
            source: Box::new(source),
        })?;
    let found = through(&store, &queue, plan, progress).await;
    store.close().await?;
    found
}

/// Calibrates the device below `queue` through `store`, which stands on it and stays open. The queue goes by the
/// costs that were found from then on.
///
/// # Errors
/// [`CalibrateError`].
pub async fn through(
    store: &Store,
    queue: &Rc<Queue>,
    plan: &Plan,
    progress: &mut Progress<'_>,
) -> Result<Surface, CalibrateError> {
    let begun = env::now();
    clear(store).await?;
    let streams = streams(plan)?;
    let reach = Bytes((plan.room.0 / u64::from(streams)).max(4 * IO.0) / IO.0 * IO.0);
    let (needed, free) = (reach * u64::from(streams), store.space().free);
    if free < needed {
        return Err(CalibrateError::NoRoom {
            store: store.name().to_owned(),
            needed,
            free,
        });
    }
    let found = async {
        let mut bytes = vec![0; IO.usize()];
        env::rng("calibration").fill(&mut bytes);
        let ground = Rc::new(Objects {
            store: store.clone(),
            reach,
            data: View::copy_of(&bytes),
        });
        for stream in 0..streams {
            progress(
                "writing objects to measure with",
                f64::from(stream) / f64::from(streams) * 0.05,
            );
            let change = Change::default().creating();
            for at in (0..reach.0).step_by(IO.usize()) {
                let data = ground.data.clone();
                store.write(&name(stream), at, data, change).await?;
            }
        }
        store.flush().await?;
        since(begun, ground, queue, plan, progress).await
    }
    .await;
    clear(store).await?;
    found
}

/// The queue goes by the costs it had when this is dropped, unless there are better ones.
struct Before<'a> {
    queue: &'a Queue,
    costs: Option<Costs>,
}

impl Drop for Before<'_> {
    fn drop(&mut self) {
        if let Some(costs) = self.costs {
            self.queue.set_costs(costs);
        }
    }
}

/// Calibrates the device below `queue` on any ground above it.
///
/// # Errors
/// [`CalibrateError`].
pub async fn on(
    ground: Rc<dyn Ground>,
    queue: &Rc<Queue>,
    plan: &Plan,
    progress: &mut Progress<'_>,
) -> Result<Surface, CalibrateError> {
    since(env::now(), ground, queue, plan, progress).await
}

async fn since(
    begun: Instant,
    ground: Rc<dyn Ground>,
    queue: &Rc<Queue>,
    plan: &Plan,
    progress: &mut Progress<'_>,
) -> Result<Surface, CalibrateError> {
    streams(plan)?;
    let end = Instant(begun.0.saturating_add(plan.budget.0));
    let mut before = Before {
        queue,
        costs: Some(queue.costs()),
    };
    let bench = Bench {
        ground,
        queue: Rc::clone(queue),
    };
    progress("what requests cost", 0.05);
    let (read, write) = (
        bench.measure(Direction::Read, plan).await?,
        bench.measure(Direction::Write, plan).await?,
    );
    let mut surface = Surface::begun(queue.info(), queue.kind(), [read, write], plan);
    let costs = surface.costs();
    queue.set_costs(costs);
    let all = plan.mixes.len() * plan.sessions.len();
    for (at, (sessions, mix)) in hardest_first(plan).into_iter().enumerate() {
        let done = at as f64 / all as f64;
        progress(
            &format!("{sessions} sessions, {}", mix.name()),
            0.1 + 0.9 * done,
        );
        match bench.bisect(&costs, mix, sessions, plan, end).await? {
            Some(found) => surface.points.push(found),
            None => surface.cut = true,
        }
    }
    before.costs = None;
    progress("done", 1.0);
    surface.depth = queue.depth();
    surface.measured = env::wall_clock().0 / 1_000_000_000;
    surface.took_ns = env::now().since(begun).0;
    Ok(surface)
}
