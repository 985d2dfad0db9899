//! `tanada completion SHELL` and `tanada man`: the words of the command line for shells and for man.

use anyhow::Context;
use clap::{Args, Command, ValueEnum};
use clap_complete::generate;
use clap_complete::shells::{Bash, Fish, Zsh};
use report::manual::{Manual, shown};

use super::{laboratory, show};

#[derive(Debug, Args)]
pub struct Completion {
    /// For which shell.
    shell: Shell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the completion of a shell. `whole` is the program's command.
pub fn complete(wanted: &Completion, whole: Command) -> anyhow::Result<()> {
    let mut whole = shown(&whole);
    let (name, mut script) = (whole.get_name().to_owned(), Vec::new());
    match wanted.shell {
        Shell::Bash => generate(Bash, &mut whole, name, &mut script),
        Shell::Zsh => generate(Zsh, &mut whole, name, &mut script),
        Shell::Fish => generate(Fish, &mut whole, name, &mut script),
    }
    show::text(&String::from_utf8(script).context("a script is text")?)
}

/// Writes the pages of this program, and has the laboratory write those of its commands.
pub fn pages(wanted: &Manual, whole: Command) -> anyhow::Result<()> {
    let own = |noun: &str| !laboratory::COMMANDS.contains(&noun);
    wanted.write_first(whole.clone())?;
    wanted.write(whole, own)?;
    laboratory::pages(wanted.dir())
}
