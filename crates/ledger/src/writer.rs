//! From committed batches to durable ones: one write at a time, then every commit it held is answered.
//!
//! ```text
//! committed head of the queue -> one batch, FUA -> durable -> answers -> the next
//!    before it: the superblocks say "not clean"; what could not be read behind the head is written over
//!    after it:  the superblocks, when a tail moved far or much was written
//! ```
//!
//! Always true:
//! 1. At most one batch is on its way to the device; the next starts when it is durable. So a batch that is there proves that
//!    all before it were durable.
//! 2. The log between the tails of both superblocks and the head is never overwritten.

use std::cell::RefCell;
use std::rc::Rc;

use base::{Buf, Bytes, Span};
use device::DeviceError;
use env::sync::{Event, Semaphore};

use crate::compaction::Compaction;
use crate::error::LedgerError;
use crate::layout::{BLOCK, Place, Superblock};
use crate::ledger::Counters;
use crate::log::{DURABLE, Log};
use crate::queue::Queue;
use crate::replay::{NOTE_EVERY, Start};
use crate::superblocks::{Superblocks, fresh_generation};
use crate::track::{Frame, Track};

/// All that changes while a ledger is open.
pub(crate) struct State {
    pub superblocks: Superblocks,
    pub track: Track,
    pub queue: Queue,
    pub compaction: Compaction,
    /// A task writes the queue.
    pub writing: bool,
    pub failed: Option<LedgerError>,
    pub closed: bool,
    pub counters: Counters,
}

/// Writes the batches and superblocks of an open ledger.
pub(crate) struct Writer {
    pub log: Log,
    pub id: u128,
    pub state: RefCell<State>,
    /// Batches became durable, or none will any more.
    pub progress: Event,
    /// One writes the superblocks at a time.
    turn: Rc<Semaphore>,
}

/// The error of what comes after a failure.
pub(crate) fn failed(cause: &LedgerError) -> LedgerError {
    LedgerError::Failed {
        first: Box::new(cause.clone()),
    }
}

impl Writer {
    /// Of a log that goes on from `start`, with the newest superblock, the slot of the other one, and the lesser tail.
    pub fn new(
        log: Log,
        newest: Superblock,
        older: usize,
        hard_tail: Place,
        start: Start,
    ) -> Writer {
        let (put, renew) = (start.put_bytes, start.renew);
        let id = newest.id;
        let track = Track::new(start);
        let state = State {
            superblocks: Superblocks::new(newest, older, hard_tail),
            compaction: Compaction::new(track.used(), put, renew),
            track,
            queue: Queue::default(),
            writing: false,
            failed: None,
            closed: false,
            counters: Counters::default(),
        };
        Writer {
            log,
            id,
            state: RefCell::new(state),
            progress: Event::default(),
            turn: Semaphore::new(1),
        }
    }

    /// Writes what is committed at the head of the queue until nothing is.
    pub async fn write_queue(&self) {
        let outcome = loop {
            match self.next_frame() {
                Ok(Some(frame)) => {
                    if let Err(cause) = self.write_frame(frame).await {
                        break Err(cause);
                    }
                }
                Ok(None) => break Ok(()),
                Err(cause) => break Err(cause),
            }
        };
        self.state.borrow_mut().writing = false;
        if let Err(cause) = outcome {
            self.fail(cause);
        }
        self.progress.notify_all();
    }

    fn fail(&self, cause: LedgerError) {
        self.state.borrow_mut().failed.get_or_insert(cause);
        self.progress.notify_all();
    }

    /// Forms the next batch from the committed head of the queue; `None` if nothing is committed.
    fn next_frame(&self) -> Result<Option<Frame>, LedgerError> {
        let state = &mut *self.state.borrow_mut();
        if let Some(cause) = &state.failed {
            return Err(cause.clone());
        }
        if state.closed {
            return Ok(None);
        }
        let count = state.queue.ready()?;
        let Some(first) = state.queue.head(count).next() else {
            return Ok(None);
        };
        let (epoch, before) = (first.epoch, state.superblocks.generation);
        let generation = match first.renews {
            // Damage, and whatever else of the old generation lies where batches go on, must never count.
            true => fresh_generation(Some(before)),
            false => before,
        };
        let frame = state.track.frame(state.queue.head(count), generation);
        state.compaction.saved(epoch, frame.saved);
        Ok(Some(frame))
    }

    /// Writes one batch and answers those in it.
    async fn write_frame(&self, mut frame: Frame) -> Result<(), LedgerError> {
        self.make_way(&frame).await?;
        self.clear_unreadable().await?;
        let data = std::mem::replace(&mut frame.data, Buf::zeroed(0));
        let end = frame.at.position + (data.len() / BLOCK) as u64;
        self.write_log(frame.at.position, data).await?;
        let note = {
            let state = &mut *self.state.borrow_mut();
            state.track.landed(&frame, end);
            state.superblocks.generation = frame.generation;
            let lag = frame.tail.position - state.superblocks.hard_tail.position;
            (frame.ends && lag >= self.log.blocks / 8)
                || end - state.superblocks.noted >= NOTE_EVERY
        };
        if frame.renews {
            self.write_superblocks(|_| {}).await?;
        }
        {
            let state = &mut *self.state.borrow_mut();
            state.queue.landed(frame.entries);
            state.counters.batches += frame.entries as u64;
            state.counters.records += frame.records;
            state.counters.swept += frame.swept;
        }
        self.progress.notify_all();
        if note && !frame.renews {
            self.write_superblocks(|_| {}).await?;
        }
        Ok(())
    }

    /// No batch follows a clean mark, and none overwrites what a superblock still points at: they say so first.
    async fn make_way(&self, frame: &Frame) -> Result<(), LedgerError> {
        let room = || {
            let state = self.state.borrow();
            let end = state.superblocks.hard_tail.position + self.log.blocks;
            (state.superblocks.clean, frame.end() <= end)
        };
        let (clean, fits) = room();
        if clean || !fits {
            self.write_superblocks(|superblock| superblock.clean = false)
                .await?;
        }
        assert!(
            room().1,
            "the log's accounts are wrong: {} blocks at {:?} with the tail at {:?}",
            frame.blocks(),
            frame.at,
            self.state.borrow().superblocks.hard_tail
        );
        Ok(())
    }

    async fn write_log(&self, position: u64, data: Buf) -> Result<(), LedgerError> {
        let view = data.freeze();
        let pieces = self.log.pieces(position, &view);
        {
            let counters = &mut self.state.borrow_mut().counters;
            counters.device_writes += pieces.len() as u64;
            counters.bytes_written += view.len() as u64;
        }
        let written = self.log.write(pieces).await;
        written.map_err(|source| self.log.error("write a batch of", source))
    }

    /// Writes zeroes over what replay could not read behind the head. Where a batch that was durable may lie there, the
    /// ledger fails if that cannot be done. Before that the superblocks note the batch as indeterminate, since the zeroes
    /// remove the evidence. From then on all that is there is void.
    pub async fn clear_unreadable(&self) -> Result<(), LedgerError> {
        let (positions, suspect) = {
            let track = &mut self.state.borrow_mut().track;
            let found = std::mem::take(&mut track.unreadable.positions);
            (found, track.indeterminate() != 0)
        };
        if suspect {
            self.write_superblocks(|_| {}).await?;
        }
        // Nothing is overwritten that an older superblock counts on.
        let end = self.state.borrow().superblocks.hard_tail.position + self.log.blocks;
        for position in positions.into_iter().filter(|it| *it < end) {
            let span = Span::new(self.log.sector(position), Bytes(BLOCK as u64));
            match self.log.device.write_zeroes(span, DURABLE).await {
                Ok(()) => {}
                Err(source) if suspect || matches!(source, DeviceError::Gone { .. }) => {
                    let cause = self.log.error("write over the unreadable end of", source);
                    self.fail(cause.clone());
                    return Err(cause);
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Writes both superblocks with `change`, the older one first, so that at every moment one is whole. A
    /// failure fails the ledger.
    pub async fn write_superblocks(
        &self,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<(), LedgerError> {
        let _turn = self.turn.acquire(1).await;
        let (mut superblock, older, head) = {
            let state = self.state.borrow();
            if let Some(cause) = &state.failed {
                return Err(failed(cause));
            }
            let now = state
                .superblocks
                .next(self.id, self.log.blocks, &state.track);
            (now, state.superblocks.older, state.track.head.position)
        };
        change(&mut superblock);
        for slot in [older, 1 - older] {
            superblock.revision += 1;
            let at = self.log.region.start.after(Bytes((slot * BLOCK) as u64));
            let data = Buf::copy_of(&superblock.encode()).freeze();
            if let Err(source) = self.log.device.write(at, data, DURABLE).await {
                let cause = self.log.error("write a superblock of", source);
                self.fail(cause.clone());
                return Err(cause);
            }
        }
        let state = &mut *self.state.borrow_mut();
        state.superblocks.landed(superblock, head);
        state.counters.device_writes += 2;
        state.counters.superblock_writes += 2;
        state.counters.bytes_written += 2 * BLOCK as u64;
        Ok(())
    }
}
