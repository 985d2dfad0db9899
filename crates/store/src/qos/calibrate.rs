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

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use base::{Bytes, Instant, Nanos, View};
use device::{Class, Device};
use env::sync::join_all;
use policy::share::calendar::BookingId;
use policy::share::{
    BytesPerSec, Cost, Costs, Direction, Headroom, Mix, Point, Probability, Second, SessionId,
    Share, Slot, Terms, load,
};
use serde::{Deserialize, Serialize};

use crate::object::error::{OpenError, StoreError};
use crate::object::store::Store;
use crate::object::types::Change;
use crate::qos::manager::Calibration;
use crate::qos::queue::{Queue, QueueOptions};

/// Objects of its own begin so.
const PREFIX: &str = ".tanada/calibration/";
/// The paper's I/O.
const IO: Bytes = Bytes::mib(1);
/// Requests each session has outstanding.
const OUTSTANDING: u64 = 4;
/// Streams that are served in turn when costs are measured.
const STREAMS: u32 = 4;

/// What is measured and how long it may take.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Lengths whose costs are measured, the quantum last; longer ones come in pieces.
    pub sizes: Vec<Bytes>,
    /// How long each.
    pub probe: Nanos,
    /// Which ways the promised bytes go.
    pub mixes: Vec<Mix>,
    /// Concurrent sessions.
    pub sessions: Vec<u32>,
    /// The window and the share of windows that are to be kept.
    pub window: Nanos,
    /// See `window`.
    pub probability: Probability,
    /// Windows in each trial.
    pub windows: u64,
    /// Overheads that are tried lie so far apart.
    pub step: Share,
    /// No overhead beyond is tried.
    pub most: Share,
    /// Room for its objects, of all sessions together.
    pub room: Bytes,
    /// When it ends at the latest; what was not measured by then is left out.
    pub budget: Nanos,
}

impl Plan {
    /// About a quarter of an hour at most: 4 and 32 sessions, 10 windows of a second, steps of 4 %.
    pub fn quick() -> Plan {
        Plan {
            sizes: [32, 64, 128, 256].map(Bytes::kib).to_vec(),
            probe: Nanos::secs(1),
            mixes: vec![Mix::Reads, Mix::Writes, Mix::Mixed],
            sessions: vec![4, 32],
            window: Nanos::secs(1),
            probability: Probability::default(),
            windows: 10,
            step: Share::percent(4),
            most: Share::percent(60),
            room: Bytes::gib(1),
            budget: Nanos::secs(900),
        }
    }

    /// Some hours: 2 to 64 sessions, 60 windows, steps of 1 %.
    pub fn full() -> Plan {
        Plan {
            probe: Nanos::secs(5),
            sessions: vec![2, 8, 32, 64],
            windows: 60,
            step: Share::percent(1),
            room: Bytes::gib(4),
            budget: Nanos::secs(4 * 3600),
            ..Plan::quick()
        }
    }

    /// The longest it may take.
    pub fn longest(&self) -> Nanos {
        let trial = self.window * (2 * self.windows + 1);
        let lengths = 2 * (self.sizes.len() as u64 + 1);
        self.budget + trial + self.probe * 2 * lengths
    }
}

/// Which device was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its name in the configuration.
    pub name: String,
    /// How much it holds.
    pub bytes: u64,
    /// What the maker calls it, where that is known.
    pub model: Option<String>,
    /// And this one of them.
    pub serial: Option<String>,
}

/// What requests of one direction cost, and what one access alone gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Every request.
    pub fixed_ns: u64,
    /// Bytes per second.
    pub rate: u64,
    /// Bytes per second of a single session that reads or writes in sequence.
    pub alone: u64,
}

/// Which ways, as kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Ways {
    Reads,
    Writes,
    Mixed,
}

/// Under these conditions so much had to be set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    mix: Ways,
    /// Concurrent sessions.
    pub sessions: u32,
    /// Judged by this window.
    pub window_ns: u64,
    /// In parts per million: this share of windows is to be kept.
    pub probability_ppm: u32,
    /// In parts per billion of the device's time, the margin included; all of it: nothing that was tried was enough.
    pub overhead_ppb: u64,
    /// Windows that were judged a step below it, and violated ones among them.
    pub windows: u64,
    /// See `windows`.
    pub violated: u64,
}

impl Found {
    /// Which ways the bytes went.
    pub fn mix(&self) -> Mix {
        match self.mix {
            Ways::Reads => Mix::Reads,
            Ways::Writes => Mix::Writes,
            Ways::Mixed => Mix::Mixed,
        }
    }
}

/// All that a calibration found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surface {
    /// Of which device.
    pub device: Identity,
    /// When it ended, in seconds since 1970.
    pub measured: u64,
    /// How long it took.
    pub took_ns: u64,
    /// Which scheduler it holds for.
    pub scheduler: String,
    /// Pieces at the device at once, at the end.
    pub depth: u32,
    /// Reads.
    pub read: Measured,
    /// Writes.
    pub write: Measured,
    /// The headroom, point by point.
    pub points: Vec<Found>,
    /// What must stay free where no point was measured, in parts per billion.
    pub beyond_ppb: u64,
    /// Was it cut short by its budget?
    pub cut: bool,
}

impl Surface {
    /// What requests cost.
    pub fn costs(&self) -> Costs {
        let of = |measured: &Measured| Cost {
            fixed: Nanos(measured.fixed_ns),
            jump: Nanos(0),
            rate: BytesPerSec(measured.rate),
        };
        Costs {
            read: of(&self.read),
            write: of(&self.write),
        }
    }

    /// What must stay unpromised.
    pub fn headroom(&self) -> Headroom {
        Headroom::new(self.points(), Share(self.beyond_ppb))
    }

    fn points(&self) -> Vec<Point> {
        let point = |found: &Found| Point {
            mix: found.mix(),
            sessions: found.sessions,
            window: Nanos(found.window_ns),
            probability: Probability(found.probability_ppm),
            overhead: Share(found.overhead_ppb),
        };
        self.points.iter().map(point).collect()
    }

    /// How old it is, in seconds.
    pub fn age(&self, now: Second) -> u64 {
        now.0.saturating_sub(self.measured)
    }

    /// Was it this device, as far as name and size show?
    pub fn is_of(&self, device: &dyn Device) -> bool {
        let info = device.info();
        (self.device.name == info.name) && self.device.bytes == info.size.0
    }

    /// As a manager keeps it.
    pub fn calibration(&self) -> Calibration {
        Calibration {
            costs: self.costs(),
            points: self.points(),
            beyond: Share(self.beyond_ppb),
            measured: Second(self.measured),
            device: (self.device.name.clone(), Bytes(self.device.bytes)),
            surface: serde_json::to_value(self).expect("numbers and names"),
        }
    }
}

/// Why nothing was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// There is no store to work in.
    #[error("cannot calibrate {device}: {source}; make a store on it first (tanada store create)")]
    Open {
        /// The device's name.
        device: String,
        /// The cause.
        source: Box<OpenError>,
    },
    /// Its objects have no room.
    #[error(
        "cannot calibrate {store}: it needs {needed} for objects of its own and {free} is free; delete objects or \
         plan with less room"
    )]
    NoRoom {
        /// The store's name.
        store: String,
        /// For its objects.
        needed: Bytes,
        /// What there is.
        free: Bytes,
    },
    /// What is reserved would not be kept.
    #[error(
        "cannot calibrate {store} now: it takes the whole device in {needed}, and reservation {} has {reserved}; \
         calibrate when nothing is reserved for so long, or release it", .reservation.0
    )]
    Reserved {
        /// The store's name.
        store: String,
        /// The first reservation in the way.
        reservation: BookingId,
        /// When it is.
        reserved: Slot,
        /// When nothing may be reserved.
        needed: Slot,
    },
    /// One at a time.
    #[error("{store} is being calibrated already; wait until that has ended")]
    Running {
        /// The store's name.
        store: String,
    },
    /// The plan makes no sense.
    #[error("cannot calibrate with this plan: {0}")]
    Plan(&'static str),
    /// A request failed.
    #[error("the calibration failed: {0}")]
    Store(#[from] StoreError),
    /// A session was refused.
    #[error("the calibration failed: {0}")]
    Session(#[from] policy::share::OpenError),
}

/// Where a long calibration stands: what it does now, and the share that is done (0 to 1).
pub type Progress<'a> = dyn FnMut(&str, f64) + 'a;

/// An answer under way.
pub type Answer = Pin<Box<dyn Future<Output = Result<(), StoreError>>>>;

/// What requests go to: streams of bytes, each read or written in sequence, again from the beginning at its end.
pub trait Ground {
    /// Reads or writes `len` bytes of `stream` from byte `at`; the caller keeps within [`reach`](Self::reach).
    fn ask(&self, stream: u32, direction: Direction, at: u64, len: Bytes, class: Class) -> Answer;

    /// The length of each stream.
    fn reach(&self) -> Bytes;
}

/// Objects of a store as ground.
struct Objects {
    store: Store,
    reach: Bytes,
    data: View,
}

fn name(stream: u32) -> String {
    format!("{PREFIX}{stream}")
}

impl Ground for Objects {
    fn ask(&self, stream: u32, direction: Direction, at: u64, len: Bytes, class: Class) -> Answer {
        let (store, data) = (self.store.clone(), self.data.clone());
        Box::pin(async move {
            let object = name(stream);
            match direction {
                Direction::Read => store.read(&object, at, len.0, class).await.map(drop),
                Direction::Write => {
                    let change = Change::default().class(class);
                    let data = data.slice(0, len.usize());
                    store.write(&object, at, data, change).await.map(drop)
                }
            }
        })
    }

    fn reach(&self) -> Bytes {
        self.reach
    }
}

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

async fn clear(store: &Store) -> Result<(), StoreError> {
    loop {
        let left = store.list(PREFIX, None, 64).objects;
        if left.is_empty() {
            return Ok(());
        }
        for object in left {
            store.delete(&object.name, Change::default()).await?;
        }
        store.flush().await?;
    }
}

/// Streams a plan needs.
pub fn streams(plan: &Plan) -> Result<u32, CalibrateError> {
    let most = plan.sessions.iter().copied().max();
    let most = most.ok_or(CalibrateError::Plan("it has no number of sessions"))?;
    if plan.sizes.len() < 2 || plan.sizes.iter().any(|size| *size > IO || size.0 == 0) {
        return Err(CalibrateError::Plan(
            "costs take two lengths or more, of at most 1 MiB",
        ));
    }
    if plan.sessions.contains(&0) || plan.step.0 == 0 || plan.windows == 0 || plan.probe.0 == 0 {
        return Err(CalibrateError::Plan("nothing of it may be zero"));
    }
    Ok(most.max(STREAMS))
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
    let info = queue.info();
    let mut surface = Surface {
        device: Identity {
            name: info.name,
            bytes: info.size.0,
            model: None,
            serial: None,
        },
        measured: 0,
        took_ns: 0,
        scheduler: queue.kind().name().to_owned(),
        depth: 0,
        read,
        write,
        points: Vec::new(),
        beyond_ppb: plan.most.0,
        cut: false,
    };
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

/// What holds for many sessions holds for few, so these points say most if the time runs out.
fn hardest_first(plan: &Plan) -> Vec<(u32, Mix)> {
    let mut sessions = plan.sessions.clone();
    sessions.sort_unstable_by(|a, b| b.cmp(a));
    let cells = sessions
        .into_iter()
        .flat_map(|sessions| plan.mixes.iter().map(move |mix| (sessions, *mix)));
    cells.collect()
}

/// What is measured on.
struct Bench {
    ground: Rc<dyn Ground>,
    queue: Rc<Queue>,
}

/// Asks for one stream in sequence until it is stopped; how much it got counts in `got`.
struct Stream {
    stream: u32,
    direction: Direction,
    len: Bytes,
    class: Class,
    next: Cell<u64>,
    got: Cell<u64>,
    stop: Cell<bool>,
}

async fn pull(ground: Rc<dyn Ground>, of: Rc<Stream>) -> Result<(), StoreError> {
    while !of.stop.get() {
        let at = of.next.get();
        let on = at + of.len.0;
        of.next.set(if on + of.len.0 > ground.reach().0 {
            0
        } else {
            on
        });
        ground
            .ask(of.stream, of.direction, at, of.len, of.class)
            .await?;
        of.got.set(of.got.get() + of.len.0);
    }
    Ok(())
}

/// Sessions that are closed with it.
struct Open<'a> {
    queue: &'a Queue,
    sessions: Vec<SessionId>,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        for session in &self.sessions {
            self.queue.close(*session);
        }
    }
}

impl Bench {
    /// Runs `streams` for `before` unseen, then for `time`; what they got in that.
    async fn drive(
        &self,
        streams: &[Rc<Stream>],
        time: Nanos,
        before: Nanos,
    ) -> Result<u64, StoreError> {
        let tasks: Vec<_> = streams
            .iter()
            .flat_map(|stream| {
                (0..OUTSTANDING)
                    .map(|_| env::spawn(pull(Rc::clone(&self.ground), Rc::clone(stream))))
            })
            .collect();
        let got = || streams.iter().map(|stream| stream.got.get()).sum::<u64>();
        env::sleep(before).await;
        let from = got();
        env::sleep(time).await;
        let done = got() - from;
        for stream in streams {
            stream.stop.set(true);
        }
        for answer in join_all(tasks).await {
            answer?;
        }
        Ok(done)
    }

    /// Costs of one direction, from how long requests of several lengths take when some streams are served in turn.
    async fn measure(&self, direction: Direction, plan: &Plan) -> Result<Measured, CalibrateError> {
        let before = Nanos(plan.probe.0 / 3);
        let run = async |streams: u32, len: Bytes| -> Result<f64, CalibrateError> {
            let mut open = Open {
                queue: &self.queue,
                sessions: Vec::new(),
            };
            let mut all = Vec::new();
            for stream in 0..streams {
                let session = self
                    .queue
                    .open(Terms::reserved(direction, BytesPerSec::mb(1)))?;
                open.sessions.push(session);
                all.push(stream_of(stream, direction, len, session));
            }
            let got = self.drive(&all, plan.probe, before).await?;
            Ok(got as f64 / plan.probe.secs_f64())
        };
        let mut seen = Vec::new();
        for size in &plan.sizes {
            let rate = run(STREAMS, *size).await?.max(1.0);
            seen.push((size.0 as f64, size.0 as f64 / rate));
        }
        let (fixed, per_byte) = line(&seen);
        // Promises are reckoned in pieces of the last length: there the line must be right.
        let (bytes, time) = *seen.last().expect("two lengths or more");
        let right = time / (fixed + bytes * per_byte);
        let (fixed, per_byte) = (fixed * right, per_byte * right);
        let alone = run(1, IO).await?;
        Ok(Measured {
            fixed_ns: (fixed * 1e9) as u64,
            rate: (1.0 / per_byte) as u64,
            alone: alone as u64,
        })
    }

    /// The least overhead that keeps the promise, and a step; the whole device if none does. `None` if `end` came first.
    async fn bisect(
        &self,
        costs: &Costs,
        mix: Mix,
        sessions: u32,
        plan: &Plan,
        end: Instant,
    ) -> Result<Option<Found>, CalibrateError> {
        let found = |overhead: u64, (windows, violated): (u64, u64)| {
            Some(Found {
                mix: match mix {
                    Mix::Reads => Ways::Reads,
                    Mix::Writes => Ways::Writes,
                    Mix::Mixed => Ways::Mixed,
                },
                sessions,
                window_ns: plan.window.0,
                probability_ppm: plan.probability.0,
                overhead_ppb: overhead,
                windows,
                violated,
            })
        };
        let steps = plan.most.0 / plan.step.0;
        let (mut low, mut high) = (0, steps);
        let mut seen = (0, 0);
        while low < high {
            if env::now() >= end {
                return Ok(None);
            }
            let middle = (low + high) / 2;
            let overhead = Share(plan.step.0 * middle);
            seen = self.trial(costs, mix, sessions, overhead, plan).await?;
            if enough(plan, seen) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        // What was found just enough may have been luck: it must hold for as long again, and twice.
        loop {
            if high >= steps {
                // Nothing that was tried was enough: no promise of this kind.
                return Ok(found(Share::WHOLE.0, seen));
            }
            if env::now() >= end {
                return Ok(None);
            }
            let overhead = Share(plan.step.0 * high);
            let longer = Plan {
                windows: 2 * plan.windows,
                ..plan.clone()
            };
            seen = self.trial(costs, mix, sessions, overhead, &longer).await?;
            if enough(plan, seen) {
                return Ok(found(plan.step.0 * (high + 1), seen));
            }
            high += 1;
        }
    }

    /// Windows that were judged with so much set aside, and those violated.
    async fn trial(
        &self,
        costs: &Costs,
        mix: Mix,
        sessions: u32,
        overhead: Share,
        plan: &Plan,
    ) -> Result<(u64, u64), CalibrateError> {
        let mut open = Open {
            queue: &self.queue,
            sessions: Vec::new(),
        };
        let mut streams = Vec::new();
        for (at, (direction, rate)) in promises(costs, mix, sessions, overhead)
            .into_iter()
            .enumerate()
        {
            let session = self.queue.open(Terms {
                window: Some(plan.window),
                ..Terms::reserved(direction, rate)
            })?;
            open.sessions.push(session);
            streams.push(stream_of(at as u32, direction, IO, session));
        }
        // A little more, so that the last window is over.
        let time = plan.window * plan.windows + Nanos(plan.window.0 / 16);
        self.drive(&streams, time, Nanos(0)).await?;
        let (mut windows, mut violated) = (0, 0);
        for session in &open.sessions {
            let seen = self.queue.figures(*session).expect("still open").windows;
            windows += seen.all() - seen.no_demand;
            violated += seen.violated();
        }
        Ok((windows, violated))
    }
}

/// Half as many violated windows as the promise allows.
fn enough(plan: &Plan, (windows, violated): (u64, u64)) -> bool {
    let miss = 1.0 - plan.probability.as_f64();
    violated as f64 <= (windows as f64 * miss / 2.0).floor()
}

fn stream_of(stream: u32, direction: Direction, len: Bytes, session: SessionId) -> Rc<Stream> {
    Rc::new(Stream {
        stream,
        direction,
        len,
        class: Class::Session(session.0),
        next: Cell::new(0),
        got: Cell::new(0),
        stop: Cell::new(false),
    })
}

/// What each of so many sessions is promised by equation (1), if `overhead` of the device's time is set aside: its
/// direction and rate. Of both directions each has every second session.
pub fn promises(
    costs: &Costs,
    mix: Mix,
    sessions: u32,
    overhead: Share,
) -> Vec<(Direction, BytesPerSec)> {
    // Shares of time, in the place of rates.
    let shares = load(BytesPerSec(Share::WHOLE.0), overhead, sessions);
    let directed = shares.iter().enumerate().map(|(at, share)| {
        let direction = match mix {
            Mix::Reads => Direction::Read,
            Mix::Writes => Direction::Write,
            Mix::Mixed => Direction::ALL[at % 2],
        };
        (
            direction,
            costs.rate(direction, Share(share.0), Bytes::kib(256)),
        )
    });
    directed.collect()
}

/// The line through points, by least squares of relative differences; neither part is below zero.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(x, y)| of(*x, *y)).sum::<f64>();
    // Each difference counts by its part of what was measured.
    let weight = |y: f64| 1.0 / (y * y).max(1e-18);
    let all = sum(&|_, y| weight(y));
    let mean_x = sum(&|x, y| weight(y) * x) / all;
    let mean_y = sum(&|_, y| weight(y) * y) / all;
    let slope = sum(&|x, y| weight(y) * (x - mean_x) * (y - mean_y))
        / sum(&|x, y| weight(y) * (x - mean_x).powi(2));
    let through_nothing = mean_y / mean_x;
    let slope = slope.clamp(through_nothing / 1000.0, through_nothing);
    (mean_y - slope * mean_x, slope)
}
