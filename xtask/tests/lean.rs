//! What the daemon is built from: the heavy libraries of the laboratory stay out of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Packages that `package` is built from, by name.
fn packages_of(package: &str) -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace");
    let output = Command::new(env!("CARGO"))
        .current_dir(root)
        .args([
            "tree",
            "--locked",
            "--prefix",
            "none",
            "--format",
            "{p}",
            "-e",
            "normal,build",
            "-p",
            package,
        ])
        .output()
        .expect("cargo starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let lines = String::from_utf8(output.stdout).expect("names are text");
    lines
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_daemon_is_built_without_the_laboratory_and_its_libraries() {
    let daemon = packages_of("tanada");
    let laboratory = packages_of("lab");
    for heavy in [
        "mysql",
        "parquet",
        "nalgebra",
        "statrs",
        "predict",
        "experiments",
        "published",
    ] {
        assert!(
            laboratory.contains(heavy),
            "the laboratory lost {heavy}: is this test of any use?"
        );
        assert!(!daemon.contains(heavy), "the daemon is built from {heavy}");
    }
    for other in [
        "lab",
        "testkit",
        "ratatui-termwiz",
        "ratatui-termion",
        "termwiz",
        "termion",
    ] {
        assert!(!daemon.contains(other), "the daemon is built from {other}");
    }
    assert!(daemon.contains("ratatui-crossterm"), "{daemon:?}");
}
