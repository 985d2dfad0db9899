//! A discard: whole clean pages are given up.

use std::rc::Rc;

use base::Span;
use device::DeviceError;

use super::disk::Engine;
use crate::attach::label::PAGE;
use crate::cache::Cache;
use crate::index::locks::Mode;
use crate::past::{dirty_runs, leave_cache};

/// Discards are carried out in pieces of 64 MiB.
const DISCARD_PAGES: u64 = 16_384;

/// Gives up whole pages that are not dirty. Dirty pages stay as they are: to forget one would uncover
/// the slow device's older contents.
pub(super) async fn discard(engine: &Engine, span: Span) -> Result<(), DeviceError> {
    let volume = &engine.volume;
    let Some(tier) = engine.write_tier().await? else {
        let (first, end) = (span.start.byte() / PAGE, span.end().byte().div_ceil(PAGE));
        let _held = volume.locks.acquire(first, end, Mode::EXCLUSIVE).await;
        return volume.slow.discard(span).await;
    };
    let cacheable = volume.whole_pages();
    let first = span.start.byte().div_ceil(PAGE);
    let end = (span.end().byte() / PAGE).min(cacheable);
    if first >= end {
        return Ok(());
    }
    // In pieces, so that others have their turn.
    for first in (first..end).step_by(DISCARD_PAGES as usize) {
        let end = end.min(first + DISCARD_PAGES);
        discard_pages(&tier.cache, first, end).await?;
        env::yield_now().await;
    }
    Ok(())
}

async fn discard_pages(cache: &Rc<Cache>, first: u64, end: u64) -> Result<(), DeviceError> {
    let _held = cache
        .volume
        .locks
        .acquire(first, end, Mode::EXCLUSIVE)
        .await;
    // Advice is not followed while it could meet a copy.
    if cache.mover.owns(first, end) {
        return Ok(());
    }
    for (piece, dirty) in dirty_runs(cache, first * PAGE..end * PAGE) {
        if dirty {
            continue;
        }
        let (first, end) = (piece.start / PAGE, piece.end / PAGE);
        let marked = leave_cache(cache, first, end).await;
        let _marked = match marked {
            Ok(marked) => marked,
            // Advice need not be followed by a cache in trouble.
            Err(_) if !cache.is_running() => return Ok(()),
            Err(error) => return Err(error),
        };
        let span = Span::bytes(piece.start, piece.end - piece.start);
        let answer = cache.volume.slow.discard(span).await;
        cache.forget_pages(first, end);
        answer?;
    }
    Ok(())
}
