//! Requests on their way: in which flow, which pieces of them are at the device, and what the device did.
//!
//! Pure: time is an argument, and nothing here talks to a device.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Nanos, SECTOR, Sector, Span, View};
use device::{Class, DeviceError, WriteFlags};
use env::sync::Event;
use policy::share::capacity::Interval;
use policy::share::{
    Approach, Closed, Costs, Direction, Dispatch, EnqueueError, Lane, Request, Scheduler,
    SessionId, Ticket,
};

use super::DISCARD;

/// What is to be done.
pub(super) enum Work {
    Read {
        rest: Option<Buf>,
        done: Vec<Option<Buf>>,
    },
    Write {
        data: View,
        fua: bool,
    },
    /// Zeroes that the device writes.
    Zeroes {
        len: Bytes,
        fua: bool,
    },
    /// Zeroes that it makes as it gives room up: in one go, however many.
    ZeroesAtOnce {
        span: Span,
        fua: bool,
    },
    Discard {
        span: Span,
    },
}

impl Work {
    pub fn direction(&self) -> Direction {
        match self {
            Work::Read { .. } => Direction::Read,
            _ => Direction::Write,
        }
    }
}

/// A request on its way.
pub(super) struct Job {
    at: Sector,
    class: Class,
    pub work: Work,
    /// Where the queued request begins, and what of it was handed out.
    base: Bytes,
    sent: Bytes,
    /// Pieces at the device, and whether more will come.
    out: usize,
    all_out: bool,
    pub failed: Option<DeviceError>,
    /// No task waits for the answer any more.
    pub abandoned: bool,
    /// Notified when the answer is there.
    answered: Rc<Event>,
}

impl Job {
    pub fn new(at: Sector, class: Class, work: Work, answered: Rc<Event>) -> Job {
        Job {
            at,
            class,
            work,
            base: Bytes(0),
            sent: Bytes(0),
            out: 0,
            all_out: false,
            failed: None,
            abandoned: false,
            answered,
        }
    }

    pub fn is_done(&self) -> bool {
        self.all_out && self.out == 0
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

/// The scheduler, and all requests that are not answered.
pub(super) struct State {
    pub scheduler: Box<dyn Scheduler>,
    pub jobs: BTreeMap<Ticket, Job>,
    next_ticket: u64,
    /// Where the last request of each session and direction ended.
    ends: BTreeMap<(SessionId, Direction), Sector>,
    pub at_device: usize,
    /// Where the last piece sent to the device ends.
    head: Option<Sector>,
    done: Done,
    /// Requests of closed sessions that found no place as best effort yet.
    left_over: VecDeque<Request>,
}

/// A piece of a request, ready for the device.
pub(super) enum Piece {
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
    Zeroes {
        span: Span,
        flags: WriteFlags,
    },
    Discard {
        span: Span,
    },
}

impl State {
    pub fn new(now: Instant, scheduler: Box<dyn Scheduler>) -> State {
        State {
            scheduler,
            jobs: BTreeMap::new(),
            next_ticket: 0,
            ends: BTreeMap::new(),
            at_device: 0,
            head: None,
            done: Done {
                since: now,
                ..Done::default()
            },
            left_over: VecDeque::new(),
        }
    }

    /// Takes a request in, before it is in its flow.
    pub fn admit(&mut self, job: Job) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.jobs.insert(ticket, job);
        ticket
    }

    /// A session was closed; what still waits in it is to be done as best effort.
    pub fn closed(&mut self, session: SessionId, closed: &Closed) {
        self.ends.retain(|(known, _), _| *known != session);
        for ticket in &closed.unserved {
            let rest = self.rest(*ticket);
            self.left_over.push_back(rest);
        }
    }

    /// What the device did since the last call.
    pub fn take_interval(&mut self, now: Instant) -> Interval {
        self.count_busy(now);
        let done = std::mem::take(&mut self.done);
        self.done.since = now;
        self.done.busy_since = done.busy_since;
        self.done.active_since = done.active_since;
        Interval {
            length: now.since(done.since),
            backlogged: done.busy,
            active: done.active,
            read_work: done.read_work,
            write_work: done.write_work,
        }
    }

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
        let cost = |it| costs.approach(dispatch.direction, it);
        let there = cost(approach(self.head, at));
        self.head = Some(Sector(at.0 + dispatch.bytes.0 / SECTOR));
        (dispatch.charge + there).saturating_sub(cost(dispatch.approach))
    }

    /// Puts a request in its flow; how the device comes to it from the one before in this flow is seen here.
    pub fn enqueue(
        &mut self,
        now: Instant,
        lane: Lane,
        at: Sector,
        request: Request,
    ) -> Result<(), EnqueueError> {
        let Lane::Session(session) = lane else {
            return self.scheduler.enqueue(now, lane, request);
        };
        let stream = (session, request.direction);
        let request = Request {
            approach: approach(self.ends.get(&stream).copied(), at),
            ..request
        };
        self.scheduler.enqueue(now, lane, request)?;
        self.ends
            .insert(stream, Sector(at.0 + request.bytes.0 / SECTOR));
        Ok(())
    }

    /// What of a request is not handed out, to be queued anew.
    fn rest(&mut self, ticket: Ticket) -> Request {
        let job = self.jobs.get_mut(&ticket).expect("in line, not answered");
        job.base = job.sent;
        let len = match &job.work {
            Work::Read { rest, .. } => rest.as_ref().map_or(0, |buf| buf.len()),
            Work::Write { data, .. } => data.len() - job.sent.usize(),
            Work::Zeroes { len, .. } => (*len - job.sent).usize(),
            Work::ZeroesAtOnce { .. } | Work::Discard { .. } => DISCARD.usize(),
        };
        Request {
            ticket,
            direction: job.work.direction(),
            bytes: Bytes(len as u64),
            approach: Approach::Jump,
        }
    }

    /// Requests of closed sessions go on as best effort, as far as there is room in that flow.
    pub fn take_over(&mut self, now: Instant, best_effort: SessionId) {
        while let Some(request) = self.left_over.front() {
            let lane = Lane::Session(best_effort);
            if self.scheduler.enqueue(now, lane, *request).is_err() {
                return;
            }
            self.left_over.pop_front();
        }
    }

    /// Cuts the piece off its request, and returns which of its pieces it is.
    pub fn piece(
        &mut self,
        now: Instant,
        dispatch: &Dispatch,
        costs: &Costs,
    ) -> (usize, Piece, Nanos) {
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
            _ if failed => (0, Piece::Skip),
            Work::Zeroes { fua, .. } => {
                let span = Span::new(at, Bytes(len as u64));
                let flags = WriteFlags { fua: *fua, class };
                (0, Piece::Zeroes { span, flags })
            }
            Work::ZeroesAtOnce { span, fua } => {
                let flags = WriteFlags { fua: *fua, class };
                (0, Piece::Zeroes { span: *span, flags })
            }
            Work::Discard { span } => (0, Piece::Discard { span: *span }),
            Work::Write { data, fua } => {
                let data = data.slice(from, len);
                let flags = WriteFlags { fua: *fua, class };
                (0, Piece::Write { at, data, flags })
            }
        }
    }

    pub fn answered(
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

/// How the device comes to a request from the end of the one before.
fn approach(end: Option<Sector>, at: Sector) -> Approach {
    match end.and_then(|end| at.0.checked_sub(end.0)) {
        Some(0) => Approach::Follows,
        Some(sectors) => Approach::Over(Bytes(sectors * SECTOR)),
        None => Approach::Jump,
    }
}

/// Pieces of a read, in order, as one.
pub(super) fn joined(done: Vec<Option<Buf>>) -> Buf {
    let mut pieces = done.into_iter().map(|buf| buf.expect("no piece failed"));
    let mut whole = pieces.next().expect("at least one piece");
    for piece in pieces {
        whole.join(piece);
    }
    whole
}
