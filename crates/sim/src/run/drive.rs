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
use std::collections::VecDeque;
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Nanos, Span, View};
use device::meter::Counters;
use device::{Class, Device, DeviceError, Power, WriteFlags};
use env::sync::{Event, join_all};
use hybrid::Status;

use super::build::{Built, Watched, build};
use super::layout::{Layout, LayoutError, Placed, Reason};
use super::outcome::{
    Backlog, CacheOutcome, ClassBytes, DeviceOutcome, FlashWork, LeftOut, Moved, Outcome,
};
use super::tally::{DeviceBin, REGIONS, Reading, Tally};
use super::{LONGEST, Pace, Replay, RunError, Stack, WarmUp, Watch};
use trace::{Op, Request, Requests};

/// The feed is filled up to this ...
const FEED_FULL: usize = 16_384;
/// ... when it has fallen to this.
const FEED_LOW: usize = 8_192;
/// The longest piece that is sent at once.
const PIECE: usize = 1 << 20;
/// Pieces of one request under way at once.
const PIECES: usize = 32;

/// Requests of the trace on their way to the workers.
#[derive(Default)]
struct Feed {
    queue: RefCell<VecDeque<Request>>,
    /// The trace has no more.
    ended: Cell<bool>,
    /// There is little left.
    hungry: Event,
    /// There is more again, or no more will come.
    fed: Event,
}

/// What is sent.
struct Job {
    op: Op,
    span: Span,
    /// When it should be sent.
    due: Instant,
    measured: bool,
}

/// Requests under way on the volume, over time.
#[derive(Default)]
struct Depth {
    now: Cell<u64>,
    deepest: Cell<u64>,
    /// Nanoseconds times requests.
    time: Cell<u128>,
    counted_to: Cell<Instant>,
}

impl Depth {
    fn count(&self, now: Instant) {
        let span = now.since(self.counted_to.replace(now)).0;
        let time = u128::from(self.now.get()) * u128::from(span);
        self.time.set(self.time.get() + time);
    }

    fn step(&self, now: Instant, by: i64) {
        self.count(now);
        let depth = self
            .now
            .get()
            .checked_add_signed(by)
            .expect("what ends has begun");
        self.now.set(depth);
        self.deepest.set(self.deepest.get().max(depth));
    }
}

/// What counters said at one moment.
struct Snapshot {
    counters: Vec<Counters>,
    powers: Vec<Power>,
    statuses: Vec<Status>,
    depth_time: u128,
}

struct Driver {
    // Fixed.
    built: Built,
    size: Bytes,
    piece: usize,
    zeroes: View,
    replay: Replay,
    watch: Rc<dyn Watch>,
    feed: Feed,
    // What has been taken.
    layout: RefCell<Layout>,
    origin: Instant,
    /// When the first request of the trace that was taken came, in the trace.
    first: Cell<Option<Nanos>>,
    /// When the first measured one did, and the last.
    measured_from: Cell<Option<Nanos>>,
    measured_to: Cell<Nanos>,
    taken: Cell<u64>,
    warm_up_requests: Cell<u64>,
    left_out: Cell<LeftOut>,
    // What is under way.
    workers: Cell<usize>,
    herald: Cell<bool>,
    depth: Depth,
    /// Requests sent late, the sum of their nanoseconds, and the most.
    late: Cell<(u64, u128, Nanos)>,
    trouble: RefCell<Option<Trouble>>,
    done: Event,
    // What is counted.
    tally: RefCell<Option<Tally>>,
    base: RefCell<Option<Snapshot>>,
    /// As of the last boundary.
    last: RefCell<Option<Snapshot>>,
    last_answer: Cell<Instant>,
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
    match driver.trouble.take() {
        Some(Trouble::Layout(source)) => {
            return Err(RunError::Layout {
                stack: stack.name.clone(),
                source: Box::new(trace.whole_extent(source, &driver)),
            });
        }
        Some(Trouble::TooLong { at, due }) => {
            return Err(RunError::TooLong {
                stack: stack.name.clone(),
                at,
                due,
            });
        }
        Some(Trouble::Device(source)) => {
            return Err(RunError::Device {
                stack: stack.name.clone(),
                source: Box::new(source),
            });
        }
        None => {}
    }
    progress(trace.taken);
    let finishing = Rc::clone(&driver);
    let outcome = runtime.block_on(async move { finishing.outcome() });
    outcome.map(|mut outcome| {
        outcome.stack.clone_from(&stack.name);
        outcome.volume.clone_from(&stack.volume);
        outcome.config.clone_from(&stack.config);
        outcome.trace_hash = format!("{:016x}", runtime.trace_hash());
        outcome
    })
}

/// The trace, filled into the feed in portions that do not depend on how it comes.
struct Chunks<'a> {
    requests: &'a mut dyn Requests,
    batch: Vec<Request>,
    at: usize,
    taken: u64,
    limit: u64,
}

impl<'a> Chunks<'a> {
    fn new(requests: &'a mut dyn Requests, limit: Option<u64>) -> Chunks<'a> {
        Chunks {
            requests,
            batch: Vec::new(),
            at: 0,
            taken: 0,
            limit: limit.unwrap_or(u64::MAX),
        }
    }

    /// Fills the queue; may more come?
    fn fill(&mut self, queue: &mut VecDeque<Request>) -> Result<bool, RunError> {
        while queue.len() < FEED_FULL {
            if self.at == self.batch.len() {
                self.at = 0;
                if self.taken == self.limit || !self.requests.next_batch(&mut self.batch)? {
                    self.batch.clear();
                    return Ok(false);
                }
            }
            let left = usize::try_from(self.limit - self.taken).unwrap_or(usize::MAX);
            let count = (self.batch.len() - self.at)
                .min(FEED_FULL - queue.len())
                .min(left);
            queue.extend(&self.batch[self.at..self.at + count]);
            self.at += count;
            self.taken += count as u64;
            if self.taken == self.limit {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the rest of the trace, so that an error names the size that would do for all of it.
    fn whole_extent(&mut self, error: LayoutError, driver: &Driver) -> LayoutError {
        let LayoutError::Beyond {
            mut reaches,
            volume,
            mut needed,
        } = error
        else {
            return error;
        };
        let mut layout = driver.layout.borrow_mut();
        let mut rest: Vec<Request> = driver.feed.queue.borrow_mut().drain(..).collect();
        rest.extend(&self.batch[self.at..]);
        loop {
            for request in &rest {
                // What else is wrong with the trace is not asked any more.
                if let Err(LayoutError::Beyond {
                    reaches: also,
                    needed: room,
                    ..
                }) = layout.place(request, volume)
                {
                    reaches = reaches.max(also);
                    needed = needed.max(room);
                }
            }
            if !matches!(self.requests.next_batch(&mut rest), Ok(true)) {
                break;
            }
        }
        LayoutError::Beyond {
            reaches,
            volume,
            needed,
        }
    }
}

impl Driver {
    fn new(built: Built, replay: Replay, watch: Rc<dyn Watch>) -> Rc<Driver> {
        let info = built.volume.info();
        let now = env::now();
        Rc::new(Driver {
            size: info.size,
            piece: info.max_io.usize().min(PIECE),
            zeroes: Buf::zeroed(PIECE).freeze(),
            layout: RefCell::new(replay.layout.clone()),
            built,
            replay,
            watch,
            feed: Feed::default(),
            origin: now,
            first: Cell::new(None),
            measured_from: Cell::default(),
            measured_to: Cell::default(),
            taken: Cell::new(0),
            warm_up_requests: Cell::new(0),
            left_out: Cell::default(),
            workers: Cell::new(0),
            herald: Cell::new(false),
            depth: Depth::default(),
            late: Cell::default(),
            trouble: RefCell::new(None),
            done: Event::default(),
            tally: RefCell::new(None),
            base: RefCell::new(None),
            last: RefCell::new(None),
            last_answer: Cell::new(now),
        })
    }

    fn stopped(&self) -> bool {
        let dry = self.feed.ended.get() && self.feed.queue.borrow().is_empty();
        (dry || self.trouble.borrow().is_some()) && self.workers.get() == 0
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
        self.workers.set(self.workers.get() + 1);
        let driver = Rc::clone(self);
        match self.replay.pace {
            Pace::Closed { .. } => drop(env::spawn(driver.closed_worker())),
            Pace::Open { speed } => {
                self.herald.set(true);
                drop(env::spawn(driver.open_worker(speed)));
            }
        }
    }

    fn dismissed(&self) {
        self.workers.set(self.workers.get() - 1);
        if self.workers.get() == 0 {
            self.done.notify_all();
        }
    }

    /// Waits until the feed should be filled up, or all is over.
    async fn hungry_or_done(&self) {
        loop {
            if self.workers.get() == 0 {
                return;
            }
            if !self.feed.ended.get() && self.feed.queue.borrow().len() <= FEED_LOW {
                return;
            }
            if self.feed.ended.get() {
                self.done.wait().await;
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
                let at = at(self.first.get().unwrap_or_default());
                let due = at.secs_f64() / speed;
                self.fail(Trouble::TooLong { at, due });
                continue;
            }
            if job.due > env::now() {
                env::sleep_until(job.due).await;
            }
            self.herald.set(false);
            if self.workers.get() < self.replay.under_way_max {
                self.hire();
            }
            self.arrive(&job);
            self.serve(job).await;
            if self.herald.replace(true) {
                return self.dismissed();
            }
        }
        self.herald.set(false);
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
                let mut left_out = self.left_out.get();
                match reason {
                    Reason::Beyond => left_out.beyond += 1,
                    Reason::OtherDevice => left_out.other_devices += 1,
                    Reason::NoBytes => left_out.no_bytes += 1,
                }
                self.left_out.set(left_out);
                return None;
            }
            Err(error) => {
                self.fail(Trouble::Layout(error));
                return None;
            }
        };
        let first = self.first.get().unwrap_or(request.at);
        self.first.set(Some(first));
        let due = due(first);
        let taken = self.taken.get();
        self.taken.set(taken + 1);
        let warm = match self.replay.warm_up {
            WarmUp::None => false,
            WarmUp::Requests(count) => taken < count,
            WarmUp::For(span) => due < self.origin + span,
        };
        if warm {
            self.warm_up_requests.set(self.warm_up_requests.get() + 1);
        } else {
            let from = self.measured_from.get().unwrap_or(request.at);
            self.measured_from.set(Some(from));
            self.measured_to.set(request.at);
        }
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
            if self.tally.borrow().is_none() {
                self.measure(now);
            }
            let late = now.since(job.due);
            if late > Nanos(0) {
                let (count, sum, max) = self.late.get();
                self.late
                    .set((count + 1, sum + u128::from(late.0), max.max(late)));
            }
            let at = (job.op != Op::Flush).then(|| job.span.start.byte());
            if let Some(tally) = &mut *self.tally.borrow_mut() {
                tally.arrived(at, late);
            }
        }
        self.depth.step(now, 1);
    }

    async fn serve(&self, job: Job) {
        let answer = self.carry_out(&job).await;
        let now = env::now();
        self.depth.step(now, -1);
        match answer {
            Err(error) => self.fail(Trouble::Device(error)),
            Ok(()) if job.measured => {
                self.last_answer.set(now);
                let due = job.due.since(self.origin);
                self.watch.answered(due, now.since(job.due));
                if let Some(tally) = &mut *self.tally.borrow_mut() {
                    tally.answered(job.op, job.span.len.0, now.since(job.due));
                }
            }
            Ok(()) => {}
        }
    }

    async fn carry_out(&self, job: &Job) -> Result<(), DeviceError> {
        let volume = &self.built.volume;
        let len = job.span.len.usize();
        match job.op {
            Op::Read if len <= self.piece => {
                let buf = Buf::for_read(len);
                volume
                    .read(job.span.start, buf, Class::Foreground)
                    .await
                    .map(drop)
            }
            Op::Write if len <= self.piece => {
                let data = self.zeroes.slice(0, len);
                volume
                    .write(job.span.start, data, WriteFlags::default())
                    .await
            }
            Op::Read | Op::Write => self.in_pieces(job).await,
            Op::Discard => volume.discard(job.span).await,
            Op::Flush => volume.flush().await,
        }
    }

    /// A long request, as a kernel would send it.
    async fn in_pieces(&self, job: &Job) -> Result<(), DeviceError> {
        let (mut from, end) = (job.span.start.byte(), job.span.end().byte());
        while from < end {
            let mut pieces = Vec::new();
            while from < end && pieces.len() < PIECES {
                let len = (end - from).min(self.piece as u64);
                let op = job.op;
                let piece = Job {
                    op,
                    span: Span::bytes(from, len),
                    ..*job
                };
                from += len;
                pieces.push(async move { Box::pin(self.carry_out(&piece)).await });
            }
            join_all(pieces)
                .await
                .into_iter()
                .collect::<Result<(), _>>()?;
        }
        Ok(())
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
        *self.base.borrow_mut() = Some(self.snapshot());
        *self.last.borrow_mut() = Some(self.snapshot());
        let tally = Tally::new(now, self.replay.interval, self.replay.heat, self.size);
        *self.tally.borrow_mut() = Some(tally);
        drop(env::spawn(Rc::clone(self).watch()));
    }

    /// Ends one bin after the other.
    async fn watch(self: Rc<Driver>) {
        loop {
            let boundary = self.tally.borrow().as_ref().and_then(Tally::boundary);
            let Some(boundary) = boundary else {
                return;
            };
            env::sleep_until(boundary).await;
            self.close_bin();
        }
    }

    fn snapshot(&self) -> Snapshot {
        let now = env::now();
        self.depth.count(now);
        let devices = &self.built.devices;
        let power = |device: &Watched| device.model.power().expect("a model knows its power");
        Snapshot {
            counters: devices.iter().map(|it| it.meter.counters()).collect(),
            powers: devices.iter().map(power).collect(),
            statuses: self
                .built
                .hybrids
                .iter()
                .map(|(_, hybrid)| hybrid.status())
                .collect(),
            depth_time: self.depth.time.get(),
        }
    }

    fn close_bin(&self) {
        let (Some(last), now) = (self.last.replace(None), env::now()) else {
            return;
        };
        let next = self.snapshot();
        let devices = (0..next.counters.len()).map(|index| {
            let since = next.counters[index].since(&last.counters[index]);
            DeviceBin {
                read: since.all(device::Op::Read).bytes,
                written: since.all(device::Op::Write).bytes,
                depth_time: since.depth_time,
                busy: since.busy,
                joules: next.powers[index].joules - last.powers[index].joules,
            }
        });
        let hits = |snapshot: &Snapshot| match self.top_status(snapshot) {
            Some(status) => (fast_bytes(status), slow_bytes(status)),
            None => (0, 0),
        };
        let (before, after) = (hits(&last), hits(&next));
        let resident = match (&self.built.top, self.replay.heat) {
            (Some(hybrid), true) => {
                let region = self.size.0.div_ceil(REGIONS as u64).max(1) as f64;
                let share = |bytes: Bytes| (bytes.0 as f64 / region).min(1.0) as f32;
                hybrid.residency(REGIONS).into_iter().map(share).collect()
            }
            _ => Vec::new(),
        };
        let reading = Reading {
            devices: devices.collect(),
            depth_time: next.depth_time - last.depth_time,
            hit_bytes: after.0 - before.0,
            miss_bytes: after.1 - before.1,
            dirty: Bytes(next.statuses.iter().map(|status| status.dirty_bytes).sum()),
            resident,
        };
        if let Some(tally) = &mut *self.tally.borrow_mut() {
            tally.close(now, reading);
        }
        *self.last.borrow_mut() = Some(next);
    }

    /// The status of the hybrid that is the volume.
    fn top_status<'s>(&self, snapshot: &'s Snapshot) -> Option<&'s Status> {
        let top = self.built.top.as_ref()?;
        let mut named = self.built.hybrids.iter().zip(&snapshot.statuses);
        named
            .find(|((_, hybrid), _)| Rc::ptr_eq(hybrid, top))
            .map(|(_, status)| status)
    }

    /// Everything, once no worker is left.
    fn outcome(&self) -> Result<Outcome, RunError> {
        let left_out = self.left_out.get();
        if self.tally.borrow().is_none() {
            return Err(match self.warm_up_requests.get() {
                0 => RunError::Empty {
                    left_out: left_out.sum(),
                },
                requests => RunError::OnlyWarmUp { requests },
            });
        }
        self.close_bin();
        self.watch.end();
        let end = self.snapshot();
        let base = self
            .base
            .replace(None)
            .expect("taken when the measurement began");
        let tally = self.tally.replace(None).expect("looked at above");
        let measured = env::now().since(tally.begun());
        let seconds = measured.secs_f64();
        let per_second = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        let devices: Vec<DeviceOutcome> = (0..self.built.devices.len())
            .map(|index| self.device_outcome(index, &base, &end, seconds))
            .collect();
        let caches = self
            .built
            .hybrids
            .iter()
            .zip(&base.statuses)
            .zip(end.statuses);
        let caches: Vec<CacheOutcome> = caches
            .map(|(((name, _), before), status)| cache_outcome(name, before, status))
            .collect();
        let requests = [Op::Read, Op::Write, Op::Discard, Op::Flush].map(|op| tally.requests(op));
        let [reads, writes, discards, flushes] = requests;
        let moved = tally.bytes(Op::Read) + tally.bytes(Op::Write);
        let joules = devices.iter().map(|device| device.joules).sum();
        let (late, late_sum, late_max) = self.late.get();
        Ok(Outcome {
            stack: String::new(),
            volume: String::new(),
            volume_bytes: self.size.0,
            pace: self.replay.pace,
            warm_up: self.replay.warm_up,
            fit: self.replay.layout.fit(),
            limit: self.replay.limit,
            seed: self.replay.seed,
            trace_hash: String::new(),
            requests: requests.iter().sum(),
            reads,
            writes,
            discards,
            flushes,
            read_bytes: tally.bytes(Op::Read),
            written_bytes: tally.bytes(Op::Write),
            discarded_bytes: tally.bytes(Op::Discard),
            warm_up_requests: self.warm_up_requests.get(),
            left_out,
            seconds,
            trace_seconds: self
                .measured_to
                .get()
                .saturating_sub(self.measured_from.get().unwrap_or_default())
                .secs_f64(),
            iops: per_second(requests.iter().sum::<u64>() as f64),
            bytes_per_second: per_second(moved as f64),
            responses: tally.responses(),
            queue_depth_mean: per_second((end.depth_time - base.depth_time) as f64 / 1e9),
            queue_depth_max: self.depth.deepest.get(),
            backlog: Backlog {
                under_way_max: self.replay.under_way_max as u64,
                late,
                late_mean_s: late_sum as f64 / 1e9 / late.max(1) as f64,
                late_max_s: late_max.secs_f64(),
            },
            joules,
            watts: per_second(joules),
            spin_ups: devices.iter().map(|device| device.spin_ups).sum(),
            devices,
            caches,
            series: tally.series(self.built.top.is_some()),
            heat: tally.into_heat(),
            config: String::new(),
        })
    }

    fn device_outcome(
        &self,
        index: usize,
        base: &Snapshot,
        end: &Snapshot,
        seconds: f64,
    ) -> DeviceOutcome {
        let device = &self.built.devices[index];
        let since = end.counters[index].since(&base.counters[index]);
        let per_second = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        let joules = end.powers[index].joules - base.powers[index].joules;
        DeviceOutcome {
            name: device.name.clone(),
            model: device.spec_name.clone(),
            size_bytes: device.size.0,
            read: moved(&since, device::Op::Read),
            written: moved(&since, device::Op::Write),
            flushes: since.all(device::Op::Flush).requests,
            queue_depth_mean: per_second(since.depth_time as f64 / 1e9),
            queue_depth_max: since.deepest,
            utilisation: per_second(since.busy.secs_f64()),
            joules,
            watts: per_second(joules),
            spin_ups: end.powers[index].spin_ups - base.powers[index].spin_ups,
            states: device.model.spent(),
            flash: device.model.flash_work().map(FlashWork::from),
        }
    }
}

fn moved(since: &Counters, op: device::Op) -> Moved {
    let class = |class| since.of(op, class).bytes;
    let all = since.all(op);
    Moved {
        requests: all.requests,
        bytes: all.bytes,
        by_class: ClassBytes {
            foreground: class(Class::Foreground),
            metadata: class(Class::Metadata),
            background: class(Class::Background),
        },
    }
}

fn fast_bytes(status: &Status) -> u64 {
    status.random_reads.bytes_fast + status.sequential_reads.bytes_fast
}

fn slow_bytes(status: &Status) -> u64 {
    status.random_reads.bytes_slow + status.sequential_reads.bytes_slow
}

fn cache_outcome(name: &str, before: &Status, status: Status) -> CacheOutcome {
    let hit_bytes = fast_bytes(&status) - fast_bytes(before);
    let miss_bytes = slow_bytes(&status) - slow_bytes(before);
    let share = |part: u64, all: u64| (all > 0).then(|| part as f64 / all as f64);
    let requests = |status: &Status| {
        let shares = [status.random_reads, status.sequential_reads];
        let fast: u64 = shares.iter().map(|share| share.requests_fast).sum();
        let other: u64 = shares
            .iter()
            .map(|share| share.requests_slow + share.requests_both)
            .sum();
        (fast, fast + other)
    };
    let ((fast, all), (fast_before, all_before)) = (requests(&status), requests(before));
    let pages = |now: u64, then: u64| (now - then) * base::PAGE as u64;
    CacheOutcome {
        name: name.to_owned(),
        hit_bytes,
        miss_bytes,
        hit_share: share(hit_bytes, hit_bytes + miss_bytes),
        request_hit_share: share(fast - fast_before, all - all_before),
        promoted_bytes: pages(status.fills, before.fills),
        evicted_bytes: pages(status.evicted, before.evicted),
        flash_data_bytes: status.fast_bytes_written - before.fast_bytes_written,
        flash_ledger_bytes: status.ledger_bytes_written - before.ledger_bytes_written,
        written_back_bytes: status.bytes_cleaned - before.bytes_cleaned,
        dirty_bytes: status.dirty_bytes,
        cached_bytes: status.cached_bytes,
        room_bytes: status.cache_bytes,
        status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_queue_is_counted_over_days() {
        let depth = Depth::default();
        depth.step(Instant(0), 65_536);
        let days = Instant(0) + Nanos::secs(10 * 86_400);
        depth.step(days, -65_536);
        assert_eq!(depth.time.get(), 65_536 * u128::from(days.0));
    }
}
