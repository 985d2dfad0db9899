//! An export of a hybrid with a queue before its slow device: are cold reads kept beside cleaner and greedy clients?
//!
//! ```text
//! greedy clients: writes -> cache, cleaner -> slow disk <- cold reads, without a promise, with it, without it
//!                 cold reads ---------------'
//! ```
//!
//! Always true: a case counts only if over its windows the cleaner wrote, and the slow disk answered at least the said part
//! of what the booked client read.

use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use super::daemon::Daemon;
use super::load::{Load, Pattern, Places, Span, Target, fill};
use super::report::{Bar, Report};
use super::windows::Beside;

/// What is promised, in MB/s.
const RATE: u64 = 10;
/// Windows counted, and without a reservation or of random reads.
const SECONDS: usize = 120;
const FEWER: usize = 20;
/// Bytes that cold reads go over: far more than the cache has. All of it is written before, since holes are answered
/// without the disk.
const COLD: u64 = 2 << 30;
/// Bytes behind them for all others.
const OTHERS: u64 = 1 << 30;

/// Exports of greedy clients, one client each: the queue shares out by export what is not promised.
const GREEDY: usize = 16;
/// Of which so many have a client that writes as well.
const WRITERS: usize = 4;

/// The disk's model reads 78 MB/s at its outer edge.
const CONFIG: &str = r#"
[[device]]
name = "slow"
model = "hdd-7200-sata"
size = "3GiB"
memory = true
[[device]]
name = "fast"
model = "ssd-sata-mlc"
size = "256MiB"
memory = true
[[hybrid]]
name = "h"
slow = "slow"
fast = "fast"
queue = true
read_speed = "70MB/s"
write_speed = "70MB/s"
[[export]]
device = "h"
name = "booked"
nbd = "unix:disks.sock"
[admin]
listen = "unix:admin.sock"
"#;

/// What was counted below the exports.
struct Below {
    /// By the cleaner, to the slow disk.
    cleaned: u64,
    /// Read from the slow disk for clients.
    read: u64,
}

impl Below {
    fn now(daemon: &Daemon) -> Result<Below, Box<dyn Error>> {
        let mut http = daemon.connect()?;
        let volume = http.get("/v1/volumes/h")?;
        let devices = http.get("/v1/devices")?;
        let mut devices = devices.as_array().ok_or("devices")?.iter();
        let slow = devices
            .find(|it| it["name"] == "slow")
            .ok_or("a slow device")?;
        let operations = slow["figures"]["operations"]
            .as_array()
            .ok_or("operations")?;
        let mut operations = operations.iter();
        let reads = operations.find(|it| it["op"] == "read" && it["class"] == "foreground");
        Ok(Below {
            cleaned: volume["cache"]["bytes_cleaned"]
                .as_u64()
                .ok_or("what was cleaned")?,
            read: reads
                .map_or(Some(0), |it| it["bytes"].as_u64())
                .ok_or("bytes")?,
        })
    }
}

/// What of [`RATE`], in MB/s, reads of 256 KiB anywhere have: as many as jump in the device time that it takes in turn.
fn anywhere() -> f64 {
    // In milliseconds: the command and its bytes at what the disk is said to read; a mean seek and half a turn.
    let (in_turn, jump) = (0.2 + 262.144 / 70.0, 8.5 + 60_000.0 / 7_200.0 / 2.0);
    RATE as f64 * in_turn / (in_turn + jump)
}

/// Ends the promise.
fn end(daemon: &Daemon, made: &Value) -> Result<(), Box<dyn Error>> {
    let id = made["id"].as_str().ok_or("an id")?;
    let number = id.rsplit('/').next().unwrap_or_default();
    let path = format!("/v1/exports/booked/reservations/{number}");
    daemon.connect()?.delete(&path)
}

/// Windows with the promise, and what they stand on.
fn with(
    report: &mut Report,
    daemon: &Daemon,
    (loads, writers): (&Beside<'_>, &Load),
    (what, seconds, missed_least): (&str, usize, f64),
) -> Result<(), Box<dyn Error>> {
    let asked = json!({
        "direction": "read",
        "rate_bytes_per_second": RATE * 1_000_000,
        "for_seconds": 3600,
    });
    let made = daemon
        .connect()?
        .made("/v1/exports/booked/reservations", &asked)?;
    sleep(Duration::from_secs(3));
    let before = Below::now(daemon)?;
    let span = Span::of(seconds);
    let after = Below::now(daemon)?;
    loads.with(report, what, span);
    let cleaned = (after.cleaned - before.cleaned) as f64 / 1e6 / seconds as f64;
    report.row(
        &format!("{what}: the cleaner wrote"),
        cleaned,
        "MB/s",
        Bar::More(0.0),
    );
    // As if the disk had answered all that the others got, hits and all: what is left was for the booked client.
    let sum = |load: &Load| load.seconds(span).iter().sum::<f64>() * 1e6;
    let others = sum(loads.greedy) + sum(writers);
    let missed = ((after.read - before.read) as f64 - others) / sum(loads.booked);
    let metric = format!("{what}: part of booked bytes from the slow disk, at least");
    report.row(&metric, missed, "", Bar::Least(missed_least));
    end(daemon, &made)?;
    sleep(Duration::from_secs(3));
    Ok(())
}

pub fn hybrid(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let export = |nth| {
        format!("[[export]]\ndevice = \"h\"\nname = \"greedy{nth}\"\nnbd = \"unix:disks.sock\"\n")
    };
    let greedy: String = (0..GREEDY).map(export).collect();
    let mut daemon = Daemon::new(dir.path(), &format!("{CONFIG}{greedy}"))?;
    daemon.begin()?;
    let target = |export: &str, from, size| Target {
        socket: daemon.dir.join("disks.sock"),
        export: export.to_owned(),
        from,
        size,
    };
    let booked = target("booked", 0, COLD);
    fill(&booked)?;
    fill(&target("greedy0", COLD, OTHERS))?;
    let greedy = (0..GREEDY).map(|nth| target(&format!("greedy{nth}"), COLD, OTHERS));
    let greedy: Vec<Target> = greedy.collect();
    // Writes wait for the cleaner, so those who write ask the disk for little: others read.
    let writers = Load::start(&greedy[..WRITERS], 16, Pattern::MIXED)?;
    let greedy = Load::start(&greedy, 4, Pattern::RANDOM)?;
    let cold = [
        ("1 MiB in turn", (Pattern::IN_TURN, 2), SECONDS),
        ("256 KiB in turn", (Pattern::SHORT, 8), FEWER * 2),
        ("256 KiB anywhere", (Pattern::RANDOM, 8), FEWER * 2),
    ];
    for (what, (pattern, depth), seconds) in cold {
        // What is anywhere is read again sooner than what is in turn, so the cache has more of it.
        let (rate, missed_least) = match pattern.places {
            Places::InTurn => (RATE as f64, 0.8),
            _ => (anywhere(), 0.5),
        };
        let booked = Load::start(std::slice::from_ref(&booked), depth, pattern)?;
        let loads = Beside {
            booked: &booked,
            greedy: &greedy,
            rate,
        };
        // The cache is to have dirty data, so that the cleaner is at work.
        sleep(Duration::from_secs(20));
        loads.without(report, &format!("{what}, before"), Span::of(FEWER));
        let of = (what, seconds, missed_least);
        with(report, &daemon, (&loads, &writers), of)?;
        loads.without(report, &format!("{what}, after"), Span::of(FEWER));
    }
    match writers.ended().first() {
        Some(why) => Err(format!("a client that writes ended: {why}").into()),
        None => Ok(()),
    }
}
