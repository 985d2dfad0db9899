//! `tanada`: the daemon, and the command line that commands it.
//!
//! ```text
//! command line -> serve:                config -> assemble -> data threads + admin API
//!              -> status, client, config, volume, snapshot, node, store, reservation, account, token, audit, top:
//!                                      one question to a running daemon's admin API
//!              -> object:               a client of a store
//!              -> device, model, doctor: work of their own, no daemon needed
//!              -> sim, experiment, predict, trace, bench, advise: tanada-lab (laboratory)
//! ```
//!
//! Results go to stdout, all else to stderr. Exit status: `report::terminal::Ending`, by `cli::ending`.

mod api;
mod cli;
mod daemon;

use std::process::ExitCode;

use clap::CommandFactory;
use cli::{Cli, Command, laboratory};
use report::terminal::{Ending, exit_code};

fn main() -> ExitCode {
    if let Some(error) = laboratory::help(std::env::args_os().skip(1)) {
        return failed(&error);
    }
    let words: Vec<_> = std::env::args_os().collect();
    let (command, note) = cli::current::read(&words).unwrap_or_else(|error| error.exit());
    if let Some(note) = note {
        eprintln!("{note}");
    }
    run(command).unwrap_or_else(|error| failed(&error))
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(wanted) => cli::one_store::run(*wanted),
        Command::Status(ask) => return cli::show::status(&ask),
        Command::Reload(arguments) => cli::reload::run(arguments),
        Command::Health(command) => return cli::health::run(command),
        Command::Device(command) => cli::device::run(command),
        Command::Model(command) => cli::model::run(command),
        Command::Client(command) => cli::clients::run(command),
        Command::Job(command) => cli::job::run(command),
        Command::Config(command) => cli::configuration::run(command),
        Command::Volume(command) => cli::volume::run(command),
        Command::Snapshot(command) => cli::snapshot::run(command),
        Command::Trash(command) => cli::trash::run(command),
        Command::Cluster(command) => cli::cluster_ca::run(command),
        Command::Node(command) => return cli::cluster_node::run_node(command),
        Command::Store(command) => cli::store::run(command),
        Command::Object(command) => cli::object::run(command),
        Command::Reservation(command) => return cli::reservation::run(command),
        Command::Reserve(old) => unreachable!("{old:?} is read as its new spelling"),
        Command::Slurm(command) => cli::slurm::run(command),
        Command::Account(command) => cli::account::run(command),
        Command::Token(command) => cli::token::run(command),
        Command::S3(command) => cli::s3::run(command),
        Command::Audit(command) => cli::audit::run(command),
        Command::Top(arguments) => cli::top::run(&arguments),
        Command::Schema(wanted) => cli::schema::run(&wanted),
        Command::Completion(wanted) => cli::words::complete(&wanted, Cli::command()),
        Command::Man(wanted) => cli::words::pages(&wanted, Cli::command()),
        Command::Doctor(arguments) => return cli::doctor::run(&arguments),
        Command::Experiment(passed) => laboratory::run("experiment", passed.arguments),
        Command::Sim(passed) => laboratory::run("sim", passed.arguments),
        Command::Predict(passed) => laboratory::run("predict", passed.arguments),
        Command::Bench(passed) => laboratory::run("bench", passed.arguments),
        Command::Trace(passed) => laboratory::run("trace", passed.arguments),
        Command::Advise(passed) => laboratory::advise(passed.arguments),
    }?;
    Ok(Ending::Done.into())
}

fn failed(error: &anyhow::Error) -> ExitCode {
    exit_code(error, cli::ending::of(error))
}
