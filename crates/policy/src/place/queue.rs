//! One disk's queue, as its node keeps it: how much is there, where does it end, what do the clients learn?
//!
//! ```text
//! enqueue  : cost' += c_r,  h' = o_r + l_r        at the tail
//! complete : cost' -= c_r                          mostly at the head
//! cancel   : the same, and the one behind is weighed anew
//! idle     : h' = start, no client is last
//! report   : State {cost', h' and whose, weights; ours: work, means, amount}
//! ```
//!
//! Source: COST 3.1 (h is reset when there is no access), 3.2 (cost', h').
//!
//! Choice: a request counts until it is done, not until it is begun. When the last one leaves, h' stays where it was until
//! `idle_after` has passed without a request coming or ending; then the head is at the start and no client was last.
//!
//! Always true:
//! 1. cost' is the sum of the terms of what is queued, exactly; it is zero when nothing is.
//! 2. At most `queued_max` requests are kept.

use crate::rate::BytesPerSec;
use std::collections::VecDeque;

use base::{Bytes, Instant, Nanos};

use super::measure::Measure;
use super::{
    At, Class, Penalties, Permille, Promised, Request, State, Tail, Ticket, Weights, term,
};

/// The parameters of a disk's queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueueOptions {
    /// What requests cost; where `measure` is on, what it begins with.
    pub weights: Weights,
    /// Where the head counts as when it was idle.
    pub start: At,
    /// After so much time without a request.
    pub idle_after: Nanos,
    /// Learn the weights from what requests take?
    pub measure: bool,
    /// Over how long the means are.
    pub averaged: Nanos,
    /// Requests kept at most.
    pub queued_max: usize,
}

impl Default for QueueOptions {
    /// As published: constants; a second until the head counts as reset (the paper says no figure).
    fn default() -> Self {
        QueueOptions {
            weights: Weights::default(),
            start: At::default(),
            idle_after: Nanos::secs(1),
            measure: false,
            averaged: Nanos::secs(1),
            queued_max: 65_536,
        }
    }
}

/// Too many requests wait at one disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot queue a request: {queued} wait at this disk already, which is the most; try again when one is answered"
)]
pub struct QueueFull {
    /// How many wait.
    pub queued: usize,
}

#[derive(Debug, Clone)]
struct Entry {
    ticket: Ticket,
    request: Request,
    at: Option<At>,
    local: bool,
    seeks: u64,
    /// c_r.
    cost: Nanos,
    /// The same with q = 1.
    work: Nanos,
}

impl Entry {
    fn weigh(&mut self, weights: &Weights, before: &Tail) {
        let plain = Request {
            penalties: Penalties::NONE,
            ..self.request
        };
        self.seeks = before.seeks(&self.request, self.at);
        self.cost = term(weights, &self.request, self.local, self.at, before);
        self.work = term(weights, &plain, self.local, self.at, before);
    }

    fn tail(&self) -> Tail {
        Tail::behind(&self.request, self.at)
    }
}

/// The queue of one disk.
///
/// # Example
/// ```
/// use base::{Bytes, Instant, Nanos};
/// use policy::place::*;
/// let mut queue = DiskQueue::new(QueueOptions::default());
/// let request = Request {
///     origin: Origin { client: ClientId(1), class: Class::Normal },
///     op: Op::Read,
///     bytes: Bytes(100_000),
///     sequential: true,
///     penalties: Penalties::NONE,
/// };
/// let at = |byte| Some(At { object: 0, byte });
/// queue.enqueue(Instant(0), Ticket(1), &request, at(500_000), true)?;
/// queue.enqueue(Instant(0), Ticket(2), &request, at(600_000), true)?;
/// // A seek and 1 ms of transfer, then 1 ms more.
/// assert_eq!(queue.report(Instant(0)).cost, Nanos::millis(10));
/// queue.complete(Instant(9_000_000), Ticket(1), Nanos::millis(9));
/// assert_eq!(queue.report(Instant(9_000_000)).cost, Nanos::millis(1));
/// # Ok::<(), QueueFull>(())
/// ```
#[derive(Debug, Clone)]
pub struct DiskQueue {
    // Fixed at open.
    options: QueueOptions,
    // What is queued.
    entries: VecDeque<Entry>,
    cost: Nanos,
    work: Nanos,
    /// How many of each class, and their length.
    classes: [(u64, Bytes); 3],
    /// What the first entry is behind.
    head: Tail,
    tail: Tail,
    // By the clock.
    /// When the first entry became the first.
    first_since: Instant,
    last_access: Instant,
    // Learnt.
    measure: Measure,
    means: Means,
}

/// Work and busy time, averaged.
#[derive(Debug, Clone, Default)]
struct Means {
    work: f64,
    busy: f64,
    /// Until when they are, and the work there was after that.
    until: Instant,
    level: Nanos,
}

impl Means {
    /// Takes the time until `now`, in which the work went from `level` to `work`.
    fn pass(&mut self, now: Instant, work: Nanos, busy: bool, over: Nanos) {
        let passed = now.since(self.until);
        let newer = 1.0 - (-(passed.0 as f64) / over.0.max(1) as f64).exp();
        let between = (self.level.0 as f64 + work.0 as f64) / 2.0;
        self.work += newer * (between - self.work);
        self.busy += newer * (f64::from(u8::from(busy)) - self.busy);
        self.until = now.max(self.until);
    }
}

impl DiskQueue {
    /// An idle disk with its head at the start.
    pub fn new(options: QueueOptions) -> DiskQueue {
        let start = Tail::start(options.start);
        DiskQueue {
            measure: Measure::new(&options.weights),
            options,
            entries: VecDeque::new(),
            cost: Nanos(0),
            work: Nanos(0),
            classes: [(0, Bytes(0)); 3],
            head: start,
            tail: start,
            first_since: Instant(0),
            last_access: Instant(0),
            means: Means::default(),
        }
    }

    /// What requests cost here now.
    pub fn weights(&self) -> Weights {
        match self.options.measure {
            true => self.measure.weights(),
            false => self.options.weights,
        }
    }

    /// Requests that wait or are served.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Is no request queued?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A request comes in; the answer is its term c_r. `local`: from this very node.
    ///
    /// # Errors
    /// [`QueueFull`] if `queued_max` wait already; it does not count then.
    ///
    /// # Source
    /// COST 3.2, `cost' + a_r*l_r + b*min(1, |o_r - h'|)` becomes cost', its end h'.
    pub fn enqueue(
        &mut self,
        now: Instant,
        ticket: Ticket,
        request: &Request,
        at: Option<At>,
        local: bool,
    ) -> Result<Nanos, QueueFull> {
        let queued = self.entries.len();
        if queued >= self.options.queued_max {
            return Err(QueueFull { queued });
        }
        self.pass(now);
        if self.entries.is_empty() {
            self.first_since = now;
        }
        let mut entry = Entry {
            ticket,
            request: *request,
            at,
            local,
            seeks: 0,
            cost: Nanos(0),
            work: Nanos(0),
        };
        entry.weigh(&self.weights(), &self.tail);
        self.tail = entry.tail();
        let cost = entry.cost;
        self.count(&entry);
        self.entries.push_back(entry);
        self.accessed(now);
        Ok(cost)
    }

    /// A request was served and took `service` of the device's time. `false`: it is not here.
    pub fn complete(&mut self, now: Instant, ticket: Ticket, service: Nanos) -> bool {
        self.pass(now);
        let Some((index, entry)) = self.take(now, ticket) else {
            return false;
        };
        if index == 0 {
            self.head = entry.tail();
        }
        if self.options.measure {
            self.measure
                .learn(entry.request.bytes, entry.seeks, service);
        }
        self.accessed(now);
        true
    }

    /// A request goes away unserved. `false`: it is not here.
    ///
    /// Choice: the one behind it is weighed anew, against what is before it now.
    pub fn cancel(&mut self, now: Instant, ticket: Ticket) -> bool {
        self.pass(now);
        let Some((index, _)) = self.take(now, ticket) else {
            return false;
        };
        let before = match index {
            0 => self.head,
            _ => self.entries[index - 1].tail(),
        };
        match self.entries.get(index).cloned() {
            None => self.tail = before,
            Some(mut behind) => {
                self.discount(&behind);
                behind.weigh(&self.weights(), &before);
                self.count(&behind);
                self.entries[index] = behind;
            }
        }
        self.accessed(now);
        true
    }

    /// The load report for clients.
    pub fn report(&mut self, now: Instant) -> State {
        self.pass(now);
        self.means.level = self.left(now);
        State {
            at: now,
            cost: self.cost,
            tail: self.tail,
            weights: self.weights(),
            work: self.left(now),
            work_mean: Nanos(self.means.work.round() as u64),
            utilisation: Permille((self.means.busy * 1_000.0).round() as u32),
            queued: self.classes.iter().map(|(_, length)| *length).sum(),
            requests: self.entries.len() as u32,
            foremost: (Class::ALL.into_iter().rev()).find(|it| self.classes[*it as usize].0 > 0),
            mean: self.mean(),
            promised: Promised::default(),
            booked: BytesPerSec(0),
        }
    }

    fn take(&mut self, now: Instant, ticket: Ticket) -> Option<(usize, Entry)> {
        let index = self.entries.iter().position(|it| it.ticket == ticket)?;
        let entry = self.entries.remove(index)?;
        self.discount(&entry);
        if index == 0 {
            self.first_since = now;
        }
        Some((index, entry))
    }

    fn count(&mut self, entry: &Entry) {
        self.cost += entry.cost;
        self.work += entry.work;
        let (number, length) = &mut self.classes[entry.request.origin.class as usize];
        *number += 1;
        *length += entry.request.bytes;
    }

    fn discount(&mut self, entry: &Entry) {
        self.cost -= entry.cost;
        self.work -= entry.work;
        let (number, length) = &mut self.classes[entry.request.origin.class as usize];
        *number -= 1;
        *length -= entry.request.bytes;
    }

    fn mean(&self) -> Bytes {
        let [_, normal, high] = self.classes;
        let number = (normal.0 + high.0).max(1);
        Bytes((normal.1 + high.1).0 / number)
    }

    /// Work left, without what is done of the first request. One that takes longer than it should is expected to take as
    /// long again as it is late: a disk that stalls is not one that is about to be free.
    fn left(&self, now: Instant) -> Nanos {
        let Some(first) = self.entries.front() else {
            return self.work;
        };
        let served = now.since(self.first_since);
        let late = served.saturating_sub(first.work);
        self.work - served.min(first.work) + late
    }

    /// What the clock does by itself, until `now`; then something happens.
    fn pass(&mut self, now: Instant) {
        let (left, busy) = (self.left(now), !self.entries.is_empty());
        self.means.pass(now, left, busy, self.options.averaged);
        if !busy && now.since(self.last_access) >= self.options.idle_after {
            self.head = Tail::start(self.options.start);
            self.tail = self.head;
        }
    }

    /// A request has come or gone.
    fn accessed(&mut self, now: Instant) {
        self.last_access = now;
        self.means.level = self.left(now);
    }
}
