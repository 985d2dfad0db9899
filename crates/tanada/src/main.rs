//! `tanada`: one fast, predictable, safe store out of slow and fast storage.
//!
//! ```text
//! command line -> serve:                config -> assemble -> data threads + admin API
//!              -> status, client, volume, node, store, reserve, top: one question to a running daemon's admin API
//!              -> object:               a client of a store
//!              -> device, doctor, experiment, trace: work of their own, no daemon needed
//! ```
//!
//! Results go to stdout, all else to stderr. Exit status 0: done; 1: the job failed; 2: bad usage or a
//! bad configuration.

mod admin;
mod advise;
mod advise_tier;
mod advise_volume;
mod assemble;
mod bench_app;
mod bench_commands;
mod cache_commands;
mod cli;
mod client;
mod client_commands;
mod cluster_commands;
mod cluster_tree;
mod config;
mod descriptors;
mod device_commands;
mod disk_copy;
mod disk_settings;
mod doctor;
mod experiment;
mod frame;
mod interrupt;
mod log;
mod look;
mod object_commands;
mod pairs;
mod predict_commands;
mod printable;
mod progress;
mod registry;
mod rescue_command;
mod reserve_commands;
mod said;
mod secrets;
mod serve;
mod show;
mod sim;
mod sim_cache;
mod sim_run;
mod sim_run_page;
mod sim_sweep;
mod sim_tier;
mod socket_folder;
mod store_commands;
mod store_tree;
mod table;
mod top;
mod trace_commands;
mod trace_generate;
mod trace_read;
mod trace_stat;
mod tree;
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
        Command::Experiment(command) => experiment::run(command),
        Command::Sim(command) => sim::run(command),
        Command::Predict(command) => predict_commands::run(command),
        Command::Bench(command) => bench_commands::run(command),
        Command::Trace(command) => trace_commands::run(command),
        Command::Advise(arguments) => advise::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tanada: {}", said::words(&error));
            match error.is::<config::ConfigError>() || error.is::<cli::Usage>() {
                true => ExitCode::from(2),
                false => ExitCode::FAILURE,
            }
        }
    }
}

/// `tanada ... | head` has what it wanted.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
