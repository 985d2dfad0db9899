//! An export of a hybrid with a queue before its slow device: are cold reads kept beside the cleaner and greedy clients?

use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use serde_json::json;

use super::Report;
use super::daemon::{Daemon, post};
use super::load::{Load, Pattern, Target, fill};
use super::windows::{kept, pace, seconds};

/// What is promised, in MB/s.
const RATE: u64 = 10;
/// Windows counted, and without a reservation.
const SECONDS: usize = 120;
const FEWER: usize = 30;
/// Bytes that cold reads go over in turn: far more than the cache has. All of it is written before, since holes are
/// answered without the disk.
const COLD: u64 = 4 << 30;
/// Bytes behind them for all others.
const OTHERS: u64 = 2 << 30;

const CONFIG: &str = r#"
[[device]]
name = "slow"
model = "hdd-7200-sata"
size = "6GiB"
memory = true
[[device]]
name = "fast"
model = "ssd-sata-mlc"
size = "512MiB"
memory = true
[[hybrid]]
name = "h"
slow = "slow"
fast = "fast"
queue = true
read_speed = "120MB/s"
write_speed = "120MB/s"
[[export]]
device = "h"
name = "booked"
nbd = "unix:disks.sock"
[[export]]
device = "h"
name = "greedy"
nbd = "unix:disks.sock"
[admin]
listen = "unix:admin.sock"
"#;

pub fn hybrid(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let mut daemon = Daemon::new(dir.path(), CONFIG)?;
    daemon.begin()?;
    let target = |export: &str, from, size| Target {
        socket: daemon.dir.join("disks.sock"),
        export: export.to_owned(),
        from,
        size,
    };
    let (booked, greedy) = (target("booked", 0, COLD), target("greedy", COLD, OTHERS));
    fill(&booked);
    fill(&greedy);
    let _greedy = Load::start(&vec![greedy; 16], 16, Pattern::Mixed);
    let load = Load::start(&[booked], 2, Pattern::InTurn);
    // The cache is to have dirty data, so that the cleaner is at work.
    sleep(Duration::from_secs(60));
    let before = seconds(&load, FEWER);
    let asked = json!({
        "direction": "read",
        "rate_bytes_per_second": RATE * 1_000_000,
        "for_seconds": 3600,
    });
    let (status, answer) = post(
        &mut daemon.connect()?,
        "/v1/exports/booked/reservations",
        &asked,
    )?;
    if !(200..300).contains(&status) {
        return Err(format!("the reservation was answered with {status}: {answer}").into());
    }
    sleep(Duration::from_secs(3));
    let got = seconds(&load, SECONDS);
    let share = kept(&got, RATE);
    report.row(
        ("hybrid", "one-second windows kept, of 120", ""),
        &[share],
        ">= .99",
        share >= 0.99,
    );
    report.figure(
        ("hybrid", "the same without a reservation, of 30", ""),
        &[kept(&before, RATE)],
    );
    report.say(&format!("         got {}", pace(&got)));
    report.say(&format!("         without a reservation {}", pace(&before)));
    Ok(())
}
