//! `tanada trash ...`, and `tanada volume delete`: virtual disks that were deleted, and can still be restored.
//!
//! ```text
//! volume delete: what becomes of it -> meant? -> one question     list, restore: one question
//! trash delete: what is lost -> meant? -> one question
//! ```

use clap::{Args, Subcommand};
use hyper::Method;
use policy::share::Second;
use report::terminal::table::{size, table};
use report::terminal::{Refused, Usage};
use vdisk::record::Name;

use super::ask::Ask;
use super::client::Client;
use super::cluster::{connect, nothing, path};
use super::consent::{self, Loss};
use super::named::{Kind, ToDelete};
use super::{show, snapshot};
use crate::api::cluster::{Disk, Done};
use crate::api::trash::{Deleted, DeletedVolume, RestoreAsk};
use crate::daemon::common::when;

const TRASH: &str = "/v1/cluster/trash";
/// How long a deleted volume is kept, for a sentence before it is deleted; the daemon counts.
const KEPT_SECONDS: u64 = vdisk::cluster::trash::KEPT.0 / 1_000_000_000;

/// A volume to be deleted.
#[derive(Debug, Args)]
pub struct DeleteVolume {
    /// The virtual disk.
    #[arg(value_name = "VOLUME")]
    pub what: ToDelete,
    /// Not into the trash: delete it for good at once. It must have no snapshots.
    #[arg(long)]
    pub now: bool,
    #[command(flatten)]
    pub loss: Loss,
    #[command(flatten)]
    pub ask: Ask,
}

/// Commands about deleted virtual disks.
#[derive(Debug, Subcommand)]
pub enum Trash {
    /// List deleted virtual disks, and until when each can be restored.
    #[command(visible_alias = "ls")]
    List(Ask),
    /// Take a virtual disk out of the trash, with its snapshots.
    Restore {
        /// The name that it had, or its id, as the list shows it.
        #[arg(value_name = "NAME")]
        which: Name,
        /// Its name from now on [default: the one that it had]
        #[arg(long = "as", value_name = "NEW")]
        new: Option<Name>,
        #[command(flatten)]
        ask: Ask,
    },
    /// Delete a virtual disk in the trash for good, with its snapshots.
    #[command(visible_alias = "rm")]
    Delete {
        /// The name that it had, or its id, as the list shows it.
        #[arg(value_name = "NAME")]
        which: Name,
        #[command(flatten)]
        loss: Loss,
        #[command(flatten)]
        ask: Ask,
    },
}

/// Runs one of them.
pub fn run(command: Trash) -> anyhow::Result<()> {
    match command {
        Trash::List(ask) => {
            let all: Vec<DeletedVolume> = Client::new(ask.admin)?.get(TRASH)?;
            show::answer(ask.json, &all, || list(&all))
        }
        Trash::Restore { which, new, ask } => {
            let wanted = RestoreAsk {
                name: new.map(String::from),
            };
            let path = format!("{TRASH}/{which}/restore");
            ask.send(Method::POST, &path, &wanted, |disk: &Disk| {
                format!("{} is there again; {}", disk.terms.name, connect(disk))
            })
        }
        Trash::Delete { which, loss, ask } => delete_for_good(&which, &loss, ask),
    }
}

fn list(all: &[DeletedVolume]) -> String {
    if all.is_empty() {
        return "the trash is empty\n".to_owned();
    }
    let moment = |at: Option<u64>, none: &str| {
        at.map_or_else(|| none.to_owned(), |at| when::shown(Second(at)))
    };
    let row = |it: &DeletedVolume| {
        vec![
            it.name.clone(),
            it.id.clone(),
            size(it.size_bytes),
            it.snapshots.to_string(),
            it.health.clone(),
            moment(it.deleted_unix_seconds, "-"),
            it.deleted_by.clone().unwrap_or_else(|| "-".to_owned()),
            match it.deleting {
                true => "being deleted".to_owned(),
                false => moment(it.ends_unix_seconds, "never"),
            },
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let head = [
        "NAME",
        "ID",
        "SIZE",
        "SNAPSHOTS",
        "HEALTH",
        "DELETED",
        "BY",
        "UNTIL",
    ];
    table(&head, &rows)
}

fn delete_for_good(which: &Name, loss: &Loss, ask: Ask) -> anyhow::Result<()> {
    let all: Vec<DeletedVolume> = Client::new(ask.admin.clone())?.get(TRASH)?;
    let mut found = all
        .iter()
        .filter(|it| it.name == which.as_str() || it.id == which.as_str());
    // What is none or several the daemon says.
    if let (Some(one), None) = (found.next(), found.next()) {
        let lost = format!(
            "{} ({}), of {}{}, would be deleted for good",
            one.name,
            one.id,
            size(one.size_bytes),
            with_snapshots(one.snapshots)
        );
        if !consent::is_given(which.as_str(), &lost, loss, ask.json)? {
            return Ok(());
        }
    }
    let path = format!("{TRASH}/{which}");
    ask.send(Method::DELETE, &path, &nothing(), |_: &Done| {
        format!("{which} is gone; its room comes back by and by\n")
    })
}

fn with_snapshots(count: u64) -> String {
    match count {
        0 => String::new(),
        1 => " with its snapshot".to_owned(),
        count => format!(" with its {count} snapshots"),
    }
}

/// Deletes a virtual disk, once it is meant.
pub fn delete(wanted: DeleteVolume) -> anyhow::Result<()> {
    let name = match wanted.what {
        ToDelete::Volume(name) => name,
        ToDelete::Snapshot(snapshot) => {
            return snapshot::delete(&snapshot, &wanted.loss, wanted.ask);
        }
    };
    if name.kind == Some(Kind::Hybrid) {
        return Err(Usage(format!(
            "a hybrid is made by the configuration: to end {}, take its [[hybrid]] out there",
            name.name
        ))
        .into());
    }
    let name: Name = name.name.parse()?;
    let client = Client::new(wanted.ask.admin.clone())?;
    let disk: Disk = client.get(&path(&name, ""))?;
    let whole = format!("{name}, of {}", size(disk.terms.size_bytes));
    let lost = match wanted.now {
        true => format!("{whole}, would be deleted for good"),
        false => {
            has_trash(&client)?;
            let until = when::shown(Second(when::unix_seconds() as u64 + KEPT_SECONDS));
            let snapshots = with_snapshots(disk.snapshots.len() as u64);
            format!(
                "{whole}{snapshots}, would be in the trash until {until}, then deleted for good"
            )
        }
    };
    if !consent::is_given(name.as_str(), &lost, &wanted.loss, wanted.ask.json)? {
        return Ok(());
    }
    let query = if wanted.now { "?now=true" } else { "" };
    wanted
        .ask
        .send(Method::DELETE, &path(&name, query), &nothing(), |gone| {
            deleted(&name, gone)
        })
}

/// An older daemon would delete it at once.
fn has_trash(client: &Client) -> anyhow::Result<()> {
    match client.get::<Vec<DeletedVolume>>(TRASH) {
        Err(error) if error.is_absent() => {
            let why = "this daemon is older and has no trash; nothing was changed. Restart it with this program, or add --now";
            Err(Refused(why.to_owned()).into())
        }
        // What else stands in the way is said where it is deleted.
        _ => Ok(()),
    }
}

fn deleted(name: &Name, gone: &Deleted) -> String {
    match (&gone.id, gone.ends_unix_seconds) {
        (Some(id), Some(until)) => format!(
            "{name} is in the trash until {}; `tanada trash restore {id}` brings it back\n",
            when::shown(Second(until))
        ),
        _ => format!("{name} is gone; its room comes back by and by\n"),
    }
}
