//! What is a file or block device like, as far as the system says?

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use base::{Bytes, SECTOR};

use super::kernel::{number, queue_figure};
use super::{CLEAR_UNIT, FileOptions};
use crate::Info;

/// The `Info` of `file` at `path`, of `size`.
///
/// # Errors
/// The system's, if it does not say.
pub(super) fn describe(
    name: String,
    file: &env::fs::File,
    path: &Path,
    size: Bytes,
    options: &FileOptions,
) -> io::Result<Info> {
    let status = std::fs::metadata(path)?;
    let block_device = file.is_block_device();
    // For a regular file: the disk its file system lives on, where there is one.
    let disk = number(if block_device {
        status.rdev()
    } else {
        status.dev()
    });
    let figure = |name| queue_figure(disk, name);
    let physical = match block_device {
        true => figure("physical_block_size").unwrap_or(SECTOR),
        false => status.blksize(),
    };
    let physical = physical.max(options.block_min.map_or(0, |min| min.0));
    let physical = match physical.is_power_of_two() {
        true => physical.clamp(SECTOR, 1 << 20),
        false => CLEAR_UNIT,
    };
    Ok(Info {
        name,
        size,
        physical_block: Bytes(physical),
        // The kernel cuts long requests for the device by itself, and sends the pieces all at once.
        max_io: Bytes::mib(32),
        volatile_cache: true,
        discards: !block_device || figure("discard_max_bytes").is_some_and(|most| most > 0),
        rotational: figure("rotational") == Some(1),
        read_only: options.read_only,
        crash_keeping: true,
    })
}
