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

use base::{Instant, Nanos, Span};
use device::DeviceError;
use env::sync::Event;

use super::account::Account;
use super::build::{Built, build};
use super::feed::{Chunks, FEED_LOW, Feed};
use super::layout::{Layout, LayoutError, Placed};
use super::outcome::Outcome;
use super::plan::{LONGEST, Pace, Replay, RunError, Stack, Watch};
use super::send::Sender;
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
    sender: Sender,
    watch: Rc<dyn Watch>,
    feed: Feed,
    origin: Instant,
    // What has been taken.
    layout: RefCell<Layout>,
    // What is under way.
    crew: Crew,
    trouble: RefCell<Option<Trouble>>,
    // What is counted.
    account: Account,
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
    let outcome = runtime.block_on(async move { finishing.account.outcome(&*finishing.watch) });
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
            sender: Sender::new(Rc::clone(&built.volume)),
            layout: RefCell::new(replay.layout.clone()),
            watch,
            feed: Feed::default(),
            origin: env::now(),
            crew: Crew::default(),
            trouble: RefCell::new(None),
            account: Account::new(built, replay),
        })
    }

    fn stopped(&self) -> bool {
        let dry = self.feed.ended.get() && self.feed.queue.borrow().is_empty();
        (dry || self.trouble.borrow().is_some()) && self.crew.workers.get() == 0
    }

    /// Sends the first workers off.
    fn begin(self: &Rc<Driver>) {
        self.account.depth.counted_to.set(env::now());
        let count = match self.account.replay.pace {
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
        match self.account.replay.pace {
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
                let at = at(self.account.taken.get().first.unwrap_or_default());
                let due = at.secs_f64() / speed;
                self.fail(Trouble::TooLong { at, due });
                continue;
            }
            if job.due > env::now() {
                env::sleep_until(job.due).await;
            }
            self.crew.herald.set(false);
            if self.crew.workers.get() < self.account.replay.under_way_max {
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
        let placed = self.layout.borrow_mut().place(request, self.account.size);
        let span = match placed {
            Ok(Placed::At(span)) => span,
            Ok(Placed::Nowhere) => Span::default(),
            Ok(Placed::LeftOut(reason)) => {
                self.account.left_out(reason);
                return None;
            }
            Err(error) => {
                self.fail(Trouble::Layout(error));
                return None;
            }
        };
        let due = due(self.account.first(request.at));
        let measured = self.account.take(request.at, due.since(self.origin));
        Some(Job {
            op: request.op,
            span,
            due,
            measured,
        })
    }

    /// It is sent now.
    fn arrive(self: &Rc<Driver>, job: &Job) {
        let now = env::now();
        if job.measured {
            if self.account.measure(now) {
                drop(env::spawn(Rc::clone(self).watch()));
            }
            let at = (job.op != Op::Flush).then(|| job.span.start.byte());
            self.account.arrived(at, now.since(job.due));
        }
        self.account.depth.step(now, 1);
    }

    /// Ends one bin after the other.
    async fn watch(self: Rc<Driver>) {
        while let Some(boundary) = self.account.boundary() {
            env::sleep_until(boundary).await;
            self.account.close_bin();
        }
    }

    async fn serve(&self, job: Job) {
        let answer = self.sender.carry_out(job.op, job.span).await;
        let now = env::now();
        self.account.depth.step(now, -1);
        match answer {
            Err(error) => self.fail(Trouble::Device(error)),
            Ok(()) if job.measured => {
                let took = now.since(job.due);
                self.watch.answered(job.due.since(self.origin), took);
                self.account.answered(job.op, job.span.len.0, took);
            }
            Ok(()) => {}
        }
    }

    fn fail(&self, trouble: Trouble) {
        self.trouble.borrow_mut().get_or_insert(trouble);
        self.feed.fed.notify_all();
        self.feed.hungry.notify_all();
    }
}
