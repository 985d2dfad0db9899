//! Which level was the cluster at that this data directory's node takes part in?
//!
//! ```text
//! level in force, as the meta store says it -> DATA_DIR/level, a decimal number -> an older program refuses to start
//!                                                                              \-> the package refuses to be put back (prerm)
//! ```
//!
//! The meta store says the same; the file says it without one, and before anything is opened.
//!
//! Always true: the number only rises.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context;
use report::terminal::Usage;
use vdisk::cluster::level::{Level, LevelRange};

use super::whole_file;

fn read(path: &Path) -> io::Result<Option<Level>> {
    match fs::read_to_string(path) {
        Ok(text) => {
            let number = text.trim().parse::<u32>();
            let number = number.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
            number.map(|it| Some(Level(it)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Refuses the file of a data directory whose cluster is at a higher level than this program can do.
///
/// # Errors
/// [`Usage`] if it is; else that the file cannot be read.
pub fn check(path: &Path) -> anyhow::Result<()> {
    check_range(path, LevelRange::of_program())
}

fn check_range(path: &Path, range: LevelRange) -> anyhow::Result<()> {
    let found = read(path).with_context(|| format!("cannot read the level in {}", path.display()));
    match found? {
        Some(level) if level > range.max() => Err(Usage(format!(
            "{} says that the cluster of this node is at {level}, and this program can do {range}; install a version that can do \
             {level}, or, if this node is in another cluster now, remove that file",
            path.display()
        ))
        .into()),
        _ => Ok(()),
    }
}

/// Notes the level in force, durably.
///
/// # Errors
/// That of the file.
pub fn note(path: &Path, level: Level) -> io::Result<()> {
    match read(path) {
        Ok(Some(known)) if known >= level => Ok(()),
        _ => whole_file::replace(path, format!("{}\n", level.0).as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_cannot_do_the_level_of_its_data_directory_refuses_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let (first, both) = (Level(1), LevelRange::of_program());
        let old = LevelRange::new(first, first).expect("a range");
        let path = dir.path().join("level");
        assert!(check_range(&path, old).is_ok());
        note(&path, Level(1)).expect("written");
        assert!(check_range(&path, old).is_ok());
        note(&path, Level(2)).expect("written");
        // It does not fall.
        note(&path, Level(1)).expect("left as it is");
        assert_eq!(fs::read_to_string(&path).expect("a file"), "2\n");
        assert!(check_range(&path, both).is_ok());
        let refused = check_range(&path, old).expect_err("it is too old");
        assert!(refused.is::<Usage>());
        let text = refused.to_string();
        assert!(
            text.contains("is at level 2, and this program can do level 1 alone"),
            "{text}"
        );
        fs::write(&path, "nonsense").expect("written");
        assert!(check_range(&path, both).is_err());
        note(&path, Level(2)).expect("written anew");
        assert!(check_range(&path, both).is_ok());
    }
}
