//! Runs streams and sessions on a queue, and measures what they get.

use std::cell::Cell;
use std::rc::Rc;

use base::{Bytes, Instant, Nanos};
use device::Class;
use env::sync::join_all;
use policy::share::{BytesPerSec, Costs, Direction, Mix, SessionId, Share, Terms};

use super::error::CalibrateError;
use super::ground::Ground;
use super::plan::{IO, Plan, STREAMS, enough};
use super::reckon::{Search, Turn, line, promises};
use super::surface::{Found, Measured};
use crate::object::error::StoreError;
use crate::qos::queue::Queue;

/// Requests each session has outstanding.
const OUTSTANDING: u64 = 4;

/// What is measured on.
pub(super) struct Bench {
    pub ground: Rc<dyn Ground>,
    pub queue: Rc<Queue>,
}

/// Asks for one stream in sequence until it is stopped; how much it got counts in `got`.
struct Stream {
    stream: u32,
    direction: Direction,
    len: Bytes,
    class: Class,
    next: Cell<u64>,
    got: Cell<u64>,
    stop: Cell<bool>,
}

async fn pull(ground: Rc<dyn Ground>, of: Rc<Stream>) -> Result<(), StoreError> {
    while !of.stop.get() {
        let at = of.next.get();
        let on = at + of.len.0;
        of.next.set(if on + of.len.0 > ground.reach().0 {
            0
        } else {
            on
        });
        ground
            .ask(of.stream, of.direction, at, of.len, of.class)
            .await?;
        of.got.set(of.got.get() + of.len.0);
    }
    Ok(())
}

/// Sessions that are closed with it.
struct Open<'a> {
    queue: &'a Queue,
    sessions: Vec<SessionId>,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        for session in &self.sessions {
            self.queue.close(*session);
        }
    }
}

impl Bench {
    /// Runs `streams` for `before` unseen, then for `time`; what they got in that.
    async fn drive(
        &self,
        streams: &[Rc<Stream>],
        time: Nanos,
        before: Nanos,
    ) -> Result<u64, StoreError> {
        let tasks: Vec<_> = streams
            .iter()
            .flat_map(|stream| {
                (0..OUTSTANDING)
                    .map(|_| env::spawn(pull(Rc::clone(&self.ground), Rc::clone(stream))))
            })
            .collect();
        let got = || streams.iter().map(|stream| stream.got.get()).sum::<u64>();
        env::sleep(before).await;
        let from = got();
        env::sleep(time).await;
        let done = got() - from;
        for stream in streams {
            stream.stop.set(true);
        }
        for answer in join_all(tasks).await {
            answer?;
        }
        Ok(done)
    }

    /// Costs of one direction, from how long requests of several lengths take when some streams are served in turn.
    pub async fn measure(
        &self,
        direction: Direction,
        plan: &Plan,
    ) -> Result<Measured, CalibrateError> {
        let before = Nanos(plan.probe.0 / 3);
        let run = async |streams: u32, len: Bytes| -> Result<f64, CalibrateError> {
            let mut open = Open {
                queue: &self.queue,
                sessions: Vec::new(),
            };
            let mut all = Vec::new();
            for stream in 0..streams {
                let session = self
                    .queue
                    .open(Terms::reserved(direction, BytesPerSec::mb(1)))?;
                open.sessions.push(session);
                all.push(stream_of(stream, direction, len, session));
            }
            let got = self.drive(&all, plan.probe, before).await?;
            Ok(got as f64 / plan.probe.secs_f64())
        };
        let mut seen = Vec::new();
        for size in &plan.sizes {
            let rate = run(STREAMS, *size).await?.max(1.0);
            seen.push((size.0 as f64, size.0 as f64 / rate));
        }
        let (fixed, per_byte) = line(&seen);
        // Promises are reckoned in pieces of the last length: there the line must be right.
        let (bytes, time) = *seen.last().expect("two lengths or more");
        let right = time / (fixed + bytes * per_byte);
        let (fixed, per_byte) = (fixed * right, per_byte * right);
        let alone = run(1, IO).await?;
        Ok(Measured {
            fixed_ns: (fixed * 1e9) as u64,
            rate: (1.0 / per_byte) as u64,
            alone: alone as u64,
        })
    }

    /// The least overhead that keeps the promise, and a step; the whole device if none does. `None` if `end` came first.
    pub async fn bisect(
        &self,
        costs: &Costs,
        mix: Mix,
        sessions: u32,
        plan: &Plan,
        end: Instant,
    ) -> Result<Option<Found>, CalibrateError> {
        let mut search = Search::new(plan);
        loop {
            let (overhead, windows) = match search.turn() {
                Turn::Found(overhead) => {
                    let found = Found::new(plan, (mix, sessions), overhead, search.seen);
                    return Ok(Some(found));
                }
                Turn::Try(..) if env::now() >= end => return Ok(None),
                Turn::Try(overhead, windows) => (overhead, windows),
            };
            let trial = Plan {
                windows,
                ..plan.clone()
            };
            let seen = self.trial(costs, mix, sessions, overhead, &trial).await?;
            search.tried(seen, enough(plan, seen));
        }
    }

    /// Windows that were judged with so much set aside, and those violated.
    pub async fn trial(
        &self,
        costs: &Costs,
        mix: Mix,
        sessions: u32,
        overhead: Share,
        plan: &Plan,
    ) -> Result<(u64, u64), CalibrateError> {
        let mut open = Open {
            queue: &self.queue,
            sessions: Vec::new(),
        };
        let mut streams = Vec::new();
        for (at, (direction, rate)) in promises(costs, mix, sessions, overhead)
            .into_iter()
            .enumerate()
        {
            let session = self.queue.open(Terms {
                window: Some(plan.window),
                ..Terms::reserved(direction, rate)
            })?;
            open.sessions.push(session);
            streams.push(stream_of(at as u32, direction, IO, session));
        }
        // A little more, so that the last window is over.
        let time = plan.window * plan.windows + Nanos(plan.window.0 / 16);
        self.drive(&streams, time, Nanos(0)).await?;
        let (mut windows, mut violated) = (0, 0);
        for session in &open.sessions {
            let seen = self.queue.figures(*session).expect("still open").windows;
            windows += seen.all() - seen.no_demand;
            violated += seen.violated();
        }
        Ok((windows, violated))
    }
}

fn stream_of(stream: u32, direction: Direction, len: Bytes, session: SessionId) -> Rc<Stream> {
    Rc::new(Stream {
        stream,
        direction,
        len,
        class: Class::Session(session.0),
        next: Cell::new(0),
        got: Cell::new(0),
        stop: Cell::new(false),
    })
}
