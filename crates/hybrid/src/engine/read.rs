//! A read: which parts come from where, and what is worth a copy?
//!
//! ```text
//! request -> parts: fast (whole pages of neighbouring slots) | fast part of a page | slow | mixed page
//!         -> all at once -> checksums -> answer
//!         -> missed pages worth it -> copied to the fast device after the answer is on its way
//! ```
//!
//! Always true:
//! 1. What is read from the fast device agrees with its checksum; a clean page that does not is read from
//!    the slow device instead, a dirty one is an error.
//! 2. The user's answer never waits for the copy.

use std::rc::Rc;

use base::{Buf, Sector};
use device::{Class, DeviceError};

use super::disk::Engine;
use super::misses::{choose_fills, start_fill};
use super::parts::{
    Part, Source, all_here, drop_unreadable, note_use, plan, read_carefully, read_part,
};
use super::runs::read_parts;
use crate::attach::label::PAGE;
use crate::fill::FillToken;
use crate::hold::Reader;
use crate::settings::WriteMode;
use crate::tier::Tier;
use crate::tier::drain::note_buffered;
use crate::tier::flow::reads_slow;
use crate::tier::request::{Asked, note_request};

/// What a moving region's temporary buffer holds of it comes from there, the rest from beneath.
pub(super) async fn read(
    engine: &Engine,
    at: Sector,
    mut buf: Buf,
    class: Class,
) -> Result<Buf, DeviceError> {
    let range = at.byte()..at.byte() + buf.len() as u64;
    let overlay = engine.overlay(&range);
    let Some(overlay) = overlay else {
        return read_beneath(engine, at, buf, class).await;
    };
    if overlay.beneath.is_empty() {
        engine.volume.counters.read(buf.len() as u64, 0, false);
        if let Some(tier) = engine.live_tier().filter(|_| class != Class::Background) {
            note_buffered(&tier, &range);
        }
    } else if overlay.beneath == (0..buf.len()) {
        buf = read_beneath(engine, at, buf, class).await?;
    } else {
        // Read apart: after an error on the fast device the answer comes in another buffer.
        let from = Sector::containing(range.start + overlay.beneath.start as u64);
        let beneath = Buf::for_read(overlay.beneath.len());
        let beneath = read_beneath(engine, from, beneath, class).await?;
        buf[overlay.beneath.clone()].copy_from_slice(&beneath);
    }
    overlay.lay_over(&mut buf);
    Ok(buf)
}

async fn read_beneath(
    engine: &Engine,
    at: Sector,
    buf: Buf,
    class: Class,
) -> Result<Buf, DeviceError> {
    match engine.live_tier() {
        Some(tier) => read_both(&tier, at.byte(), buf, class).await,
        None => {
            let buf = engine.volume.slow.read(at, buf, class).await?;
            engine.volume.counters.read(0, buf.len() as u64, false);
            Ok(buf)
        }
    }
}

/// How a read is to be done.
struct Choice {
    parts: Vec<Part>,
    fills: Vec<FillToken>,
    /// Clean data come from the slow device to spare the fast one.
    either: bool,
    sequential: bool,
}

/// Decides where `len` bytes from byte `at` on come from, counts the request and registers what is to be copied.
fn choose(tier: &Rc<Tier>, at: u64, len: usize, class: Class) -> Choice {
    let cache = &tier.cache;
    let volume = &cache.volume;
    let whole_pages = volume.whole_pages();
    let stream = volume.observe_stream(at, len as u64);
    let mode = volume.settings.borrow().write;
    let passing = mode == WriteMode::Pass;
    let user = class != Class::Background;
    let mut parts = plan(cache, at, len, passing);
    let (first, end) = (at / PAGE, (at + len as u64).div_ceil(PAGE).min(whole_pages));
    if user {
        for part in parts.iter().filter(|part| part.source == Source::Slow) {
            volume.recent.borrow_mut().note(part.at / PAGE);
        }
        let resident = all_here(&parts, whole_pages);
        note_request(tier, at..at + len as u64, Asked::Read { resident });
    }
    let mut fills = Vec::new();
    if !passing && first < end {
        let caches = mode.fills_on_read() && !stream.bypass;
        if user && (caches || volume.has_tier()) {
            fills = choose_fills(cache, &parts, whole_pages, caches);
        }
        note_use(cache, &parts, first, end);
    }
    let any_fast = parts.iter().any(|part| part.source != Source::Slow);
    let either = any_fast && user && reads_slow(tier);
    if either {
        parts = plan(cache, at, len, true);
    }
    Choice {
        parts,
        fills,
        either,
        sequential: stream.sequential,
    }
}

/// A read while the fast device counts.
async fn read_both(tier: &Rc<Tier>, at: u64, buf: Buf, class: Class) -> Result<Buf, DeviceError> {
    let cache = &tier.cache;
    let len = buf.len();
    let choice = choose(tier, at, len, class);
    let parts = &choice.parts;
    // A read of the slow device alone must not keep slots from being used again.
    let all_slow = parts.iter().all(|part| part.source == Source::Slow);
    let reader = (!all_slow).then(|| Reader::enter(cache));
    let answer = match parts.as_slice() {
        [only] => read_part(cache, *only, buf, class).await,
        _ => read_parts(cache, parts, buf, class).await,
    };
    drop(reader);
    let mut buf = match answer {
        Ok(buf) => buf,
        // The fast device has what the slow one was asked for to spare it.
        Err(_) if choice.either => read_carefully(cache, at, len, class).await?,
        Err(error) if !cache.fast.is_own(&error) => return Err(error),
        Err(error) => {
            drop_unreadable(cache, parts);
            tracing::warn!(volume = %cache.volume.name, %error, "a read goes page by page");
            cache.note_read_error(&error);
            read_carefully(cache, at, len, class).await?
        }
    };
    let (fast, slow) = served(parts);
    let counters = &cache.volume.counters;
    counters.read(fast, slow, choice.sequential);
    for fill in choice.fills {
        start_fill(cache, fill, at, &mut buf);
    }
    Ok(buf)
}

/// Bytes that came from the fast device, and from the slow one.
fn served(parts: &[Part]) -> (u64, u64) {
    let (mut fast, mut slow) = (0, 0);
    for part in parts {
        let len = part.len as u64;
        match part.source {
            Source::Fast(_) | Source::FastPart(..) => fast += len,
            Source::Slow => slow += len,
            Source::Mixed(..) => {
                fast += len / 2;
                slow += len - len / 2;
            }
        }
    }
    (fast, slow)
}
