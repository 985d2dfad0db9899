//! Why is a capability not good? One sentence for each reason, with what to do.

use policy::share::Second;
use policy::share::calendar::BookingId;

use super::KeyId;

/// Why a capability was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CapabilityError {
    /// It is not of the form.
    #[error(
        "this is no capability: {why}; pass the whole line that `tanada reservation create` printed"
    )]
    Malformed {
        /// What is wrong.
        why: &'static str,
    },
    /// Signed with a key that is not in the ring.
    #[error(
        "the capability was signed with key {key}, which this store does not know; ask for a new one where \
         the reservation was made"
    )]
    UnknownKey {
        /// The key it names.
        key: KeyId,
    },
    /// Signed with a key that is accepted no more, or not yet.
    #[error(
        "the capability was signed with key {key}, which is accepted from {from} to {until} and it is {now} \
         here; ask for a new one where the reservation was made"
    )]
    KeyRetired {
        /// The key it names.
        key: KeyId,
        /// Accepted from then.
        from: Second,
        /// To then.
        until: Second,
        /// The time here.
        now: Second,
    },
    /// The signature is not that of the payload.
    #[error(
        "the capability was changed or forged: its signature does not belong to it; pass it as it was printed"
    )]
    BadSignature,
    /// For another store.
    #[error(
        "the capability is for store {granted:032x}, this is store {here:032x}; use it there or reserve here"
    )]
    WrongStore {
        /// The store it is for.
        granted: u128,
        /// The store it was shown to.
        here: u128,
    },
    /// Its slot is over.
    #[error(
        "the capability of reservation {} ended {ago} s ago (at {}, it is {now} here, {skew} s of difference \
         are allowed); reserve anew, or set the clocks if they disagree", .reservation.0, .ended
    )]
    Expired {
        /// Of which reservation.
        reservation: BookingId,
        /// The first second behind its slot.
        ended: Second,
        /// The time here.
        now: Second,
        /// Seconds since.
        ago: u64,
        /// The difference of clocks that is allowed.
        skew: u64,
    },
    /// Its slot has not begun.
    #[error(
        "the capability of reservation {} begins in {wait} s (at {}, it is {now} here, {skew} s of difference \
         are allowed): come back then; if it should have begun, this store's clock is behind", .reservation.0,
         .begins
    )]
    NotYet {
        /// Of which reservation.
        reservation: BookingId,
        /// The first second of its slot.
        begins: Second,
        /// The time here.
        now: Second,
        /// Seconds to go.
        wait: u64,
        /// The difference of clocks that is allowed.
        skew: u64,
    },
}
