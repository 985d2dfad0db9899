//! What does a job ask for? `#BB_LUA tanada` lines of its script, or a `tanada ...` comment of it.
//!
//! ```text
//! script -> comment lines up to the first command -> continued lines joined -> words -> one reservation | what is wrong
//! ```
//!
//! `packaging/slurm/burst_buffer.lua` reads the same lines when a job is submitted, inside of Slurm's controller. Both
//! are held to one table of cases (`packaging/slurm/directives.cases`).
//!
//! Always true:
//! 1. What is not understood is refused with its line; nothing is skipped.
//! 2. A job has one reservation: lines add up, and nothing is said twice but `store=`.

use base::Nanos;
use policy::share::BytesPerSec;

use super::reservation_wanted::shown;
use crate::api::reservation::{ReservationAsk, ReservationTarget};

/// Begins a line for a burst buffer of this kind.
const DIRECTIVE: &str = "#BB_LUA";
/// The first word behind it, and of a comment.
const OURS: &str = "tanada";
/// Longest line, in bytes.
const LINE_MAX: usize = 1000;
/// Longest begin of objects' names.
const SCOPE_MAX: usize = 200;
/// Stores of which a volume may lose some.
const TOLERATE_MAX: u8 = 15;
/// Least and most bytes per second of one rate: 1 PB/s.
const RATE_MAX: u64 = 1_000_000_000_000_000;

/// The reservation that a job asks for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Directives {
    volume: Option<String>,
    stores: Vec<String>,
    stripe: bool,
    scope: Option<String>,
    export: Option<String>,
    read: Option<BytesPerSec>,
    write: Option<BytesPerSec>,
    tolerate: Option<u8>,
    plan: Option<String>,
    /// What Slurm counts against its pool, in bytes per second.
    capacity: Option<u64>,
}

/// Reads the lines of a job's script; `None`: it has none.
///
/// # Errors
/// The first mistake, with its line.
pub fn of_script(script: &str, pool: &str) -> Result<Option<Directives>, String> {
    let mut wanted = None;
    for (number, line) in joined(script) {
        let said = |why: String| format!("line {number}: {why}");
        let words = words_of(&line).map_err(said)?;
        let wanted = wanted.get_or_insert_with(Directives::default);
        wanted.take_line(&words, pool).map_err(said)?;
    }
    wanted.map(checked).transpose()
}

/// Is a job's comment meant for this?
pub fn is_ours(comment: &str) -> bool {
    comment.split(' ').find(|word| !word.is_empty()) == Some(OURS)
}

/// Reads the comment of a job (`sbatch --comment="tanada volume=vm1 read=200MB/s"`); `None`: it is about something else.
///
/// # Errors
/// The first mistake.
pub fn of_comment(comment: &str, pool: &str) -> Result<Option<Directives>, String> {
    if !is_ours(comment) {
        return Ok(None);
    }
    let words: Vec<&str> = comment.split(' ').filter(|word| !word.is_empty()).collect();
    let mut wanted = Directives::default();
    wanted.take_line(&words[1..], pool)?;
    checked(wanted).map(Some)
}

/// The directives of a script with the numbers of their lines, continued ones in one. As Slurm does it: blank lines are
/// skipped, and the first line that is no comment ends it.
fn joined(script: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (at, line) in script
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
    {
        if !line.starts_with('#') {
            break;
        }
        let Some(rest) = line.strip_prefix(DIRECTIVE) else {
            continues = false;
            continue;
        };
        let was_continued = continues;
        continues = line.ends_with('\\');
        let part = rest.strip_suffix('\\').unwrap_or(rest);
        match lines.last_mut() {
            Some((_, before)) if was_continued => match before.ends_with(' ') {
                true => before.push_str(part.trim_start_matches(' ')),
                false => before.push_str(part),
            },
            _ => lines.push((at + 1, part.to_owned())),
        }
    }
    lines
}

/// The words behind `#BB_LUA tanada`.
fn words_of(line: &str) -> Result<Vec<&str>, String> {
    if line.len() > LINE_MAX {
        return Err(format!(
            "it has {} bytes, and {LINE_MAX} are the most",
            line.len()
        ));
    }
    if line.contains('%') {
        return Err(
            "it has a '%', which Slurm replaces for some hooks alone; write it without".to_owned(),
        );
    }
    if line.contains('\t') {
        return Err("it has a tab; write spaces".to_owned());
    }
    if !line.is_empty() && !line.starts_with(' ') {
        return Err(format!("write a space behind {DIRECTIVE}"));
    }
    let mut words = line.split(' ').filter(|word| !word.is_empty());
    match words.next() {
        Some(OURS) => Ok(words.collect()),
        other => Err(format!(
            "behind {DIRECTIVE} comes the word {OURS}, not '{}'",
            other.unwrap_or_default()
        )),
    }
}

impl Directives {
    fn take_line(&mut self, words: &[&str], pool: &str) -> Result<(), String> {
        let (mut has_pool, mut has_capacity) = (false, false);
        for word in words {
            let (key, value) = word
                .split_once('=')
                .map_or((*word, None), |(key, value)| (key, Some(value)));
            if key == "stripe" && value.is_none() {
                self.stripe = true;
                continue;
            }
            let Some(value) = value.filter(|value| !value.is_empty()) else {
                return Err(format!("'{word}' has no value; write such as volume=vm1"));
            };
            match key {
                "pool" => {
                    has_pool = true;
                    if value != pool {
                        return Err(format!("'{value}' is not the pool {pool}"));
                    }
                }
                "capacity" => {
                    has_capacity = true;
                    once("capacity", &mut self.capacity, capacity(value)?)?;
                }
                _ => self.take(key, value)?,
            }
        }
        match has_pool == has_capacity {
            true => Ok(()),
            false => Err("pool= and capacity= stand together on one line".to_owned()),
        }
    }

    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "volume" => once(key, &mut self.volume, name(value)?),
            "export" => once(key, &mut self.export, name(value)?),
            "scope" => once(key, &mut self.scope, scope(value)?),
            "read" => once(key, &mut self.read, rate(value)?),
            "write" => once(key, &mut self.write, rate(value)?),
            "tolerate" => once(key, &mut self.tolerate, tolerate(value)?),
            "plan" => once(key, &mut self.plan, plan(value)?),
            "store" => {
                let store = name(value)?;
                if self.stores.contains(&store) {
                    return Err(format!("store={store} is said twice"));
                }
                self.stores.push(store);
                Ok(())
            }
            "stage_in" | "stage_out" => Err(staging(key, value)),
            _ => Err(format!(
                "'{key}' is no setting; there are volume, store, stripe, scope, export, read, write, tolerate, plan, pool and \
                 capacity"
            )),
        }
    }

    /// The sum of its rates, in bytes per second.
    fn promised(&self) -> u64 {
        [self.read, self.write]
            .into_iter()
            .flatten()
            .map(|rate| rate.0)
            .sum()
    }

    /// What is asked of the daemon.
    pub fn ask(&self, name: String, account: Option<String>, span: Nanos) -> ReservationAsk {
        let rate = |rate: Option<BytesPerSec>| rate.map(|rate| format!("{}B/s", rate.0));
        ReservationAsk {
            name,
            account,
            target: ReservationTarget {
                volume: self.volume.clone(),
                stores: self.stores.clone(),
                stripe: self.stripe,
                scope: self.scope.clone(),
                export: self.export.clone(),
                node: None,
                offline: false,
            },
            read: rate(self.read),
            write: rate(self.write),
            span: shown(span),
            tolerate: self.tolerate,
            plan: self.plan.clone(),
            ..ReservationAsk::default()
        }
    }

    /// Reads and writes, in bytes per second.
    pub fn rates(&self) -> (u64, u64) {
        let rate = |rate: Option<BytesPerSec>| rate.map_or(0, |rate| rate.0);
        (rate(self.read), rate(self.write))
    }
}

/// Do all lines together make sense?
fn checked(wanted: Directives) -> Result<Directives, String> {
    let targets = [
        wanted.volume.is_some(),
        !wanted.stores.is_empty(),
        wanted.export.is_some(),
    ];
    let of_stores = !wanted.stores.is_empty();
    let why = match () {
        () if wanted.promised() == 0 => "nothing is reserved; say read= or write=".to_owned(),
        () if targets.iter().filter(|it| **it).count() != 1 => {
            "say of what: one of volume=, store= and export=".to_owned()
        }
        () if of_stores && wanted.scope.is_none() => {
            "store= needs scope=, with which the names of its objects begin".to_owned()
        }
        () if !of_stores && (wanted.scope.is_some() || wanted.stripe) => {
            "scope= and stripe are for store= alone".to_owned()
        }
        () if wanted.volume.is_none() && (wanted.tolerate.is_some() || wanted.plan.is_some()) => {
            "tolerate= and plan= are for volume= alone".to_owned()
        }
        () if wanted.capacity.is_some_and(|most| most < wanted.promised()) => format!(
            "capacity= is less than the sum of read= and write=, {} bytes per second",
            wanted.promised()
        ),
        () => return Ok(wanted),
    };
    Err(why)
}

fn once<T>(key: &str, place: &mut Option<T>, value: T) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("{key}= is said twice; a job has one reservation")),
    }
}

fn name(value: &str) -> Result<String, String> {
    config::check_name(value).map(|()| value.to_owned())
}

fn scope(value: &str) -> Result<String, String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
    match value.len() <= SCOPE_MAX && value.bytes().all(good) {
        true => Ok(value.to_owned()),
        false => Err(format!(
            "'{value}' is no begin of names: use up to {SCOPE_MAX} letters, digits, '.', '_', '-' and '/'"
        )),
    }
}

/// A number with at most twelve digits before the point and three behind it, and a unit.
fn rate(value: &str) -> Result<BytesPerSec, String> {
    const UNITS: [&str; 9] = ["B", "KB", "MB", "GB", "TB", "KIB", "MIB", "GIB", "TIB"];
    let read = || {
        let size = value.strip_suffix("/s")?;
        let end = size
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(size.len());
        let (number, unit) = size.split_at(end);
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let has_digits = (1..=12).contains(&whole.len()) && (1..=3).contains(&part.len());
        let is_number = has_digits && !part.contains('.');
        let is_unit = UNITS.contains(&unit.to_ascii_uppercase().as_str());
        let rate: BytesPerSec = value.parse().ok().filter(|_| is_number && is_unit)?;
        (1..=RATE_MAX).contains(&rate.0).then_some(rate)
    };
    read().ok_or_else(|| {
        format!("'{value}' is no rate; write a number, a unit and /s, such as 200MB/s")
    })
}

/// As Slurm reads it: KB is 1000 bytes, K and KiB are 1024.
fn capacity(value: &str) -> Result<u64, String> {
    let read = || {
        let end = value
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(value.len());
        let (number, unit) = value.split_at(end);
        let factor: u64 = match unit.to_ascii_lowercase().as_str() {
            "" => 1,
            "kb" => 1000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            _ => return None,
        };
        let number: u64 = number.parse().ok()?;
        let bytes = number.checked_mul(factor)?;
        (1..=RATE_MAX).contains(&bytes).then_some(bytes)
    };
    read().ok_or_else(|| {
        format!("'{value}' is no capacity; write a whole number and a unit, such as 200MB")
    })
}

fn tolerate(value: &str) -> Result<u8, String> {
    let number = value.parse::<u8>().ok().filter(|n| *n <= TOLERATE_MAX);
    let is_plain = value.bytes().all(|byte| byte.is_ascii_digit()) && value.len() <= 2;
    number
        .filter(|_| is_plain)
        .ok_or_else(|| format!("'{value}' is no number of stores from 0 to {TOLERATE_MAX}"))
}

fn plan(value: &str) -> Result<String, String> {
    match ["any", "spread"].contains(&value) {
        true => Ok(value.to_owned()),
        false => Err(format!("'{value}' is no plan; write any or spread")),
    }
}

fn staging(key: &str, value: &str) -> String {
    match value.starts_with("s3://") {
        true => format!("{key}= from and to S3 is not there yet; copy within the job"),
        false => format!("{key}= is not there yet; use `tanada object` within the job"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cases that the hooks inside of Slurm are held to as well.
    const CASES: &str = include_str!("../../../../packaging/slurm/directives.cases");

    #[test]
    fn every_case_of_the_table_is_read_as_it_says() {
        let mut count = 0;
        for case in CASES.split("\n--- ").skip(1) {
            let (expected, script) = case.split_once('\n').expect("a head and a script");
            let said = match of_script(script, "tanada") {
                Ok(None) => "nothing".to_owned(),
                Ok(Some(wanted)) => format!("{} bytes per second", wanted.promised()),
                Err(why) => why,
            };
            assert_eq!(said, expected, "\n{script}");
            count += 1;
        }
        assert!(count > 30, "{count}");
    }

    #[test]
    fn what_lines_say_is_asked_of_the_daemon() {
        let script = "#!/bin/sh\n#BB_LUA tanada store=s0 store=s1 stripe \\\n#BB_LUA   scope=run7/ read=1.5GB/s\n\
                      #BB_LUA tanada write=1MiB/s pool=tanada capacity=2GB\n";
        let wanted = of_script(script, "tanada").unwrap().unwrap();
        let asked = wanted.ask(
            "slurm-c-7".to_owned(),
            Some("ann".to_owned()),
            Nanos::secs(120),
        );
        assert_eq!(asked.target.stores, ["s0", "s1"]);
        assert!(asked.target.stripe);
        assert_eq!(asked.target.scope.as_deref(), Some("run7/"));
        assert_eq!(asked.read.as_deref(), Some("1500000000B/s"));
        assert_eq!(asked.write.as_deref(), Some("1048576B/s"));
        assert_eq!(
            (asked.span.as_str(), asked.account.as_deref()),
            ("2m", Some("ann"))
        );
    }

    #[test]
    fn a_comment_that_begins_with_our_word_is_read_like_a_line() {
        let of = |text| of_comment(text, "tanada");
        assert_eq!(of("for the paper"), Ok(None));
        assert_eq!(of(""), Ok(None));
        let wanted = of("tanada volume=vm1 read=200MB/s").unwrap().unwrap();
        assert_eq!(wanted.rates(), (200_000_000, 0));
        assert!(of("tanada volume=vm1").unwrap_err().contains("say read="));
    }
}
