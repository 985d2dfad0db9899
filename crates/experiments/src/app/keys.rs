//! Which record does an operation ask for? Some are asked for far more often than others, and they lie anywhere.
//!
//! ```text
//! uniform in [0, 1) -> rank by Zipf's law, of 10^10 -> hash -> record 0 .. n-1 -> its key, "user" and a number
//! ```
//!
//! The ranks are of ten thousand million records however few there are, and are folded onto those there are: this is what the
//! YCSB core does, so that growing a data set does not change which records are hot.
//!
//! Source: Gray et al., Quickly Generating Billion-Record Synthetic Databases (SIGMOD 1994), 3.2; Cooper et al., Benchmarking Cloud
//! Serving Systems with YCSB (SoCC 2010), 4.1. The tests hold it to frequencies that the core of YCSB 0.17 gave.
//!
//! Always true:
//! 1. The same seed asks for the same records in the same order.

use env::Rng;

/// The skew: the record of rank k is asked for in proportion to k^-0.99.
const THETA: f64 = 0.99;
/// Ranks there are.
const RANKS: f64 = 1e10;
/// The sum of k^-0.99 for k from 1 to 10^10.
const ZETA: f64 = 26.469_028_201_783_02;

/// Ranks by Zipf's law.
#[derive(Debug, Clone, Copy)]
struct Ranks {
    ranks: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Ranks {
    fn new(ranks: f64, zeta: f64) -> Ranks {
        let first_two = 1.0 + 0.5_f64.powf(THETA);
        Ranks {
            ranks,
            zeta,
            alpha: 1.0 / (1.0 - THETA),
            eta: (1.0 - (2.0 / ranks).powf(1.0 - THETA)) / (1.0 - first_two / zeta),
        }
    }

    /// The rank of `uniform` in [0, 1); the most frequent is 0.
    fn at(&self, uniform: f64) -> u64 {
        // The first two are exact, the rest follow the law's integral.
        let share = uniform * self.zeta;
        if share < 1.0 {
            return 0;
        }
        if share < 1.0 + 0.5_f64.powf(THETA) {
            return 1;
        }
        (self.ranks * (self.eta * uniform - self.eta + 1.0).powf(self.alpha)) as u64
    }
}

/// Records as operations ask for them.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    ranks: Ranks,
    records: u64,
}

impl Keys {
    /// Of `records` records.
    ///
    /// # Panics
    /// If there are none.
    ///
    /// # Example
    /// ```
    /// use experiments::app::keys::Keys;
    /// let (keys, mut rng) = (Keys::new(1000), env::Rng::from_seed(1));
    /// let hot = (0..10_000).filter(|_| keys.draw(&mut rng) == 211).count();
    /// assert!((330..450).contains(&hot), "the most wanted of 1000 has 3.9 % of all requests");
    /// ```
    pub fn new(records: u64) -> Keys {
        assert!(records > 0, "no records, no keys");
        Keys {
            ranks: Ranks::new(RANKS, ZETA),
            records,
        }
    }

    /// The record the next operation asks for.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        hash(self.ranks.at(rng.unit())) % self.records
    }
}

/// FNV-1a of the eight bytes of `number`, the lowest first, as a number without a sign.
fn hash(number: u64) -> u64 {
    let mixed = number
        .to_le_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    // As a signed number without its sign.
    mixed.cast_signed().unsigned_abs()
}

/// The key of a record: hashed, so that records made one after the other do not lie beside each other.
///
/// # Example
/// ```
/// assert_eq!(experiments::app::keys::key(0), "user6284781860667377211");
/// ```
pub fn key(record: u64) -> String {
    format!("user{}", hash(record))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_hashed_as_the_core_of_ycsb_hashes_them() {
        // Printed by its class Utils, version 0.17.
        for (number, hashed) in [
            (0, 6_284_781_860_667_377_211),
            (1, 8_517_097_267_634_966_620),
            (2, 1_820_151_046_732_198_393),
            (42, 55_488_592_825_689_361),
            (9_999, 1_396_365_430_676_646_275),
            (123_456_789_012, 2_556_987_882_972_209_844),
        ] {
            assert_eq!(hash(number), hashed, "{number}");
        }
    }

    /// How often each record is asked for, in `draws`.
    fn frequencies(records: u64, draws: u32) -> Vec<f64> {
        let (keys, mut rng) = (Keys::new(records), Rng::from_seed(7));
        let mut counts = vec![0_u32; records as usize];
        for _ in 0..draws {
            counts[keys.draw(&mut rng) as usize] += 1;
        }
        let share = |count: u32| f64::from(count) / f64::from(draws);
        counts.into_iter().map(share).collect()
    }

    #[test]
    fn records_are_asked_for_as_often_as_the_core_of_ycsb_asks_for_them() {
        // Twenty million draws of its class ScrambledZipfianGenerator, version 0.17: record and share.
        let of_1000 = [
            (211, 0.038_983),
            (620, 0.020_192),
            (393, 0.016_389),
            (802, 0.012_041),
            (769, 0.009_610),
            (360, 0.008_053),
        ];
        let of_100_000 = [
            (77_211, 0.037_781),
            (66_620, 0.018_950),
            (98_393, 0.015_310),
            (87_802, 0.010_935),
            (16_769, 0.008_490),
            (27_360, 0.006_970),
        ];
        let draws = 2_000_000;
        for (records, expected, squares) in [
            (1_000, of_1000, 0.003_639_7),
            (100_000, of_100_000, 0.002_514_7),
        ] {
            let found = frequencies(records, draws);
            for (record, share) in expected {
                // Five standard deviations of a count.
                let near = 5.0 * (share / f64::from(draws)).sqrt();
                let ours = found[record];
                assert!((ours - share).abs() < near, "{record}: {ours}, not {share}");
            }
            let sum: f64 = found.iter().map(|share| share * share).sum();
            assert!((sum / squares - 1.0).abs() < 0.01, "{records}: {sum}");
        }
    }

    #[test]
    fn the_hundred_hottest_of_a_hundred_thousand_get_a_fifth_of_all_requests() {
        let mut found = frequencies(100_000, 2_000_000);
        found.sort_by(|a, b| b.total_cmp(a));
        let hottest: f64 = found[..100].iter().sum();
        // 0.20771 in the core of YCSB.
        assert!((hottest - 0.2077).abs() < 0.002, "{hottest}");
    }

    #[test]
    fn a_small_number_of_ranks_follows_the_law() {
        let zeta: f64 = (1..=1000).map(|k| f64::from(k).powf(-THETA)).sum();
        let (ranks, mut rng) = (Ranks::new(1000.0, zeta), Rng::from_seed(3));
        let mut counts = vec![0_u32; 1000];
        for _ in 0..1_000_000 {
            counts[ranks.at(rng.unit()) as usize] += 1;
        }
        // The class ZipfianGenerator of YCSB 0.17, twenty million draws. Rank 2 is 0.050999 there and 0.0436 by the law:
        // both share the integral's error.
        for (rank, share) in [(0, 0.129_37), (1, 0.065_12), (2, 0.051_00), (9, 0.013_47)] {
            let ours = f64::from(counts[rank]) / 1e6;
            assert!(
                (ours / share - 1.0).abs() < 0.03,
                "{rank}: {ours}, not {share}"
            );
        }
    }
}
