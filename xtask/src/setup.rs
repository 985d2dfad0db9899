//! What do the tests and benchmarks need from this machine, and is it here?
//!
//! ```text
//! each tool is run -> all answer: done
//!                  -> apt-get and root: install, run again
//!                  -> else: say what to install
//! ```
//!
//! Always true: a machine that has everything is not touched and waits for nothing but the tools'
//! own answers.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::shell::{answer, cargo, run};

/// A program of the machine and how it is had.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// What wants it.
    pub wanted_for: &'static str,
    /// Commands that must succeed, one of them: program and arguments.
    probes: &'static [&'static [&'static str]],
    /// The package in Debian, Ubuntu and their like.
    debian: &'static str,
    /// In Fedora, RHEL and their like.
    fedora: &'static str,
    /// In openSUSE.
    suse: &'static str,
    /// In Arch Linux.
    arch: &'static str,
}

/// Everything the tests and benchmarks run.
pub const TOOLS: [Tool; 15] = [
    Tool {
        name: "nbdinfo",
        wanted_for: "tests",
        probes: &[&["nbdinfo", "--version"]],
        debian: "libnbd-bin",
        fedora: "libnbd",
        suse: "libnbd",
        arch: "libnbd",
    },
    Tool {
        name: "nbdcopy",
        wanted_for: "tests",
        probes: &[&["nbdcopy", "--version"]],
        debian: "libnbd-bin",
        fedora: "libnbd",
        suse: "libnbd",
        arch: "libnbd",
    },
    Tool {
        name: "nbdsh",
        wanted_for: "tests",
        // The wrapper takes the first python3 of PATH, which may be one without the module.
        probes: &[
            &["nbdsh", "-c", "pass"],
            &["/usr/bin/python3", "-m", "nbd", "-c", "pass"],
        ],
        debian: "python3-libnbd",
        fedora: "python3-libnbd",
        suse: "python3-libnbd",
        arch: "libnbd",
    },
    Tool {
        name: "qemu-img",
        wanted_for: "tests",
        probes: &[&["qemu-img", "--version"]],
        debian: "qemu-utils",
        fedora: "qemu-img",
        suse: "qemu-tools",
        arch: "qemu-img",
    },
    Tool {
        name: "qemu-io",
        wanted_for: "tests",
        probes: &[&["qemu-io", "--version"]],
        debian: "qemu-utils",
        fedora: "qemu-img",
        suse: "qemu-tools",
        arch: "qemu-img",
    },
    Tool {
        name: "fio with its nbd engine",
        wanted_for: "tests",
        probes: &[&["fio", "--enghelp=nbd,uri"]],
        debian: "fio",
        fedora: "fio fio-engine-nbd",
        suse: "fio",
        arch: "fio",
    },
    Tool {
        name: "chromium",
        wanted_for: "tests",
        probes: &[
            &["chromium", "--version"],
            &["chromium-browser", "--version"],
            &["google-chrome", "--version"],
        ],
        debian: "chromium",
        fedora: "chromium",
        suse: "chromium",
        arch: "chromium",
    },
    Tool {
        name: "blkparse",
        wanted_for: "tests",
        probes: &[&["blkparse", "-V"]],
        debian: "blktrace",
        fedora: "blktrace",
        suse: "blktrace",
        arch: "blktrace",
    },
    Tool {
        name: "etcd",
        wanted_for: "tests",
        probes: &[&["etcd", "--version"]],
        debian: "etcd-server",
        fedora: "etcd",
        suse: "etcd",
        arch: "etcd",
    },
    Tool {
        name: "nbdfuse",
        wanted_for: "tests",
        probes: &[&["nbdfuse", "--version"]],
        debian: "libnbd-bin",
        fedora: "nbdfuse",
        suse: "libnbd",
        arch: "libnbd",
    },
    Tool {
        name: "losetup",
        wanted_for: "tests",
        probes: &[
            &["losetup", "--version"],
            &["/usr/sbin/losetup", "--version"],
        ],
        debian: "mount",
        fedora: "util-linux",
        suse: "util-linux-systemd",
        arch: "util-linux",
    },
    Tool {
        name: "mkfs.ext4",
        wanted_for: "tests",
        probes: &[&["mkfs.ext4", "-V"], &["/usr/sbin/mkfs.ext4", "-V"]],
        debian: "e2fsprogs",
        fedora: "e2fsprogs",
        suse: "e2fsprogs",
        arch: "e2fsprogs",
    },
    Tool {
        name: "mariadbd",
        wanted_for: "tests",
        probes: &[
            &["mariadbd", "--version"],
            &["/usr/sbin/mariadbd", "--version"],
            &["/usr/libexec/mariadbd", "--version"],
        ],
        debian: "mariadb-server-core",
        fedora: "mariadb-server",
        suse: "mariadb",
        arch: "mariadb",
    },
    Tool {
        name: "nbdkit with its file and memory plugins",
        wanted_for: "bench nbd",
        probes: &[&["nbdkit", "--dump-plugin", "memory"]],
        debian: "nbdkit",
        fedora: "nbdkit",
        suse: "nbdkit",
        arch: "nbdkit",
    },
    Tool {
        name: "qemu-storage-daemon",
        wanted_for: "bench nbd",
        probes: &[&["qemu-storage-daemon", "--version"]],
        debian: "qemu-system-common",
        fedora: "qemu-img",
        suse: "qemu-tools",
        arch: "qemu-base",
    },
];

impl Tool {
    fn works(&self) -> bool {
        self.probes
            .iter()
            .any(|probe| answer(probe[0], &probe[1..]).is_some())
    }
}

/// Parts of the Rust toolchain that `cargo xtask check` runs.
const COMPONENTS: [(&str, &str); 2] = [("rustfmt", "fmt"), ("clippy", "clippy")];

/// Says what is here and what is not; changes nothing.
///
/// # Errors
/// If something is missing.
pub fn report() -> Result<()> {
    let missing = missing()?;
    for tool in &TOOLS {
        let here = !missing.iter().any(|lacking| lacking.name == tool.name);
        let state = if here { "here" } else { "MISSING" };
        println!("{state:<8} {} (for {})", tool.name, tool.wanted_for);
    }
    for (component, _) in COMPONENTS {
        println!("here     {component}");
    }
    let deny = if has_deny() {
        "here     cargo-deny (optional)"
    } else {
        "absent   cargo-deny (optional, for `cargo xtask check`): cargo install --locked cargo-deny"
    };
    println!("{deny}");
    if !missing.is_empty() {
        bail!("{}", how_to_get(&missing));
    }
    Ok(())
}

/// Installs what is missing where it can; answers what is missing still.
///
/// # Errors
/// If the Rust toolchain lacks a part and cannot get it.
pub fn install() -> Result<Vec<&'static Tool>> {
    let wanted = missing()?;
    if wanted.is_empty() {
        return Ok(wanted);
    }
    if !(rustix::process::geteuid().is_root() && answer("apt-get", &["--version"]).is_some()) {
        eprintln!("{}", how_to_get(&wanted));
        return Ok(wanted);
    }
    let packages = packages(&wanted, |tool| tool.debian);
    eprintln!("setup: apt-get install {}", packages.join(" "));
    let apt = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .args(args)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            // Our own output is for results.
            .stdout(Stdio::from(std::io::stderr()));
        run(&mut command)
    };
    let mut install = vec!["install", "-y", "-q", "--no-install-recommends"];
    install.extend(&packages);
    if apt(&install).is_err() {
        // The lists may be old or absent, as in a fresh container.
        let refreshed = apt(&["update", "-q"]).and_then(|()| apt(&install));
        if let Err(error) = refreshed {
            eprintln!("setup: {error:#}");
        }
    }
    let left = missing()?;
    if !left.is_empty() {
        eprintln!("{}", how_to_get(&left));
    }
    Ok(left)
}

/// The tools that do not answer. Sees to rustfmt and clippy on the way.
///
/// # Errors
/// If rustfmt or clippy is missing and rustup cannot add it.
pub fn missing() -> Result<Vec<&'static Tool>> {
    for (component, command) in COMPONENTS {
        let here = cargo()
            .args([command, "--version"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if !here {
            run(Command::new("rustup").args(["component", "add", component]))?;
        }
    }
    // Each tool takes a moment to start: ask all at once.
    let working = std::thread::scope(|scope| {
        let asked = TOOLS.each_ref().map(|tool| scope.spawn(|| tool.works()));
        asked.map(|answer| answer.join().unwrap_or(false))
    });
    Ok(TOOLS
        .iter()
        .zip(working)
        .filter(|(_, works)| !works)
        .map(|(tool, _)| tool)
        .collect())
}

/// Can `cargo deny` be run?
#[must_use]
pub fn has_deny() -> bool {
    answer("cargo-deny", &["--version"]).is_some()
}

fn packages(tools: &[&'static Tool], of: impl Fn(&Tool) -> &'static str) -> Vec<&'static str> {
    let mut names: Vec<&str> = tools
        .iter()
        .flat_map(|tool| of(tool).split_whitespace())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// What to type to get these, on this distribution first.
fn how_to_get(tools: &[&'static Tool]) -> String {
    let names: Vec<&str> = tools.iter().map(|tool| tool.name).collect();
    let ways: [(&str, String); 4] = [
        (
            "debian ubuntu",
            format!(
                "apt-get install {}",
                packages(tools, |t| t.debian).join(" ")
            ),
        ),
        (
            "fedora rhel centos",
            format!("dnf install {}", packages(tools, |t| t.fedora).join(" ")),
        ),
        (
            "suse opensuse",
            format!("zypper install {}", packages(tools, |t| t.suse).join(" ")),
        ),
        (
            "arch",
            format!("pacman -S {}", packages(tools, |t| t.arch).join(" ")),
        ),
    ];
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let ids: Vec<&str> = release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or(line.strip_prefix("ID_LIKE=")))
        .flat_map(|value| value.trim_matches('"').split_whitespace())
        .collect();
    let ours = ways.iter().find(|(distributions, _)| {
        distributions
            .split_whitespace()
            .any(|name| ids.iter().any(|id| id.starts_with(name)))
    });
    match ours {
        Some((_, command)) => format!("missing: {}; as root: {command}", names.join(", ")),
        None => {
            let all: Vec<String> = ways
                .iter()
                .map(|(distributions, command)| format!("  {distributions}: {command}"))
                .collect();
            format!(
                "missing: {}; as root one of\n{}",
                names.join(", "),
                all.join("\n")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_command_that_brings_it() {
        let text = how_to_get(&[&TOOLS[0], &TOOLS[1], &TOOLS[5]]);
        assert!(text.starts_with("missing: nbdinfo, nbdcopy, fio with its nbd engine; as root"));
        assert!(text.contains("libnbd"), "{text}");
        assert_eq!(
            packages(&[&TOOLS[0], &TOOLS[1]], |t| t.debian),
            ["libnbd-bin"]
        );
    }

    #[test]
    fn a_tool_that_is_not_there_does_not_work() {
        let absent = Tool {
            probes: &[&["tanada-no-such-program", "--version"]],
            ..TOOLS[0]
        };
        assert!(!absent.works());
    }
}
