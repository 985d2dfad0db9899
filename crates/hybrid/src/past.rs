//! Writes past the cache: to the slow device, over what the cache may hold of it.
//!
//! ```text
//! intent durable -> forget clean pages -> slow write;  dirty pages are overwritten where they are
//! ```
//!
//! Always true:
//! 1. A dirty page is never bypassed.
//! 2. No slow write is sent over a page that the durable map may have, unless its region is durably marked.

use std::ops::Range;
use std::rc::Rc;

use device::{DeviceError, WriteFlags};

use crate::attach::label::PAGE;
use crate::cache::Cache;
use crate::cached::put_cached;
use crate::index::page_map::REGION_PAGES;
#[cfg(test)]
use crate::mutation::Mutation;
use crate::payload::Payload;

/// A write to the slow device behind the cache's back; over when dropped.
pub(crate) struct SlowWrite {
    cache: Rc<Cache>,
    first: u64,
    last: u64,
}

impl SlowWrite {
    fn new(cache: &Rc<Cache>, first: u64, end: u64) -> SlowWrite {
        SlowWrite {
            cache: Rc::clone(cache),
            first: first / REGION_PAGES,
            last: (end - 1) / REGION_PAGES,
        }
    }

    /// As [`SlowWrite::begin`] without a durable intent and without waiting, if neither the map nor the
    /// durable one has any of pages `first..end`, nor a fingerprint of them.
    fn begin_unrecorded(cache: &Rc<Cache>, first: u64, end: u64) -> Option<SlowWrite> {
        if !cache.is_running() {
            return None;
        }
        let samples = cache.state.sample_pages();
        let sampled = samples.partition_point(|page| *page < end)
            > samples.partition_point(|page| *page < first);
        if sampled || cache.state.index.borrow().may_know(first, end) {
            return None;
        }
        let write = SlowWrite::new(cache, first, end);
        let now = env::now();
        let mut intents = cache.state.intents.borrow_mut();
        for region in write.first..=write.last {
            intents.begin_unrecorded(region, now);
        }
        drop(intents);
        Some(write)
    }

    /// Marks the regions of pages `first..end` as about to change behind the cache's back, and waits
    /// until the intents are durable.
    async fn begin(cache: &Rc<Cache>, first: u64, end: u64) -> Result<SlowWrite, DeviceError> {
        let write = SlowWrite::new(cache, first, end);
        let regions = write.first..=write.last;
        let next = cache.commit.next();
        let needed = {
            let mut intents = cache.state.intents.borrow_mut();
            let needed = intents.begin_all(regions, next, env::now());
            if intents.any_touched() {
                cache.commit.note();
            }
            needed
        };
        #[cfg(test)]
        if cache.volume.planted(Mutation::LateInvalidation) {
            return Ok(write);
        }
        cache.commit_reached(needed).await?;
        Ok(write)
    }
}

impl Drop for SlowWrite {
    fn drop(&mut self) {
        let now = env::now();
        let mut intents = self.cache.state.intents.borrow_mut();
        for region in self.first..=self.last {
            intents.end(region, now);
        }
    }
}

/// To the slow device, but for dirty pages, which are overwritten where they are. The caller holds
/// the pages exclusively.
pub(crate) async fn put_past(
    cache: &Rc<Cache>,
    range: Range<u64>,
    payload: &Payload,
    flags: WriteFlags,
) -> Result<(), DeviceError> {
    let mut from = range.start;
    while from < range.end {
        // Looked up anew each time, since what was dirty may have been destaged meanwhile. A page that needs new room
        // must not wait for a cleaner that waits for this lock.
        let (mut piece, dirty) = dirty_runs(cache, from..range.end).swap_remove(0);
        if dirty {
            piece.end = piece
                .end
                .min((from / PAGE + cache.room.chunk_pages()) * PAGE);
        }
        let part = payload.slice(piece.start - range.start..piece.end - range.start);
        from = piece.end;
        if dirty {
            put_cached(cache, piece, &part).await?;
            continue;
        }
        let (first, end) = (piece.start / PAGE, piece.end.div_ceil(PAGE));
        let _marked = leave_cache(cache, first, end).await?;
        let answer = cache.volume.slow.put(piece, &part, flags).await;
        cache.forget_pages(first, end);
        answer?;
    }
    Ok(())
}

/// Forgets the clean pages `first..end` (to be done once more when the slow device has changed: a read
/// meanwhile may have copied the old contents) and marks their regions, durably where that matters, so that the
/// slow device may change beneath.
pub(crate) async fn leave_cache(
    cache: &Rc<Cache>,
    first: u64,
    end: u64,
) -> Result<SlowWrite, DeviceError> {
    cache.forget_pages(first, end);
    match SlowWrite::begin_unrecorded(cache, first, end) {
        Some(write) => Ok(write),
        None => SlowWrite::begin(cache, first, end).await,
    }
}

/// Cuts a range of bytes into runs of dirty pages and of others, in order.
pub(crate) fn dirty_runs(cache: &Rc<Cache>, range: Range<u64>) -> Vec<(Range<u64>, bool)> {
    let map = cache.state.map();
    let mut runs: Vec<(Range<u64>, bool)> = Vec::new();
    if map.dirty() == 0 {
        return vec![(range, false)];
    }
    let mut byte = range.start;
    while byte < range.end {
        let page = byte / PAGE;
        let upto = ((page + 1) * PAGE).min(range.end);
        let dirty = map.is_dirty(page);
        match runs.last_mut() {
            Some((run, same)) if *same == dirty => run.end = upto,
            _ => runs.push((byte..upto, dirty)),
        }
        byte = upto;
    }
    runs
}
