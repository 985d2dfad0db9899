//! A virtual machine whose disk is a hybrid of a daemon on this machine: QEMU, a Linux guest, and `kill -9` under it.
//!
//! ```text
//! daemon (hybrid, vhost-user) <- QEMU (reconnect=1) <- guest: fio --verify, mkfs, mount, fio; kill -9, start, ...
//!     -> fio met no error and no mismatch -> umount, fsck, blkdiscard
//! ```
//!
//! The guest is run by the lab's `vm` (see `guest`). `TANADA_ROUNDS=N` kills N times.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use env::{RealConfig, Runtime};

use crate::daemon::{Daemon, config};
use crate::guest::lab;
use crate::kill9::number_from;

/// What the guest does. `/lab` is seen by both: `going` says that fio runs, `end` that it may stop.
const COMMAND: &str = r#"
set -e
modprobe ext4
cat /sys/block/vda/queue/write_cache /sys/block/vda/serial; echo
fio --name=first --filename=/dev/v --size=16M --rw=randrw --bsrange=512-256k --direct=1 --ioengine=libaio \
    --iodepth=16 --verify=crc32c --verify_fatal=1 --randrepeat=0 --minimal >/dev/null
blkdiscard /dev/v
mkfs.ext4 -q /dev/v; mkdir -p /run/m; mount /dev/v /run/m
fio --name=verify --filename=/run/m/file --size=24M --rw=randrw --bs=4k --direct=1 --ioengine=libaio \
    --iodepth=16 --verify=crc32c --verify_backlog=128 --verify_fatal=1 --randrepeat=0 --time_based \
    --runtime=100000 --output=/run/fio.log & fio=$!
sleep 1; touch /lab/going
while [ ! -e /lab/end ]; do
    sleep 0.1
    kill -0 $fio 2>/dev/null || { echo "fio ended"; cat /run/fio.log; exit 3; }
done
kill -INT $fio; wait $fio || true
grep -q 'err= 0' /run/fio.log || { cat /run/fio.log; exit 3; }
echo write through >/sys/block/vda/queue/write_cache || true
dd if=/dev/urandom of=/run/m/synced bs=4k count=64 oflag=dsync status=none
umount /run/m; e2fsck -fn /dev/v
echo "the guest is well"
"#;

fn guest(vm: &Path, root: &Path, socket: &Path) -> Child {
    let disk = format!("v=vhost:{},reconnect=1", socket.display());
    let out = root.join("out");
    std::fs::create_dir_all(&out).expect("the directory is ours");
    Command::new(vm)
        .args(["-t", "600", "-m", "1024", "-d", &disk, "-o"])
        .arg(&out)
        .arg(COMMAND)
        .current_dir(root)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the lab starts")
}

/// Waits until the guest says that it is under way.
async fn goes(guest: &mut Child, root: &Path) {
    while !root.join("out/going").exists() {
        let ended = guest.try_wait().expect("it is our child");
        if ended.is_some() {
            let mut said = String::new();
            for pipe in [
                guest
                    .stdout
                    .take()
                    .map(|it| Box::new(it) as Box<dyn std::io::Read>),
                guest
                    .stderr
                    .take()
                    .map(|it| Box::new(it) as Box<dyn std::io::Read>),
            ] {
                pipe.expect("piped")
                    .read_to_string(&mut said)
                    .expect("text");
            }
            panic!("the guest ended before it was under way: {ended:?}\n{said}");
        }
        env::sleep(base::Nanos::millis(100)).await;
    }
}

#[test]
fn a_virtual_machine_lives_through_the_death_of_its_daemon() {
    let Some(vm) = lab(&["fio"]) else { return };
    let rounds = number_from("TANADA_ROUNDS", 4);
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().to_owned();
    let socket = root.join("vm.sock");
    let config = config("back").replace(
        "nbd = \"unix:vol0.sock\"",
        &format!("vhost-user = \"{}\"", socket.display()),
    );
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    runtime.block_on(async move {
        let mut daemon = Daemon::start(&root, &config);
        let mut machine = guest(&vm, &root, &socket);
        goes(&mut machine, &root).await;
        let status = daemon.command(&["status"]);
        assert!(status.contains("vhost-user unix:"), "{status}");
        for round in 0..rounds {
            env::sleep(base::Nanos::millis(500 + round * 370 % 900)).await;
            daemon.kill();
            daemon = Daemon::start(&root, &config);
        }
        env::sleep(base::Nanos::secs(2)).await;
        // A stop with the guest at work is the same to it.
        daemon.stop();
        let daemon = Daemon::start(&root, &config);
        env::sleep(base::Nanos::secs(2)).await;
        std::fs::write(root.join("out/end"), "").expect("the directory is ours");
        let ended = machine.wait_with_output().expect("it is our child");
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        let more = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success(), "{}\n{said}\n{more}", ended.status);
        assert!(
            said.contains("the guest is well") && said.contains("vol0"),
            "{said}"
        );
        daemon.stop();
    });
}
