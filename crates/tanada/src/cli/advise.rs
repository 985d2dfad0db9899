//! `tanada advise NAME`: what other sizes of its cache would do for a running volume, as its shadow found.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use clap::{Arg, ArgAction};
use report::terminal::table::{count, share, size, table};
use report::terminal::{Ending, Refused, Usage};
use serde::Serialize;

use super::client::{Client, ClientError, Target, path};
use super::show;
use crate::api::learn::{Simulated, TierAdvice};
use crate::api::volume::{Advice, AdviceAtSize, Volume};

/// Options of `tanada advise` that take a value; those of a trace count in the laboratory alone.
const VALUES: [&str; 18] = [
    "admin",
    "html",
    "slow",
    "fast",
    "policy",
    "size",
    "endurance",
    "replay",
    "seed",
    "jobs",
    "format",
    "tick",
    "bad",
    "start",
    "end",
    "device",
    "reorder",
    "columns",
];
/// Those that take none.
const FLAGS: [&str; 2] = ["json", "tier"];

/// A question about a running volume.
#[derive(Debug, PartialEq, Eq)]
pub struct OfVolume {
    name: String,
    admin: Option<String>,
    json: bool,
    html: bool,
}

/// The question, if a volume is meant: one word that can name a volume and names no file. What is mistyped is left to the
/// laboratory, which says what is wrong with it.
pub fn asked(arguments: &[OsString]) -> Option<OfVolume> {
    let value = |name| Arg::new(name).long(name).action(ArgAction::Append);
    let flag = |name| Arg::new(name).long(name).action(ArgAction::SetTrue);
    let found = clap::Command::new("tanada advise")
        .no_binary_name(true)
        .disable_help_flag(true)
        .arg(Arg::new("word").required(true))
        .args(VALUES.map(value))
        .args(FLAGS.map(flag))
        .try_get_matches_from(arguments)
        .ok()?;
    let name: &String = found.get_one("word")?;
    let names_one = config::check_name(name).is_ok() && !Path::new(name).exists();
    names_one.then(|| OfVolume {
        name: name.clone(),
        admin: found.get_one("admin").cloned(),
        json: found.get_flag("json"),
        html: found.contains_id("html"),
    })
}

/// The daemon to ask: that of `--admin`, else of `TANADA_ADMIN`, else the usual one.
fn target(arguments: &OfVolume) -> anyhow::Result<Target> {
    let named = arguments
        .admin
        .clone()
        .or_else(|| std::env::var("TANADA_ADMIN").ok());
    let Some(named) = named else {
        return Ok(Target::default());
    };
    let wrong = |error| Usage(format!("--admin or TANADA_ADMIN '{named}': {error}"));
    Ok(named.parse::<Target>().map_err(wrong)?)
}

/// Asks the daemon and prints its advice.
pub fn run(arguments: &OfVolume) -> anyhow::Result<()> {
    let name = arguments.name.as_str();
    if arguments.html {
        let what =
            format!("--html is for traces, and there is no file '{name}'; --json is for both");
        return Err(Usage(what).into());
    }
    let client = Client::new(target(arguments)?)?;
    let volume: Volume = client
        .get(&path(name, "")?)
        .with_context(|| format!("there is no file '{name}', so a volume was looked for"))?;
    let shadow: Result<Advice, ClientError> = client.get(&path(name, "/advice")?);
    if volume.settings.tier.is_none() {
        let advice = shadow.with_context(|| format!("volume {name}"))?;
        return show::answer(arguments.json, &advice, || page(&advice));
    }
    let tier: Result<TierAdvice, ClientError> = client.get(&path(name, "/tier-advice")?);
    if let (Err(shadow), Err(tier)) = (&shadow, &tier) {
        let why = format!("{tier}; of its cache: {shadow}");
        match tier.ending() {
            Ending::Refused => return Err(Refused(why).into()),
            _ => anyhow::bail!(why),
        }
    }
    if arguments.json {
        return show::json(&Both {
            cache: shadow.ok(),
            tier: tier.ok(),
        });
    }
    let mut text = match &tier {
        Ok(tier) => tier_page(tier),
        Err(error) => format!("{error}\n"),
    };
    if let Ok(shadow) = &shadow {
        text.push_str(&format!("\n{}", page(shadow)));
    }
    show::text(&text)
}

/// Advice on a volume with a tier.
#[derive(Serialize)]
struct Both {
    /// On its cache, where a shadow watches.
    #[serde(flatten)]
    cache: Option<Advice>,
    /// On its tier, where enough is known.
    tier: Option<TierAdvice>,
}

fn tier_page(advice: &TierAdvice) -> String {
    let known = Duration::from_secs(advice.seen.known_seconds as u64);
    let mut text = match advice.worth_it {
        true => format!(
            "Other parameters would do the tier of {} good.\nTo have them: tanada volume set {0} {}\n",
            advice.seen.volume,
            advice.changes.join(" ")
        ),
        false => format!(
            "The parameters of the tier of {} suit; others would gain too little.\n",
            advice.seen.volume
        ),
    };
    let row = |name: &str, of: &Simulated, held: &Simulated| {
        vec![
            name.to_owned(),
            share(of.share, 1.0),
            format!("{:.1} %", 100.0 * of.net_share),
            of.regions_up_most.to_string(),
            count(of.moves_up as f64),
            count(of.moves_down as f64),
            format!("{:.1} %", 100.0 * held.net_share),
        ]
    };
    let heads = [
        "",
        "TO REGIONS UP",
        "SLOW TIME SAVED",
        "UP AT MOST",
        "UPS",
        "DOWNS",
        "HELD OUT",
    ];
    text.push('\n');
    text.push_str(&table(
        &heads,
        &[
            row("now", &advice.present, &advice.present_held_out),
            row("learned", &advice.simulated, &advice.held_out),
        ],
    ));
    let _ = writeln!(
        text,
        "\nLearned: iops_min {}, sub_luns_max {}, share_min {} %, streak_min {}, timeout {}, for regions of {} and a period of {} s.",
        advice.iops_min,
        advice.sub_luns_max,
        advice.share_min,
        advice.streak_min,
        advice.timeout,
        size(advice.seen.region_bytes),
        advice.seen.period_seconds
    );
    let _ = writeln!(
        text,
        "By decisions alone over {} requests in {}; held out: found in the first half, tried on the second.",
        count(advice.seen.requests as f64),
        humantime::format_duration(known)
    );
    text
}

fn page(advice: &Advice) -> String {
    let mut text = String::new();
    for reason in &advice.reasons {
        text.push_str(&format!("{reason}\n"));
    }
    let other = advice
        .advised_bytes
        .filter(|&bytes| bytes != advice.present_bytes);
    if let Some(bytes) = other {
        let size_as_set = base::Bytes(bytes).to_string().replace(' ', "");
        let _ = writeln!(
            text,
            "To have that: tanada volume set {} fast_size={size_as_set}{}",
            advice.seen.volume,
            match bytes > advice.present_bytes {
                true => " (if the fast device has the room)",
                false => "",
            }
        );
    }
    text.push('\n');
    text.push_str(&sizes(advice));
    text.push_str(&origin(advice));
    text
}

/// What each size would do.
fn sizes(advice: &Advice) -> String {
    let heads = [
        "",
        "SIZE",
        "HITS",
        "READ HITS",
        "LRU HITS",
        "SLOW I/O SAVED",
        "FLASH/DAY",
    ];
    let row = |at: &AdviceAtSize| {
        let is_now = at.size_bytes == advice.present_bytes;
        let is_advised = Some(at.size_bytes) == advice.advised_bytes;
        let mark = match (is_now, is_advised) {
            (true, true) => "now, *",
            (true, false) => "now",
            (false, true) => "*",
            (false, false) => "",
        };
        vec![
            mark.to_owned(),
            size(at.size_bytes),
            share(at.hit_ratio, 1.0),
            share(at.read_hit_ratio, 1.0),
            share(at.lru_hit_ratio, 1.0),
            format!("{:.1} %", 100.0 * at.slow_saved),
            size(at.flash_bytes_per_day as u64),
        ]
    };
    let lines: Vec<Vec<String>> = advice.sizes.iter().map(row).collect();
    table(&heads, &lines)
}

/// What the advice rests on.
fn origin(advice: &Advice) -> String {
    let mut text = String::new();
    let watched = Duration::from_secs(advice.seen.watched_seconds as u64);
    let watched = humantime::format_duration(watched);
    let _ = writeln!(
        text,
        "\n{}: {} requests of {} in {watched}, {} of that past the cache in long streams; some {} different.",
        advice.seen.volume,
        count(advice.seen.requests as f64),
        size(advice.seen.pages * 4096),
        share(advice.seen.passed_pages as f64, advice.seen.pages as f64),
        size(advice.seen.footprint_bytes)
    );
    if let Some(measured) = advice.measured_read_share {
        let _ = writeln!(
            text,
            "The fast device served {} of the bytes read since the daemon began.",
            share(measured, 1.0)
        );
    }
    let _ = writeln!(
        text,
        "Expected for {}, write={}, admission={}, by caches that began empty, from {} uses of {:.3} % of the pages.",
        advice.policy,
        advice.write,
        advice.admission,
        advice.seen.sampled,
        100.0 * advice.seen.sampling_rate
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(advised: Option<u64>) -> Advice {
        let at = |size_bytes: u64, slow_saved| AdviceAtSize {
            size_bytes,
            hit_ratio: slow_saved,
            read_hit_ratio: slow_saved,
            lru_hit_ratio: slow_saved,
            slow_pages: 100,
            slow_saved,
            flash_bytes_per_day: 3e9,
        };
        Advice {
            seen: crate::api::volume::AdviceSeen {
                volume: "vol0".into(),
                watched_seconds: 7200.0,
                requests: 5_000_000,
                pages: 6_000_000,
                passed_pages: 600_000,
                sampled: 50_000,
                sampling_rate: 0.01,
                footprint_bytes: 9 << 30,
            },
            policy: "s3-fifo".into(),
            write: "back".into(),
            admission: "second-access".into(),
            present_bytes: 4 << 30,
            measured_read_share: Some(0.625),
            sizes: vec![at(2 << 30, 0.3), at(4 << 30, 0.4), at(8 << 30, 0.7)],
            lru: Vec::new(),
            advised_bytes: advised,
            reasons: vec!["Because.".into()],
            memory_bytes: 2 << 20,
        }
    }

    #[test]
    fn a_change_comes_with_the_command_that_makes_it() {
        let more = page(&advice(Some(8 << 30)));
        let command = more
            .lines()
            .find_map(|line| line.split("fast_size=").nth(1))
            .and_then(|rest| rest.split(' ').next());
        assert_eq!(
            command.and_then(|size| size.parse().ok()),
            Some(base::Bytes::gib(8))
        );
        assert!(more.contains("if the fast device has the room"), "{more}");
        assert!(more.contains("62.5 %") && more.contains("in 2h"), "{more}");
        for stays in [page(&advice(Some(4 << 30))), page(&advice(None))] {
            assert!(!stays.contains("volume set"), "{stays}");
        }
    }

    #[test]
    fn learned_parameters_come_with_the_command_that_sets_them() {
        let simulated = |net_share| Simulated {
            share: net_share + 0.1,
            net_share,
            regions_up_most: 4,
            moves_up: 5,
            moves_down: 1,
        };
        let mut advice = TierAdvice {
            seen: crate::api::learn::TierSeen {
                volume: "vol0".into(),
                known_seconds: 7200.0,
                requests: 100_000,
                region_bytes: 64 << 20,
                period_seconds: 10.0,
            },
            iops_min: 5.0,
            sub_luns_max: 20,
            share_min: 60.0,
            streak_min: 1,
            timeout: 12,
            simulated: simulated(0.6),
            present: simulated(0.4),
            held_out: simulated(0.55),
            present_held_out: simulated(0.41),
            worth_it: true,
            changes: vec!["streak_min=1".into(), "timeout=12".into()],
        };
        let text = tier_page(&advice);
        assert!(
            text.contains("tanada volume set vol0 streak_min=1 timeout=12"),
            "{text}"
        );
        assert!(text.contains("60.0 %") && text.contains("in 2h"), "{text}");
        advice.worth_it = false;
        assert!(!tier_page(&advice).contains("volume set"));
    }

    #[test]
    fn a_file_that_is_there_is_a_trace_and_so_is_a_path() {
        let question = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            asked(&words)
        };
        let volume = |words: &[&str]| question(words).map(|asked| asked.name);
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(volume(&[file.path().to_str().unwrap()]), None);
        assert_eq!(volume(&["no/such"]), None);
        assert_eq!(volume(&["vol0", "vol1"]), None);
        assert_eq!(volume(&[]), None);
        assert_eq!(volume(&["vol0", "--help"]), None);
        assert_eq!(volume(&["vol0", "--jsno"]), None);
        assert_eq!(volume(&["vol0"]), Some("vol0".to_owned()));
        assert_eq!(volume(&["--size", "4GiB", "vol0"]), Some("vol0".to_owned()));
        let asked = question(&[
            "vol0",
            "--seed",
            "2",
            "--admin",
            "unix:/b.sock",
            "--json",
            "--tier",
        ]);
        let expected = OfVolume {
            name: "vol0".to_owned(),
            admin: Some("unix:/b.sock".to_owned()),
            json: true,
            html: false,
        };
        assert_eq!(asked, Some(expected));
    }
}
