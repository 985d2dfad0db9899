//! Keys in files: made at the first start, readable by their owner alone.
//!
//! ```text
//! DIR/NAME.signing   signs capabilities      DIR/NAME.node   lets other nodes in
//! ```
//!
//! A key is 32 bytes, written as 64 hexadecimal digits and a line end.
//!
//! Always true:
//! 1. A key file is whole or not there; it is never readable by others, not even for a moment.
//! 2. A file others can read, or that belongs to another user, is refused, not used. That holds for every file with a
//!    secret: keys of TLS and passwords too.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};

/// 32 secret bytes.
pub type Key = [u8; 32];

/// A new key.
pub fn fresh() -> anyhow::Result<Key> {
    let mut key = [0; 32];
    getrandom::fill(&mut key)
        .map_err(|error| anyhow!("the system gives no randomness: {error}"))?;
    Ok(key)
}

/// The key in `path`, which is made if it is missing.
///
/// # Errors
/// The file cannot be read or made, is no key, or others can read it.
pub fn read_or_make(path: &Path) -> anyhow::Result<Key> {
    match read(path) {
        Err(error) if is_missing(&error) => {
            let key = fresh()?;
            match write(path, &key, false) {
                // Another process was quicker.
                Err(error) if is_there(&error) => read(path),
                done => done.map(|()| key),
            }
        }
        done => done,
    }
}

/// The key in `path`.
///
/// # Errors
/// The file cannot be read, is no key, belongs to another user, or others can read it.
pub fn read(path: &Path) -> anyhow::Result<Key> {
    let text = read_private(path, "the key")?;
    let text = std::str::from_utf8(&text).unwrap_or_default();
    from_hex(text.trim_end()).ok_or_else(|| {
        anyhow!(
            "{} holds no key: 64 hexadecimal digits are one",
            path.display()
        )
    })
}

/// The contents of a file that keeps a secret, called `what`.
///
/// # Errors
/// It cannot be read, belongs to another user than this one or root, or others can read it.
pub fn read_private(path: &Path, what: &str) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    let said = || format!("cannot read {what} {shown}");
    // Looked at through the open file, so that what is checked is what is read.
    let opened = fs::File::open(path);
    let denied = opened
        .as_ref()
        .is_err_and(|it| it.kind() == io::ErrorKind::PermissionDenied);
    let mut file = opened.with_context(|| match path.parent().filter(|_| denied) {
        Some(folder) => format!(
            "{}; another user made it, perhaps a daemon that root began: give all of {} to this user (`chown -R`)",
            said(),
            folder.display()
        ),
        None => said(),
    })?;
    let meta = file.metadata().with_context(said)?;
    let me = rustix::process::geteuid().as_raw();
    if !is_ours(meta.uid(), me) {
        return Err(anyhow!(
            "{what} {shown} belongs to user {}, who can change it, and this runs as user {me}; make it your own with \
             `chown {me} {shown}`",
            meta.uid(),
        ));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(anyhow!(
            "{what} {shown} can be read by others (mode {:04o}); make it yours alone with \
             `chmod 600 {shown}`, and if anybody else may have seen it, take a new one",
            meta.mode() & 0o7777,
        ));
    }
    let mut contents = Vec::new();
    file.read_to_end(&mut contents).with_context(said)?;
    Ok(contents)
}

/// May a secret of this owner be used by `me`?
fn is_ours(owner: u32, me: u32) -> bool {
    owner == me || owner == 0
}

/// Puts a key into `path`, whole; with `replace`, instead of what is there.
///
/// # Errors
/// The system's; that of a file that exists, without `replace`.
pub fn write(path: &Path, key: &Key, replace: bool) -> anyhow::Result<()> {
    write_private(path, format!("{}\n", to_hex(key)).as_bytes(), replace)
}

/// Puts a file that its owner alone can read into `path`, whole; with `replace`, instead of what is there.
///
/// # Errors
/// As for [`write()`].
pub fn write_private(path: &Path, contents: &[u8], replace: bool) -> anyhow::Result<()> {
    let said = || format!("cannot write {}", path.display());
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    if let Some(dir) = dir
        && !dir.exists()
    {
        fs::create_dir_all(dir).with_context(said)?;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).with_context(said)?;
    }
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}.new", std::process::id()));
    let part = PathBuf::from(part);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&part)
        .and_then(|mut file| {
            file.write_all(contents)?;
            file.sync_all()
        })
        .and_then(|()| match replace {
            true => fs::rename(&part, path),
            // Unlike a rename, a link does not replace.
            false => fs::hard_link(&part, path),
        })
        .and_then(|()| fs::File::open(dir.unwrap_or(Path::new(".")))?.sync_all());
    // Renamed already, or never made.
    let _ = fs::remove_file(&part);
    written.with_context(said)
}

fn kind(error: &anyhow::Error) -> Option<io::ErrorKind> {
    Some(error.downcast_ref::<io::Error>()?.kind())
}

fn is_missing(error: &anyhow::Error) -> bool {
    kind(error) == Some(io::ErrorKind::NotFound)
}

fn is_there(error: &anyhow::Error) -> bool {
    kind(error) == Some(io::ErrorKind::AlreadyExists)
}

/// A key as it is written.
pub fn to_hex(key: &Key) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Key> {
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut key = [0; 32];
    for (byte, pair) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys").join("s0.node");
        let key = read_or_make(&path).unwrap();
        assert_eq!(read_or_make(&path).unwrap(), key);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let keys = path.parent().unwrap();
        assert_eq!(fs::metadata(keys).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(keys).unwrap().count(), 1, "nothing else stays");

        let other = fresh().unwrap();
        assert!(is_there(&write(&path, &other, false).unwrap_err()));
        write(&path, &other, true).unwrap();
        assert_eq!(read(&path).unwrap(), other);
        assert_ne!(other, key);
    }

    #[test]
    fn a_key_others_can_read_is_refused_and_so_is_what_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        write(&path, &[7; 32], false).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = read(&path).unwrap_err().to_string();
        assert!(refused.contains("mode 0640"), "{refused}");
        assert!(refused.contains("chmod 600"), "{refused}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(is_ours(1000, 1000) && is_ours(0, 1000));
        assert!(!is_ours(1001, 1000) && !is_ours(1000, 0));
        for odd in ["", "07", &"g".repeat(64), &"0".repeat(65)] {
            fs::write(&path, odd).unwrap();
            let refused = read(&path).unwrap_err().to_string();
            assert!(refused.contains("64 hexadecimal digits"), "{refused}");
        }
    }
}
