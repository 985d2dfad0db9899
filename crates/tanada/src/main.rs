//! `tanada`: one fast, predictable, safe store out of slow and fast storage.
//!
//! ```text
//! command line -> serve:                config -> assemble -> data threads + admin API
//!              -> status, client, volume, node, store, reserve, top: one question to a running daemon's admin API
//!              -> object:               a client of a store
//!              -> device, doctor:       work of their own, no daemon needed
//!              -> sim, experiment, predict, trace, bench, advise: tanada-lab (laboratory)
//! ```
//!
//! Results go to stdout, all else to stderr. Exit status 0: done; 1: the job failed; 2: bad usage or a
//! bad configuration.

mod admin;
mod advise_volume;
mod assemble;
mod cache_commands;
mod cli;
mod client;
mod client_commands;
mod cluster_commands;
mod cluster_tree;
mod descriptors;
mod device_commands;
mod disk_copy;
mod disk_settings;
mod doctor;
mod frame;
mod laboratory;
mod log;
mod look;
mod object_commands;
mod pairs;
mod registry;
mod repair_text;
mod rescue_command;
mod reserve_commands;
mod secrets;
mod serve;
mod show;
mod socket_folder;
mod store_commands;
mod store_tree;
mod thread;
mod top;
mod volume;
mod volume_commands;
mod volume_exports;
mod volume_heat;
mod volume_mode;
mod volume_moves;
mod when;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

fn main() -> ExitCode {
    if let Some(error) = laboratory::help(std::env::args_os().skip(1)) {
        return report::terminal::exit_code(&error, false);
    }
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::Status(ask) => show::status(&ask),
        Command::Device(command) => device_commands::run(command),
        Command::Client(command) => client_commands::run(command),
        Command::Volume(command) => volume_commands::run(command),
        Command::Node(command) => cluster_commands::run_node(command),
        Command::Store(command) => store_commands::run(command),
        Command::Object(command) => object_commands::run(command),
        Command::Reserve(command) => reserve_commands::run(command),
        Command::Top(arguments) => top::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Experiment(_) => laboratory::run("experiment", laboratory::words()),
        Command::Sim(_) => laboratory::run("sim", laboratory::words()),
        Command::Predict(_) => laboratory::run("predict", laboratory::words()),
        Command::Bench(_) => laboratory::run("bench", laboratory::words()),
        Command::Trace(_) => laboratory::run("trace", laboratory::words()),
        Command::Advise(_) => laboratory::advise(laboratory::words()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report::terminal::exit_code(&error, error.is::<config::ConfigError>()),
    }
}
