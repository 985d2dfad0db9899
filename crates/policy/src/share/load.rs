//! What do N accesses ask for in the paper's measurements?

use super::{BytesPerSec, Share};

/// The rates of `accesses` concurrent accesses that share a device in the ratio 1 : 2 : ... : N.
///
/// `base` is what a single access gets, `overhead` the part of it set aside for running several. The
/// answer has one rate per access, rounded down, the smallest first; the sum is `base` less the
/// overhead, but for rounding.
///
/// Choice: the text's example, 200 MB/s split evenly at 10 % into 85 each, contradicts its equation,
/// which gives 90; the equation stands.
///
/// # Source
/// PROBS 4.2 equation (1): `Thput_i = BaseThput (100 - Overhead)/100 * 2i/(N(N+1))`.
///
/// # Example
/// ```
/// use policy::share::{BytesPerSec, Share, load};
/// let rates = load(BytesPerSec::mb(240), Share::percent(10), 3);
/// assert_eq!(rates, [BytesPerSec::mb(36), BytesPerSec::mb(72), BytesPerSec::mb(108)]);
/// ```
pub fn load(base: BytesPerSec, overhead: Share, accesses: u32) -> Vec<BytesPerSec> {
    let usable = u128::from(base.0) * u128::from(Share::WHOLE.saturating_sub(overhead).0);
    let parts = u128::from(accesses) * (u128::from(accesses) + 1);
    let rate = |i: u32| usable * 2 * u128::from(i) / (parts * u128::from(Share::WHOLE.0));
    (1..=accesses)
        .map(|i| BytesPerSec(rate(i) as u64))
        .collect()
}

/// The sum of all rates.
pub fn total_of(rates: &[BytesPerSec]) -> BytesPerSec {
    rates.iter().copied().sum()
}
