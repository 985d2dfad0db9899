//! What of a read miss is worth a copy on the fast device?

use std::rc::Rc;

use base::{Buf, Bytes, Sector};
use device::Class;

use super::parts::{Part, Source};
use crate::attach::label::PAGE;
use crate::cache::Cache;
use crate::fill::FillToken;
use crate::index::extents::Place;
use crate::settings::Mode as Use;

/// A copy shares the memory of the answer if it is at least one part in so many of it.
const SHARED_MIN: usize = 4;

/// Which missed pages are worth a copy? This is decided, and the fill registered, before the read is sent. From now
/// on a write of one of the pages makes its copy void.
///
/// `caches`: the block cache takes what it admits; what belongs to an extent that is fast is copied anyway.
pub(super) fn choose_fills(
    cache: &Rc<Cache>,
    parts: &[Part],
    whole_pages: u64,
    caches: bool,
) -> Vec<FillToken> {
    let (block, mode) = {
        let settings = cache.volume.settings.borrow();
        (settings.block.0 / PAGE, settings.mode)
    };
    let place = |page: u64| match mode {
        Use::Cache => Place::Slow,
        Use::Tier | Use::Both => cache.state.place(page),
    };
    let caches = caches && mode != Use::Tier;
    let mut fills = Vec::new();
    for part in parts.iter().filter(|part| part.source == Source::Slow) {
        let first = part.at / PAGE;
        let end = (part.at + part.len as u64).div_ceil(PAGE).min(whole_pages);
        // Neighbouring blocks that are worth it are copied together.
        let mut run: Option<(u64, u64)> = None;
        let mut page = first;
        while page < end {
            let next = ((page / block + 1) * block).min(end);
            let worth = || {
                let (resident, remembered) = cache.state.map().knows_block(page);
                // A page beside resident ones of its block belongs to them.
                resident || cache.volume.admits_read(page / block, remembered)
            };
            let wanted = match place(page) {
                // While a region moves as published, only its mover copies.
                Place::Fast => !cache.mover.owns(page, next),
                Place::Demoting => false,
                Place::Slow => caches && worth(),
            };
            if wanted {
                run = Some((run.map_or(page, |(from, _)| from), next));
            } else if let Some((from, upto)) = run.take() {
                add_fill(cache, from, upto, whole_pages, &mut fills);
            }
            page = next;
        }
        if let Some((from, upto)) = run {
            add_fill(cache, from, upto, whole_pages, &mut fills);
        }
    }
    fills
}

fn add_fill(cache: &Rc<Cache>, first: u64, end: u64, whole_pages: u64, fills: &mut Vec<FillToken>) {
    let (first, end) = widen(cache, first, end, whole_pages);
    if cache
        .volume
        .flash_budget_allows(Bytes((end - first) * PAGE))
        && let Some(fill) = FillToken::begin(cache, first, end)
    {
        fills.push(fill);
    }
}

/// With blocks of several pages the whole block is fetched: widens `first..end` to block bounds, up
/// to the first page that is cached already.
fn widen(cache: &Rc<Cache>, first: u64, end: u64, whole_pages: u64) -> (u64, u64) {
    let block = cache.volume.settings.borrow().block.0 / PAGE;
    let map = cache.state.map();
    let mut from = first;
    while !from.is_multiple_of(block) && map.find(from - 1).is_none() {
        from -= 1;
    }
    let mut upto = end;
    while !upto.is_multiple_of(block) && upto < whole_pages && map.find(upto).is_none() {
        upto += 1;
    }
    (from, upto)
}

/// Copies what was read (and fetches the rest of its blocks) in the background.
pub(super) fn start_fill(cache: &Rc<Cache>, fill: FillToken, at: u64, buf: &mut Buf) {
    let (from, upto) = (fill.first * PAGE, fill.end * PAGE);
    let have = at..at + buf.len() as u64;
    let shared = have.start.max(from)..have.end.min(upto);
    let (start, end) = (shared.start - have.start, shared.end - have.start);
    let (start, len) = (start as usize, (end - start) as usize);
    // What is shared stays as long as the copy takes: a short piece must not keep a long answer.
    let read = match len >= buf.len() / SHARED_MIN {
        true => buf.share().slice(start, len),
        false => buf.copy_range(start, len).freeze(),
    };
    let volume = Rc::clone(&cache.volume);
    env::spawn(async move {
        let data = if shared == (from..upto) {
            read
        } else {
            let mut whole = Buf::for_read((upto - from) as usize);
            let target = (shared.start - from) as usize;
            whole[target..target + read.len()].copy_from_slice(&read);
            for (start, end) in [(from, shared.start), (shared.end, upto)] {
                if start == end {
                    continue;
                }
                let at = Sector::containing(start);
                let buf = Buf::for_read((end - start) as usize);
                let Ok(piece) = volume.slow.read(at, buf, Class::Background).await else {
                    return;
                };
                let target = (start - from) as usize;
                whole[target..target + piece.len()].copy_from_slice(&piece);
            }
            whole.freeze()
        };
        fill.copy(data).await;
    });
}
