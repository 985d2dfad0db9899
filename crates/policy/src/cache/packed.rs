//! How do frame numbers lie in memory? In three bytes each while they fit, in four beyond.
//!
//! One load, one mask, no branch: a number is read as four bytes at `at * width` and the bytes of the
//! next one are masked off, so both widths run the same instructions.
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
        // Written as four bytes too, so that a load soon after finds the store in one piece.
        let word = (self.word(from) & !self.mask) | value;
        self.bytes[from..from + 4].copy_from_slice(&word.to_le_bytes());
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
}
