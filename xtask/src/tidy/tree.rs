//! Which files belong to the project?
//!
//! Git knows: what it tracks, and what is new and not ignored. In a plain directory (an unpacked
//! archive, a test's fixture) every file counts but build products and hidden directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// The project's files, read-only.
#[derive(Debug, Clone)]
pub struct Tree {
    /// Where the workspace's `Cargo.toml` lies.
    pub root: PathBuf,
    /// Every file, relative to `root`, with `/` between parts, sorted.
    pub files: Vec<String>,
}

impl Tree {
    /// The workspace this program was built from.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn of_project() -> Result<Tree> {
        Tree::at(&project_root())
    }

    /// The tree below `root`.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn at(root: &Path) -> Result<Tree> {
        let mut files = if root.join(".git").exists() {
            listed_by_git(root)?
        } else {
            let mut found = Vec::new();
            walk(root, "", &mut found)?;
            found
        };
        files.retain(|file| root.join(file).is_file());
        files.sort();
        files.dedup();
        Ok(Tree {
            root: root.to_owned(),
            files,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The text of a file; `None` if it is not UTF-8.
    #[must_use]
    pub fn text(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.root.join(file)).ok()
    }

    /// Is this a file or a directory of the project?
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        let inside = format!("{path}/");
        path.is_empty()
            || self
                .files
                .iter()
                .any(|file| file == path || file.starts_with(&inside))
    }

    /// The files whose name ends in `.ext`.
    pub fn with_extension(&self, ext: &str) -> impl Iterator<Item = &str> {
        let end = format!(".{ext}");
        self.files
            .iter()
            .filter(move |file| file.ends_with(&end))
            .map(String::as_str)
    }
}

/// The workspace's directory.
#[must_use]
pub fn project_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask/ lies in the workspace")
        .to_owned()
}

fn listed_by_git(root: &Path) -> Result<Vec<String>> {
    let out = Command::new("git")
        .arg("-C")
        .arg(root)
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .output()
        .context("cannot run git to list the project's files")?;
    anyhow::ensure!(
        out.status.success(),
        "git could not list the files of {}: {}",
        root.display(),
        String::from_utf8_lossy(&out.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&out.stdout)
        .split('\0')
        .filter(|file| !file.is_empty())
        .map(str::to_owned)
        .collect())
}

fn walk(root: &Path, inside: &str, found: &mut Vec<String>) -> Result<()> {
    let dir = root.join(inside);
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if inside.is_empty() {
            name.clone()
        } else {
            format!("{inside}/{name}")
        };
        if entry.file_type()?.is_dir() {
            // CI's and cargo's settings are the project's; other hidden directories are tools'.
            let hidden = name.starts_with('.') && name != ".ci" && name != ".cargo";
            if name != "target" && !hidden {
                walk(root, &path, found)?;
            }
        } else {
            found.push(path);
        }
    }
    Ok(())
}
