//! Requests onto the volume: when each is sent, and what is noted of its answer.
//!
//! ```text
//! trace -> feed (a bounded queue, refilled between two stretches of virtual time)
//!
//! closed loop: `depth` workers, each: take -> send -> note
//! open loop:   one worker at a time is the herald: take -> wait until its time -> name another herald -> send -> note
//! ```
//!
//! The trace is read outside the runtime, while virtual time stands still: reading it needs no clock of ours.
//!
//! Always true:
//! 1. The feed never runs dry while the trace has more: what workers see does not depend on its batches.
//! 2. There is at most one herald; there is one while fewer than `under_way_max` requests are under way.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Bytes, Instant, Nanos, Span};
use device::DeviceError;
use env::sync::Event;

use super::build::{Built, build};
use super::feed::{Chunks, FEED_LOW, Feed};
use super::layout::{Layout, LayoutError, Placed, Reason};
use super::measure::{Depth, Snapshot, cache_outcome, device_outcome, per_second};
use super::outcome::{Backlog, Counts, DeviceOutcome, Energy, LeftOut, Outcome, Setup, Speed};
use super::plan::{LONGEST, Pace, Replay, RunError, Stack, WarmUp, Watch};
use super::send::Sender;
use super::tally::{REGIONS, Reading, Tally};
use trace::{Op, Request, Requests};

/// What is sent.
struct Job {
    op: Op,
    span: Span,
    /// When it should be sent.
    due: Instant,
    measured: bool,
}

struct Driver {
    // Fixed.
    built: Built,
    size: Bytes,
    sender: Sender,
    replay: Replay,
    watch: Rc<dyn Watch>,
    feed: Feed,
    origin: Instant,
    // What has been taken.
    layout: RefCell<Layout>,
    taken: Cell<Taken>,
    // What is under way.
    crew: Crew,
    depth: Depth,
    trouble: RefCell<Option<Trouble>>,
    // What is counted.
    late: Cell<Late>,
    counted: RefCell<Option<Counted>>,
}

/// What has been taken of the trace.
#[derive(Clone, Copy, Default)]
struct Taken {
    /// When the first request that was taken came, in the trace.
    first: Option<Nanos>,
    /// When the first measured one did, and the last.
    measured_from: Option<Nanos>,
    measured_to: Nanos,
    requests: u64,
    warm_up_requests: u64,
    left_out: LeftOut,
}

/// Who sends.
#[derive(Default)]
struct Crew {
    workers: Cell<usize>,
    /// Is one the herald?
    herald: Cell<bool>,
    /// No worker is left.
    done: Event,
}

/// Requests sent late, the sum of their nanoseconds, and the most.
#[derive(Clone, Copy, Default)]
struct Late {
    requests: u64,
    sum: u128,
    most: Nanos,
}

/// What is counted from the end of the warm-up on.
struct Counted {
    tally: Tally,
    base: Snapshot,
    /// As of the last boundary.
    last: Snapshot,
}

/// Why workers stopped.
enum Trouble {
    TooLong { at: Nanos, due: f64 },
    Layout(LayoutError),
    Device(DeviceError),
}

pub(super) fn run(
    stack: &Stack,
    requests: &mut dyn Requests,
    replay: &Replay,
    watch: Rc<dyn Watch>,
    progress: &mut dyn FnMut(u64),
) -> Result<Outcome, RunError> {
    let runtime = env::Runtime::simulated(replay.seed);
    let driver = runtime.block_on({
        let (stack, replay) = (stack.clone(), replay.clone());
        async move {
            let built = build(stack, replay.seed).await?;
            watch.begin(built.top.clone()).await;
            Ok::<_, RunError>(Driver::new(built, replay, watch))
        }
    })?;
    let mut trace = Chunks::new(requests, replay.limit);
    let mut started = false;
    while !driver.stopped() {
        let more = trace.fill(&mut driver.feed.queue.borrow_mut())?;
        driver.feed.ended.set(!more);
        let driver = Rc::clone(&driver);
        let begin = !std::mem::replace(&mut started, true);
        progress(trace.taken);
        runtime.block_on(async move {
            if begin {
                driver.begin();
            }
            driver.feed.fed.notify_all();
            driver.hungry_or_done().await;
        });
    }
    if let Some(trouble) = driver.trouble.take() {
        return Err(refusal(stack, trouble, &mut trace, &driver));
    }
    progress(trace.taken);
    let finishing = Rc::clone(&driver);
    let outcome = runtime.block_on(async move { finishing.outcome() });
    outcome.map(|mut outcome| {
        let setup = &mut outcome.setup;
        setup.stack.clone_from(&stack.name);
        setup.volume.clone_from(&stack.volume);
        setup.trace_hash = format!("{:016x}", runtime.trace_hash());
        outcome.config.clone_from(&stack.config);
        outcome
    })
}

/// Why a run ended early, for its caller.
fn refusal(stack: &Stack, trouble: Trouble, trace: &mut Chunks<'_>, driver: &Driver) -> RunError {
    let stack = stack.name.clone();
    match trouble {
        Trouble::Layout(source) => {
            let mut layout = driver.layout.borrow_mut();
            let mut queue = driver.feed.queue.borrow_mut();
            let source = trace.whole_extent(source, &mut layout, &mut queue);
            RunError::Layout {
                stack,
                source: Box::new(source),
            }
        }
        Trouble::TooLong { at, due } => RunError::TooLong { stack, at, due },
        Trouble::Device(source) => RunError::Device {
            stack,
            source: Box::new(source),
        },
    }
}

impl Driver {
    fn new(built: Built, replay: Replay, watch: Rc<dyn Watch>) -> Rc<Driver> {
        Rc::new(Driver {
            size: built.volume.info().size,
            sender: Sender::new(Rc::clone(&built.volume)),
            layout: RefCell::new(replay.layout.clone()),
            built,
            replay,
            watch,
            feed: Feed::default(),
            origin: env::now(),
            taken: Cell::default(),
            crew: Crew::default(),
            depth: Depth::default(),
            trouble: RefCell::new(None),
            late: Cell::default(),
            counted: RefCell::new(None),
        })
    }

    fn update_taken(&self, change: impl FnOnce(&mut Taken)) {
        let mut taken = self.taken.get();
        change(&mut taken);
        self.taken.set(taken);
    }
    fn stopped(&self) -> bool {
        let dry = self.feed.ended.get() && self.feed.queue.borrow().is_empty();
        (dry || self.trouble.borrow().is_some()) && self.crew.workers.get() == 0
    }

    /// Sends the first workers off.
    fn begin(self: &Rc<Driver>) {
        self.depth.counted_to.set(env::now());
        let count = match self.replay.pace {
            Pace::Open { .. } => 1,
            Pace::Closed { depth } => depth,
        };
        for _ in 0..count {
            self.hire();
        }
    }

    fn hire(self: &Rc<Driver>) {
        self.crew.workers.set(self.crew.workers.get() + 1);
        let driver = Rc::clone(self);
        match self.replay.pace {
            Pace::Closed { .. } => drop(env::spawn(driver.closed_worker())),
            Pace::Open { speed } => {
                self.crew.herald.set(true);
                drop(env::spawn(driver.open_worker(speed)));
            }
        }
    }

    fn dismissed(&self) {
        self.crew.workers.set(self.crew.workers.get() - 1);
        if self.crew.workers.get() == 0 {
            self.crew.done.notify_all();
        }
    }

    /// Waits until the feed should be filled up, or all is over.
    async fn hungry_or_done(&self) {
        loop {
            if self.crew.workers.get() == 0 {
                return;
            }
            if !self.feed.ended.get() && self.feed.queue.borrow().len() <= FEED_LOW {
                return;
            }
            if self.feed.ended.get() {
                self.crew.done.wait().await;
            } else {
                self.feed.hungry.wait().await;
            }
        }
    }

    async fn closed_worker(self: Rc<Driver>) {
        while let Some(request) = self.next().await {
            if let Some(job) = self.prepare(&request, |_| env::now()) {
                self.arrive(&job);
                self.serve(job).await;
            }
        }
        self.dismissed();
    }

    async fn open_worker(self: Rc<Driver>, speed: f64) {
        // The herald until it has something to send; then another one is.
        while let Some(request) = self.next().await {
            let at = |first: Nanos| request.at.saturating_sub(first);
            let since = |first: Nanos| match speed == 1.0 {
                true => at(first),
                false => Nanos((at(first).0 as f64 / speed) as u64),
            };
            let Some(job) = self.prepare(&request, |first| self.origin + since(first)) else {
                continue;
            };
            if job.due.since(self.origin) > LONGEST {
                let at = at(self.taken.get().first.unwrap_or_default());
                let due = at.secs_f64() / speed;
                self.fail(Trouble::TooLong { at, due });
                continue;
            }
            if job.due > env::now() {
                env::sleep_until(job.due).await;
            }
            self.crew.herald.set(false);
            if self.crew.workers.get() < self.replay.under_way_max {
                self.hire();
            }
            self.arrive(&job);
            self.serve(job).await;
            if self.crew.herald.replace(true) {
                return self.dismissed();
            }
        }
        self.crew.herald.set(false);
        self.dismissed();
    }

    /// The next request of the trace; none when it has ended or something went wrong.
    async fn next(&self) -> Option<Request> {
        loop {
            if self.trouble.borrow().is_some() {
                return None;
            }
            let (next, left) = {
                let mut queue = self.feed.queue.borrow_mut();
                (queue.pop_front(), queue.len())
            };
            if next.is_some() {
                if left == FEED_LOW {
                    self.feed.hungry.notify_all();
                }
                return next;
            }
            if self.feed.ended.get() {
                return None;
            }
            self.feed.hungry.notify_all();
            self.feed.fed.wait().await;
        }
    }

    /// Where it goes and when, if it is to be replayed. `due` gets the time of the first one in the trace.
    fn prepare(
        self: &Rc<Driver>,
        request: &Request,
        due: impl Fn(Nanos) -> Instant,
    ) -> Option<Job> {
        let placed = self.layout.borrow_mut().place(request, self.size);
        let span = match placed {
            Ok(Placed::At(span)) => span,
            Ok(Placed::Nowhere) => Span::default(),
            Ok(Placed::LeftOut(reason)) => {
                self.update_taken(|taken| match reason {
                    Reason::Beyond => taken.left_out.beyond += 1,
                    Reason::OtherDevice => taken.left_out.other_devices += 1,
                    Reason::NoBytes => taken.left_out.no_bytes += 1,
                });
                return None;
            }
            Err(error) => {
                self.fail(Trouble::Layout(error));
                return None;
            }
        };
        let mut taken = self.taken.get();
        let due = due(*taken.first.get_or_insert(request.at));
        let warm = match self.replay.warm_up {
            WarmUp::None => false,
            WarmUp::Requests(count) => taken.requests < count,
            WarmUp::For(span) => due < self.origin + span,
        };
        taken.requests += 1;
        if warm {
            taken.warm_up_requests += 1;
        } else {
            taken.measured_from.get_or_insert(request.at);
            taken.measured_to = request.at;
        }
        self.taken.set(taken);
        Some(Job {
            op: request.op,
            span,
            due,
            measured: !warm,
        })
    }

    /// It is sent now.
    fn arrive(self: &Rc<Driver>, job: &Job) {
        let now = env::now();
        if job.measured {
            if self.counted.borrow().is_none() {
                self.measure(now);
            }
            let late = now.since(job.due);
            if late > Nanos(0) {
                let before = self.late.get();
                self.late.set(Late {
                    requests: before.requests + 1,
                    sum: before.sum + u128::from(late.0),
                    most: before.most.max(late),
                });
            }
            let at = (job.op != Op::Flush).then(|| job.span.start.byte());
            if let Some(counted) = &mut *self.counted.borrow_mut() {
                counted.tally.arrived(at, late);
            }
        }
        self.depth.step(now, 1);
    }

    async fn serve(&self, job: Job) {
        let answer = self.sender.carry_out(job.op, job.span).await;
        let now = env::now();
        self.depth.step(now, -1);
        match answer {
            Err(error) => self.fail(Trouble::Device(error)),
            Ok(()) if job.measured => {
                let due = job.due.since(self.origin);
                self.watch.answered(due, now.since(job.due));
                if let Some(counted) = &mut *self.counted.borrow_mut() {
                    let took = now.since(job.due);
                    counted.tally.answered(job.op, job.span.len.0, took);
                }
            }
            Ok(()) => {}
        }
    }

    fn fail(&self, trouble: Trouble) {
        self.trouble.borrow_mut().get_or_insert(trouble);
        self.feed.fed.notify_all();
        self.feed.hungry.notify_all();
    }

    // --- measuring --------------------------------------------------------------------------------

    /// From now on everything is counted.
    fn measure(self: &Rc<Driver>, now: Instant) {
        for device in &self.built.devices {
            device.meter.forget_deepest();
        }
        self.depth.count(now);
        self.depth.deepest.set(self.depth.now.get());
        let tally = Tally::new(now, self.replay.interval, self.replay.heat, self.size);
        *self.counted.borrow_mut() = Some(Counted {
            tally,
            base: self.snapshot(),
            last: self.snapshot(),
        });
        drop(env::spawn(Rc::clone(self).watch()));
    }

    /// Ends one bin after the other.
    async fn watch(self: Rc<Driver>) {
        loop {
            let boundary = (self.counted.borrow().as_ref()).and_then(|it| it.tally.boundary());
            let Some(boundary) = boundary else {
                return;
            };
            env::sleep_until(boundary).await;
            self.close_bin();
        }
    }

    fn snapshot(&self) -> Snapshot {
        self.depth.count(env::now());
        Snapshot::of(&self.built, self.depth.time.get())
    }

    fn close_bin(&self) {
        let next = self.snapshot();
        let mut counted = self.counted.borrow_mut();
        let Some(Counted { tally, last, .. }) = &mut *counted else {
            return;
        };
        let (before, after) = (last.hits(&self.built), next.hits(&self.built));
        let reading = Reading {
            devices: next.bins_since(last),
            depth_time: next.depth_time - last.depth_time,
            hit_bytes: after.0 - before.0,
            miss_bytes: after.1 - before.1,
            dirty: Bytes(next.statuses.iter().map(|status| status.dirty_bytes).sum()),
            resident: self.resident(),
        };
        tally.close(env::now(), reading);
        *last = next;
    }

    /// The share of each region on the fast device, where it is asked for.
    fn resident(&self) -> Vec<f32> {
        match (&self.built.top, self.replay.heat) {
            (Some(hybrid), true) => {
                let region = self.size.0.div_ceil(REGIONS as u64).max(1) as f64;
                let share = |bytes: Bytes| (bytes.0 as f64 / region).min(1.0) as f32;
                hybrid.residency(REGIONS).into_iter().map(share).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Everything, once no worker is left.
    fn outcome(&self) -> Result<Outcome, RunError> {
        if self.counted.borrow().is_none() {
            let taken = self.taken.get();
            return Err(match taken.warm_up_requests {
                0 => RunError::Empty {
                    left_out: taken.left_out.sum(),
                },
                requests => RunError::OnlyWarmUp { requests },
            });
        }
        self.close_bin();
        self.watch.end();
        let end = self.snapshot();
        let Counted { tally, base, .. } = self.counted.take().expect("looked at above");
        let seconds = env::now().since(tally.begun()).secs_f64();
        let counts = self.counts(&tally);
        let depth_time = end.depth_time - base.depth_time;
        let devices = self.built.devices.iter().enumerate();
        let devices: Vec<DeviceOutcome> = devices
            .map(|(index, device)| device_outcome(device, index, &base, &end, seconds))
            .collect();
        let hybrids = self.built.hybrids.iter();
        let caches = hybrids.zip(&base.statuses).zip(end.statuses);
        let joules = devices.iter().map(|device| device.joules).sum();
        Ok(Outcome {
            setup: self.setup(),
            speed: self.speed(&tally, &counts, seconds, depth_time),
            counts,
            energy: Energy {
                joules,
                watts: per_second(joules, seconds),
                spin_ups: devices.iter().map(|device| device.spin_ups).sum(),
            },
            devices,
            caches: caches
                .map(|(((name, _), before), status)| cache_outcome(name, before, status))
                .collect(),
            series: tally.series(self.built.top.is_some()),
            heat: tally.into_heat(),
            config: String::new(),
        })
    }

    fn setup(&self) -> Setup {
        Setup {
            stack: String::new(),
            volume: String::new(),
            volume_bytes: self.size.0,
            pace: self.replay.pace,
            warm_up: self.replay.warm_up,
            fit: self.replay.layout.fit(),
            limit: self.replay.limit,
            seed: self.replay.seed,
            trace_hash: String::new(),
        }
    }

    fn counts(&self, tally: &Tally) -> Counts {
        let taken = self.taken.get();
        let requests = [Op::Read, Op::Write, Op::Discard, Op::Flush].map(|op| tally.requests(op));
        let [reads, writes, discards, flushes] = requests;
        Counts {
            requests: requests.iter().sum(),
            reads,
            writes,
            discards,
            flushes,
            read_bytes: tally.bytes(Op::Read),
            written_bytes: tally.bytes(Op::Write),
            discarded_bytes: tally.bytes(Op::Discard),
            warm_up_requests: taken.warm_up_requests,
            left_out: taken.left_out,
        }
    }

    fn speed(&self, tally: &Tally, counts: &Counts, seconds: f64, depth_time: u128) -> Speed {
        let (taken, late) = (self.taken.get(), self.late.get());
        let from = taken.measured_from.unwrap_or_default();
        let moved = counts.read_bytes + counts.written_bytes;
        Speed {
            seconds,
            trace_seconds: taken.measured_to.saturating_sub(from).secs_f64(),
            iops: per_second(counts.requests as f64, seconds),
            bytes_per_second: per_second(moved as f64, seconds),
            responses: tally.responses(),
            queue_depth_mean: per_second(depth_time as f64 / 1e9, seconds),
            queue_depth_max: self.depth.deepest.get(),
            backlog: Backlog {
                under_way_max: self.replay.under_way_max as u64,
                late: late.requests,
                late_mean_s: late.sum as f64 / 1e9 / late.requests.max(1) as f64,
                late_max_s: late.most.secs_f64(),
            },
        }
    }
}
