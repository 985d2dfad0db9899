//! Where a hybrid's restart log lies: a file on a file system in memory, which outlives the daemon and not the boot.
//!
//! `FOLDER/XXXXXXXX-NAME`: eight digits of the data directory, the volume's name. The folder is root's
//! `/run/tanada-restart`, where no other user can be beforehand; one in `/dev/shm` for others, and where `/run` is on a disk. The file is made when the
//! volume is opened and removed when it is closed cleanly; what a killed daemon left, the next one finds.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Context;
use base::Nanos;
use base::crc::crc32c;
use device::{Device, Meter};
use env::Mapping;
use hybrid::{RESTART_LOG, RestartPlace};
use report::terminal::said;

/// No service manager empties it when a service ends, as it does with the service's own folder in `/run`.
const OF_ROOT: &str = "/run/tanada-restart";
/// Where in the file the data directory's path is, ended by a zero: in the part of the first page that the log leaves free.
const OWNER: usize = 1024;
const OWNER_LEN: usize = 3072;
/// How long a daemon that was killed may take to be gone.
const BUSY: Nanos = Nanos::secs(5);
const EVERY: Nanos = Nanos::millis(50);
/// `statfs` type of a tmpfs.
const TMPFS: i64 = 0x0102_1994;
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The memory of one hybrid's restart log.
#[derive(Debug, Clone)]
pub struct RestartFile {
    pub place: RestartPlace,
    path: PathBuf,
}

impl RestartFile {
    /// The memory of a hybrid's restart log, where both devices keep what a killed daemon wrote.
    pub async fn of_volume(
        data_dir: &Path,
        volume: &str,
        devices: [&Rc<Meter>; 2],
    ) -> Option<RestartFile> {
        if !devices.iter().all(|device| device.info().crash_keeping) {
            return None;
        }
        match RestartFile::open(data_dir, volume).await {
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
    async fn open(data_dir: &Path, volume: &str) -> anyhow::Result<RestartFile> {
        let data_dir = fs::canonicalize(data_dir).unwrap_or_else(|_| data_dir.to_owned());
        let of_daemon = crc32c(data_dir.as_os_str().as_encoded_bytes());
        let folder = folder()?;
        prune(&folder);
        let path = folder.join(format!("{of_daemon:08x}-{volume}"));
        let end = env::now() + BUSY;
        let memory = loop {
            match Mapping::open(&path, RESTART_LOG) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && env::now() < end => {}
                answer => break answer?,
            }
            env::sleep(EVERY).await;
        };
        let owner = owner_of(&data_dir);
        memory.write(OWNER, &owner);
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

/// A folder of this user's alone, on a file system in memory where there is one.
fn folder() -> io::Result<PathBuf> {
    let user = rustix::process::geteuid();
    let shared = PathBuf::from(format!("/dev/shm/tanada-restart-{}", user.as_raw()));
    if user.is_root() && rustix::fs::statfs("/run").is_ok_and(|run| run.f_type == TMPFS) {
        return own(PathBuf::from(OF_ROOT), user.as_raw());
    }
    own(shared, user.as_raw())
}

fn own(folder: PathBuf, user: u32) -> io::Result<PathBuf> {
    match fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        answer => answer?,
    }
    let status = fs::symlink_metadata(&folder)?;
    if !status.is_dir() || status.uid() != user || status.mode() & 0o077 != 0 {
        let why = format!("{} is not a folder of this user's alone", folder.display());
        return Err(io::Error::other(why));
    }
    Ok(folder)
}

/// The data directory as it stands in a file, so that the file can be told to be of none.
fn owner_of(data_dir: &Path) -> [u8; OWNER_LEN] {
    let mut owner = [0; OWNER_LEN];
    let path = data_dir.as_os_str().as_encoded_bytes();
    if path.len() < OWNER_LEN {
        owner[..path.len()].copy_from_slice(path);
    }
    owner
}

/// Removes the files of daemons whose data directory is gone; what cannot be read stays.
fn prune(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let mut head = [0; OWNER + OWNER_LEN];
        let read = fs::File::open(entry.path()).and_then(|mut file| file.read_exact(&mut head));
        let end = head[OWNER..].iter().position(|byte| *byte == 0);
        let owner = &head[OWNER..OWNER + end.unwrap_or(0)];
        let is_gone = !owner.is_empty() && !Path::new(OsStr::from_bytes(owner)).exists();
        if read.is_ok() && is_gone {
            // Another daemon may have been first.
            let _ = fs::remove_file(entry.path());
        }
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
        let runtime = env::Runtime::real(env::RealConfig::default()).unwrap();
        runtime.block_on(async {
            let [one, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
            let first = RestartFile::open(one.path(), "vol0").await.unwrap();
            first.place.memory.write(0, b"left");
            let beside = RestartFile::open(other.path(), "vol0").await.unwrap();
            assert_eq!(first.place.boot, beside.place.boot);
            let path = first.path.clone();
            // One that is about to go is waited for.
            env::spawn(async move {
                env::sleep(Nanos::millis(200)).await;
                drop(first);
            });
            let next = RestartFile::open(one.path(), "vol0").await.unwrap();
            let mut found = [0; 4];
            next.place.memory.read(0, &mut found);
            assert_eq!(&found, b"left");
            next.remove().unwrap();
            assert!(!path.exists());
            // What a daemon left whose directory is gone is removed by the next one that comes.
            let left = beside.path.clone();
            drop((beside, other));
            assert!(left.exists());
            RestartFile::open(one.path(), "vol0")
                .await
                .unwrap()
                .remove()
                .unwrap();
            assert!(!left.exists());
        });
    }
}
