//! `tanada volume set NAME KEY=VALUE ...`: settings of a hybrid or of a virtual disk, in the same words.
//!
//! ```text
//! words -> keys -> of hybrids | of virtual disks | of both: which kind is NAME? -> a change -> PATCH
//! ```
//!
//! Always true: a word that is no change, or of the other kind, is refused before a daemon is asked.

use std::fmt::Write as _;

use base::Bytes;
use config::instead;
use config::tier::TierKeys;
use hyper::Method;
use report::terminal::{Usage, table};
use serde_json::{Map, Value};
use vdisk::record::{Fairness, Name};

use super::client::{Client, path};
use super::cluster::{self, a_meta_loss, a_priority};
use super::consent::{self, Loss};
use super::named::{Kind, VolumeName};
use super::options::SetVolume;
use super::volume_list;
use crate::api::cluster::{Disk, DiskChange};
use crate::api::volume::{Change, Volume};
use crate::api::volumes::AnyVolume;

/// Keys of virtual disks alone.
const OF_DISKS: [&str; 7] = [
    "size",
    "name",
    "priority",
    "fairness",
    "min_copies",
    "holder",
    "on_meta_loss",
];
/// Keys of both kinds.
const OF_BOTH: [&str; 4] = ["max_read", "max_write", "max_read_iops", "max_write_iops"];

/// Sets what is to change. `shown` says what holds of a hybrid afterwards; whether a shadow was set to watch.
pub fn run(
    mut wanted: SetVolume,
    shown: impl FnOnce(&Volume, &str, bool) -> String,
) -> anyhow::Result<()> {
    let changes = std::mem::take(&mut wanted.changes);
    let (name, pairs) = (&wanted.name, pairs(&changes)?);
    let kind = match kind_of(name, &pairs)? {
        Some(kind) => kind,
        None => match volume_list::find(&Client::new(wanted.ask.admin.clone())?, name)? {
            AnyVolume::Hybrid(_) => Kind::Hybrid,
            AnyVolume::Virtual(_) => Kind::Virtual,
        },
    };
    match kind {
        Kind::Virtual => set_disk(wanted, &pairs),
        Kind::Hybrid if wanted.shrink => {
            let why = "--shrink is of virtual disks: a hybrid has the size of its slow device";
            Err(Usage(why.to_owned()).into())
        }
        Kind::Hybrid => {
            let change = change(&pairs)?;
            let name = wanted.name.name;
            let mut path = path(&name, "")?;
            if wanted.until_restart {
                path.push_str("?until_restart=true");
            }
            let is_watched = change.advise == Some(true);
            let said = |volume: &Volume| shown(volume, &name, is_watched);
            wanted.ask.send(Method::PATCH, &path, &change, said)
        }
    }
}

/// `KEY=VALUE`, each key once.
pub(super) fn pairs(changes: &[String]) -> Result<Vec<(&str, &str)>, Usage> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for change in changes {
        let (key, value) = change
            .split_once('=')
            .ok_or_else(|| Usage(format!("'{change}' is not a change; write KEY=VALUE")))?;
        let of_tier = tier_key(key);
        let is_same = |(known, _): &(&str, &str)| {
            *known == key || (of_tier.is_some() && tier_key(known) == of_tier)
        };
        if pairs.iter().any(is_same) {
            return Err(Usage(format!("{key} is given twice")));
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// Which kind the name and the keys say; `None`: both are possible.
fn kind_of(name: &VolumeName, pairs: &[(&str, &str)]) -> Result<Option<Kind>, Usage> {
    let mut found: Option<(Kind, &str)> = None;
    for (key, _) in pairs {
        let kind = match () {
            () if OF_BOTH.contains(key) => continue,
            () if OF_DISKS.contains(key) => Kind::Virtual,
            () if tier_key(key).is_some() || (Change::KEYS.contains(key) && *key != "tier") => {
                Kind::Hybrid
            }
            () => return Err(unknown(key)),
        };
        match found {
            Some((other, first)) if other != kind => {
                let (one, two) = (other.word(), kind.word());
                return Err(Usage(format!(
                    "{first} is of {one} volumes and {key} of {two} ones; no volume has both"
                )));
            }
            _ => found = Some((kind, key)),
        }
    }
    match (name.kind, found) {
        (Some(said), Some((kind, key))) if said != kind => Err(Usage(format!(
            "{key} is of {} volumes, and {name} is none",
            kind.word()
        ))),
        (Some(said), _) => Ok(Some(said)),
        (None, found) => Ok(found.map(|(kind, _)| kind)),
    }
}

fn unknown(key: &str) -> Usage {
    let own = Change::KEYS.iter().copied().filter(|key| *key != "tier");
    let tiers = TierKeys::KEYS
        .iter()
        .copied()
        .filter(|key| *key != "policy");
    let all = own.chain(tiers).chain(["tier.policy"]).chain(OF_DISKS);
    let hint = instead(key, all, "the keys are");
    Usage(format!("there is no setting '{key}'{hint}"))
}

/// The key of a tier that is meant: `tier.policy`, or `period` where the volume itself has no such key.
pub(super) fn tier_key(key: &str) -> Option<&'static str> {
    let named = key.strip_prefix("tier.");
    if named.is_none() && Change::KEYS.contains(&key) {
        return None;
    }
    let name = named.unwrap_or(key);
    TierKeys::KEYS.iter().find(|known| **known == name).copied()
}

// --- hybrids ------------------------------------------------------------------------------------------

/// `write=through period=10s` as a change.
fn change(pairs: &[(&str, &str)]) -> Result<Change, Usage> {
    let mut object = Map::new();
    let mut tier = Map::new();
    for &(key, value) in pairs {
        if let Some(key) = tier_key(key) {
            tier.insert(key.to_owned(), Value::from(value));
            continue;
        }
        let value = match key {
            "dirty_low" | "dirty_high" => value
                .parse::<u8>()
                .map(Value::from)
                .map_err(|_| Usage(format!("{key}: '{value}' is not a whole number of percent")))?,
            "energy" | "advise" => match value {
                "true" | "on" => Value::from(true),
                "false" | "off" => Value::from(false),
                other => return Err(Usage(format!("{key}: '{other}' is neither on nor off"))),
            },
            _ => Value::from(value),
        };
        object.insert(key.to_owned(), value);
    }
    if !tier.is_empty() {
        object.insert("tier".to_owned(), Value::Object(tier));
    }
    serde_json::from_value(Value::Object(object)).map_err(|error| Usage(error.to_string()))
}

// --- virtual disks ------------------------------------------------------------------------------------

fn set_disk(wanted: SetVolume, pairs: &[(&str, &str)]) -> anyhow::Result<()> {
    if wanted.until_restart {
        let why =
            "--until-restart is of hybrids; what is set of a virtual disk is kept by its cluster";
        return Err(Usage(why.to_owned()).into());
    }
    let change = disk_change(pairs, wanted.shrink)?;
    let name: Name = wanted.name.name.parse()?;
    let path = cluster::path(&name, "");
    let loss = Loss {
        yes: wanted.yes,
        dry_run: wanted.dry_run,
    };
    if change.size_bytes.is_none() && loss.dry_run {
        return consent::dry(&format!("nothing of {name} would be lost"), wanted.ask.json);
    }
    if let Some(bytes) = change.size_bytes.filter(|_| change.shrink) {
        let now: Disk = Client::new(wanted.ask.admin.clone())?.get(&path)?;
        let before = now.terms.size_bytes;
        let lost = match before.saturating_sub(bytes) {
            0 => format!("nothing of {name} would be lost"),
            _ => format!(
                "{name} has {} and would have {}: what lies behind that would be lost",
                table::size(before),
                table::size(bytes)
            ),
        };
        let is_asked = before > bytes || loss.dry_run;
        if is_asked && !consent::is_given(name.as_str(), &lost, &loss, wanted.ask.json)? {
            return Ok(());
        }
    }
    wanted
        .ask
        .send(Method::PATCH, &path, &change, |disk: &Disk| {
            changed(&name, &change, disk)
        })
}

/// `size=20GiB priority=low` as a change.
fn disk_change(pairs: &[(&str, &str)], shrink: bool) -> Result<DiskChange, Usage> {
    let mut change = DiskChange {
        shrink,
        ..DiskChange::default()
    };
    for &(key, value) in pairs {
        let wrong = |why: String| Usage(format!("{key}: {why}"));
        let text = || Some(value.to_owned());
        match key {
            "size" => {
                let size: Result<Bytes, _> = value.parse();
                let size = size.map_err(|why| wrong(why.to_string()))?;
                change.size_bytes = Some(cluster::whole(size).0);
            }
            "name" => {
                let name: Result<Name, _> = value.parse();
                change.name = Some(name.map_err(|why| wrong(why.to_string()))?.to_string());
            }
            "priority" => change.priority = Some(a_priority(value).map_err(wrong)?),
            "fairness" => {
                let times: Result<Fairness, _> = value.parse();
                change.fairness = Some(times.map_err(|why| wrong(why.to_string()))?.as_f64());
            }
            "min_copies" => {
                let copies = value.parse().ok();
                let odd = || wrong(format!("'{value}' is not a number of copies"));
                change.min_copies = Some(copies.ok_or_else(odd)?);
            }
            "holder" => change.holder = text(),
            "on_meta_loss" => change.on_meta_loss = Some(a_meta_loss(value).map_err(wrong)?),
            "max_read" => change.max_read = text(),
            "max_write" => change.max_write = text(),
            "max_read_iops" => change.max_read_iops = text(),
            "max_write_iops" => change.max_write_iops = text(),
            other => return Err(unknown(other)),
        }
    }
    Ok(change)
}

/// What holds from now on.
fn changed(name: &Name, change: &DiskChange, disk: &Disk) -> String {
    let mut said = String::new();
    if let Some(new) = &change.name {
        let _ = writeln!(said, "{name} is called {new} now");
    }
    if change.size_bytes.is_some() {
        let size = table::size(disk.terms.size_bytes);
        let _ = writeln!(said, "{} has {size} now", disk.terms.name);
    }
    let others = DiskChange {
        name: None,
        size_bytes: None,
        shrink: false,
        ..change.clone()
    };
    if others != DiskChange::default() {
        said.push_str(&kept(disk));
    }
    said
}

/// How it is kept from now on.
fn kept(disk: &Disk) -> String {
    let mut said = format!(
        "{} has {} priority, fairness {}; a write reaches at least {} of {} copies",
        disk.terms.name,
        disk.terms.priority,
        disk.terms.fairness.unwrap_or(1.0),
        disk.terms.min_copies,
        disk.terms.copies
    );
    if let Some(holder) = &disk.terms.holder {
        let _ = write!(said, "; it is under what {holder} has reserved");
    }
    if disk.terms.on_meta_loss == "fail" {
        said.push_str("; requests fail while the meta store is away");
    }
    if let Some(caps) = &disk.terms.caps {
        let _ = write!(said, "; its clients get at most: {}", caps.words());
    }
    said.push('\n');
    said
}

#[cfg(test)]
mod tests {
    use base::Nanos;

    use super::*;

    fn parse(changes: &[&str]) -> Result<Change, String> {
        let changes: Vec<String> = changes.iter().map(|change| change.to_string()).collect();
        let name = "vol0".parse().unwrap();
        let parsed = || {
            let pairs = pairs(&changes)?;
            kind_of(&name, &pairs)?;
            change(&pairs)
        };
        parsed().map_err(|usage: Usage| usage.0)
    }

    fn kind(name: &str, changes: &[&str]) -> Result<Option<Kind>, String> {
        let changes: Vec<String> = changes.iter().map(|change| change.to_string()).collect();
        let pairs = pairs(&changes).map_err(|usage| usage.0)?;
        kind_of(&name.parse().unwrap(), &pairs).map_err(|usage| usage.0)
    }

    #[test]
    fn changes_are_written_as_in_a_configuration() {
        let change = parse(&[
            "write=through",
            "dirty_high=40",
            "energy=on",
            "fast_size=all",
            "advise=on",
        ]);
        let expected = Change {
            write: Some("through".into()),
            dirty_high: Some(40),
            energy: Some(true),
            fast_size: Some("all".into()),
            advise: Some(true),
            ..Change::default()
        };
        assert_eq!(change, Ok(expected));
    }

    #[test]
    fn keys_and_name_say_which_kind_is_meant() {
        assert_eq!(kind("v", &["write=back"]), Ok(Some(Kind::Hybrid)));
        assert_eq!(kind("v", &["period=10s"]), Ok(Some(Kind::Hybrid)));
        assert_eq!(
            kind("v", &["size=1GiB", "max_read=off"]),
            Ok(Some(Kind::Virtual))
        );
        assert_eq!(kind("v", &["max_read=1MB/s"]), Ok(None));
        assert_eq!(
            kind("virtual:v", &["max_read=off"]),
            Ok(Some(Kind::Virtual))
        );
        let both = kind("v", &["write=back", "priority=low"]).unwrap_err();
        assert!(both.contains("no volume has both"), "{both}");
        let other = kind("hybrid:v", &["size=1GiB"]).unwrap_err();
        assert!(other.contains("size is of virtual volumes"), "{other}");
    }

    #[test]
    fn what_is_set_of_a_virtual_disk_is_checked_before_it_is_asked() {
        let of = |pairs: &[(&str, &str)]| disk_change(pairs, false).map_err(|usage| usage.0);
        let change = of(&[("size", "20GiB"), ("holder", ""), ("fairness", "2")]).unwrap();
        assert_eq!(change.size_bytes, Some(20 << 30));
        assert_eq!(change.holder.as_deref(), Some(""));
        assert_eq!(change.fairness, Some(2.0));
        for (key, value) in [
            ("size", "many"),
            ("name", "../x"),
            ("priority", "urgent"),
            ("fairness", "0"),
            ("min_copies", "-1"),
            ("on_meta_loss", "cry"),
        ] {
            assert!(of(&[(key, value)]).unwrap_err().starts_with(key), "{key}");
        }
    }

    #[test]
    fn keys_of_a_tier_stand_beside_those_of_the_volume() {
        let change = parse(&[
            "mode=both",
            "period=10s",
            "policy=lru",
            "tier.policy=static",
            "pinned=0+1MiB,8MiB+1MiB",
            "iops_min=5",
        ])
        .unwrap();
        assert_eq!(change.mode.as_deref(), Some("both"));
        assert_eq!(change.policy.as_deref(), Some("lru"));
        let tier = change
            .tier
            .unwrap()
            .apply(&hybrid::Tier::default())
            .unwrap();
        assert_eq!(tier.policy, policy::tier::Kind::Static);
        assert_eq!(tier.parameters.period, Nanos::secs(10));
        assert_eq!((tier.parameters.iops_min, tier.pinned.len()), (5.0, 2));
        let refused = parse(&["perod=1s"]).unwrap_err();
        assert!(refused.contains("did you mean period?"), "{refused}");
        assert!(
            parse(&["period=1s", "tier.period=2s"])
                .unwrap_err()
                .contains("twice")
        );
        assert!(
            parse(&["tier={}"])
                .unwrap_err()
                .contains("no setting 'tier'")
        );
    }

    #[test]
    fn a_change_that_is_none_is_bad_usage() {
        assert!(parse(&["write"]).unwrap_err().contains("KEY=VALUE"));
        assert!(
            parse(&["wirte=back"])
                .unwrap_err()
                .contains("did you mean write?")
        );
        assert!(parse(&["dirty_low=many"]).unwrap_err().contains("percent"));
        assert!(
            parse(&["write=back", "write=pass"])
                .unwrap_err()
                .contains("twice")
        );
        assert!(
            parse(&["colour=red"])
                .unwrap_err()
                .starts_with("there is no setting 'colour'")
        );
    }
}
