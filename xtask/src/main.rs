//! `cargo xtask NAME`: the project's chores on the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::tidy::tree::Tree;
use xtask::tidy::{experiments, papers};
use xtask::{bench, check, package, setup, soak, test, tidy};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "The project's chores",
    disable_help_subcommand = true
)]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Install what the tests and benchmarks need, or say what to install
    Setup {
        /// Install nothing, only try what is here; exit status 1 if something does not work
        #[arg(long)]
        check: bool,
    },
    /// Set up, run every test, end with "N passed, N failed"
    Test {
        /// Do not install anything first
        #[arg(long)]
        no_setup: bool,
        /// For `cargo test`: -p PACKAGE, a filter, -- and what follows
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// What continuous integration runs: fmt, tidy, clippy, docs, deny, tests
    Check,
    /// Check the tree's own rules: crate order, head comments, words, links, sizes, circles ...
    Tidy {
        /// Instead: write down in the baseline what became less
        #[arg(long)]
        shrink: bool,
    },
    /// Write docs/papers.md and its pages from the `Source:` and `Choice:` marks
    Papers {
        /// Change nothing; exit status 1 if the table is not current
        #[arg(long)]
        check: bool,
    },
    /// Run one benchmark, or all; record them, or write docs/benchmarks.md from what was recorded
    #[command(disable_help_flag = true)]
    Bench {
        /// Which one; `--help` lists them
        #[arg(allow_hyphen_values = true)]
        name: Option<String>,
        /// For the benchmark; `cargo xtask bench nbd --help` says what it takes
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run one of the papers' experiments, record what was judged, and write its pages; an interrupted one goes on
    Experiment {
        /// Which one; `tanada experiment list` shows them
        #[arg(required_unless_present = "page")]
        name: Option<String>,
        /// Run nothing, only write the pages from what was recorded
        #[arg(long, conflicts_with = "name")]
        page: bool,
        /// For `tanada experiment run`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Real daemons in real time: are reservations over a cluster kept? Exit status 1 if a case falls short
    Accept {
        /// Which cases (without one all), --full, --runs N and --json
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Build the Debian packages in target/debian, and check them
    Package {
        /// Build nothing, only check what they are made from and the one that is there
        #[arg(long)]
        check: bool,
        /// Package the programs of this folder, such as target/debug, to try the packaging
        #[arg(long, value_name = "DIR", hide = true, conflicts_with = "check")]
        from: Option<PathBuf>,
    },
    /// Run the randomized suites with ever more seeds, and the fuzz targets, for a long time
    Soak {
        /// For how long; each round has more seeds, and none is begun that would not fit
        #[arg(long, default_value_t = 60)]
        minutes: u64,
        /// Seeds of the first round, per suite
        #[arg(long, default_value_t = 2000)]
        seeds: u64,
        /// Only this package's suites, and no fuzz targets
        #[arg(short, long)]
        package: Option<String>,
        /// Instead of all that: kill the real daemon so often under fio, which verifies what it wrote
        #[arg(long, value_name = "N", conflicts_with_all = ["minutes", "seeds", "package"])]
        kills: Option<u64>,
    },
}

fn main() -> ExitCode {
    let done = match Args::parse().chore {
        Chore::Setup { check: true } => setup::lacking().and_then(|it| setup::report(&it)),
        Chore::Setup { check: false } => setup::install().and_then(|it| setup::report(&it)),
        // These two end with the tests' summary and nothing behind it.
        Chore::Test { no_setup, args } => match test::run(!no_setup, &args) {
            Ok(tally) => {
                println!("{tally}");
                return exit(tally.failed == 0);
            }
            Err(error) => Err(error),
        },
        Chore::Check => match check::check() {
            Ok(passed) => return exit(passed),
            Err(error) => Err(error),
        },
        Chore::Tidy { shrink: false } => tidy::run(),
        Chore::Tidy { shrink: true } => tidy::shrink(),
        Chore::Papers { check: true } => Tree::of_project().and_then(|tree| {
            anyhow::ensure!(
                papers::is_current(&tree),
                "{} is not what the marks say; run `cargo xtask papers`",
                papers::TABLE
            );
            Ok(())
        }),
        Chore::Papers { check: false } => Tree::of_project().and_then(|tree| papers::write(&tree)),
        Chore::Bench { name, args } => bench::bench(name.as_deref(), &args),
        Chore::Experiment {
            name: Some(name),
            args,
            ..
        } => bench::experiment::record(&name, &args),
        Chore::Experiment { name: None, .. } => {
            Tree::of_project().and_then(|tree| experiments::write(&tree))
        }
        Chore::Accept { args } => bench::accept(&args),
        Chore::Package { check: true, .. } => package::check(false),
        Chore::Package { from, .. } => package::package(from.as_deref()),
        Chore::Soak {
            kills: Some(kills), ..
        } => soak::kills(kills),
        Chore::Soak {
            minutes,
            seeds,
            package,
            kills: None,
        } => soak::soak(minutes, seeds, package.as_deref()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn exit(passed: bool) -> ExitCode {
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
