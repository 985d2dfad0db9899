//! What is typed behind `tanada device`, `volume`, `top` and `doctor`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use config::DATA_DIR;

use super::ask::Ask;
use super::{cache, cluster, device_claim, disk_settings, rescue};

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
    GiveUp(cache::OfCache),
    /// Take an earlier state of a cache as the right one, while the daemon is stopped: slow and fast were set back together.
    Accept(cache::OfCache),
    /// Open a cache that lost a part of its map with what is left, while the daemon is stopped, and list what may be lost or old.
    Rescue(rescue::Rescue),
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
        /// Of a hybrid: only until the daemon ends; else it is kept, before what the configuration says.
        #[arg(long, conflicts_with = "setting")]
        until_restart: bool,
        #[command(flatten)]
        disk: disk_settings::SetDisk,
        #[command(flatten)]
        ask: Ask,
    },
    /// Show where a volume with a tier is hot, when, and what lives on the fast device.
    Heat(Heat),
    /// Show the log of moves of a volume's tier: what moved, when, why, and how it ended.
    Moves(Moves),
    #[command(flatten)]
    Disk(cluster::Disk),
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

#[derive(Subcommand)]
pub enum Device {
    /// List the devices of a running daemon.
    List(Ask),
    /// Give a disk to the daemon's group, tanada, now and at every start of the machine, by a udev rule on its serial number.
    #[command(after_help = "Example: sudo tanada device claim /dev/sdb --dry-run")]
    Claim(device_claim::Claim),
    /// Take a disk back that was claimed.
    Release(device_claim::Claim),
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
