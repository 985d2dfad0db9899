//! `tanada`: the daemon, and the command line that commands it.
//!
//! ```text
//! command line -> serve:                config -> assemble -> data threads + admin API
//!              -> status, client, config, volume, node, store, reservation, reserve, account, token, audit, top:
//!                                      one question to a running daemon's admin API
//!              -> object:               a client of a store
//!              -> device, doctor:       work of their own, no daemon needed
//!              -> sim, experiment, predict, trace, bench, advise: tanada-lab (laboratory)
//! ```
//!
//! Results go to stdout, all else to stderr. Exit status 0: done; 1: the job failed; 2: bad usage or a
//! bad configuration.

mod api;
mod cli;
mod daemon;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command, laboratory};
use daemon::serve;

fn main() -> ExitCode {
    if let Some(error) = laboratory::help(std::env::args_os().skip(1)) {
        return report::terminal::exit_code(&error, false);
    }
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::Status(ask) => return ended(cli::show::status(&ask)),
        Command::Reload(arguments) => cli::reload::run(arguments),
        Command::Health(command) => return ended(cli::health::run(command)),
        Command::Device(command) => cli::device::run(command),
        Command::Client(command) => cli::clients::run(command),
        Command::Config(command) => cli::configuration::run(command),
        Command::Volume(command) => cli::volume::run(command),
        Command::Cluster(command) => cli::cluster_ca::run(command),
        Command::Node(command) => return ended(cli::cluster_node::run_node(command)),
        Command::Store(command) => cli::store::run(command),
        Command::Object(command) => cli::object::run(command),
        Command::Reservation(command) => return ended(cli::reservation::run(command)),
        Command::Reserve(command) => return ended(cli::reserve::run(command)),
        Command::Slurm(command) => cli::slurm::run(command),
        Command::Account(command) => cli::account::run(command),
        Command::Token(command) => cli::token::run(command),
        Command::Audit(command) => cli::audit::run(command),
        Command::Top(arguments) => cli::top::run(&arguments),
        Command::Doctor(arguments) => return ended(cli::doctor::run(&arguments)),
        Command::Experiment(_) => laboratory::run("experiment", laboratory::words()),
        Command::Sim(_) => laboratory::run("sim", laboratory::words()),
        Command::Predict(_) => laboratory::run("predict", laboratory::words()),
        Command::Bench(_) => laboratory::run("bench", laboratory::words()),
        Command::Trace(_) => laboratory::run("trace", laboratory::words()),
        Command::Advise(_) => laboratory::advise(laboratory::words()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// The exit status of a command that has one of its own.
fn ended(done: anyhow::Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| failed(&error))
}

fn failed(error: &anyhow::Error) -> ExitCode {
    report::terminal::exit_code(error, error.is::<config::ConfigError>())
}
