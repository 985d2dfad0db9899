//! What do the tests and benchmarks need from this machine, and is it here?
//!
//! ```text
//! each tool is tried -> all work: done
//!                    -> apt-get and root: install, try again
//!                    -> else: say what to install, and what is here and fails
//! ```
//!
//! Always true: a machine that has everything is not touched and waits for nothing but the tools'
//! own work.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::python;
use crate::shell::{answer, cargo, run};
use crate::tools::{TOOLS, Tool};
use crate::trial::try_tool;

/// A tool that does not work here.
#[derive(Debug, Clone)]
pub struct Lacking {
    /// Which.
    pub tool: &'static Tool,
    /// What it said when it was tried.
    pub why: String,
}

/// Parts of the Rust toolchain that `cargo xtask check` runs.
const COMPONENTS: [(&str, &str); 2] = [("rustfmt", "fmt"), ("clippy", "clippy")];

/// Says what works and what of it does not; changes nothing.
///
/// # Errors
/// If something does not work.
pub fn report(lacking: &[Lacking]) -> Result<()> {
    for tool in &TOOLS {
        let fails = lacking.iter().find(|it| it.tool.name == tool.name);
        match fails {
            None => println!("works    {} (for {})", tool.name, tool.wanted_for),
            Some(it) => println!(
                "LACKING  {} (for {}): {}",
                tool.name, tool.wanted_for, it.why
            ),
        }
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
    if !lacking.is_empty() {
        bail!("{}", how_to_get(lacking));
    }
    Ok(())
}

/// Installs what is missing where it can, and tries it; answers what does not work still.
///
/// # Errors
/// If the Rust toolchain lacks a part and cannot get it.
pub fn install() -> Result<Vec<Lacking>> {
    let wanted = with_python(lacking()?)?;
    if wanted.is_empty() {
        return Ok(wanted);
    }
    if !(rustix::process::geteuid().is_root() && answer("apt-get", &["--version"]).is_some()) {
        eprintln!("{}", how_to_get(&wanted));
        return Ok(wanted);
    }
    let packages = packages(&wanted, |tool| tool.debian);
    say(&wanted);
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
    // Tests start what they need themselves, at addresses that a service may have.
    let _no_services = NoServices::begin();
    let mut install = vec!["install", "-y", "-q", "--no-install-recommends"];
    install.extend(&packages);
    if apt(&install).is_err() {
        // The lists may be old or absent, as in a fresh container.
        let refreshed = apt(&["update", "-q"]).and_then(|()| apt(&install));
        if let Err(error) = refreshed {
            eprintln!("setup: {error:#}");
        }
    }
    let left = with_python(lacking()?)?;
    if !left.is_empty() {
        say(&left);
        eprintln!("{}", how_to_get(&left));
    }
    Ok(left)
}

/// What is lacking still once Python's packages were fetched, if they were among it.
fn with_python(lacking: Vec<Lacking>) -> Result<Vec<Lacking>> {
    if !lacking.iter().any(|it| it.tool.name == python::TOOL) {
        return Ok(lacking);
    }
    python::fill();
    self::lacking()
}

/// While this is there, packages of Debian that are installed start no service; a policy of the machine's own stays.
struct NoServices(bool);

/// Asked before a service is started, in Debian and its like.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// 101: not allowed.
const REFUSES: &str = "#!/bin/sh\n# Of `cargo xtask setup`, while it installs.\nexit 101\n";

impl NoServices {
    fn begin() -> NoServices {
        let made = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(POLICY);
        let written = made.and_then(|mut file| file.write_all(REFUSES.as_bytes()));
        // What an earlier set-up left that was cut off goes with this one.
        let left = || fs::read_to_string(POLICY).is_ok_and(|text| text == REFUSES);
        NoServices(written.is_ok() || left())
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.0
            && let Err(error) = fs::remove_file(POLICY)
        {
            eprintln!("setup: {POLICY} is left, and keeps services from starting: {error}");
        }
    }
}

fn say(lacking: &[Lacking]) {
    for Lacking { tool, why } in lacking {
        eprintln!("setup: {} does not work: {why}", tool.name);
    }
}

/// The tools that do not work. Sees to rustfmt and clippy on the way.
///
/// # Errors
/// If rustfmt or clippy is missing and rustup cannot add it.
pub fn lacking() -> Result<Vec<Lacking>> {
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
    Ok(try_all(&TOOLS))
}

/// Tries all at once: each takes a moment.
fn try_all(tools: &'static [Tool]) -> Vec<Lacking> {
    let tried = std::thread::scope(|scope| {
        let begin = |tool: &'static Tool| (tool, scope.spawn(|| try_tool(tool.trial)));
        let begun: Vec<_> = tools.iter().map(begin).collect();
        let end = begun.into_iter().map(|(tool, trial)| {
            let broke = |_| Err("its trial broke off".to_owned());
            (tool, trial.join().unwrap_or_else(broke))
        });
        end.collect::<Vec<_>>()
    });
    let fails = |(tool, tried): (&'static Tool, Result<(), String>)| {
        tried.err().map(|why| Lacking { tool, why })
    };
    tried.into_iter().filter_map(fails).collect()
}

/// Can `cargo deny` be run?
#[must_use]
pub fn has_deny() -> bool {
    answer("cargo-deny", &["--version"]).is_some()
}

fn packages(lacking: &[Lacking], of: impl Fn(&Tool) -> &'static str) -> Vec<&'static str> {
    let mut names: Vec<&str> = lacking
        .iter()
        .flat_map(|it| of(it.tool).split_whitespace())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// What to type to get these, on this distribution first.
fn how_to_get(tools: &[Lacking]) -> String {
    let names: Vec<&str> = tools.iter().map(|it| it.tool.name).collect();
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

    fn lacking(at: usize, why: &str) -> Lacking {
        Lacking {
            tool: &TOOLS[at],
            why: why.to_owned(),
        }
    }

    #[test]
    fn what_is_missing_is_named_with_the_command_that_brings_it() {
        let all = [lacking(0, ""), lacking(1, ""), lacking(5, "")];
        let text = how_to_get(&all);
        assert!(text.starts_with("missing: nbdinfo, nbdcopy, fio with its nbd engine; as root"));
        assert!(text.contains("libnbd"), "{text}");
        assert_eq!(packages(&all[..2], |t| t.debian), ["libnbd-bin"]);
    }

    #[test]
    fn the_database_brings_the_program_that_its_installer_calls() {
        let at = TOOLS.iter().position(|tool| tool.name == "mariadbd");
        let packages = packages(&[lacking(at.unwrap(), "")], |t| t.debian);
        assert_eq!(packages, ["mariadb-client-core", "mariadb-server-core"]);
    }

    #[test]
    fn a_tool_that_answers_but_does_not_work_is_lacking_with_its_words() {
        static BROKEN: [Tool; 2] = [
            Tool {
                trial: "echo 'cannot find its helper' >&2; exit 1",
                ..TOOLS[0]
            },
            Tool {
                trial: "true",
                ..TOOLS[1]
            },
        ];
        let found = try_all(&BROKEN);
        let found: Vec<_> = found.iter().map(|it| (it.tool.name, &*it.why)).collect();
        assert_eq!(found, [("nbdinfo", "cannot find its helper")]);
    }
}
