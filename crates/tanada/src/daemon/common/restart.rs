//! Where a hybrid's restart log lies: a file on a file system in memory, which outlives the daemon and not the boot.
//!
//! `/dev/shm/tanada-restart-XXXXXXXX-NAME`: eight digits of the data directory, the volume's name. It is made when the
//! volume is opened and removed when it is closed cleanly; what a killed daemon left, the next one finds.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Context;
use base::crc::crc32c;
use device::{Device, Meter};
use env::Mapping;
use hybrid::{RESTART_LOG, RestartPlace};
use report::terminal::said;

/// A file system in memory that every Linux has, and that no service manager empties at a restart.
const FOLDER: &str = "/dev/shm";
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The memory of one hybrid's restart log.
#[derive(Debug, Clone)]
pub struct RestartFile {
    pub place: RestartPlace,
    path: PathBuf,
}

impl RestartFile {
    /// The memory of a hybrid's restart log, where both devices keep what a killed daemon wrote.
    pub fn of_volume(
        data_dir: &Path,
        volume: &str,
        devices: [&Rc<Meter>; 2],
    ) -> Option<RestartFile> {
        if !devices.iter().all(|device| device.info().crash_keeping) {
            return None;
        }
        match RestartFile::open(data_dir, volume) {
            Ok(file) => Some(file),
            Err(error) => {
                tracing::warn!(
                    volume,
                    "no restart log: {}; if this daemon is killed, what was answered and not flushed may be lost",
                    said::words(&error)
                );
                None
            }
        }
    }

    /// Opens the file of `volume`, whose daemon keeps its state in `data_dir`.
    ///
    /// # Errors
    /// In words; the volume works without it.
    fn open(data_dir: &Path, volume: &str) -> anyhow::Result<RestartFile> {
        let data_dir = fs::canonicalize(data_dir).unwrap_or_else(|_| data_dir.to_owned());
        let of_daemon = crc32c(data_dir.as_os_str().as_encoded_bytes());
        let path = Path::new(FOLDER).join(format!("tanada-restart-{of_daemon:08x}-{volume}"));
        let memory = Mapping::open(&path, RESTART_LOG)?;
        Ok(RestartFile {
            place: RestartPlace {
                memory: Rc::new(memory),
                boot: boot()?,
            },
            path,
        })
    }

    /// Removes it: the volume was closed cleanly.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

/// The kernel's name for this boot.
fn boot() -> anyhow::Result<u128> {
    let text = fs::read_to_string(BOOT).with_context(|| format!("cannot read {BOOT}"))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let boot = u128::from_str_radix(&digits, 16).ok();
    boot.filter(|_| digits.len() == 32)
        .with_context(|| format!("{BOOT} has no identity: {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_volume_of_each_daemon_has_its_own_file_until_it_is_removed() {
        let [one, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let first = RestartFile::open(one.path(), "vol0").unwrap();
        first.place.memory.write(0, b"left");
        assert!(
            RestartFile::open(one.path(), "vol0").is_err(),
            "it is in use"
        );
        let beside = RestartFile::open(other.path(), "vol0").unwrap();
        assert_eq!(first.place.boot, beside.place.boot);
        let path = first.path.clone();
        drop(first);
        let next = RestartFile::open(one.path(), "vol0").unwrap();
        let mut found = [0; 4];
        next.place.memory.read(0, &mut found);
        assert_eq!(&found, b"left");
        next.remove().unwrap();
        beside.remove().unwrap();
        assert!(!path.exists());
    }
}
