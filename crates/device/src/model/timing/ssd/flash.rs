//! The dies and channels of a flash device: who holds them, and until when?
//!
//! ```text
//! read:    die senses -> channel         program: channel -> die programs
//! collect: die senses -> channel out and in -> die programs, erases
//! ```
//!
//! Reads hold their die from submission on. A program that was passed over `PASSED_OVER_MAX` times goes first.
//!
//! Always true: each die and each channel does one thing at a time.

use std::collections::VecDeque;

use base::{Instant, Nanos};

use super::super::parameters::FlashSpec;
use super::ftl::{Row, Step};
use super::micros;

/// How often reads may take a die before a program that waits for it.
const PASSED_OVER_MAX: u32 = 8;

/// A row on its way into flash.
#[derive(Clone, Copy)]
pub(super) struct Program {
    pub(super) row: Row,
    /// The flush period it belongs to.
    pub(super) period: u64,
    /// When its data are in the buffer.
    pub(super) ready: Instant,
}

/// What a die does other than to sense.
pub(super) enum Operation {
    Program(Program),
    Collect,
}

/// What a die that is asked to go on does.
pub(super) enum Turn {
    /// Nothing is to be done.
    Rest,
    /// It is held by reads: look again.
    Wait,
    /// Collects garbage.
    Collect,
    /// Programs the next row.
    Program,
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

/// All dies and channels.
pub(super) struct Flash {
    row_bytes: u64,
    sense: Nanos,
    program: Nanos,
    erase: Nanos,
    nanos_per_byte: f64,

    dies: Vec<Die>,
    /// When each channel is free.
    channels: Vec<Instant>,
}

impl Flash {
    pub(super) fn new(spec: &FlashSpec) -> Flash {
        Flash {
            row_bytes: spec.row_bytes(),
            sense: micros(spec.read_us),
            program: micros(spec.program_us),
            erase: micros(spec.erase_us),
            nanos_per_byte: 1e3 / spec.channel_mb_s,
            dies: (0..spec.all_dies()).map(|_| Die::default()).collect(),
            channels: vec![Instant(0); spec.channels as usize],
        }
    }

    /// Bytes of a row.
    #[inline]
    pub(super) fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    #[inline]
    fn channel(&self, die: u32) -> usize {
        (die % self.channels.len() as u32) as usize
    }

    /// Senses the row that holds `bytes` of what is read; returns when they are in the controller.
    #[inline]
    pub(super) fn sense(&mut self, die: u32, bytes: u64, commanded: Instant) -> Instant {
        let channel = self.channel(die);
        let here = &mut self.dies[die as usize];
        let sensed = commanded.max(here.free) + self.sense;
        here.free = sensed;
        let channel = &mut self.channels[channel];
        let start = sensed.max(*channel);
        let end = start + Nanos((bytes as f64 * self.nanos_per_byte) as u64);
        *channel = end;
        end
    }

    /// A row waits for its die.
    #[inline]
    pub(super) fn queue(&mut self, program: Program) {
        let die = program.row.die as usize;
        self.dies[die].programs.push_back(program);
    }

    /// When a die is to look for work, not before `not_before`; `None` if it will anyway.
    #[inline]
    pub(super) fn stir(&mut self, die: u32, not_before: Instant) -> Option<Instant> {
        let here = &mut self.dies[die as usize];
        if here.awaited {
            return None;
        }
        here.awaited = true;
        Some(here.free.max(not_before))
    }

    /// The event that a die awaited has come; returns what it has ended.
    #[inline]
    pub(super) fn woken(&mut self, die: u32) -> Option<Operation> {
        let here = &mut self.dies[die as usize];
        here.awaited = false;
        here.under_way.take()
    }

    /// Is an event for this die in the queue?
    #[inline]
    pub(super) fn is_awaited(&self, die: u32) -> bool {
        self.dies[die as usize].awaited
    }

    /// What does a die do next that neither programs nor collects? `needs` says whether it has garbage to collect,
    /// `starved` whether nothing may go before that.
    #[inline]
    pub(super) fn turn(
        &mut self,
        die: u32,
        now: Instant,
        needs: bool,
        starved: impl FnOnce() -> bool,
    ) -> Turn {
        let here = &mut self.dies[die as usize];
        let host = !here.programs.is_empty();
        if !host && !needs {
            return Turn::Rest;
        }
        if here.free > now && here.passed_over < PASSED_OVER_MAX {
            here.passed_over += 1;
            return Turn::Wait;
        }
        let collect = needs && (!host || !here.collected_last || starved());
        here.passed_over = 0;
        here.collected_last = collect;
        if collect {
            Turn::Collect
        } else {
            Turn::Program
        }
    }

    /// Takes the next row of a die for programming; with it, when it is programmed.
    #[inline]
    pub(super) fn next_program(&mut self, die: u32, now: Instant) -> Option<(Program, Instant)> {
        let channel = self.channel(die);
        let here = &mut self.dies[die as usize];
        let program = here.programs.pop_front()?;
        let row_time = Nanos((self.row_bytes as f64 * self.nanos_per_byte) as u64);
        let start = program.ready.max(now);
        let start = start.max(here.free);
        let moved = start.max(self.channels[channel]) + row_time;
        self.channels[channel] = moved;
        Some((program, moved + self.program))
    }

    /// When a step of collection that moves units of `unit` bytes has ended.
    pub(super) fn collected(&mut self, die: u32, step: &Step, unit: u64, now: Instant) -> Instant {
        let moved = (u64::from(step.moved) * unit) as f64 * self.nanos_per_byte;
        let channel = self.channel(die);
        let start = now.max(self.dies[die as usize].free);
        let mut end = start + Nanos(self.sense.0 * u64::from(step.rows_read));
        if step.moved > 0 {
            // Out to the controller for error correction and back in.
            end = end.max(self.channels[channel]) + Nanos(2 * moved as u64);
            self.channels[channel] = end;
        }
        if step.programs {
            end = end + self.program;
        }
        if step.erases {
            end = end + self.erase;
        }
        end
    }

    /// A die is busy with an operation until `end`.
    #[inline]
    pub(super) fn run(&mut self, die: u32, end: Instant, operation: Operation) {
        let here = &mut self.dies[die as usize];
        here.free = end;
        here.under_way = Some(operation);
        here.awaited = true;
    }
}
