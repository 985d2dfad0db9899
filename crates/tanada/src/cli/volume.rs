//! `tanada volume ...`: commands to a running daemon.

use std::fmt::Write as _;

use base::Nanos;
use config::tier::time_text;
use hyper::Method;
use report::terminal::table::{count, megabytes_per_second, share, size, span};
use serde_json::{Map, Value};

use super::ask::Ask;
use super::client::{Client, path};
use super::consent;
use super::{
    cache, cluster, cluster_pages, follow, options, rescue, show, store_pages, trash, volume_heat,
    volume_list, volume_moves, volume_set,
};
use crate::api::figures::{Share, Written};
use crate::api::job::Job;
use crate::api::tier::{Tier, TierSettings};
use crate::api::volume::{Attach, Cache, Trace, Volume};
use crate::api::volumes::AnyVolume;

/// Runs one of them.
pub fn run(command: options::Volume) -> anyhow::Result<()> {
    match command {
        options::Volume::List(ask) => volume_list::list(ask),
        options::Volume::Show { name, ask } => {
            let found = volume_list::find(&Client::new(ask.admin)?, &name)?;
            show::answer(ask.json, &found, || match &found {
                AnyVolume::Hybrid(hybrid) => page(&hybrid.volume),
                AnyVolume::Virtual(disk) => cluster_pages::page(disk),
            })
        }
        options::Volume::Delete(wanted) => trash::delete(wanted),
        options::Volume::Detach { name, no_wait, ask } => {
            let name = volume_list::hybrid(&Client::new(ask.admin.clone())?, &name)?;
            detach(&name, no_wait, &ask)
        }
        options::Volume::Attach {
            name,
            fast,
            force,
            new_cache,
            lose_dirty,
            loss,
            ask,
        } => {
            let name = volume_list::hybrid(&Client::new(ask.admin.clone())?, &name)?;
            let attach = Attach {
                fast,
                force,
                new_cache,
                lose_dirty,
            };
            let lost = lost_by(&name, &attach);
            if !consent::is_given(&name, &lost, &loss, ask.json)? {
                return Ok(());
            }
            let path = path(&name, "/attach")?;
            ask.send(Method::POST, &path, &attach, |volume: &Volume| {
                let fast = volume.fast.as_deref().unwrap_or("its fast device");
                format!("{name} is cached by {fast} again; the cache is empty\n")
            })
        }
        options::Volume::GiveUp(of) => cache::give_up(&of),
        options::Volume::Accept(of) => cache::accept(&of),
        options::Volume::Rescue(asked) => rescue::run(&asked),
        options::Volume::Set(wanted) => volume_set::run(*wanted, changed),
        options::Volume::Heat(arguments) => volume_heat::run(&arguments),
        options::Volume::Moves(arguments) => volume_moves::run(&arguments),
        options::Volume::Disk(command) => cluster::run(command),
        options::Volume::Old(old) => unreachable!("{old:?} is read as its new spelling"),
    }
}

/// What attaching a fast device loses; empty: nothing.
fn lost_by(name: &str, attach: &Attach) -> String {
    let on = attach.fast.as_deref().unwrap_or("its fast device");
    let mut lost = Vec::new();
    if attach.force {
        lost.push(format!(
            "what another volume has cached on {on} would be lost"
        ));
    }
    if attach.lose_dirty {
        lost.push(format!(
            "what was written to {name} and only its missing cache has would be lost"
        ));
    }
    lost.join("; ")
}

fn detach(name: &str, no_wait: bool, ask: &Ask) -> anyhow::Result<()> {
    let client = Client::new(ask.admin.clone())?;
    if !ask.json {
        let before: Volume = client.get(&path(name, "")?)?;
        eprintln!(
            "writing {} of dirty data to {} ...",
            size(before.cache.dirty_bytes),
            before.slow
        );
    }
    let nothing: Map<String, Value> = Map::new();
    let begin = path(name, "/detach?wait=false")?;
    let job: Job = client.send_json(Method::POST, &begin, &nothing)?;
    if no_wait {
        return show::answer(ask.json, &job, || {
            format!("`tanada job show {} --wait` follows it\n", job.id)
        });
    }
    let volume: Volume = follow::result(&client, job.id)?;
    show::answer(ask.json, &volume, || {
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
                (true, Some(limit)) => {
                    format!("on, age_limit {}", time_text(Nanos::from_secs_f64(limit)))
                }
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
