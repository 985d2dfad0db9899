//! What continuous integration runs, in the order that fails soonest; the tests come last.
//!
//! ```text
//! fmt -> tidy -> clippy -> docs -> deny (where installed) -> tests
//! ```
//!
//! A step that fails does not keep the others from telling what they found.

use anyhow::{Result, bail};

use crate::shell::{cargo, run, show};
use crate::{setup, test, tidy};

/// Runs every step and answers whether all of them passed; the last line printed is the tests' summary.
///
/// # Errors
/// If the tests cannot be started.
pub fn check() -> Result<bool> {
    let mut failed = Vec::new();
    let mut step = |name: &str, work: &dyn Fn() -> Result<()>| {
        eprintln!("check: {name}");
        if let Err(error) = work() {
            eprintln!("check: {name}: {error:#}");
            failed.push(name.to_owned());
        }
    };
    step("fmt", &|| run(cargo().args(["fmt", "--all", "--check"])));
    step("tidy", &tidy::run);
    step("clippy", &|| {
        run(cargo().args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ]))
    });
    step("docs", &|| {
        run(cargo()
            .args(["doc", "--workspace", "--no-deps", "--locked"])
            .env("RUSTDOCFLAGS", "-D warnings"))
    });
    if setup::has_deny() {
        step("deny", &deny);
    } else {
        eprintln!(
            "check: deny: skipped, cargo-deny is not installed (cargo install --locked cargo-deny)"
        );
    }
    if !failed.is_empty() {
        eprintln!("check: failed before the tests: {}", failed.join(", "));
    }
    eprintln!("check: test");
    let tally = test::run(true, &["--locked".to_owned()])?;
    if tally.failed > 0 {
        failed.push("test".to_owned());
    }
    if !failed.is_empty() {
        eprintln!("check failed: {}", failed.join(", "));
    }
    println!("{tally}");
    Ok(failed.is_empty())
}

/// Licences, bans and sources from what is here; advisories where their database can be had.
fn deny() -> Result<()> {
    let deny = |what: &[&str]| {
        let mut command = cargo();
        command
            .args(["deny", "check", "--hide-inclusion-graph"])
            .args(what);
        command
    };
    run(&mut deny(&["licenses", "bans", "sources"]))?;
    let mut advisories = deny(&["advisories"]);
    let out = advisories.output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    eprint!("{said}");
    if said.contains("failed to fetch advisory database") {
        eprintln!("check: deny: advisories skipped, their database cannot be fetched from here");
    } else if !out.status.success() {
        bail!("`{}` failed ({})", show(&advisories), out.status);
    }
    Ok(())
}
