//! The write buffer of a flash device: is there room, and what does a flush wait for?
//!
//! ```text
//! unit -> buffer -> row (of the open period) -> programmed: room again
//! flush -> closes the period -> every row of it and of those before is in flash -> complete
//! ```
//!
//! Always true:
//! 1. A flush completes after every row that held acknowledged data has been programmed.
//! 2. Writes that wait for room are served in their order.

use std::collections::VecDeque;

use base::Instant;

use super::super::Request;

/// A write that waits for room in the buffer.
pub(super) struct Stalled {
    pub(super) request: Request,
    /// Units still to be placed.
    pub(super) units: std::ops::Range<u32>,
    pub(super) data: Instant,
}

/// A flush that waits.
pub(super) struct Flush {
    pub(super) id: u64,
    period: u64,
    pub(super) earliest: Instant,
}

/// The buffer, with what waits for room in it or for its contents to be in flash.
pub(super) struct Buffer {
    units_max: u64,
    /// Does it lose its contents with the power?
    volatile: bool,

    units: u64,
    stalled: VecDeque<Stalled>,
    /// Rows not yet programmed, by flush period; the first one is number `first_period`.
    periods: VecDeque<u64>,
    first_period: u64,
    flushes: Vec<Flush>,
}

impl Buffer {
    pub(super) fn new(units_max: u64, volatile: bool) -> Buffer {
        Buffer {
            units_max,
            volatile,
            units: 0,
            stalled: VecDeque::new(),
            periods: VecDeque::from([0]),
            first_period: 0,
            flushes: Vec::new(),
        }
    }

    /// Does it lose its contents with the power?
    #[inline]
    pub(super) fn is_volatile(&self) -> bool {
        self.volatile
    }

    /// Is there no room for another unit?
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.units >= self.units_max
    }

    /// A unit has gone in.
    #[inline]
    pub(super) fn add(&mut self, units: u64) {
        self.units += units;
    }

    /// Does a write wait for room?
    #[inline]
    pub(super) fn has_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// A write waits behind the others.
    pub(super) fn stall(&mut self, write: Stalled) {
        self.stalled.push_back(write);
    }

    /// A write goes on waiting before the others.
    pub(super) fn stall_again(&mut self, write: Stalled) {
        self.stalled.push_front(write);
    }

    /// The write that has waited longest.
    #[inline]
    pub(super) fn next_stalled(&mut self) -> Option<Stalled> {
        self.stalled.pop_front()
    }

    #[inline]
    fn open_period(&self) -> u64 {
        self.first_period + self.periods.len() as u64 - 1
    }

    /// A row is full and is to be programmed; returns its period.
    #[inline]
    pub(super) fn row(&mut self) -> u64 {
        if let Some(open) = self.periods.back_mut() {
            *open += 1;
        }
        self.open_period()
    }

    /// A row of so many units is in flash.
    #[inline]
    pub(super) fn programmed(&mut self, period: u64, units: u32) {
        self.units -= u64::from(units);
        self.periods[(period - self.first_period) as usize] -= 1;
        self.close_periods();
    }

    /// A flush waits for all that is in the buffer, and closes the period.
    pub(super) fn flush(&mut self, id: u64, earliest: Instant) {
        let period = self.open_period();
        self.periods.push_back(0);
        self.flushes.push(Flush {
            id,
            period,
            earliest,
        });
        self.close_periods();
    }

    #[inline]
    fn close_periods(&mut self) {
        while self.periods.len() > 1 && self.periods[0] == 0 {
            self.periods.pop_front();
            self.first_period += 1;
        }
    }

    /// The next flush, from `index` on, that waits for nothing; `index` is then behind those that stay.
    #[inline]
    pub(super) fn take_flush(&mut self, index: &mut usize) -> Option<Flush> {
        while self.flushes.get(*index)?.period >= self.first_period {
            *index += 1;
        }
        Some(self.flushes.remove(*index))
    }
}
