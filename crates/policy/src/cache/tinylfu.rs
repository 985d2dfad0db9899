//! W-TinyLFU: a newcomer stays only if it is asked for more often than the one it would displace.
//!
//! ```text
//! new key --> window (1 %, LRU) --candidate--> asked for more often than the victim? --> probation
//!                                                 no: the candidate goes
//! probation --used--> protected (80 % of the main part) --overflow--> probation
//! ```
//!
//! How often a key was asked for is estimated by a count-min sketch of four-bit counters, halved every
//! ten requests per frame, so that old fame fades.
//!
//! Source: TinyLFU (ACM ToS 2017), sections 3-4; sketch layout and sizes as in Caffeine.
//!
//! Choice: uses of a block still in the window are not counted. A block is often used several times
//! within a moment, which says little about its future; the window is there to absorb that. On the
//! CloudPhysics trace it takes four points off the miss ratio. [`WTinyLfuOptions`] has the others'
//! choices for comparison.
//!
//! Always true: the window and protected parts hold at most their shares once an eviction has passed
//! (refused frames count to their own part).

use super::Replacement;
use super::index::hash;
use super::lists::{Lists, Look, RETRIES};
use super::marks::Marks;

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;
const ASIDE: usize = 3;

/// The window's share of the capacity and the protected part's share of the rest, in percent.
const WINDOW_PERCENT: u64 = 1;
const PROTECTED_PERCENT: u64 = 80;
/// Requests counted per frame before all counts are halved.
const SAMPLE: u64 = 10;

/// What W-TinyLFU leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WTinyLfuOptions {
    /// Count uses of a key still in the window (Caffeine does; `false` here).
    pub count_window_hits: bool,
    /// Do the rest as libCacheSim does: while the cache fills, blocks that leave the window fill the
    /// protected part too; every candidate is counted once more; and counts are kept in a counting
    /// Bloom filter of 14.4 counters per frame and ten hashes, halved every 32 uses per frame. For
    /// comparison with its published figures: big and slow.
    pub like_libcachesim: bool,
}

/// W-TinyLFU. 6.3 bytes a frame and 8 to 16 for the sketch.
#[derive(Clone, Debug)]
pub struct WTinyLfu {
    options: WTinyLfuOptions,
    window_target: u32,
    protected_target: u32,
    lists: Lists<4>,
    /// The part the frame belongs to (it may be set aside).
    part: Marks<2>,
    held: [u32; 3],
    counts: Counts,
}

/// How often was a key asked for lately?
#[derive(Clone, Debug)]
enum Counts {
    Sketch(Sketch),
    Filter(Filter),
}

impl Counts {
    fn new(capacity: u32, options: WTinyLfuOptions) -> Counts {
        if options.like_libcachesim {
            Counts::Filter(Filter::new(capacity))
        } else {
            Counts::Sketch(Sketch::new(capacity))
        }
    }

    #[inline(always)]
    fn estimate(&self, key: u64) -> u32 {
        match self {
            Counts::Sketch(sketch) => u32::from(sketch.estimate(key)),
            Counts::Filter(filter) => filter.estimate(key),
        }
    }

    #[inline(always)]
    fn add(&mut self, key: u64) {
        match self {
            Counts::Sketch(sketch) => sketch.add(key),
            Counts::Filter(filter) => filter.add(key),
        }
    }

    fn memory(&self) -> usize {
        match self {
            Counts::Sketch(sketch) => sketch.memory(),
            Counts::Filter(filter) => filter.counters.capacity() * size_of::<u32>(),
        }
    }
}

/// libCacheSim's counting Bloom filter: an error of 0.001 for as many keys as the main part holds.
#[derive(Clone, Debug)]
struct Filter {
    counters: Vec<u32>,
    hits: u64,
    sample: u64,
}

impl Filter {
    const HASHES: u32 = 10;

    fn new(capacity: u32) -> Filter {
        let (window, _) = WTinyLfu::targets(capacity);
        let main = capacity.saturating_sub(window).max(1);
        // ln(1000) / ln(2)^2 = 14.38 counters per key.
        let counters = (f64::from(main) * 14.378).ceil() as usize;
        Filter {
            counters: vec![0; counters],
            hits: 0,
            sample: 32 * u64::from(main),
        }
    }

    fn places(&self, key: u64) -> impl Iterator<Item = usize> + use<> {
        let (hash, len) = (hash(key), self.counters.len());
        let (first, step) = (hash as u32, (hash >> 32) as u32);
        (0..Self::HASHES).map(move |i| first.wrapping_add(i.wrapping_mul(step)) as usize % len)
    }

    fn estimate(&self, key: u64) -> u32 {
        self.places(key)
            .map(|at| self.counters[at])
            .fold(u32::MAX, u32::min)
    }

    fn add(&mut self, key: u64) {
        for at in self.places(key) {
            self.counters[at] += 1;
        }
    }

    /// A use of a key in the main part: only these bring the next halving nearer.
    fn hit(&mut self) {
        self.hits += 1;
        if self.hits >= self.sample {
            self.hits = 0;
            for counter in &mut self.counters {
                *counter >>= 1;
            }
        }
    }
}

/// A count-min sketch: never less than the truth up to 15 (until halved), seldom more.
#[derive(Clone, Debug)]
struct Sketch {
    /// 16 counters of four bits each; a power of two of words.
    words: Vec<u64>,
    seen: u64,
    sample: u64,
}

impl Sketch {
    fn new(capacity: u32) -> Sketch {
        let words = (capacity as usize).next_power_of_two().max(8);
        Sketch {
            words: vec![0; words],
            seen: 0,
            sample: SAMPLE * u64::from(capacity).max(1),
        }
    }

    /// The words and shifts of the key's four counters: all in one cache line of eight words.
    #[inline(always)]
    fn places(&self, key: u64) -> [(usize, u32); 4] {
        let hash = hash(key);
        let line = (hash as usize & (self.words.len() - 1)) & !7;
        let mut bits = hash >> 32;
        std::array::from_fn(|row| {
            // Row r lives in words 2 r and 2 r + 1 of the line: five bits choose the counter.
            let place = (
                line + 2 * row + (bits & 1) as usize,
                (bits >> 1 & 15) as u32 * 4,
            );
            bits >>= 5;
            place
        })
    }

    #[inline(always)]
    fn estimate(&self, key: u64) -> u8 {
        let counts = self
            .places(key)
            .map(|(word, shift)| self.words[word] >> shift & 15);
        counts.into_iter().fold(15, u64::min) as u8
    }

    #[inline(always)]
    fn add(&mut self, key: u64) {
        let mut added = false;
        for (word, shift) in self.places(key) {
            if self.words[word] >> shift & 15 < 15 {
                self.words[word] += 1 << shift;
                added = true;
            }
        }
        self.seen += u64::from(added);
        if self.seen >= self.sample {
            self.seen /= 2;
            for word in &mut self.words {
                *word = *word >> 1 & 0x7777_7777_7777_7777;
            }
        }
    }

    fn memory(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

impl WTinyLfu {
    /// For frames `0..capacity`.
    pub fn new(capacity: u32) -> WTinyLfu {
        WTinyLfu::with(capacity, WTinyLfuOptions::default())
    }

    /// For frames `0..capacity`, with the given choices.
    pub fn with(capacity: u32, options: WTinyLfuOptions) -> WTinyLfu {
        let (window_target, protected_target) = Self::targets(capacity);
        WTinyLfu {
            options,
            window_target,
            protected_target,
            lists: Lists::new(capacity),
            part: Marks::new(capacity),
            held: [0; 3],
            counts: Counts::new(capacity, options),
        }
    }

    fn targets(capacity: u32) -> (u32, u32) {
        let capacity = u64::from(capacity);
        let window = (capacity * WINDOW_PERCENT / 100).max(1);
        let protected = capacity.saturating_sub(window) * PROTECTED_PERCENT / 100;
        (window as u32, protected as u32)
    }

    #[inline(always)]
    fn place(&mut self, frame: u32, part: usize) {
        self.held[usize::from(self.part.get(frame))] -= 1;
        self.held[part] += 1;
        self.part.set(frame, part as u8);
        self.lists.renew(part, frame);
    }

    /// The oldest frame of `part` that may go; refused ones are set aside. It stays in its list.
    #[inline(always)]
    fn offer(
        &mut self,
        part: usize,
        refused: &mut Option<u32>,
        may: &mut dyn FnMut(u32) -> bool,
    ) -> Option<u32> {
        loop {
            let frame = self.lists.oldest(part)?;
            if may(frame) {
                return Some(frame);
            }
            self.lists.renew(ASIDE, frame);
            refused.get_or_insert(frame);
        }
    }

    /// Candidate against victim: the one to go, taken out of its list.
    #[inline(always)]
    fn duel(
        &mut self,
        refused: &mut Option<u32>,
        key_of: &dyn Fn(u32) -> u64,
        may: &mut dyn FnMut(u32) -> bool,
    ) -> Option<u32> {
        let window_full = self.held[WINDOW] >= self.window_target;
        let candidate = if window_full {
            self.offer(WINDOW, refused, may)
        } else {
            None
        };
        let mut victim = self.offer(PROBATION, refused, may);
        if victim.is_none() {
            victim = self.offer(PROTECTED, refused, may);
        }
        let loser = match (candidate, victim) {
            (Some(candidate), Some(victim)) => {
                let (new, old) = (key_of(candidate), key_of(victim));
                let stays = self.counts.estimate(new) > self.counts.estimate(old);
                if self.options.like_libcachesim {
                    self.counts.add(new);
                }
                if stays {
                    self.place(candidate, PROBATION);
                    victim
                } else {
                    candidate
                }
            }
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => self.offer(WINDOW, refused, may)?,
        };
        self.lists.take(loser);
        Some(loser)
    }
}

impl Replacement for WTinyLfu {
    #[inline]
    fn missed(&mut self, key: u64) {
        self.counts.add(key);
    }

    #[inline]
    fn hit(&mut self, frame: u32, key: u64) {
        if usize::from(self.part.get(frame)) == WINDOW {
            self.lists.renew(WINDOW, frame);
            if self.options.count_window_hits {
                self.counts.add(key);
            }
            return;
        }
        self.counts.add(key);
        if let Counts::Filter(filter) = &mut self.counts {
            filter.hit();
        }
        self.place(frame, PROTECTED);
        if self.held[PROTECTED] > self.protected_target
            && let Some(oldest) = self.lists.oldest(PROTECTED)
        {
            self.place(oldest, PROBATION);
        }
    }

    #[inline]
    fn insert(&mut self, frame: u32, _key: u64) {
        self.lists.push(WINDOW, frame);
        self.part.set(frame, WINDOW as u8);
        self.held[WINDOW] += 1;
        // While the cache fills, what leaves the window finds room.
        if self.held[WINDOW] > self.window_target
            && let Some(oldest) = self.lists.oldest(WINDOW)
        {
            let frames = self.lists.frames() - self.window_target;
            let probation_full = self.held[PROBATION] >= frames - self.protected_target;
            let room = self.held[PROTECTED] < self.protected_target;
            let protect = self.options.like_libcachesim && probation_full && room;
            self.place(oldest, if protect { PROTECTED } else { PROBATION });
        }
    }

    #[inline]
    fn evict(
        &mut self,
        _incoming: Option<u64>,
        key_of: &dyn Fn(u32) -> u64,
        may: &mut dyn FnMut(u32) -> bool,
    ) -> Option<u32> {
        let mut refused = None;
        let look = &mut |frame| if may(frame) { Look::Take } else { Look::Aside };
        let mut loser = self.lists.retry(ASIDE, RETRIES, &mut refused, look);
        if loser.is_none() {
            loser = self.duel(&mut refused, key_of, may);
        }
        if loser.is_none() {
            let look = &mut |frame| if may(frame) { Look::Take } else { Look::Aside };
            loser = self.lists.retry(ASIDE, u32::MAX, &mut refused, look);
        }
        let loser = loser?;
        self.held[usize::from(self.part.get(loser))] -= 1;
        Some(loser)
    }

    fn remove(&mut self, frame: u32) {
        self.lists.take(frame);
        self.held[usize::from(self.part.get(frame))] -= 1;
    }

    #[inline]
    fn moved(&mut self, from: u32, to: u32) {
        self.lists.replace(from, to);
        self.part.set(to, self.part.get(from));
    }

    fn remembers(&self, key: u64) -> bool {
        self.counts.estimate(key) > 0
    }

    fn len(&self) -> usize {
        self.held.iter().map(|&held| held as usize).sum()
    }

    fn coldest_first(&self, visit: &mut dyn FnMut(u32)) {
        for list in [ASIDE, PROBATION, WINDOW, PROTECTED] {
            self.lists.visit(list, visit);
        }
    }

    fn capacity(&self) -> u32 {
        self.lists.frames()
    }

    fn resize(&mut self, capacity: u32) {
        self.lists.resize(capacity);
        self.part.resize(capacity);
        (self.window_target, self.protected_target) = Self::targets(capacity);
        self.counts = Counts::new(capacity, self.options);
    }

    fn memory(&self) -> usize {
        self.lists.memory() + self.part.memory() + self.counts.memory()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cache::tests::Dice;

    #[test]
    fn a_sketch_never_says_less_than_the_truth_and_seldom_more() {
        let mut dice = Dice::new(5);
        let mut sketch = Sketch::new(1_000);
        let mut truth: BTreeMap<u64, u8> = BTreeMap::new();
        for _ in 0..5_000 {
            let key = dice.below(40) * dice.below(60);
            sketch.add(key);
            let count = truth.entry(key).or_default();
            *count = (*count + 1).min(15);
        }
        let mut over = 0;
        for (&key, &count) in &truth {
            assert!(sketch.estimate(key) >= count, "key {key}");
            over += usize::from(sketch.estimate(key) > count);
        }
        assert!(
            over * 20 < truth.len(),
            "{over} of {} too high",
            truth.len()
        );
        assert!(
            (10_000..20_000)
                .filter(|&key| sketch.estimate(key) > 0)
                .count()
                < 500
        );
    }

    #[test]
    fn counts_are_halved_when_the_sample_is_full() {
        let mut sketch = Sketch::new(10);
        for _ in 0..8 {
            sketch.add(1);
        }
        for key in 100..191 {
            sketch.add(key);
        }
        assert!(sketch.estimate(1) >= 8);
        for key in 191..200 {
            sketch.add(key);
        }
        assert!(
            (4..8).contains(&sketch.estimate(1)),
            "{}",
            sketch.estimate(1)
        );
    }

    #[test]
    fn a_newcomer_displaces_only_a_block_asked_for_less() {
        let mut policy = WTinyLfu::new(10);
        for frame in 0..10 {
            policy.missed(u64::from(frame));
            policy.insert(frame, u64::from(frame));
        }
        for frame in 0..9 {
            policy.hit(frame, u64::from(frame));
        }
        // Frame 9 is in the window and was asked for once, all others twice: the newcomer goes.
        let key_of = |frame: u32| u64::from(frame);
        assert_eq!(policy.evict(Some(77), &key_of, &mut |_| true), Some(9));
        policy.insert(9, 77);
        for _ in 0..3 {
            policy.missed(77);
        }
        let victim = policy.evict(Some(78), &key_of_with(77), &mut |_| true);
        assert!(victim.is_some_and(|victim| victim != 9), "{victim:?}");
    }

    fn key_of_with(last: u64) -> impl Fn(u32) -> u64 {
        move |frame| if frame == 9 { last } else { u64::from(frame) }
    }
}
