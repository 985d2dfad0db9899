//! Is a file a raw disk, byte for byte, or does it hold one in another format?
//!
//! Taken for raw, an image of another format makes a disk of its own headers and tables, on which no file system is found.
//! Formats are known by their magic numbers, as their specifications and `file(1)` have them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use report::terminal::quoted;

/// What a file is, if it is no raw disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A disk image, by the name that qemu-img has for its format.
    Image(&'static str),
    /// Compressed; the program that unpacks it.
    Packed(&'static str),
    /// Several files in one, such as an appliance; the command that takes them out.
    Archive(&'static str),
}

/// Magic numbers: the bytes, and where they begin.
const BEGINS: [(&[u8], u64, Format); 18] = [
    (b"QFI\xfb\0\0\0\x01", 0, Format::Image("qcow")),
    (b"QFI\xfb", 0, Format::Image("qcow2")),
    (b"QED\0", 0, Format::Image("qed")),
    (b"KDMV", 0, Format::Image("vmdk")),
    (b"COWD", 0, Format::Image("vmdk")),
    (b"# Disk DescriptorFile", 0, Format::Image("vmdk")),
    (b"vhdxfile", 0, Format::Image("vhdx")),
    (b"conectix", 0, Format::Image("vpc")),
    (b"\x7f\x10\xda\xbe", 0x40, Format::Image("vdi")),
    (b"WithoutFreeSpace", 0, Format::Image("parallels")),
    (b"WithouFreSpacExt", 0, Format::Image("parallels")),
    (b"\x1f\x8b\x08", 0, Format::Packed("gzip")),
    (b"\xfd7zXZ\0", 0, Format::Packed("xz")),
    (b"\x28\xb5\x2f\xfd", 0, Format::Packed("zstd")),
    // Behind `BZh` and the level.
    (b"1AY&SY", 4, Format::Packed("bzip2")),
    (b"\x04\x22\x4d\x18", 0, Format::Packed("lz4")),
    (b"PK\x03\x04", 0, Format::Archive("unzip")),
    (b"ustar", 257, Format::Archive("tar -xf")),
];
/// The same, in the last sector.
const ENDS: [(&[u8], Format); 2] = [
    (b"conectix", Format::Image("vpc")),
    (b"koly", Format::Image("dmg")),
];
/// The longest of them and where it begins.
const HEAD: usize = 257 + 8;
const SECTOR: u64 = 512;

/// What a file of `size` bytes is, if no raw disk.
///
/// # Errors
/// It cannot be read.
pub fn format_of(file: &File, size: u64) -> io::Result<Option<Format>> {
    let mut head = [0; HEAD];
    let there = size.min(HEAD as u64) as usize;
    file.read_exact_at(&mut head[..there], 0)?;
    let begins = |(magic, at, _): &&(&[u8], u64, Format)| head[*at as usize..].starts_with(magic);
    if let Some((.., format)) = BEGINS.iter().find(begins) {
        return Ok(Some(*format));
    }
    let Some(last) = size.checked_sub(SECTOR) else {
        return Ok(None);
    };
    let mut foot = [0; 8];
    file.read_exact_at(&mut foot, last)?;
    let ends = ENDS.iter().find(|(magic, _)| foot.starts_with(magic));
    Ok(ends.map(|(_, format)| *format))
}

/// Why `path` is not taken for a raw disk, and what to do.
pub fn refusal(path: &Path, format: Format) -> String {
    let said = |path: &Path| quoted(&path.display().to_string());
    let (from, raw) = (said(path), said(&free_name(path)));
    let (what, todo) = match format {
        Format::Image(format) => (
            format!("is an image in the format {format}"),
            format!("Make a raw one of it (`qemu-img convert -O raw {from} {raw}`)"),
        ),
        Format::Packed(by) => (
            "is compressed".to_owned(),
            format!("Unpack it (`{by} -dc {from} > {raw}`)"),
        ),
        Format::Archive(by) => (
            "is an archive of files".to_owned(),
            format!("Take the disk out of it (`{by} {from}`)"),
        ),
    };
    format!(
        "{} {what}, not a raw disk: nothing was changed. {todo} and import that; a raw disk that only looks so is imported \
         with `--format raw`",
        path.display()
    )
}

/// What a raw copy can be called: nothing has this name.
fn free_name(path: &Path) -> PathBuf {
    let numbered = |n: u32| path.with_extension(format!("{n}.raw"));
    let mut names = [path.with_extension("raw")]
        .into_iter()
        .chain((1..).map(numbered));
    let free = names.find(|name| name != path && !name.exists());
    free.expect("some number is free")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(data: &[u8]) -> Option<Format> {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(data, 0).unwrap();
        format_of(&file, data.len() as u64).unwrap()
    }

    #[test]
    fn formats_are_known_by_their_magic_numbers_wherever_those_stand() {
        let mut disk = vec![0; 4096];
        assert_eq!(of(&disk), None);
        for (magic, at, format) in BEGINS {
            disk.fill(0);
            disk[at as usize..][..magic.len()].copy_from_slice(magic);
            assert_eq!(of(&disk), Some(format), "{magic:?}");
            // Elsewhere it is data.
            disk.rotate_right(1024);
            assert_eq!(of(&disk), None, "{magic:?}");
        }
        for (magic, format) in ENDS {
            disk.fill(0);
            disk[4096 - 512..][..magic.len()].copy_from_slice(magic);
            assert_eq!(of(&disk), Some(format), "{magic:?}");
        }
    }

    #[test]
    fn a_file_of_any_length_is_looked_at() {
        for len in [0, 1, 3, 71, 72, 511, 512, 513] {
            assert_eq!(of(&vec![0; len]), None, "{len} bytes");
        }
        assert_eq!(of(b"QFI\xfb\0\0\0\x03"), Some(Format::Image("qcow2")));
        assert_eq!(of(b"QFI\xfb\0\0\0\x01"), Some(Format::Image("qcow")));
        // A boot sector is a raw disk's.
        let mut disk = vec![0; 1 << 20];
        disk[510..512].copy_from_slice(b"\x55\xaa");
        assert_eq!(of(&disk), None);
    }

    #[test]
    fn a_refusal_names_the_command_that_helps() {
        let said = refusal(Path::new("vm.qcow2"), Format::Image("qcow2"));
        assert!(
            said.contains("`qemu-img convert -O raw vm.qcow2 vm.raw`"),
            "{said}"
        );
        let said = refusal(Path::new("a/vm.img.gz"), Format::Packed("gzip"));
        assert!(
            said.contains("`gzip -dc a/vm.img.gz > a/vm.img.raw`"),
            "{said}"
        );
        // The command writes over nothing, and takes the name as it is.
        let dir = tempfile::tempdir().unwrap();
        let packed = dir.path().join("my vm.raw");
        std::fs::write(&packed, b"").unwrap();
        let said = refusal(&packed, Format::Packed("gzip"));
        let other = dir.path().join("my vm.1.raw");
        assert!(
            said.contains(&format!("> '{}'`", other.display())),
            "{said}"
        );
    }
}
