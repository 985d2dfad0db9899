//! The Python package, built as a wheel, installed in a folder of its own, and tested by its own tests.
//!
//! ```text
//! maturin -> wheel -> pip --target -> python -m unittest, beside `tanada` and `tanada-lab` of this build
//! ```
//!
//! `cargo xtask setup` puts maturin and pyarrow into `target/python`.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::program::{stderr, without};
use testkit::traces::shared;

/// The crate's folder.
fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A program of this build.
fn built(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().expect("this test is a file");
    let program = test.parent()?.parent()?.join(name);
    program.is_file().then_some(program)
}

/// Runs a program to its end, which must be a good one; what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let said = stderr(&output);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}\n{printed}\n{said}");
    format!("{printed}{said}")
}

#[test]
fn the_wheel_passes_its_tests_in_python() {
    let python = here().join("../../target/python/bin/python");
    if !python.is_file() {
        return without("Python with maturin and pyarrow (cargo xtask setup)");
    }
    let (Some(tanada), Some(lab)) = (built("tanada"), built("tanada-lab")) else {
        return without("tanada and tanada-lab of this build (cargo build -p tanada -p lab)");
    };
    let dir = tempfile::tempdir().unwrap();
    let wheels = dir.path().join("wheels");
    let mut maturin = Command::new(&python);
    maturin.args([
        "-m",
        "maturin",
        "build",
        "--locked",
        "--quiet",
        "--manifest-path",
    ]);
    maturin.arg(here().join("Cargo.toml"));
    run(maturin
        .arg("--interpreter")
        .arg(&python)
        .arg("--out")
        .arg(&wheels));
    let wheel = std::fs::read_dir(&wheels).unwrap().next().unwrap().unwrap();
    let name = wheel.file_name().into_string().unwrap();
    assert!(
        name.starts_with("tanada-") && name.contains("cp310-abi3"),
        "{name}"
    );
    let installed = dir.path().join("installed");
    let mut pip = Command::new(&python);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--target",
    ]);
    run(pip.arg(&installed).arg(wheel.path()));
    let mut tests = Command::new(&python);
    tests.args(["-W", "error", "-m", "unittest", "-v"]);
    tests.current_dir(here().join("tests"));
    tests
        .env("PYTHONPATH", &installed)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    tests.env("TANADA", tanada).env("TANADA_LAB", lab);
    if let Some(traces) = shared("") {
        tests.env("TANADA_TRACES", traces);
    }
    println!("{}", run(&mut tests));
}
