//! What is typed behind `tanada volume`, `device`, `top` and `doctor`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use config::DATA_DIR;

use super::ask::Ask;
use super::consent::Loss;
use super::named::VolumeName;
use super::{cache, cluster, device_claim, old_words, rescue, trash};

#[derive(Debug, Subcommand)]
pub enum Volume {
    /// List the volumes, hybrids and virtual disks.
    #[command(visible_alias = "ls")]
    List(Ask),
    /// Show one volume in full.
    #[command(visible_alias = "info")]
    Show {
        /// Its name; hybrid:NAME or virtual:NAME where two are called so.
        name: VolumeName,
        #[command(flatten)]
        ask: Ask,
    },
    /// Delete a virtual disk with its snapshots: it is in the trash for 7 days, and then gone.
    #[command(visible_alias = "rm")]
    Delete(trash::DeleteVolume),
    /// Write all dirty data to the slow device and go on without the fast one; Ctrl-C leaves that running.
    Detach {
        /// Its name.
        name: VolumeName,
        /// Begin it and do not wait for its end.
        #[arg(long)]
        no_wait: bool,
        #[command(flatten)]
        ask: Ask,
    },
    /// Give a detached volume a fast device again.
    Attach {
        /// Its name.
        name: VolumeName,
        /// The device to attach [default: the one it had]
        #[arg(long, value_name = "DEVICE")]
        fast: Option<String>,
        /// Attach it although it holds the cache of another volume, which is then lost.
        #[arg(long)]
        force: bool,
        /// Begin with an empty cache in place of one that is not there.
        #[arg(long)]
        new_cache: bool,
        /// Also where the cache that is not there may hold what the slow device has not, which is then lost.
        #[arg(long, requires = "new_cache")]
        lose_dirty: bool,
        #[command(flatten)]
        loss: Loss,
        #[command(flatten)]
        ask: Ask,
    },
    /// Give up what only a lost or damaged cache had, while the daemon is stopped: the volume starts with an empty one.
    GiveUp(cache::Decision),
    /// Take an earlier state of a cache as the right one, while the daemon is stopped: slow and fast were set back together.
    Accept(cache::Decision),
    /// Open a cache that lost a part of its map with what is left, while the daemon is stopped, and list what may be lost or old.
    Rescue(rescue::Rescue),
    /// Change settings of a volume; of a virtual disk also its size and name.
    #[command(
        after_help = "Keys of hybrids: mode, write, policy, admission, dirty_low, dirty_high, energy, age_limit, \
                            sequential_bypass, flash_writes_per_day, fast_size, trace, trace_max, advise.\n\
                            Of the tier: tier.policy, period, iops_min, sub_luns_max, share_min, streak_min, \
                            timeout, look_back, region, extent, mover, lazy_down, flow_control, break_even, either, share, \
                            pinned, barred, windows, auto; lists have commas, and none is an empty one.\n\
                            Keys of virtual disks: size, name, priority, fairness, min_copies, holder, on_meta_loss.\n\
                            Of both: max_read, max_write, max_read_iops, max_write_iops; off ends a cap.\n\
                            trace=FILE records what is asked, for `tanada trace show` and the \
                            simulators, in DATA_DIR/traces/FILE and FILE.1 to FILE.7 of together at most trace_max \
                            [1GiB]; trace=off ends it.\n\
                            advise=on has a shadow watch for `tanada advise NAME`; again: anew; \
                            advise=off ends it.\n\
                            Examples: tanada volume set vol0 write=through mode=cache\n\
                            tanada volume set vol0 mode=both period=10s pinned=10GiB+2GiB\n\
                            tanada volume set vm1 size=20GiB priority=high holder="
    )]
    Set(Box<SetVolume>),
    /// Show where a volume with a tier is hot, when, and what lives on the fast device.
    Heat(Heat),
    /// Show the log of moves of a volume's tier: what moved, when, why, and how it ended.
    Moves(Moves),
    #[command(flatten)]
    Disk(cluster::Disk),
    #[command(flatten)]
    Old(old_words::Volume),
}

#[derive(Debug, Args)]
pub struct SetVolume {
    /// Its name; hybrid:NAME or virtual:NAME where two are called so.
    pub name: VolumeName,
    /// What is to change.
    #[arg(required_unless_present = "old_setting", value_name = "KEY=VALUE")]
    pub changes: Vec<String>,
    /// Of a hybrid: only until the daemon ends; else it is kept, before what the configuration says.
    #[arg(long)]
    pub until_restart: bool,
    /// Of a virtual disk: it may become smaller; what lies behind its new end is lost then.
    #[arg(long)]
    pub shrink: bool,
    /// Ask nothing before it becomes smaller.
    #[arg(long, requires = "shrink")]
    pub yes: bool,
    /// Say what would be lost, and change nothing.
    #[arg(long, requires = "shrink")]
    pub dry_run: bool,
    #[command(flatten)]
    pub old: old_words::DiskOptions,
    #[command(flatten)]
    pub ask: Ask,
}

#[derive(Debug, Args)]
pub struct Heat {
    /// Its name.
    pub name: VolumeName,
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

#[derive(Debug, Args)]
pub struct Moves {
    /// Its name.
    pub name: VolumeName,
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

#[derive(Debug, Args)]
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

#[derive(Debug, Args)]
pub struct Top {
    #[command(flatten)]
    pub ask: Ask,
    /// Print one frame as text and stop.
    #[arg(long)]
    pub once: bool,
    /// How long figures are gathered for one frame.
    #[arg(long, default_value = "1s", value_name = "SPAN", value_parser = config::read_span)]
    pub interval: base::Nanos,
}

#[derive(Debug, Subcommand)]
pub enum Device {
    /// List the devices of a running daemon.
    #[command(visible_alias = "ls")]
    List(Ask),
    /// Show a device, and what it was asked.
    #[command(visible_alias = "info")]
    Show {
        /// Its name.
        name: String,
        #[command(flatten)]
        ask: Ask,
    },
    /// Give a disk to the daemon's group, tanada, now and at every start of the machine, by a udev rule on its serial number.
    #[command(after_help = "Example: sudo tanada device claim /dev/sdb --dry-run")]
    Claim(device_claim::Claim),
    /// Take a disk back that was claimed.
    Release(device_claim::Claim),
    #[command(flatten)]
    Old(old_words::Device),
}
