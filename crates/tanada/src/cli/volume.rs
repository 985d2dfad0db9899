//! `tanada volume ...`: commands to a running daemon.

use std::fmt::Write as _;

use base::Nanos;
use config::instead;
use config::tier::{TierKeys, time_text};
use hyper::Method;
use report::terminal::Usage;
use report::terminal::table::{count, megabytes_per_second, share, size, span};
use serde_json::{Map, Value};

use super::ask::Ask;
use super::client::{Client, path};
use super::disk_settings::{self, SetDisk};
use super::{
    cache, cluster, cluster_pages, options, rescue, show, store_pages, volume_heat, volume_moves,
};
use crate::api::cluster::Disk;
use crate::api::figures::{Share, Written};
use crate::api::tier::{Tier, TierSettings};
use crate::api::volume::{Attach, Cache, Change, Trace, Volume};

/// Runs one of them.
pub fn run(command: options::Volume) -> anyhow::Result<()> {
    match command {
        options::Volume::List(ask) => list(ask),
        options::Volume::Show { name, ask } => show_one(&name, ask),
        options::Volume::Detach { name, ask } => detach(&name, ask),
        options::Volume::Attach {
            name,
            fast,
            force,
            ask,
        } => {
            let attach = Attach { fast, force };
            let path = path(&name, "/attach")?;
            ask.send(Method::POST, &path, &attach, |volume: &Volume| {
                let fast = volume.fast.as_deref().unwrap_or("its fast device");
                format!("{name} is cached by {fast} again; the cache is empty\n")
            })
        }
        options::Volume::GiveUp(of) => cache::give_up(&of),
        options::Volume::Accept(of) => cache::accept(&of),
        options::Volume::Rescue(asked) => rescue::run(&asked),
        options::Volume::Set {
            name, disk, ask, ..
        } if disk.is_asked() => disk_settings::set(&name, &disk, ask),
        options::Volume::Set {
            name,
            changes,
            until_restart,
            ask,
            ..
        } => {
            let change = parse_changes(&changes)?;
            let mut path = path(&name, "")?;
            if until_restart {
                path.push_str("?until_restart=true");
            }
            let said = |volume: &Volume| changed(volume, &name, change.advise == Some(true));
            ask.send(Method::PATCH, &path, &change, said)
        }
        options::Volume::Heat(arguments) => volume_heat::run(&arguments),
        options::Volume::Moves(arguments) => volume_moves::run(&arguments),
        options::Volume::Disk(command) => cluster::run(command),
    }
}

fn detach(name: &str, ask: Ask) -> anyhow::Result<()> {
    if !ask.json {
        let before: Volume = Client::new(ask.admin.clone())?.get(&path(name, "")?)?;
        eprintln!(
            "writing {} of dirty data to {} ...",
            size(before.cache.dirty_bytes),
            before.slow
        );
    }
    let nothing: Map<String, Value> = Map::new();
    let path = path(name, "/detach")?;
    ask.send(Method::POST, &path, &nothing, |volume: &Volume| {
        format!(
            "{name} stands on {} alone; `tanada volume attach {name}` gives it a fast device again\n",
            volume.slow
        )
    })
}

/// What holds after a change.
fn changed(volume: &Volume, name: &str, watched: bool) -> String {
    let mut said = settings(volume);
    if let Some(trace) = &volume.trace {
        said.push_str(&format!("trace\n{}", recording(trace)));
    }
    if watched {
        let _ = writeln!(
            said,
            "a shadow watches from now on; `tanada advise {name}` tells what it found"
        );
    }
    said
}

/// Both kinds, hybrids first.
fn list(ask: Ask) -> anyhow::Result<()> {
    let client = Client::new(ask.admin)?;
    let volumes: Vec<Volume> = client.get("/v1/volumes")?;
    let disks: Vec<Disk> = client.get("/v1/cluster/volumes")?;
    if ask.json {
        let mut all: Vec<Value> = Vec::new();
        for volume in &volumes {
            all.push(serde_json::to_value(volume)?);
        }
        for disk in &disks {
            all.push(serde_json::to_value(disk)?);
        }
        return show::json(&all);
    }
    let mut text = String::new();
    if !volumes.is_empty() {
        text.push_str(&show::volumes(&volumes));
    }
    if !disks.is_empty() {
        text.push_str(if text.is_empty() { "" } else { "\n" });
        text.push_str(&cluster_pages::disks(&disks));
    }
    if text.is_empty() {
        text.push_str(
            "There are no volumes: the configuration has no [[hybrid]], and no virtual disk was made \
             (`tanada volume create`).\n",
        );
    }
    show::text(&text)
}

fn show_one(name: &str, ask: Ask) -> anyhow::Result<()> {
    let own = path(name, "")?;
    let client = Client::new(ask.admin)?;
    let volumes: Vec<Volume> = client.get("/v1/volumes")?;
    if !volumes.iter().any(|volume| volume.name == name) {
        let disks: Vec<Disk> = client.get("/v1/cluster/volumes")?;
        if let Some(disk) = disks.iter().find(|disk| disk.terms.name == name) {
            return show::answer(ask.json, disk, || cluster_pages::page(disk));
        }
        if volumes.is_empty() && !disks.is_empty() {
            // It says which there are.
            let _: Disk = client.get(&format!("/v1/cluster/volumes/{name}"))?;
        }
    }
    let volume: Volume = client.get(&own)?;
    show::answer(ask.json, &volume, || page(&volume))
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

/// `write=through period=10s` as a change.
fn parse_changes(changes: &[String]) -> Result<Change, Usage> {
    let mut object = Map::new();
    let mut tier = Map::new();
    for change in changes {
        let (key, value) = change
            .split_once('=')
            .ok_or_else(|| Usage(format!("'{change}' is not a change; write KEY=VALUE")))?;
        if let Some(key) = tier_key(key) {
            if tier.insert(key.to_owned(), Value::from(value)).is_some() {
                return Err(Usage(format!("{key} is given twice")));
            }
            continue;
        }
        if !Change::KEYS.contains(&key) || key == "tier" {
            if let Some(option) = SetDisk::option(key) {
                let of = "of virtual disks, and an option";
                return Err(Usage(format!("{key} is {of}: write --{option} {value}")));
            }
            let own = Change::KEYS.iter().copied().filter(|key| *key != "tier");
            let tiers = TierKeys::KEYS
                .iter()
                .copied()
                .filter(|key| *key != "policy");
            let hint = instead(key, own.chain(tiers).chain(["tier.policy"]), "the keys are");
            return Err(Usage(format!("there is no setting '{key}'{hint}")));
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
        if object.insert(key.to_owned(), value).is_some() {
            return Err(Usage(format!("{key} is given twice")));
        }
    }
    if !tier.is_empty() {
        object.insert("tier".to_owned(), Value::Object(tier));
    }
    serde_json::from_value(Value::Object(object)).map_err(|error| Usage(error.to_string()))
}

fn settings(volume: &Volume) -> String {
    let settings = &volume.settings;
    let or = |bytes: Option<u64>, none: &str| bytes.map_or(none.to_owned(), size);
    let mut text = lines([
        ("mode", settings.mode.clone()),
        ("write", settings.write.clone()),
        ("policy", settings.policy.clone()),
        ("admission", settings.admission.clone()),
        ("block", size(settings.block_bytes)),
        ("dirty_low", format!("{} %", settings.dirty_low)),
        ("dirty_high", format!("{} %", settings.dirty_high)),
        (
            "energy",
            match (settings.energy, settings.age_limit_seconds) {
                (true, Some(limit)) => format!("on, age_limit {limit:.0} s"),
                (on, _) => if on { "on" } else { "off" }.to_owned(),
            },
        ),
        (
            "sequential_bypass",
            or(settings.sequential_bypass_bytes, "off"),
        ),
        (
            "flash_writes_per_day",
            or(settings.flash_writes_per_day_bytes, "off"),
        ),
        ("fast_size", or(settings.fast_size_bytes, "all")),
        (
            "advise",
            if volume.advise { "on" } else { "off" }.to_owned(),
        ),
    ]);
    if let Some(tier) = &settings.tier {
        text.push_str(&tier_settings(tier));
    }
    text
}

/// The choices for a tier, named as they are set.
fn tier_settings(tier: &TierSettings) -> String {
    let on = |switch: bool| if switch { "on" } else { "off" }.to_owned();
    let seconds = |seconds: f64| time_text(Nanos::from_secs_f64(seconds));
    let list = |texts: &[String]| match texts.is_empty() {
        true => "none".to_owned(),
        false => texts.join(", "),
    };
    lines([
        ("tier.policy", tier.rules.policy.clone()),
        ("period", seconds(tier.rules.period_seconds)),
        ("iops_min", tier.rules.iops_min.to_string()),
        ("sub_luns_max", tier.rules.sub_luns_max.to_string()),
        ("share_min", format!("{} %", tier.rules.share_min)),
        ("streak_min", tier.rules.streak_min.to_string()),
        ("timeout", tier.rules.timeout.to_string()),
        (
            "look_back",
            tier.rules
                .look_back_seconds
                .map_or("auto".to_owned(), seconds),
        ),
        ("region", size(tier.region_bytes)),
        ("extent", size(tier.extent_bytes)),
        ("mover", tier.mover.clone()),
        ("lazy_down", on(tier.lazy_down)),
        ("flow_control", on(tier.flow_control)),
        ("break_even", on(tier.break_even)),
        ("either", on(tier.either)),
        (
            "share",
            tier.share
                .map_or("auto".to_owned(), |share| format!("{share} %")),
        ),
        ("pinned", list(&tier.pinned)),
        ("barred", list(&tier.barred)),
        ("windows", list(&tier.windows)),
        ("auto", on(tier.auto)),
    ])
}

/// Where a tier stands.
fn tier_page(tier: &Tier) -> String {
    let room = &tier.room;
    let flow = match tier.flow_bytes_per_second {
        Some(rate) => format!("moves may copy {} MB/s", megabytes_per_second(rate)),
        None => "moves are not held back".to_owned(),
    };
    lines([
        (
            "regions up",
            format!(
                "{} of {}, each {}; {} hot in the last of {} intervals",
                room.regions_up,
                room.regions,
                size(room.region_bytes),
                tier.candidates,
                tier.intervals
            ),
        ),
        (
            "held",
            format!(
                "{} of at most {}, {} of that dirty",
                size(room.held_bytes),
                size(room.room_bytes),
                size(room.held_dirty_bytes)
            ),
        ),
        (
            "moves",
            format!(
                "{} up, {} down, {} given up, {} failed; {} under way",
                tier.moves_up,
                tier.moves_down,
                tier.moves_cancelled,
                tier.moves_failed,
                tier.moves_under_way
            ),
        ),
        (
            "copied",
            format!("{} up, {} down", size(tier.up_bytes), size(tier.down_bytes)),
        ),
        ("flow control", flow),
    ])
}

/// A trace being recorded.
fn recording(trace: &Trace) -> String {
    let dropped = format!("{} requests: the file is too slow", trace.dropped);
    let missing = (trace.dropped > 0).then_some(("missing", dropped));
    let stopped = trace.failed.clone().map(|why| ("stopped", why));
    let written = format!("{} requests, {}", trace.requests, size(trace.written_bytes));
    let always = [
        ("file", trace.file.clone()),
        ("trace_max", size(trace.max_bytes)),
        ("written", written),
    ];
    lines(always.into_iter().chain(missing).chain(stopped))
}

/// A line for each key.
fn lines<'a>(rows: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let line = |(key, value)| format!("  {key:<22} {value}\n");
    rows.into_iter().map(line).collect()
}

/// One volume in full.
fn page(volume: &Volume) -> String {
    let fast = volume.fast.as_deref().unwrap_or("nothing (detached)");
    let mut text = format!(
        "{}: {}, {} cached by {fast}, {}\n",
        volume.name,
        size(volume.size_bytes),
        volume.slow,
        volume.health
    );
    if !volume.why.is_empty() {
        let _ = writeln!(text, "  {}", volume.why);
    }
    let mut section = |name: &str, lines: &str| {
        let _ = write!(text, "\n{name}\n{lines}");
    };
    let caps = volume.caps.as_ref();
    let caps = caps.map(|caps| ("at most", caps.words_with_waits()));
    let lines_of_caps = lines(caps);
    section("settings", &(settings(volume) + &lines_of_caps));
    if let Some(queue) = &volume.queue {
        section("queue", &lines(store_pages::queue_lines(queue)));
    }
    if let Some(trace) = &volume.trace {
        section("trace", &recording(trace));
    }
    if let Some(tier) = &volume.tier {
        section("tier", &tier_page(tier));
    }
    let identity = volume.attachment.as_ref().map(|attachment| {
        let words = format!("{}, attachment {}", attachment.cache, attachment.generation);
        ("identity", words)
    });
    let cache = identity.into_iter().chain(held(&volume.cache));
    let cache = cache.chain(served(&volume.cache));
    section("cache", &lines(cache.chain(kept(&volume.cache))));
    section("latency", &latency(volume));
    text
}

/// What a cache holds.
fn held(cache: &Cache) -> impl Iterator<Item = (&'static str, String)> {
    let of_cache = |bytes: u64| {
        format!(
            "{} of {} ({})",
            size(bytes),
            size(cache.cache_bytes),
            share(bytes as f64, cache.cache_bytes as f64)
        )
    };
    let oldest = (cache.dirty_bytes > 0).then(|| ("oldest dirty", span(cache.dirty_age_ns)));
    let always = [
        ("cached", of_cache(cache.cached_bytes)),
        ("dirty", of_cache(cache.dirty_bytes)),
    ];
    always.into_iter().chain(oldest)
}

/// What a cache did for its clients.
fn served(cache: &Cache) -> [(&'static str, String); 6] {
    let read = |of: &Share| {
        let all = of.bytes_fast + of.bytes_slow;
        format!(
            "{} from fast, {} from slow ({} hits by bytes)",
            size(of.bytes_fast),
            size(of.bytes_slow),
            share(of.bytes_fast as f64, all as f64)
        )
    };
    let written = |of: &Written| {
        let requests = count(of.requests as f64);
        format!("{} in {requests} requests", size(of.bytes))
    };
    let (filled, evicted) = (count(cache.fills as f64), count(cache.evicted as f64));
    [
        ("random reads", read(&cache.random_reads)),
        ("sequential reads", read(&cache.sequential_reads)),
        ("random writes", written(&cache.random_writes)),
        ("sequential writes", written(&cache.sequential_writes)),
        ("filled, evicted", format!("{filled} and {evicted} pages")),
        (
            "cleaned",
            format!(
                "{} in {} rounds",
                size(cache.bytes_cleaned),
                cache.clean_rounds
            ),
        ),
    ]
}

/// What a cache keeps of itself, and how it began.
fn kept(cache: &Cache) -> impl Iterator<Item = (&'static str, String)> {
    let ledger = format!(
        "{} of {} in use, {} commits, {} written",
        size(cache.ledger_used_bytes),
        size(cache.ledger_size_bytes),
        cache.commits,
        size(cache.ledger_bytes_written)
    );
    let start = match cache.recovery_ns {
        0 => "began with an empty cache".to_owned(),
        took => format!(
            "{} pages came back, {} were dropped, in {}",
            cache.recovered_pages,
            cache.recovered_dropped,
            span(took)
        ),
    };
    let bad = cache.bad_checksums;
    let always = [
        ("ledger", ledger),
        ("memory", size(cache.memory_bytes)),
        ("last start", start),
    ];
    always
        .into_iter()
        .chain((bad > 0).then(|| ("bad checksums", bad.to_string())))
}

/// How long each operation took.
fn latency(volume: &Volume) -> String {
    if volume.figures.operations.is_empty() {
        return "  nothing was asked yet\n".to_owned();
    }
    lines(volume.figures.operations.iter().map(|of| {
        let took = &of.latency;
        let value = format!(
            "{} requests, p50 {}, p99 {}, max {}",
            count(of.requests as f64),
            span(took.p50_ns),
            span(took.p99_ns),
            span(took.max_ns)
        );
        (of.op.as_str(), value)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(changes: &[&str]) -> Result<Change, String> {
        let changes: Vec<String> = changes.iter().map(|change| change.to_string()).collect();
        parse_changes(&changes).map_err(|usage| usage.0)
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
    fn what_is_set_on_virtual_disks_by_options_is_said_to_be_one() {
        let why = |change| parse(&[change]).unwrap_err();
        let said = "priority is of virtual disks, and an option: write --priority low";
        assert_eq!(why("priority=low"), said);
        assert!(why("min_copies=2").ends_with("write --min-copies 2"));
        assert!(why("colour=red").starts_with("there is no setting 'colour'"));
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
    }
}
