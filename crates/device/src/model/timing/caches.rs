//! What a memory-like device does beside its table of latencies: which writes does it still take fast, and which pages
//! does it still have?
//!
//! ```text
//! write -> WriteRoom: does it fit what is empty? -> fast | as many times slower      emptied at a rate
//! read  -> RecentPages: are all its pages there? -> hit  | miss                      least recently used goes first
//! ```
//!
//! Always true:
//! 1. Neither holds more than its size.

use std::collections::BTreeMap;

use base::{Bytes, Instant, Map, Span};

/// The unit of a cache of reads.
const PAGE: u64 = 4096;

/// A write cache: how much of it is empty?
#[derive(Debug)]
pub(super) struct WriteRoom {
    size: f64,
    bytes_per_nano: f64,
    empty: f64,
    /// When `empty` was true.
    at: Instant,
}

impl WriteRoom {
    /// Empty at moment zero.
    pub fn new(size: Bytes, refill_mb_s: f64) -> WriteRoom {
        WriteRoom {
            size: size.0 as f64,
            bytes_per_nano: refill_mb_s / 1e3,
            empty: size.0 as f64,
            at: Instant(0),
        }
    }

    /// Takes `bytes` at `now` if there is room for all of them.
    pub fn take(&mut self, now: Instant, bytes: f64) -> bool {
        let emptied = now.since(self.at).0 as f64 * self.bytes_per_nano;
        self.empty = (self.empty + emptied).min(self.size);
        self.at = now;
        let fits = bytes <= self.empty;
        if fits {
            self.empty -= bytes;
        }
        fits
    }
}

/// The pages used last.
#[derive(Debug)]
pub(super) struct RecentPages {
    pages_max: usize,
    /// When each page was used last, in uses.
    used: Map<u64, u64>,
    by_use: BTreeMap<u64, u64>,
    uses: u64,
}

impl RecentPages {
    /// None of them there.
    pub fn new(size: Bytes) -> RecentPages {
        RecentPages {
            pages_max: (size.0 / PAGE) as usize,
            used: Map::default(),
            by_use: BTreeMap::new(),
            uses: 0,
        }
    }

    /// Uses every page that `span` touches. Were all of them there?
    pub fn touch(&mut self, span: Span) -> bool {
        let from = span.start.byte();
        let (first, last) = (from / PAGE, (from + span.len.0).div_ceil(PAGE));
        let mut all = true;
        for page in first..last {
            self.uses += 1;
            match self.used.insert(page, self.uses) {
                Some(before) => {
                    self.by_use.remove(&before);
                }
                None => all = false,
            }
            self.by_use.insert(self.uses, page);
            if self.used.len() > self.pages_max
                && let Some((_, oldest)) = self.by_use.pop_first()
            {
                self.used.remove(&oldest);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use base::Sector;

    use super::*;

    #[test]
    fn a_write_cache_takes_its_size_and_then_what_its_rate_empties() {
        // 1 MB/s: 1,000 bytes in a millisecond.
        let mut room = WriteRoom::new(Bytes(8192), 1.0);
        let at = |millis: u64| Instant(millis * 1_000_000);
        assert!(room.take(at(0), 4096.0) && room.take(at(0), 4096.0));
        assert!(!room.take(at(0), 512.0), "it is full");
        assert!(!room.take(at(4), 4096.0), "4,000 bytes are empty");
        assert!(room.take(at(5), 4096.0), "5,000 bytes are empty");
        assert!(room.take(at(1000), 8192.0), "never more than its size");
        assert!(!room.take(at(1000), 1.0));
    }

    #[test]
    fn the_page_used_longest_ago_goes_first() {
        let mut pages = RecentPages::new(Bytes(3 * PAGE));
        let page = |n: u64| Span::new(Sector(n * PAGE / 512), Bytes(PAGE));
        for n in 0..3 {
            assert!(!pages.touch(page(n)));
        }
        assert!(pages.touch(page(0)));
        assert!(!pages.touch(page(3)), "1 goes for it");
        assert!(pages.touch(page(0)) && pages.touch(page(2)) && pages.touch(page(3)));
        assert!(!pages.touch(page(1)));
        // A span of two pages of which one is there is a miss, and both are there after it.
        let two = Span::new(Sector(3 * PAGE / 512), Bytes(2 * PAGE));
        assert!(!pages.touch(two) && pages.touch(two));
        // Sectors within a page are that page.
        assert!(pages.touch(Span::new(Sector(4 * PAGE / 512 + 1), Bytes(512))));
    }
}
