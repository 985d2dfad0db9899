//! How much of the fast device is the tier's, where a cache stands beside it?
//!
//! ```text
//! request of the cache -> one in 2^n keys -> shadow LRU: main | tail | beyond     hits in tail: what a little less costs
//!                                                                              hits in beyond: what a little more brings
//! coldest extents that are fast, hottest that found no room                    the same for the tier
//!      -> policy::tier::split -> room of the tier
//! ```
//!
//! The shadow is an LRU whatever the cache's policy: policies differ in what they keep, much less in what a
//! little more room would bring.
//!
//! Always true:
//! 1. Each list of the shadow holds no more than its room, but for its last entry.
//! 2. A key is in one list at most.

use std::collections::{BTreeMap, BTreeSet};

use base::{Bytes, Map, Nanos};
use policy::tier::split::{Margin, Split, SplitOptions};

use crate::attach::label::PAGE;

/// Pages that the shadow samples of a cache, about.
const SAMPLED: u64 = 4096;
/// At most one key in 64 is sampled.
const SHIFT_MAX: u32 = 6;
/// Extents remembered that found no room in this interval.
const REFUSED_MAX: usize = 4096;
const GIB: f64 = (1 << 30) as f64;

/// The shadow's lists, hottest first.
const LISTS: usize = 3;
const TAIL: usize = 1;
const BEYOND: usize = 2;

#[derive(Debug, Clone, Copy)]
struct Place {
    list: usize,
    stamp: u64,
}

/// A sampled LRU in three parts.
#[derive(Default)]
struct Shadow {
    // Fixed while the cache's room is.
    shift: u32,
    /// Pages each list holds.
    room: [u64; LISTS],
    // What it holds.
    lists: [BTreeMap<u64, (u64, u64)>; LISTS],
    used: [u64; LISTS],
    places: Map<u64, Place>,
    next: u64,
    // Since the last sample.
    hits: [u64; LISTS],
}

impl Shadow {
    /// For a cache of `pages`, of which `margin` pages more or less are to be weighed.
    fn set_room(&mut self, pages: u64, margin: u64) {
        let shift = (pages / SAMPLED).max(1).ilog2().min(SHIFT_MAX);
        let room = [pages.saturating_sub(margin), margin, margin];
        let room = room.map(|pages| pages >> shift);
        if (shift, room) == (self.shift, self.room) {
            return;
        }
        if shift != self.shift {
            *self = Shadow::default();
        }
        (self.shift, self.room) = (shift, room);
        self.overflow(0);
    }

    /// A request for `pages` pages from `key` on.
    fn touch(&mut self, key: u64, pages: u64) {
        // The upper bits of a product with a large odd number are as good as random.
        let random = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        if random & ((1 << self.shift) - 1) != 0 || self.room[TAIL] == 0 {
            return;
        }
        if let Some(place) = self.places.remove(&key) {
            self.hits[place.list] += 1;
            let gone = self.lists[place.list].remove(&place.stamp);
            self.used[place.list] -= gone.expect("a place is where it is told").1;
        }
        self.put(0, key, pages);
        self.overflow(0);
    }

    fn put(&mut self, list: usize, key: u64, pages: u64) {
        let stamp = self.next;
        self.next += 1;
        self.lists[list].insert(stamp, (key, pages));
        self.used[list] += pages;
        self.places.insert(key, Place { list, stamp });
    }

    /// What does not fit a list goes to the next; what leaves the last is forgotten.
    fn overflow(&mut self, from: usize) {
        for list in from..LISTS {
            while self.used[list] > self.room[list] && self.lists[list].len() > 1 {
                let (_, (key, pages)) = self.lists[list].pop_first().expect("more than one");
                self.used[list] -= pages;
                self.places.remove(&key);
                if list + 1 < LISTS {
                    self.put(list + 1, key, pages);
                }
            }
        }
    }

    /// Requests a second that hit `list`, and forgets them.
    fn take(&mut self, list: usize, over: Nanos) -> f64 {
        let hits = std::mem::take(&mut self.hits[list]) << self.shift;
        hits as f64 / over.secs_f64().max(1e-9)
    }
}

/// The boundary between tier and cache.
#[derive(Default)]
pub(crate) struct Boundary {
    split: Option<Split>,
    whole: Bytes,
    shadow: Shadow,
    refused: BTreeSet<u32>,
}

impl Boundary {
    /// Bytes of the tier, of `whole` for both. Begins in the middle.
    fn tier(&mut self, whole: Bytes) -> Bytes {
        if self.whole != whole || self.split.is_none() {
            // A change of size keeps the share.
            let share = match &self.split {
                Some(split) => split.tier().0 as f64 / self.whole.0.max(1) as f64,
                None => 0.5,
            };
            let tier = Bytes((whole.0 as f64 * share) as u64);
            self.split = Some(Split::new(SplitOptions::of(whole), tier));
            self.whole = whole;
        }
        self.split.as_ref().expect("made just now").tier()
    }

    /// Pages of the tier, of `all` that both share.
    pub fn room(&mut self, all: u64) -> u64 {
        self.tier(Bytes(all * PAGE)).0 / PAGE
    }

    /// A request that is the cache's, for `pages` pages from `first` on.
    pub fn note_use(&mut self, first: u64, pages: u64) {
        self.shadow.touch(first, pages);
    }

    /// At the end of an interval of length `over`: moves the boundary. The cache may hold `cache_pages` now, an extent
    /// has `extent_pages`, and `fast` are those that are fast; `heat` gives requests a second to an extent.
    pub fn sample(
        &mut self,
        over: Nanos,
        cache_pages: u64,
        extent_pages: u64,
        fast: impl Iterator<Item = u32>,
        heat: impl Fn(u32) -> f64,
    ) {
        let margin = margin_of(self.whole);
        let gib = margin.0 as f64 / GIB;
        let beside = Margin {
            more: self.shadow.take(BEYOND, over) / gib,
            less: self.shadow.take(TAIL, over) / gib,
        };
        self.shadow.set_room(cache_pages, margin.0 / PAGE);
        let refused = std::mem::take(&mut self.refused);
        let extents = (margin.0 / PAGE / extent_pages).max(1) as usize;
        let mut hot: Vec<f64> = refused.into_iter().map(&heat).collect();
        hot.sort_by(|a, b| b.total_cmp(a));
        let mut cold: Vec<f64> = fast.map(heat).collect();
        cold.sort_by(f64::total_cmp);
        let per_gib = |heats: &[f64]| heats.iter().take(extents).sum::<f64>() / gib;
        let above = Margin {
            more: per_gib(&hot),
            less: per_gib(&cold),
        };
        if let Some(split) = &mut self.split {
            split.sample(beside, above);
        }
    }

    /// `extent` found no room.
    pub fn refuse(&mut self, extent: u32) {
        if self.refused.len() < REFUSED_MAX {
            self.refused.insert(extent);
        }
    }
}

/// So much of `whole` is weighed at each margin.
fn margin_of(whole: Bytes) -> Bytes {
    Bytes((whole.0 / 16).clamp(PAGE, 1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadow_tells_what_more_room_would_bring_and_less_would_cost() {
        let mut shadow = Shadow::default();
        shadow.set_room(100, 20);
        assert_eq!(shadow.shift, 0);
        for key in 0..130 {
            shadow.touch(key, 1);
        }
        // The last 80 are in the main list, the 20 before in the tail, the 20 before those beyond it.
        for (key, list) in [(129, 0), (35, TAIL), (15, BEYOND)] {
            let before = shadow.hits[list];
            shadow.touch(key, 1);
            assert_eq!(shadow.hits[list], before + 1, "key {key}");
        }
        let before = shadow.hits;
        shadow.touch(3, 1);
        assert_eq!(shadow.hits, before, "too long ago");
        assert_eq!(shadow.take(BEYOND, Nanos::secs(2)), 0.5);
        assert_eq!(shadow.take(BEYOND, Nanos::secs(2)), 0.0);
    }

    #[test]
    fn a_big_cache_is_sampled() {
        let mut shadow = Shadow::default();
        shadow.set_room(1 << 20, 1 << 16);
        for key in 0..100_000 {
            shadow.touch(key, 1);
        }
        let sampled = shadow.places.len() as f64 / (100_000.0 / 64.0);
        assert!((0.8..1.2).contains(&sampled), "{sampled}");
    }

    #[test]
    fn another_size_keeps_the_share() {
        let mut boundary = Boundary::default();
        assert_eq!(boundary.tier(Bytes::gib(8)), Bytes::gib(4));
        assert_eq!(boundary.tier(Bytes::gib(4)), Bytes::gib(2));
    }
}
