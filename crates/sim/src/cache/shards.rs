//! The LRU curve from a sample of blocks: SHARDS.
//!
//! ```text
//! block --hash--> below the threshold? --no--> counted, nothing else
//!                          | yes
//!                          v
//!        stack of sampled blocks --distance d--> d / R blocks, for 1 / R accesses     R = threshold / 2^32
//! ```
//!
//! A block is sampled or not by its hash alone, so all its uses are seen or none. With a fixed rate the
//! memory grows with the footprint; with a fixed number of blocks the threshold falls whenever one
//! more would be too many: the block of the greatest hash goes, and what was counted so far is scaled down.
//!
//! Source: Waldspurger et al., "Efficient MRC construction with SHARDS" (FAST 2015): fixed rate 3.1,
//! fixed size 3.2, SHARDS_adj 4.3: accesses the sample has too few or too many are added at distance
//! zero, since it is the few hottest blocks that a sample has too few or too many of.
//!
//! Always true: the same blocks in the same order give the same curve.

use std::collections::BinaryHeap;

use base::Map;

use super::curve::{Curve, from_hits};
use super::stack::Stack;

/// What is sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sample {
    /// This share of the blocks, above 0 and at most 1.
    Rate(f64),
    /// At most so many blocks, of those that come at most this share.
    Blocks {
        /// How many.
        most: u32,
        /// The share to begin with.
        rate: f64,
    },
}

/// Mixes all bits of `key` and `seed`: two rounds of multiply and shift.
#[inline(always)]
pub(crate) fn mix(key: u64, seed: u64) -> u32 {
    let mut x = key ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (x >> 32) as u32
}

/// The threshold below which hashes lie with a chance of `rate`.
pub(super) fn threshold(rate: f64) -> u64 {
    assert!(
        rate > 0.0 && rate <= 1.0,
        "a sampling rate of {rate} is not above 0 and at most 1"
    );
    ((rate * 2f64.powi(32)).round() as u64).max(1)
}

/// Bins of the logarithm of a distance: up to 1,023 one each, beyond that 512 to a doubling, which is
/// 0.2 % of a size.
const FRACTION_BITS: u32 = 9;

fn bin(objects: f64) -> usize {
    let bits = (objects.max(1.0) as f32).to_bits() + (1 << (22 - FRACTION_BITS));
    (bits >> (23 - FRACTION_BITS)) as usize - FIRST_BIN
}

fn objects(bin: usize) -> f64 {
    f64::from(f32::from_bits(
        ((bin + FIRST_BIN) as u32) << (23 - FRACTION_BITS),
    ))
}

/// Where 1.0 lies.
const FIRST_BIN: usize = 127 << FRACTION_BITS;

/// An LRU curve in the making, from blocks as they come.
///
/// # Example
/// ```
/// use sim::cache::{Sample, Shards};
/// let mut shards = Shards::new(Sample::Rate(1.0), 0);
/// for key in [1, 2, 1, 3, 1, 2] {
///     shards.see(key, 4096);
/// }
/// let curve = shards.curve();
/// assert_eq!(curve.at(2.0).miss_ratio, 4.0 / 6.0);
/// assert_eq!(curve.at(3.0).miss_ratio, 3.0 / 6.0);
/// ```
#[derive(Clone, Debug)]
pub struct Shards {
    // Fixed.
    seed: u64,
    most: u32,
    // The sample.
    threshold: u64,
    places: Map<u64, u32>,
    free: Vec<u32>,
    /// (hash, block), the greatest hash on top; only with a fixed number of blocks.
    by_hash: BinaryHeap<(u32, u64)>,
    stack: Stack,
    // Counts: all, of the sample scaled up at the rate of their time, and those found at each distance.
    accesses: u64,
    bytes: u64,
    sampled: (f64, f64),
    hits: Vec<(f64, f64)>,
}

impl Shards {
    /// An empty sample. `seed` chooses which blocks are in it.
    ///
    /// # Panics
    /// If the rate is not above 0 and at most 1, or no blocks may be sampled.
    pub fn new(sample: Sample, seed: u64) -> Shards {
        let (rate, most) = match sample {
            Sample::Rate(rate) => (rate, u32::MAX),
            Sample::Blocks { most, rate } => (rate, most),
        };
        assert!(most > 0, "a sample has room for at least one block");
        Shards {
            seed,
            most,
            threshold: threshold(rate),
            places: Map::default(),
            free: Vec::new(),
            by_hash: BinaryHeap::new(),
            stack: Stack::new(0),
            accesses: 0,
            bytes: 0,
            sampled: (0.0, 0.0),
            hits: Vec::new(),
        }
    }

    /// One access to `key`, for `bytes` bytes. Is the key in the sample?
    #[inline]
    pub fn see(&mut self, key: u64, bytes: u32) -> bool {
        self.accesses += 1;
        self.bytes += u64::from(bytes);
        let hash = mix(key, self.seed);
        let sampled = u64::from(hash) < self.threshold;
        if sampled {
            self.use_of(key, hash, f64::from(bytes));
        }
        sampled
    }

    /// So many accesses of `bytes` bytes each, to keys the caller knows not to be in the sample.
    #[inline]
    pub(crate) fn pass_by(&mut self, accesses: u64, bytes: u32) {
        self.accesses += accesses;
        self.bytes += accesses * u64::from(bytes);
    }

    fn use_of(&mut self, key: u64, hash: u32, bytes: f64) {
        // What is counted at a lower rate stands for more.
        let each = 1.0 / self.rate();
        self.sampled = (self.sampled.0 + each, self.sampled.1 + each * bytes);
        let fresh = match self.free.last() {
            Some(&place) => place,
            None => self.places.len() as u32,
        };
        let place = *self.places.entry(key).or_insert(fresh);
        if place == fresh {
            self.free.pop();
            if self.most < u32::MAX {
                self.by_hash.push((hash, key));
            }
        }
        if let Some(distance) = self.stack.used(place) {
            let bin = bin(f64::from(distance) * each);
            if self.hits.len() <= bin {
                self.hits.resize(bin + 1, (0.0, 0.0));
            }
            let (hits, hit_bytes) = &mut self.hits[bin];
            *hits += each;
            *hit_bytes += each * bytes;
        }
        if self.places.len() as u64 > u64::from(self.most) {
            self.lower_threshold();
        }
    }

    /// The blocks of the greatest hash leave, and with them all that hash as high.
    fn lower_threshold(&mut self) {
        let Some(&(greatest, _)) = self.by_hash.peek() else {
            return;
        };
        self.threshold = u64::from(greatest).max(1);
        while let Some(&(hash, key)) = self.by_hash.peek() {
            if u64::from(hash) < self.threshold {
                break;
            }
            self.by_hash.pop();
            if let Some(place) = self.places.remove(&key) {
                self.stack.forget(place);
                self.free.push(place);
            }
        }
    }

    /// The share of blocks sampled now.
    pub fn rate(&self) -> f64 {
        self.threshold as f64 / 2f64.powi(32)
    }

    /// Blocks in the sample now.
    pub fn blocks(&self) -> usize {
        self.places.len()
    }

    /// Accesses seen, sampled or not.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// The curve of what was seen so far.
    pub fn curve(&self) -> Curve {
        let whole = (self.accesses as f64, self.bytes as f64);
        let known = (whole.0 - self.sampled.0, whole.1 - self.sampled.1);
        let hits = self
            .hits
            .iter()
            .enumerate()
            .filter(|(_, hits)| hits.0 > 0.0);
        let hits = hits.map(|(bin, &(hits, bytes))| (objects(bin), hits, bytes));
        from_hits(whole, known, hits, self.places.len() as f64 / self.rate())
    }

    /// Memory it holds, in bytes.
    pub fn memory(&self) -> usize {
        self.stack.memory()
            + self.hits.capacity() * size_of::<(f64, f64)>()
            + self.by_hash.capacity() * size_of::<(u32, u64)>()
            + self.places.capacity() * (size_of::<(u64, u32)>() + 1)
            + self.free.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_exact_where_sizes_are_small_and_near_where_they_are_large() {
        for size in 1..1024 {
            assert_eq!(objects(bin(f64::from(size))), f64::from(size));
        }
        for size in [5_000.0, 123_456.0, 7e9] {
            assert!((objects(bin(size)) / size - 1.0).abs() <= 0.001, "{size}");
        }
    }

    #[test]
    fn a_sample_of_fixed_size_never_grows_beyond_it() {
        let most = 100;
        let mut shards = Shards::new(Sample::Blocks { most, rate: 1.0 }, 3);
        for n in 0..50_000u64 {
            shards.see(n % 7_000, 512);
            assert!(shards.blocks() <= 100);
        }
        // 100 of 7,000 are left, and the curve knows how many there are.
        assert!((0.005..0.03).contains(&shards.rate()), "{}", shards.rate());
        let footprint = shards.curve().footprint();
        assert!((5_000.0..9_000.0).contains(&footprint), "{footprint}");
        let memory = shards.memory();
        assert!(memory < 400_000, "{memory} bytes");
    }
}
