//! Does a program of this machine do its work?
//!
//! ```text
//! a script, in an empty folder, with a time limit -> it succeeded | what it said
//! ```
//!
//! `--version` says that a program is there. That it works shows in a small piece of its work: a helper
//! program, a library or a permission may be missing.
//!
//! Always true:
//! 1. A trial runs in a folder of its own: no file of others is in its way, and it leaves none.
//! 2. It ends, also when the program hangs.

use std::process::{Command, Stdio};

/// A script for `sh -e`; it succeeds where the program works.
pub type Trial = &'static str;

/// How long a trial may take, in seconds; the slowest program takes 2 on an idle machine.
const LONGEST: &str = "120";
/// Where programs lie that are not on every user's PATH.
const PLACES: &str = "/usr/sbin:/sbin:/usr/libexec";
/// What is shown of a program's output.
const LINES: usize = 4;

/// Tries it.
///
/// # Errors
/// What it said, in a few lines.
pub fn try_tool(trial: Trial) -> Result<(), String> {
    let folder = tempfile::Builder::new()
        .prefix("tanada-trial-")
        .tempdir()
        .map_err(|error| format!("no folder to try it in: {error}"))?;
    let path = std::env::var("PATH").unwrap_or_default();
    let done = Command::new("timeout")
        .args(["-k", "5", LONGEST, "sh", "-e", "-c", trial])
        // Programs written in Python want the system's python3, which knows their modules.
        .env("PATH", format!("/usr/bin:{path}:{PLACES}"))
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run timeout(1): {error}"))?;
    match done.status.code() {
        Some(0) => Ok(()),
        Some(124) => Err(format!("it did not end within {LONGEST} s")),
        _ => Err(first_lines(&done.stderr, &done.stdout)),
    }
}

/// The first lines that a program said: there it names the cause, advice comes later.
fn first_lines(stderr: &[u8], stdout: &[u8]) -> String {
    let said = [stderr, stdout].map(String::from_utf8_lossy);
    let lines = said.iter().flat_map(|text| text.lines().map(str::trim));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).take(LINES).collect();
    match lines.is_empty() {
        true => "it failed and said nothing".to_owned(),
        false => lines.join(" / "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_answers_but_fails_at_its_work_does_not_work() {
        let version = "sh -c 'echo 1.0' --version";
        assert_eq!(try_tool(version), Ok(()));
        let work = "echo FATAL: no helper >&2; echo see the manual; exit 1";
        assert_eq!(
            try_tool(work).unwrap_err(),
            "FATAL: no helper / see the manual"
        );
    }

    #[test]
    fn a_trial_stops_at_its_first_failing_command() {
        assert!(try_tool("false; true").is_err());
        let absent = try_tool("tanada-no-such-program").unwrap_err();
        assert!(absent.contains("tanada-no-such-program"), "{absent}");
    }

    #[test]
    fn a_trial_begins_in_an_empty_folder() {
        // A file types.py in the folder would take the place of Python's own module.
        assert_eq!(try_tool("[ -z \"$(ls -A)\" ]; echo > types.py"), Ok(()));
        assert_eq!(try_tool("[ -z \"$(ls -A)\" ]"), Ok(()));
    }
}
