//! A block device of a real kernel whose daemon is killed and stopped under a mounted ext4, again and again.
//!
//! ```text
//! guest: tanada serve (hybrid, ublk) -> mkfs, mount -> fio writes and verifies -> kill -9, start, stop, start, kill -9, ...
//!     -> fio met no error and no mismatch, what it was answered and never flushed among it -> umount, fsck
//! ```
//!
//! The guest is run by the lab's `vm` (see `guest`), whose kernel has ublk. `TANADA_ROUNDS=N` ends it N times.

use std::path::Path;
use std::process::Command;

use crate::guest::lab;
use crate::kill9::number_from;

/// How a guest begins: a hybrid as /dev/ublkb0, and `start`, which starts its daemon (again). `PROGRAM` is set before.
pub const DAEMON: &str = r#"
set -u
modprobe ublk_drv; modprobe ext4
mountpoint -q /run || mount -t tmpfs tmpfs /run; mkdir -p /run/t /run/m; cd /run/t
cat > tanada.toml <<END
data_dir = "/run/t/data"
[admin]
listen = "unix:/run/t/admin.sock"
[[device]]
name = "slow"
path = "/run/t/slow.img"
size = "128MiB"
[[device]]
name = "fast"
path = "/run/t/fast.img"
size = "32MiB"
[[hybrid]]
name = "vol0"
slow = "slow"
fast = "fast"
mode = "cache"
[[export]]
device = "vol0"
ublk = true
END
touch log
served() { grep -c 'a disk of the kernel is served' log; }
start() {
    before=$(served)
    "$PROGRAM" serve tanada.toml >>log 2>&1 &
    daemon=$!
    for try in $(seq 1200); do [ "$(served)" = "$before" ] || return 0; sleep 0.05; done
    echo "the daemon did not start"; tail -30 log; exit 1
}
start
"#;

/// What the guest does then; `ROUNDS`, `DEPTH` and `FORGET` (a command after each kill) are set before.
const COMMAND: &str = r#"
mkfs.ext4 -q /dev/ublkb0 && mount /dev/ublkb0 /run/m || { tail -30 log; exit 1; }
fio --name=verify --filename=/run/m/file --size=24M --rw=randrw --bs=4k --direct=1 --ioengine=libaio \
    --iodepth=$DEPTH --verify=crc32c --verify_backlog=128 --verify_fatal=1 --randrepeat=0 --time_based \
    --runtime=100000 --output=fio.log & fio=$!
sleep 2
for round in $(seq $ROUNDS); do
    sleep 0.$((round * 37 % 90 + 10))
    # By turns it is killed and stopped.
    [ $((round % 2)) = 1 ] && kill -9 $daemon || kill $daemon
    wait $daemon 2>/dev/null
    eval "$FORGET"
    start
    [ -z "$FORGET" ] || sleep 2
    kill -0 $fio 2>/dev/null || { echo "fio ended after kill $round"; cat fio.log; grep -a 'a disk waits' log; exit 3; }
done
kill $daemon; wait $daemon || { echo "the stop failed"; tail log; exit 1; }
sleep 0.5
start
sleep 1
kill -INT $fio; wait $fio
grep -q 'err= 0' fio.log || { cat fio.log; exit 3; }
umount /run/m && e2fsck -fn /dev/ublkb0 || exit 1
kill $daemon; wait $daemon || exit 1
[ ! -e /dev/ublkb0 ] || { echo "the disk stayed"; exit 1; }
echo "recovered: $(grep -c 'recovered=true' log), at its stop: $(grep -c 'wait for the next start' log)"
ls /run/tanada-restart
"#;

/// Runs a guest that sets `variables` and does `command`: its exit code and what it said.
pub fn guest(vm: &Path, variables: &str, command: &str) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let program = env!("CARGO_BIN_EXE_tanada");
    let ended = Command::new(vm)
        .args(["-t", "900", "-m", "1024"])
        .arg(format!(
            "export PROGRAM='{program}' {variables}\n{DAEMON}\n{command}"
        ))
        .current_dir(dir.path())
        .output()
        .expect("the lab starts");
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    let more = String::from_utf8_lossy(&ended.stderr);
    (ended.status.code(), format!("{said}\n{more}"))
}

fn kills(vm: &Path, rounds: u64, depth: u64, forget: &str) -> (Option<i32>, String) {
    let variables = format!("ROUNDS={rounds} DEPTH={depth} FORGET='{forget}'");
    guest(vm, &variables, COMMAND)
}

#[test]
fn a_mounted_file_system_lives_through_the_death_of_its_daemon() {
    let Some(vm) = lab(&["fio"]) else { return };
    let rounds = number_from("TANADA_ROUNDS", 4);
    // With 200 at once every request that the driver can hand out is held when the daemon dies.
    for depth in [16, 200] {
        let (code, said) = kills(&vm, rounds, depth, "");
        assert_eq!(code, Some(0), "depth {depth}: {said}");
        let stops = rounds / 2 + 1;
        let expected = format!("recovered: {}, at its stop: {stops}", rounds + 1);
        assert!(said.contains(&expected), "depth {depth}: {said}");
        let left = said.contains("-vol0");
        assert!(!left, "a clean stop leaves no restart log: {said}");
    }
}

/// Without the restart log answered writes are gone. The disk does not go on then, and its client hears of it.
#[test]
fn a_disk_whose_restart_log_is_lost_ends_with_errors() {
    let Some(vm) = lab(&["fio"]) else { return };
    let (code, said) = kills(&vm, 1, 16, "rm /run/tanada-restart/*");
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("is not all there"), "{said}");
    assert!(
        !said.contains("verify: bad"),
        "an error, and no mismatch: {said}"
    );
}
