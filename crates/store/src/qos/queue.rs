//! The one queue of a device: every request waits here, and one scheduler says which is next.
//!
//! ```text
//! read, write (class) -> lane -> Scheduler::next -> a piece at the device -> completed -> next ...
//!   Session(n): session n | Foreground: best effort | Background: floor, ceiling | Metadata: first
//! ```
//!
//! A [`Queue`] is a device in front of a device, so whatever stands on it needs not know: a store sends its requests
//! with the [`Class`] it was given. Requests are cut in pieces as the scheduler says; a request is complete with
//! its last piece. Flushes and discards do not wait in the queue: they carry no data.
//!
//! Source: PROBS 3.1 (one queue per access, the I/O thread, a commit at the end of a round).
//!
//! Always true:
//! 1. A request is answered once, after its last piece, with the first error of any piece.
//! 2. What was asked for in the name of a session that was closed is still done, as best effort.
//! 3. Nothing is served from a queue that a panic left half changed: such a panic ends its thread, also where it is caught.

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};

use base::{Buf, Bytes, Instant, Nanos, SECTOR, Sector, Span, View};
use device::{Class, Device, DeviceError, Info, Pending, Power, WriteFlags};
use env::Critical;
use env::sync::Event;
use policy::share::capacity::Interval;
use policy::share::{
    BytesPerSec, Closed, Costs, Direction, Dispatch, EnqueueError, Event as Happened, Kind, Lane,
    Next, OpenError, Options, Request, Scheduler, SessionCounters, SessionId, Terms, Ticket,
    Totals, build,
};

/// Makes durable what is pending, when the scheduler asks for it.
pub type CommitHook = Rc<dyn Fn() -> Pin<Box<dyn Future<Output = ()>>>>;

/// How a device's queue is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueOptions {
    /// Which scheduler.
    pub kind: Kind,
    /// What it is built with.
    pub share: Options,
    /// Background work gets at least this much.
    pub floor: BytesPerSec,
    /// And at most this much.
    pub ceiling: BytesPerSec,
}

impl QueueOptions {
    /// Reservation tags on a device that costs this; background work gets a twentieth at least and a half at most.
    pub fn new(costs: Costs) -> QueueOptions {
        let least = costs.read.rate.min(costs.write.rate).0;
        QueueOptions {
            kind: Kind::default(),
            share: Options::new(costs),
            floor: BytesPerSec(least / 20),
            ceiling: BytesPerSec(least / 2),
        }
    }
}

/// What is to be done.
enum Work {
    Read {
        rest: Option<Buf>,
        done: Vec<Option<Buf>>,
    },
    Write {
        data: View,
        fua: bool,
    },
}

/// A request on its way.
struct Job {
    at: Sector,
    class: Class,
    work: Work,
    /// Where the queued request begins, and what of it was handed out.
    base: Bytes,
    sent: Bytes,
    /// Pieces at the device, and whether more will come.
    out: usize,
    all_out: bool,
    failed: Option<DeviceError>,
    /// No task waits for the answer any more.
    abandoned: bool,
    /// Notified when the answer is there.
    answered: Rc<Event>,
}

impl Job {
    fn is_done(&self) -> bool {
        self.all_out && self.out == 0
    }
}

/// A task waits for an answer. If it goes before that, the request is done all the same, once it is queued.
struct Asked<'a> {
    queue: &'a Queue,
    ticket: Ticket,
    in_line: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let jobs = &mut self.queue.state.change().jobs;
        match jobs.get_mut(&self.ticket) {
            Some(job) if self.in_line && !job.is_done() => job.abandoned = true,
            _ => drop(jobs.remove(&self.ticket)),
        }
    }
}

/// What the device did since the last look.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    since: Instant,
    busy_since: Option<Instant>,
    busy: Nanos,
    /// The same of anything at the device.
    active_since: Option<Instant>,
    active: Nanos,
    read_work: Nanos,
    write_work: Nanos,
}

struct State {
    scheduler: Box<dyn Scheduler>,
    jobs: BTreeMap<Ticket, Job>,
    next_ticket: u64,
    /// Where the last request of each session and direction ended.
    ends: BTreeMap<(SessionId, Direction), Sector>,
    at_device: usize,
    /// Where the last piece sent to the device ends.
    head: Option<Sector>,
    done: Done,
    /// Requests of closed sessions that found no place as best effort yet.
    left_over: VecDeque<Request>,
}

/// A device whose users share one queue, by the decisions of one scheduler. See the module's head.
///
/// # Example
/// ```
/// use base::{Bytes, Sector};
/// use device::{Class, Device};
/// use policy::share::{BytesPerSec, Costs, Direction, Terms};
/// use store::qos::queue::{Queue, QueueOptions};
/// env::Runtime::simulated(1).block_on(async {
///     let disk = device::Memory::new("disk", Bytes::mib(16));
///     let queue = Queue::new(disk, QueueOptions::new(Costs::flat(BytesPerSec::mb(100))));
///     let session = queue.open(Terms::reserved(Direction::Read, BytesPerSec::mb(80))).unwrap();
///     let buf = base::Buf::for_read(1 << 20);
///     queue.read(Sector(0), buf, Class::Session(session.0)).await.unwrap();
///     assert_eq!(queue.figures(session).unwrap().delivered, Bytes::mib(1));
/// });
/// ```
pub struct Queue {
    device: Rc<dyn Device>,
    kind: Kind,
    costs: Cell<Costs>,
    best_effort: SessionId,
    background: SessionId,
    state: Critical<State>,
    /// The moments at which a task wakes up to ask the scheduler again.
    alarms: RefCell<BTreeSet<Instant>>,
    commit: RefCell<Option<CommitHook>>,
    /// A request left its flow.
    room: Event,
    me: Weak<Queue>,
}

impl Queue {
    /// The queue of `device`.
    ///
    /// # Panics
    /// If `options` allow fewer than two sessions, or a ceiling below the floor.
    pub fn new(device: Rc<dyn Device>, options: QueueOptions) -> Rc<Queue> {
        let now = env::now();
        let mut scheduler = build(options.kind, &options.share);
        let best_effort = scheduler.open(now, Terms::best_effort());
        let terms = Terms::background(Direction::Read, options.floor, options.ceiling);
        let background = scheduler.open(now, terms);
        let done = Done {
            since: now,
            ..Done::default()
        };
        Rc::new_cyclic(|me| Queue {
            device,
            kind: options.kind,
            costs: Cell::new(options.share.costs),
            best_effort: best_effort.expect("the first session"),
            background: background.expect("a ceiling above the floor"),
            state: Critical::new(State {
                scheduler,
                jobs: BTreeMap::new(),
                next_ticket: 0,
                ends: BTreeMap::new(),
                at_device: 0,
                head: None,
                done,
                left_over: VecDeque::new(),
            }),
            alarms: RefCell::default(),
            commit: RefCell::new(None),
            room: Event::default(),
            me: me.clone(),
        })
    }

    /// Which scheduler decides.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What is to be done when the scheduler asks for a commit; unless set, the device is flushed.
    pub fn on_commit(&self, hook: CommitHook) {
        *self.commit.borrow_mut() = Some(hook);
    }

    /// Opens a session: requests of [`Class::Session`] with its number are served by its terms.
    ///
    /// # Errors
    /// [`OpenError`] if there are too many, or the terms contradict themselves.
    pub fn open(&self, terms: Terms) -> Result<SessionId, OpenError> {
        self.state.change().scheduler.open(env::now(), terms)
    }

    /// Ends a session; what still waits in it is done as best effort. `None` if there is none of this number.
    pub fn close(&self, session: SessionId) -> Option<Closed> {
        let now = env::now();
        let mut state = self.state.change();
        let closed = state.scheduler.close(now, session)?;
        state.ends.retain(|(known, _), _| *known != session);
        for ticket in &closed.unserved {
            let rest = state.rest(*ticket);
            state.left_over.push_back(rest);
        }
        drop(state);
        self.pump();
        Some(closed)
    }

    /// What a session was promised and got.
    pub fn figures(&self, session: SessionId) -> Option<SessionCounters> {
        self.state.change().scheduler.figures(env::now(), session)
    }

    /// The figures of all that nothing was promised to, and of background work.
    pub fn unpromised(&self) -> (SessionCounters, SessionCounters) {
        let of = |session| self.figures(session).expect("open as long as the queue");
        (of(self.best_effort), of(self.background))
    }

    /// Sums over all sessions.
    pub fn totals(&self) -> Totals {
        self.state.borrow().scheduler.totals()
    }

    /// Pieces that may be at the device at once, as of now.
    pub fn depth(&self) -> u32 {
        self.state.borrow().scheduler.depth()
    }

    /// What happened since the last call.
    pub fn take_events(&self) -> Vec<Happened> {
        self.state.change().scheduler.take_events()
    }

    /// What the device is taken to cost.
    pub fn costs(&self) -> Costs {
        self.costs.get()
    }

    /// The device is taken to cost this from now on.
    pub fn set_costs(&self, costs: Costs) {
        self.costs.set(costs);
        self.state.change().scheduler.set_costs(env::now(), costs);
        self.pump();
    }

    /// What the device did since the last call, for an estimator of its capacity. Only time in which as much was at the
    /// device as may be counts as backlogged: else it waited for users, not they for it.
    pub fn take_interval(&self) -> Interval {
        let now = env::now();
        let mut state = self.state.change();
        state.count_busy(now);
        let done = std::mem::take(&mut state.done);
        state.done.since = now;
        state.done.busy_since = done.busy_since;
        state.done.active_since = done.active_since;
        Interval {
            length: now.since(done.since),
            backlogged: done.busy,
            active: done.active,
            read_work: done.read_work,
            write_work: done.write_work,
        }
    }

    /// Puts a request in its flow and waits for its answer.
    async fn submit(
        &self,
        at: Sector,
        len: u64,
        class: Class,
        work: Work,
    ) -> Result<Work, DeviceError> {
        let answered = Rc::new(Event::default());
        let direction = match work {
            Work::Read { .. } => Direction::Read,
            Work::Write { .. } => Direction::Write,
        };
        let ticket = {
            let mut state = self.state.change();
            let ticket = Ticket(state.next_ticket);
            state.next_ticket += 1;
            let job = Job {
                at,
                class,
                work,
                base: Bytes(0),
                sent: Bytes(0),
                out: 0,
                all_out: false,
                failed: None,
                abandoned: false,
                answered: Rc::clone(&answered),
            };
            state.jobs.insert(ticket, job);
            ticket
        };
        let mut asked = Asked {
            queue: self,
            ticket,
            in_line: false,
        };
        let bytes = Bytes(len);
        while let Err(EnqueueError::Full { .. }) = self.enqueue(ticket, direction, at, bytes, class)
        {
            self.room.wait().await;
        }
        asked.in_line = true;
        self.pump();
        loop {
            if self.state.borrow().jobs[&ticket].is_done() {
                let job = self.state.change().jobs.remove(&ticket);
                let job = job.expect("only the asker takes its answer");
                return job.failed.map_or(Ok(job.work), Err);
            }
            answered.wait().await;
        }
    }

    fn enqueue(
        &self,
        ticket: Ticket,
        direction: Direction,
        at: Sector,
        bytes: Bytes,
        class: Class,
    ) -> Result<(), EnqueueError> {
        let lane = match class {
            Class::Metadata => Lane::Metadata { charged: None },
            Class::Session(number) => Lane::Session(SessionId(number)),
            Class::Background => Lane::Session(self.background),
            Class::Foreground => Lane::Session(self.best_effort),
        };
        let request = Request {
            ticket,
            direction,
            bytes,
            sequential: false,
        };
        let mut state = self.state.change();
        match state.enqueue(lane, at, request) {
            // It was closed, or never opened.
            Err(EnqueueError::NoSession(_)) => {
                state.enqueue(Lane::Session(self.best_effort), at, request)
            }
            done => done,
        }
    }

    /// Does what the scheduler says until it has nothing more to say.
    fn pump(&self) {
        // What the scheduler handed out must reach the device.
        let _section = env::critical_section();
        self.state.change().take_over(self.best_effort);
        loop {
            let next = self.state.change().scheduler.next(env::now());
            match next {
                Next::Dispatch(dispatch) => self.send(dispatch),
                Next::Commit => self.commit(),
                Next::Wait(until) => return self.wake_at(until),
                Next::Idle => return,
            }
        }
    }

    fn wake_at(&self, until: Instant) {
        let mut alarms = self.alarms.borrow_mut();
        // A task that wakes up before asks what is next by then.
        if alarms.first().is_some_and(|set| *set <= until) || !alarms.insert(until) {
            return;
        }
        let me = self.me.clone();
        env::spawn(async move {
            env::sleep_until(until).await;
            let Some(queue) = me.upgrade() else { return };
            queue.alarms.borrow_mut().remove(&until);
            queue.pump();
        });
    }

    fn commit(&self) {
        let Some(me) = self.me.upgrade() else { return };
        let hook = self.commit.borrow().clone();
        env::spawn(async move {
            match hook {
                Some(hook) => hook().await,
                // A client that needs it durable flushes and sees the error.
                None => drop(me.device.flush().await),
            }
            me.state.change().scheduler.committed(env::now());
            me.pump();
        });
    }

    /// Sends one piece to the device.
    fn send(&self, dispatch: Dispatch) {
        let Some(me) = self.me.upgrade() else { return };
        let costs = self.costs.get();
        let (place, piece, work) = self.state.change().piece(env::now(), &dispatch, &costs);
        self.room.notify_all();
        env::spawn(async move {
            let answer = match piece {
                Piece::Skip => Err(None),
                Piece::Read { at, buf, class } => {
                    let read = me.device.read(at, buf, class).await;
                    read.map(Some).map_err(Some)
                }
                Piece::Write { at, data, flags } => {
                    let written = me.device.write(at, data, flags).await;
                    written.map(|()| None).map_err(Some)
                }
            };
            me.state
                .change()
                .answered(env::now(), &dispatch, (place, work), answer);
            me.pump();
        });
    }
}

/// A piece of a request, ready for the device.
enum Piece {
    /// Another piece failed: the request has its answer.
    Skip,
    Read {
        at: Sector,
        buf: Buf,
        class: Class,
    },
    Write {
        at: Sector,
        data: View,
        flags: WriteFlags,
    },
}

impl State {
    /// Was as much at the device as may be until now, and is it from now on?
    fn count_busy(&mut self, now: Instant) {
        let busy = self.at_device >= self.scheduler.depth() as usize;
        let since = std::mem::replace(&mut self.done.busy_since, busy.then_some(now));
        if let Some(since) = since {
            self.done.busy += now.since(since);
        }
        let active = (self.at_device > 0).then_some(now);
        if let Some(since) = std::mem::replace(&mut self.done.active_since, active) {
            self.done.active += now.since(since);
        }
    }

    /// The device time of a piece, for the estimate of what the device can do. A stream that goes on where it stopped is
    /// charged no jump, whatever else was served in between; the device's heads had to come back to it all the same.
    fn work_of(&mut self, dispatch: &Dispatch, at: Sector, costs: &Costs) -> Nanos {
        let follows = self.head == Some(at);
        self.head = Some(Sector(at.0 + dispatch.bytes.0 / SECTOR));
        match dispatch.sequential && !follows {
            true => dispatch.charge + costs.direction(dispatch.direction).jump,
            false => dispatch.charge,
        }
    }

    /// Puts a request in its flow; whether it follows on the one before in this flow is seen here.
    fn enqueue(&mut self, lane: Lane, at: Sector, request: Request) -> Result<(), EnqueueError> {
        let Lane::Session(session) = lane else {
            return self.scheduler.enqueue(env::now(), lane, request);
        };
        let stream = (session, request.direction);
        let sequential = self.ends.get(&stream) == Some(&at);
        let request = Request {
            sequential,
            ..request
        };
        self.scheduler.enqueue(env::now(), lane, request)?;
        self.ends
            .insert(stream, Sector(at.0 + request.bytes.0 / SECTOR));
        Ok(())
    }

    /// What of a request is not handed out, to be queued anew.
    fn rest(&mut self, ticket: Ticket) -> Request {
        let job = self.jobs.get_mut(&ticket).expect("in line, not answered");
        job.base = job.sent;
        let (direction, len) = match &job.work {
            Work::Read { rest, .. } => (Direction::Read, rest.as_ref().map_or(0, |buf| buf.len())),
            Work::Write { data, .. } => (Direction::Write, data.len() - job.sent.usize()),
        };
        Request {
            ticket,
            direction,
            bytes: Bytes(len as u64),
            sequential: false,
        }
    }

    /// Requests of closed sessions go on as best effort, as far as there is room in that flow.
    fn take_over(&mut self, best_effort: SessionId) {
        while let Some(request) = self.left_over.front() {
            let lane = Lane::Session(best_effort);
            if self.scheduler.enqueue(env::now(), lane, *request).is_err() {
                return;
            }
            self.left_over.pop_front();
        }
    }

    /// Cuts the piece off its request, and returns which of its pieces it is.
    fn piece(&mut self, now: Instant, dispatch: &Dispatch, costs: &Costs) -> (usize, Piece, Nanos) {
        self.at_device += 1;
        self.count_busy(now);
        let at = {
            let job = &self.jobs[&dispatch.ticket];
            Sector(job.at.0 + (job.base + dispatch.offset).0 / SECTOR)
        };
        let work = self.work_of(dispatch, at, costs);
        let (place, piece) = self.cut_off(dispatch, at);
        (place, piece, work)
    }

    fn cut_off(&mut self, dispatch: &Dispatch, at: Sector) -> (usize, Piece) {
        let job = self
            .jobs
            .get_mut(&dispatch.ticket)
            .expect("handed out, not answered");
        job.out += 1;
        job.all_out = dispatch.last;
        let from = job.base + dispatch.offset;
        let (from, len) = (from.usize(), dispatch.bytes.usize());
        job.sent = Bytes((from + len) as u64);
        let class = job.class;
        let failed = job.failed.is_some();
        match &mut job.work {
            Work::Read { rest, done } => {
                let mut buf = rest
                    .take()
                    .expect("pieces come in order and end with the last");
                if buf.len() > len {
                    *rest = Some(buf.split_off(len));
                }
                done.push(None);
                let piece = match failed {
                    true => Piece::Skip,
                    false => Piece::Read { at, buf, class },
                };
                (done.len() - 1, piece)
            }
            Work::Write { .. } if failed => (0, Piece::Skip),
            Work::Write { data, fua } => {
                let data = data.slice(from, len);
                let flags = WriteFlags { fua: *fua, class };
                (0, Piece::Write { at, data, flags })
            }
        }
    }

    fn answered(
        &mut self,
        now: Instant,
        dispatch: &Dispatch,
        (place, work): (usize, Nanos),
        answer: Result<Option<Buf>, Option<DeviceError>>,
    ) {
        self.at_device -= 1;
        let done = match &answer {
            Ok(_) => dispatch.bytes,
            Err(_) => Bytes(0),
        };
        if answer.is_ok() {
            match dispatch.direction {
                Direction::Read => self.done.read_work += work,
                Direction::Write => self.done.write_work += work,
            }
        }
        self.scheduler.completed(now, dispatch, done);
        self.count_busy(now);
        let job = self
            .jobs
            .get_mut(&dispatch.ticket)
            .expect("not answered before its last piece");
        job.out -= 1;
        match (answer, &mut job.work) {
            (Ok(Some(buf)), Work::Read { done, .. }) => done[place] = Some(buf),
            (Ok(_), _) => {}
            (Err(error), _) => job.failed = job.failed.take().or(error),
        }
        if job.is_done() {
            job.answered.notify_all();
            if job.abandoned {
                self.jobs.remove(&dispatch.ticket);
            }
        }
    }
}

/// Pieces of a read, in order, as one.
fn joined(done: Vec<Option<Buf>>) -> Buf {
    let mut pieces = done.into_iter().map(|buf| buf.expect("no piece failed"));
    let mut whole = pieces.next().expect("at least one piece");
    for piece in pieces {
        whole.join(piece);
    }
    whole
}

impl Device for Queue {
    fn info(&self) -> Info {
        self.device.info()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        let len = buf.len() as u64;
        if len == 0 {
            return self.device.read(at, buf, class);
        }
        let work = Work::Read {
            rest: Some(buf),
            done: Vec::new(),
        };
        Box::pin(async move {
            match self.submit(at, len, class, work).await? {
                Work::Read { done, .. } => Ok(joined(done)),
                Work::Write { .. } => unreachable!("a read was asked for"),
            }
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        let len = data.len() as u64;
        if len == 0 {
            return self.device.write(at, data, flags);
        }
        let work = Work::Write {
            data,
            fua: flags.fua,
        };
        Box::pin(async move { self.submit(at, len, flags.class, work).await.map(drop) })
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.device.flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.device.discard(span)
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.device.write_zeroes(span, flags)
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        self.device.allocation(span)
    }

    fn power(&self) -> Option<Power> {
        self.device.power()
    }

    fn standby(&self) -> bool {
        self.device.standby()
    }

    fn in_flight(&self) -> usize {
        self.state.borrow().jobs.len()
    }
}
