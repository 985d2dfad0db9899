//! What commands print: JSON, tables, figures, errors, progress.
//!
//! ```text
//! result -> json | text -> standard output
//! error  -> said::words, Ending, exit_code -> standard error, exit status
//! ```

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;

pub mod consent;
pub mod printable;
pub mod progress;
pub mod said;
pub mod table;

/// How a command ended, by its exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Ending {
    /// What was asked for is done.
    Done = 0,
    /// It was begun, or could have been, and did not succeed.
    Failed = 1,
    /// The words of the command or the configuration make no sense.
    Usage = 2,
    /// A question about health was answered: something needs attention.
    HealthWarn = 3,
    /// A question about health was answered: something does not work.
    HealthErr = 4,
    /// It was refused, and nothing was changed.
    Refused = 5,
    /// No daemon was reached.
    NoDaemon = 6,
    /// Who asks may not do that.
    NotAllowed = 7,
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> ExitCode {
        ExitCode::from(ending as u8)
    }
}

/// Something asked for that makes no sense: [`Ending::Usage`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Something that was not done, and nothing was changed: [`Ending::Refused`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Prints what went wrong with a command and answers its exit status. `known` is how the program's own errors end;
/// without it [`Usage`] and [`Refused`] count, and all else failed. `tanada ... | head` has what it wanted: nothing is
/// printed.
#[must_use]
pub fn exit_code(error: &anyhow::Error, known: Option<Ending>) -> ExitCode {
    if is_closed_pipe(error) {
        return Ending::Done.into();
    }
    eprintln!("tanada: {}", said::words(error));
    known.unwrap_or_else(|| ending(error)).into()
}

/// Did who reads the result have enough of it, as `head` has?
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// How a command ends whose error is not the program's own.
fn ending(error: &anyhow::Error) -> Ending {
    match find::<Refused>(error).is_some() {
        _ if find::<Usage>(error).is_some() => Ending::Usage,
        true => Ending::Refused,
        false => Ending::Failed,
    }
}

/// The error itself, or a cause of it, that is an `E`.
#[must_use]
pub fn find<E: std::error::Error + Send + Sync + 'static>(error: &anyhow::Error) -> Option<&E> {
    let causes = || error.chain().find_map(|cause| cause.downcast_ref::<E>());
    error.downcast_ref::<E>().or_else(causes)
}

/// Prints a value as JSON for programs.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    write_json(&mut io::stdout().lock(), value)
}

fn write_json(out: &mut impl Write, value: &impl Serialize) -> anyhow::Result<()> {
    // As the writer's own error, by which a closed pipe is known.
    serde_json::to_writer_pretty(&mut *out, value).map_err(io::Error::from)?;
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
    use anyhow::Context;

    use super::*;

    #[test]
    fn an_error_ends_a_command_as_its_kind_does_whatever_is_said_before_it() {
        let refused = || anyhow::Error::from(Refused("it is in use".to_owned()));
        let usage = anyhow::Error::from(Usage("which one?".to_owned()));
        let said = Err::<(), _>(refused()).context("cannot delete vm1");
        assert_eq!(ending(&refused()), Ending::Refused);
        assert_eq!(ending(&said.unwrap_err()), Ending::Refused);
        assert_eq!(ending(&usage), Ending::Usage);
        assert_eq!(ending(&anyhow::anyhow!("no room")), Ending::Failed);
    }

    #[test]
    fn json_that_is_read_in_part_is_no_failure() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let error = write_json(&mut Closed, &[1, 2]).unwrap_err();
        assert!(is_closed_pipe(&error), "{error:?}");
    }

    #[test]
    fn a_word_is_pasted_whole() {
        assert_eq!(quoted("nbd://127.0.0.1:1/vol0"), "nbd://127.0.0.1:1/vol0");
        assert_eq!(quoted("a b?"), "'a b?'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn a_command_is_shown_as_a_shell_takes_it_whatever_its_arguments_are() {
        use std::os::unix::ffi::OsStringExt;
        let words = ["trace", "show", "a b.csv", "it's", "", "--html=r.html"].map(OsString::from);
        let odd = OsString::from_vec(b"caf\xe9.csv".to_vec());
        assert_eq!(
            command(words.into_iter().chain([odd])),
            "tanada trace show 'a b.csv' 'it'\\''s' '' --html=r.html 'caf\u{fffd}.csv'"
        );
    }
}
