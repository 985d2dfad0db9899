//! Writes to free slots: out of place, mapped once they are complete.
//!
//! ```text
//! room and slots -> pages merged with what the cache holds of them -> data to free slots -> map them
//! ```
//!
//! Always true:
//! 1. A page's slot is complete on the fast device before the map names it.
//! 2. The caller holds the pages at least for a cache write.

use std::ops::Range;
use std::rc::Rc;

use base::{Buf, Bytes, Sector, View, crc::crc32c_of_page};
use device::{Class, DeviceError};
use env::sync::join_all;

use crate::attach::label::PAGE;
use crate::cache::Cache;
use crate::fill::FillToken;
use crate::hold::{Reader, Reserved, take, try_take};
use crate::index::locks::Mode;
use crate::index::page_map::{Entry, FULL};
use crate::payload::Payload;

const PAGE_LEN: usize = base::PAGE;
/// Zeroes are written to the cache in pieces of this size.
pub(crate) const ZEROES: u64 = 256 << 10;

/// Sectors `from..from + len` (bytes within a page) as a mask.
pub(crate) fn sector_mask(from: usize, len: usize) -> u8 {
    let sectors = len / 512;
    if sectors == 8 {
        return FULL;
    }
    (((1u16 << sectors) - 1) as u8) << (from / 512)
}

/// Copies the sectors of `mask` from `from` to `to`; both are whole pages.
pub(crate) fn merge_sectors(to: &mut [u8], from: &[u8], mask: u8) {
    for sector in 0..8 {
        if mask >> sector & 1 == 1 {
            let range = sector * 512..(sector + 1) * 512;
            to[range.clone()].copy_from_slice(&from[range]);
        }
    }
}

/// One page as it is to be in its new slot.
struct Image {
    page: u64,
    mask: u8,
    data: View,
    /// Where in the request it lies, if it is a piece of it as it came.
    from: Option<usize>,
}

/// Writes to free slots and maps them, in pieces that leave room for others. The caller holds the
/// pages at least for a cache write.
pub(crate) async fn put_cached(
    cache: &Rc<Cache>,
    range: Range<u64>,
    payload: &Payload,
) -> Result<(), DeviceError> {
    let chunk = match payload {
        Payload::Data(_) => cache.room.chunk_pages() * PAGE,
        Payload::Zeroes => (cache.room.chunk_pages() * PAGE).min(ZEROES),
    };
    let mut from = range.start;
    while from < range.end {
        // Pieces end on page bounds.
        let upto = ((from / PAGE * PAGE) + chunk).min(range.end);
        let data = match payload.slice(from - range.start..upto - range.start) {
            Payload::Data(view) => view,
            Payload::Zeroes => Buf::zeroed((upto - from) as usize).freeze(),
        };
        put_chunk(cache, from, data).await?;
        from = upto;
    }
    Ok(())
}

async fn put_chunk(cache: &Rc<Cache>, at: u64, data: View) -> Result<(), DeviceError> {
    let end_byte = at + data.len() as u64;
    let (first, end) = (at / PAGE, end_byte.div_ceil(PAGE));
    cache.cancel_copies(first, end);
    let _room = Reserved::new(cache, first, end).await?;
    let runs = take(cache, (end - first) as u32).await?;
    let images = match images(cache, at, &data).await {
        Ok(images) => images,
        Err(error) => {
            cache.give_back(&runs);
            return Err(error);
        }
    };
    // Neighbouring pages that are neighbours in memory too go in one write.
    let mut writes = Vec::with_capacity(runs.len());
    let mut slots = Vec::with_capacity(images.len());
    let mut next = 0;
    for run in &runs {
        let mut left = run.count as usize;
        let mut slot = run.first;
        while left > 0 {
            let len = whole_run(&images[next..next + left]);
            let view = joined(&images[next..next + len], &data);
            writes.push(cache.write_slots(slot, view, Class::Foreground));
            slots.extend(slot..slot + len as u32);
            slot += len as u32;
            next += len;
            left -= len;
        }
    }
    let answers = if writes.len() == 1 {
        vec![writes.pop().expect("one").await]
    } else {
        join_all(writes).await
    };
    if let Some(error) = answers.into_iter().find_map(Result::err) {
        // The slots may hold anything; they stay taken, and the fast device is out.
        cache.fail(error.clone()).await;
        return Err(error);
    }
    if !cache.is_running() {
        return Err(cache.health.not_running());
    }
    cache.cancel_copies(first, end);
    for (image, slot) in images.iter().zip(slots) {
        let entry = Entry {
            slot,
            dirty: true,
            mask: image.mask,
            crc: crc32c_of_page(&image.data, image.data.is_known_zero()),
        };
        cache.map_page(image.page, &entry);
    }
    note_written(cache);
    Ok(())
}

/// A user wrote: wakes the cleaner if that may change its mind.
fn note_written(cache: &Cache) {
    let destaging = &cache.destaging;
    destaging.written_at.set(Some(env::now()));
    let dirty = u64::from(cache.state.map().dirty()) * PAGE;
    if Bytes(dirty) >= destaging.holds_until.get() {
        destaging.work.notify_all();
    }
}

/// Each page of `data` as it is to be written: whole pages as they are, parts merged with what the
/// cache holds of the page.
async fn images(cache: &Rc<Cache>, at: u64, data: &View) -> Result<Vec<Image>, DeviceError> {
    let end = at + data.len() as u64;
    let mut images = Vec::with_capacity((data.len() / PAGE_LEN) + 2);
    let mut byte = at;
    while byte < end {
        let page = byte / PAGE;
        let within = (byte % PAGE) as usize;
        let len = (PAGE_LEN - within).min((end - byte) as usize);
        let piece = data.slice((byte - at) as usize, len);
        images.push(if len == PAGE_LEN {
            Image {
                page,
                mask: FULL,
                data: piece,
                from: Some((byte - at) as usize),
            }
        } else {
            merged(cache, page, within, &piece).await?
        });
        byte += len as u64;
    }
    Ok(images)
}

async fn merged(
    cache: &Rc<Cache>,
    page: u64,
    within: usize,
    piece: &View,
) -> Result<Image, DeviceError> {
    let mut mask = sector_mask(within, piece.len());
    let entry = cache.state.map().get(page);
    let mut whole = match entry {
        None => Buf::zeroed(PAGE_LEN),
        Some(entry) => {
            let _reader = Reader::enter(cache);
            match cache.read_page(entry.slot, Class::Foreground).await {
                Ok(old) => {
                    mask |= entry.mask;
                    old
                }
                Err(error) if entry.dirty => return Err(error),
                // A clean page is on the slow device too: what we have of it is given up.
                Err(_) => {
                    cache.drop_bad(page, &entry);
                    Buf::zeroed(PAGE_LEN)
                }
            }
        }
    };
    whole[within..within + piece.len()].copy_from_slice(piece);
    Ok(Image {
        page,
        mask,
        data: whole.freeze(),
        from: None,
    })
}

/// Takes the missing sectors of a partly cached page from the slow device for good, unless the page was
/// written since `fill` began.
pub(crate) async fn adopt_whole(
    cache: &Rc<Cache>,
    fill: &FillToken,
    page: u64,
    entry: Entry,
    whole: View,
) {
    let _held = cache
        .volume
        .locks
        .acquire(page, page + 1, Mode::CACHE_WRITE)
        .await;
    // Cleaned meanwhile counts as changed: what is dirty here must be dirty there.
    let unchanged =
        || cache.is_running() && fill.stands(page) && cache.state.map().get(page) == Some(entry);
    if unchanged()
        && let Some(run) = try_take(cache, 1).first().copied()
    {
        let entry = Entry {
            slot: run.first,
            mask: FULL,
            crc: crc32c_of_page(&whole, whole.is_known_zero()),
            ..entry
        };
        match cache.write_slots(run.first, whole, Class::Background).await {
            Err(error) => cache.fail(error).await,
            Ok(()) if unchanged() => cache.map_page(page, &entry),
            Ok(()) => cache.give_back(&[run]),
        }
    }
}

/// Takes the missing sectors of `page`, if some are missing, from the slow device for good.
pub(crate) async fn complete_for_good(cache: &Rc<Cache>, page: u64) -> Result<(), DeviceError> {
    let Some(fill) = FillToken::begin(cache, page, page + 1) else {
        return Ok(());
    };
    let entry = cache.state.map().get(page);
    match entry.filter(|entry| entry.mask != FULL) {
        None => Ok(()),
        Some(entry) => {
            let reader = Reader::enter(cache);
            let whole = complete_page(cache, page, entry, Class::Background).await;
            drop(reader);
            match whole {
                Ok(whole) => {
                    let whole = whole.freeze();
                    adopt_whole(cache, &fill, page, entry, whole).await;
                    Ok(())
                }
                Err(error) => Err(error),
            }
        }
    }
}

/// A page of which the fast device holds only some sectors, whole.
pub(crate) async fn complete_page(
    cache: &Rc<Cache>,
    page: u64,
    entry: Entry,
    class: Class,
) -> Result<Buf, DeviceError> {
    let ours = cache.read_page(entry.slot, class).await?;
    let at = Sector::containing(page * PAGE);
    let mut whole = cache
        .volume
        .slow
        .read(at, Buf::for_read(PAGE_LEN), class)
        .await?;
    merge_sectors(&mut whole, &ours, entry.mask);
    Ok(whole)
}

/// How many of `images`, from the first on, are whole pages of the request itself (at least one image).
fn whole_run(images: &[Image]) -> usize {
    let whole = images.iter().take_while(|image| image.from.is_some());
    whole.count().max(1)
}

/// The images of a run as one view.
fn joined(images: &[Image], data: &View) -> View {
    match images[0].from {
        Some(from) => data.slice(from, images.len() * PAGE_LEN),
        None => images[0].data.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_name_the_sectors_of_a_page() {
        assert_eq!(sector_mask(0, 4096), FULL);
        assert_eq!(sector_mask(0, 512), 0b1);
        assert_eq!(sector_mask(1024, 1024), 0b1100);
        assert_eq!(sector_mask(3584, 512), 0b1000_0000);
        assert_eq!(sector_mask(512, 3584), 0b1111_1110);
    }

    #[test]
    fn merging_takes_only_the_named_sectors() {
        let mut to = vec![0; 4096];
        merge_sectors(&mut to, &[7; 4096], 0b1000_0001);
        let set: Vec<usize> = (0..8).filter(|sector| to[sector * 512] == 7).collect();
        assert_eq!(set, [0, 7]);
    }
}
