//! A program under test, run to its end.

use std::path::Path;
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

/// Copies a program to `to`, where all users may run it.
///
/// Another process copies: a child that some thread of this one forks meanwhile would inherit the file opened for
/// writing, and until that child has become its own program the kernel answers "text file busy" to who starts the copy.
pub fn install(program: impl AsRef<Path>, to: &Path) {
    let mut command = Command::new("install");
    command
        .args(["-m", "755", "--"])
        .arg(program.as_ref())
        .arg(to);
    let output = command.output().expect("install starts");
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Says that a test goes without `tool`; a failure where tools are required (`TANADA_REQUIRE_TOOLS=1`).
pub fn without(tool: &str) {
    let required = std::env::var_os("TANADA_REQUIRE_TOOLS").is_some_and(|value| value == "1");
    assert!(!required, "{tool} is required and not installed");
    println!("skipped: no {tool}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_copy_starts_at_once_while_other_threads_start_programs() {
        let dir = tempfile::tempdir().unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        assert!(Command::new("true").status().unwrap().success());
                    }
                });
            }
            let started: Vec<_> = (0..100)
                .map(|n| {
                    let copy = dir.path().join(n.to_string());
                    install("/bin/true", &copy);
                    Command::new(copy).status()
                })
                .collect();
            over.store(true, Ordering::Relaxed);
            for status in started {
                assert!(status.unwrap().success());
            }
        });
    }
}
