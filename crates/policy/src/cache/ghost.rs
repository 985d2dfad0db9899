//! Which keys left lately? A ghost list: fingerprints of keys, no data, three bytes each.
//!
//! ```text
//! key --hash--> set (of 16) + fingerprint (24 bits)
//! set: newest, ..., oldest      one more comes in: the oldest of the set is forgotten
//! ```
//!
//! Choice: S3-FIFO asks for one FIFO of keys. Here each set of 16 is a FIFO of its own: a key is
//! remembered for as many further keys as the ghost holds on average, with a spread of a quarter of
//! that; a lookup reads one or two cache lines and needs no links and no table. A fingerprint takes a
//! stranger for a ghost once in a million lookups (16 of 2^24), which costs a worse place for one
//! block and nothing else.
//!
//! Always true: at most `sets * 16` keys are remembered, and a key taken out is remembered no more.

use super::index::hash;

const WAYS: usize = 16;

/// One set: 24-bit fingerprints in two planes, newest first; 0 is empty, and empty ones come last.
#[derive(Clone, Debug)]
struct Set {
    low: [u16; WAYS],
    high: [u8; WAYS],
}

/// A FIFO memory of keys that are not resident.
///
/// # Example
/// ```
/// let mut ghost = policy::cache::Ghost::new(1000);
/// ghost.push(7);
/// assert!(ghost.contains(7));
/// assert!(ghost.take(7));
/// assert!(!ghost.contains(7));
/// ```
#[derive(Clone, Debug)]
pub struct Ghost {
    sets: Vec<Set>,
}

impl Ghost {
    /// Remembers about `keys` keys (rounded up to whole sets of 16; none if `keys` is 0).
    pub fn new(keys: usize) -> Ghost {
        let empty = Set {
            low: [0; WAYS],
            high: [0; WAYS],
        };
        Ghost {
            sets: vec![empty; keys.div_ceil(WAYS)],
        }
    }

    /// Remembers `share` of `capacity` keys.
    pub(crate) fn share(capacity: u32, share: f64) -> Ghost {
        Ghost::new((f64::from(capacity) * share).round() as usize)
    }

    #[inline(always)]
    fn place(&self, key: u64) -> (usize, u16, u8) {
        let hash = hash(key);
        let set = (u128::from(hash) * self.sets.len() as u128) >> 64;
        // The upper bits chose the set; the fingerprint comes from the lower ones. 0 means empty.
        let print = ((hash & 0xff_ffff) as u32).max(1);
        (set as usize, print as u16, (print >> 16) as u8)
    }

    /// The way of the set that holds this fingerprint.
    #[inline(always)]
    fn way(set: &Set, low: u16, high: u8) -> Option<usize> {
        // Gathered into a mask so that the comparison runs on the whole set at once.
        let mut found = 0u32;
        for way in 0..WAYS {
            found |= u32::from(set.low[way] == low && set.high[way] == high) << way;
        }
        (found != 0).then(|| found.trailing_zeros() as usize)
    }

    /// Is `key` remembered?
    #[inline]
    pub fn contains(&self, key: u64) -> bool {
        if self.sets.is_empty() {
            return false;
        }
        let (set, low, high) = self.place(key);
        Self::way(&self.sets[set], low, high).is_some()
    }

    /// Remembers `key` as the newest; the oldest of its set is forgotten if the set is full.
    #[inline]
    pub fn push(&mut self, key: u64) {
        if self.sets.is_empty() {
            return;
        }
        let (at, low, high) = self.place(key);
        let set = &mut self.sets[at];
        let last = Self::way(set, low, high).unwrap_or(WAYS - 1);
        set.low.copy_within(0..last, 1);
        set.high.copy_within(0..last, 1);
        set.low[0] = low;
        set.high[0] = high;
    }

    /// Forgets `key`. Answers whether it was remembered.
    #[inline]
    pub fn take(&mut self, key: u64) -> bool {
        if self.sets.is_empty() {
            return false;
        }
        let (at, low, high) = self.place(key);
        let set = &mut self.sets[at];
        let Some(way) = Self::way(set, low, high) else {
            return false;
        };
        set.low.copy_within(way + 1.., way);
        set.high.copy_within(way + 1.., way);
        set.low[WAYS - 1] = 0;
        set.high[WAYS - 1] = 0;
        true
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        for set in &mut self.sets {
            *set = Set {
                low: [0; WAYS],
                high: [0; WAYS],
            };
        }
    }

    /// Keys it has room for.
    pub fn capacity(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// Bytes it holds.
    pub fn memory(&self) -> usize {
        self.sets.capacity() * size_of::<Set>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// The naive reference model: a FIFO of whole keys per set.
    struct Model(Vec<VecDeque<u64>>);

    #[test]
    fn a_ghost_of_fingerprints_agrees_with_fifos_of_keys() {
        let mut chance = crate::cache::tests::Dice::new(11);
        let mut ghost = Ghost::new(64);
        let mut model = Model(vec![VecDeque::new(); 4]);
        let mut hits = 0;
        for _ in 0..20_000 {
            let key = chance.below(150);
            let set = &mut model.0[ghost.place(key).0];
            let known = set.iter().position(|&k| k == key);
            assert_eq!(ghost.contains(key), known.is_some());
            hits += usize::from(known.is_some());
            if chance.below(4) == 0 {
                assert_eq!(ghost.take(key), known.is_some());
                known.map(|at| set.remove(at));
            } else {
                ghost.push(key);
                known.map(|at| set.remove(at));
                set.push_front(key);
                set.truncate(WAYS);
            }
        }
        assert!(hits > 3_000, "{hits}");
        ghost.clear();
        assert!((0..150).all(|key| !ghost.contains(key)));
    }

    #[test]
    fn a_key_is_remembered_for_about_as_many_others_as_there_is_room() {
        let mut ghost = Ghost::new(1600);
        let mut left = 0;
        for key in 0..16_000u64 {
            ghost.push(key);
            left += usize::from(key >= 800 && ghost.contains(key - 800));
        }
        // Half the room later nearly all are still there (Poisson: fewer than 16 of mean 8 in 99 %).
        assert!(left > 15_200 * 98 / 100, "{left}");
        assert!((0..12_000).filter(|&key| ghost.contains(key)).count() < 10);
    }

    #[test]
    fn a_ghost_of_no_keys_remembers_nothing() {
        let mut ghost = Ghost::new(0);
        ghost.push(1);
        assert!(!ghost.contains(1) && !ghost.take(1));
        assert_eq!((ghost.capacity(), ghost.memory()), (0, 0));
    }
}
