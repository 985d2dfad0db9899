//! How do frame numbers lie in memory? In three bytes each while they fit, in four beyond.
//!
//! A number is read as four bytes, and the bytes of the next one are masked off; [`Pairs`] reads and
//! writes two numbers at once as eight bytes. Which width it is never changes, so the branch on it is
//! always foreseen, and shifts and masks are constants behind it.
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
    /// Three bytes a number, not four?
    narrow: bool,
}

impl Packed {
    /// `len` zeros, wide enough for values up to `most`.
    pub(crate) fn new(len: usize, most: u32) -> Packed {
        let narrow = most < 1 << 24;
        // The last number is read with a full four-byte load.
        Packed {
            bytes: vec![0; if narrow { len * 3 + 1 } else { len * 4 }],
            narrow,
        }
    }

    /// Bits in one number.
    pub(crate) fn bits(&self) -> u32 {
        if self.narrow { 24 } else { 32 }
    }

    #[inline(always)]
    pub(crate) fn get(&self, at: usize) -> u32 {
        if self.narrow {
            self.word(at * 3) & 0xff_ffff
        } else {
            self.word(at * 4)
        }
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, at: usize, value: u32) {
        let bytes = value.to_le_bytes();
        if self.narrow {
            debug_assert!(value < 1 << 24);
            self.bytes[at * 3..at * 3 + 3].copy_from_slice(&bytes[..3]);
        } else {
            self.bytes[at * 4..at * 4 + 4].copy_from_slice(&bytes);
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
    /// Six bytes a pair, not eight?
    narrow: bool,
}

/// The first number of a narrow pair, and of a wide one.
const NARROW: u64 = (1 << 24) - 1;
const WIDE: u64 = (1 << 32) - 1;

impl Pairs {
    /// `len` pairs of zeros, wide enough for values up to `most`.
    pub(crate) fn new(len: usize, most: u32) -> Pairs {
        let narrow = most < 1 << 24;
        // The last pair is read with a full eight-byte load.
        Pairs {
            bytes: vec![0; if narrow { len * 6 + 2 } else { len * 8 }],
            narrow,
        }
    }

    #[inline(always)]
    fn word(&self, from: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[from..from + 8]);
        u64::from_le_bytes(word)
    }

    /// Sets the bits of `field` in the word at byte `from`.
    #[inline(always)]
    fn change(&mut self, from: usize, field: u64, value: u64) {
        debug_assert!(value & !field == 0);
        let word = self.word(from) & !field | value;
        self.bytes[from..from + 8].copy_from_slice(&word.to_le_bytes());
    }

    #[inline(always)]
    pub(crate) fn get(&self, at: u32) -> (u32, u32) {
        let at = at as usize;
        if self.narrow {
            let word = self.word(at * 6);
            ((word & NARROW) as u32, (word >> 24 & NARROW) as u32)
        } else {
            let word = self.word(at * 8);
            (word as u32, (word >> 32) as u32)
        }
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, at: u32, first: u32, second: u32) {
        let (at, first, second) = (at as usize, u64::from(first), u64::from(second));
        if self.narrow {
            self.change(at * 6, NARROW | NARROW << 24, first | second << 24);
        } else {
            self.change(at * 8, u64::MAX, first | second << 32);
        }
    }

    #[inline(always)]
    pub(crate) fn set_first(&mut self, at: u32, first: u32) {
        let (at, first) = (at as usize, u64::from(first));
        if self.narrow {
            self.change(at * 6, NARROW, first);
        } else {
            self.change(at * 8, WIDE, first);
        }
    }

    #[inline(always)]
    pub(crate) fn set_second(&mut self, at: u32, second: u32) {
        let (at, second) = (at as usize, u64::from(second));
        if self.narrow {
            self.change(at * 6, NARROW << 24, second << 24);
        } else {
            self.change(at * 8, WIDE << 32, second << 32);
        }
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
