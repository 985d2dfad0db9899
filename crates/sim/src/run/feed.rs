//! Requests of the trace on their way to those who send them.
//!
//! Always true: portions do not depend on how the trace comes, and the feed never runs dry while the trace has more.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use env::sync::Event;
use trace::{Request, Requests};

use super::layout::{Layout, LayoutError};
use super::plan::RunError;

/// The feed is filled up to this ...
const FEED_FULL: usize = 16_384;
/// ... when it has fallen to this.
pub(super) const FEED_LOW: usize = 8_192;

/// Requests of the trace on their way to the workers.
#[derive(Default)]
pub(super) struct Feed {
    pub(super) queue: RefCell<VecDeque<Request>>,
    /// The trace has no more.
    pub(super) ended: Cell<bool>,
    /// There is little left.
    pub(super) hungry: Event,
    /// There is more again, or no more will come.
    pub(super) fed: Event,
}

/// The trace, filled into the feed in portions that do not depend on how it comes.
pub(super) struct Chunks<'a> {
    requests: &'a mut dyn Requests,
    batch: Vec<Request>,
    at: usize,
    pub(super) taken: u64,
    limit: u64,
}

impl<'a> Chunks<'a> {
    pub(super) fn new(requests: &'a mut dyn Requests, limit: Option<u64>) -> Chunks<'a> {
        Chunks {
            requests,
            batch: Vec::new(),
            at: 0,
            taken: 0,
            limit: limit.unwrap_or(u64::MAX),
        }
    }

    /// Fills the queue; may more come?
    pub(super) fn fill(&mut self, queue: &mut VecDeque<Request>) -> Result<bool, RunError> {
        while queue.len() < FEED_FULL {
            if self.at == self.batch.len() {
                self.at = 0;
                if self.taken == self.limit || !self.requests.next_batch(&mut self.batch)? {
                    self.batch.clear();
                    return Ok(false);
                }
            }
            let left = usize::try_from(self.limit - self.taken).unwrap_or(usize::MAX);
            let count = (self.batch.len() - self.at)
                .min(FEED_FULL - queue.len())
                .min(left);
            queue.extend(&self.batch[self.at..self.at + count]);
            self.at += count;
            self.taken += count as u64;
            if self.taken == self.limit {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the rest of the trace, so that an error names the size that would do for all of it.
    pub(super) fn whole_extent(
        &mut self,
        error: LayoutError,
        layout: &mut Layout,
        queue: &mut VecDeque<Request>,
    ) -> LayoutError {
        let LayoutError::Beyond {
            mut reaches,
            volume,
            mut needed,
        } = error
        else {
            return error;
        };
        let mut rest: Vec<Request> = queue.drain(..).collect();
        rest.extend(&self.batch[self.at..]);
        loop {
            for request in &rest {
                // What else is wrong with the trace is not asked any more.
                if let Err(LayoutError::Beyond {
                    reaches: also,
                    needed: room,
                    ..
                }) = layout.place(request, volume)
                {
                    reaches = reaches.max(also);
                    needed = needed.max(room);
                }
            }
            if !matches!(self.requests.next_batch(&mut rest), Ok(true)) {
                break;
            }
        }
        LayoutError::Beyond {
            reaches,
            volume,
            needed,
        }
    }
}
