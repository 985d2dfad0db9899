//! A read in parts: which come from where, and how are they read?
//!
//! ```text
//! request -> parts: fast (whole pages of neighbouring slots) | fast part of a page | slow | mixed page
//!         -> all at once -> checksums
//! ```
//!
//! Always true: what is read from the fast device agrees with its checksum; a clean page that does not is read from
//! the slow device instead, a dirty one is an error.

use std::rc::Rc;

use base::{Buf, Sector};
use device::{Class, DeviceError};

use crate::attach::label::PAGE;
use crate::cache::Cache;
use crate::cached::{adopt_whole, complete_page, sector_mask};
use crate::fill::FillToken;
use crate::hold::Reader;
use crate::index::page_map::{Entry, get_behind};

const PAGE_LEN: usize = base::PAGE;

/// Where one part of a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Whole pages in neighbouring slots from this one on.
    Fast(u32),
    /// Part of one page.
    FastPart(u64, Entry),
    Slow,
    /// Some sectors of the page are in the slot, the others on the slow device.
    Mixed(u64, Entry),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// Byte of the device.
    pub at: u64,
    pub len: usize,
    pub source: Source,
}

/// Cuts a request into parts by where each is read from.
pub(super) fn plan(cache: &Cache, at: u64, len: usize, only_dirty: bool) -> Vec<Part> {
    let whole_pages = cache.volume.whole_pages();
    let (slow_io_max, fast_io_max) = (cache.volume.slow.max_io(), cache.fast.io_max);
    let map = cache.state.map();
    let mut parts: Vec<Part> = Vec::with_capacity(2);
    let end = at + len as u64;
    let mut byte = at;
    // Where the page in front of this one is.
    let mut before = None;
    while byte < end {
        let page = byte / PAGE;
        let within = (byte % PAGE) as usize;
        let len = (PAGE_LEN - within).min((end - byte) as usize);
        let is_whole = page < whole_pages;
        let entry = is_whole.then(|| get_behind(&map, before, page)).flatten();
        before = entry.map(|entry| entry.slot);
        let source = match entry {
            Some(entry) if only_dirty && !entry.dirty => Source::Slow,
            None => Source::Slow,
            Some(entry) => {
                let needed = sector_mask(within, len);
                if entry.mask & needed != needed {
                    Source::Mixed(page, entry)
                } else if len == PAGE_LEN {
                    Source::Fast(entry.slot)
                } else {
                    Source::FastPart(page, entry)
                }
            }
        };
        match (parts.last_mut(), source) {
            (Some(last), Source::Slow)
                if last.source == Source::Slow && last.len + len <= slow_io_max =>
            {
                last.len += len;
            }
            (
                Some(Part {
                    len: so_far,
                    source: Source::Fast(first),
                    ..
                }),
                Source::Fast(slot),
            ) if *first as usize + *so_far / PAGE_LEN == slot as usize
                && *so_far + len <= fast_io_max =>
            {
                *so_far += len;
            }
            _ => parts.push(Part {
                at: byte,
                len,
                source,
            }),
        }
        byte += len as u64;
    }
    parts
}

/// Are all whole pages of a request on the fast device, in whole or in part?
pub(super) fn all_here(parts: &[Part], whole_pages: u64) -> bool {
    let away = |part: &Part| part.source == Source::Slow && part.at / PAGE < whole_pages;
    !parts.iter().any(away)
}

/// Reports to the policy which of pages `first..end` were found and which not. Called after the fills were chosen:
/// what the policy remembers of a page ends when it hears of the miss.
pub(super) fn note_use(cache: &Cache, parts: &[Part], first: u64, end: u64) {
    let mut map = cache.state.map_mut();
    if !map.block_is_page() {
        map.touch(first, end);
        return;
    }
    // What `plan` looked up is not looked up again.
    for part in parts {
        let from = part.at / PAGE;
        let upto = (part.at + part.len as u64).div_ceil(PAGE).min(end);
        match part.source {
            Source::Fast(slot) => {
                for (page, slot) in (from..upto).zip(slot..) {
                    map.note(page, Some(slot));
                }
            }
            Source::FastPart(page, entry) | Source::Mixed(page, entry) => {
                map.note(page, Some(entry.slot))
            }
            Source::Slow => (from..upto).for_each(|page| map.note(page, None)),
        }
    }
}

/// A clean page whose checksum does not agree or that cannot be read is forgotten.
pub(super) fn drop_unreadable(cache: &Rc<Cache>, parts: &[Part]) {
    for part in parts {
        let pages = match part.source {
            Source::Slow => continue,
            Source::Fast(_) => part.at / PAGE..(part.at + part.len as u64) / PAGE,
            Source::FastPart(page, _) | Source::Mixed(page, _) => page..page + 1,
        };
        for page in pages {
            let entry = cache.state.map().get(page);
            if let Some(entry) = entry {
                cache.drop_bad(page, &entry);
            }
        }
    }
}

pub(super) async fn read_part(
    cache: &Rc<Cache>,
    part: Part,
    mut buf: Buf,
    class: Class,
) -> Result<Buf, DeviceError> {
    let within = (part.at % PAGE) as usize;
    match part.source {
        Source::Fast(slot) => cache.read_slots(slot, buf, class).await,
        Source::Slow => {
            cache
                .volume
                .slow
                .read(Sector::containing(part.at), buf, class)
                .await
        }
        Source::FastPart(_, entry) => {
            let page = cache.read_page(entry.slot, class).await?;
            buf.copy_from_slice(&page[within..within + part.len]);
            Ok(buf)
        }
        Source::Mixed(page, entry) => {
            // The next read shall need the fast device alone, if the page is not written meanwhile.
            let stays = cache.mover.owns(page, page + 1);
            let fill = (!stays)
                .then(|| FillToken::begin(cache, page, page + 1))
                .flatten();
            let whole = match complete_page(cache, page, entry, class).await {
                Ok(whole) => whole.freeze(),
                Err(error) if cache.fast.is_own(&error) => return Err(error),
                // A sector of the page that was not asked for may be the bad one.
                Err(_) => return read_mixed(cache, part, entry, buf, class).await,
            };
            buf.copy_from_slice(&whole[within..within + part.len]);
            if let Some(fill) = fill {
                let cache = Rc::clone(cache);
                env::spawn(async move {
                    adopt_whole(&cache, &fill, page, entry, whole).await;
                });
            }
            Ok(buf)
        }
    }
}

/// The asked-for part alone of a page of which the fast device holds only some sectors.
async fn read_mixed(
    cache: &Rc<Cache>,
    part: Part,
    entry: Entry,
    buf: Buf,
    class: Class,
) -> Result<Buf, DeviceError> {
    let within = (part.at % PAGE) as usize;
    let ours = cache.read_page(entry.slot, class).await?;
    let mut whole = buf;
    for (from, len) in runs_without(entry.mask, within, part.len) {
        let at = Sector::containing(part.at + (from - within) as u64);
        let piece = cache
            .volume
            .slow
            .read(at, Buf::for_read(len), class)
            .await?;
        whole[from - within..from - within + len].copy_from_slice(&piece);
    }
    for (from, len) in runs_without(!entry.mask, within, part.len) {
        whole[from - within..from - within + len].copy_from_slice(&ours[from..from + len]);
    }
    Ok(whole)
}

/// Runs of sectors of `from..from + len` (bytes within a page) that are not in `mask`: (first byte, bytes).
fn runs_without(mask: u8, from: usize, len: usize) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for sector in (from / 512..(from + len) / 512).filter(|sector| mask >> sector & 1 == 0) {
        match runs.last_mut() {
            Some((first, so_far)) if *first + *so_far == sector * 512 => *so_far += 512,
            _ => runs.push((sector * 512, 512)),
        }
    }
    runs
}

/// Page by page, each from where it is whole now: after an error on the fast device.
pub(super) async fn read_carefully(
    cache: &Rc<Cache>,
    at: u64,
    len: usize,
    class: Class,
) -> Result<Buf, DeviceError> {
    let mut whole = Buf::for_read(len);
    let end = at + len as u64;
    let mut byte = at;
    while byte < end {
        let within = (byte % PAGE) as usize;
        let len = (PAGE_LEN - within).min((end - byte) as usize);
        let reader = Reader::enter(cache);
        let part = plan(cache, byte, len, false)[0];
        let piece = match read_part(cache, part, Buf::for_read(len), class).await {
            Ok(piece) => piece,
            Err(error) => match part.source {
                Source::FastPart(_, entry) | Source::Mixed(_, entry) if entry.dirty => {
                    return Err(error);
                }
                Source::Fast(_) if cache.state.map().is_dirty(byte / PAGE) => {
                    return Err(error);
                }
                Source::Slow => return Err(error),
                _ => {
                    // Read as it is on the slow device: a clean page is the same there.
                    drop_unreadable(cache, &[part]);
                    cache
                        .volume
                        .slow
                        .read(Sector::containing(byte), Buf::for_read(len), class)
                        .await?
                }
            },
        };
        drop(reader);
        let from = (byte - at) as usize;
        whole[from..from + len].copy_from_slice(&piece);
        byte += len as u64;
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::page_map::FULL;

    #[test]
    fn runs_beside_a_mask_keep_to_what_was_asked_for() {
        assert_eq!(
            runs_without(0b0001_1000, 512, 3072),
            [(512, 1024), (2560, 1024)]
        );
        assert_eq!(runs_without(FULL, 0, 4096), []);
    }
}
