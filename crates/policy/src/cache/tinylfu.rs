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

/// W-TinyLFU. 6.3 bytes a frame and 8 to 16 for the sketch.
#[derive(Clone, Debug)]
pub struct WTinyLfu {
    window_target: u32,
    protected_target: u32,
    lists: Lists<4>,
    /// The part the frame belongs to (it may be set aside).
    part: Marks<2>,
    held: [u32; 3],
    sketch: Sketch,
}

/// How often was a key asked for lately? Never less than the truth up to 15, seldom more.
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
        let (window_target, protected_target) = Self::targets(capacity);
        WTinyLfu {
            window_target,
            protected_target,
            lists: Lists::new(capacity),
            part: Marks::new(capacity),
            held: [0; 3],
            sketch: Sketch::new(capacity),
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
        let crowded = self.held[WINDOW] >= self.window_target;
        let candidate = if crowded {
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
                if self.sketch.estimate(new) > self.sketch.estimate(old) {
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
        self.sketch.add(key);
    }

    #[inline]
    fn hit(&mut self, frame: u32, key: u64) {
        self.sketch.add(key);
        if usize::from(self.part.get(frame)) == WINDOW {
            self.lists.renew(WINDOW, frame);
            return;
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
            self.place(oldest, PROBATION);
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
        self.sketch.estimate(key) > 0
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
        self.sketch = Sketch::new(capacity);
    }

    fn memory(&self) -> usize {
        self.lists.memory() + self.part.memory() + self.sketch.memory()
    }
}
