//! What continuous integration runs, in the order that fails soonest; the tests come last.
//!
//! ```text
//! fmt -> tidy -> clippy -> docs -> deny (where installed) -> tests
//! ```
//!
//! A step that fails does not keep the others from telling what they found.

use anyhow::Result;

use crate::shell::{cargo, run};
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
        // Advisories need the network; licences, bans and sources do not.
        step("deny", &|| {
            run(cargo().args(["deny", "check", "licenses", "bans", "sources"]))
        });
        step("advisories", &|| {
            run(cargo().args(["deny", "check", "advisories"]))
        });
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
