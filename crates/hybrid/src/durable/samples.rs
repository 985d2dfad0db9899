//! Fingerprints of a few pages of the slow device: is it the one that the cache knew?

use base::{Bytes, Sector, crc::crc32c};
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
