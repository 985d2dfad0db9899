//! What does the kernel say of a block device: its parts, its mounts, its users, who has locked it?
//!
//! Only reads `/sys` and `/proc`. Where they say nothing, neither does this.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A device number: major, minor.
pub(super) type Number = (u32, u32);

pub(super) fn number(raw: u64) -> Number {
    (rustix::fs::major(raw), rustix::fs::minor(raw))
}

pub(super) fn sysfs((major, minor): Number) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

pub(super) fn parse_number(text: &str) -> Option<Number> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The device's name in `/dev` as the kernel knows it.
pub(super) fn kernel_name(device: Number) -> String {
    let link = std::fs::read_link(sysfs(device)).ok();
    let name = link.as_deref().and_then(Path::file_name);
    match name {
        Some(name) => format!("/dev/{}", name.to_string_lossy()),
        None => format!("block device {}:{}", device.0, device.1),
    }
}

/// The device and its partitions.
pub(super) fn parts(device: Number) -> Vec<Number> {
    let children = std::fs::read_dir(sysfs(device)).into_iter().flatten();
    let partitions = children.filter_map(|child| {
        let child = child.ok()?.path();
        let number = std::fs::read_to_string(child.join("dev")).ok()?;
        child.join("partition").exists().then_some(())?;
        parse_number(&number)
    });
    std::iter::once(device).chain(partitions).collect()
}

/// The disk that `device` is a partition of, or itself.
pub(super) fn disk_of(device: Number) -> Number {
    let own = sysfs(device);
    if !own.join("partition").exists() {
        return device;
    }
    let disk = || {
        let whole = own.canonicalize().ok()?;
        parse_number(&std::fs::read_to_string(whole.parent()?.join("dev")).ok()?)
    };
    disk().unwrap_or(device)
}

/// The kernel writes a space in a path as `\040`, and so on.
pub(super) fn unescape(text: &str) -> String {
    let mut plain = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let code = text
            .get(at + 1..at + 4)
            .filter(|_| bytes[at] == b'\\')
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 4 } else { 1 };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// The first of `devices` that is mounted according to `mountinfo`, and where. `number_of` returns the
/// device number of a path, for file systems that do not report that of their device (btrfs).
pub(super) fn mount_of(
    mountinfo: &str,
    devices: &[Number],
    number_of: impl Fn(&str) -> Option<Number>,
) -> Option<(Number, String)> {
    mountinfo.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let own = fields.nth(2).and_then(parse_number)?;
        let at = fields.nth(1)?;
        let (_, after) = line.split_once(" - ")?;
        let source = unescape(after.split(' ').nth(1)?);
        let by_source = || {
            let path = source.starts_with('/').then_some(&source)?;
            number_of(path)
        };
        let found = [Some(own), by_source()]
            .into_iter()
            .flatten()
            .find(|number| devices.contains(number))?;
        Some((found, unescape(at)))
    })
}

pub(super) fn block_number(path: &str) -> Option<Number> {
    let status = std::fs::metadata(path).ok()?;
    let block = status.file_type().is_block_device();
    block.then(|| number(status.rdev()))
}

/// What else in the kernel holds one of `devices`, in words.
pub(super) fn kernel_user(devices: &[Number]) -> Option<String> {
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let swap = swaps.lines().skip(1).find_map(|line| {
        let path = unescape(line.split_whitespace().next()?);
        devices.contains(&block_number(&path)?).then_some(path)
    });
    if let Some(path) = swap {
        return Some(format!("the kernel as swap space ({path})"));
    }
    devices.iter().find_map(|device| {
        let mut holders = std::fs::read_dir(sysfs(*device).join("holders")).ok()?;
        let holder = holders.next()?.ok()?.file_name();
        Some(format!("/dev/{}", holder.to_string_lossy()))
    })
}

/// Who holds an `flock` on this inode, from the text of `/proc/locks`.
pub(super) fn lock_holder(locks: &str, device: Number, inode: u64) -> Option<u32> {
    let wanted = format!("{:02x}:{:02x}:{inode}", device.0, device.1);
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // "3: FLOCK ADVISORY WRITE 1234 fe:00:5678 0 EOF"; a waiter has "->" as its second field.
        let [_, "FLOCK", _, _, pid, place, ..] = fields[..] else {
            return None;
        };
        (place == wanted).then(|| pid.parse().ok()).flatten()
    })
}

pub(super) fn who_locks(status: &std::fs::Metadata) -> Option<u32> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    lock_holder(&locks, number(status.dev()), status.ino())
}

/// What sysfs says of a disk's queue; a partition shares that of its disk.
pub(super) fn queue_figure(device: Number, name: &str) -> Option<u64> {
    let own = sysfs(device);
    let whole = own.canonicalize().ok()?;
    [own, whole.parent()?.to_owned()].iter().find_map(|folder| {
        let text = std::fs::read_to_string(folder.join("queue").join(name)).ok()?;
        text.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_number_by_partition_and_by_source() {
        let mountinfo = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 8:17 / /mnt/my\\040data rw - ext4 /dev/sdb1 rw
31 22 0:44 / /pool rw - btrfs /dev/sdc rw
32 22 0:5 / /dev rw shared:2 master:3 - devtmpfs devtmpfs rw
";
        let by_path = |path: &str| (path == "/dev/sdc").then_some((8, 32));
        let mounted = |devices: &[Number]| mount_of(mountinfo, devices, by_path);
        let at = |text: &str| text.to_owned();
        assert_eq!(
            mounted(&[(8, 16), (8, 17)]),
            Some(((8, 17), at("/mnt/my data")))
        );
        assert_eq!(mounted(&[(8, 32)]), Some(((8, 32), at("/pool"))));
        assert_eq!(mounted(&[(254, 0)]), Some(((254, 0), at("/"))));
        assert_eq!(mounted(&[(8, 48)]), None);
        assert_eq!(mount_of("garbage\n\n1 2 3", &[(8, 0)], by_path), None);
    }

    #[test]
    fn the_holder_of_a_lock_is_read_from_proc_locks() {
        let locks = "\
1: POSIX  ADVISORY  WRITE 700 fe:00:5678 0 EOF
2: FLOCK  ADVISORY  WRITE 701 fe:00:5678 0 EOF
2: -> FLOCK  ADVISORY  WRITE 702 fe:00:5678 0 EOF
3: FLOCK  ADVISORY  READ 703 08:10:9 0 EOF
";
        assert_eq!(lock_holder(locks, (0xfe, 0), 5678), Some(701));
        assert_eq!(lock_holder(locks, (8, 0x10), 9), Some(703));
        assert_eq!(lock_holder(locks, (8, 0x10), 5678), None);
    }

    #[test]
    fn escapes_in_kernel_tables_become_characters_and_nothing_else_changes() {
        assert_eq!(unescape(r"/mnt/my\040data\011\134x"), "/mnt/my data\t\\x");
        assert_eq!(unescape(r"/a\b\9\777"), r"/a\b\9\777");
        assert_eq!(unescape(r"/köln\040ü"), "/köln ü");
    }
}
