//! `tanada-lab`: traces, simulations, experiments and predictions, which need no daemon.
//!
//! ```text
//! tanada sim | experiment | predict | trace | bench | advise ... -> tanada-lab, the same words -> stdout
//! ```
//!
//! `tanada` starts it from its own folder. Its libraries (MySQL, Parquet, linear algebra, statistics) stay out of the daemon.
//! Exit status: `report::terminal::Ending`.

mod cli;
mod commands;
mod reading;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use report::terminal::{Ending, exit_code};

use cli::{Cli, Command};

fn main() -> ExitCode {
    lab::parquet::provide();
    let done = match Cli::parse().command {
        Command::Experiment(command) => commands::experiment::run(command),
        Command::Sim(command) => commands::sim::run(command),
        Command::Predict(command) => commands::predict::run(command),
        Command::Bench(command) => commands::bench::run(command),
        Command::Trace(command) => commands::trace::run(command),
        Command::Advise(arguments) => commands::advise::run(&arguments),
        Command::Man(manual) => manual.write(Cli::command(), |_| true),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let is_usage = error.is::<config::ConfigError>();
            exit_code(&error, is_usage.then_some(Ending::Usage))
        }
    }
}
