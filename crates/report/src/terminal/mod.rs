//! What commands print: JSON, tables, figures, errors, progress.
//!
//! ```text
//! result -> json | text -> standard output
//! error  -> said::words, exit_code -> standard error, exit status
//! ```

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;

pub mod printable;
pub mod progress;
pub mod said;
pub mod table;

/// Something asked for that makes no sense; exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Prints what went wrong with a command and answers its exit status: `is_usage` says whether the request was at fault (2)
/// or the work (1). `tanada ... | head` has what it wanted: nothing is printed.
#[must_use]
pub fn exit_code(error: &anyhow::Error, is_usage: bool) -> ExitCode {
    let closed_pipe = error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
    if closed_pipe {
        return ExitCode::SUCCESS;
    }
    eprintln!("tanada: {}", said::words(error));
    match is_usage || error.is::<Usage>() {
        true => ExitCode::from(2),
        false => ExitCode::FAILURE,
    }
}

/// Prints a value as JSON for programs.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

/// Prints a text for people.
pub fn text(text: &str) -> anyhow::Result<()> {
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// Prints what was asked for: as JSON, or the text that `page` makes of it.
pub fn answer(
    as_json: bool,
    value: &impl Serialize,
    page: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    match as_json {
        true => json(value),
        false => text(&page()),
    }
}

/// A word as a shell takes it: in quotes where it needs them.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The command this process was started with, for reports.
pub fn own_command() -> String {
    command(std::env::args_os().skip(1))
}

/// The command with these arguments; what is no UTF-8 in them is shown as U+FFFD.
fn command(arguments: impl Iterator<Item = OsString>) -> String {
    let words = arguments.map(|word| quoted(&word.to_string_lossy()));
    let words: Vec<String> = ["tanada".to_owned()].into_iter().chain(words).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_pasted_whole() {
        assert_eq!(quoted("nbd://127.0.0.1:1/vol0"), "nbd://127.0.0.1:1/vol0");
        assert_eq!(quoted("a b?"), "'a b?'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn a_command_is_shown_as_a_shell_takes_it_whatever_its_arguments_are() {
        use std::os::unix::ffi::OsStringExt;
        let words = ["trace", "stat", "a b.csv", "it's", "", "--html=r.html"].map(OsString::from);
        let odd = OsString::from_vec(b"caf\xe9.csv".to_vec());
        assert_eq!(
            command(words.into_iter().chain([odd])),
            "tanada trace stat 'a b.csv' 'it'\\''s' '' --html=r.html 'caf\u{fffd}.csv'"
        );
    }
}
