//! The list of caches that were given up, kept in a file of the data directory.
//!
//! When a fast device fails with nothing dirty on it, its volume goes on without it. The device's own label
//! can then not be written any more, so that its contents must never count again is written here. One
//! line per cache, its identity in hexadecimal, in `DATA_DIR/abandoned`.
//!
//! Always true:
//! 1. An entry is durable before the volume goes on.
//! 2. Entries are only ever added.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};

/// The list, by its place.
#[derive(Debug, Clone)]
pub struct Registry(PathBuf);

impl Registry {
    pub fn in_dir(data_dir: &Path) -> Registry {
        Registry(data_dir.join("abandoned"))
    }

    /// The folder it lies in.
    pub fn data_dir(&self) -> &Path {
        self.0.parent().unwrap_or(Path::new(""))
    }

    /// Every cache given up so far.
    pub fn read(&self) -> anyhow::Result<Vec<u128>> {
        let shown = self.0.display();
        let text = match fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {shown}"));
            }
        };
        let mut identities = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let identity = u128::from_str_radix(line, 16).map_err(|_| {
                anyhow!(
                    "line {} of {shown} is damaged: '{line}' is not an identity of 32 hexadecimal \
                     digits; correct or remove it",
                    index + 1
                )
            })?;
            identities.push(identity);
        }
        Ok(identities)
    }

    /// Adds a cache, durably.
    pub fn add(&self, identity: u128) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.0)?;
        // The leading line end keeps a line torn by a crash apart from this one.
        writeln!(file, "\n{identity:032x}")?;
        file.sync_all()?;
        match self.0.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => File::open(dir)?.sync_all(),
            _ => File::open(".")?.sync_all(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::in_dir(dir.path());
        assert_eq!(registry.read().unwrap(), []);
        registry.add(7).unwrap();
        registry.add(u128::MAX).unwrap();
        assert_eq!(registry.read().unwrap(), [7, u128::MAX]);
    }

    #[test]
    fn a_damaged_list_is_refused_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("abandoned"), "7\nseven\n").unwrap();
        let refusal = Registry::in_dir(dir.path()).read().unwrap_err().to_string();
        assert!(refusal.contains("line 2"), "{refusal}");
    }
}
