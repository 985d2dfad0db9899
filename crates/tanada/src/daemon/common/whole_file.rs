//! A small file that is replaced as a whole: after a crash it is the old one or the new one.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// Replaces the file at `path`, durably.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    let mut file = File::create(beside)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(beside, path)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
}
