//! Virtual disks and the cluster, as people read them.

use std::fmt::Write as _;

use report::terminal::{quoted, table};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::cluster_upgrade;
use crate::api::cluster::{ClusterStore, Disk as Shown, Here, Snapshot};

/// A snapshot, with its volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListedSnapshot {
    pub volume: String,
    #[serde(flatten)]
    pub snapshot: Snapshot,
}

/// The virtual disks as a table, with what is wrong below it.
pub fn disks(disks: &[Shown]) -> String {
    let rows: Vec<Vec<String>> = disks
        .iter()
        .map(|disk| {
            let dash = || "-".to_owned();
            vec![
                disk.terms.name.clone(),
                table::size(disk.terms.size_bytes),
                disk.terms.copies.to_string(),
                disk.health.clone(),
                disk.open_on.clone().unwrap_or_else(dash),
                disk.clients.to_string(),
                disk.snapshots.len().to_string(),
                disk.from.clone().unwrap_or_else(dash),
            ]
        })
        .collect();
    let head = [
        "VOLUME",
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
        let _ = writeln!(text, "{}: {}", disk.terms.name, disk.why);
    }
    text
}

/// The snapshots of a volume, with its name.
pub fn listed(disk: &Shown) -> Vec<ListedSnapshot> {
    let with_name = |snapshot: &Snapshot| ListedSnapshot {
        volume: disk.terms.name.clone(),
        snapshot: snapshot.clone(),
    };
    disk.snapshots.iter().map(with_name).collect()
}

/// Snapshots as a table.
pub fn snapshots(all: &[ListedSnapshot]) -> String {
    let row = |ListedSnapshot { volume, snapshot }: &ListedSnapshot| {
        let clones = match snapshot.clones.is_empty() {
            true => "-".to_owned(),
            false => snapshot.clones.join(", "),
        };
        vec![
            format!("{volume}@{}", snapshot.name),
            table::size(snapshot.size_bytes),
            clones,
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    table::table(&["SNAPSHOT", "SIZE", "CLONES"], &rows)
}

/// One virtual disk in full.
pub fn page(disk: &Shown) -> String {
    let mut text = format!(
        "{}: a virtual disk of {}\n",
        disk.terms.name,
        table::size(disk.terms.size_bytes)
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
        disk.terms.copies, disk.terms.min_copies
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
    line("priority", &disk.terms.priority);
    if let Some(times) = disk.terms.fairness {
        let what = format!("{times}: so often a seek behind another client of its class counts");
        line("fairness", &what);
    }
    if let Some(holder) = &disk.terms.holder {
        line(
            "under",
            &format!("what {holder} has reserved at its stores"),
        );
    }
    let caps = disk.terms.caps.iter();
    caps.for_each(|caps| line("at most", &caps.words_with_waits()));
    line("without meta store", without_meta(disk));
    line("open on", disk.open_on.as_deref().unwrap_or("no node"));
    line("clients here", &disk.clients.to_string());
    line("goes on from", disk.from.as_deref().unwrap_or("nothing"));
    line("number", &disk.terms.id);
    line(
        "generation",
        &format!("{}, opened in {}", disk.generation, disk.epoch),
    );
    for uri in &disk.nbd {
        line("clients find it at", &quoted(uri));
    }
    if !disk.snapshots.is_empty() {
        let _ = write!(text, "\n{}", snapshots(&listed(disk)));
    }
    text
}

fn without_meta(disk: &Shown) -> &'static str {
    match disk.terms.on_meta_loss.as_str() {
        "fail" => "requests fail after 30 s (on_meta_loss=fail)",
        _ => "requests wait until it answers (on_meta_loss=wait)",
    }
}

/// The stores of the cluster.
pub(super) fn stores(here: &Here) -> String {
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
    if let Some(level) = &here.level {
        text.push_str(&cluster_upgrade::line(level));
    }
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
pub(super) fn drained(store: &ClusterStore) -> String {
    match store.volumes_left.as_ref().map(Vec::len) {
        None => store.state.clone(),
        Some(0) => "drained".to_owned(),
        Some(1) => "draining (1 volume)".to_owned(),
        Some(count) => format!("draining ({count} volumes)"),
    }
}

/// When it last said unasked how long its queue is.
pub(super) fn heard(store: &ClusterStore, here: &Here) -> String {
    match store.heard_ago_ms {
        _ if store.node == here.node => "-".to_owned(),
        Some(ago) if ago < 10_000 => format!("{ago} ms ago"),
        Some(ago) => format!("{} s ago", ago / 1000),
        None if here.announce.is_some() => "never".to_owned(),
        None => "-".to_owned(),
    }
}
