//! Which sessions are open, what waits in each, and what became of it? Common to all schedulers.
//!
//! ```text
//! open -> Entry { terms, line of requests, meter, S } ; S: what a scheduler keeps of its own
//! enqueue -> line -> take (a piece) -> device -> answered
//! ```
//!
//! Always true:
//! 1. `in_flight` is the number of dispatches not yet completed.
//! 2. `waiting` names exactly the sessions whose line is not empty.
//! 3. No line is longer than `requests_max`, no table larger than `sessions_max`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{Bytes, Instant, Nanos};

use super::figures::{Done, Meter};
use super::{
    Approach, Class, Closed, Costs, Direction, Dispatch, EnqueueError, Event, Lane, OpenError,
    Request, SessionCounters, SessionId, Share, Terms,
};

/// What bounds a scheduler's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Sessions open at once.
    pub sessions_max: usize,
    /// Requests waiting in each session, and as many of metadata.
    pub requests_max: usize,
    /// Events kept until taken; the oldest go first.
    pub events_max: usize,
}

impl Default for Limits {
    /// 1024 sessions, 1024 requests each, 256 events.
    fn default() -> Self {
        Limits {
            sessions_max: 1024,
            requests_max: 1024,
            events_max: 256,
        }
    }
}

/// Sums since the scheduler was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Sessions open now.
    pub open: usize,
    /// Device time promised to them.
    pub promised: Share,
    /// Data read.
    pub read: Bytes,
    /// Data written.
    pub written: Bytes,
    /// Metadata, both ways.
    pub metadata: Bytes,
    /// What all of it costs by the model.
    pub work: Nanos,
    /// Pieces at the device now.
    pub in_flight: u32,
}

/// A request in line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub request: Request,
    /// Bytes of it handed out already.
    sent: Bytes,
    /// Its place among all arrivals.
    pub number: u64,
}

/// One session.
#[derive(Clone)]
pub(super) struct Entry<S> {
    pub terms: Terms,
    pub line: VecDeque<Waiting>,
    pub own: S,
    meter: Meter,
}

impl<S> Entry<S> {
    /// The promised part of the device's time.
    pub fn share(&self) -> Share {
        self.meter.share()
    }

    /// Does its next piece begin where its last one ended?
    pub fn follows(&self) -> bool {
        let follows = |it: &Waiting| it.sent.0 > 0 || it.request.approach == Approach::Follows;
        self.line.front().is_some_and(follows)
    }

    /// Has it nothing waiting and nothing at the device?
    pub fn is_idle(&self) -> bool {
        self.meter.outstanding().0 == 0
    }
}

/// What the device costs.
#[derive(Clone, Copy)]
struct DeviceCosts {
    now: Costs,
    /// What it was assumed to cost before anything was measured.
    first: Costs,
}

/// All sessions of one device.
#[derive(Clone)]
pub(super) struct Sessions<S> {
    // Fixed at open.
    limits: Limits,
    window: Nanos,
    unit: Bytes,
    // As given.
    costs: DeviceCosts,
    // As it goes.
    table: BTreeMap<SessionId, Entry<S>>,
    waiting: BTreeSet<SessionId>,
    high: VecDeque<(Option<SessionId>, Waiting)>,
    next_id: u64,
    arrivals: u64,
    in_flight: u32,
    done: Done,
    /// The shares of sessions with something outstanding.
    asking: Share,
    counted_to: Instant,
    totals: Totals,
    events: EventLog,
}

/// Events until they are taken; the oldest go first where there are too many.
#[derive(Debug, Clone, Default)]
struct EventLog {
    kept: VecDeque<Event>,
    lost: u64,
}

impl EventLog {
    fn note(&mut self, event: Event, most: usize) {
        if self.kept.len() >= most {
            self.kept.pop_front();
            self.lost += 1;
        }
        self.kept.push_back(event);
    }

    fn take(&mut self) -> Vec<Event> {
        let lost = std::mem::take(&mut self.lost);
        let lost = (lost > 0).then_some(Event::Lost(lost));
        lost.into_iter().chain(self.kept.drain(..)).collect()
    }
}

impl<S> Sessions<S> {
    /// `unit`: the length promises are reckoned in, see [`Costs::share`].
    pub fn new(limits: Limits, window: Nanos, costs: Costs, unit: Bytes) -> Sessions<S> {
        Sessions {
            limits,
            window,
            unit,
            costs: DeviceCosts {
                now: costs,
                first: costs,
            },
            table: BTreeMap::new(),
            waiting: BTreeSet::new(),
            high: VecDeque::new(),
            next_id: 1,
            arrivals: 0,
            in_flight: 0,
            done: Done::default(),
            asking: Share::NONE,
            counted_to: Instant(0),
            totals: Totals::default(),
            events: EventLog::default(),
        }
    }

    pub fn costs(&self) -> &Costs {
        &self.costs.now
    }

    /// What a seek takes. Costs that were measured later may count none of their own: then it is what was assumed before.
    pub fn seek(&self, direction: Direction) -> Nanos {
        let of = |costs: &Costs| costs.direction(direction).jump;
        of(&self.costs.now).max(of(&self.costs.first))
    }

    pub fn unit(&self) -> Bytes {
        self.unit
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub fn get(&self, id: SessionId) -> Option<&Entry<S>> {
        self.table.get(&id)
    }

    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut Entry<S>> {
        self.table.get_mut(&id)
    }

    /// Every open session, by id.
    pub fn all(&self) -> impl Iterator<Item = (SessionId, &Entry<S>)> {
        self.table.iter().map(|(id, entry)| (*id, entry))
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = (SessionId, &mut Entry<S>)> {
        self.table.iter_mut().map(|(id, entry)| (*id, entry))
    }

    /// The sessions with a request in line, by id.
    pub fn waiting(&self) -> impl Iterator<Item = (SessionId, &Entry<S>)> {
        self.waiting.iter().map(|id| (*id, &self.table[id]))
    }

    pub fn open(&mut self, now: Instant, terms: Terms, own: S) -> Result<SessionId, OpenError> {
        self.count_to(now);
        let (open, most) = (self.table.len(), self.limits.sessions_max);
        if open >= most {
            return Err(OpenError::Full { open, most });
        }
        let rate = terms.rate;
        if let Some(limit) = terms.limit.filter(|limit| *limit < rate) {
            return Err(OpenError::LimitBelowRate { rate, limit });
        }
        if terms.class == Class::BestEffort && rate.0 > 0 {
            return Err(OpenError::PromisedBestEffort { rate });
        }
        let id = SessionId(self.next_id);
        self.next_id += 1;
        let share = self.costs.now.share(terms.direction, rate, self.unit);
        let window = terms.window.unwrap_or(self.window);
        let entry = Entry {
            terms,
            line: VecDeque::new(),
            own,
            meter: Meter::new(rate, share, window, self.unit),
        };
        self.table.insert(id, entry);
        Ok(id)
    }

    pub fn close(&mut self, now: Instant, id: SessionId) -> Option<Closed> {
        self.roll(now, id);
        let entry = self.table.remove(&id)?;
        self.waiting.remove(&id);
        if !entry.is_idle() {
            self.asking = self.asking - entry.share();
        }
        for (charged, _) in &mut self.high {
            if *charged == Some(id) {
                *charged = None;
            }
        }
        Some(Closed {
            unserved: entry.line.iter().map(|it| it.request.ticket).collect(),
            figures: entry.meter.figures(),
        })
    }

    pub fn enqueue(
        &mut self,
        now: Instant,
        lane: Lane,
        request: Request,
    ) -> Result<(), EnqueueError> {
        if request.bytes.0 == 0 {
            return Err(EnqueueError::Empty);
        }
        let most = self.limits.requests_max;
        let number = self.arrivals;
        let line = match lane {
            Lane::Metadata { .. } => self.high.len(),
            Lane::Session(id) => match self.table.get(&id) {
                Some(entry) => entry.line.len(),
                None => return Err(EnqueueError::NoSession(id)),
            },
        };
        if line >= most {
            return Err(EnqueueError::Full { waiting: line });
        }
        self.arrivals += 1;
        let waiting = Waiting {
            request,
            sent: Bytes(0),
            number,
        };
        match lane {
            Lane::Metadata { charged } => {
                let charged = charged.filter(|id| self.table.contains_key(id));
                self.high.push_back((charged, waiting));
            }
            Lane::Session(id) => {
                self.roll(now, id);
                let done = self.done;
                let entry = self.table.get_mut(&id).expect("looked up above");
                if entry.is_idle() {
                    self.asking += entry.share();
                }
                entry.meter.asked(now, request.bytes, done);
                entry.line.push_back(waiting);
                self.waiting.insert(id);
            }
        }
        Ok(())
    }

    /// The next metadata request, whole.
    pub fn take_metadata(&mut self, now: Instant) -> Option<Dispatch> {
        let (charged, waiting) = self.high.pop_front()?;
        let Request {
            ticket,
            direction,
            bytes,
            approach,
        } = waiting.request;
        self.in_flight += 1;
        Some(Dispatch {
            ticket,
            lane: Lane::Metadata { charged },
            direction,
            offset: Bytes(0),
            bytes,
            charge: self.costs.now.of(direction, bytes, approach),
            last: true,
            approach,
            at: now,
        })
    }

    /// The next piece of a session's first request in line, at most `most` bytes.
    ///
    /// A piece is charged its part of what a request of that size costs, but no request is charged for
    /// being split smaller than `unit`: that is our doing.
    pub fn take(&mut self, now: Instant, id: SessionId, most: Bytes) -> Dispatch {
        self.roll(now, id);
        let (costs, unit) = (self.costs.now, self.unit);
        let entry = self.table.get_mut(&id).expect("the session is open");
        let first = entry.line.front_mut().expect("a request waits");
        let request = first.request;
        let offset = first.sent;
        let bytes = (request.bytes - offset).min(most);
        first.sent += bytes;
        let last = first.sent == request.bytes;
        let approach = match offset.0 {
            0 => request.approach,
            _ => Approach::Follows,
        };
        let priced = request.bytes.min(unit);
        let cost = costs.of(request.direction, priced, Approach::Follows);
        let approached = costs.approach(request.direction, approach);
        let charge = u128::from(cost.0) * u128::from(bytes.0) / u128::from(priced.0);
        if last {
            entry.line.pop_front();
            if entry.line.is_empty() {
                self.waiting.remove(&id);
            }
        }
        entry.meter.sent(bytes);
        self.in_flight += 1;
        Dispatch {
            ticket: request.ticket,
            lane: Lane::Session(id),
            direction: request.direction,
            offset,
            bytes,
            charge: Nanos(charge as u64) + approached,
            last,
            approach,
            at: now,
        }
    }

    pub fn completed(&mut self, now: Instant, dispatch: &Dispatch, done: Bytes) {
        assert!(self.in_flight > 0, "{dispatch:?} completed twice");
        assert!(done <= dispatch.bytes, "{dispatch:?} gave {done}");
        self.in_flight -= 1;
        self.count_to(now);
        if done.0 > 0 {
            self.done.work += dispatch.charge;
            self.totals.work += dispatch.charge;
        }
        let Lane::Session(id) = dispatch.lane else {
            self.totals.metadata += done;
            return;
        };
        match dispatch.direction {
            Direction::Read => self.totals.read += done,
            Direction::Write => self.totals.written += done,
        }
        self.roll(now, id);
        let Some(entry) = self.table.get_mut(&id) else {
            return; // Closed meanwhile.
        };
        let Dispatch {
            bytes,
            charge,
            last,
            ..
        } = *dispatch;
        entry.meter.answered(bytes, done, charge, last);
        if entry.is_idle() {
            self.asking = self.asking - entry.share();
        }
    }

    pub fn set_costs(&mut self, now: Instant, costs: Costs) {
        self.count_to(now);
        self.costs.now = costs;
        self.asking = Share::NONE;
        for entry in self.table.values_mut() {
            let Terms {
                direction, rate, ..
            } = entry.terms;
            entry
                .meter
                .set_share(costs.share(direction, rate, self.unit));
            if !entry.is_idle() {
                self.asking += entry.share();
            }
        }
    }

    pub fn figures(&mut self, now: Instant, id: SessionId) -> Option<SessionCounters> {
        self.roll(now, id);
        Some(self.table.get(&id)?.meter.figures())
    }

    pub fn totals(&self) -> Totals {
        Totals {
            open: self.table.len(),
            promised: self.table.values().map(Entry::share).sum(),
            in_flight: self.in_flight,
            ..self.totals
        }
    }

    pub fn note(&mut self, event: Event) {
        self.events.note(event, self.limits.events_max);
    }

    pub fn take_events(&mut self) -> Vec<Event> {
        self.events.take()
    }

    /// Counts the entitlement until now.
    fn count_to(&mut self, now: Instant) {
        let passed = now.since(self.counted_to);
        let entitlement = u128::from(self.asking.0) * u128::from(passed.0);
        self.done.entitlement += Nanos((entitlement / u128::from(Share::WHOLE.0)) as u64);
        self.counted_to = now;
    }

    /// Moves a session's meter to now and notes what was violated.
    fn roll(&mut self, now: Instant, id: SessionId) {
        self.count_to(now);
        let done = self.done;
        let Some(entry) = self.table.get_mut(&id) else {
            return;
        };
        for ended in entry.meter.roll(now, done) {
            self.note(Event::Violated {
                session: id,
                from: ended.from,
                windows: ended.windows,
                promised: ended.promised,
                delivered: ended.delivered,
                cause: ended.cause,
            });
        }
    }
}
