//! Commands that `tanada-lab` carries out: `tanada sim ...` starts it with the same words.
//!
//! ```text
//! tanada advise NAME, a running volume -> asked here (advise)
//! all else -> tanada-lab beside this program takes this process over
//! ```

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::advise;

/// The program, as its package builds it.
const NAME: &str = "tanada-lab";

/// The commands it carries out.
pub const COMMANDS: [&str; 6] = ["sim", "experiment", "predict", "trace", "bench", "advise"];

/// `tanada help sim ...` is `tanada-lab sim ... --help`: comes back with an error if that cannot be started, with `None` if the
/// words ask for something else.
pub fn help(mut words: impl Iterator<Item = OsString>) -> Option<anyhow::Error> {
    let command = words
        .next()
        .filter(|word| word == "help")
        .and_then(|_| words.next())?;
    let command = COMMANDS.into_iter().find(|known| command == *known)?;
    run(command, words.chain(["--help".into()]).collect()).err()
}

/// Replaces this process by `tanada-lab COMMAND ARGUMENTS`; comes back only if it cannot be started.
pub fn run(command: &str, arguments: Vec<OsString>) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("cannot find the folder of this program")?;
    let program = beside(&own);
    let error = Command::new(&program).arg(command).args(arguments).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        anyhow::bail!(missing(command, &program));
    }
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

/// Runs `tanada advise`: of a running volume here, of a trace in the laboratory.
pub fn advise(arguments: Vec<OsString>) -> anyhow::Result<()> {
    match advise::asked(&arguments) {
        Some(asked) => advise::run(&asked),
        None => run("advise", arguments),
    }
}

/// Writes the pages of the manual of its commands into `dir`.
pub fn pages(dir: &Path) -> anyhow::Result<()> {
    let program =
        beside(&std::env::current_exe().context("cannot find the folder of this program")?);
    let done = Command::new(&program)
        .arg("man")
        .arg("--dir")
        .arg(dir)
        .status();
    let done = done.with_context(|| format!("cannot start {}", program.display()))?;
    anyhow::ensure!(
        done.success(),
        "{} wrote no pages of its commands",
        program.display()
    );
    Ok(())
}

/// Where `tanada-lab` is when this program is `own`.
fn beside(own: &Path) -> PathBuf {
    own.with_file_name(NAME)
}

/// What to do where it is not.
fn missing(command: &str, program: &Path) -> String {
    let release = match cfg!(debug_assertions) {
        true => "",
        false => "--release ",
    };
    format!(
        "tanada {command} is carried out by {NAME}, and there is no {}; build it with `cargo build {release}-p lab`, or install \
         it in the folder of this program",
        program.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_laboratory_is_looked_for_beside_the_program() {
        let program = beside(Path::new("/opt/tanada/bin/tanada"));
        assert_eq!(program, Path::new("/opt/tanada/bin/tanada-lab"));
        let words = missing("sim", &program);
        assert!(words.starts_with("tanada sim is carried out by tanada-lab, and there is no /opt/tanada/bin/tanada-lab; build"), "{words}");
        assert!(words.contains("-p lab`"), "{words}");
    }
}
