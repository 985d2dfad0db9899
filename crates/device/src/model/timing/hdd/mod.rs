//! A disk with an arm and a spindle: which request is next, and when has it passed under the head?
//!
//! ```text
//! submit -> in a buffer already? ----------------------------------------> interface -> done
//!        -> queue (NCQ) --\
//!        -> write cache ---+-> shortest access first -> seek, turn, transfer -> done
//!                          |                                  |
//!                          +--- read-ahead goes on until the next service --+
//! ```
//!
//! ```text
//! geometry: sector -> angle    arm: where the head is     queue: commands, NCQ
//! write_cache: runs, flushes   read_buffer: read-ahead    interface: data to the host
//! ```
//!
//! Size: a disk of another size than the model's has the same heads, track lengths and zones but more or
//! fewer tracks per surface. A seek is measured on the way relative to the full stroke, so its mean and its
//! full stroke stay those of the model, whatever the size (see docs/models.md).
//!
//! Always true:
//! 1. The head is in one place: services of the medium never overlap.
//! 2. A flush completes after every write that was acknowledged before it is on the medium.
//! 3. No request waits for others longer than the age limit plus the ones that waited longer.

mod arm;
mod geometry;
mod interface;
mod queue;
mod read_buffer;
mod write_cache;

use std::collections::VecDeque;

use base::{Bytes, Instant, Nanos};

pub use self::geometry::{Geometry, SeekCurve};

use self::arm::Arm;
use self::geometry::Place;
use self::interface::Interface;
use self::queue::{Queue, Queued};
use self::read_buffer::ReadBuffer;
use self::write_cache::WriteCache;
use super::parameters::{HddSpec, PowerSpec};
use super::power::{PowerMeter, State};
use super::{Done, Request, Timing};
use crate::api::Op;

/// What the medium is doing.
struct Service {
    end: Instant,
    finished: Finished,
}

enum Finished {
    /// A host's command.
    Command { id: u64 },
    /// A run of the write cache, of so many sectors.
    Run { sectors: u64, sequence: u64 },
}

/// A candidate for the next service.
#[derive(Clone, Copy)]
enum Pick {
    Command(usize),
    Run(usize),
}

/// The timing core of a disk.
pub struct HddModel {
    // fixed
    overhead: Nanos,
    age_limit: Nanos,

    // what waits, and for what
    queue: Queue,
    cache: WriteCache,
    buffer: ReadBuffer,
    interface: Interface,
    done: VecDeque<Done>,

    // the mechanics
    arm: Arm,
    service: Option<Service>,
    /// When the disk works again after it was woken.
    ready: Instant,
    sleep_when_clean: bool,
    meter: PowerMeter,
    now: Instant,
}

impl HddModel {
    /// A disk of `size` made of the model in `spec` (whose own size is `model_size`), spinning and idle
    /// at moment zero; `seed` chooses where the platters stand.
    pub fn new(
        spec: &HddSpec,
        power: &PowerSpec,
        model_size: Bytes,
        size: Bytes,
        seed: u64,
    ) -> HddModel {
        let commands = &spec.commands;
        HddModel {
            overhead: Nanos((commands.overhead_ms * 1e6).round() as u64),
            age_limit: Nanos((commands.age_limit_ms * 1e6).round() as u64),
            queue: Queue::new(commands.queue_depth as usize),
            cache: WriteCache::new(&spec.buffers),
            buffer: ReadBuffer::new(&spec.buffers),
            interface: Interface::new(commands.interface_mb_s),
            done: VecDeque::new(),
            arm: Arm::new(&spec.mechanics, model_size, size, seed),
            service: None,
            ready: Instant(0),
            sleep_when_clean: false,
            meter: PowerMeter::new(power, Instant(0)),
            now: Instant(0),
        }
    }

    /// Tracks and zones of this disk.
    pub fn geometry(&self) -> &Geometry {
        &self.arm.geometry
    }

    // --- what is asked -------------------------------------------------------------------------

    /// Takes a command in, or leaves it outside while the queue is full.
    fn admit(&mut self, request: Request, now: Instant) {
        let eligible = now.max(self.ready) + self.overhead;
        match request.op {
            Op::Flush => self.cache.flush(request.id, eligible),
            // A disk has nothing to free.
            Op::Discard => self.interface.transfer(request.id, 0, eligible),
            Op::Read => {
                if self.buffer.holds(request.span) || self.cache.holds(request.span) {
                    let sectors = request.span.len.sectors();
                    self.interface.transfer(request.id, sectors, eligible);
                    return;
                }
                self.enqueue(request, now, eligible);
            }
            Op::Write | Op::WriteZeroes => {
                self.buffer.forget(request.span);
                if !self.cache.wants(&request) {
                    self.enqueue(request, now, eligible);
                } else if self.cache.takes(request.span) {
                    self.put_in_cache(request, eligible);
                } else {
                    self.cache.stall(request, eligible);
                }
            }
        }
    }

    fn enqueue(&mut self, request: Request, arrived: Instant, eligible: Instant) {
        self.queue
            .put(request, arrived, eligible, &self.arm.geometry);
    }

    fn put_in_cache(&mut self, request: Request, eligible: Instant) {
        let sectors = request.span.len.sectors();
        let moved = if request.op == Op::Write { sectors } else { 0 };
        self.interface.transfer(request.id, moved, eligible);
        self.cache.put(request.span, &self.arm.geometry, self.now);
    }

    /// Takes stalled writes into the cache, first come, first served.
    fn unstall(&mut self, now: Instant) {
        while let Some((request, eligible)) = self.cache.unstall() {
            self.put_in_cache(request, eligible.max(now));
        }
    }

    /// Completes the flushes that wait for nothing any more.
    fn settle_flushes(&mut self) {
        let under_way = match &self.service {
            Some(Service {
                finished: Finished::Run { sequence, .. },
                ..
            }) => Some(*sequence),
            _ => None,
        };
        let Some(oldest) = self.cache.oldest_awaited(under_way) else {
            return;
        };
        let mut index = 0;
        while let Some(flush) = self.cache.take_flush(&mut index, oldest) {
            let eligible = flush.eligible.max(self.now);
            self.interface.transfer(flush.id, 0, eligible);
        }
    }

    // --- the medium ----------------------------------------------------------------------------

    /// The next service: shortest access first, unless one waited too long.
    fn pick(&self) -> Option<Pick> {
        let now = self.now;
        let angle = self.arm.angle_at(now);
        let mut best = None;
        let mut least = u64::MAX;
        let mut oldest = (now, 0);
        for (index, queued) in self.queue.waiting().iter().enumerate() {
            if queued.arrived < oldest.0 {
                oldest = (queued.arrived, index);
            }
            let cost = self.cost(queued, angle);
            if cost < least {
                least = cost;
                best = Some(Pick::Command(index));
            }
        }
        if now.since(oldest.0) > self.age_limit {
            return Some(Pick::Command(oldest.1));
        }
        if best.is_none() || self.cache.presses(now, self.age_limit) {
            for (index, run) in self.cache.runs().iter().enumerate() {
                let (seek, wait) = self.arm.access(&run.place, true, angle);
                if seek + wait < least {
                    least = seek + wait;
                    best = Some(Pick::Run(index));
                }
            }
        }
        best
    }

    /// How far the head, at `angle` now, is from the data of a command, as an angle.
    #[inline]
    fn cost(&self, queued: &Queued, angle: u32) -> u64 {
        let now = self.now;
        if let Some(end) = self.passes(queued) {
            // As with a seek, the time until the data begin, not until they end.
            let passing = self.arm.geometry.pass(queued.place, queued.sectors);
            let begin = (end.since(now).0 as f64 - passing).max(0.0);
            return self.arm.turns(begin);
        }
        let late = queued.eligible.since(now);
        let (begin, extra) = if late.0 == 0 {
            (angle, 0)
        } else {
            let begin = self.arm.angle_at(queued.eligible);
            (begin, self.arm.turns(late.0 as f64))
        };
        let (seek, wait) = self.arm.access(&queued.place, queued.write, begin);
        extra + seek + wait
    }

    /// When the read-ahead under way will have passed the whole of a queued read; `None` if it does not.
    #[inline]
    fn passes(&self, queued: &Queued) -> Option<Instant> {
        self.buffer
            .passes(queued, self.now, &self.arm.geometry, &self.interface)
    }

    /// Ends the read-ahead; keeps what it has read.
    fn end_stream(&mut self) {
        let Some(reached) = self.buffer.end(self.now, &self.arm.geometry) else {
            return;
        };
        self.meter.cut(State::Read, self.now);
        self.arm.passed(reached.max(1) - 1);
    }

    /// Starts the next service if the medium is free and something waits for it.
    fn start(&mut self) {
        if self.service.is_some() {
            return;
        }
        let Some(pick) = self.pick() else {
            self.rest();
            return;
        };
        let service = match pick {
            Pick::Command(index) => self.start_command(index),
            Pick::Run(index) => self.start_run(index),
        };
        self.service = Some(service);
    }

    fn start_command(&mut self, index: usize) -> Service {
        let now = self.now;
        let queued = self.queue.take(index);
        if let Some(request) = self.queue.take_outside() {
            self.enqueue(request, now, now + self.overhead);
        }
        let end = match self.passes(&queued) {
            Some(end) => {
                if let Some(until) = self.buffer.read_on(&queued, &self.arm.geometry) {
                    self.meter.busy(State::Read, until.max(end));
                }
                end
            }
            None => self.seek_and_pass(
                queued.place,
                queued.start,
                queued.sectors,
                queued.write,
                queued.eligible.max(now),
            ),
        };
        Service {
            end,
            finished: Finished::Command { id: queued.id },
        }
    }

    fn start_run(&mut self, index: usize) -> Service {
        let run = self.cache.take_run(index);
        let sectors = run.end - run.start;
        let from = self.now.max(self.ready);
        Service {
            end: self.seek_and_pass(run.place, run.start, sectors, true, from),
            finished: Finished::Run {
                sectors,
                sequence: run.sequence,
            },
        }
    }

    /// Moves the arm, waits for the sector, lets the data pass. Returns when they have.
    fn seek_and_pass(
        &mut self,
        place: Place,
        start: u64,
        sectors: u64,
        write: bool,
        from: Instant,
    ) -> Instant {
        self.end_stream();
        let (seek, wait) = self.arm.access(&place, write, self.arm.angle_at(from));
        let arrive = from + Nanos(self.arm.nanos(seek));
        let pass = self.arm.geometry.pass(place, sectors);
        let end = from + Nanos(self.arm.nanos(seek + wait) + pass.round() as u64);
        let (seeking, moving) = if write {
            (State::SeekWrite, State::Write)
        } else {
            (State::SeekRead, State::Read)
        };
        if seek > 0 {
            self.meter.busy(seeking, arrive);
        }
        self.arm.passed(start + sectors - 1);
        let mut until = end;
        if !write {
            let behind = start + sectors;
            until = self.buffer.begin(start, behind, end, &self.arm.geometry);
        }
        self.meter.busy(moving, until);
        end
    }

    /// Nothing waits for the medium: sleep, if that was asked for.
    fn rest(&mut self) {
        if self.sleep_when_clean && self.interface.is_idle() {
            self.sleep_when_clean = false;
            self.end_stream();
            self.meter.sleep(self.now);
        }
    }

    /// The medium has finished.
    fn finish(&mut self, service: Service) {
        match service.finished {
            Finished::Command { id } => self.done.push_back(Done {
                id,
                at: service.end,
            }),
            Finished::Run { sectors, .. } => {
                self.cache.written(sectors);
                self.unstall(service.end);
            }
        }
        self.settle_flushes();
        self.start();
    }

    fn settle(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.meter.settle(self.now);
    }
}

impl Timing for HddModel {
    fn submit(&mut self, now: Instant, request: Request) {
        self.advance(now);
        let nothing_to_do =
            request.op == Op::Flush && self.cache.runs().is_empty() && self.service.is_none();
        if !nothing_to_do {
            self.ready = self.ready.max(self.meter.wake(self.now));
            self.sleep_when_clean = false;
        }
        self.admit(request, self.now);
        self.settle_flushes();
        self.start();
    }

    fn next(&self) -> Option<Instant> {
        let medium = self.service.as_ref().map(|service| service.end);
        let interface = self.interface.next();
        let taken = self.done.front().map(|done| done.at);
        [medium, interface, taken].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Instant) {
        loop {
            let medium = self.service.as_ref().map(|service| service.end);
            let interface = self.interface.next();
            let due = [medium, interface].into_iter().flatten().min();
            let Some(due) = due.filter(|&due| due <= now) else {
                break;
            };
            self.settle(due);
            if interface == Some(due) {
                self.done.extend(self.interface.take());
                if self.service.is_none() {
                    self.start();
                }
            } else if let Some(service) = self.service.take() {
                self.finish(service);
            }
        }
        self.settle(now);
    }

    fn take_done(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    fn standby(&mut self, now: Instant) -> bool {
        self.advance(now);
        if !self.meter.sleeps() || !self.queue.is_empty() || self.cache.is_awaited() {
            return false;
        }
        self.sleep_when_clean = true;
        self.start();
        true
    }

    fn meter(&mut self, now: Instant) -> &PowerMeter {
        self.advance(now);
        &self.meter
    }
}
