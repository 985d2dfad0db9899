//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use config::DATA_DIR;

use crate::client::Target;

/// One fast, predictable, safe store out of slow and fast storage.
#[derive(Parser)]
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

#[derive(Subcommand)]
pub enum Command {
    /// Run the daemon: serve the disks of a configuration, or of the built-in one.
    Serve(Serve),
    /// Show what a running daemon does.
    Status(Ask),
    /// List a daemon's devices; list and measure device models.
    #[command(subcommand)]
    Device(Device),
    /// Look who is connected over NBD, and end connections.
    #[command(subcommand)]
    Client(crate::client_commands::Client),
    /// Make, look at and command volumes: hybrids of a daemon, and virtual disks of its cluster.
    #[command(subcommand)]
    Volume(Volume),
    /// Look at and command the nodes of a cluster.
    #[command(subcommand)]
    Node(crate::cluster_commands::Node),
    /// Make, check, serve and command object stores.
    #[command(subcommand)]
    Store(crate::store_commands::Store),
    /// Put, get, list and remove objects of a store.
    #[command(subcommand)]
    Object(crate::object_commands::Object),
    /// Reserve throughput and room in stores ahead of time.
    #[command(subcommand)]
    Reserve(crate::reserve_commands::Reserve),
    /// Watch a running daemon live.
    Top(Top),
    /// Look what this machine can do, what is missing, and how to get it.
    Doctor(Doctor),
    /// Repeat the papers' measurements in virtual time.
    Experiment(Passed),
    /// Simulate: what would policies and whole stacks have done with a trace?
    Sim(Passed),
    /// Predict what an application would do on a device that cannot be bought yet.
    Predict(Passed),
    /// Measure devices: what predictions are made from.
    Bench(Passed),
    /// Work on block traces: real ones, and generated ones.
    Trace(Passed),
    /// Advise which cache would do a trace or a running volume good, and what it would cost.
    Advise(Passed),
}

/// Arguments of a command that `tanada-lab` carries out, as they were typed.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Passed {
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    arguments: Vec<OsString>,
}

#[derive(Args)]
pub struct Serve {
    /// Configuration in TOML; without it two modelled devices make one hybrid disk.
    pub config: Option<PathBuf>,
    /// Where Tanada keeps its files [default: data_dir of the configuration, or tanada-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Check the configuration and stop.
    #[arg(long)]
    pub check: bool,
    /// Compare every clean page of each cache with its slow device before anything is served.
    #[arg(long)]
    pub verify: bool,
    /// Print the configuration and stop: the built-in one is a good start for your own.
    #[arg(long, conflicts_with = "check")]
    pub print_config: bool,
    /// How log lines look (on stderr; RUST_LOG says which, such as RUST_LOG=debug).
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Where the daemon is, and in which form to answer.
#[derive(Args)]
pub struct Ask {
    /// The daemon's admin API: HOST:PORT or unix:/path
    #[arg(
        long,
        env = "TANADA_ADMIN",
        value_name = "ADDR",
        default_value_t = Target::default()
    )]
    pub admin: Target,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum Device {
    /// List the devices of a running daemon.
    List(Ask),
    /// List the device models with their figures and where those come from.
    Models {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Measure a model (in virtual time) or a device or file (in real time).
    Bench {
        /// A model's name, the TOML file of an own model, or the path of a device or file.
        #[arg(value_name = "NAME|PATH")]
        target: String,
        /// Measure writes to a device or file as well; its data are lost.
        #[arg(long)]
        overwrite: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Subcommand)]
pub enum Volume {
    /// List the volumes, hybrids and virtual disks.
    List(Ask),
    /// Show one volume in full.
    Show {
        name: String,
        #[command(flatten)]
        ask: Ask,
    },
    /// Write all dirty data to the slow device and go on without the fast one.
    Detach {
        name: String,
        #[command(flatten)]
        ask: Ask,
    },
    /// Give a detached volume a fast device again.
    Attach {
        name: String,
        /// The device to attach [default: the one it had]
        #[arg(long, value_name = "DEVICE")]
        fast: Option<String>,
        /// Attach it although it holds the cache of another volume, which is then lost.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        ask: Ask,
    },
    /// Give up what only a lost or damaged cache had, while the daemon is stopped: the volume starts with an empty one.
    GiveUp(crate::cache_commands::OfCache),
    /// Take an earlier state of a cache as the right one, while the daemon is stopped: slow and fast were set back together.
    Accept(crate::cache_commands::OfCache),
    /// Open a cache that lost a part of its map with what is left, while the daemon is stopped, and list what may be lost or old.
    Rescue(crate::rescue_command::Rescue),
    /// Change settings of a running volume.
    #[command(
        after_help = "Keys: mode, write, policy, admission, dirty_low, dirty_high, energy, age_limit, \
                            sequential_bypass, flash_writes_per_day, fast_size, trace, trace_max, advise.\n\
                            Of the tier: tier.policy, period, iops_min, sub_luns_max, share_min, streak_min, \
                            timeout, look_back, region, extent, mover, lazy_down, flow_control, break_even, either, share, \
                            pinned, barred, windows, auto; lists have commas, and none is an empty one.\n\
                            trace=FILE records what is asked, for `tanada trace stat` and the \
                            simulators, in DATA_DIR/traces/FILE and FILE.1 to FILE.7 of together at most trace_max \
                            [1GiB]; trace=off ends it.\n\
                            advise=on has a shadow watch for `tanada advise NAME`; again: anew; \
                            advise=off ends it.\n\
                            Examples: tanada volume set vol0 write=through mode=cache\n\
                            tanada volume set vol0 mode=both period=10s pinned=10GiB+2GiB"
    )]
    Set {
        name: String,
        /// Settings of a hybrid; those of a virtual disk are the options below.
        #[arg(required_unless_present = "setting", value_name = "KEY=VALUE")]
        changes: Vec<String>,
        #[command(flatten)]
        disk: crate::disk_settings::SetDisk,
        #[command(flatten)]
        ask: Ask,
    },
    /// Show where a volume with a tier is hot, when, and what lives on the fast device.
    Heat(Heat),
    /// Show the log of moves of a volume's tier: what moved, when, why, and how it ended.
    Moves(Moves),
    #[command(flatten)]
    Disk(crate::cluster_commands::Disk),
}

#[derive(Args)]
pub struct Heat {
    pub name: String,
    /// Only the last so long, such as 2h [default: all that is kept]
    #[arg(long, value_name = "SPAN", value_parser = config::read_span)]
    pub last: Option<base::Nanos>,
    /// How many columns the map may take [default: those of the terminal]
    #[arg(long, value_name = "COLUMNS")]
    pub width: Option<usize>,
    /// Write a page: one self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    #[command(flatten)]
    pub ask: Ask,
}

#[derive(Args)]
pub struct Moves {
    pub name: String,
    /// Only moves of this region, by its number from 1.
    #[arg(long, value_name = "N")]
    pub region: Option<u32>,
    /// Only the last so long, such as 1h [default: all that is kept]
    #[arg(long, value_name = "SPAN", value_parser = config::read_span)]
    pub last: Option<base::Nanos>,
    /// The newest so many at most.
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub limit: usize,
    #[command(flatten)]
    pub ask: Ask,
}

#[derive(Args)]
pub struct Top {
    #[command(flatten)]
    pub ask: Ask,
    /// Print one frame as text and stop.
    #[arg(long)]
    pub once: bool,
    /// How long figures are gathered for one frame.
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    pub interval: Duration,
}

#[derive(Args)]
pub struct Doctor {
    /// Look also at the devices of this configuration.
    pub config: Option<PathBuf>,
    /// The data directory to look at.
    #[arg(long, value_name = "DIR", help = format!(
        "The data directory to look at [default: data_dir of the configuration, or {DATA_DIR}]"
    ))]
    pub data_dir: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
