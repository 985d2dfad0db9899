//! C3: response times and queue lengths from replies, the queue to the third power.
//!
//! ```text
//! score = (R - 1/mu) + q^3 / mu        q = 1 + n * own + queue
//! ```
//!
//! R: response time as this client sees it; 1/mu: service time and queue: requests waiting, as replies report; all
//! three are averages that move nine tenths of the way to each new value. `own`: requests under way from here; n:
//! clients there are, each of which is taken to have as many under way (concurrency compensation).
//!
//! Source: Suresh, Canini, Schmid and Feldmann, "C3: Cutting Tail Latency in Cloud Data Stores via Adaptive Replica
//! Selection", NSDI 2015, section 3.1, and its authors' Cassandra (weight 0.9 of the newest value).
//!
//! Choice: rate control and backpressure (section 3.2) are left out: virtual disks have nowhere else to wait, and no
//! policy here holds requests back. A disk never heard of scores 0, as theirs does, and equal scores go in turn.

use base::{Instant, Nanos};

use super::disks::{Disks, Flights};
use super::spread::{Turn, first_apart, with_room};
use super::{Candidate, DiskId, PlaceError, ReplicaPolicy, Reply, Request, Sent, Target, Ticket};

/// What is known of one disk; times in nanoseconds.
#[derive(Debug, Clone, Default)]
struct View {
    under_way: Flights<Instant>,
    /// R - 1/mu.
    waiting: f64,
    /// 1/mu.
    service: f64,
    queue: f64,
    heard: bool,
}

impl View {
    const NEWEST: f64 = 0.9;

    fn learn(&mut self, response: Nanos, reply: &Reply) {
        let newest = if self.heard { Self::NEWEST } else { 1.0 };
        let learn = |mean: &mut f64, value: f64| *mean += newest * (value - *mean);
        let waiting = response.saturating_sub(reply.service);
        learn(&mut self.waiting, waiting.0 as f64);
        learn(&mut self.service, reply.service.0 as f64);
        if let Some(state) = reply.state {
            learn(&mut self.queue, f64::from(state.requests));
        }
        self.heard = true;
    }

    fn score(&self, clients: u32) -> f64 {
        if !self.heard {
            return 0.0;
        }
        let own = self.under_way.len() as f64;
        let queue = 1.0 + f64::from(clients) * own + self.queue;
        self.waiting + queue.powi(3) * self.service
    }
}

/// C3 without its rate control.
#[derive(Debug, Clone)]
pub struct C3 {
    clients: u32,
    disks: Disks<View>,
    turn: Turn,
}

impl C3 {
    /// One of `clients` clients (n).
    pub fn new(clients: u32) -> C3 {
        C3 {
            clients,
            disks: Disks::default(),
            turn: Turn::default(),
        }
    }

    /// The score of a disk in nanoseconds; the least is taken.
    pub fn score(&self, disk: DiskId) -> f64 {
        self.disks
            .get(disk)
            .map_or(0.0, |view| view.score(self.clients))
    }
}

impl ReplicaPolicy for C3 {
    fn read(&mut self, _now: Instant, _request: &Request, copies: &[Candidate]) -> DiskId {
        assert!(!copies.is_empty(), "a block has at least one copy");
        let in_turn = self.turn.around(copies);
        let least = in_turn.min_by(|a, b| f64::total_cmp(&self.score(a.disk), &self.score(b.disk)));
        least.expect("not empty").disk
    }

    fn place(
        &mut self,
        _now: Instant,
        request: &Request,
        copies: usize,
        disks: &[Target],
    ) -> Result<Vec<DiskId>, PlaceError> {
        let mut room = with_room(disks, request.bytes, copies)?;
        let begin = self.turn.next(room.len());
        room.rotate_left(begin);
        let score = |disk: &Target| self.score(disk.candidate.disk);
        room.sort_by(|a, b| score(a).total_cmp(&score(b)));
        Ok(first_apart(&room, copies))
    }

    fn sent(&mut self, now: Instant, sent: &Sent) {
        let view = self.disks.entry(sent.candidate.disk, View::default);
        view.under_way.push(sent.ticket, now);
    }

    fn answered(&mut self, now: Instant, disk: DiskId, ticket: Ticket, reply: &Reply) {
        let Some(view) = self.disks.get_mut(disk) else {
            return;
        };
        if let Some(sent) = view.under_way.take(ticket) {
            view.learn(now.since(sent), reply);
        }
    }

    fn failed(&mut self, _now: Instant, disk: DiskId, ticket: Ticket, _fault: bool) {
        if let Some(view) = self.disks.get_mut(disk) {
            view.under_way.take(ticket);
        }
    }
}
