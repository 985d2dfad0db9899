//! `tanada snapshot ...`: states of virtual disks that are kept under a name.
//!
//! ```text
//! create, clone: one question to the daemon     delete, rollback: what is lost -> meant? -> one question
//! list: of one volume, or of all
//! ```

use clap::Subcommand;
use hyper::Method;
use vdisk::record::Name;

use super::ask::Ask;
use super::client::Client;
use super::cluster::{connect, nothing, path};
use super::cluster_pages::{ListedSnapshot, listed, snapshots};
use super::consent::{self, Loss};
use super::named::{SnapshotName, a_disk};
use super::show;
use crate::api::cluster::{Called, Disk, Done};

/// Commands about snapshots.
#[derive(Debug, Subcommand)]
pub enum Snapshot {
    /// Keep a virtual disk as it is now under a name; it may be in use.
    Create {
        /// The volume, and the snapshot's name.
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        name: SnapshotName,
        #[command(flatten)]
        ask: Ask,
    },
    /// List the snapshots of a virtual disk, or of all.
    #[command(visible_alias = "ls")]
    List {
        /// Only of this volume.
        #[arg(value_parser = a_disk)]
        volume: Option<Name>,
        #[command(flatten)]
        ask: Ask,
    },
    /// Show a snapshot: how large it is, and which volumes began as it is.
    #[command(visible_alias = "info")]
    Show {
        /// The volume, and the snapshot's name.
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        name: SnapshotName,
        #[command(flatten)]
        ask: Ask,
    },
    /// Delete a snapshot; what only it has is freed by and by.
    #[command(visible_alias = "rm")]
    Delete {
        /// The volume, and the snapshot's name.
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        name: SnapshotName,
        #[command(flatten)]
        loss: Loss,
        #[command(flatten)]
        ask: Ask,
    },
    /// Make a virtual disk that begins as a snapshot is; it takes no room until it is written.
    Clone {
        /// Of which volume, and its name.
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        source: SnapshotName,
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
        target: SnapshotName,
        #[command(flatten)]
        loss: Loss,
        #[command(flatten)]
        ask: Ask,
    },
}

/// Runs one of them.
pub fn run(command: Snapshot) -> anyhow::Result<()> {
    match command {
        Snapshot::Create { name, ask } => create(&name, ask),
        Snapshot::List { volume, ask } => list(volume.as_ref(), ask),
        Snapshot::Show { name, ask } => {
            let disk: Disk = Client::new(ask.admin)?.get(&path(&name.volume, ""))?;
            let wanted = ("snapshot", name.snapshot.as_str());
            let one = show::only(listed(&disk), wanted, |it| &it.snapshot.name)?;
            show::answer(ask.json, &one, || snapshots(std::slice::from_ref(&one)))
        }
        Snapshot::Delete { name, loss, ask } => delete(&name, &loss, ask),
        Snapshot::Clone { source, name, ask } => ask.send(
            Method::POST,
            &source.path("/clone"),
            &called(&name),
            |disk| format!("{name} begins as {source} is; {}", connect(disk)),
        ),
        Snapshot::Rollback { target, loss, ask } => rollback(&target, &loss, ask),
    }
}

fn called(name: &Name) -> Called {
    Called {
        name: name.to_string(),
    }
}

fn create(name: &SnapshotName, ask: Ask) -> anyhow::Result<()> {
    let path = path(&name.volume, "/snapshots");
    ask.send(Method::POST, &path, &called(&name.snapshot), |_: &Disk| {
        format!("{name} is kept; `tanada snapshot clone {name} NEW` makes a volume of it\n")
    })
}

fn list(volume: Option<&Name>, ask: Ask) -> anyhow::Result<()> {
    let client = Client::new(ask.admin)?;
    let disks: Vec<Disk> = match volume {
        Some(volume) => vec![client.get(&path(volume, ""))?],
        None => client.get("/v1/cluster/volumes")?,
    };
    let all: Vec<ListedSnapshot> = disks.iter().flat_map(listed).collect();
    show::answer(ask.json, &all, || match (all.is_empty(), volume) {
        (false, _) => snapshots(&all),
        (true, Some(volume)) => format!("{volume} has no snapshots\n"),
        (true, None) => "there are no snapshots\n".to_owned(),
    })
}

/// Deletes one, once it is meant.
pub fn delete(name: &SnapshotName, loss: &Loss, ask: Ask) -> anyhow::Result<()> {
    let lost = format!("{name} would be deleted for good");
    if !consent::is_given(&name.to_string(), &lost, loss, ask.json)? {
        return Ok(());
    }
    ask.send(Method::DELETE, &name.path(""), &nothing(), |_: &Done| {
        format!("{name} is gone; its room comes back by and by\n")
    })
}

fn rollback(target: &SnapshotName, loss: &Loss, ask: Ask) -> anyhow::Result<()> {
    let volume = &target.volume;
    let lost = format!("what was written to {volume} since {target} would be lost");
    if !consent::is_given(volume.as_str(), &lost, loss, ask.json)? {
        return Ok(());
    }
    ask.send(
        Method::POST,
        &target.path("/rollback"),
        &nothing(),
        |_: &Disk| format!("{volume} goes on from {target}\n"),
    )
}
