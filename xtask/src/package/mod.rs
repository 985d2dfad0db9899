//! `cargo xtask package`: a Debian package of the two programs, and one of their debug symbols.
//!
//! ```text
//! cargo build, profile `dist` -> what goes in beside the programs -> cargo-deb, packed anew -> target/debian/*.deb -> check
//! ```
//!
//! Cargo keeps the name `package` for itself, so the profile with LTO and line tables is called `dist`.
//!
//! Always true:
//! 1. cargo-deb is of one version, in `target/tools`: what is installed elsewhere is not used.
//! 2. What is packaged was built in the same run, but for `--from`.

mod beside;
mod check;
mod formats;
mod libraries;
mod page;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::shell::{answer, cargo, run};
use crate::tidy::tree::project_root;

pub use check::{check, sources};

/// The version of cargo-deb that packages are made with.
const CARGO_DEB: &str = "3.8.0";
/// What a package may hold at most, in bytes.
const SIZE_MAX: u64 = 15_000_000;
/// The profile, and its folder.
const PROFILE: &str = "dist";

/// Builds both packages and checks them. `from`: of the programs in this folder, such as `target/debug`, to try the
/// packaging itself.
///
/// # Errors
/// If something cannot be built, is not as it should be, or is too large.
pub fn package(from: Option<&Path>) -> Result<()> {
    let tool = tool()?;
    let target = match from {
        None => build()?,
        Some(folder) => copied(folder)?,
    };
    let built = target.join(PROFILE);
    beside::make(&built.join("package/usr"), &built.join("tanada"))?;
    let made = project_root().join("target/debian");
    let _ = fs::remove_dir_all(&made);
    // A try is packed quickly.
    let speed = from.map(|_| "--fast");
    run(Command::new(&tool)
        .current_dir(project_root())
        .env("CARGO_TARGET_DIR", &target)
        .args(["--package", "tanada", "--profile", PROFILE])
        .args(["--no-build", "--dbgsym", "--locked"])
        .args(speed)
        .arg("--output")
        .arg(&made))?;
    rename_symbols(&made)?;
    if from.is_none() {
        pack_tightly(&self::made()?)?;
    }
    check(from.is_none())
}

/// Packs a package anew, a tenth smaller: cargo-deb has no setting for that.
fn pack_tightly(package: &Path) -> Result<()> {
    let there = tempfile::tempdir().context("cannot make a folder")?;
    let tree = there.path().join("tree");
    run(Command::new("dpkg-deb")
        .arg("--raw-extract")
        .arg(package)
        .arg(&tree))?;
    run(Command::new("dpkg-deb")
        .args(["--root-owner-group", "-Zxz", "-z9", "-Sextreme", "--build"])
        .arg(&tree)
        .arg(package))
}

/// cargo-deb, installed if it is missing.
fn tool() -> Result<PathBuf> {
    let root = project_root().join("target/tools");
    let program = root.join("bin/cargo-deb");
    let version = answer(&program.to_string_lossy(), &["--version"]);
    if version.is_some_and(|said| said.trim().ends_with(CARGO_DEB)) {
        return Ok(program);
    }
    eprintln!("package: installing cargo-deb {CARGO_DEB} in target/tools");
    run(cargo()
        .args(["install", "cargo-deb", "--locked", "--force", "--version"])
        .args([CARGO_DEB, "--root"])
        .arg(&root))?;
    Ok(program)
}

/// Builds both programs; cargo's target folder.
fn build() -> Result<PathBuf> {
    run(cargo()
        .args(["build", "--locked", "--profile", PROFILE])
        .args(["-p", "tanada", "-p", "lab"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    Ok(target.unwrap_or_else(|| project_root().join("target")))
}

/// A target folder with the programs of another build.
fn copied(folder: &Path) -> Result<PathBuf> {
    let target = project_root().join("target/packaging");
    let to = target.join(PROFILE);
    fs::create_dir_all(&to).with_context(|| format!("cannot make {}", to.display()))?;
    for name in ["tanada", "tanada-lab"] {
        let program = folder.join(name);
        fs::copy(&program, to.join(name))
            .with_context(|| format!("cannot copy {}", program.display()))?;
    }
    Ok(target)
}

/// Debian's name of packages is `.deb`; `.ddeb` is Ubuntu's of symbols.
fn rename_symbols(folder: &Path) -> Result<()> {
    for path in files(folder)? {
        if path.extension().is_some_and(|it| it == "ddeb") {
            fs::rename(&path, path.with_extension("deb"))
                .with_context(|| format!("cannot rename {}", path.display()))?;
        }
    }
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| {
        format!(
            "cannot read {}; run `cargo xtask package`",
            folder.display()
        )
    })?;
    let paths: Result<Vec<PathBuf>, _> = entries.map(|it| it.map(|it| it.path())).collect();
    let mut paths = paths.with_context(|| format!("cannot read {}", folder.display()))?;
    paths.sort();
    Ok(paths)
}

/// The package that was made, not that of its symbols.
fn made() -> Result<PathBuf> {
    let folder = project_root().join("target/debian");
    let all = files(&folder)?;
    let name = |path: &Path| {
        path.file_name()
            .is_some_and(|it| it.to_string_lossy().starts_with("tanada_"))
    };
    match all.iter().find(|path| name(path)) {
        Some(path) => Ok(path.clone()),
        None => bail!(
            "there is no package in {}; run `cargo xtask package`",
            folder.display()
        ),
    }
}

/// Refuses a package that is too large.
fn check_size(path: &Path) -> Result<()> {
    let bytes = fs::metadata(path)?.len();
    let mb = |bytes: u64| bytes as f64 / 1e6;
    println!("package: {}: {:.1} MB", path.display(), mb(bytes));
    ensure!(
        bytes <= SIZE_MAX,
        "{} has {:.1} MB, more than {:.0}",
        path.display(),
        mb(bytes),
        mb(SIZE_MAX)
    );
    Ok(())
}
