//! In which frame does a key live? An open-addressing table of frame numbers.
//!
//! ```text
//! key --hash--> home slot --probe--> slot holds (frame, distance from home) --key_of(frame)--> same key?
//! ```
//!
//! The table stores no keys: the caller has them anyway and lends them through `key_of`. A slot is as
//! wide as a frame number (three bytes below 2^24 frames), and the bits a frame number leaves free
//! hold the entry's distance from its home slot. Probing is Robin Hood's (an entry further from home
//! displaces a nearer one), so entries of one home lie side by side, a search reads only keys whose
//! home is its own, and removal moves neighbours back without reading any key. Where no bits are
//! free, or a distance is too big for them, the key is read.
//!
//! Always true:
//! 1. At most three quarters of the slots are taken: at most 4.01 bytes per frame below 2^24 frames.
//!    A roomy table has twice the slots and is about twice as fast.
//! 2. Distances along a run grow by at most one per slot.
//! 3. `key_of` is asked about frames in the table only.

use super::packed::Packed;

/// A map from keys to frames which keeps only the frames.
///
/// # Example
/// ```
/// let mut keys = [0u64; 4];
/// let mut index = policy::cache::Index::new(4);
/// keys[2] = 77;
/// index.insert(77, 2, |frame| keys[frame as usize]);
/// assert_eq!(index.find(77, |frame| keys[frame as usize]), Some(2));
/// assert_eq!(index.find(78, |frame| keys[frame as usize]), None);
/// ```
#[derive(Clone, Debug)]
pub struct Index {
    /// 0: empty; else `frame + 1`, and above `frame_bits` the distance.
    slots: Packed,
    /// Slots in the table.
    size: u32,
    capacity: u32,
    /// Slots for three frames.
    slots_per_three: u32,
    frame_bits: u32,
    frame_mask: u32,
    /// Distances of this and more are not stored.
    far: u32,
    held: u32,
}

/// Mixes all bits of `key` into all bits of the answer: one multiplication, its halves folded.
#[inline(always)]
pub(crate) fn hash(key: u64) -> u64 {
    let wide = u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * u128::from(0xd6e8_feb8_6659_fd93_u64);
    (wide as u64) ^ ((wide >> 64) as u64)
}

impl Index {
    /// For frames `0..capacity`.
    ///
    /// # Panics
    /// If `capacity` is 3 * 2^30 or more: the slots could not be counted in 32 bits.
    pub fn new(capacity: u32) -> Index {
        Index::with(capacity, 4)
    }

    /// For frames `0..capacity`, with twice the slots of [`new`](Self::new): 8 bytes a frame, shorter
    /// searches. For simulation, where memory is not what counts.
    ///
    /// # Panics
    /// If `capacity` is 3 * 2^29 or more.
    pub fn roomy(capacity: u32) -> Index {
        Index::with(capacity, 8)
    }

    fn with(capacity: u32, slots_per_three: u32) -> Index {
        // One slot more than needed is always empty and ends every probe.
        let size = (u64::from(capacity) * u64::from(slots_per_three)).div_ceil(3) + 1;
        assert!(
            size <= u64::from(u32::MAX),
            "an index for {capacity} frames has too many slots"
        );
        let size = size as u32;
        let slots = Packed::new(size as usize, capacity);
        let frame_bits = u32::BITS - capacity.leading_zeros();
        let far = ((1u64 << (slots.bits() - frame_bits)) - 1).min(u64::from(u32::MAX)) as u32;
        let frame_mask = ((1u64 << frame_bits) - 1) as u32;
        Index {
            slots,
            size,
            capacity,
            slots_per_three,
            frame_bits,
            frame_mask,
            far,
            held: 0,
        }
    }

    /// An index that stores no distances, as where a frame number takes all the bits of a slot.
    #[cfg(test)]
    pub(crate) fn without_distances(capacity: u32) -> Index {
        let mut index = Index::new(capacity);
        index.frame_bits = index.slots.bits();
        index.frame_mask = u32::MAX >> (32 - index.frame_bits);
        index.far = 0;
        index
    }

    /// Entries held.
    pub fn len(&self) -> usize {
        self.held as usize
    }

    /// Holds it nothing?
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Frames it can hold.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Bytes it holds.
    pub fn memory(&self) -> usize {
        self.slots.memory()
    }

    #[inline(always)]
    fn home(&self, key: u64) -> u32 {
        ((u128::from(hash(key)) * u128::from(self.size)) >> 64) as u32
    }

    #[inline(always)]
    fn next(&self, slot: u32) -> u32 {
        if slot + 1 == self.size { 0 } else { slot + 1 }
    }

    #[inline(always)]
    fn word(&self, frame: u32, distance: u32) -> u32 {
        // In 64 bits: with no free bits `far` is 0 and the shift is the full width.
        (frame + 1) | (u64::from(distance.min(self.far)) << self.frame_bits) as u32
    }

    #[inline(always)]
    fn frame(&self, word: u32) -> u32 {
        (word & self.frame_mask).wrapping_sub(1)
    }

    /// The stored distance: exact below `far`, else at least `far`.
    #[inline(always)]
    fn stored(&self, word: u32) -> u32 {
        (u64::from(word) >> self.frame_bits) as u32
    }

    #[inline(always)]
    fn distance(&self, slot: u32, word: u32, key_of: &impl Fn(u32) -> u64) -> u32 {
        let stored = self.stored(word);
        if stored < self.far {
            return stored;
        }
        self.between(self.home(key_of(self.frame(word))), slot)
    }

    #[inline(always)]
    fn between(&self, home: u32, slot: u32) -> u32 {
        if slot >= home {
            slot - home
        } else {
            slot + self.size - home
        }
    }

    /// The frame of `key`.
    #[inline]
    pub fn find(&self, key: u64, key_of: impl Fn(u32) -> u64) -> Option<u32> {
        let mut slot = self.home(key);
        let mut distance = 0;
        // The wanted entry's upper bits as they lie in the table, so that no slot need be shifted.
        let (step, far) = (1 << self.frame_bits, u64::from(self.far) << self.frame_bits);
        let mut wanted = 0;
        loop {
            let word = self.slots.get(slot as usize);
            let stored = u64::from(word & !self.frame_mask);
            // Most slots on the way belong to earlier homes: one comparison passes them. An empty
            // slot looks like distance 0: the end anywhere but at home.
            if stored <= wanted {
                if stored != wanted || word == 0 {
                    return None;
                }
                let frame = self.frame(word);
                let resident = key_of(frame);
                if resident == key {
                    return Some(frame);
                }
                if stored == far && self.between(self.home(resident), slot) < distance {
                    return None;
                }
            }
            slot = self.next(slot);
            distance += 1;
            wanted = (wanted + step).min(far);
        }
    }

    /// `key`, which is not in the table, lives in `frame` from now on.
    ///
    /// # Panics
    /// If the table is full or `frame` is beyond its capacity.
    #[inline]
    pub fn insert(&mut self, key: u64, frame: u32, key_of: impl Fn(u32) -> u64) {
        assert!(
            frame < self.capacity,
            "frame {frame} of an index for {}",
            self.capacity
        );
        assert!(
            self.held < self.capacity,
            "the index is full: {} entries",
            self.held
        );
        self.held += 1;
        let (mut slot, mut distance, mut frame) = (self.home(key), 0, frame);
        loop {
            let word = self.slots.get(slot as usize);
            if word == 0 {
                let word = self.word(frame, distance);
                return self.slots.set(slot as usize, word);
            }
            let theirs = self.distance(slot, word, &key_of);
            if theirs < distance {
                let mine = self.word(frame, distance);
                self.slots.set(slot as usize, mine);
                (frame, distance) = (self.frame(word), theirs);
            }
            slot = self.next(slot);
            distance += 1;
        }
    }

    /// The slot where `frame` is filed under `key`.
    #[inline]
    fn slot_of(&self, key: u64, frame: u32) -> Option<u32> {
        let mut slot = self.home(key);
        loop {
            let word = self.slots.get(slot as usize);
            if word == 0 {
                return None;
            }
            if self.frame(word) == frame {
                return Some(slot);
            }
            slot = self.next(slot);
        }
    }

    /// Forgets that `key` lives in `frame`. Answers whether it was there. Asks `key_of` about other
    /// frames only: the key of `frame` may be gone already.
    #[inline]
    pub fn remove(&mut self, key: u64, frame: u32, key_of: impl Fn(u32) -> u64) -> bool {
        let Some(mut hole) = self.slot_of(key, frame) else {
            return false;
        };
        self.held -= 1;
        loop {
            let slot = self.next(hole);
            let word = self.slots.get(slot as usize);
            let distance = if word == 0 {
                0
            } else {
                self.distance(slot, word, &key_of)
            };
            if distance == 0 {
                self.slots.set(hole as usize, 0);
                return true;
            }
            let nearer = self.word(self.frame(word), distance - 1);
            self.slots.set(hole as usize, nearer);
            hole = slot;
        }
    }

    /// `key` lives in `to` instead of `from` (out-of-place overwrite). Answers whether it was there.
    #[inline]
    pub fn rename(&mut self, key: u64, from: u32, to: u32) -> bool {
        assert!(
            to < self.capacity,
            "frame {to} of an index for {}",
            self.capacity
        );
        let Some(slot) = self.slot_of(key, from) else {
            return false;
        };
        let distance = self.stored(self.slots.get(slot as usize));
        let word = self.word(to, distance);
        self.slots.set(slot as usize, word);
        true
    }

    /// Visits every frame held, in table order.
    pub fn visit(&self, visit: &mut dyn FnMut(u32)) {
        for slot in 0..self.size {
            let word = self.slots.get(slot as usize);
            if word != 0 {
                visit(self.frame(word));
            }
        }
    }

    /// Grows or shrinks to `capacity`; every frame held must be below it.
    pub fn resize(&mut self, capacity: u32, key_of: impl Fn(u32) -> u64) {
        let mut new = Index::with(capacity, self.slots_per_three);
        self.visit(&mut |frame| new.insert(key_of(frame), frame, &key_of));
        *self = new;
    }
}
