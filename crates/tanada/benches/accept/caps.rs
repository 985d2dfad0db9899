//! Caps of exports, volumes and accounts: is there any stretch of 10 s in which more came?
//!
//! ```text
//! two clients of each cap, all at once -> when each request was answered -> any 10 s, tenth by tenth
//! fio: two jobs of one cap             -> its log of each request        -> the same
//! ```
//!
//! A bucket holds a second's worth. So 10 s from the first request on bring 11 s' worth at most; once it is empty, 10 s
//! bring 10 s' worth. Two in a hundred are for clocks.

use std::error::Error;
use std::fs;
use std::process::{Command, Stdio};

use super::daemon::Daemon;
use super::load::{Load, Pattern, Span, TICKS_PER_SECOND, Target, fill};
use super::report::{Bar, Report};

/// How long requests are sent.
const SECONDS: usize = 45;
/// How long fio sends them.
const FIO_SECONDS: usize = 30;
const SIZE: u64 = 64 << 20;

const CONFIG: &str = r#"
[[device]]
name = "disk"
memory = true
size = "64MiB"
[[device]]
name = "d1"
memory = true
size = "1GiB"
[[store]]
name = "s1"
device = "d1"
listen = "unix:s.sock"
create = true
[cluster]
node = "n1"
nbd = "unix:volumes.sock"
[[export]]
device = "disk"
name = "filling"
nbd = "unix:disks.sock"
[[export]]
device = "disk"
name = "reads"
nbd = "unix:disks.sock"
max_read = "20MB/s"
[[export]]
device = "disk"
name = "writes"
nbd = "unix:disks.sock"
max_write = "20MB/s"
[[export]]
device = "disk"
name = "count"
nbd = "unix:disks.sock"
max_read_iops = 500
[[export]]
device = "disk"
name = "fio"
nbd = "unix:disks.sock"
max_read = "20MB/s"
[admin]
listen = "unix:admin.sock"
"#;

/// What is capped, in units per second: MB, or requests.
struct Capped {
    what: &'static str,
    cap: f64,
    unit: &'static str,
}

impl Capped {
    /// Judges what came in each tenth of a second, the first request being in the first tenth.
    fn rows(&self, report: &mut Report, came: &[f64]) {
        let ten = 10 * TICKS_PER_SECOND;
        let all: Vec<f64> = came
            .windows(ten)
            .map(|it| it.iter().sum::<f64>() / 10.0)
            .collect();
        let most = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
        let Capped { what, cap, unit } = *self;
        let metric = format!("{what}: most in any 10 s from the first request");
        report.row(&metric, most(&all), unit, Bar::Most(cap * 112.0 / 100.0));
        let steady = all.get(ten..).unwrap_or_default();
        let metric = format!("{what}: most in any 10 s after the first ten");
        report.row(&metric, most(steady), unit, Bar::Most(cap * 102.0 / 100.0));
        let least = steady.iter().copied().fold(f64::MAX, f64::min);
        let metric = format!("{what}: least in any 10 s after the first ten");
        report.row(&metric, least, unit, Bar::Least(cap * 95.0 / 100.0));
    }
}

/// Two volumes: one with a cap, two of an account with one.
fn volumes(daemon: &Daemon) -> Result<(), Box<dyn Error>> {
    for name in ["capped", "astro0", "astro1"] {
        daemon.text(&["volume", "create", name, "--size", "64MiB"])?;
        fill(&target(daemon, "volumes.sock", name))?;
    }
    daemon.text(&["volume", "set", "capped", "max_read=20MB/s"])?;
    daemon.text(&["account", "create", "astro", "--role", "booker"])?;
    daemon.text(&["account", "set", "astro", "--max-read", "20MB/s"])?;
    for name in ["astro0", "astro1"] {
        daemon.text(&["volume", "set", name, "holder=astro"])?;
    }
    // Nodes look at accounts every few seconds.
    std::thread::sleep(std::time::Duration::from_secs(10));
    Ok(())
}

fn target(daemon: &Daemon, socket: &str, export: &str) -> Target {
    Target {
        socket: daemon.dir.join(socket),
        export: export.to_owned(),
        from: 0,
        size: SIZE,
    }
}

pub fn caps(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let mut daemon = Daemon::new(dir.path(), CONFIG)?;
    daemon.begin()?;
    // Holes are answered without data.
    fill(&target(&daemon, "disks.sock", "filling"))?;
    volumes(&daemon)?;
    let twice = |socket: &str, export: &str| vec![target(&daemon, socket, export); 2];
    let account = ["astro0", "astro1"].map(|it| target(&daemon, "volumes.sock", it));
    let rate = |what| Capped {
        what,
        cap: 20.0,
        unit: "MB/s",
    };
    let requests = Capped {
        what: "requests of an export, 4 and 256 KiB",
        cap: 500.0,
        unit: "/s",
    };
    let of = [
        (
            rate("reads of an export"),
            twice("disks.sock", "reads"),
            Pattern::RANDOM,
        ),
        (
            rate("writes of an export"),
            twice("disks.sock", "writes"),
            Pattern::WRITES,
        ),
        (requests, twice("disks.sock", "count"), Pattern::TWO_SIZES),
        (
            rate("reads of a volume"),
            twice("volumes.sock", "capped"),
            Pattern::RANDOM,
        ),
        (
            rate("reads of an account, two volumes"),
            account.to_vec(),
            Pattern::RANDOM,
        ),
    ];
    let begun = Span::begin() - 1;
    let mut loads = Vec::new();
    for (capped, targets, pattern) in of {
        loads.push((capped, Load::start(&targets, 8, pattern)?));
    }
    let until = Span::of(SECONDS).until;
    for (capped, load) in &loads {
        let ticks = load.ticks(Span { from: begun, until });
        let first = ticks
            .iter()
            .position(|it| it.requests > 0)
            .ok_or("nothing came")?;
        let came = ticks[first..].iter().map(|it| match capped.unit {
            "/s" => it.requests as f64,
            _ => it.bytes as f64 / 1e6,
        });
        capped.rows(report, &came.collect::<Vec<_>>());
        if let Some(why) = load.ended().first() {
            return Err(format!("{}: {why}", capped.what).into());
        }
    }
    drop(loads);
    match Command::new("fio").arg("--version").output() {
        Ok(_) => fio(report, &daemon),
        Err(error) => {
            report.note(&format!("without fio, which cannot be started: {error}"));
            Ok(())
        }
    }
}

/// Two jobs of fio over NBD, for one cap; each request is in its logs: milliseconds, latency, direction, bytes.
fn fio(report: &mut Report, daemon: &Daemon) -> Result<(), Box<dyn Error>> {
    let socket = daemon.dir.join("disks.sock");
    let done = Command::new("fio")
        .current_dir(&daemon.dir)
        .args([
            "--name=capped",
            "--ioengine=nbd",
            "--rw=randread",
            "--bs=64k",
            "--iodepth=8",
        ])
        .args([
            "--numjobs=2",
            "--time_based",
            "--size=64m",
            "--write_lat_log=capped",
        ])
        .arg(format!("--runtime={FIO_SECONDS}"))
        .arg(format!("--uri=nbd+unix:///fio?socket={}", socket.display()))
        .stdout(Stdio::null())
        .output()?;
    if !done.status.success() {
        return Err(format!("fio: {}", String::from_utf8_lossy(&done.stderr)).into());
    }
    let mut came = vec![0.0; FIO_SECONDS * TICKS_PER_SECOND];
    for job in 1..=2 {
        let log = fs::read_to_string(daemon.dir.join(format!("capped_clat.{job}.log")))?;
        for line in log.lines() {
            let mut fields = line.split(',').map(str::trim);
            let millis: usize = fields.next().ok_or("a time")?.parse()?;
            let bytes: f64 = fields.nth(2).ok_or("a length")?.parse()?;
            // What is answered after the end of its time is not counted.
            if let Some(tick) = came.get_mut(millis / (1000 / TICKS_PER_SECOND)) {
                *tick += bytes / 1e6;
            }
        }
    }
    let capped = Capped {
        what: "reads of an export, fio",
        cap: 20.0,
        unit: "MB/s",
    };
    capped.rows(report, &came);
    Ok(())
}
