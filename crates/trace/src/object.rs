//! Gives an address to each object of a cache trace, which has a name only.
//!
//! Choice: an object's number counts sectors of 512 bytes. That is what the numbers of block traces in
//! these formats are, so neighbours stay neighbours. Of numbers too great for that, which are hashes, the
//! low 53 bits count; two of ten million objects then share a place with a chance of 0.6 %.

use base::{Bytes, SECTOR};

/// Numbers below this keep their place, and the object's end lies below 2^63.
pub(super) const PLACES: u64 = 1 << 53;

/// The place of the object with this number.
pub(super) fn place(number: u64) -> Bytes {
    Bytes((number & (PLACES - 1)) * SECTOR)
}

/// The number of the object with this name: its hash (FNV-1a).
pub(super) fn of_name(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
