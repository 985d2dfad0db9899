//! A program under test, run to its end.

use std::process::{Command, Output};

use serde_json::Value;

/// Runs `command` with `arguments` to its end.
pub fn run(mut command: Command, arguments: &[&str]) -> Output {
    command.args(arguments);
    command.output().expect("the program starts")
}

/// As [`run`]; it must succeed. Its output.
pub fn text(command: Command, arguments: &[&str]) -> String {
    let output = run(command, arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}\n{}",
        output.status,
        stderr(&output)
    );
    String::from_utf8(output.stdout).expect("output is text")
}

/// As [`text`], read as JSON.
pub fn json(command: Command, arguments: &[&str]) -> Value {
    serde_json::from_str(&text(command, arguments)).expect("output is JSON")
}

/// What it said beside its result.
#[must_use]
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Says that a test goes without `tool`; a failure where tools are required (`TANADA_REQUIRE_TOOLS=1`).
pub fn without(tool: &str) {
    let required = std::env::var_os("TANADA_REQUIRE_TOOLS").is_some_and(|value| value == "1");
    assert!(!required, "{tool} is required and not installed");
    println!("skipped: no {tool}");
}
