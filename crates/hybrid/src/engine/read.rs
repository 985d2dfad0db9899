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

use base::{Buf, Bytes, Sector};
use device::{Class, DeviceError};
use env::sync::join_all;

use crate::attach::label::PAGE;
use crate::cache::Cache;
use crate::engine::Inner;
use crate::index::extents::Place;
use crate::index::page_map::{Entry, FULL};
use crate::settings::Mode as Use;
use crate::tier::Asked;

const PAGE_LEN: usize = base::PAGE;

/// Where one part of a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Whole pages in neighbouring slots from this one on.
    Fast(u32),
    /// Part of one page.
    FastPart(u64, Entry),
    Slow,
    /// Some sectors of the page are in the slot, the others on the slow device.
    Mixed(u64, Entry),
}

#[derive(Debug, Clone, Copy)]
struct Part {
    /// Byte of the device.
    at: u64,
    len: usize,
    source: Source,
}

/// What a request got from where, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    fast: u64,
    slow: u64,
}

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

/// Cuts a request into parts; calls `missed` with each run of pages that are not cached at all.
fn plan(
    cache: &Cache,
    at: u64,
    len: usize,
    whole_pages: u64,
    slow_io_max: usize,
    only_dirty: bool,
) -> Vec<Part> {
    let fast_io_max = cache.fast_io_max();
    let map = cache.map.borrow();
    let mut parts: Vec<Part> = Vec::with_capacity(2);
    let end = at + len as u64;
    let mut byte = at;
    while byte < end {
        let page = byte / PAGE;
        let within = (byte % PAGE) as usize;
        let len = (PAGE_LEN - within).min((end - byte) as usize);
        let entry = if page < whole_pages {
            map.get(page)
        } else {
            None
        };
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
fn all_here(parts: &[Part], whole_pages: u64) -> bool {
    let away = |part: &Part| part.source == Source::Slow && part.at / PAGE < whole_pages;
    !parts.iter().any(away)
}

/// Reports to the policy which of pages `first..end` were found and which not. Called after the fills were chosen:
/// what the policy remembers of a page ends when it hears of the miss.
fn note_use(cache: &Cache, parts: &[Part], first: u64, end: u64) {
    let mut map = cache.map.borrow_mut();
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
                    map.hit(page, slot);
                }
            }
            Source::FastPart(page, entry) | Source::Mixed(page, entry) => map.hit(page, entry.slot),
            Source::Slow => (from..upto).for_each(|page| map.missed(page)),
        }
    }
}

impl Inner {
    /// What a moving region's temporary buffer holds of it comes from there, the rest from beneath.
    pub(crate) async fn read(
        self: &Rc<Self>,
        at: Sector,
        mut buf: Buf,
        class: Class,
    ) -> Result<Buf, DeviceError> {
        let range = at.byte()..at.byte() + buf.len() as u64;
        let Some(overlay) = self.overlay(&range) else {
            return self.read_beneath(at, buf, class).await;
        };
        if overlay.beneath.is_empty() {
            self.note_buffered(&range, class);
        } else if overlay.beneath == (0..buf.len()) {
            buf = self.read_beneath(at, buf, class).await?;
        } else {
            // Read apart: after an error on the fast device the answer comes in another buffer.
            let from = Sector::containing(range.start + overlay.beneath.start as u64);
            let beneath = Buf::for_read(overlay.beneath.len());
            let beneath = self.read_beneath(from, beneath, class).await?;
            buf[overlay.beneath.clone()].copy_from_slice(&beneath);
        }
        overlay.lay_over(&mut buf);
        Ok(buf)
    }

    async fn read_beneath(
        self: &Rc<Self>,
        at: Sector,
        buf: Buf,
        class: Class,
    ) -> Result<Buf, DeviceError> {
        let Some(cache) = self.live_cache() else {
            let buf = self.slow.read(at, buf, class).await?;
            self.counters.read(0, buf.len() as u64, false);
            return Ok(buf);
        };
        let byte = at.byte();
        let len = buf.len();
        let whole_pages = self.slow.whole_pages();
        let sequential = self.observe_stream(byte, len as u64);
        let mode = self.settings.borrow().write;
        let passing = mode == crate::WriteMode::Pass;
        let mut parts = plan(&cache, byte, len, whole_pages, self.slow.max_io(), passing);
        let first = byte / PAGE;
        let end = (byte + len as u64).div_ceil(PAGE).min(whole_pages);
        if class != Class::Background {
            for part in parts.iter().filter(|part| part.source == Source::Slow) {
                self.note_slow_read(part.at / PAGE);
            }
            let resident = all_here(&parts, whole_pages);
            self.note_request(&cache, byte..byte + len as u64, Asked::Read { resident });
        }
        let mut fills = Vec::new();
        if !passing && first < end {
            let caches = mode.fills_on_read() && !sequential.bypass;
            if class != Class::Background && (caches || self.has_tier()) {
                fills = self.choose_fills(&cache, &parts, whole_pages, caches);
            }
            note_use(&cache, &parts, first, end);
        }
        let any_fast = parts.iter().any(|part| part.source != Source::Slow);
        let either = any_fast && class != Class::Background && self.reads_slow(&cache);
        if either {
            parts = plan(&cache, byte, len, whole_pages, self.slow.max_io(), true);
        }
        // A read of the slow device alone must not keep slots from being used again.
        let all_slow = parts.iter().all(|part| part.source == Source::Slow);
        let reader = (!all_slow).then(|| Reader::enter(&cache));
        let answer = match parts.as_slice() {
            [only] => self.read_part(&cache, *only, buf, class).await,
            _ => self.read_parts(&cache, &parts, buf, class).await,
        };
        drop(reader);
        let buf = match answer {
            Ok(buf) => buf,
            // The fast device has what the slow one was asked for to spare it.
            Err(_) if either => self.read_carefully(&cache, byte, len, class).await?,
            Err(error) if !cache.is_ours(&error) => return Err(error),
            Err(error) => {
                self.drop_unreadable(&cache, &parts);
                tracing::warn!(volume = %self.name, %error, "a read goes page by page");
                cache.note_read_error(&error);
                self.read_carefully(&cache, byte, len, class).await?
            }
        };
        let mut tally = Tally::default();
        for part in &parts {
            match part.source {
                Source::Fast(_) | Source::FastPart(..) => tally.fast += part.len as u64,
                Source::Slow => tally.slow += part.len as u64,
                Source::Mixed(..) => {
                    tally.fast += part.len as u64 / 2;
                    tally.slow += part.len as u64 - part.len as u64 / 2;
                }
            }
        }
        self.counters
            .read(tally.fast, tally.slow, sequential.sequential);
        for fill in fills {
            self.start_fill(fill, byte, &buf);
        }
        Ok(buf)
    }

    async fn read_part(
        self: &Rc<Self>,
        cache: &Rc<Cache>,
        part: Part,
        mut buf: Buf,
        class: Class,
    ) -> Result<Buf, DeviceError> {
        let within = (part.at % PAGE) as usize;
        match part.source {
            Source::Fast(slot) => cache.read_slots(slot, buf, class).await,
            Source::Slow => {
                self.slow
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
                let stays = cache.tier.published.moves(page, page + 1);
                let token = (!stays).then(|| cache.begin_fill(page, page + 1)).flatten();
                let fill = token.map(|token| Fill {
                    cache: Rc::clone(cache),
                    token,
                    first: page,
                    end: page + 1,
                });
                let whole = match self.complete_page(cache, page, entry, class).await {
                    Ok(whole) => whole.freeze(),
                    Err(error) if cache.is_ours(&error) => return Err(error),
                    // A sector of the page that was not asked for may be the bad one.
                    Err(_) => return self.read_mixed(cache, part, entry, buf, class).await,
                };
                buf.copy_from_slice(&whole[within..within + part.len]);
                if let Some(fill) = fill {
                    let (inner, cache) = (Rc::clone(self), Rc::clone(cache));
                    env::spawn(async move {
                        let token = fill.token;
                        inner.adopt_whole(&cache, token, page, entry, whole).await;
                        drop(fill);
                    });
                }
                Ok(buf)
            }
        }
    }

    async fn read_parts(
        self: &Rc<Self>,
        cache: &Rc<Cache>,
        parts: &[Part],
        mut buf: Buf,
        class: Class,
    ) -> Result<Buf, DeviceError> {
        let mut pieces = Vec::with_capacity(parts.len());
        for part in parts {
            let rest = buf.split_off(part.len);
            pieces.push(std::mem::replace(&mut buf, rest));
        }
        let reads = parts
            .iter()
            .zip(pieces)
            .map(|(part, piece)| self.read_part(cache, *part, piece, class));
        let mut joined: Option<Buf> = None;
        for piece in join_all(reads).await {
            let piece = piece?;
            match &mut joined {
                None => joined = Some(piece),
                Some(whole) => whole.join(piece),
            }
        }
        Ok(joined.expect("a request has at least one part"))
    }

    /// The asked-for part alone of a page of which the fast device holds only some sectors.
    async fn read_mixed(
        self: &Rc<Self>,
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
            let piece = self.slow.read(at, Buf::for_read(len), class).await?;
            whole[from - within..from - within + len].copy_from_slice(&piece);
        }
        for (from, len) in runs_without(!entry.mask, within, part.len) {
            whole[from - within..from - within + len].copy_from_slice(&ours[from..from + len]);
        }
        Ok(whole)
    }

    /// A page of which the fast device holds only some sectors, whole.
    pub(crate) async fn complete_page(
        self: &Rc<Self>,
        cache: &Rc<Cache>,
        page: u64,
        entry: Entry,
        class: Class,
    ) -> Result<Buf, DeviceError> {
        let ours = cache.read_page(entry.slot, class).await?;
        let at = Sector::containing(page * PAGE);
        let mut whole = self.slow.read(at, Buf::for_read(PAGE_LEN), class).await?;
        merge_sectors(&mut whole, &ours, entry.mask);
        Ok(whole)
    }

    /// A clean page whose checksum does not agree or that cannot be read is forgotten.
    fn drop_unreadable(&self, cache: &Rc<Cache>, parts: &[Part]) {
        for part in parts {
            let pages = match part.source {
                Source::Slow => continue,
                Source::Fast(_) => part.at / PAGE..(part.at + part.len as u64) / PAGE,
                Source::FastPart(page, _) | Source::Mixed(page, _) => page..page + 1,
            };
            for page in pages {
                let entry = cache.map.borrow().get(page);
                if let Some(entry) = entry {
                    cache.drop_bad(page, &entry);
                }
            }
        }
    }

    /// Page by page, each from where it is whole now: after an error on the fast device.
    async fn read_carefully(
        self: &Rc<Self>,
        cache: &Rc<Cache>,
        at: u64,
        len: usize,
        class: Class,
    ) -> Result<Buf, DeviceError> {
        let mut whole = Buf::for_read(len);
        let whole_pages = self.slow.whole_pages();
        let end = at + len as u64;
        let mut byte = at;
        while byte < end {
            let within = (byte % PAGE) as usize;
            let len = (PAGE_LEN - within).min((end - byte) as usize);
            let reader = Reader::enter(cache);
            let part = plan(cache, byte, len, whole_pages, self.slow.max_io(), false)[0];
            let piece = match self.read_part(cache, part, Buf::for_read(len), class).await {
                Ok(piece) => piece,
                Err(error) => match part.source {
                    Source::FastPart(_, entry) | Source::Mixed(_, entry) if entry.dirty => {
                        return Err(error);
                    }
                    Source::Fast(_) if cache.map.borrow().is_dirty(byte / PAGE) => {
                        return Err(error);
                    }
                    Source::Slow => return Err(error),
                    _ => {
                        // Read as it is on the slow device: a clean page is the same there.
                        self.drop_unreadable(cache, &[part]);
                        self.slow
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

    // --- fills ------------------------------------------------------------------------------------

    /// Which missed pages are worth a copy? This is decided, and the fill registered, before the read is sent. From now
    /// on a write of one of the pages makes its copy void.
    ///
    /// `caches`: the block cache takes what it admits; what belongs to an extent that is fast is copied anyway.
    fn choose_fills(
        &self,
        cache: &Rc<Cache>,
        parts: &[Part],
        whole_pages: u64,
        caches: bool,
    ) -> Vec<Fill> {
        let (block, mode) = {
            let settings = self.settings.borrow();
            (settings.block.0 / PAGE, settings.mode)
        };
        let place = |page: u64| match mode {
            Use::Cache => Place::Slow,
            Use::Tier | Use::Both => cache.tier.place(page),
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
                    let (resident, remembered) = {
                        let map = cache.map.borrow();
                        (map.block_resident(page), map.remembers(page))
                    };
                    // A page beside resident ones of its block belongs to them.
                    resident || self.admits_read(page / block, remembered)
                };
                let wanted = match place(page) {
                    // While a region moves as published, only its mover copies.
                    Place::Fast => !cache.tier.published.moves(page, next),
                    Place::Demoting => false,
                    Place::Slow => caches && worth(),
                };
                if wanted {
                    run = Some((run.map_or(page, |(from, _)| from), next));
                } else if let Some((from, upto)) = run.take() {
                    self.add_fill(cache, from, upto, whole_pages, &mut fills);
                }
                page = next;
            }
            if let Some((from, upto)) = run {
                self.add_fill(cache, from, upto, whole_pages, &mut fills);
            }
        }
        fills
    }

    fn add_fill(
        &self,
        cache: &Rc<Cache>,
        first: u64,
        end: u64,
        whole_pages: u64,
        fills: &mut Vec<Fill>,
    ) {
        let (first, end) = self.widen(cache, first, end, whole_pages);
        if self.flash_budget_allows(Bytes((end - first) * PAGE))
            && let Some(token) = cache.begin_fill(first, end)
        {
            let cache = Rc::clone(cache);
            fills.push(Fill {
                cache,
                token,
                first,
                end,
            });
        }
    }

    /// With blocks of several pages the whole block is fetched: widens `first..end` to block bounds, up
    /// to the first page that is cached already.
    fn widen(&self, cache: &Rc<Cache>, first: u64, end: u64, whole_pages: u64) -> (u64, u64) {
        let block = self.settings.borrow().block.0 / PAGE;
        let map = cache.map.borrow();
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
    fn start_fill(self: &Rc<Self>, fill: Fill, at: u64, buf: &Buf) {
        let (from, upto) = (fill.first * PAGE, fill.end * PAGE);
        let have = at..at + buf.len() as u64;
        let shared = have.start.max(from)..have.end.min(upto);
        let (start, end) = (shared.start - have.start, shared.end - have.start);
        let read = buf
            .copy_range(start as usize, (end - start) as usize)
            .freeze();
        let inner = Rc::clone(self);
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
                    let Ok(piece) = inner.slow.read(at, buf, Class::Background).await else {
                        return;
                    };
                    let target = (start - from) as usize;
                    whole[target..target + piece.len()].copy_from_slice(&piece);
                }
                whole.freeze()
            };
            let cache = Rc::clone(&fill.cache);
            cache.fill(fill.token, fill.first, data).await;
        });
    }
}

/// Pages to be copied to the fast device once they are read; given up when dropped.
struct Fill {
    cache: Rc<Cache>,
    token: u64,
    first: u64,
    end: u64,
}

impl Drop for Fill {
    fn drop(&mut self) {
        self.cache.forget_fill(self.token, self.first, self.end);
    }
}

/// Keeps the slots it may look at from being used again.
pub(crate) struct Reader {
    cache: Rc<Cache>,
    epoch: u64,
}

impl Reader {
    pub fn enter(cache: &Rc<Cache>) -> Reader {
        Reader {
            cache: Rc::clone(cache),
            epoch: cache.slots.borrow_mut().enter(),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let freed = {
            let mut slots = self.cache.slots.borrow_mut();
            let before = slots.free_count();
            slots.leave(self.epoch);
            slots.free_count() > before
        };
        if freed {
            self.cache.room.notify_all();
        }
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
    fn runs_beside_a_mask_keep_to_what_was_asked_for() {
        assert_eq!(
            runs_without(0b0001_1000, 512, 3072),
            [(512, 1024), (2560, 1024)]
        );
        assert_eq!(runs_without(FULL, 0, 4096), []);
    }

    #[test]
    fn merging_takes_only_the_named_sectors() {
        let mut to = vec![0; 4096];
        merge_sectors(&mut to, &[7; 4096], 0b1000_0001);
        let set: Vec<usize> = (0..8).filter(|sector| to[sector * 512] == 7).collect();
        assert_eq!(set, [0, 7]);
    }
}
