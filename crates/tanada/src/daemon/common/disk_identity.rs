//! What tells a disk from another one that took its place and is of the same size?
//!
//! ```text
//! block device -> what the kernel knows of it: world-wide name, serial number, the number of a mapped device
//! file         -> its number and when it was made
//! ```
//!
//! Always true: a disk of which nothing is known is no other one.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

use config::{DeviceConfig, Kind};

/// Where the kernel says it, beneath a device's folder; the first that says something counts.
const SAID: [&str; 6] = [
    "wwid",
    "device/wwid",
    "device/serial",
    "serial",
    "dm/uuid",
    "md/uuid",
];

/// What tells the disks of a device from others that take their place, if that is known of all of them.
pub fn of_device(name: &str, devices: &[DeviceConfig]) -> Option<String> {
    let device = devices.iter().find(|device| device.name == name)?;
    match &device.kind {
        Kind::Path { path, .. } => of(path),
        Kind::Striped { members, .. } => {
            let each = members.iter().map(|member| of_device(member, devices));
            let all: Option<Vec<String>> = each.collect();
            all.map(|all| all.join("; "))
        }
        Kind::Memory { .. } | Kind::Model { .. } => None,
    }
}

/// The identity of the file or block device at `path`, as far as one is known.
fn of(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    if metadata.file_type().is_block_device() {
        let (major, minor) = (
            rustix::fs::major(metadata.rdev()),
            rustix::fs::minor(metadata.rdev()),
        );
        return of_block(Path::new(&format!("/sys/dev/block/{major}:{minor}")));
    }
    let made = metadata.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("file {} of {}", metadata.ino(), made.as_nanos()))
}

/// By the kernel's folder of a block device.
fn of_block(folder: &Path) -> Option<String> {
    let said = SAID.iter().find_map(|name| {
        let text = fs::read_to_string(folder.join(name)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| format!("{name} {text}"))
    });
    // Of a partition the disk says it; which one it is, its first sector tells.
    let start = fs::read_to_string(folder.join("start")).ok();
    match (said, start) {
        (None, Some(start)) => {
            let disk = of_block(folder.canonicalize().ok()?.parent()?)?;
            Some(format!("{disk}, from sector {}", start.trim()))
        }
        (said, _) => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_took_anothers_place_is_another_one() {
        let dir = tempfile::tempdir().expect("a folder");
        let (first, second) = (dir.path().join("a"), dir.path().join("b"));
        for path in [&first, &second] {
            fs::write(path, [0; 4096]).expect("written");
        }
        let before = of(&first).expect("files have one");
        fs::write(&first, [1; 8192]).expect("written");
        assert_eq!(
            of(&first),
            Some(before.clone()),
            "what is in it does not count"
        );
        fs::rename(&second, &first).expect("renamed");
        assert_ne!(of(&first), Some(before));
        assert_eq!(of(&dir.path().join("none")), None);
    }

    #[test]
    fn a_partition_is_its_disks_from_its_first_sector_on() {
        let dir = tempfile::tempdir().expect("a folder");
        let part = dir.path().join("sda/sda1");
        fs::create_dir_all(dir.path().join("sda/device")).expect("made");
        fs::create_dir_all(&part).expect("made");
        assert_eq!(of_block(&part), None);
        fs::write(dir.path().join("sda/device/wwid"), "naa.5000\n").expect("written");
        fs::write(part.join("start"), "2048\n").expect("written");
        let disk = of_block(&dir.path().join("sda"));
        assert_eq!(disk.as_deref(), Some("device/wwid naa.5000"));
        let part = of_block(&part);
        assert_eq!(
            part.as_deref(),
            Some("device/wwid naa.5000, from sector 2048")
        );
    }
}
