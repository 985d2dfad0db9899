//! `tanada volume list`, and which volume a name means.
//!
//! ```text
//! GET /v1/volumes, both kinds -> one table
//! NAME, hybrid:NAME, virtual:NAME -> GET /v1/volumes/... -> the volume | there are two of that name
//! ```

use std::fmt::Write as _;

use report::terminal::table::{share, size, table};
use report::terminal::{Refused, Usage};
use vdisk::record::Name;

use super::ask::Ask;
use super::client::{Client, ClientError};
use super::named::{Kind, VolumeName};
use super::show;
use crate::api::cluster::Disk;
use crate::api::volume::Volume;
use crate::api::volumes::AnyVolume;

/// Lists the volumes of both kinds.
pub fn list(ask: Ask) -> anyhow::Result<()> {
    let all: Vec<AnyVolume> = Client::new(ask.admin)?.get("/v1/volumes")?;
    show::answer(ask.json, &all, || {
        match all.is_empty() {
        false => page(&all),
        true => "There are no volumes: the configuration has no [[hybrid]], and no virtual disk was made \
                 (`tanada volume create`).\n"
            .to_owned(),
    }
    })
}

/// The volume that is meant.
///
/// # Errors
/// There is none; there are two, and their kind is not said.
pub fn find(client: &Client, name: &VolumeName) -> anyhow::Result<AnyVolume> {
    let found = find_first(client, name)?;
    if name.kind.is_some() || matches!(found, AnyVolume::Virtual(_)) {
        return Ok(found);
    }
    // A daemon asked for a name alone answers its hybrid first. Where the cluster does not answer, nothing else is known.
    let other = VolumeName {
        kind: Some(Kind::Virtual),
        name: name.name.clone(),
    };
    match client.get::<AnyVolume>(&format!("/v1/volumes/{other}")) {
        Ok(_) => Err(Usage(format!(
            "there are two volumes called {name}; write hybrid:{name} or virtual:{name}"
        ))
        .into()),
        Err(_) => Ok(found),
    }
}

/// The volume that is meant; of two of one name the hybrid.
fn find_first(client: &Client, name: &VolumeName) -> Result<AnyVolume, ClientError> {
    client.get(&format!("/v1/volumes/{name}"))
}

/// The name of the hybrid that is meant.
///
/// # Errors
/// There is no such volume, or it is a virtual disk.
pub fn hybrid(client: &Client, name: &VolumeName) -> anyhow::Result<String> {
    let is_virtual = match name.kind {
        Some(kind) => kind == Kind::Virtual,
        None => matches!(find_first(client, name)?, AnyVolume::Virtual(_)),
    };
    match is_virtual {
        true => Err(Refused(format!(
            "{} is virtual: it has no cache; `tanada volume list` shows which volume is hybrid",
            name.name
        ))
        .into()),
        false => Ok(name.name.clone()),
    }
}

/// The name of a virtual disk that is to be made: what a hybrid is called only where its kind is said.
///
/// # Errors
/// It is the name of a hybrid.
pub fn new_disk(client: &Client, name: &VolumeName) -> anyhow::Result<Name> {
    let of_hybrid = |name: &str| client.get::<AnyVolume>(&format!("/v1/volumes/hybrid:{name}"));
    if name.kind == Some(Kind::Hybrid) {
        return Err(Usage(format!(
            "a hybrid is made by a [[hybrid]] of the configuration; a virtual disk is virtual:{}",
            name.name
        ))
        .into());
    }
    if name.kind.is_none() && of_hybrid(&name.name).is_ok() {
        return Err(Refused(format!(
            "there is a hybrid called {name}; a virtual disk with the same name is virtual:{name}"
        ))
        .into());
    }
    Ok(name.name.parse()?)
}

/// The volumes as a table, with what is wrong below it.
pub fn page(all: &[AnyVolume]) -> String {
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let mut text = table(&["NAME", "KIND", "SIZE", "HEALTH", "DETAIL"], &rows);
    for volume in all {
        let (name, why) = match volume {
            AnyVolume::Hybrid(hybrid) => (&hybrid.volume.name, &hybrid.volume.why),
            AnyVolume::Virtual(disk) => (&disk.terms.name, &disk.why),
        };
        if let AnyVolume::Hybrid(hybrid) = volume
            && let Some(tier) = &hybrid.volume.tier
        {
            let _ = writeln!(text, "{name}: {}", show::tier_line(tier));
        }
        if !why.is_empty() {
            let _ = writeln!(text, "{name}: {why}");
        }
    }
    text
}

fn row(volume: &AnyVolume) -> Vec<String> {
    let (name, kind, bytes, health, detail) = match volume {
        AnyVolume::Hybrid(hybrid) => {
            let volume = &hybrid.volume;
            let detail = of_hybrid(volume);
            (
                &volume.name,
                Kind::Hybrid,
                volume.size_bytes,
                &volume.health,
                detail,
            )
        }
        AnyVolume::Virtual(disk) => {
            let terms = &disk.terms;
            let detail = of_disk(disk);
            (
                &terms.name,
                Kind::Virtual,
                terms.size_bytes,
                &disk.health,
                detail,
            )
        }
    };
    vec![
        name.clone(),
        kind.word().to_owned(),
        size(bytes),
        health.clone(),
        detail,
    ]
}

fn of_hybrid(volume: &Volume) -> String {
    let (fast, all) = volume.cache.read_bytes();
    let on = match &volume.fast {
        Some(fast) => format!("{} cached by {fast}", volume.slow),
        None => format!("{} alone", volume.slow),
    };
    let hits = match all {
        0 => String::new(),
        all => format!(", {} hits", share(fast as f64, all as f64)),
    };
    format!(
        "{on}, mode {}, write {}, {} dirty{hits}",
        volume.settings.mode,
        volume.settings.write,
        size(volume.cache.dirty_bytes)
    )
}

fn of_disk(disk: &Disk) -> String {
    let many = |count: u64, what: &str| match count {
        0 => String::new(),
        1 => format!(", 1 {what}"),
        count => format!(", {count} {what}s"),
    };
    let open = match &disk.open_on {
        Some(node) => format!(", open on {node}"),
        None => ", not open".to_owned(),
    };
    let from = disk.from.as_ref();
    format!(
        "{} of {} copies in sync{open}{}{}{}",
        disk.redundancy_floor,
        disk.terms.copies,
        many(disk.clients, "client"),
        many(disk.snapshots.len() as u64, "snapshot"),
        from.map_or(String::new(), |from| format!(", from {from}"))
    )
}
