//! `tanada completion SHELL` and `tanada man`: the words of the command line for shells and for man.
//!
//! ```text
//! clap::Command, hidden words left out -> a script | tanada.1, and tanada-NOUN.1 with its verbs
//! ```

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use base::Nanos;
use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, Command, ValueEnum};
use clap_complete::generate;
use clap_complete::shells::{Bash, Fish, Zsh};
use clap_mangen::Man;
use policy::share::Second;

use super::show;
use crate::daemon::common::when;

/// Where a page of the manual is from.
const SOURCE: &str = concat!("Tanada ", env!("CARGO_PKG_VERSION"));
const MANUAL: &str = "Tanada";

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

#[derive(Debug, Args)]
pub struct Manual {
    /// The folder to write the pages into.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
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

/// Writes the pages.
pub fn write(wanted: &Manual, whole: Command) -> anyhow::Result<()> {
    let dir = &wanted.dir;
    let said = || format!("cannot write {}", dir.display());
    fs::create_dir_all(dir).with_context(said)?;
    for (name, page) in pages(whole)? {
        fs::write(dir.join(format!("{name}.1")), page).with_context(said)?;
    }
    Ok(())
}

/// A command without its hidden words, and without what its words demand of each other.
fn shown(command: &Command) -> Command {
    let subs = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let mut whole = Command::new(lasting(command.get_name()))
        .version(env!("CARGO_PKG_VERSION"))
        .visible_aliases(command.get_visible_aliases().map(lasting))
        .args(args.map(shown_arg))
        .subcommands(subs.map(shown));
    if let Some(about) = command.get_about() {
        whole = whole.about(about.clone());
    }
    whole
}

fn shown_arg(arg: &Arg) -> Arg {
    let mut it = Arg::new(lasting(arg.get_id().as_str())).action(arg.get_action().clone());
    if let Some(long) = arg.get_long() {
        it = it.long(lasting(long));
    }
    if let Some(short) = arg.get_short() {
        it = it.short(short);
    }
    if let Some(help) = arg.get_help() {
        it = it.help(help.clone());
    }
    if let Some(count) = arg.get_num_args() {
        it = it.num_args(count);
    }
    let values = arg.get_possible_values();
    match values.is_empty() || !arg.get_action().takes_values() {
        true => it,
        false => it.value_parser(PossibleValuesParser::new(values)),
    }
}

/// A word as the builder takes it; this program ends as soon as its words are printed.
fn lasting(word: &str) -> &'static str {
    Box::leak(word.to_owned().into_boxed_str())
}

/// Name and text of each page.
fn pages(mut whole: Command) -> io::Result<Vec<(String, String)>> {
    whole.build();
    let mut pages = vec![("tanada".to_owned(), page(&whole, "tanada", &[])?)];
    for noun in whole.get_subcommands().filter(|it| is_shown(it)) {
        let name = format!("tanada-{}", noun.get_name());
        let mut verbs = Vec::new();
        gather(noun, noun.get_name(), &mut verbs);
        pages.push((name.clone(), page(noun, &name, &verbs)?));
    }
    Ok(pages)
}

fn is_shown(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

/// The commands below `command` that do something, with all their words.
fn gather<'a>(command: &'a Command, before: &str, into: &mut Vec<(String, &'a Command)>) {
    for sub in command.get_subcommands().filter(|it| is_shown(it)) {
        let words = format!("{before} {}", sub.get_name());
        match sub.has_subcommands() {
            true => gather(sub, &words, into),
            false => into.push((words, sub)),
        }
    }
}

fn page(command: &Command, name: &str, verbs: &[(String, &Command)]) -> io::Result<String> {
    let man = Man::new(command.clone());
    let mut text = Vec::new();
    let date = date();
    writeln!(
        text,
        ".TH \"{name}\" \"1\" \"{date}\" \"{SOURCE}\" \"{MANUAL}\""
    )?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if command.get_arguments().any(|arg| !arg.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    if verbs.is_empty() && command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    if command.get_after_help().is_some() {
        man.render_extra_section(&mut text)?;
    }
    let mut text = tidied(text)?;
    for (words, verb) in verbs {
        text.push_str(&section(words, verb)?);
    }
    Ok(text)
}

/// The day of a page: `SOURCE_DATE_EPOCH` says it where pages are to be made twice alike, else it is today.
fn date() -> String {
    let said = std::env::var("SOURCE_DATE_EPOCH").ok();
    let said = said.and_then(|text| text.parse().ok());
    let second = said.unwrap_or_else(|| when::now().0 / Nanos::secs(1).0);
    let mut moment = when::utc(Second(second));
    moment.truncate("2026-11-22".len());
    moment
}

/// The text without line breaks beside an empty line, which break nothing.
fn tidied(text: Vec<u8>) -> io::Result<String> {
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    let lines: Vec<&str> = text.lines().collect();
    let is_gap = |number: usize| {
        lines
            .get(number)
            .is_some_and(|line| [".sp", ""].contains(line))
    };
    let is_left_out = |number: usize| {
        let breaks = lines[number] == ".br";
        breaks && (is_gap(number + 1) || number > 0 && is_gap(number - 1))
    };
    let left = (0..lines.len()).filter(|number| !is_left_out(*number));
    Ok(left.map(|number| format!("{}\n", lines[number])).collect())
}

/// A verb as a section of its noun's page.
fn section(words: &str, verb: &Command) -> io::Result<String> {
    let man = Man::new(verb.clone());
    let mut text = Vec::new();
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if verb.get_after_help().is_some() {
        man.render_extra_section(&mut text)?;
    }
    let text = tidied(text)?;
    let below = text.replace("\n.SH ", "\n.SS ");
    let below = below
        .strip_prefix(".SH ")
        .map_or(below.clone(), |rest| format!(".SS {rest}"));
    Ok(format!(".SH \"tanada {words}\"\n{below}"))
}
