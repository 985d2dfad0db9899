//! The program under test, with a service at `admin.sock`.

use std::path::Path;
use std::process::{Command, Output};

pub use testkit::program::stderr;

pub fn tanada(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tanada"));
    command
        .current_dir(dir)
        .env_remove("RUST_LOG")
        .env_remove("TANADA_CAPABILITY")
        .env("TANADA_ADMIN", "unix:admin.sock");
    command
}

/// Runs the program to its end.
pub fn run(dir: &Path, arguments: &[&str]) -> Output {
    testkit::program::run(tanada(dir), arguments)
}

/// Runs the program, which must succeed; its output.
pub fn text(dir: &Path, arguments: &[&str]) -> String {
    testkit::program::text(tanada(dir), arguments)
}
