//! Which virtual machine had each disk last? A file for each, which outlasts the daemon.
//!
//! `DATA_DIR/guests/XXXXXXXXXXXXXXXX`, sixteen digits of the disk's number: a line for each region of the guest's memory, two
//! numbers of the file that it is in. It is kept from one daemon to the next and not over a loss of power, which ends the
//! virtual machines too.
//!
//! Always true: what cannot be understood stands for a guest that is not known, so that another one counts as another.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use front::vhost::{GuestBook, MemoryId};

/// The file of one disk, by its place.
#[derive(Debug, Clone)]
pub struct GuestFile(PathBuf);

impl GuestFile {
    /// Of the disk with number `identity` of the daemon with this data directory.
    pub fn in_dir(data_dir: &Path, identity: u64) -> GuestFile {
        GuestFile(data_dir.join("guests").join(format!("{identity:016x}")))
    }

    fn replace(&self, text: &str) -> io::Result<()> {
        if let Some(folder) = self.0.parent() {
            fs::create_dir_all(folder)?;
        }
        let new = self.0.with_extension("new");
        fs::write(&new, text)?;
        fs::rename(new, &self.0)
    }
}

fn parse(text: &str) -> Option<Vec<MemoryId>> {
    let region = |line: &str| {
        let (device, file) = line.split_once(' ')?;
        Some((device.parse().ok()?, file.parse().ok()?))
    };
    text.lines().map(region).collect()
}

impl GuestBook for GuestFile {
    fn read(&self) -> Result<Option<Vec<MemoryId>>, String> {
        match fs::read(&self.0) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                Ok(Some(parse(&text).unwrap_or_default()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot read {}: {error}", self.0.display())),
        }
    }

    fn write(&self, memory: &[MemoryId]) -> Result<(), String> {
        let lines = memory
            .iter()
            .map(|(device, file)| format!("{device} {file}\n"));
        let written = self.replace(&lines.collect::<String>());
        written.map_err(|error| format!("cannot write {}: {error}", self.0.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_that_was_written_last_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let [disk, other] = [7, 8].map(|identity| GuestFile::in_dir(dir.path(), identity));
        assert_eq!(disk.read(), Ok(None));
        for memory in [vec![(1, 25), (1, u64::MAX)], vec![(0, 3)], vec![]] {
            disk.write(&memory).unwrap();
            assert_eq!(disk.read(), Ok(Some(memory)));
        }
        assert_eq!(other.read(), Ok(None), "each disk has its own");
    }

    #[test]
    fn a_file_that_is_damaged_is_of_a_guest_that_is_not_known() {
        let dir = tempfile::tempdir().unwrap();
        let disk = GuestFile::in_dir(dir.path(), 7);
        disk.write(&[(1, 2)]).unwrap();
        for damaged in [&b"1 2\n3"[..], b"1 x\n", b"\xff\xff", b"-1 2\n"] {
            fs::write(&disk.0, damaged).unwrap();
            assert_eq!(disk.read(), Ok(Some(Vec::new())), "{damaged:?}");
        }
    }

    #[test]
    fn what_stands_in_the_way_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let disk = GuestFile::in_dir(dir.path(), 7);
        fs::write(dir.path().join("guests"), "").unwrap();
        let said = disk.write(&[(1, 2)]).unwrap_err();
        assert!(said.contains("guests"), "{said}");
        assert!(disk.read().is_err());
    }
}
