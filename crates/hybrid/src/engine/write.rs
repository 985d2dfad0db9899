//! A write: to the fast device out of place, or past it to the slow one?
//!
//! ```text
//! cached:  lock -> room and slots -> data to free slots -> map them -> (commit at flush or FUA)
//! past:    lock -> intent durable -> forget clean pages -> slow write;  dirty pages take the cached way
//! ```
//!
//! Always true:
//! 1. A dirty page is never bypassed.
//! 2. No slow write is sent over a page that the durable map may have, unless its region is durably marked.
//! 3. A page's slot is complete on the fast device before the map names it.
//!
//! A write runs as a task of its own: a caller that goes away leaves no half-written map.

use std::ops::Range;
use std::rc::Rc;

use base::Bytes;
use device::{DeviceError, WriteFlags};

use super::disk::Engine;
use super::flush::flush;
use crate::attach::label::PAGE;
use crate::cache::Cache;
use crate::cached::{ZEROES, put_cached};
use crate::fill::FillToken;
use crate::index::extents::Place;
use crate::index::locks::Mode;
use crate::past::put_past;
use crate::payload::Payload;
use crate::settings::{Mode as Use, WriteMode};
use crate::tier::request::{Asked, look_up, note_request};

/// Puts `payload` on `range`, in bytes; see the module's head for the two ways.
pub(super) async fn put(
    engine: &Engine,
    range: Range<u64>,
    payload: Payload,
    flags: WriteFlags,
) -> Result<(), DeviceError> {
    if range.is_empty() {
        return if flags.fua {
            flush(engine).await
        } else {
            Ok(())
        };
    }
    let volume = &engine.volume;
    let len = range.end - range.start;
    let stream = volume.observe_stream(range.start, len);
    volume.counters.write(len, stream.sequential);
    let mut counted = false;
    loop {
        let Some(tier) = engine.write_tier().await? else {
            // The last of a cache's cleaning may still be under way.
            let (first, end) = (range.start / PAGE, range.end.div_ceil(PAGE));
            let _held = volume.locks.acquire(first, end, Mode::EXCLUSIVE).await;
            volume.slow.put(range.clone(), &payload, flags).await?;
            engine.written(&range);
            return Ok(());
        };
        let cache = &tier.cache;
        if !std::mem::replace(&mut counted, true) {
            let (resident, dirty) = look_up(cache, &range);
            note_request(&tier, range.clone(), Asked::Write { resident, dirty });
        }
        let answer = put_with(cache, range.clone(), &payload, flags, stream.bypass).await;
        match answer {
            // The fast device failed under this write: once that has settled, it goes the other way.
            Err(_) if !cache.is_running() => cache.settled().await?,
            answer => return answer,
        }
    }
}

async fn put_with(
    cache: &Rc<Cache>,
    range: Range<u64>,
    payload: &Payload,
    flags: WriteFlags,
    bypass: bool,
) -> Result<(), DeviceError> {
    let (mode, alone) = {
        let settings = cache.volume.settings.borrow();
        (settings.write, settings.mode == Use::Tier)
    };
    let len = range.end - range.start;
    let big_zeroes = matches!(payload, Payload::Zeroes) && len > ZEROES;
    let cached = mode.keeps_dirty() && !bypass && !big_zeroes;
    let through = mode == WriteMode::Through && !bypass;
    // The incomplete page at the end of a slow device of odd size is never cached.
    let cacheable = cache.volume.slow.whole_pages() * PAGE;
    let split = range.end.min(cacheable).max(range.start);
    let (body, tail) = (range.start..split, split..range.end);
    if !tail.is_empty() {
        let piece = payload.slice(tail.start - range.start..len);
        cache.volume.slow.put(tail, &piece, flags).await?;
    }
    for (piece, place) in by_place(cache, body) {
        let part = payload.slice(piece.start - range.start..piece.end - range.start);
        let cached = match place {
            None => cached,
            // Zeroes of some length are cheaper on the slow device, wherever their extent lives.
            Some(Place::Fast) => !big_zeroes,
            Some(Place::Demoting) => false,
            Some(Place::Slow) => cached && !alone,
        };
        let bytes = Bytes(piece.end - piece.start);
        let cached = cached && cache.volume.flash_budget_allows(bytes);
        let (first, end) = (piece.start / PAGE, piece.end.div_ceil(PAGE));
        let lock = match cached {
            true => Mode::CACHE_WRITE,
            false => Mode::EXCLUSIVE,
        };
        let _held = cache.volume.locks.acquire(first, end, lock).await;
        for rest in give_to_buffer(cache, &piece, &part, flags) {
            let part = part.slice(rest.start - piece.start..rest.end - piece.start);
            if cached {
                let (first, end) = (rest.start / PAGE, rest.end.div_ceil(PAGE));
                cache.state.map_mut().touch(first, end);
                put_cached(cache, rest.clone(), &part).await?;
            } else {
                put_past(cache, rest.clone(), &part, flags).await?;
                if through {
                    copy_through(cache, rest.clone(), &part);
                }
            }
            cache.mover.written(rest);
        }
    }
    if flags.fua && split > range.start {
        cache.committed().await?;
    }
    Ok(())
}

/// Cuts `range` (in bytes) where one extent lives elsewhere than the next; `None` without a tier.
fn by_place(cache: &Cache, range: Range<u64>) -> Vec<(Range<u64>, Option<Place>)> {
    if range.is_empty() {
        return Vec::new();
    }
    if !cache.volume.has_tier() {
        return vec![(range, None)];
    }
    let table = cache.state.extents.borrow();
    let extent_bytes = table.grains.extent_pages() * PAGE;
    let mut pieces: Vec<(Range<u64>, Option<Place>)> = Vec::new();
    let mut byte = range.start;
    while byte < range.end {
        let upto = ((byte / extent_bytes + 1) * extent_bytes).min(range.end);
        let place = Some(table.place(table.grains.extent_of(byte / PAGE)));
        match pieces.last_mut() {
            Some((piece, same)) if *same == place => piece.end = upto,
            _ => pieces.push((byte..upto, place)),
        }
        byte = upto;
    }
    pieces
}

/// A moving region's buffer takes what it may of a write; returns the rest. The caller holds the pages.
fn give_to_buffer(
    cache: &Cache,
    piece: &Range<u64>,
    part: &Payload,
    flags: WriteFlags,
) -> Vec<Range<u64>> {
    match flags.fua {
        // It is to be durable when it ends, and the buffer is not.
        true => vec![piece.clone()],
        false => cache.mover.write(piece.clone(), part),
    }
}

/// The copy of a write-through: made after the user has the answer. The caller still holds the pages.
fn copy_through(cache: &Rc<Cache>, range: Range<u64>, payload: &Payload) {
    let Payload::Data(data) = payload else { return };
    let first = range.start.div_ceil(PAGE);
    let end = range.end / PAGE;
    let any_cached = (first..end).any(|page| cache.state.map().find(page).is_some());
    if first >= end
        || any_cached
        || !cache
            .volume
            .flash_budget_allows(Bytes((end - first) * PAGE))
    {
        return;
    }
    if let Some(fill) = FillToken::begin(cache, first, end) {
        let from = (first * PAGE - range.start) as usize;
        let data = data.slice(from, ((end - first) * PAGE) as usize);
        env::spawn(async move { fill.copy(data).await });
    }
}
