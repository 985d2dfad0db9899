//! `tanada volume create, clone, ...` and `tanada node ...`: virtual disks and the stores they are kept in.
//!
//! ```text
//! one question to a running daemon's admin API -> a table, or JSON
//! export, import: the admin API says where the volume is exported -> disk_copy over NBD
//! ```

use std::fmt::Write as _;
use std::path::PathBuf;

use base::Bytes;
use clap::{Args, Subcommand};
use hyper::Method;
use report::terminal::{Usage, table};
use serde_json::{Map, Value};
use vdisk::record::{Fairness, Name, OnMetaLoss};

use super::ask::Ask;
use super::client::Client;
use super::cluster_files::{export, import};
use super::cluster_pages::snapshots;
use super::show;
use crate::api::cluster::{
    Called, Disk as Shown, DiskChange, Done, NewDisk, RepairAsk, Repaired, TakeOverAsk,
};
use crate::daemon::common::repair_text;

/// Commands about virtual disks.
#[derive(Subcommand)]
pub enum Disk {
    /// Make a virtual disk: thin, with copies in several stores of the cluster.
    Create(Create),
    /// Keep a virtual disk as it is now under a name; it may be in use.
    Snapshot {
        /// The volume.
        #[arg(value_name = "VOLUME")]
        volume: Name,
        /// The snapshot's name.
        #[arg(value_name = "NAME")]
        name: Name,
        #[command(flatten)]
        ask: Ask,
    },
    /// List the snapshots of a virtual disk.
    Snapshots {
        /// The volume.
        name: Name,
        #[command(flatten)]
        ask: Ask,
    },
    /// Make a virtual disk that begins as a snapshot is; it takes no room until it is written.
    Clone {
        /// Of which volume, and its name.
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        source: At,
        /// The new volume.
        #[arg(value_name = "NAME")]
        name: Name,
        #[command(flatten)]
        ask: Ask,
    },
    /// Let a virtual disk that no client uses go on from one of its snapshots; what was written since is lost.
    Rollback {
        /// Which volume, and where to.
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        target: At,
        #[command(flatten)]
        ask: Ask,
    },
    /// Give a virtual disk another size; clients see it when they connect again. A smaller one needs --shrink.
    Resize {
        /// The volume.
        name: Name,
        /// Such as 20GiB.
        size: Bytes,
        /// It may become smaller: what lies behind its new end is gone then.
        #[arg(long)]
        shrink: bool,
        #[command(flatten)]
        ask: Ask,
    },
    /// Give a virtual disk that no client uses another name.
    Rename {
        /// As it is called.
        name: Name,
        /// As it will be.
        new: Name,
        #[command(flatten)]
        ask: Ask,
    },
    /// Write a virtual disk, or a snapshot of it, to a raw file; what was never written becomes holes.
    #[command(
        after_help = "qemu-img reads and converts the file: `qemu-img convert -O qcow2 FILE vm.qcow2`."
    )]
    Export {
        /// The volume, or a snapshot of it.
        #[arg(value_name = "VOLUME[@SNAPSHOT]")]
        source: At,
        /// The file; - is the standard output.
        file: PathBuf,
        #[command(flatten)]
        ask: Ask,
    },
    /// Fill a virtual disk from a raw file; it is made if it is not there. Holes stay holes.
    #[command(
        after_help = "Images of other formats are refused: `qemu-img convert -O raw vm.qcow2 vm.raw` makes a raw one. A volume \
with data is filled only with --replace; it asks for its name then, and wants --yes where no terminal can be asked."
    )]
    Import {
        /// The file.
        file: PathBuf,
        /// The volume.
        name: Name,
        #[command(flatten)]
        how: Filling,
        #[command(flatten)]
        settings: DiskSettings,
        #[command(flatten)]
        ask: Ask,
    },
    /// Remove a virtual disk, or one of its snapshots; its room comes back by and by.
    Rm {
        /// The volume, or the snapshot.
        #[arg(value_name = "VOLUME[@SNAPSHOT]")]
        what: At,
        #[command(flatten)]
        ask: Ask,
    },
    /// Take a virtual disk over from another node whose clients of it are idle or gone, to use it here.
    #[command(
        after_help = "It is open here for a minute then, in which its client is to connect. Clients there get errors from then on."
    )]
    Takeover {
        /// The volume.
        name: Name,
        /// How long clients there must have sent nothing, in seconds.
        #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(5..=86_400))]
        idle: u64,
        #[command(flatten)]
        ask: Ask,
    },
    /// Resync the copies of a virtual disk, repair what scrubs found damaged, and look whether all is there.
    #[command(
        after_help = "Exit status 1 if it is not healthy in the end, a copy is missing, or no copy has what is damaged."
    )]
    Repair(Repair),
}

/// What a repair of a virtual disk may do.
#[derive(Args)]
pub struct Repair {
    /// The volume.
    name: Name,
    /// How long to wait for copies to be resynced, in seconds; unless given as long as copies are made, 300 s at most.
    #[arg(long, alias = "patience", value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Delete copies that no map needs, of all volumes.
    #[arg(long)]
    free: bool,
    #[command(flatten)]
    ask: Ask,
}

/// A volume to be made.
#[derive(Args)]
pub struct Create {
    /// Its name.
    name: Name,
    /// Such as 10GiB.
    #[arg(long)]
    size: Bytes,
    #[command(flatten)]
    settings: DiskSettings,
    #[command(flatten)]
    ask: Ask,
}

/// How a volume is kept.
#[derive(Args)]
pub struct DiskSettings {
    /// Copies of each extent, 1 to 3 [default: 2, or 1 where all stores are in one failure domain]
    #[arg(long, value_name = "N")]
    copies: Option<u8>,
    /// How many copies a write must reach at least [default: 1 of up to 2, 2 of 3]
    #[arg(long, value_name = "N")]
    min_copies: Option<u8>,
    /// Its clients beside others at the same disks: low, normal, high.
    #[arg(long, default_value = "normal", value_name = "CLASS", value_parser = a_priority)]
    priority: String,
    /// Keep clients of one class apart: a seek behind another one counts so often, 1 to 100 [default: 1]
    #[arg(long, value_name = "TIMES")]
    fairness: Option<Fairness>,
    /// Its requests are attached to what this holder has reserved at the stores (`tanada reserve add --holder`).
    #[arg(long, value_name = "WHO")]
    holder: Option<String>,
    /// What requests do while the meta store does not answer and the writer's lease has run out: wait, fail [default: wait]
    #[arg(long, value_name = "WHAT", value_parser = a_meta_loss)]
    on_meta_loss: Option<String>,
}

/// What an import may do.
#[derive(Args)]
pub struct Filling {
    /// Replace what the volume has.
    #[arg(long)]
    pub replace: bool,
    /// Ask nothing before data are replaced.
    #[arg(long, requires = "replace")]
    pub yes: bool,
    /// Say what would be done, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// It is raw, whatever it looks like: raw.
    #[arg(long, value_name = "FORMAT", value_parser = ["raw"])]
    pub format: Option<String>,
}

/// `VOLUME` or `VOLUME@SNAPSHOT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    pub volume: Name,
    pub snapshot: Option<Name>,
}

impl std::str::FromStr for At {
    type Err = vdisk::record::BadName;

    fn from_str(text: &str) -> Result<At, Self::Err> {
        let (volume, snapshot) = match text.split_once('@') {
            Some((volume, snapshot)) => (volume, Some(snapshot.parse()?)),
            None => (text, None),
        };
        let volume = volume.parse()?;
        Ok(At { volume, snapshot })
    }
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.snapshot {
            Some(snapshot) => write!(f, "{}@{snapshot}", self.volume),
            None => write!(f, "{}", self.volume),
        }
    }
}

pub fn a_priority(text: &str) -> Result<String, String> {
    config::export::priority(text).map(|_| text.to_owned())
}

pub fn a_meta_loss(text: &str) -> Result<String, String> {
    text.parse::<OnMetaLoss>().map(|_| text.to_owned())
}

pub fn path(volume: &Name, rest: &str) -> String {
    format!("/v1/cluster/volumes/{volume}{rest}")
}

pub(super) fn snapshot_path(at: &At, rest: &str) -> Result<String, Usage> {
    let Some(snapshot) = &at.snapshot else {
        return Err(Usage(format!(
            "name a snapshot, such as {at}@monday; `tanada volume snapshots {at}` lists them"
        )));
    };
    Ok(path(&at.volume, &format!("/snapshots/{snapshot}{rest}")))
}

pub(super) fn nothing() -> Map<String, Value> {
    Map::new()
}

fn called(name: &Name) -> Called {
    Called {
        name: name.to_string(),
    }
}

/// How to use it, for people.
fn connect(disk: &Shown) -> String {
    match disk.nbd.first() {
        Some(uri) => format!("clients find it at {}\n", show::quoted(uri)),
        None => "no address is exported here: [cluster] nbd names one\n".to_owned(),
    }
}

/// Runs one of the commands about virtual disks.
pub fn run(command: Disk) -> anyhow::Result<()> {
    match command {
        Disk::Create(create) => {
            let new = new_disk(&create.name, create.size, &create.settings);
            create
                .ask
                .send(Method::POST, "/v1/cluster/volumes", &new, created)
        }
        Disk::Snapshots { name, ask } => list_snapshots(&name, ask),
        Disk::Export { source, file, ask } => export(&source, &file, ask),
        Disk::Import {
            file,
            name,
            how,
            settings,
            ask,
        } => import(&file, &name, (&how, &settings), ask),
        Disk::Resize {
            name,
            size,
            shrink,
            ask,
        } => resize(&name, size, shrink, ask),
        Disk::Rename { name, new, ask } => rename(&name, &new, ask),
        Disk::Takeover { name, idle, ask } => {
            let wanted = TakeOverAsk {
                idle_seconds: Some(idle),
            };
            let path = path(&name, "/takeover");
            ask.send(Method::POST, &path, &wanted, |disk| {
                format!("{name} is open here for a minute; {}", connect(disk))
            })
        }
        Disk::Repair(wanted) => repair(wanted),
        Disk::Snapshot { volume, name, ask } => snapshot(&volume, &name, ask),
        Disk::Clone { source, name, ask } => {
            let path = snapshot_path(&source, "/clone")?;
            ask.send(Method::POST, &path, &called(&name), |disk| {
                format!("{name} begins as {source} is; {}", connect(disk))
            })
        }
        Disk::Rollback { target, ask } => {
            let path = snapshot_path(&target, "/rollback")?;
            ask.send(Method::POST, &path, &nothing(), |_: &Shown| {
                format!("{} goes on from {target}\n", target.volume)
            })
        }
        Disk::Rm { what, ask } => remove(&what, ask),
    }
}

fn created(disk: &Shown) -> String {
    format!(
        "{} has {} and {} copies; {}",
        disk.terms.name,
        table::size(disk.terms.size_bytes),
        disk.terms.copies,
        connect(disk)
    )
}

fn snapshot(volume: &Name, name: &Name, ask: Ask) -> anyhow::Result<()> {
    let path = path(volume, "/snapshots");
    ask.send(Method::POST, &path, &called(name), |_: &Shown| {
        format!(
            "{volume}@{name} is kept; `tanada volume clone {volume}@{name} NEW` makes a volume of it\n"
        )
    })
}

fn list_snapshots(name: &Name, ask: Ask) -> anyhow::Result<()> {
    let disk: Shown = Client::new(ask.admin)?.get(&path(name, ""))?;
    show::answer(ask.json, &disk.snapshots, || {
        match disk.snapshots.is_empty() {
            true => format!("{name} has no snapshots\n"),
            false => snapshots(&disk),
        }
    })
}

fn resize(name: &Name, size: Bytes, shrink: bool, ask: Ask) -> anyhow::Result<()> {
    let change = DiskChange {
        size_bytes: Some(size.0),
        shrink,
        ..DiskChange::default()
    };
    ask.send(Method::PATCH, &path(name, ""), &change, |disk: &Shown| {
        format!("{name} has {} now\n", table::size(disk.terms.size_bytes))
    })
}

fn rename(name: &Name, new: &Name, ask: Ask) -> anyhow::Result<()> {
    let change = DiskChange {
        name: Some(new.to_string()),
        ..DiskChange::default()
    };
    ask.send(Method::PATCH, &path(name, ""), &change, |_: &Shown| {
        format!("{name} is called {new} now\n")
    })
}

fn remove(what: &At, ask: Ask) -> anyhow::Result<()> {
    let path = match what.snapshot {
        None => path(&what.volume, ""),
        Some(_) => snapshot_path(what, "")?,
    };
    ask.send(Method::DELETE, &path, &nothing(), |_: &Done| {
        format!("{what} is gone; its room comes back by and by\n")
    })
}

pub(super) fn new_disk(name: &Name, size: Bytes, settings: &DiskSettings) -> NewDisk {
    NewDisk {
        name: name.to_string(),
        size_bytes: size.0,
        copies: settings.copies,
        min_copies: settings.min_copies,
        priority: Some(settings.priority.clone()),
        fairness: settings.fairness.map(Fairness::as_f64),
        holder: settings.holder.clone(),
        on_meta_loss: settings.on_meta_loss.clone(),
    }
}

fn repair(wanted: Repair) -> anyhow::Result<()> {
    let (name, ask) = (wanted.name, wanted.ask);
    let client = Client::new(ask.admin)?;
    let wanted = RepairAsk {
        timeout_seconds: wanted.timeout,
        free: wanted.free,
    };
    let found: Repaired = client.send_json(Method::POST, &path(&name, "/repair"), &wanted)?;
    show::answer(ask.json, &found, || repaired(&found))?;
    let well =
        found.volume.health == "healthy" && found.losses.is_empty() && found.damage_left.is_empty();
    match well {
        true => Ok(()),
        false => Err(anyhow::anyhow!(
            "{name} is not as it should be; bring back the stores that are named, or forget those that are gone for good \
             (`tanada node remove STORE --lost`), and repair it again"
        )),
    }
}

fn repaired(found: &Repaired) -> String {
    let mut text = format!("{}: {}", found.volume.terms.name, found.volume.health);
    if !found.volume.why.is_empty() {
        let _ = write!(text, " ({})", found.volume.why);
    }
    let _ = writeln!(
        text,
        "\n{} extents reconciled, {} resynced to stores that were out, {} copies repaired",
        found.reconciled_extents, found.resynced_extents, found.repaired_copies
    );
    if found.repaired_bytes > 0 {
        let size = table::size(found.repaired_bytes);
        let _ = writeln!(text, "{size} of damage written anew from other copies");
    }
    text += &repair_text::damaged(&found.damage_left, found.damage_left_more);
    let unknown = &found.unknown_store_names;
    text += &repair_text::missing(found.missing_copies, &found.losses, unknown);
    if found.leaked_copies > 0 {
        let what = match found.freed {
            true => "deleted",
            false => "--free deletes them",
        };
        let _ = writeln!(
            text,
            "{} copies that no map needs; {what}",
            found.leaked_copies
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_named_behind_its_volume() {
        let at: At = "vm1@monday".parse().unwrap();
        assert_eq!(
            (at.volume.as_str(), at.to_string().as_str()),
            ("vm1", "vm1@monday")
        );
        assert_eq!("vm1".parse::<At>().unwrap().snapshot, None);
        assert!("vm1@".parse::<At>().is_err() && "vm1@a@b".parse::<At>().is_err());
        let refused = snapshot_path(&"vm1".parse().unwrap(), "").unwrap_err();
        assert!(refused.0.contains("vm1@monday"), "{}", refused.0);
    }
}
