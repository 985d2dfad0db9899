//! The way between a disk's buffers and its host: when has a command's data crossed it?
//!
//! Always true: data of one command cross at a time, in the order in which the commands came to it.

use std::collections::VecDeque;

use base::{Instant, Nanos};

use super::super::Done;

/// The interface and the commands that it completes.
pub(super) struct Interface {
    nanos_per_sector: f64,
    free: Instant,
    transfers: VecDeque<Done>,
}

impl Interface {
    pub(super) fn new(mb_s: f64) -> Interface {
        Interface {
            nanos_per_sector: 1e3 / mb_s * 512.0,
            free: Instant(0),
            transfers: VecDeque::new(),
        }
    }

    /// How long so many sectors take.
    #[inline]
    pub(super) fn time(&self, sectors: u64) -> Nanos {
        Nanos((sectors as f64 * self.nanos_per_sector).round() as u64)
    }

    /// Moves the data of a command that is ready at `eligible`; completes the command.
    #[inline]
    pub(super) fn transfer(&mut self, id: u64, sectors: u64, eligible: Instant) {
        let at = eligible.max(self.free) + self.time(sectors);
        self.free = at;
        self.transfers.push_back(Done { id, at });
    }

    /// When the next command is complete.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        self.transfers.front().map(|done| done.at)
    }

    /// The next command that is complete.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Done> {
        self.transfers.pop_front()
    }

    /// Is no transfer under way?
    pub(super) fn is_idle(&self) -> bool {
        self.transfers.is_empty()
    }
}
