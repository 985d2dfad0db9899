//! `tanada volume create, export, import, ...`: virtual disks.
//!
//! ```text
//! one question to a running daemon's admin API -> a table, or JSON
//! export, import: the admin API says where the volume is exported -> disk_copy over NBD
//! ```

use std::fmt::Write as _;
use std::path::PathBuf;

use base::{Bytes, Nanos};
use clap::{Args, Subcommand};
use hyper::Method;
use report::terminal::table;
use serde_json::{Map, Value};
use vdisk::record::{Fairness, Name, OnMetaLoss};

use super::ask::Ask;
use super::client::Client;
use super::cluster_files::{export, import};
use super::consent::Loss;
use super::named::{At, VolumeName, a_disk};
use super::{follow, old_words, show, volume_list};
use crate::api::cluster::{Disk as Shown, NewDisk, RepairAsk, Repaired, TakeOverAsk};
use crate::api::job::Job;
use crate::daemon::common::repair_text;

/// Volumes have a whole number of these many bytes.
const BLOCK: u64 = 4096;

/// Commands about virtual disks.
#[derive(Debug, Subcommand)]
pub enum Disk {
    /// Make a virtual disk: thin, with copies in several stores of the cluster.
    Create(Create),
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
        loss: Loss,
        #[command(flatten)]
        ask: Ask,
    },
    /// Fill a virtual disk from a raw file; it is made if it is not there. Holes stay holes.
    #[command(
        after_help = "Exit status 5 if the volume has data or clients and nothing was changed, also of --dry-run. Images of other formats are refused: `qemu-img convert -O raw vm.qcow2 vm.raw` makes a raw one. A volume \
with data is filled only with --replace; it asks for its name then, and wants --yes where no terminal can be asked."
    )]
    Import {
        /// The file.
        file: PathBuf,
        /// The volume.
        #[arg(value_parser = behind_a_file)]
        name: VolumeName,
        #[command(flatten)]
        how: Filling,
        #[command(flatten)]
        settings: DiskSettings,
        #[command(flatten)]
        ask: Ask,
    },
    /// Take a virtual disk over from another node whose clients of it are idle or gone, to use it here.
    #[command(
        after_help = "It is open here for a minute then, in which its client is to connect. Clients there get errors from then on."
    )]
    Takeover {
        /// The volume.
        #[arg(value_parser = a_disk)]
        name: Name,
        /// How long clients there must have sent nothing, 5s to 24h.
        #[arg(long, default_value = "30s", value_name = "SPAN", value_parser = an_idle_span)]
        idle: Nanos,
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
#[derive(Debug, Args)]
pub struct Repair {
    /// The volume.
    #[arg(value_parser = a_disk)]
    name: Name,
    /// How long to wait for copies to be resynced [default: as long as copies are made, 5m at most]
    #[arg(long, alias = "patience", value_name = "SPAN", value_parser = old_words::span_or_seconds)]
    timeout: Option<Nanos>,
    /// Delete copies that no map needs, of all volumes.
    #[arg(long)]
    free: bool,
    /// Begin it and do not wait for its end; `tanada job show` has what it found.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    ask: Ask,
}

/// A volume to be made.
#[derive(Debug, Args)]
pub struct Create {
    /// Its name; virtual:NAME where a hybrid is called so.
    name: VolumeName,
    /// Such as 10GiB.
    #[arg(long)]
    size: Bytes,
    #[command(flatten)]
    settings: DiskSettings,
    #[command(flatten)]
    ask: Ask,
}

/// How a volume is kept.
#[derive(Debug, Args)]
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
    /// Its requests are attached to what this holder has reserved at the stores (`tanada reservation create --holder`).
    #[arg(long, value_name = "WHO")]
    holder: Option<String>,
    /// What requests do while the meta store does not answer and the writer's lease has run out: wait, fail [default: wait]
    #[arg(long, value_name = "WHAT", value_parser = a_meta_loss)]
    on_meta_loss: Option<String>,
}

/// What an import may do.
#[derive(Debug, Args)]
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

/// The volume of an import; who names a file there has them the wrong way round.
fn behind_a_file(text: &str) -> Result<VolumeName, String> {
    let name: Result<VolumeName, String> = text.parse();
    name.map_err(|why| format!("{why}; the file comes first, then the volume"))
}

/// `30s`.
fn an_idle_span(text: &str) -> Result<Nanos, String> {
    let span = old_words::span_or_seconds(text)?;
    match (Nanos::secs(5)..=Nanos::secs(24 * 3600)).contains(&span) {
        true => Ok(span),
        false => Err("it is 5s to 24h".to_owned()),
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

pub(super) fn nothing() -> Map<String, Value> {
    Map::new()
}

/// How to use it, for people.
pub(super) fn connect(disk: &Shown) -> String {
    match disk.nbd.first() {
        Some(uri) => format!("clients find it at {}\n", show::quoted(uri)),
        None => "no address is exported here: [cluster] nbd names one\n".to_owned(),
    }
}

/// Runs one of the commands about virtual disks.
pub fn run(command: Disk) -> anyhow::Result<()> {
    match command {
        Disk::Create(create) => {
            let client = Client::new(create.ask.admin.clone())?;
            let name = volume_list::new_disk(&client, &create.name)?;
            let new = new_disk(&name, whole(create.size), &create.settings);
            create
                .ask
                .send(Method::POST, "/v1/cluster/volumes", &new, created)
        }
        Disk::Export {
            source,
            file,
            loss,
            ask,
        } => export(&source, &file, &loss, ask),
        Disk::Import {
            file,
            name,
            how,
            settings,
            ask,
        } => import(&file, &name, (&how, &settings), ask),
        Disk::Takeover { name, idle, ask } => {
            let wanted = TakeOverAsk {
                idle_seconds: Some(idle.0 / Nanos::secs(1).0),
            };
            let path = path(&name, "/takeover");
            ask.send(Method::POST, &path, &wanted, |disk| {
                format!("{name} is open here for a minute; {}", connect(disk))
            })
        }
        Disk::Repair(wanted) => repair(wanted),
    }
}

/// A volume has whole blocks: a size between two is rounded up, as `lvcreate` does, and that is said.
pub(super) fn whole(size: Bytes) -> Bytes {
    let rounded = rounded(size);
    if rounded != size {
        eprintln!(
            "note: {} bytes are no whole number of {BLOCK}: rounded up to {}",
            size.0, rounded.0
        );
    }
    rounded
}

fn rounded(size: Bytes) -> Bytes {
    // What is too large for that is too large for a volume, too.
    Bytes(size.0.checked_next_multiple_of(BLOCK).unwrap_or(size.0))
}

fn created(disk: &Shown) -> String {
    let copies = match disk.terms.copies {
        1 => "1 copy".to_owned(),
        many => format!("{many} copies"),
    };
    format!(
        "{} has {} and {copies}; {}",
        disk.terms.name,
        table::size(disk.terms.size_bytes),
        connect(disk)
    )
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
    let (name, ask, no_wait) = (wanted.name, wanted.ask, wanted.no_wait);
    let client = Client::new(ask.admin)?;
    let wanted = RepairAsk {
        timeout_seconds: wanted.timeout.map(|span| span.0.div_ceil(Nanos::secs(1).0)),
        free: wanted.free,
    };
    let begin = path(&name, "/repair?wait=false");
    let job: Job = client.send_json(Method::POST, &begin, &wanted)?;
    if no_wait {
        return show::answer(ask.json, &job, || {
            format!("`tanada job show {} --wait` follows it\n", job.id)
        });
    }
    let found: Repaired = follow::result(&client, job.id)?;
    show::answer(ask.json, &found, || repaired(&found))?;
    let well =
        found.volume.health == "healthy" && found.losses.is_empty() && found.damage_left.is_empty();
    match well {
        true => Ok(()),
        false => Err(anyhow::anyhow!(
            "{name} is not as it should be; bring back the stores that are named, or forget those that are gone for good \
             (`tanada node delete STORE --lost`), and repair it again"
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
    fn a_size_between_two_blocks_is_rounded_up() {
        for (size, expected) in [
            (4096, 4096),
            (1, 4096),
            (10_000_000_000, 10_000_003_072),
            (u64::MAX, u64::MAX),
        ] {
            assert_eq!(rounded(Bytes(size)), Bytes(expected), "{size}");
        }
    }
}
