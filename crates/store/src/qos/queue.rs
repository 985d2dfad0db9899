//! The one queue of a device: every request waits here, and one scheduler says which is next.
//!
//! ```text
//! read, write (class) -> lane -> Scheduler::next -> a piece at the device -> completed -> next ...
//!   Session(n): session n | Foreground: best effort | Background: floor, ceiling | Metadata: first
//! ```
//!
//! A [`Queue`] is a device in front of a device, so whatever stands on it needs not know: a store sends its requests
//! with the [`Class`] it was given. Requests are cut in pieces as the scheduler says; a request is complete with
//! its last piece. Flushes do not wait in the queue: they carry no data. What gives room up or makes zeroes waits where
//! [`QueueOptions::discards`] says so: zeroes that the device writes as so many bytes, the rest as a short write each.
//!
//! Source: PROBS 3.1 (one queue per access, the I/O thread, a commit at the end of a round).
//!
//! Always true:
//! 1. A request is answered once, after its last piece, with the first error of any piece.
//! 2. What was asked for in the name of a session that was closed is still done, as best effort.
//! 3. Nothing is served from a queue that a panic left half changed: such a panic ends its thread, also where it is caught.

mod options;
mod state;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};

use base::{Buf, Bytes, Instant, Sector, Span, View};
use device::{Class, Device, DeviceError, Info, Pending, Power, Spindle, WriteFlags};
use env::Critical;
use env::sync::Event;
use policy::share::capacity::Interval;
use policy::share::{
    Account, Approach, BytesPerSec, Closed, Costs, Direction, Dispatch, EnqueueError,
    Event as Happened, Kind, Lane, Next, OpenError, Request, SessionCounters, SessionId, Terms,
    Ticket, Totals, build,
};

pub use options::QueueOptions;
use state::{Job, Piece, State, Work, joined};

/// What gives room up counts as a write of so much.
const DISCARD: Bytes = Bytes::kib(4);

/// Makes durable what is pending, when the scheduler asks for it.
pub type CommitHook = Rc<dyn Fn() -> Pin<Box<dyn Future<Output = ()>>>>;

/// The session of background work.
#[derive(Debug, Clone, Copy)]
struct Background {
    session: SessionId,
    /// What it gets at least.
    floor: BytesPerSec,
    /// And at most.
    ceiling: BytesPerSec,
    /// What was delivered on earlier terms.
    delivered: Bytes,
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
    options: QueueOptions,
    costs: Cell<Costs>,
    best_effort: SessionId,
    background: Cell<Background>,
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
        Rc::new_cyclic(|me| Queue {
            device,
            options,
            costs: Cell::new(options.share.costs),
            best_effort: best_effort.expect("the first session"),
            background: Cell::new(Background {
                session: background.expect("a ceiling above the floor"),
                floor: options.floor,
                ceiling: options.ceiling,
                delivered: Bytes(0),
            }),
            state: Critical::new(State::new(now, scheduler)),
            alarms: RefCell::default(),
            commit: RefCell::new(None),
            room: Event::default(),
            me: me.clone(),
        })
    }

    /// Which scheduler decides.
    pub fn kind(&self) -> Kind {
        self.options.kind
    }

    /// What it was made with; what the device costs, and what background work gets, may have changed since.
    pub fn options(&self) -> &QueueOptions {
        &self.options
    }

    /// Rounds that ended, and what the device moved per second in the last one, where there are rounds.
    pub fn rounds(&self) -> Option<(u64, BytesPerSec)> {
        let state = self.state.borrow();
        let last = state.scheduler.last_round();
        last.map(|round| (round.number, round.throughput()))
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
        state.closed(session, &closed);
        drop(state);
        self.pump();
        Some(closed)
    }

    /// The account weighs so much from now on, if it has sessions.
    pub fn set_account(&self, account: Account) {
        self.state.change().scheduler.set_account(account);
    }

    /// What background work gets at least.
    pub fn floor(&self) -> BytesPerSec {
        self.background.get().floor
    }

    /// What background work gets at least and at most.
    pub fn background(&self) -> (BytesPerSec, BytesPerSec) {
        let background = self.background.get();
        (background.floor, background.ceiling)
    }

    /// Background work gets at least `floor` and at most `ceiling` from now on; what waits of it is done as best effort.
    ///
    /// # Errors
    /// [`OpenError`] if the ceiling is below the floor, or there are too many sessions; then nothing changes.
    pub fn set_background(
        &self,
        floor: BytesPerSec,
        ceiling: BytesPerSec,
    ) -> Result<(), OpenError> {
        let session = self.open(Terms::background(Direction::Read, floor, ceiling))?;
        let before = self.background.get();
        let closed = self.close(before.session);
        let delivered = closed.map_or(Bytes(0), |it| it.figures.delivered);
        self.background.set(Background {
            session,
            floor,
            ceiling,
            delivered: before.delivered + delivered,
        });
        Ok(())
    }

    /// What a session was promised and got.
    pub fn figures(&self, session: SessionId) -> Option<SessionCounters> {
        self.state.change().scheduler.figures(env::now(), session)
    }

    /// The bytes that went to all that nothing was promised to, and to background work.
    pub fn unpromised(&self) -> (Bytes, Bytes) {
        let of = |session| self.figures(session).map_or(Bytes(0), |it| it.delivered);
        let background = self.background.get();
        (
            of(self.best_effort),
            background.delivered + of(background.session),
        )
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
        self.state.change().take_interval(env::now())
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
        let direction = work.direction();
        let job = Job::new(at, class, work, Rc::clone(&answered));
        let ticket = self.state.change().admit(job);
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
            Class::Background => Lane::Session(self.background.get().session),
            Class::Foreground => Lane::Session(self.best_effort),
        };
        let request = Request {
            ticket,
            direction,
            bytes,
            approach: Approach::Jump,
        };
        let now = env::now();
        let mut state = self.state.change();
        match state.enqueue(now, lane, at, request) {
            // It was closed, or never opened.
            Err(EnqueueError::NoSession(_)) => {
                state.enqueue(now, Lane::Session(self.best_effort), at, request)
            }
            done => done,
        }
    }

    /// Does what the scheduler says until it has nothing more to say.
    fn pump(&self) {
        // What the scheduler handed out must reach the device.
        let _section = env::critical_section();
        self.state.change().take_over(env::now(), self.best_effort);
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
                Piece::Zeroes { span, flags } => {
                    let made = me.device.write_zeroes(span, flags).await;
                    made.map(|()| None).map_err(Some)
                }
                Piece::Discard { span } => {
                    let given_up = me.device.discard(span).await;
                    given_up.map(|()| None).map_err(Some)
                }
            };
            me.state
                .change()
                .answered(env::now(), &dispatch, (place, work), answer);
            me.pump();
        });
    }
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
                _ => unreachable!("a read was asked for"),
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
        if !self.options.discards || span.len.0 == 0 {
            return self.device.discard(span);
        }
        let work = Work::Discard { span };
        let submitted = self.submit(span.start, DISCARD.0, Class::Foreground, work);
        Box::pin(async move { submitted.await.map(drop) })
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        if !self.options.discards || span.len.0 == 0 {
            return self.device.write_zeroes(span, flags);
        }
        let fua = flags.fua;
        let (work, bytes) = match self.device.info().discards {
            true => (Work::ZeroesAtOnce { span, fua }, DISCARD),
            false => (Work::Zeroes { len: span.len, fua }, span.len),
        };
        let submitted = self.submit(span.start, bytes.0, flags.class, work);
        Box::pin(async move { submitted.await.map(drop) })
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        self.device.allocation(span)
    }

    fn power(&self) -> Option<Power> {
        self.device.power()
    }

    fn prepare_sleep(&self) -> Pending<'_, ()> {
        self.device.prepare_sleep()
    }

    fn spindle(&self) -> Option<Spindle> {
        self.device.spindle()
    }

    fn standby(&self) -> bool {
        self.device.standby()
    }

    fn in_flight(&self) -> usize {
        self.state.borrow().jobs.len()
    }
}
