//! Power cuts at each flush that a real kernel saw: is everything there that was answered as flushed?
//!
//! ```text
//! guest: slow, fast = two parts of one disk under dm-log-writes <- tanada serve <- clients; marks after answered flushes
//! here:  log -> for each flush, FUA write and mark: the disks as a cut leaves them -> tanada serve -> every block
//! ```
//!
//! Slow and fast share one log, so that the order between them is known; a flush covers one of them alone. What no flush
//! covers survives altogether, not at all, on one of the disks, or by halves.
//!
//! The guest is run by the lab's `vm` (see `guest`). `TANADA_SEED=S` takes other requests, `TANADA_ROUNDS=N` a guest for each
//! ten rounds, `TANADA_REPLAYS=N` so many cuts of each log.

mod log;
mod replay;
mod writer;

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::guest::lab;
use crate::kill9::number_from;
use log::{Event, FAST, SLOW, Side};
use replay::{Cut, Page, cuts_at_flushes, cuts_at_marks, pages, some_of, verify};

/// Blocks that are written: more than the cache holds.
const BLOCKS: u64 = 2048;
/// Room for the log; a guest fills a quarter of it.
const LOG: u64 = 256 << 20;
/// Set in the guest: where the journal goes.
const IN_GUEST: &str = "TANADA_JOURNAL_DIR";
/// The test that is both: it starts the guest, and is what the guest runs.
const TEST: &str = "power::a_power_cut_at_any_flush_of_a_real_kernels_log_loses_nothing_flushed";

/// What the guest does before and after the writer.
const COMMAND: &str = r#"
set -e
modprobe dm_log_writes
dmsetup create common --table "0 $(blockdev --getsz /dev/disk) log-writes /dev/disk /dev/log"
dmsetup mknodes
dmsetup create slow --table "0 $SLOW linear /dev/mapper/common 0"
dmsetup create fast --table "0 $FAST linear /dev/mapper/common $SLOW"
dmsetup mknodes
for part in slow fast; do dmsetup info -c --noheadings --separator , -o major,minor $part; done >/lab/parts
trace=/sys/kernel/tracing
mount -t tracefs trace $trace
echo 0 >$trace/options/context-info
echo 'rwbs ~ "F*"' >$trace/events/block/block_bio_complete/filter
echo 1 >$trace/events/block/block_bio_complete/enable
"$PROGRAM" --exact "$TEST" --nocapture
cat $trace/trace >/lab/trace
dmsetup remove slow
dmsetup remove fast
dmsetup remove common
"#;

/// A volume `vol0` of these devices or files.
fn config([slow, fast]: [&str; 2], write: &str) -> String {
    format!(
        r#"
[[device]]
name = "slow"
path = "{slow}"
[[device]]
name = "fast"
path = "{fast}"
[[hybrid]]
name = "vol0"
slow = "slow"
fast = "fast"
write = "{write}"
admission = "always"
sequential_bypass = "off"
[[export]]
device = "vol0"
nbd = "unix:vol0.sock"
[admin]
listen = "unix:admin.sock"
"#
    )
}

/// What a guest leaves behind.
struct Recording {
    log: Vec<Event>,
    pages: Vec<Page>,
}

/// Runs the writer in a guest.
fn record(vm: &Path, seed: u64) -> Recording {
    let dir = tempfile::tempdir().expect("a directory");
    let (out, log) = (dir.path().join("out"), dir.path().join("log.img"));
    fs::create_dir(&out).expect("the directory is ours");
    let file = File::create(&log).expect("the directory is ours");
    file.set_len(LOG).expect("there is room");
    let program = std::env::current_exe().expect("it runs");
    let variables = format!(
        "export SLOW={} FAST={} PROGRAM='{}' TEST={TEST} TANADA_SEED={seed} {IN_GUEST}=/lab",
        SLOW / 512,
        FAST / 512,
        program.display(),
    );
    let ended = Command::new(vm)
        .args(["-t", "900", "-m", "1024", "-o"])
        .arg(&out)
        .args(["-d", &format!("disk={}M", (SLOW + FAST) >> 20)])
        .args(["-d", &format!("log={}", log.display())])
        .arg(format!("{variables}\n{COMMAND}"))
        .current_dir(dir.path())
        .output()
        .expect("the lab starts");
    let said = String::from_utf8_lossy(&ended.stdout);
    let more = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{}\n{said}\n{more}", ended.status);
    println!("guest: {}", said.trim());
    let text = |name: &str| fs::read_to_string(out.join(name)).expect("the guest wrote it");
    let (trace, parts) = (text("trace"), text("parts"));
    let (slow, fast) = parts.trim().split_once('\n').expect("two parts");
    let log = log::read(&log, &trace, slow, fast).unwrap_or_else(|why| panic!("{why}"));
    let journal = fs::read(out.join("journal")).expect("the guest wrote it");
    Recording {
        log,
        pages: pages(&journal),
    }
}

/// The recording of this run's seed, made once for all tests of it.
fn recording(vm: &Path) -> &'static Recording {
    static MADE: OnceLock<Recording> = OnceLock::new();
    MADE.get_or_init(|| record(vm, number_from("TANADA_SEED", 1)))
}

fn verify_all(recording: &Recording, most: u64, what: &str) {
    let Recording { log, pages } = recording;
    let (marks, flushes) = (cuts_at_marks(log), cuts_at_flushes(log));
    assert_eq!(marks.len(), pages.len(), "{what}: a mark or a page is lost");
    let half = most.div_ceil(2) as usize;
    let cuts = [some_of(&marks, half), some_of(&flushes, half)].concat();
    for cut in &cuts {
        verify(log, pages, *cut).unwrap_or_else(|why| panic!("{what}: {why}"));
    }
    println!(
        "{what}: {} events, {} marks, {} flushes and FUA writes; {} cuts verified",
        log.len(),
        marks.len(),
        flushes.len(),
        cuts.len()
    );
}

#[test]
fn a_power_cut_at_any_flush_of_a_real_kernels_log_loses_nothing_flushed() {
    if let Some(out) = std::env::var_os(IN_GUEST) {
        return writer::run(Path::new(&out));
    }
    let Some(vm) = lab(&["dmsetup"]) else { return };
    let (seed, rounds) = (
        number_from("TANADA_SEED", 1),
        number_from("TANADA_ROUNDS", 10),
    );
    let most = number_from("TANADA_REPLAYS", 48);
    verify_all(recording(&vm), most, &format!("TANADA_SEED={seed}"));
    for seed in seed + 1..seed + rounds.div_ceil(10) {
        verify_all(&record(&vm, seed), most, &format!("TANADA_SEED={seed}"));
    }
}

/// The first violation at a mark, from the last one on.
fn violation(log: &[Event], pages: &[Page]) -> Option<String> {
    let cuts: Vec<Cut> = some_of(&cuts_at_marks(log), 16);
    let mut cuts = cuts.into_iter().rev();
    cuts.find_map(|cut| verify(log, pages, cut).err())
}

/// Writes to the slow disk come behind the flush that should cover them: what was destaged is called clean too early.
fn late_writes(log: &[Event]) -> Vec<Event> {
    let (mut late, mut waiting) = (Vec::new(), Vec::new());
    for event in log {
        match event {
            Event::Write { at, fua: false, .. } if *at < SLOW => waiting.push(event.clone()),
            Event::Flush(Side::Slow) => {
                late.push(event.clone());
                late.append(&mut waiting);
            }
            _ => late.push(event.clone()),
        }
    }
    late.append(&mut waiting);
    late
}

/// From the middle on, each seventh write of the fast disk is missing.
fn lossy(log: &[Event]) -> Vec<Event> {
    let is_fast = |event: &Event| matches!(event, Event::Write { at, .. } if *at >= SLOW);
    let half = log.iter().filter(|it| is_fast(it)).count() / 2;
    let mut count = 0;
    let mut lost = |event: &Event| {
        count += usize::from(is_fast(event));
        is_fast(event) && count % 7 == 0 && count > half
    };
    log.iter().filter(|it| !lost(it)).cloned().collect()
}

#[test]
fn a_log_without_a_disks_flushes_or_some_of_its_writes_is_found_wrong() {
    if std::env::var_os(IN_GUEST).is_some() {
        return;
    }
    let Some(vm) = lab(&["dmsetup"]) else { return };
    let Recording { log, pages } = recording(&vm);
    let without = |side: Side| {
        let kept = log.iter().filter(|it| **it != Event::Flush(side));
        kept.cloned().collect::<Vec<_>>()
    };
    let planted = [
        ("no flush of the fast disk", without(Side::Fast)),
        ("no flush of the slow disk", without(Side::Slow)),
        (
            "writes of the slow disk behind their flush",
            late_writes(log),
        ),
        ("each seventh write of the fast disk lost", lossy(log)),
    ];
    for (what, log) in planted {
        let found = violation(&log, pages);
        println!("{what}: {found:?}");
        assert!(found.is_some(), "{what} was not noticed");
    }
}
