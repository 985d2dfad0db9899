//! Tests over all schedulers: case files, naive reference models, and a toy device in virtual time.

mod bookings;
mod coverage;
mod leads;
mod naive;
mod scenes;
mod streaks;
mod tokens;
mod toy;
mod twins;

/// Seeded chance for tests (a linear congruential generator, upper bits).
#[derive(Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}
