//! Memory-like devices: when does a request end that waits for nothing but a free server and the bus?
//!
//! ```text
//! request -> earliest free of `parallel` servers -> latency by size -> bus of all together -> done
//!                                                      ^ a hit of the read cache: its own latencies
//!                                                      ^ a write beyond the write cache: as many times longer
//!                                                      ^ each other request in flight: so many percent longer
//! ```
//!
//! Source: SCM tables 4-7, where the latency of a device is given by block size.
//!
//! Always true:
//! 1. Alone, a request takes the latency of its size, on a straight line between the given sizes; without caches the same one
//!    each time.
//! 2. All together move no more bytes per second than the bus.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use base::{Instant, Nanos, Span};

use super::caches::{RecentPages, WriteRoom};
use super::parameters::{ConstantSpec, PowerSpec};
use super::power::{PowerMeter, State};
use super::{Done, Request, Timing};
use crate::api::Op;

/// The timing core of a memory-like device.
pub struct ConstantModel {
    read: Line,
    write: Line,
    /// Latencies of reads that hit, and the pages that do.
    recent: Option<(Line, RecentPages)>,
    /// The write cache, and how many times longer a write beyond it takes.
    room: Option<(WriteRoom, f64)>,
    each_in_flight: f64,

    /// When each server is free again, the earliest first.
    servers: BinaryHeap<Reverse<Instant>>,
    done: BinaryHeap<Reverse<(Instant, u64, u64)>>,
    sequence: u64,
    now: Instant,
    meter: PowerMeter,
}

/// One direction: its latency curve and its bus.
struct Line {
    points: Vec<(f64, f64)>,
    nanos_per_byte: f64,
    bus_free: Instant,
}

impl Line {
    fn new(points: &[(f64, f64)], mb_s: f64) -> Line {
        Line {
            points: points.to_vec(),
            nanos_per_byte: 1e3 / mb_s,
            bus_free: Instant(0),
        }
    }

    /// Latency in ns: constant below the first size, between two sizes on a straight line, beyond the
    /// last one on with its slope.
    fn latency(&self, bytes: f64) -> f64 {
        let points = &self.points;
        let (first, last) = (points[0], points[points.len() - 1]);
        if bytes <= first.0 || points.len() == 1 {
            let beyond = (bytes - first.0).max(0.0);
            return first.1 * 1e3 + beyond * self.nanos_per_byte;
        }
        let above = points.iter().position(|point| point.0 >= bytes);
        let above = above.unwrap_or(points.len() - 1);
        let (a, b) = (points[above - 1], points[above]);
        let slope = ((b.1 - a.1) / (b.0 - a.0)).max(0.0);
        if bytes > last.0 {
            return (last.1 + slope * (bytes - last.0)) * 1e3;
        }
        (a.1 + (b.1 - a.1) / (b.0 - a.0) * (bytes - a.0)) * 1e3
    }

    /// The shortest latency of any size.
    fn least(&self) -> Nanos {
        let least = self.points.iter().map(|point| point.1);
        Nanos((least.fold(f64::INFINITY, f64::min) * 1e3).round() as u64)
    }

    /// When `bytes` are through that take `latency` ns alone.
    fn end(&mut self, start: Instant, bytes: f64, latency: f64) -> Instant {
        let alone = start + Nanos(latency.round() as u64);
        let bus = Nanos((bytes * self.nanos_per_byte).round() as u64);
        self.bus_free = self.bus_free.max(start) + bus;
        alone.max(self.bus_free)
    }
}

impl ConstantModel {
    /// A device at rest at moment zero.
    pub fn new(spec: &ConstantSpec, power: &PowerSpec) -> ConstantModel {
        ConstantModel {
            read: Line::new(&spec.read_us, spec.read_mb_s),
            write: Line::new(&spec.write_us, spec.write_mb_s),
            recent: spec.read_cache.as_ref().map(|cache| {
                let hits = Line::new(&cache.hit_us, spec.read_mb_s);
                (hits, RecentPages::new(cache.size))
            }),
            room: spec.write_cache.as_ref().map(|cache| {
                let room = WriteRoom::new(cache.size, cache.refill_mb_s);
                (room, cache.beyond_times)
            }),
            each_in_flight: spec.each_in_flight_percent / 100.0,
            servers: (0..spec.parallel).map(|_| Reverse(Instant(0))).collect(),
            done: BinaryHeap::new(),
            sequence: 0,
            now: Instant(0),
            meter: PowerMeter::new(power, Instant(0)),
        }
    }

    /// What a read or write of `span` takes alone, in ns; the caches see it.
    fn latency(&mut self, is_read: bool, span: Span) -> f64 {
        let bytes = span.len.0 as f64;
        let hit = match &mut self.recent {
            Some((line, pages)) => pages.touch(span).then(|| line.latency(bytes)),
            None => None,
        };
        if is_read {
            return hit.unwrap_or_else(|| self.read.latency(bytes));
        }
        let beyond = match &mut self.room {
            Some((room, times)) => match room.take(self.now, bytes) {
                true => 1.0,
                false => *times,
            },
            None => 1.0,
        };
        self.write.latency(bytes) * beyond
    }

    /// How many requests that arrived before are not through.
    fn in_flight(&self) -> usize {
        let later = |Reverse((at, _, _)): &&Reverse<(Instant, u64, u64)>| *at > self.now;
        self.done.iter().filter(later).count()
    }
}

impl Timing for ConstantModel {
    fn submit(&mut self, now: Instant, request: Request) {
        self.now = self.now.max(now);
        let ready = self.meter.wake(self.now);
        self.meter.settle(self.now);
        let is_read = request.op == Op::Read;
        let bytes = match request.op {
            Op::Read | Op::Write | Op::WriteZeroes => request.span.len.0,
            Op::Flush | Op::Discard => 0,
        };
        let longer = match self.each_in_flight {
            0.0 => 1.0,
            each => 1.0 + each * self.in_flight() as f64,
        };
        let latency = match bytes {
            // Nothing is lost that was written and nothing is freed: as long as the quickest write.
            0 => self.write.least().0 as f64,
            _ => self.latency(is_read, request.span),
        } * longer;
        let Reverse(free) = self.servers.pop().expect("at least one server");
        let start = ready.max(free);
        let (line, state) = match is_read {
            true => (&mut self.read, State::Read),
            false => (&mut self.write, State::Write),
        };
        let end = match bytes {
            0 => start + Nanos(latency.round() as u64),
            bytes => line.end(start, bytes as f64, latency),
        };
        self.servers.push(Reverse(end));
        self.meter.busy(state, end);
        self.done.push(Reverse((end, self.sequence, request.id)));
        self.sequence += 1;
    }

    fn next(&self) -> Option<Instant> {
        self.done.peek().map(|Reverse((at, _, _))| *at)
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    fn take_done(&mut self) -> Option<Done> {
        let due = matches!(self.done.peek(), Some(Reverse((at, _, _))) if *at <= self.now);
        if !due {
            return None;
        }
        let Reverse((at, _, id)) = self.done.pop()?;
        Some(Done { id, at })
    }

    fn standby(&mut self, now: Instant) -> bool {
        self.meter.sleep(now)
    }

    fn meter(&mut self, now: Instant) -> &PowerMeter {
        self.meter.settle(now);
        &self.meter
    }
}
