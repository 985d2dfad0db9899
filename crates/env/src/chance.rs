//! Random numbers: each stream is drawn from the run's seed and the name that its caller gives.

use std::io;

use rand::{Rng as _, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::executor::with_current;

/// A seeded generator (PCG 64). Two of one seed and stream give the same numbers.
#[derive(Clone)]
pub struct Rng(Pcg64Mcg);

/// The next generator of the named stream in this run: the first call for a name always gives the same
/// generator in runs of one seed, the second call the same second one, and so on. Give each component
/// its own name, so that one drawing more does not change what others see.
pub fn rng(stream: &str) -> Rng {
    let (seed, count) = with_current(|core| (core.seed(), core.next_of_stream(stream)));
    let mut seed = seed ^ count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in stream.bytes() {
        seed = (seed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    Rng::from_seed(seed)
}

/// Fills `bytes` with what others cannot guess: from the system's generator, or, in virtual time, from the run's seed
/// and the name of the caller.
///
/// # Panics
/// If the system gives no randomness: nothing secret can be made then.
pub fn secret(stream: &str, bytes: &mut [u8]) {
    if with_current(|core| core.is_simulated()) {
        return rng(stream).fill(bytes);
    }
    let system = std::fs::File::open("/dev/urandom");
    let filled = system.and_then(|system| io::Read::read_exact(&mut &system, bytes));
    filled.expect("the system gives randomness");
}

impl Rng {
    /// A generator from a seed alone (in tests and generators outside a runtime).
    pub fn from_seed(seed: u64) -> Rng {
        Rng(Pcg64Mcg::seed_from_u64(seed))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A whole number in `0..below`, each as likely.
    ///
    /// # Panics
    /// If `below` is zero.
    pub fn below(&mut self, below: u64) -> u64 {
        assert!(below > 0, "there is no number below zero");
        // Multiply-shift; the bias is below 2^-64 * below.
        ((u128::from(self.bits()) * u128::from(below)) >> 64) as u64
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Fills `bytes` with random ones.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}
