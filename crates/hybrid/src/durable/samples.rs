//! Fingerprints of a few pages of the slow device: is it the one that the cache knew?

use std::collections::VecDeque;

use base::{Bytes, Map, Sector, crc::crc32c};
use device::{Device, DeviceError, DeviceExt};

use crate::attach::label::PAGE;

/// The fingerprint of one page of the slow device.
pub(crate) async fn sample_crc(slow: &dyn Device, page: u64) -> Result<u32, DeviceError> {
    let at = Sector::containing(page * PAGE);
    Ok(crc32c(&slow.read_at(at, Bytes(PAGE)).await?))
}

/// Which pages of a slow device of `pages` pages are fingerprinted: the first and last few, where file
/// systems and partition tables keep their headers, and others evenly between.
pub(crate) fn sample_pages(pages: u64) -> Vec<u64> {
    let mut chosen: Vec<u64> = (0..4).chain(pages.saturating_sub(4)..pages).collect();
    // Headers at 64 KiB (btrfs) and 1 MiB (first partitions), and the first 128 MiB group of ext4.
    chosen.extend([16, 256, 32_768]);
    chosen.extend((0..53).map(|part| pages / 53 * part));
    chosen.retain(|page| *page < pages);
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// Fingerprints as the ledger has them, or is to have them.
#[derive(Default)]
pub(crate) struct Samples {
    /// By number: known, or unknown.
    known: Map<u64, Option<u32>>,
    /// Numbers whose fingerprint changed since the last cut.
    touched: Vec<u64>,
}

impl Samples {
    /// As recovered: `known`, with nothing changed since.
    pub fn new(known: Map<u64, Option<u32>>) -> Samples {
        Samples {
            known,
            touched: Vec::new(),
        }
    }

    /// All of them.
    pub fn known(&self) -> &Map<u64, Option<u32>> {
        &self.known
    }

    /// Sample `number` has this fingerprint, or none that is known.
    pub fn set(&mut self, number: u64, crc: Option<u32>) {
        self.known.insert(number, crc);
        self.touched.push(number);
    }

    /// The next commit carries sample `number`.
    pub fn touch(&mut self, number: u64) {
        self.touched.push(number);
    }

    /// Every one is to be written anew.
    pub fn touch_all(&mut self) {
        self.touched = (0..self.known.len() as u64).collect();
    }

    /// None is known any more.
    pub fn forget_all(&mut self) {
        for crc in self.known.values_mut() {
            *crc = None;
        }
        self.touched = self.known.keys().copied().collect();
    }

    /// Numbers that changed since the last call of [`Samples::take_touched`].
    pub fn touched(&self) -> &[u64] {
        &self.touched
    }

    /// Did one change since the last cut?
    pub fn any_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Numbers that changed since the last call, in the order they did.
    pub fn take_touched(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.touched)
    }
}

/// Pages read lately that are fingerprinted at a close.
const RECENT: usize = 64;

/// Pages that were read from the slow device lately.
#[derive(Default)]
pub(crate) struct Recent(VecDeque<u64>);

impl Recent {
    pub fn note(&mut self, page: u64) {
        if self.0.back() == Some(&page) {
            return;
        }
        if self.0.len() == RECENT {
            self.0.pop_front();
        }
        self.0.push_back(page);
    }

    /// They, the oldest first.
    pub fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_read_last_are_remembered() {
        let mut recent = Recent::default();
        (0..100).for_each(|page| recent.note(page));
        recent.note(99);
        assert_eq!((recent.0.len(), recent.0.front()), (RECENT, Some(&36)));
    }
}
