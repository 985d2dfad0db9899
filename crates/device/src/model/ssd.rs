//! A flash device: which die, channel and bus does a request hold, and for how long?
//!
//! ```text
//! read:  controller -> die senses the row -> channel -> interface -> done
//! write: controller -> interface -> buffer -> done ... row full -> channel -> die programs
//!                                     |                               ^
//!                                     +-- no room: wait               +-- few free blocks: collect, erase
//! ```
//!
//! Reads hold their die from submission on, so they go before programs that wait; a program under way is
//! not interrupted. Programs and garbage collection start when their die is free; a program that was
//! passed over `PASSED_OVER_MAX` times goes first.
//!
//! Size: a device of another size than the model's has as many dies with fewer or more blocks; below 64
//! blocks per die the blocks shrink instead, so that garbage collection keeps its character.
//!
//! Always true:
//! 1. Each die, channel and bus does one thing at a time.
//! 2. A flush completes after every row that held acknowledged data has been programmed.
//! 3. A write is acknowledged only once all of it has room in the buffer.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use base::{Bytes, Instant, Nanos, Span};

use super::ftl::{Found, Ftl, Row, Shape, Step, Work};
use super::power::{PowerMeter, State};
use super::spec::{PowerSpec, SsdSpec};
use super::timing::{Done, Request, Timing};
use crate::api::Op;

/// How often reads may take a die before a program that waits for it.
const PASSED_OVER_MAX: u32 = 8;
/// Blocks per die below which blocks shrink rather than become fewer.
const BLOCKS_MIN: u64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The first row of a read is in the controller.
    Arrived(u32),
    /// A die is free, or has finished a program.
    Die(u32),
    /// A request is complete.
    Done(u64),
}

#[derive(Clone, Copy)]
struct Program {
    row: Row,
    /// The flush period it belongs to.
    period: u64,
    /// When its data are in the buffer.
    ready: Instant,
}

#[derive(Default)]
struct Die {
    /// Reads and programs hold it until then.
    free: Instant,
    programs: VecDeque<Program>,
    under_way: Option<Operation>,
    /// Is an event for it in the queue?
    awaited: bool,
    passed_over: u32,
    collected_last: bool,
}

enum Operation {
    Program(Program),
    Collect,
}

/// A read whose first row is on its way.
#[derive(Clone, Copy)]
struct Arriving {
    id: u64,
    bytes: u64,
    last_row: Instant,
}

/// A write that waits for room in the buffer.
struct Stalled {
    request: Request,
    /// Units still to be placed.
    units: std::ops::Range<u32>,
    data: Instant,
}

struct Flush {
    id: u64,
    period: u64,
    earliest: Instant,
}

/// The timing core of a flash device.
pub struct SsdModel {
    // fixed
    unit: u64,
    row_bytes: u64,
    channels: u32,
    sense: Nanos,
    program: Nanos,
    erase: Nanos,
    channel_nanos: f64,
    read_nanos: f64,
    write_nanos: f64,
    command: Nanos,
    read_gap: Nanos,
    write_gap: Nanos,
    read_extra: Nanos,
    write_extra: Nanos,
    depth: usize,
    buffer_units: u64,
    volatile: bool,

    ftl: Ftl,
    dies: Vec<Die>,
    channel_free: Vec<Instant>,
    controller_free: Instant,
    read_bus_free: Instant,
    write_bus_free: Instant,
    buffered: u64,
    stalled: VecDeque<Stalled>,
    /// Rows not yet programmed, by flush period; the first one is number `first_period`.
    periods: VecDeque<u64>,
    first_period: u64,
    flushes: Vec<Flush>,

    arriving: Vec<Arriving>,
    arriving_free: Vec<u32>,
    under_way: usize,
    outside: VecDeque<Request>,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    sequence: u64,
    done: VecDeque<Done>,
    now: Instant,
    meter: PowerMeter,
}

fn micros(us: f64) -> Nanos {
    Nanos((us * 1e3).round() as u64)
}

impl SsdModel {
    /// A fresh device of `size` made of the model in `spec` (whose own size is `model_size`), idle at
    /// moment zero. What was never written reads as if it had been written once in sequence.
    pub fn new(spec: &SsdSpec, power: &PowerSpec, model_size: Bytes, size: Bytes) -> SsdModel {
        let unit = spec.mapping_size.0;
        let row_bytes = spec.page_size.0 * spec.planes;
        let dies = spec.channels * spec.chips * spec.dies;
        let share = spec.raw_size.0 as f64 / model_size.0 as f64;
        let rows_needed = (size.0 as f64 * share / (row_bytes * dies) as f64).ceil() as u64;
        let mut rows = spec.block_pages;
        while rows > 4 && rows_needed / rows < BLOCKS_MIN {
            rows /= 2;
        }
        // Two blocks are always open and one is kept: a very small device gets a little more flash.
        let row_units = row_bytes / unit;
        let least = size.0.div_ceil(unit).div_ceil(dies * rows * row_units) + 4;
        let blocks = rows_needed.div_ceil(rows).max(least);
        let low = (blocks as f64 * spec.collect_below_percent / 100.0).floor() as u64;
        let shape = Shape {
            units: size.0.div_ceil(unit) as u32,
            dies: dies as u32,
            blocks: blocks as u32,
            rows: rows as u32,
            row_units: row_units as u32,
            low: low.max(2) as u32,
        };
        SsdModel {
            unit,
            row_bytes,
            channels: spec.channels as u32,
            sense: micros(spec.read_us),
            program: micros(spec.program_us),
            erase: micros(spec.erase_us),
            channel_nanos: 1e3 / spec.channel_mb_s,
            read_nanos: 1e3 / spec.read_mb_s,
            write_nanos: 1e3 / spec.write_mb_s,
            command: micros(spec.command_us),
            read_gap: micros(spec.read_gap_us),
            write_gap: micros(spec.write_gap_us),
            read_extra: micros(spec.read_extra_us),
            write_extra: micros(spec.write_extra_us),
            depth: spec.queue_depth as usize,
            buffer_units: spec.buffer_size.0 / unit,
            volatile: !spec.power_loss_protection,
            ftl: Ftl::new(shape),
            dies: (0..dies).map(|_| Die::default()).collect(),
            channel_free: vec![Instant(0); spec.channels as usize],
            controller_free: Instant(0),
            read_bus_free: Instant(0),
            write_bus_free: Instant(0),
            buffered: 0,
            stalled: VecDeque::new(),
            periods: VecDeque::from([0]),
            first_period: 0,
            flushes: Vec::new(),
            arriving: Vec::new(),
            arriving_free: Vec::new(),
            under_way: 0,
            outside: VecDeque::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            done: VecDeque::new(),
            now: Instant(0),
            meter: PowerMeter::new(power, Instant(0)),
        }
    }

    /// The translation layer: what it has written and moved.
    pub fn ftl(&self) -> &Ftl {
        &self.ftl
    }

    /// Writes one unit at once; names the die to collect on if there was no room.
    fn fill_one(&mut self, unit: u32) -> Option<u32> {
        match self.ftl.write(unit) {
            Some((_, row)) => {
                if let Some(row) = row {
                    self.ftl.programmed(row.die, row.block);
                }
                None
            }
            None => {
                let dies = 0..self.ftl.shape().dies;
                let die = dies.min_by_key(|&die| self.ftl.free_blocks(die));
                Some(die.expect("at least one die"))
            }
        }
    }

    fn at(&mut self, when: Instant, event: Event) {
        self.events.push(Reverse((when, self.sequence, event)));
        self.sequence += 1;
    }

    fn complete(&mut self, id: u64, at: Instant) {
        self.at(at, Event::Done(id));
    }

    /// The units a span touches.
    fn units(&self, span: Span) -> std::ops::Range<u32> {
        let (from, to) = (span.start.byte(), span.end().byte());
        (from / self.unit) as u32..to.div_ceil(self.unit) as u32
    }

    /// The controller takes a command up; returns when the flash or the bus hears of it.
    fn command(&mut self, ready: Instant, gap: Nanos) -> Instant {
        let start = ready.max(self.controller_free);
        self.controller_free = start + gap;
        start + self.command
    }

    fn admit(&mut self, request: Request, ready: Instant) {
        self.under_way += 1;
        match request.op {
            Op::Read => self.read(request, ready),
            Op::Write => {
                let commanded = self.command(ready, self.write_gap);
                let moved = (request.span.len.0 as f64 * self.write_nanos) as u64;
                let data = commanded.max(self.write_bus_free) + Nanos(moved);
                self.write_bus_free = data;
                self.write(request, data);
            }
            Op::Discard | Op::WriteZeroes => {
                // Zeroes are a mapping without a place, like a discard; both are metadata.
                let commanded = self.command(ready, self.write_gap);
                let span = request.span;
                let inner = span.start.byte().div_ceil(self.unit)..span.end().byte() / self.unit;
                for unit in inner {
                    self.ftl.discard(unit as u32);
                }
                self.complete(request.id, commanded + self.write_extra);
            }
            Op::Flush => {
                let commanded = self.command(ready, self.write_gap);
                self.flush(request.id, commanded);
            }
        }
    }

    // --- reads ---------------------------------------------------------------------------------

    /// Senses the row that holds `bytes` of what is read; returns when they are in the controller.
    fn sense(&mut self, die: u32, bytes: u64, commanded: Instant) -> Instant {
        let here = &mut self.dies[die as usize];
        let sensed = commanded.max(here.free) + self.sense;
        here.free = sensed;
        let channel = &mut self.channel_free[(die % self.channels) as usize];
        let start = sensed.max(*channel);
        let end = start + Nanos((bytes as f64 * self.channel_nanos) as u64);
        *channel = end;
        end
    }

    fn read(&mut self, request: Request, ready: Instant) {
        let commanded = self.command(ready, self.read_gap);
        let span = request.span;
        let (mut first, mut last) = (None::<Instant>, commanded);
        let mut run: Option<(u32, u64, u64)> = None;
        for unit in self.units(span) {
            let from = (u64::from(unit) * self.unit).max(span.start.byte());
            let to = ((u64::from(unit) + 1) * self.unit).min(span.end().byte());
            let Found::Flash { die, row } = self.ftl.find(unit) else {
                continue;
            };
            match &mut run {
                Some((_, same, bytes)) if *same == row => *bytes += to - from,
                _ => {
                    if let Some((die, _, bytes)) = run.replace((die, row, to - from)) {
                        let end = self.sense(die, bytes, commanded);
                        first = Some(first.map_or(end, |first| first.min(end)));
                        last = last.max(end);
                    }
                }
            }
        }
        if let Some((die, _, bytes)) = run {
            let end = self.sense(die, bytes, commanded);
            first = Some(first.map_or(end, |first| first.min(end)));
            last = last.max(end);
        }
        let arriving = Arriving {
            id: request.id,
            bytes: span.len.0,
            last_row: last,
        };
        let index = match self.arriving_free.pop() {
            Some(index) => {
                self.arriving[index as usize] = arriving;
                index
            }
            None => {
                self.arriving.push(arriving);
                (self.arriving.len() - 1) as u32
            }
        };
        self.meter.busy(State::Read, last);
        self.at(first.unwrap_or(commanded), Event::Arrived(index));
    }

    /// Data of a read have begun to arrive: they cross the interface as they come.
    fn arrived(&mut self, index: u32) {
        let Arriving {
            id,
            bytes,
            last_row,
        } = self.arriving[index as usize];
        self.arriving_free.push(index);
        let crossing = Nanos((bytes as f64 * self.read_nanos) as u64);
        let tail = (bytes.min(self.row_bytes) as f64 * self.read_nanos) as u64;
        let start = self.now.max(self.read_bus_free);
        self.read_bus_free = start + crossing;
        let end = (start + crossing).max(last_row + Nanos(tail)) + self.read_extra;
        self.meter.busy(State::Read, end);
        self.complete(id, end);
    }

    // --- writes --------------------------------------------------------------------------------

    fn write(&mut self, request: Request, data: Instant) {
        let span = request.span;
        let units = self.units(span);
        // The ends of a write that covers a unit only in part are read first.
        let ends = [
            (units.start, span.start.byte()),
            (units.end - 1, span.end().byte()),
        ];
        let mut data = data;
        for (index, &(unit, edge)) in ends.iter().enumerate() {
            let same = index == 1 && units.len() == 1 && !ends[0].1.is_multiple_of(self.unit);
            if edge.is_multiple_of(self.unit) || same {
                continue;
            }
            if let Found::Flash { die, .. } = self.ftl.find(unit) {
                data = self.sense(die, self.unit, data);
            }
        }
        let mut stalled = Stalled {
            request,
            units,
            data,
        };
        if !self.stalled.is_empty() || !self.place(&mut stalled) {
            self.stalled.push_back(stalled);
        }
    }

    /// Puts as much of a write into the buffer as there is room for; true once all of it is in.
    fn place(&mut self, write: &mut Stalled) -> bool {
        let ready = write.data.max(self.now);
        while let Some(unit) = write.units.clone().next() {
            if self.buffered >= self.buffer_units {
                return false;
            }
            let Some((took, row)) = self.ftl.write(unit) else {
                for die in 0..self.dies.len() as u32 {
                    if self.ftl.wants_collection(die) {
                        self.stir(die, self.now);
                    }
                }
                return false;
            };
            write.units.start += 1;
            self.buffered += u64::from(took);
            if let Some(row) = row {
                self.queue_row(row, ready);
            }
        }
        let at = ready + self.write_extra;
        self.meter.busy(State::Write, at);
        if write.request.fua && self.volatile {
            self.flush(write.request.id, at);
        } else {
            self.complete(write.request.id, at);
        }
        true
    }

    fn queue_row(&mut self, row: Row, ready: Instant) {
        let period = self.first_period + self.periods.len() as u64 - 1;
        if let Some(open) = self.periods.back_mut() {
            *open += 1;
        }
        self.dies[row.die as usize]
            .programs
            .push_back(Program { row, period, ready });
        self.stir(row.die, ready);
    }

    /// Writes that wait for room try again, first come, first served.
    fn unstall(&mut self) {
        while let Some(mut first) = self.stalled.pop_front() {
            if !self.place(&mut first) {
                self.stalled.push_front(first);
                return;
            }
        }
    }

    /// A flush closes a period: it completes when all rows of this one and the ones before are in flash.
    fn flush(&mut self, id: u64, earliest: Instant) {
        if !self.volatile {
            self.complete(id, earliest);
            return;
        }
        if let Some(row) = self.ftl.pad() {
            self.queue_row(row, earliest);
        }
        let period = self.first_period + self.periods.len() as u64 - 1;
        self.periods.push_back(0);
        self.flushes.push(Flush {
            id,
            period,
            earliest,
        });
        self.close_periods();
    }

    fn close_periods(&mut self) {
        while self.periods.len() > 1 && self.periods[0] == 0 {
            self.periods.pop_front();
            self.first_period += 1;
        }
        let mut index = 0;
        while index < self.flushes.len() {
            if self.flushes[index].period >= self.first_period {
                index += 1;
                continue;
            }
            let flush = self.flushes.remove(index);
            let at = flush.earliest.max(self.now);
            self.complete(flush.id, at);
        }
    }

    // --- dies ----------------------------------------------------------------------------------

    /// Makes sure that a die with work looks at it when it is free.
    fn stir(&mut self, die: u32, not_before: Instant) {
        let here = &mut self.dies[die as usize];
        if here.awaited {
            return;
        }
        here.awaited = true;
        let when = here.free.max(not_before).max(self.now);
        self.at(when, Event::Die(die));
    }

    fn die_event(&mut self, die: u32) {
        self.dies[die as usize].awaited = false;
        match self.dies[die as usize].under_way.take() {
            Some(Operation::Program(program)) => {
                self.ftl.programmed(die, program.row.block);
                self.buffered -= u64::from(program.row.units);
                self.periods[(program.period - self.first_period) as usize] -= 1;
                self.close_periods();
                self.unstall();
            }
            Some(Operation::Collect) => self.unstall(),
            None => {}
        }
        if !self.dies[die as usize].awaited {
            self.start_on(die);
        }
    }

    /// Starts the next program or collection of a die that does neither.
    fn start_on(&mut self, die: u32) {
        let here = &self.dies[die as usize];
        let host = here.programs.front().map(|program| program.ready);
        let needs = self.ftl.wants_collection(die);
        if host.is_none() && !needs {
            return;
        }
        if here.free > self.now && here.passed_over < PASSED_OVER_MAX {
            self.dies[die as usize].passed_over += 1;
            self.stir(die, self.now);
            return;
        }
        let starved = self.ftl.is_starved(die);
        let collect = needs && (host.is_none() || starved || !here.collected_last);
        let here = &mut self.dies[die as usize];
        here.passed_over = 0;
        here.collected_last = collect;
        if collect {
            self.start_collection(die);
            return;
        }
        let Some(program) = self.dies[die as usize].programs.pop_front() else {
            return;
        };
        let row_time = Nanos((self.row_bytes as f64 * self.channel_nanos) as u64);
        let channel = (die % self.channels) as usize;
        let start = program.ready.max(self.now);
        let start = start.max(self.dies[die as usize].free);
        let moved = start.max(self.channel_free[channel]) + row_time;
        self.channel_free[channel] = moved;
        self.run(die, moved + self.program, Operation::Program(program));
    }

    fn start_collection(&mut self, die: u32) {
        let step = self.ftl.collect(die);
        if step == Step::default() {
            // Nothing worth collecting after all: on with what the host wants.
            self.start_on(die);
            return;
        }
        let moved = (u64::from(step.moved) * self.unit) as f64 * self.channel_nanos;
        let channel = (die % self.channels) as usize;
        let start = self.now.max(self.dies[die as usize].free);
        let mut end = start + Nanos(self.sense.0 * u64::from(step.rows_read));
        if step.moved > 0 {
            // Out to the controller for error correction and back in.
            end = end.max(self.channel_free[channel]) + Nanos(2 * moved as u64);
            self.channel_free[channel] = end;
        }
        if step.programs {
            end = end + self.program;
        }
        if step.erases {
            end = end + self.erase;
        }
        self.run(die, end, Operation::Collect);
    }

    fn run(&mut self, die: u32, end: Instant, operation: Operation) {
        self.meter.busy(State::Write, end);
        let here = &mut self.dies[die as usize];
        here.free = end;
        here.under_way = Some(operation);
        here.awaited = true;
        self.at(end, Event::Die(die));
    }

    fn finish(&mut self, id: u64, at: Instant) {
        self.done.push_back(Done { id, at });
        self.under_way -= 1;
        if let Some(request) = self.outside.pop_front() {
            self.admit(request, at);
        }
    }
}

impl Timing for SsdModel {
    fn submit(&mut self, now: Instant, request: Request) {
        self.advance(now);
        let ready = self.meter.wake(self.now);
        if self.under_way >= self.depth {
            self.outside.push_back(request);
        } else {
            self.admit(request, ready);
        }
    }

    fn next(&self) -> Option<Instant> {
        let event = self.events.peek().map(|Reverse((at, _, _))| *at);
        let done = self.done.front().map(|done| done.at);
        [event, done].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Instant) {
        while let Some(&Reverse((at, _, event))) = self.events.peek() {
            if at > now {
                break;
            }
            self.events.pop();
            self.now = self.now.max(at);
            self.meter.settle(self.now);
            match event {
                Event::Arrived(index) => self.arrived(index),
                Event::Die(die) => self.die_event(die),
                Event::Done(id) => self.finish(id, at),
            }
        }
        self.now = self.now.max(now);
        self.meter.settle(self.now);
    }

    fn take_done(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    fn standby(&mut self, now: Instant) -> bool {
        self.advance(now);
        self.under_way == 0 && self.meter.sleep(self.now)
    }

    fn meter(&mut self, now: Instant) -> &PowerMeter {
        self.advance(now);
        &self.meter
    }

    fn fill(&mut self) {
        for unit in 0..self.ftl.shape().units {
            while let Some(die) = self.fill_one(unit) {
                self.ftl.collect(die);
            }
        }
        if let Some(row) = self.ftl.pad() {
            self.ftl.programmed(row.die, row.block);
        }
    }

    fn work(&self) -> Option<Work> {
        Some(self.ftl.work())
    }
}
