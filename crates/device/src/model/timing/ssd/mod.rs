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

mod buffer;
mod controller;
mod events;
mod flash;
mod ftl;
mod map;

use std::collections::VecDeque;

use base::{Bytes, Instant, Nanos, Span};

pub use self::ftl::{Found, Ftl, Row, Shape, Step, Work};

use self::buffer::{Buffer, Stalled};
use self::controller::Controller;
use self::events::{Arrivals, Arriving, Event, Events};
use self::flash::{Flash, Operation, Program, Turn};
use super::parameters::{FlashSpec, PowerSpec, SsdSpec};
use super::power::{PowerMeter, State};
use super::{Done, Request, Timing};
use crate::api::Op;

/// Blocks per die below which blocks shrink rather than become fewer.
const BLOCKS_MIN: u64 = 64;

/// The timing core of a flash device.
pub struct SsdModel {
    // fixed
    /// Bytes of a unit of the mapping.
    unit: u64,
    depth: usize,

    // where requests pass
    controller: Controller,
    ftl: Ftl,
    flash: Flash,
    buffer: Buffer,

    // what is under way
    arrivals: Arrivals,
    under_way: usize,
    outside: VecDeque<Request>,
    events: Events,
    done: VecDeque<Done>,
    now: Instant,
    meter: PowerMeter,
}

fn micros(us: f64) -> Nanos {
    Nanos((us * 1e3).round() as u64)
}

/// How a device of `size` is laid out.
fn shape(spec: &FlashSpec, model_size: Bytes, size: Bytes) -> Shape {
    let unit = spec.mapping_size.0;
    let (row_bytes, dies) = (spec.row_bytes(), spec.all_dies());
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
    Shape {
        units: size.0.div_ceil(unit) as u32,
        dies: dies as u32,
        blocks: blocks as u32,
        rows: rows as u32,
        row_units: row_units as u32,
        low: low.max(2) as u32,
    }
}

impl SsdModel {
    /// A fresh device of `size` made of the model in `spec` (whose own size is `model_size`), idle at
    /// moment zero. What was never written reads as if it had been written once in sequence.
    pub fn new(spec: &SsdSpec, power: &PowerSpec, model_size: Bytes, size: Bytes) -> SsdModel {
        let unit = spec.flash.mapping_size.0;
        let buffer = &spec.buffer;
        SsdModel {
            unit,
            depth: spec.host.queue_depth as usize,
            controller: Controller::new(&spec.host),
            ftl: Ftl::new(shape(&spec.flash, model_size, size)),
            flash: Flash::new(&spec.flash),
            buffer: Buffer::new(buffer.buffer_size.0 / unit, !buffer.power_loss_protection),
            arrivals: Arrivals::default(),
            under_way: 0,
            outside: VecDeque::new(),
            events: Events::default(),
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

    fn complete(&mut self, id: u64, at: Instant) {
        self.events.at(at, Event::Done(id));
    }

    /// The units a span touches.
    fn units(&self, span: Span) -> std::ops::Range<u32> {
        let (from, to) = (span.start.byte(), span.end().byte());
        (from / self.unit) as u32..to.div_ceil(self.unit) as u32
    }

    fn admit(&mut self, request: Request, ready: Instant) {
        self.under_way += 1;
        if request.op == Op::Read {
            self.read(request, ready);
            return;
        }
        let commanded = self.controller.take_change(ready);
        match request.op {
            Op::Read | Op::Write => {
                let data = self.controller.data_in(commanded, request.span.len.0);
                self.write(request, data);
            }
            Op::Discard | Op::WriteZeroes => {
                // Zeroes are a mapping without a place, like a discard; both are metadata.
                let span = request.span;
                let inner = span.start.byte().div_ceil(self.unit)..span.end().byte() / self.unit;
                for unit in inner {
                    self.ftl.discard(unit as u32);
                }
                self.complete(request.id, self.controller.changed(commanded));
            }
            Op::Flush => self.flush(request.id, commanded),
        }
    }

    // --- reads ---------------------------------------------------------------------------------

    fn read(&mut self, request: Request, ready: Instant) {
        let commanded = self.controller.take_read(ready);
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
                        let end = self.flash.sense(die, bytes, commanded);
                        first = Some(first.map_or(end, |first| first.min(end)));
                        last = last.max(end);
                    }
                }
            }
        }
        if let Some((die, _, bytes)) = run {
            let end = self.flash.sense(die, bytes, commanded);
            first = Some(first.map_or(end, |first| first.min(end)));
            last = last.max(end);
        }
        let index = self.arrivals.put(Arriving {
            id: request.id,
            bytes: span.len.0,
            last_row: last,
        });
        self.meter.busy(State::Read, last);
        self.events
            .at(first.unwrap_or(commanded), Event::Arrived(index));
    }

    /// Data of a read have begun to arrive: they cross the interface as they come.
    fn arrived(&mut self, index: u32) {
        let Arriving {
            id,
            bytes,
            last_row,
        } = self.arrivals.take(index);
        let tail = bytes.min(self.flash.row_bytes());
        let end = self.controller.data_out(self.now, bytes, last_row, tail);
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
                data = self.flash.sense(die, self.unit, data);
            }
        }
        let mut stalled = Stalled {
            request,
            units,
            data,
        };
        if self.buffer.has_stalled() || !self.place(&mut stalled) {
            self.buffer.stall(stalled);
        }
    }

    /// Puts as much of a write into the buffer as there is room for; true once all of it is in.
    fn place(&mut self, write: &mut Stalled) -> bool {
        let ready = write.data.max(self.now);
        while let Some(unit) = write.units.clone().next() {
            if self.buffer.is_full() {
                return false;
            }
            let Some((took, row)) = self.ftl.write(unit) else {
                for die in 0..self.ftl.shape().dies {
                    if self.ftl.wants_collection(die) {
                        self.stir(die, self.now);
                    }
                }
                return false;
            };
            write.units.start += 1;
            self.buffer.add(u64::from(took));
            if let Some(row) = row {
                self.queue_row(row, ready);
            }
        }
        let at = self.controller.changed(ready);
        self.meter.busy(State::Write, at);
        if write.request.fua && self.buffer.is_volatile() {
            self.flush(write.request.id, at);
        } else {
            self.complete(write.request.id, at);
        }
        true
    }

    fn queue_row(&mut self, row: Row, ready: Instant) {
        let period = self.buffer.row();
        self.flash.queue(Program { row, period, ready });
        self.stir(row.die, ready);
    }

    /// Writes that wait for room try again, first come, first served.
    fn unstall(&mut self) {
        while let Some(mut first) = self.buffer.next_stalled() {
            if !self.place(&mut first) {
                self.buffer.stall_again(first);
                return;
            }
        }
    }

    /// A flush closes a period: it completes when all rows of this one and the ones before are in flash.
    fn flush(&mut self, id: u64, earliest: Instant) {
        if !self.buffer.is_volatile() {
            self.complete(id, earliest);
            return;
        }
        if let Some(row) = self.ftl.pad() {
            self.queue_row(row, earliest);
        }
        self.buffer.flush(id, earliest);
        self.settle_flushes();
    }

    /// Completes the flushes that wait for nothing any more.
    fn settle_flushes(&mut self) {
        let mut index = 0;
        while let Some(flush) = self.buffer.take_flush(&mut index) {
            self.complete(flush.id, flush.earliest.max(self.now));
        }
    }

    // --- dies ----------------------------------------------------------------------------------

    /// Makes sure that a die with work looks at it when it is free.
    fn stir(&mut self, die: u32, not_before: Instant) {
        if let Some(when) = self.flash.stir(die, not_before.max(self.now)) {
            self.events.at(when, Event::Die(die));
        }
    }

    fn die_event(&mut self, die: u32) {
        match self.flash.woken(die) {
            Some(Operation::Program(program)) => {
                let Row { block, units, .. } = program.row;
                self.ftl.programmed(die, block);
                self.buffer.programmed(program.period, units);
                self.settle_flushes();
                self.unstall();
            }
            Some(Operation::Collect) => self.unstall(),
            None => {}
        }
        if !self.flash.is_awaited(die) {
            self.start_on(die);
        }
    }

    /// Starts the next program or collection of a die that does neither.
    fn start_on(&mut self, die: u32) {
        let ftl = &self.ftl;
        let needs = ftl.wants_collection(die);
        let starved = || ftl.is_starved(die);
        match self.flash.turn(die, self.now, needs, starved) {
            Turn::Rest => {}
            Turn::Wait => self.stir(die, self.now),
            Turn::Collect => self.start_collection(die),
            Turn::Program => {
                if let Some((program, end)) = self.flash.next_program(die, self.now) {
                    self.run(die, end, Operation::Program(program));
                }
            }
        }
    }

    fn start_collection(&mut self, die: u32) {
        let step = self.ftl.collect(die);
        if step == Step::default() {
            // Nothing worth collecting after all: on with what the host wants.
            self.start_on(die);
            return;
        }
        let end = self.flash.collected(die, &step, self.unit, self.now);
        self.run(die, end, Operation::Collect);
    }

    fn run(&mut self, die: u32, end: Instant, operation: Operation) {
        self.meter.busy(State::Write, end);
        self.flash.run(die, end, operation);
        self.events.at(end, Event::Die(die));
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
        let event = self.events.next().map(|(at, _)| at);
        let done = self.done.front().map(|done| done.at);
        [event, done].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Instant) {
        while let Some((at, event)) = self.events.next() {
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
