//! The program under test.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use testkit::program;

pub use testkit::program::{stderr, without};

/// The program under test.
pub fn tanada(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tanada-lab"));
    command.current_dir(dir);
    command
}

/// Runs the program to its end.
pub fn run(dir: &Path, arguments: &[&str]) -> Output {
    program::run(tanada(dir), arguments)
}

/// Runs the program, which must succeed; its output.
pub fn text(dir: &Path, arguments: &[&str]) -> String {
    program::text(tanada(dir), arguments)
}

/// As [`text`], read as JSON.
pub fn json(dir: &Path, arguments: &[&str]) -> Value {
    program::json(tanada(dir), arguments)
}
