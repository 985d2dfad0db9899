//! The benchmarks by name. They print figures and never fail for being slow.

pub mod experiment;
mod nbd;
mod peers;
mod python;
mod record;

use std::process::Command;

use anyhow::{Result, bail};

use crate::shell::{cargo, run};
use crate::tidy::benchmarks::{self, BENCHES, NBD, OWN, PEERS, PYTHON};
use crate::tidy::tree::Tree;

/// What the arguments of `cargo xtask bench` ask for.
#[derive(Debug, PartialEq)]
enum Wish {
    Help,
    /// Write the page of the records; or only see whether it is current.
    Page {
        check: bool,
    },
    Run {
        /// All if there is none.
        name: Option<String>,
        record: bool,
        args: Vec<String>,
    },
}

impl Wish {
    fn of(name: Option<&str>, args: &[String]) -> Wish {
        let has = |flag: &str| name == Some(flag) || args.iter().any(|arg| arg == flag);
        match name {
            Some("-h" | "--help" | "help") => return Wish::Help,
            Some("--page") => {
                let check = has("--check");
                return Wish::Page { check };
            }
            _ => {}
        }
        let record = has("--record");
        let mut args: Vec<String> = args
            .iter()
            .filter(|arg| *arg != "--record")
            .cloned()
            .collect();
        let name = match name {
            // `--record` may stand before the name.
            Some("--record") => match args.first() {
                Some(first) if !first.starts_with('-') => Some(args.remove(0)),
                _ => None,
            },
            Some(option) if option.starts_with('-') => {
                args.insert(0, option.to_owned());
                None
            }
            name => name.map(str::to_owned),
        };
        Wish::Run { name, record, args }
    }
}

/// Runs the benchmark `name` with `args`, or all of them; records them, or writes the page of the records.
///
/// # Errors
/// If there is no such benchmark, one cannot run, or the page is not current.
pub fn bench(name: Option<&str>, args: &[String]) -> Result<()> {
    match Wish::of(name, args) {
        Wish::Help => {
            println!(
                "cargo xtask bench [NAME [ARGS]]: run one benchmark, or all\n\
                 cargo xtask bench [NAME] --record [ARGS]: and keep what it finds, in benches/results\n\
                 cargo xtask bench --page [--check]: write docs/benchmarks.md from what was kept\n{}",
                list()
            );
            Ok(())
        }
        Wish::Page { check: false } => benchmarks::write(&Tree::of_project()?),
        Wish::Page { check: true } => {
            anyhow::ensure!(
                benchmarks::is_current(&Tree::of_project()?)?,
                "{} is not what the records say; run `cargo xtask bench --page`",
                benchmarks::PAGE
            );
            Ok(())
        }
        Wish::Run {
            name: Some(name),
            record,
            args,
        } => one(&name, record, &args),
        Wish::Run {
            name: None,
            record,
            args,
        } => all(record, &args),
    }
}

/// Runs the acceptance cases of reservations, with real daemons.
///
/// # Errors
/// If one of them falls short, or cannot be run.
pub fn accept(args: &[String]) -> Result<()> {
    let mut cargo = cargo();
    cargo.args([
        "bench", "--quiet", "-p", "tanada", "--bench", "accept", "--",
    ]);
    run(cargo.args(args))
}

fn all(record: bool, args: &[String]) -> Result<()> {
    // One that cannot run does not keep the others from it.
    let mut failed = Vec::new();
    let known = BENCHES.iter().map(|&(name, _, what)| (name, what));
    for (name, what) in known.chain(OWN.iter().copied()) {
        println!("\n== {name}: {what}");
        // Their options are their own; guests take their time.
        let quick = ["--quick".to_owned()];
        let args = match name {
            NBD => &[],
            PEERS => &quick[..],
            _ => args,
        };
        if let Err(error) = one(name, record, args) {
            eprintln!("bench {name}: {error:#}");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("benchmarks that could not run: {}", failed.join(", "));
    }
    Ok(())
}

fn one(name: &str, record: bool, args: &[String]) -> Result<()> {
    if record {
        return record::record(name, &mut command(name, &json_too(args))?, args);
    }
    match name {
        NBD => nbd::run(args),
        PEERS => peers::run(args),
        PYTHON => python::run(args),
        _ => run(&mut command(name, args)?),
    }
}

fn json_too(args: &[String]) -> Vec<String> {
    let json = "--json".to_owned();
    let mut all: Vec<String> = args.iter().filter(|arg| **arg != json).cloned().collect();
    all.push(json);
    all
}

/// What runs the benchmark; `nbd`, `peers` and `python` are run by this program.
fn command(name: &str, args: &[String]) -> Result<Command> {
    let mut command = match BENCHES.iter().find(|(known, ..)| *known == name) {
        Some((name, package, _)) => {
            let mut cargo = cargo();
            cargo.args(["bench", "--quiet", "-p", package, "--bench", name, "--"]);
            cargo
        }
        None if OWN.iter().any(|(own, _)| *own == name) => {
            let mut this = Command::new(std::env::current_exe()?);
            this.args(["bench", name]);
            this
        }
        None => bail!("there is no benchmark `{name}`; there are:\n{}", list()),
    };
    command.args(args);
    Ok(command)
}

/// The benchmarks and what they measure, one per line.
#[must_use]
pub fn list() -> String {
    let mut lines: Vec<String> = BENCHES
        .iter()
        .map(|(name, _, what)| format!("  {name:<9} {what}"))
        .collect();
    let own = OWN.iter();
    lines
        .extend(own.map(|(name, what)| format!("  {name:<9} {what} ({name} --help: its options)")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(words: &[&str]) -> Wish {
        let args: Vec<String> = words.iter().skip(1).map(|it| (*it).to_owned()).collect();
        Wish::of(words.first().copied(), &args)
    }

    fn run(name: Option<&str>, record: bool, args: &[&str]) -> Wish {
        Wish::Run {
            name: name.map(str::to_owned),
            record,
            args: args.iter().map(|it| (*it).to_owned()).collect(),
        }
    }

    #[test]
    fn record_may_stand_before_or_behind_the_name() {
        let expected = run(Some("volume"), true, &["--runs", "7"]);
        assert_eq!(wish(&["volume", "--record", "--runs", "7"]), expected);
        assert_eq!(wish(&["--record", "volume", "--runs", "7"]), expected);
        assert_eq!(wish(&["volume", "--runs", "7", "--record"]), expected);
    }

    #[test]
    fn without_a_name_all_benchmarks_are_meant() {
        assert_eq!(wish(&[]), run(None, false, &[]));
        assert_eq!(wish(&["--record"]), run(None, true, &[]));
        assert_eq!(
            wish(&["--record", "--quick"]),
            run(None, true, &["--quick"])
        );
        assert_eq!(wish(&["--quick"]), run(None, false, &["--quick"]));
    }

    #[test]
    fn the_page_is_written_or_checked() {
        assert_eq!(wish(&["--page"]), Wish::Page { check: false });
        assert_eq!(wish(&["--page", "--check"]), Wish::Page { check: true });
    }
}
