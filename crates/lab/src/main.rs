//! `tanada-lab`: traces, simulations, experiments and predictions, which need no daemon.
//!
//! ```text
//! tanada sim | experiment | predict | trace | bench | advise ... -> tanada-lab, the same words -> stdout
//! ```
//!
//! `tanada` starts it from its own folder. Its libraries (MySQL, Parquet, linear algebra, statistics) stay out of the daemon.
//! Exit status 0: done; 1: the job failed; 2: bad usage or a bad configuration.

mod cli;
mod commands;
mod reading;

use std::process::ExitCode;

use clap::Parser;

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
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report::terminal::exit_code(&error, error.is::<config::ConfigError>()),
    }
}
