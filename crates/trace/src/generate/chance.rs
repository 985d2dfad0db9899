//! Draws that decide a generated trace: the same on every machine.
//!
//! ```text
//! seed + name -> generator of bits -> exponential gaps, normal numbers, geometric bursts, Zipf ranks, scattered places
//! ```
//!
//! What a system's mathematical library answers for a logarithm or a power may differ in the last digit
//! from machine to machine, and one digit can change every request after it. So nothing here calls one:
//! whole numbers where they do, else additions, multiplications, divisions and roundings of `f64`, which
//! IEEE 754 fixes to the bit; [`ln`] and [`exp`] are written out in those.
//!
//! Always true:
//! 1. The same seed and name give the same draws, bit for bit, wherever the program was built.
//! 2. A [`Scatter`] of `n` is a bijection of `0..n`.

use env::Rng;

/// The generator of one seed for one purpose; different names give unrelated generators.
pub fn stream(seed: u64, name: &str) -> Rng {
    // FNV-1a over the name, from a start that the seed has been mixed into.
    let mut hash = mix(seed) ^ 0xcbf2_9ce4_8422_2325;
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    Rng::from_seed(mix(hash))
}

/// Spreads the bits of `x` over all 64 (the finishing steps of SplitMix64): a bijection.
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The natural logarithm of a positive, normal number, to about 1e-15.
pub fn ln(x: f64) -> f64 {
    debug_assert!(x >= f64::MIN_POSITIVE && x.is_finite(), "ln of {x}");
    const LN_2: f64 = std::f64::consts::LN_2;
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) as i64 - 1023) as f64;
    // The mantissa as a number in [1, 2), then in [0.71, 1.42) where the series is short.
    let mut m = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if m > std::f64::consts::SQRT_2 {
        m *= 0.5;
        exponent += 1.0;
    }
    // ln m = 2 (s + s^3/3 + s^5/5 + ...) with s = (m - 1) / (m + 1), |s| < 0.172: s^24 is below 1e-18.
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    let mut sum = 0.0;
    let mut k = 23.0;
    while k >= 1.0 {
        sum = sum * square + 1.0 / k;
        k -= 2.0;
    }
    exponent * LN_2 + 2.0 * s * sum
}

/// e to the power of `x`, to about 1e-15 of itself; 0 below and the greatest number above the range.
pub fn exp(x: f64) -> f64 {
    const LN_2: f64 = std::f64::consts::LN_2;
    if x < -708.0 {
        return 0.0;
    }
    if x > 709.0 {
        return f64::MAX;
    }
    let power = (x / LN_2 + 0.5).floor();
    let rest = x - power * LN_2;
    // |rest| < 0.35: its 17th power over 17! is below 1e-22.
    let mut sum = 1.0;
    let mut k = 16.0;
    while k >= 1.0 {
        sum = 1.0 + rest / k * sum;
        k -= 1.0;
    }
    sum * f64::from_bits(((power as i64 + 1023) as u64) << 52)
}

/// A whole number with an exponential distribution of this mean (in whatever unit the mean has).
pub fn exponential(rng: &mut Rng, mean: f64) -> u64 {
    (-ln(1.0 - rng.unit()) * mean) as u64
}

/// A number with the standard normal distribution, by Marsaglia's polar method.
pub fn normal(rng: &mut Rng) -> f64 {
    loop {
        let (x, y) = (2.0 * rng.unit() - 1.0, 2.0 * rng.unit() - 1.0);
        let square = x * x + y * y;
        if square > 0.0 && square < 1.0 {
            // The root of -2 ln s / s, as e to the half of its logarithm.
            return x * exp(0.5 * ln(-2.0 * ln(square) / square));
        }
    }
}

/// How many in a burst: geometric, at least one, `mean` on average.
#[derive(Debug, Clone, Copy)]
pub struct Burst {
    /// The logarithm of the probability that one more follows; `None`: never.
    ln_more: Option<f64>,
}

impl Burst {
    /// `mean` is at least 1.
    pub fn new(mean: f64) -> Burst {
        let more = 1.0 - 1.0 / mean;
        Burst {
            ln_more: (more > 0.0).then(|| ln(more)),
        }
    }

    /// The next burst's size.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        match self.ln_more {
            None => 1,
            Some(ln_more) => 1 + (ln(1.0 - rng.unit()) / ln_more) as u64,
        }
    }
}

/// Ranks `0..n`, rank `k` with probability proportional to `1 / (k + 1)^theta`.
///
/// Drawn by rejection-inversion (Hoermann and Derflinger 1996): no table, however many ranks.
#[derive(Debug, Clone, Copy)]
pub struct Zipf {
    n: f64,
    theta: f64,
    // The integral of the density's hull up to 1.5 less 1, up to n + 0.5, and the shortcut's width.
    low: f64,
    high: f64,
    sure: f64,
}

impl Zipf {
    /// Over `n` ranks, at least 1; `theta` from 0 (all alike) up.
    pub fn new(n: u64, theta: f64) -> Zipf {
        let mut zipf = Zipf {
            n: n as f64,
            theta,
            low: 0.0,
            high: 0.0,
            sure: 0.0,
        };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.n + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    fn density(&self, x: f64) -> f64 {
        exp(-self.theta * ln(x))
    }

    /// `(x^(1 - theta) - 1) / (1 - theta)`, and `ln x` for theta 1.
    fn integral(&self, x: f64) -> f64 {
        let ln_x = ln(x);
        let y = (1.0 - self.theta) * ln_x;
        // (e^y - 1) / y; near 0 by its series.
        let factor = match y.abs() > 1e-8 {
            true => (exp(y) - 1.0) / y,
            false => 1.0 + y / 2.0,
        };
        factor * ln_x
    }

    fn inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.theta)).max(-1.0 + f64::EPSILON);
        // ln(1 + t) / t; near 0 by its series.
        let factor = match t.abs() > 1e-8 {
            true => ln(1.0 + t) / t,
            false => 1.0 - t / 2.0,
        };
        exp(factor * area)
    }

    /// The next rank.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let area = self.high + rng.unit() * (self.low - self.high);
            let x = self.inverse(area);
            let k = (x + 0.5).floor().clamp(1.0, self.n);
            if k - x <= self.sure || area >= self.integral(k + 0.5) - self.density(k) {
                return k as u64 - 1;
            }
        }
    }
}

/// A bijection of `0..n` without visible order: rank to place, number in line to place.
#[derive(Debug, Clone, Copy)]
pub struct Scatter {
    n: u64,
    bits: u32,
    key: u64,
}

impl Scatter {
    /// Of `0..n`, `n` at least 1; another `key`, another order.
    pub fn new(n: u64, key: u64) -> Scatter {
        let bits = (64 - n.saturating_sub(1).leading_zeros()).max(2);
        Scatter { n, bits, key }
    }

    /// Where `i` goes.
    pub fn place(&self, i: u64) -> u64 {
        debug_assert!(i < self.n, "{i} of {}", self.n);
        let mask = u64::MAX >> (64 - self.bits);
        let mut x = i;
        loop {
            // Each step is a bijection of the numbers of so many bits; those past n go round again.
            let mut key = self.key;
            for _ in 0..3 {
                x = x.wrapping_add(key) & mask;
                x = x.wrapping_mul(0xd134_2543_de82_ef95) & mask;
                x ^= x >> (self.bits / 2);
                key = mix(key);
            }
            if x < self.n {
                return x;
            }
        }
    }
}

/// Numbers in `[0, 1)` of which every `n` in a row lie one in each n-th of the interval, in random order:
/// even a short run of them has the distribution's shape.
pub struct Strata {
    n: usize,
    left: Vec<usize>,
}

impl Strata {
    /// In runs of `n`.
    pub fn new(n: usize) -> Strata {
        Strata {
            n,
            left: Vec::new(),
        }
    }

    /// The next stratum, `0..n`.
    pub fn stratum(&mut self, rng: &mut Rng) -> usize {
        if self.left.is_empty() {
            self.left.extend(0..self.n);
        }
        let at = rng.below(self.left.len() as u64) as usize;
        self.left.swap_remove(at)
    }

    /// A number within a stratum.
    pub fn within(&self, stratum: usize, rng: &mut Rng) -> f64 {
        (stratum as f64 + rng.unit()) / self.n as f64
    }
}
