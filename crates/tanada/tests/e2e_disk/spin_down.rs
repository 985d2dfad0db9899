//! A real kernel's SCSI disk under a daemon in energy mode: it is stopped, stays so as long as the cache can answer, and
//! turns for what it cannot.
//!
//! ```text
//! guest: scsi_debug, a partition of it -> tanada serve (hybrid, energy, ublk) -> idle: stopped
//!     -> cached writes, flushes, reads: stopped | a miss: turns, dirty data follow | idle: stopped
//!     -> kill -9, start: what is stopped is started when it is needed
//! ```
//!
//! Whether it is stopped the disk itself is asked, by this program in the guest. The guest is run by the lab's `vm` (see
//! `guest`).

use std::path::Path;
use std::process::Command;

use base::Nanos;
use env::scsi::ScsiFile;
use env::{RealConfig, Runtime};

use crate::guest::lab;

/// In the guest: the disk to ask.
const ASKED: &str = "TANADA_ASKED_DISK";
/// The test that is both: it starts the guest, and is what the guest runs.
const TEST: &str = "spin_down::a_disk_sleeps_while_the_cache_answers_and_turns_for_a_miss";

const COMMAND: &str = r#"
set -u
modprobe ublk_drv; modprobe sd_mod; modprobe scsi_debug dev_size_mb=128 num_parts=1
mountpoint -q /run || mount -t tmpfs tmpfs /run; mkdir -p /run/t; cd /run/t
wait_for() { for try in $(seq 600); do eval "$1" && return 0; sleep 0.1; done; echo "never: $1"; tail -30 log; exit 1; }
wait_for '[ -b /dev/sda1 ]'
config() {
    cat > tanada.toml <<END
data_dir = "/run/t/data"
[admin]
listen = "unix:/run/t/admin.sock"
[[device]]
name = "slow"
path = "$1"
standby_after = "15s"
[[device]]
name = "fast"
path = "/run/t/fast.img"
size = "32MiB"
[[hybrid]]
name = "vol0"
slow = "slow"
fast = "fast"
mode = "cache"
energy = true
[[export]]
device = "vol0"
ublk = true
END
}
disk() { TANADA_ASKED_DISK=/dev/sda "$TEST_PROGRAM" --exact "$TEST" --nocapture | sed -n 's/.*the disk is //p'; }
is() {
    state=$(disk)
    [ "$state" = "$2" ] || { echo "$1: the disk is $state, not $2"; tail -30 log; exit 1; }
    echo "$1: $2"
}
status() { "$PROGRAM" status --admin unix:/run/t/admin.sock "$@"; }
shows() { status | grep -q "^slow: $1 since 2"; }
served() { grep -c 'a disk of the kernel is served' log; }
start() {
    before=$(served)
    "$PROGRAM" serve tanada.toml >>log 2>&1 &
    daemon=$!
    wait_for '[ "$(served)" != "$before" ]'
}
read_at() { dd if=/dev/ublkb0 bs=64k skip=$1 count=1 iflag=direct status=none; }

touch log
# What cannot sleep is refused.
config /dev/v
"$PROGRAM" serve tanada.toml >refused 2>&1 && { echo "a virtio disk was taken"; exit 1; }
grep -q 'cannot send slow to sleep: .* takes no SCSI commands' refused || { cat refused; exit 1; }
rm -rf data fast.img
config /dev/sda1
head -c 64k /dev/urandom >one; head -c 64k /dev/urandom >two; head -c 64k /dev/zero >zeroes
start
is "at the start" ready
dd if=one of=/dev/ublkb0 bs=64k oflag=direct conv=fsync,notrunc status=none
wait_for 'shows asleep'
is "after some seconds without a request" stopped
grep -q 1 /sys/class/scsi_disk/*/allow_restart || exit 1
read_at 0 | cmp - one || exit 1
dd if=two of=/dev/ublkb0 bs=64k oflag=direct conv=fsync,notrunc status=none
read_at 0 | cmp - two || exit 1
# Longer than the daemon waits between two looks.
sleep 13
is "after a cached write, a flush and reads" stopped
shows asleep || { status; exit 1; }
status --json | tr -d ' \n' | grep -q '"spindle":{"asleep":true,"since_unix_seconds":1' || exit 1
read_at 1000 | cmp - zeroes || exit 1
is "after a miss" ready
shows awake || { status; exit 1; }
wait_for 'shows asleep'
is "later" stopped
kill -9 $daemon; wait $daemon 2>/dev/null
is "without its daemon" stopped
start
read_at 0 | cmp - two || exit 1
read_at 1200 | cmp - zeroes || exit 1
is "after another miss" ready
wait_for 'shows asleep'
kill $daemon; wait $daemon || { tail log; exit 1; }
# The kernel starts it for the next one to read it, and it has what waited for it.
dd if=/dev/sda1 bs=64k count=1 iflag=direct status=none | cmp - two || exit 1
echo "all of it"
"#;

/// Asks the disk at `path`, as any program may.
fn ask(path: &Path) {
    let disk = ScsiFile::open(path).expect("a disk");
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    let state = runtime.block_on(async move {
        // After the disk was found anew it has that to say first.
        for _ in 0..3 {
            let answer = disk.send(&[0; 6], 0, Nanos::secs(20)).await;
            let answer = answer.expect("the kernel sends it");
            match (answer.status, answer.sense.get(2), answer.sense.get(12)) {
                (0, ..) => return "ready".to_owned(),
                (2, Some(2), Some(4)) => return "stopped".to_owned(),
                (2, Some(6), _) => {}
                _ => return format!("{answer:x?}"),
            }
        }
        "busy".to_owned()
    });
    println!("the disk is {state}");
}

#[test]
fn a_disk_sleeps_while_the_cache_answers_and_turns_for_a_miss() {
    if let Some(path) = std::env::var_os(ASKED) {
        return ask(path.as_ref());
    }
    let Some(vm) = lab(&[]) else { return };
    let own = std::env::current_exe().expect("it runs");
    let program = env!("CARGO_BIN_EXE_tanada");
    let dir = tempfile::tempdir().expect("a directory");
    let ended = Command::new(vm)
        .args(["-t", "600", "-m", "1024", "-d", "v=128M"])
        .arg(format!(
            "export PROGRAM='{program}' TEST_PROGRAM='{}' TEST='{TEST}'\n{COMMAND}",
            own.display()
        ))
        .current_dir(dir.path())
        .output()
        .expect("the lab starts");
    let said = String::from_utf8_lossy(&ended.stdout);
    let more = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{}\n{said}\n{more}", ended.status);
    assert!(said.contains("all of it"), "{said}\n{more}");
}
