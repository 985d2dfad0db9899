//! `tanada volume create, clone, ...` and `tanada node ...`: virtual disks and the stores they are kept in.
//!
//! ```text
//! one question to a running daemon's admin API -> a table, or JSON
//! export, import: the admin API says where the volume is exported -> disk_copy over NBD
//! ```

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use base::Bytes;
use clap::{Args, Subcommand};
use hyper::Method;
use report::terminal::{Usage, table};
use serde_json::{Map, Value};
use vdisk::record::{Fairness, Name, OnMetaLoss};

use super::ask::Ask;
use super::client::Client;
use super::{disk_copy, show};
use crate::api::cluster::{
    Called, ClusterStore, Disk as Shown, DiskChange, Done, Here, NewDisk, RepairAsk, Repaired,
    StoreAsk, StoreChange, TakeOverAsk,
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
    Import {
        /// The file.
        file: PathBuf,
        /// The volume.
        name: Name,
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

/// Commands about nodes and their stores.
#[derive(Subcommand)]
pub enum Node {
    /// List the cluster's stores and the nodes they are on.
    List(Ask),
    /// Register a store of a node that does not do so by itself (`tanada store serve`). Nodes with a `[cluster]` need no such thing.
    Add {
        /// What the node is called.
        node: Name,
        /// What the store is called.
        #[arg(long, value_name = "NAME")]
        store: Name,
        /// Where it listens: HOST:PORT or unix:/path
        #[arg(long, value_name = "ADDR")]
        address: String,
        /// What it fails together with [default: the node]
        #[arg(long, value_name = "NAME")]
        domain: Option<Name>,
        /// Its number [default: the next one]
        #[arg(long, value_name = "N")]
        number: Option<u16>,
        /// It has heads to move.
        #[arg(long)]
        rotating: bool,
        #[command(flatten)]
        ask: Ask,
    },
    /// Move what is on a node's stores, or on one of them, to others; with --undo, let new data go there again.
    #[command(
        after_help = "It goes on by itself, also after restarts; `tanada node list` shows how far it is."
    )]
    Drain {
        /// The node, or a store.
        name: Name,
        /// Let new data go there again.
        #[arg(long)]
        undo: bool,
        /// Wait until nothing is left there.
        #[arg(long, conflicts_with = "undo")]
        wait: bool,
        #[command(flatten)]
        ask: Ask,
    },
    /// Forget a node's stores, or one of them: those that were drained, or with --lost those that are gone for good.
    Remove {
        /// The node, or a store.
        name: Name,
        /// It is gone for good, with all that it had.
        #[arg(long)]
        lost: bool,
        #[command(flatten)]
        ask: Ask,
    },
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

fn snapshot_path(at: &At, rest: &str) -> Result<String, Usage> {
    let Some(snapshot) = &at.snapshot else {
        return Err(Usage(format!(
            "name a snapshot, such as {at}@monday; `tanada volume snapshots {at}` lists them"
        )));
    };
    Ok(path(&at.volume, &format!("/snapshots/{snapshot}{rest}")))
}

fn nothing() -> Map<String, Value> {
    Map::new()
}

pub fn print_disk(disk: &Shown, json: bool, said: &str) -> anyhow::Result<()> {
    match json {
        true => show::json(disk),
        false => show::text(said),
    }
}

fn done(done: &Done, json: bool, said: &str) -> anyhow::Result<()> {
    match json {
        true => show::json(done),
        false => show::text(said),
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
            let client = Client::new(create.ask.admin)?;
            let new = new_disk(&create.name, create.size, &create.settings);
            let disk: Shown = client.send_json(Method::POST, "/v1/cluster/volumes", &new)?;
            let said = format!(
                "{} has {} and {} copies; {}",
                disk.name,
                table::size(disk.size_bytes),
                disk.copies,
                connect(&disk)
            );
            print_disk(&disk, create.ask.json, &said)
        }
        Disk::Snapshot { volume, name, ask } => {
            let called = Called {
                name: name.to_string(),
            };
            let path = path(&volume, "/snapshots");
            let disk: Shown = Client::new(ask.admin)?.send_json(Method::POST, &path, &called)?;
            let said = format!(
                "{volume}@{name} is kept; `tanada volume clone {volume}@{name} NEW` makes a volume of it\n"
            );
            print_disk(&disk, ask.json, &said)
        }
        Disk::Snapshots { name, ask } => {
            let disk: Shown = Client::new(ask.admin)?.get(&path(&name, ""))?;
            match ask.json {
                true => show::json(&disk.snapshots),
                false if disk.snapshots.is_empty() => {
                    show::text(&format!("{name} has no snapshots\n"))
                }
                false => show::text(&snapshots(&disk)),
            }
        }
        Disk::Clone { source, name, ask } => {
            let path = snapshot_path(&source, "/clone")?;
            let called = Called {
                name: name.to_string(),
            };
            let disk: Shown = Client::new(ask.admin)?.send_json(Method::POST, &path, &called)?;
            let said = format!("{name} begins as {source} is; {}", connect(&disk));
            print_disk(&disk, ask.json, &said)
        }
        Disk::Rollback { target, ask } => {
            let path = snapshot_path(&target, "/rollback")?;
            let disk: Shown = Client::new(ask.admin)?.send_json(Method::POST, &path, &nothing())?;
            print_disk(
                &disk,
                ask.json,
                &format!("{} goes on from {target}\n", target.volume),
            )
        }
        Disk::Resize {
            name,
            size,
            shrink,
            ask,
        } => {
            let change = DiskChange {
                size_bytes: Some(size.0),
                shrink,
                ..DiskChange::default()
            };
            let path = path(&name, "");
            let disk: Shown = Client::new(ask.admin)?.send_json(Method::PATCH, &path, &change)?;
            let said = format!("{name} has {} now\n", table::size(disk.size_bytes));
            print_disk(&disk, ask.json, &said)
        }
        Disk::Rename { name, new, ask } => {
            let change = DiskChange {
                name: Some(new.to_string()),
                ..DiskChange::default()
            };
            let path = path(&name, "");
            let disk: Shown = Client::new(ask.admin)?.send_json(Method::PATCH, &path, &change)?;
            print_disk(&disk, ask.json, &format!("{name} is called {new} now\n"))
        }
        Disk::Export { source, file, ask } => export(&source, &file, ask),
        Disk::Import {
            file,
            name,
            settings,
            ask,
        } => import(&file, &name, &settings, ask),
        Disk::Rm { what, ask } => {
            let path = match what.snapshot {
                None => path(&what.volume, ""),
                Some(_) => snapshot_path(&what, "")?,
            };
            let gone: Done =
                Client::new(ask.admin)?.send_json(Method::DELETE, &path, &nothing())?;
            done(
                &gone,
                ask.json,
                &format!("{what} is gone; its room comes back by and by\n"),
            )
        }
        Disk::Takeover { name, idle, ask } => {
            let wanted = TakeOverAsk {
                idle_seconds: Some(idle),
            };
            let path = path(&name, "/takeover");
            let disk: Shown = Client::new(ask.admin)?.send_json(Method::POST, &path, &wanted)?;
            let said = format!("{name} is open here for a minute; {}", connect(&disk));
            print_disk(&disk, ask.json, &said)
        }
        Disk::Repair(wanted) => repair(wanted),
    }
}

fn new_disk(name: &Name, size: Bytes, settings: &DiskSettings) -> NewDisk {
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
    match ask.json {
        true => show::json(&found)?,
        false => show::text(&repaired(&found))?,
    }
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
    let mut text = format!("{}: {}", found.volume.name, found.volume.health);
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

// --- export, import -----------------------------------------------------------------------------------

/// Where a volume can be read and written from here.
fn entrance(disk: &Shown, here: &Here) -> anyhow::Result<env::net::Address> {
    if here.tls {
        return Err(anyhow::anyhow!(
            "the volumes of this node are exported in TLS, which this command does not speak; use `qemu-img convert` with {}",
            disk.nbd.first().map_or("", String::as_str)
        ));
    }
    let address = here.nbd.first().ok_or_else(|| {
        anyhow::anyhow!("this node exports no volumes; name an address in [cluster] nbd")
    })?;
    Ok(address.parse()?)
}

fn export(source: &At, file: &Path, ask: Ask) -> anyhow::Result<()> {
    let client = Client::new(ask.admin)?;
    let here: Here = client.get("/v1/cluster")?;
    // A snapshot is read by way of a clone, which takes no room.
    let (disk, passing): (Shown, bool) = match &source.snapshot {
        None => (client.get(&path(&source.volume, ""))?, false),
        Some(_) => {
            let name = format!("export-{}-{}", source.volume, std::process::id());
            let called = Called {
                name: name.chars().take(64).collect(),
            };
            let path = snapshot_path(source, "/clone")?;
            (client.send_json(Method::POST, &path, &called)?, true)
        }
    };
    let copied =
        entrance(&disk, &here).and_then(|address| disk_copy::export(&address, &disk.name, file));
    if passing {
        remove_clone(&client, &disk.name)?;
    }
    let copied = copied?;
    if file.as_os_str() == "-" {
        return Ok(());
    }
    match ask.json {
        true => show::json(&copied),
        false => show::text(&format!(
            "{source} is in {}: {}, of which {} are data\n",
            file.display(),
            table::size(copied.size_bytes),
            table::size(copied.data_bytes)
        )),
    }
}

/// The engine may take a moment to see that its client is gone.
fn remove_clone(client: &Client, name: &str) -> anyhow::Result<()> {
    let path = format!("/v1/cluster/volumes/{name}");
    let mut tries = 0;
    loop {
        match client.send_json::<Done>(Method::DELETE, &path, &nothing()) {
            Ok(_) => return Ok(()),
            Err(error) if tries == 20 => {
                return Err(anyhow::Error::from(error).context(format!(
                    "the clone {name} is left over; remove it with `tanada volume rm {name}`"
                )));
            }
            Err(_) => client.wait(std::time::Duration::from_millis(250)),
        }
        tries += 1;
    }
}

fn import(file: &Path, name: &Name, settings: &DiskSettings, ask: Ask) -> anyhow::Result<()> {
    let client = Client::new(ask.admin)?;
    let here: Here = client.get("/v1/cluster")?;
    let bytes = disk_copy::size_of(file)?;
    let all: Vec<Shown> = client.get("/v1/cluster/volumes")?;
    let (disk, fresh) = match all.into_iter().find(|disk| disk.name == name.as_str()) {
        Some(disk) => (disk, false),
        None => {
            let whole = Bytes(bytes.next_multiple_of(4096).max(4096));
            let new = new_disk(name, whole, settings);
            (
                client.send_json(Method::POST, "/v1/cluster/volumes", &new)?,
                true,
            )
        }
    };
    if disk.size_bytes < bytes {
        return Err(anyhow::anyhow!(
            "{} has {bytes} bytes, and {name} only {}; make it larger first: `tanada volume resize {name} {bytes}`",
            file.display(),
            disk.size_bytes
        ));
    }
    let address = entrance(&disk, &here)?;
    let copied = disk_copy::import(file, &address, &disk.name, fresh)?;
    match ask.json {
        true => show::json(&copied),
        false => show::text(&format!(
            "{name} has what {} has: {}, of which {} are data\n",
            file.display(),
            table::size(copied.size_bytes),
            table::size(copied.data_bytes)
        )),
    }
}

// --- pages --------------------------------------------------------------------------------------------

/// The virtual disks as a table, with what is wrong below it.
pub fn disks(disks: &[Shown]) -> String {
    let rows: Vec<Vec<String>> = disks
        .iter()
        .map(|disk| {
            let dash = || "-".to_owned();
            vec![
                disk.name.clone(),
                table::size(disk.size_bytes),
                disk.copies.to_string(),
                disk.health.clone(),
                disk.open_on.clone().unwrap_or_else(dash),
                disk.clients.to_string(),
                disk.snapshots.len().to_string(),
                disk.from.clone().unwrap_or_else(dash),
            ]
        })
        .collect();
    let head = [
        "DISK",
        "SIZE",
        "COPIES",
        "HEALTH",
        "OPEN ON",
        "CLIENTS",
        "SNAPSHOTS",
        "FROM",
    ];
    let mut text = table::table(&head, &rows);
    for disk in disks.iter().filter(|disk| !disk.why.is_empty()) {
        let _ = writeln!(text, "{}: {}", disk.name, disk.why);
    }
    text
}

fn snapshots(disk: &Shown) -> String {
    let rows: Vec<Vec<String>> = disk
        .snapshots
        .iter()
        .map(|it| {
            let clones = match it.clones.is_empty() {
                true => "-".to_owned(),
                false => it.clones.join(", "),
            };
            vec![
                format!("{}@{}", disk.name, it.name),
                table::size(it.size_bytes),
                clones,
            ]
        })
        .collect();
    table::table(&["SNAPSHOT", "SIZE", "CLONES"], &rows)
}

/// One virtual disk in full.
pub fn page(disk: &Shown) -> String {
    let mut text = format!(
        "{}: a virtual disk of {}\n",
        disk.name,
        table::size(disk.size_bytes)
    );
    let mut line = |what: &str, value: &str| {
        let _ = writeln!(text, "  {what:<18} {value}");
    };
    let health = match disk.why.is_empty() {
        true => disk.health.clone(),
        false => format!("{} ({})", disk.health, disk.why),
    };
    line("health", &health);
    let copies = format!(
        "{}; a write reaches at least {}",
        disk.copies, disk.min_copies
    );
    line("copies", &copies);
    line(
        "in sync",
        &format!("{} copies of each extent at least", disk.redundancy_floor),
    );
    for out in &disk.out {
        let what = format!(
            "store {}, since generation {}",
            out.name, out.since_generation
        );
        line("misses writes", &what);
    }
    line("priority", &disk.priority);
    if let Some(times) = disk.fairness {
        let what = format!("{times}: so often a seek behind another client of its class counts");
        line("fairness", &what);
    }
    if let Some(holder) = &disk.holder {
        line(
            "under",
            &format!("what {holder} has reserved at its stores"),
        );
    }
    let without = match disk.on_meta_loss.as_str() {
        "fail" => "requests fail after 30 s (--on-meta-loss fail)",
        _ => "requests wait until it answers (--on-meta-loss wait)",
    };
    line("without meta store", without);
    line("open on", disk.open_on.as_deref().unwrap_or("no node"));
    line("clients here", &disk.clients.to_string());
    line("goes on from", disk.from.as_deref().unwrap_or("nothing"));
    line("number", &disk.id);
    line(
        "generation",
        &format!("{}, opened in {}", disk.generation, disk.epoch),
    );
    for uri in &disk.nbd {
        line("clients find it at", &show::quoted(uri));
    }
    if !disk.snapshots.is_empty() {
        let _ = write!(text, "\n{}", snapshots(disk));
    }
    text
}

fn stores(here: &Here) -> String {
    let rows: Vec<Vec<String>> = here
        .stores
        .iter()
        .map(|store| {
            let up = match store.node_up {
                Some(true) => "up",
                Some(false) => "down",
                None => "-",
            };
            let node = match store.node == here.node {
                true => format!("{} (this)", store.node),
                false => store.node.clone(),
            };
            vec![
                node,
                up.to_owned(),
                store.name.clone(),
                store.number.to_string(),
                drained(store),
                store.domain.clone(),
                heard(store, here),
                store.address.clone(),
            ]
        })
        .collect();
    let head = [
        "NODE", "IS", "STORE", "NUMBER", "STATE", "DOMAIN", "HEARD", "ADDRESS",
    ];
    let mut text = table::table(&head, &rows);
    if let Some(silent) = here.meta_silent_seconds {
        let _ = writeln!(
            text,
            "the meta store {} has not answered for {silent:.0} s: this is what it said before",
            here.meta
        );
    }
    if let Some(warning) = &here.warning {
        let _ = writeln!(text, "warning: {warning}");
    }
    if let Some(why) = &here.deaf {
        let _ = writeln!(text, "other nodes' queues are not heard of: {why}");
    }
    for why in &here.unregistered {
        let _ = writeln!(text, "not registered yet: {why}");
    }
    text
}

/// Active, or how far it is with being drained.
fn drained(store: &ClusterStore) -> String {
    match store.volumes_left.as_ref().map(Vec::len) {
        None => store.state.clone(),
        Some(0) => "drained".to_owned(),
        Some(1) => "draining (1 volume)".to_owned(),
        Some(count) => format!("draining ({count} volumes)"),
    }
}

/// When it last said unasked how long its queue is.
fn heard(store: &ClusterStore, here: &Here) -> String {
    match store.heard_ago_ms {
        _ if store.node == here.node => "-".to_owned(),
        Some(ago) if ago < 10_000 => format!("{ago} ms ago"),
        Some(ago) => format!("{} s ago", ago / 1000),
        None if here.announce.is_some() => "never".to_owned(),
        None => "-".to_owned(),
    }
}

// --- nodes --------------------------------------------------------------------------------------------

/// Runs one of the commands about nodes.
pub fn run_node(command: Node) -> anyhow::Result<()> {
    match command {
        Node::List(ask) => {
            let here: Here = Client::new(ask.admin)?.get("/v1/cluster")?;
            match ask.json {
                true => show::json(&here),
                false => show::text(&stores(&here)),
            }
        }
        Node::Add {
            node,
            store,
            address,
            domain,
            number,
            rotating,
            ask,
        } => {
            let wanted = StoreAsk {
                name: store.to_string(),
                node: node.to_string(),
                address,
                domain: domain.map(String::from),
                number,
                rotating,
            };
            let client = Client::new(ask.admin)?;
            let added: ClusterStore =
                client.send_json(Method::POST, "/v1/cluster/stores", &wanted)?;
            match ask.json {
                true => show::json(&added),
                false => show::text(&format!(
                    "{store} on {node} is store {} now\n",
                    added.number
                )),
            }
        }
        Node::Drain {
            name,
            undo,
            wait,
            ask,
        } => drain(&name, undo, wait, ask),
        Node::Remove { name, lost, ask } => {
            let client = Client::new(ask.admin)?;
            let removed = named(&client, &name)?;
            for store in &removed {
                let path = format!("/v1/cluster/stores/{store}?lost={lost}");
                let _: Done = client.send_json(Method::DELETE, &path, &nothing())?;
            }
            match ask.json {
                true => show::json(&removed),
                false => show::text(&format!("forgotten: {}\n", removed.join(", "))),
            }
        }
    }
}

fn drain(name: &Name, undo: bool, wait: bool, ask: Ask) -> anyhow::Result<()> {
    let client = Client::new(ask.admin)?;
    let state = if undo { "active" } else { "draining" };
    let mut changed = Vec::new();
    for store in named(&client, name)? {
        let wanted = StoreChange {
            state: state.to_owned(),
        };
        let path = format!("/v1/cluster/stores/{store}");
        let store: ClusterStore = client.send_json(Method::PATCH, &path, &wanted)?;
        changed.push(store);
    }
    if wait {
        changed = wait_until_empty(&client, &changed)?;
    }
    if ask.json {
        return show::json(&changed);
    }
    let names: Vec<&str> = changed.iter().map(|it| it.name.as_str()).collect();
    let names = names.join(", ");
    show::text(&match (undo, wait) {
        (true, _) => format!("new data go to {names} again\n"),
        (_, true) => format!("nothing is left on {names}; `tanada node remove` forgets it\n"),
        _ => format!(
            "new data go elsewhere, and what is on {names} leaves; `tanada node list` shows how far it is\n"
        ),
    })
}

/// The stores as they are when no volume has anything on them; says how far it is whenever that changes.
fn wait_until_empty(client: &Client, stores: &[ClusterStore]) -> anyhow::Result<Vec<ClusterStore>> {
    let mut said = String::new();
    loop {
        let here: Here = client.get("/v1/cluster")?;
        let mut now = here.stores;
        now.retain(|it| stores.iter().any(|store| store.name == it.name));
        let lines = now.iter().filter_map(|it| {
            let left = it.volumes_left.as_ref().filter(|left| !left.is_empty())?;
            Some(format!(
                "{} has something of {}\n",
                it.name,
                left.join(", ")
            ))
        });
        let text: String = lines.collect();
        if text.is_empty() {
            return Ok(now);
        }
        if text != said {
            eprint!("{text}");
            said = text;
        }
        client.wait(std::time::Duration::from_secs(1));
    }
}

/// The stores of a node, or the store of that name.
fn named(client: &Client, name: &Name) -> anyhow::Result<Vec<String>> {
    let here: Here = client.get("/v1/cluster")?;
    let stores = || here.stores.iter();
    let of_node = stores().filter(|store| store.node == name.as_str());
    let of_node: Vec<String> = of_node.map(|store| store.name.clone()).collect();
    // A store that is not there: the daemon says which there are.
    Ok(match of_node.is_empty() {
        true => vec![name.to_string()],
        false => of_node,
    })
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
