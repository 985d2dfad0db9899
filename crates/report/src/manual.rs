//! The pages of the manual of a program, from its command line.
//!
//! ```text
//! clap::Command, hidden words left out -> PROGRAM.1, and PROGRAM-NOUN.1 with its verbs
//! ```

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use clap_mangen::Man;
use jiff::Timestamp;

/// Where a page of the manual is from.
const SOURCE: &str = concat!("Tanada ", env!("CARGO_PKG_VERSION"));
const MANUAL: &str = "Tanada";

/// Which pages of a program are written, and where to.
#[derive(Debug, clap::Args)]
pub struct Manual {
    /// The folder to write the pages into.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

impl Manual {
    /// The folder to write the pages into.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes the pages of the commands below `whole` that `has` says yes to.
    ///
    /// # Errors
    /// If the folder or a file in it cannot be written.
    pub fn write(&self, mut whole: Command, has: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        whole.build();
        let nouns = whole.get_subcommands().filter(|it| is_shown(it));
        let mut pages = Vec::new();
        for noun in nouns.filter(|it| has(it.get_name())) {
            pages.push(of_noun(noun, whole.get_name())?);
        }
        self.put(&pages)
    }

    /// Writes the page of the program itself.
    ///
    /// # Errors
    /// As [`Manual::write`].
    pub fn write_first(&self, mut whole: Command) -> anyhow::Result<()> {
        whole.build();
        let name = whole.get_name().to_owned();
        let text = page(&whole, &name, &[])?;
        self.put(&[(name, text)])
    }

    fn put(&self, pages: &[(String, String)]) -> anyhow::Result<()> {
        let dir = &self.dir;
        let said = || format!("cannot write {}", dir.display());
        fs::create_dir_all(dir).with_context(said)?;
        for (name, page) in pages {
            fs::write(dir.join(format!("{name}.1")), page).with_context(said)?;
        }
        Ok(())
    }
}

/// A command without its hidden words, and without what its words demand of each other.
#[must_use]
pub fn shown(command: &Command) -> Command {
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

/// Name and text of the page of a noun, with its verbs.
fn of_noun(noun: &Command, program: &str) -> io::Result<(String, String)> {
    let name = format!("{program}-{}", noun.get_name());
    let mut verbs = Vec::new();
    gather(noun, noun.get_name(), &mut verbs);
    let text = page(noun, &name, &verbs)?;
    Ok((name, text))
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
    let said = said.and_then(|text| Timestamp::from_second(text.parse().ok()?).ok());
    said.unwrap_or_else(Timestamp::now)
        .strftime("%F")
        .to_string()
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
