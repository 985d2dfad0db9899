//! A device in virtual time, clients that keep asking, and what each of them got.
//!
//! ```text
//! client -> enqueue -> next -> toy device (one thing at a time) -> completed -> client asks again
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use base::{Bytes, Instant, Nanos};

use super::super::violations::{Violations, Window, throughputs};
use super::super::*;
use super::Dice;

/// A device that does one thing at a time and, written to, stalls now and then.
#[derive(Clone)]
pub struct Toy {
    pub costs: Costs,
    /// After so many bytes written on average comes a stall; zero: never.
    pub stall_every: Bytes,
    pub stall: Nanos,
    /// From then on everything takes so many percent of its time.
    pub slower: Option<(Instant, u64)>,
    pub commit: Nanos,
    pub dice: Dice,
    until_stall: u64,
    busy_until: Instant,
}

impl Toy {
    pub fn steady(costs: Costs) -> Toy {
        Toy {
            costs,
            stall_every: Bytes(0),
            stall: Nanos(0),
            slower: None,
            commit: Nanos(0),
            dice: Dice::new(1),
            until_stall: 0,
            busy_until: Instant(0),
        }
    }

    pub fn stalling(costs: Costs, every: Bytes, stall: Nanos, seed: u64) -> Toy {
        Toy {
            stall_every: every,
            stall,
            dice: Dice::new(seed),
            until_stall: every.0,
            ..Toy::steady(costs)
        }
    }

    /// When a piece sent now is done.
    fn serve(&mut self, now: Instant, dispatch: &Dispatch) -> Instant {
        let start = self.busy_until.max(now);
        let mut time = self
            .costs
            .of(dispatch.direction, dispatch.bytes, dispatch.approach);
        if let Some((_, percent)) = self.slower.filter(|(from, _)| *from <= start) {
            time = Nanos(time.0 * percent / 100);
        }
        if dispatch.direction == Direction::Write && self.stall_every.0 > 0 {
            if self.until_stall <= dispatch.bytes.0 {
                time += self.stall;
                self.until_stall = self.dice.below(2 * self.stall_every.0);
            } else {
                self.until_stall -= dispatch.bytes.0;
            }
        }
        self.busy_until = start + time;
        self.busy_until
    }
}

/// A client that asks, and asks again as soon as it was answered.
#[derive(Clone)]
pub struct Client {
    pub terms: Terms,
    pub start: Instant,
    /// It asks for nothing from the first to the second of these.
    pub pause: Option<(Instant, Instant)>,
    pub stop: Instant,
    pub request: Bytes,
    pub outstanding: u32,
}

impl Client {
    /// Two requests of 1 MiB at a time from `start` on.
    pub fn new(terms: Terms, start: Instant) -> Client {
        Client {
            terms,
            start,
            pause: None,
            stop: Instant(u64::MAX),
            request: Bytes::mib(1),
            outstanding: 2,
        }
    }

    fn asks_at(&self, now: Instant) -> bool {
        let paused = self.pause.is_some_and(|(from, to)| from <= now && now < to);
        self.start <= now && now < self.stop && !paused
    }
}

/// What became of a client.
#[derive(Default, Clone)]
pub struct Got {
    pub id: Option<SessionId>,
    pub first_asked: Option<Instant>,
    pub deliveries: Vec<(Instant, Bytes)>,
    pub dispatched: Vec<(Instant, Bytes)>,
    pub figures: Option<SessionCounters>,
}

impl Got {
    pub fn bytes(&self) -> Bytes {
        self.deliveries.iter().map(|(_, bytes)| *bytes).sum()
    }

    /// What arrived in `from..to`.
    pub fn between(&self, from: Instant, to: Instant) -> Bytes {
        let inside = self
            .deliveries
            .iter()
            .filter(|(at, _)| from <= *at && *at < to);
        inside.map(|(_, bytes)| *bytes).sum()
    }

    pub fn violations(&self, asked: BytesPerSec, window: Window) -> Violations {
        let from = self.first_asked.expect("it asked");
        Violations::count(asked, &throughputs(from, &self.deliveries, window))
    }

    /// The most bytes it was ever behind a service of `rate` that began when it first asked.
    pub fn lag(&self, rate: BytesPerSec) -> Bytes {
        let from = self.first_asked.expect("it asked");
        let (mut got, mut lag) = (Bytes(0), Bytes(0));
        for (at, bytes) in &self.deliveries {
            let entitlement = rate.within(at.since(from));
            lag = lag.max(Bytes(entitlement.0.saturating_sub(got.0)));
            got += *bytes;
        }
        lag
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Done(usize),
    Committed,
    Start(usize),
    Ask(usize),
    Wake,
}

/// What a whole run gave.
pub struct Run {
    pub got: Vec<Got>,
    pub rounds: Vec<Round>,
    pub events: Vec<Event>,
    pub depth_max: u32,
    pub end: Instant,
}

impl Run {
    pub fn total(&self) -> BytesPerSec {
        let bytes = self.got.iter().map(Got::bytes).sum();
        BytesPerSec::of(bytes, self.end.since(Instant(0)))
    }
}

/// Runs `clients` against `toy` through `queue` until `end`.
pub fn run(mut queue: Box<dyn Scheduler>, mut toy: Toy, clients: &[Client], end: Instant) -> Run {
    let mut got = vec![Got::default(); clients.len()];
    let mut heap = BinaryHeap::new();
    let mut turn = 0u64;
    let mut push = |heap: &mut BinaryHeap<_>, at: Instant, what: What| {
        turn += 1;
        heap.push(Reverse((at, turn, what)));
    };
    for (i, client) in clients.iter().enumerate() {
        push(&mut heap, client.start, What::Start(i));
        if let Some((_, to)) = client.pause {
            push(&mut heap, to, What::Ask(i));
        }
    }
    let mut at_device: Vec<Dispatch> = Vec::new();
    let mut owner: BTreeMap<SessionId, usize> = BTreeMap::new();
    let mut waits: Vec<u32> = vec![0; clients.len()];
    let mut rounds = Vec::new();
    let mut events = Vec::new();
    let mut depth_max = 0;
    while let Some(Reverse((now, _, what))) = heap.pop() {
        if now >= end {
            break;
        }
        let mut asking = None;
        match what {
            What::Start(i) => {
                let id = queue.open(now, clients[i].terms).expect("there is room");
                got[i].id = Some(id);
                owner.insert(id, i);
                asking = Some(i);
            }
            What::Ask(i) => asking = Some(i),
            What::Done(n) => {
                let dispatch = at_device[n];
                queue.completed(now, &dispatch, dispatch.bytes);
                if let Lane::Session(id) = dispatch.lane {
                    let i = owner[&id];
                    got[i].deliveries.push((now, dispatch.bytes));
                    waits[i] -= u32::from(dispatch.last);
                    asking = Some(i);
                }
            }
            What::Committed => queue.committed(now),
            What::Wake => {}
        }
        if let Some(i) = asking.filter(|i| clients[*i].asks_at(now)) {
            while waits[i] < clients[i].outstanding {
                let request = Request {
                    ticket: Ticket(i as u64),
                    direction: clients[i].terms.direction,
                    bytes: clients[i].request,
                    approach: Approach::Follows,
                };
                let lane = Lane::Session(got[i].id.expect("it started"));
                queue
                    .enqueue(now, lane, request)
                    .expect("few are outstanding");
                waits[i] += 1;
                got[i].first_asked.get_or_insert(now);
            }
        }
        // Everything of this instant first: clients that come together are in line together.
        if heap.peek().is_some_and(|Reverse((at, _, _))| *at == now) {
            continue;
        }
        loop {
            match queue.next(now) {
                Next::Dispatch(dispatch) => {
                    let done = toy.serve(now, &dispatch);
                    if let Lane::Session(id) = dispatch.lane {
                        got[owner[&id]].dispatched.push((now, dispatch.bytes));
                    }
                    at_device.push(dispatch);
                    push(&mut heap, done, What::Done(at_device.len() - 1));
                }
                Next::Commit => {
                    rounds.extend(queue.last_round().cloned());
                    push(&mut heap, now + toy.commit, What::Committed);
                }
                Next::Wait(at) => {
                    assert!(at > now, "a wait for the past");
                    push(&mut heap, at, What::Wake);
                    break;
                }
                Next::Idle => break,
            }
        }
        depth_max = depth_max.max(queue.depth());
        events.extend(queue.take_events());
    }
    for got in &mut got {
        got.figures = got.id.and_then(|id| queue.figures(end, id));
    }
    events.extend(queue.take_events());
    Run {
        got,
        rounds,
        events,
        depth_max,
        end,
    }
}
