//! What users' requests meet in a moving region: the temporary buffer in memory.
//!
//! ```text
//! read:  marked sectors from the buffer, as they are when it comes; the rest from beneath
//! write: to the buffer, but below the position of the synchronization, or with FUA: where it belongs
//! flush: the buffer is written to where it belongs, then as ever
//! ```
//!
//! Source: AST 3.3.2.
//!
//! Always true:
//! 1. A task that writes to the buffer, or writes a part of it out, holds the pages.
//! 2. What is marked is cleared only after it is where it belongs, its pages held all the while.

use std::ops::Range;
use std::rc::Rc;

use base::View;
use device::{DeviceError, WriteFlags};

use super::Tier;
use super::request::{Asked, look_up, note_request};
use crate::attach::label::PAGE;
use crate::cached::put_cached;
use crate::index::extents::Place;
use crate::index::locks::Mode as Lock;
use crate::moving::{Errand, SYNC_WRITE_MAX};
#[cfg(test)]
use crate::mutation::Mutation;
use crate::past::put_past;
use crate::payload::Payload;
use crate::stats::Health;

/// A user reads `range`, all of which the buffer holds.
pub(crate) fn note_buffered(tier: &Rc<Tier>, range: &Range<u64>) {
    let (resident, _) = look_up(&tier.cache, range);
    note_request(tier, range.clone(), Asked::Read { resident });
}

/// Writes all that is marked now to where it belongs, as a task of its own. A caller that goes away leaves no
/// write under way whose pages are not locked.
pub(crate) async fn drain_buffer(tier: Option<Rc<Tier>>) -> Result<(), DeviceError> {
    let marked = |tier: &Rc<Tier>| tier.movers.published.next_marked(0, SYNC_WRITE_MAX.0);
    let Some(tier) = tier.filter(|tier| marked(tier).is_some()) else {
        return Ok(());
    };
    env::spawn(async move { drain_buffer_of(&tier).await }).await
}

pub(super) async fn drain_buffer_of(tier: &Rc<Tier>) -> Result<(), DeviceError> {
    let mut from = 0;
    while let Some(run) = tier.movers.published.next_marked(from, SYNC_WRITE_MAX.0) {
        from = run.end;
        bring_away(tier, run, Errand::Drain).await?;
    }
    Ok(())
}

/// Writes what is marked of `run` from the buffer to where it belongs. That is the fast device while the region's
/// extents are fast, else the slow one.
pub(super) async fn bring_away(
    tier: &Rc<Tier>,
    run: Range<u64>,
    errand: Errand,
) -> Result<(), DeviceError> {
    let cache = &tier.cache;
    let published = &tier.movers.published;
    loop {
        // With a fast device in trouble no request may be kept waiting for these pages.
        cache.settled().await?;
        let (first, end) = (run.start / PAGE, run.end.div_ceil(PAGE));
        let _held = cache
            .volume
            .locks
            .acquire(first, end, Lock::EXCLUSIVE)
            .await;
        // It may have failed meanwhile. Past a dead one nothing goes to the slow device: a dirty page may cover it.
        let settled = cache.is_running() || cache.health.is(Health::PassThrough);
        if !settled {
            continue;
        }
        let Some(part) = published.begin_errand(&run, errand) else {
            return Ok(());
        };
        let contents = published.contents(&part);
        #[cfg(test)]
        let skipped = errand == Errand::Sync && cache.volume.planted(Mutation::IgnoredMark);
        #[cfg(not(test))]
        let skipped = false;
        let was_running = cache.is_running();
        let answer = match skipped {
            true => Ok(()),
            false => put_home(tier, part.clone(), contents).await,
        };
        published.end_errand(&part, errand, answer.is_ok());
        match (answer, errand) {
            // The fast device failed under it: once that has settled, the other way. There is none behind that.
            (Err(_), Errand::Drain) if was_running && !cache.is_running() => {}
            // There may be another part of the run.
            (Ok(()), Errand::Drain) => {}
            (answer, _) => return answer,
        }
    }
}

async fn put_home(tier: &Rc<Tier>, part: Range<u64>, contents: View) -> Result<(), DeviceError> {
    let cache = &tier.cache;
    let payload = Payload::Data(contents);
    let flags = WriteFlags::BACKGROUND;
    if !cache.is_running() {
        return cache.volume.slow.put(part, &payload, flags).await;
    }
    match tier.place(part.start / PAGE) {
        Place::Fast => put_cached(cache, part, &payload).await,
        Place::Demoting | Place::Slow => {
            let answer = put_past(cache, part.clone(), &payload, flags).await;
            match answer {
                // A bad place of the slow device: better dirty on the fast one than in memory for ever.
                Err(_) if cache.is_running() => put_cached(cache, part, &payload).await,
                answer => answer,
            }
        }
    }
}
