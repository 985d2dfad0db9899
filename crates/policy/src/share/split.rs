//! How is something split in proportion, to the last byte?
//!
//! ```text
//! amount, weights -> whole parts -> spare bytes to the largest remainders -> parts that sum to amount
//! ```

use base::Bytes;

use super::BytesPerSec;

/// Why nothing was split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// There is no session.
    #[error("cannot split {0} among no sessions; open one first")]
    NoSession(Bytes),
    /// A reservation of nothing.
    #[error("cannot split by reservations: number {0} (from 0) is zero; leave it out")]
    ZeroReservation(usize),
    /// The floors alone are too much.
    #[error("cannot give {sessions} sessions at least {floor} each of {total}; lower the floor")]
    Floor {
        /// How many.
        sessions: usize,
        /// What each should have at least.
        floor: Bytes,
        /// What there is.
        total: Bytes,
    },
}

/// Splits one round's tokens among sessions in proportion to their reservations.
///
/// `reserved` has one entry per session. The answer has the same length and order, counts bytes (an
/// I/O costs its size), and sums to `round`.
///
/// Choice: the paper leaves rounding open; spare bytes go to the largest remainders, the earlier
/// session first.
///
/// # Errors
/// [`ShareError::NoSession`] if `reserved` is empty; [`ShareError::ZeroReservation`] if any entry is
/// zero.
///
/// # Source
/// PROBS 3.3; `round` is SROUND allocation units (section 4).
///
/// # Example
/// ```
/// use base::Bytes;
/// use policy::share::{BytesPerSec, share_round};
/// let tokens = share_round(Bytes(64), &[BytesPerSec(100), BytesPerSec(60)])?;
/// assert_eq!(tokens, [Bytes(40), Bytes(24)]);
/// # Ok::<(), policy::share::ShareError>(())
/// ```
pub fn share_round(round: Bytes, reserved: &[BytesPerSec]) -> Result<Vec<Bytes>, ShareError> {
    if reserved.is_empty() {
        return Err(ShareError::NoSession(round));
    }
    if let Some(zero) = reserved.iter().position(|rate| rate.0 == 0) {
        return Err(ShareError::ZeroReservation(zero));
    }
    let weights: Vec<u64> = reserved.iter().map(|rate| rate.0).collect();
    Ok(proportion(round.0, &weights)
        .into_iter()
        .map(Bytes)
        .collect())
}

/// Splits the buffer memory among sessions: `floor` each, the rest in proportion to the rates.
///
/// The answer has the length and order of `rates` and sums to `total`. Sessions without a rate get the
/// floor; if none has a rate the rest is split evenly.
///
/// Choice: the floor. By rates alone a session of 1 in 64 could not hold one whole request.
///
/// # Errors
/// [`ShareError::NoSession`] if `rates` is empty; [`ShareError::Floor`] if the floors exceed `total`.
///
/// # Source
/// PROBS 3.3 (buffers are allotted in the ratio of the requested rates).
///
/// # Example
/// ```
/// use base::Bytes;
/// use policy::share::{BytesPerSec, split_memory};
/// let rates = [BytesPerSec::mb(100), BytesPerSec::mb(50), BytesPerSec(0)];
/// let memory = split_memory(Bytes::mib(18), Bytes::mib(1), &rates)?;
/// assert_eq!(memory, [Bytes::mib(11), Bytes::mib(6), Bytes::mib(1)]);
/// # Ok::<(), policy::share::ShareError>(())
/// ```
pub fn split_memory(
    total: Bytes,
    floor: Bytes,
    rates: &[BytesPerSec],
) -> Result<Vec<Bytes>, ShareError> {
    let sessions = rates.len();
    if sessions == 0 {
        return Err(ShareError::NoSession(total));
    }
    let spare = floor
        .0
        .checked_mul(sessions as u64)
        .and_then(|floors| total.0.checked_sub(floors))
        .ok_or(ShareError::Floor {
            sessions,
            floor,
            total,
        })?;
    let mut weights: Vec<u64> = rates.iter().map(|rate| rate.0).collect();
    if weights.iter().all(|weight| *weight == 0) {
        weights.fill(1);
    }
    let parts = proportion(spare, &weights);
    Ok(parts.into_iter().map(|part| floor + Bytes(part)).collect())
}

/// `amount` in proportion to `weights`, to the last unit: spare units go to the largest remainders,
/// the earlier first. All zero if all weights are.
pub(super) fn proportion(amount: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if sum == 0 {
        return vec![0; weights.len()];
    }
    let exact = |weight: &u64| u128::from(amount) * u128::from(*weight);
    let mut parts: Vec<u64> = weights.iter().map(|w| (exact(w) / sum) as u64).collect();
    let spare = amount - parts.iter().sum::<u64>();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(exact(&weights[i]) % sum), i));
    for &i in order.iter().take(spare as usize) {
        parts[i] += 1;
    }
    assert_eq!(parts.iter().sum::<u64>(), amount);
    parts
}
