//! The controller of a flash device and its interface: when does a command reach the flash, and when have its data
//! crossed to the host or from it?
//!
//! Always true: the controller takes up one command at a time, and each direction of the interface moves one
//! request's data at a time.

use base::{Instant, Nanos};

use super::super::parameters::HostSide;
use super::micros;

/// One direction of the interface, with what commands of that kind take.
struct Direction {
    nanos_per_byte: f64,
    /// Least time between two commands.
    gap: Nanos,
    /// What a request takes beyond controller, flash and interface.
    extra: Nanos,
    bus_free: Instant,
}

impl Direction {
    fn new(mb_s: f64, gap_us: f64, extra_us: f64) -> Direction {
        Direction {
            nanos_per_byte: 1e3 / mb_s,
            gap: micros(gap_us),
            extra: micros(extra_us),
            bus_free: Instant(0),
        }
    }

    #[inline]
    fn time(&self, bytes: u64) -> Nanos {
        Nanos((bytes as f64 * self.nanos_per_byte) as u64)
    }
}

/// The controller.
pub(super) struct Controller {
    command: Nanos,
    free: Instant,
    read: Direction,
    write: Direction,
}

impl Controller {
    pub(super) fn new(spec: &HostSide) -> Controller {
        Controller {
            command: micros(spec.command_us),
            free: Instant(0),
            read: Direction::new(spec.read_mb_s, spec.read_gap_us, spec.read_extra_us),
            write: Direction::new(spec.write_mb_s, spec.write_gap_us, spec.write_extra_us),
        }
    }

    #[inline]
    fn command(&mut self, ready: Instant, gap: Nanos) -> Instant {
        let start = ready.max(self.free);
        self.free = start + gap;
        start + self.command
    }

    /// Takes up a read; returns when the flash hears of it.
    #[inline]
    pub(super) fn take_read(&mut self, ready: Instant) -> Instant {
        self.command(ready, self.read.gap)
    }

    /// Takes up a command that is no read; returns when the bus or the mapping hears of it.
    #[inline]
    pub(super) fn take_change(&mut self, ready: Instant) -> Instant {
        self.command(ready, self.write.gap)
    }

    /// Data of a write cross to the buffer; returns when they have.
    #[inline]
    pub(super) fn data_in(&mut self, commanded: Instant, bytes: u64) -> Instant {
        let data = commanded.max(self.write.bus_free) + self.write.time(bytes);
        self.write.bus_free = data;
        data
    }

    /// Data of a read cross as they come, the last `tail` bytes from `last_row` on; returns when the read is complete.
    #[inline]
    pub(super) fn data_out(
        &mut self,
        now: Instant,
        bytes: u64,
        last_row: Instant,
        tail: u64,
    ) -> Instant {
        let start = now.max(self.read.bus_free);
        let crossed = start + self.read.time(bytes);
        self.read.bus_free = crossed;
        crossed.max(last_row + self.read.time(tail)) + self.read.extra
    }

    /// When a change is complete that is in the buffer or the mapping at `at`.
    #[inline]
    pub(super) fn changed(&self, at: Instant) -> Instant {
        at + self.write.extra
    }
}
