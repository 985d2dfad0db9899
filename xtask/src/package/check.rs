//! Is the packaging as it should be?
//!
//! ```text
//! sources: scripts (sh -n, shellcheck), formats, units (systemd-analyze verify, security)   made: lintian, size
//! ```
//!
//! A tool that is not installed is named, and what it would check is skipped; `lintian` and `systemd-analyze` are needed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::{check_size, files, formats, made};
use crate::shell::{answer, run};
use crate::tidy::tree::project_root;

/// Scripts of the package, and those that try it, with the shell that runs each.
const SCRIPTS: [(&str, &str); 10] = [
    ("debian/preinst", "sh"),
    ("debian/postinst", "sh"),
    ("debian/prerm", "sh"),
    ("debian/postrm", "sh"),
    ("test-package", "bash"),
    ("test-service", "bash"),
    ("test-alerts", "bash"),
    ("test-scrape", "bash"),
    ("test-rolling", "bash"),
    ("test-cut", "bash"),
];
/// How exposed the service may be at most, in tenths (`systemd-analyze security`).
const EXPOSURE_MAX: &str = "20";

/// Checks the sources and the package that was made. `is_whole`: it is of programs as they are shipped.
///
/// # Errors
/// At the first thing that is wrong.
pub fn check(is_whole: bool) -> Result<()> {
    sources()?;
    let made = made()?;
    run(Command::new("lintian")
        .args(["--fail-on", "error,warning", "--allow-root"])
        .arg(&made))
    .context("the package has faults, or lintian is not installed (apt-get install lintian)")?;
    check_pages(&made)?;
    if is_whole {
        check_size(&made)?;
    }
    println!("package: {} is good", made.display());
    Ok(())
}

/// Checks what packages are made from.
///
/// # Errors
/// At the first thing that is wrong.
pub fn sources() -> Result<()> {
    let packaging = project_root().join("packaging");
    for (name, shell) in SCRIPTS {
        check_script(&packaging.join(name), shell)?;
    }
    let mistakes = formats::mistakes(&project_root());
    ensure!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    check_changelog(&packaging)?;
    check_units(&packaging.join("systemd"))
}

fn check_script(path: &Path, shell: &str) -> Result<()> {
    run(Command::new(shell).arg("-n").arg(path))?;
    if answer("shellcheck", &["--version"]).is_some() {
        run(Command::new("shellcheck").args(["-S", "warning"]).arg(path))?;
    }
    Ok(())
}

/// The first entry is of this version.
fn check_changelog(packaging: &Path) -> Result<()> {
    let path = packaging.join("debian/changelog");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let wanted = format!("tanada ({}-1) ", env!("CARGO_PKG_VERSION"));
    ensure!(
        text.starts_with(&wanted),
        "{} begins with another version than \"{wanted}\"",
        path.display()
    );
    Ok(())
}

/// The units are understood whole, and the service's sandbox is tight.
fn check_units(folder: &Path) -> Result<()> {
    let there = tempfile::tempdir().context("cannot make a folder")?;
    let mut units = Vec::new();
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let path = entry?.path();
        let is_unit = path
            .extension()
            .is_some_and(|it| it == "service" || it == "socket");
        if !is_unit {
            continue;
        }
        // The program need not be installed on this machine.
        let text = fs::read_to_string(&path)?.replace("/usr/bin/tanada", "/bin/true");
        let copy = there
            .path()
            .join(path.file_name().context("a unit has a name")?);
        fs::write(&copy, text)?;
        units.push(copy);
    }
    units.sort();
    let out = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .args(&units)
        .output()
        .context("cannot start systemd-analyze")?;
    let said = String::from_utf8_lossy(&out.stderr);
    if !out.status.success() || !said.trim().is_empty() {
        bail!("systemd-analyze verify: {}", said.trim());
    }
    run(Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager"])
        .arg(format!("--threshold={EXPOSURE_MAX}"))
        .arg(folder.join("tanada.service"))
        .stdout(std::process::Stdio::null()))
    .context("the service is more exposed than it may be")
}

/// Every page of man is understood.
fn check_pages(package: &Path) -> Result<()> {
    if answer("mandoc", &["-Tascii", "/dev/null"]).is_none() {
        eprintln!(
            "package: pages of man: skipped, mandoc is not installed (apt-get install mandoc)"
        );
        return Ok(());
    }
    let there = tempfile::tempdir().context("cannot make a folder")?;
    run(Command::new("dpkg-deb")
        .arg("--extract")
        .arg(package)
        .arg(there.path()))?;
    for section in files(&there.path().join("usr/share/man"))? {
        run(Command::new("gzip")
            .arg("--decompress")
            .args(files(&section)?))?;
        run(Command::new("mandoc")
            .args(["-Tlint", "-Wwarning"])
            .args(files(&section)?))
        .context("a page of man has faults")?;
    }
    Ok(())
}
