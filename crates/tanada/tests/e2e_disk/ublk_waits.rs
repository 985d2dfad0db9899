//! Block devices that wait: for a volume that is not there yet, and for a daemon that is gone.
//!
//! ```text
//! guest: tanada serve (hybrid, ublk), kill -9 -> another daemon: its status names the disk that waits
//!     its own export is of a volume that is not there -> status says so -> tanada volume create -> /dev/ublkb1
//!     the first one again -> nothing waits
//! ```
//!
//! The guest is run by the lab's `vm` (see `guest`).

use crate::guest::lab;
use crate::ublk::guest;

const COMMAND: &str = r#"
fail() { echo "failed: $*"; tail -5 log other/log; exit 1; }
dd if=/dev/urandom of=/dev/ublkb0 bs=4k count=16 oflag=direct status=none || fail "the first disk"
kill -9 $daemon; wait $daemon 2>/dev/null
mkdir other
cat >other/tanada.toml <<END
data_dir = "/run/t/other/data"
[admin]
listen = "unix:/run/t/other/admin.sock"
[[device]]
name = "d"
path = "/run/t/other/d.img"
size = "128MiB"
[[store]]
name = "s"
device = "d"
listen = "unix:/run/t/other/s.sock"
create = true
[cluster]
node = "n1"
nbd = "unix:/run/t/other/disks.sock"
[[export]]
device = "volume:vm1"
ublk = true
END
export TANADA_ADMIN=unix:/run/t/other/admin.sock
"$PROGRAM" serve other/tanada.toml >other/log 2>&1 & other=$!
for try in $(seq 600); do "$PROGRAM" status >status 2>/dev/null; grep -q HEALTH_ status && break; sleep 0.1; done
cat status
grep -q '/dev/ublkb0 waits for a daemon' status || fail "status names no disk that waits"
"$PROGRAM" status --json | grep -q ublk_waiting || fail "nor does it as JSON"
grep -q '^vm1: .*vm1' status || fail "status does not say that the volume is away"
sleep 3
[ ! -e /dev/ublkb1 ] || fail "a disk without a volume"
"$PROGRAM" volume create vm1 --size 64MiB --copies 1 || fail "no volume"
for try in $(seq 600); do [ ! -b /dev/ublkb1 ] || break; sleep 0.1; done
for try in $(seq 100); do "$PROGRAM" status >status; grep -q /dev/ublkb1 status && break; sleep 0.1; done
cat status
grep -q '^vm1 .*/dev/ublkb1' status || fail "the volume is no disk"
! grep -q '^vm1: ' status || fail "status still says that the volume is away"
head -c 1M /dev/urandom >some
dd if=some of=/dev/ublkb1 bs=64k oflag=direct conv=fsync status=none && cmp -n 1048576 some /dev/ublkb1 || fail "the disk"
start
"$PROGRAM" status >status; grep -q 'waits for a daemon' status && { cat status; fail "nothing waits any more"; }
kill $other; wait $other || fail "the stop of the other one"
kill $daemon; wait $daemon || fail "the stop of the first one"
[ ! -e /dev/ublkb0 ] && [ ! -e /dev/ublkb1 ] || fail "a disk stayed"
# Closed while its volume is still away.
sed -i s/volume:vm1/volume:vm2/ other/tanada.toml
"$PROGRAM" serve other/tanada.toml >other/log 2>&1 & other=$!
for try in $(seq 600); do "$PROGRAM" status >status 2>/dev/null; grep -q HEALTH_ status && break; sleep 0.1; done
grep -q '^vm2: ' status || fail "status does not say that the volume is away"
kill $other; wait $other || fail "the stop with a volume away"
echo "nothing waits"
"#;

#[test]
fn disks_that_wait_for_a_volume_or_a_daemon_are_said_and_go_on() {
    let Some(vm) = lab(&[]) else { return };
    let (code, said) = guest(&vm, "", COMMAND);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("nothing waits\n"), "{said}");
}
