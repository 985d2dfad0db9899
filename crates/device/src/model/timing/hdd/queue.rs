//! The commands that wait in a disk's own queue (NCQ), and those that wait outside while it is full.
//!
//! Always true: no command waits outside while the queue has room.

use std::collections::VecDeque;

use base::Instant;

use super::super::Request;
use super::geometry::{Geometry, Place};
use crate::api::Op;

/// A command in the disk's own queue.
pub(super) struct Queued {
    pub(super) id: u64,
    pub(super) write: bool,
    pub(super) start: u64,
    pub(super) sectors: u64,
    pub(super) place: Place,
    /// When it came into the disk's queue.
    pub(super) arrived: Instant,
    /// When the controller has understood it.
    pub(super) eligible: Instant,
}

/// The queue.
pub(super) struct Queue {
    depth: usize,
    waiting: Vec<Queued>,
    outside: VecDeque<Request>,
}

impl Queue {
    pub(super) fn new(depth: usize) -> Queue {
        Queue {
            depth,
            waiting: Vec::new(),
            outside: VecDeque::new(),
        }
    }

    /// Takes a command in, or leaves it outside.
    #[inline]
    pub(super) fn put(
        &mut self,
        request: Request,
        arrived: Instant,
        eligible: Instant,
        geometry: &Geometry,
    ) {
        if self.waiting.len() >= self.depth {
            self.outside.push_back(request);
            return;
        }
        self.waiting.push(Queued {
            id: request.id,
            write: request.op != Op::Read,
            start: request.span.start.0,
            sectors: request.span.len.sectors(),
            place: geometry.place(request.span.start.0),
            arrived,
            eligible,
        });
    }

    /// What waits inside, in no order.
    #[inline]
    pub(super) fn waiting(&self) -> &[Queued] {
        &self.waiting
    }

    /// Takes the command `index` out.
    #[inline]
    pub(super) fn take(&mut self, index: usize) -> Queued {
        self.waiting.swap_remove(index)
    }

    /// The next one from outside.
    #[inline]
    pub(super) fn take_outside(&mut self) -> Option<Request> {
        self.outside.pop_front()
    }

    /// Does nothing wait inside?
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
