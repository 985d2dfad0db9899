//! A few bits per frame, side by side.

/// A vector of small counters of `BITS` bits each (1, 2 or 4).
#[derive(Clone, Debug)]
pub(crate) struct Marks<const BITS: u32> {
    words: Vec<u64>,
}

impl<const BITS: u32> Marks<BITS> {
    const MASK: u64 = (1 << BITS) - 1;
    const EACH: u32 = u64::BITS / BITS;

    pub(crate) fn new(len: u32) -> Self {
        Marks {
            words: vec![0; len.div_ceil(Self::EACH) as usize],
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self, at: u32) -> u8 {
        (self.words[(at / Self::EACH) as usize] >> (at % Self::EACH * BITS) & Self::MASK) as u8
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, at: u32, value: u8) {
        debug_assert!(u64::from(value) <= Self::MASK);
        let shift = at % Self::EACH * BITS;
        let word = &mut self.words[(at / Self::EACH) as usize];
        *word = *word & !(Self::MASK << shift) | u64::from(value) << shift;
    }

    /// Grows with zeros or shrinks to `len`.
    pub(crate) fn resize(&mut self, len: u32) {
        self.words.resize(len.div_ceil(Self::EACH) as usize, 0);
        self.words.shrink_to_fit();
    }

    pub(crate) fn memory(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_do_not_touch_their_neighbours() {
        let mut marks = Marks::<2>::new(100);
        for at in 0..100 {
            marks.set(at, (at % 4) as u8);
        }
        marks.set(50, 0);
        for at in 0..100 {
            assert_eq!(marks.get(at), if at == 50 { 0 } else { (at % 4) as u8 });
        }
        assert_eq!(marks.memory(), 32);
    }
}
