//! How do frame numbers lie in memory? In three bytes each while they fit, in four beyond.
//!
//! One load, one mask, no branch: a number is read as four bytes at `at * width` and the bytes of the
//! next one are masked off, so both widths run the same instructions. [`Pairs`] reads and writes two
//! numbers at once as eight bytes.
//!
//! What is stored soon before it is loaded again must be stored in one piece that covers the load, and
//! must not touch what is loaded next, or the processor waits for the store to reach its cache. So
//! single numbers are stored in their own bytes only (an index shifts neighbours), pairs in the same
//! eight bytes they are loaded from (a list links the same node again and again).
//!
//! Always true: `get(at)` is the value of the last `set(at, _)`; neighbours are untouched.

/// A vector of unsigned numbers below `2^24` (three bytes each) or `2^32` (four).
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    bytes: Vec<u8>,
    width: usize,
    mask: u32,
}

impl Packed {
    /// `len` zeros, wide enough for values up to `most`.
    pub(crate) fn new(len: usize, most: u32) -> Packed {
        let width = if most < 1 << 24 { 3 } else { 4 };
        Packed {
            // The last number is read with a full four-byte load.
            bytes: vec![0; len * width + 4 - width],
            width,
            mask: u32::MAX >> (32 - 8 * width),
        }
    }

    /// Bits in one number.
    pub(crate) fn bits(&self) -> u32 {
        self.width as u32 * 8
    }

    #[inline(always)]
    pub(crate) fn get(&self, at: usize) -> u32 {
        self.word(at * self.width) & self.mask
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, at: usize, value: u32) {
        debug_assert!(value <= self.mask);
        let from = at * self.width;
        let bytes = value.to_le_bytes();
        let to = &mut self.bytes[from..from + self.width];
        if let [low, middle, high] = to {
            [*low, *middle, *high] = [bytes[0], bytes[1], bytes[2]];
        } else {
            to.copy_from_slice(&bytes);
        }
    }

    #[inline(always)]
    fn word(&self, from: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.bytes[from..from + 4]);
        u32::from_le_bytes(word)
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}

/// A vector of pairs of unsigned numbers below `2^24` (six bytes a pair) or `2^32` (eight).
#[derive(Clone, Debug)]
pub(crate) struct Pairs {
    bytes: Vec<u8>,
    /// Bytes of a pair.
    width: usize,
    /// Bits of a number.
    bits: u32,
    number: u64,
}

impl Pairs {
    /// `len` pairs of zeros, wide enough for values up to `most`.
    pub(crate) fn new(len: usize, most: u32) -> Pairs {
        let width = if most < 1 << 24 { 6 } else { 8 };
        let bits = width as u32 * 4;
        // The last pair is read with a full eight-byte load.
        Pairs {
            bytes: vec![0; len * width + 8 - width],
            width,
            bits,
            number: (1 << bits) - 1,
        }
    }

    #[inline(always)]
    fn word(&self, at: u32) -> u64 {
        let from = at as usize * self.width;
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[from..from + 8]);
        u64::from_le_bytes(word)
    }

    #[inline(always)]
    fn store(&mut self, at: u32, word: u64) {
        let from = at as usize * self.width;
        self.bytes[from..from + 8].copy_from_slice(&word.to_le_bytes());
    }

    #[inline(always)]
    pub(crate) fn get(&self, at: u32) -> (u32, u32) {
        let word = self.word(at);
        (
            (word & self.number) as u32,
            (word >> self.bits & self.number) as u32,
        )
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, at: u32, first: u32, second: u32) {
        let both = self.number | self.number << self.bits;
        let pair = u64::from(first) | u64::from(second) << self.bits;
        debug_assert!(pair & !both == 0 && u64::from(first) <= self.number);
        self.store(at, self.word(at) & !both | pair);
    }

    #[inline(always)]
    pub(crate) fn set_first(&mut self, at: u32, first: u32) {
        debug_assert!(u64::from(first) <= self.number);
        self.store(at, self.word(at) & !self.number | u64::from(first));
    }

    #[inline(always)]
    pub(crate) fn set_second(&mut self, at: u32, second: u32) {
        debug_assert!(u64::from(second) <= self.number);
        let (field, second) = (self.number << self.bits, u64::from(second) << self.bits);
        self.store(at, self.word(at) & !field | second);
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_widths_keep_their_neighbours() {
        for most in [9, (1 << 24) - 1, 1 << 24, u32::MAX] {
            let mut numbers = Packed::new(5, most);
            for at in [0, 2, 4, 1, 3] {
                numbers.set(at, most - at as u32);
            }
            for at in 0..5 {
                assert_eq!(numbers.get(at), most - at as u32);
            }
            numbers.set(2, 0);
            assert_eq!((numbers.get(1), numbers.get(2)), (most - 1, 0));
            assert_eq!(numbers.get(3), most - 3);
        }
    }

    #[test]
    fn three_bytes_hold_what_fits_and_four_the_rest() {
        assert_eq!(Packed::new(1000, (1 << 24) - 1).memory(), 3001);
        assert_eq!(Packed::new(1000, 1 << 24).memory(), 4000);
    }

    #[test]
    fn pairs_of_both_widths_keep_their_neighbours() {
        for most in [9, (1 << 24) - 1, 1 << 24, u32::MAX] {
            let mut pairs = Pairs::new(5, most);
            for at in [0, 2, 4, 1, 3] {
                pairs.set(at, most - at, most);
            }
            pairs.set_first(2, 1);
            pairs.set_second(3, 2);
            assert_eq!(pairs.get(1), (most - 1, most));
            assert_eq!(pairs.get(2), (1, most));
            assert_eq!(pairs.get(3), (most - 3, 2));
            assert_eq!(pairs.get(4), (most - 4, most));
        }
        assert_eq!(Pairs::new(1000, (1 << 24) - 1).memory(), 6002);
        assert_eq!(Pairs::new(1000, 1 << 24).memory(), 8000);
    }
}
