//! Requests cut by extent, and extents by block.

use std::ops::Range;

use super::users::UserId;
use crate::names::EXTENT;

/// The unit in which an overlay is filled.
pub(super) const BLOCK: u64 = 64 << 10;

/// A stretch of one extent.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExtentRange {
    pub index: u32,
    /// First byte in the extent.
    pub from: u64,
    pub len: u64,
    /// Whose it is.
    pub user: UserId,
}

impl ExtentRange {
    pub fn of(at: u64, len: u64, longest: u64, user: UserId) -> ExtentRange {
        let from = at % EXTENT;
        ExtentRange {
            index: (at / EXTENT) as u32,
            from,
            len: len.min(EXTENT - from).min(longest - from % longest),
            user,
        }
    }

    /// The bytes in the volume of all blocks it touches.
    pub fn blocks(&self) -> Range<u64> {
        let bytes = self.range(false);
        bytes.start / BLOCK * BLOCK..bytes.end.next_multiple_of(BLOCK)
    }

    /// Its bytes in the volume; with `whole` those of its extent.
    pub fn range(&self, whole: bool) -> Range<u64> {
        let start = u64::from(self.index) * EXTENT;
        match whole {
            true => start..start + EXTENT,
            false => start + self.from..start + self.from + self.len,
        }
    }
}

/// All pieces of a stretch of the volume.
pub(super) fn extent_ranges(
    at: u64,
    len: u64,
    longest: u64,
    user: UserId,
) -> Vec<(u64, ExtentRange)> {
    let mut all = Vec::new();
    let mut done = 0;
    while done < len {
        let piece = ExtentRange::of(at + done, len - done, longest, user);
        all.push((done, piece));
        done += piece.len;
    }
    all
}

/// The blocks that a stretch of an extent touches.
pub(super) fn touched(from: u64, len: u64) -> u64 {
    let (first, last) = (from / BLOCK, (from + len - 1) / BLOCK);
    (first..=last).fold(0, |mask, block| mask | 1 << block)
}
