//! The command line.
//!
//! ```text
//! words -> current -> a file of commands -> client -> the daemon's admin API -> show: text or JSON
//!                                       \-> work of its own: files, devices, objects
//! ```
//!
//! Always true: no file of commands imports from this one; `current` does, which reads the words.

pub mod account;
pub mod advise;
pub mod ask;
pub mod audit;
mod authority_files;
pub mod cache;
mod capability_set;
mod check_stop;
pub mod client;
mod client_error;
mod client_tls;
pub mod clients;
pub mod cluster;
pub mod cluster_ca;
mod cluster_files;
pub mod cluster_node;
mod cluster_pages;
pub mod cluster_upgrade;
pub mod configuration;
mod consent;
pub mod current;
pub mod device;
pub mod device_claim;
mod device_rule;
pub mod disk_copy;
mod disk_image;
pub mod doctor;
mod doctor_kernel;
pub mod ending;
pub mod follow;
pub mod frame;
pub mod health;
pub mod job;
mod kernel_client;
pub mod laboratory;
pub mod model;
mod named;
pub mod object;
mod object_at;
mod object_files;
mod object_names;
mod old_words;
pub mod one_store;
pub mod options;
pub mod reload;
pub mod rescue;
pub mod reservation;
mod reservation_capability;
mod reservation_renewal;
mod reservation_run;
pub mod reservation_service;
mod reservation_wanted;
mod reservation_words;
pub mod reserve;
pub mod s3;
pub mod schema;
pub mod show;
pub mod slurm;
mod slurm_agent;
mod slurm_book;
mod slurm_directives;
mod slurm_install;
mod slurm_jobs;
mod slurm_pools;
mod slurm_reap;
mod slurm_settings;
pub mod snapshot;
pub mod store;
mod store_offline;
mod store_pages;
pub mod token;
pub mod top;
pub mod trash;
pub mod volume;
pub mod volume_heat;
mod volume_list;
pub mod volume_moves;
mod volume_set;
pub mod words;

use std::ffi::OsString;

use clap::{Args, Parser, Subcommand};

use ask::Ask;
use one_store::Serve;
use options::{Device, Doctor, Top, Volume};

/// One fast, predictable, safe store out of slow and fast storage.
#[derive(Debug, Parser)]
#[command(
    version,
    propagate_version = true,
    after_help = "Start with `tanada serve`: it makes one fast disk out of a big slow and a small fast \
                  one (both modelled, until you name your own) and prints how to connect."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon: serve the disks of a configuration, of the built-in one, or a single store.
    Serve(Box<Serve>),
    /// Show whether a running daemon is well, and what it serves; exit status 0, 3 or 4 as `health show`.
    Status(Ask),
    /// Have a running daemon read its configuration anew.
    Reload(reload::Reload),
    /// Say whether a running daemon is well, and what to do if not; mute what is known.
    #[command(subcommand)]
    Health(health::HealthCommand),
    /// List a daemon's devices; give disks to its group.
    #[command(subcommand)]
    Device(Device),
    /// List device models.
    #[command(subcommand)]
    Model(model::Model),
    /// Look who is connected over NBD, and end connections.
    #[command(subcommand)]
    Client(clients::Client),
    /// List, follow and cancel the long work of a daemon: scrubs, drains, detaches, repairs.
    #[command(subcommand)]
    Job(job::Job),
    /// Check a configuration, and see what was set of volumes beside it.
    #[command(subcommand)]
    Config(configuration::Config),
    /// Make, look at and command volumes: hybrids of a daemon, and virtual disks of its cluster.
    #[command(subcommand, visible_alias = "vol")]
    Volume(Volume),
    /// Keep states of virtual disks under a name, and go on from them.
    #[command(subcommand, visible_alias = "snap")]
    Snapshot(snapshot::Snapshot),
    /// List, restore and delete for good the virtual disks that were deleted.
    #[command(subcommand)]
    Trash(trash::Trash),
    /// Raise the level of a cluster; make and revoke its certificates.
    #[command(subcommand)]
    Cluster(cluster_ca::Cluster),
    /// Look at and command the nodes of a cluster.
    #[command(subcommand)]
    Node(cluster_node::Node),
    /// Make, check and command object stores.
    #[command(subcommand)]
    Store(store::Store),
    /// Put, get, list and delete objects of a store.
    #[command(subcommand)]
    Object(object::Object),
    /// Reserve throughput of volumes, stores and exports ahead of time, and run commands with it.
    #[command(subcommand)]
    Reservation(reservation::Reservation),
    #[command(subcommand, hide = true)]
    Reserve(old_words::Reserve),
    /// Make and change accounts: who may do what, and how much.
    #[command(subcommand)]
    Account(account::Account),
    /// Make, list and revoke the tokens of accounts.
    #[command(subcommand)]
    Token(token::Token),
    /// Gateways for S3 clients, and the access keys that they sign with.
    #[command(subcommand)]
    S3(s3::S3),
    /// Read the record of what was done, and check that it is whole.
    #[command(subcommand)]
    Audit(audit::Audit),
    /// Reserve throughput for jobs of Slurm: the hooks, timers and the agent that they use.
    Slurm(slurm::Slurm),
    /// Watch a running daemon live.
    Top(Top),
    /// Print what a command prints with --json, as a JSON schema.
    Schema(schema::Schema),
    /// Print the completion of commands for a shell.
    #[command(
        after_help = "Example: tanada completion bash > ~/.local/share/bash-completion/completions/tanada"
    )]
    Completion(words::Completion),
    /// Write the pages of the manual.
    #[command(hide = true)]
    Man(report::manual::Manual),
    /// Look what this machine can do, what is missing, and how to get it.
    Doctor(Doctor),
    /// Repeat the papers' measurements in virtual time.
    Experiment(Passed),
    /// Simulate: what would policies and whole stacks have done with a trace?
    Sim(Passed),
    /// Predict what an application would do on a device that cannot be bought yet.
    Predict(Passed),
    /// Measure devices, device models and databases: what predictions are made from.
    Bench(Passed),
    /// Work on block traces: real ones, and generated ones.
    Trace(Passed),
    /// Advise which cache would do a trace or a running volume good, and what it would cost.
    Advise(Passed),
}

/// Arguments of a command that `tanada-lab` carries out, as they were typed.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Passed {
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    pub arguments: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    /// Nothing but what a command does stands at the head of its help.
    fn check_head(command: &clap::Command) {
        let head = command.get_about().map(ToString::to_string);
        let of_options = head.is_some_and(|it| it.starts_with("Where the daemon is"));
        assert!(!of_options, "{}", command.get_name());
        command.get_subcommands().for_each(check_head);
    }

    #[test]
    fn the_help_of_each_command_is_headed_by_what_it_does() {
        check_head(&Cli::command());
    }

    #[test]
    fn a_command_says_where_it_looks_for_a_daemon() {
        let mut all = Cli::command();
        let help = all.find_subcommand_mut("status").unwrap().render_help();
        let words: Vec<String> = help
            .to_string()
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        let words = words.join(" ");
        assert!(
            words.contains("[default: /run/tanada/admin.sock or tanada-data/admin.sock"),
            "{words}"
        );
        let error = client::ClientError::NoDaemon {
            target: "127.0.0.1:1".parse().unwrap(),
            source: std::io::ErrorKind::ConnectionRefused.into(),
        };
        assert!(
            error
                .to_string()
                .contains("/run/tanada/admin.sock and tanada-data/admin.sock")
        );
    }
}
