//! A virtual machine whose disk is a hybrid of a daemon on this machine: QEMU, a Linux guest, and `kill -9` under it.
//!
//! ```text
//! daemon (hybrid, vhost-user) <- QEMU (reconnect=1) <- guest: fio --verify, mkfs, mount, fio
//!     -> served? kill -9, start, served? ... -> fio met no error and no mismatch -> umount, fsck
//!     -> the write cache off (`cache_type`): each write is durable when it is answered
//! ```
//!
//! The guest is run by the lab's `vm` (see `guest`). `TANADA_ROUNDS=N` kills N times. Each kill finds the guest at work: it
//! comes after the daemon has answered writes. fio reads back what it was answered (`verify_backlog`), and flushes nothing
//! by itself: what was answered before a kill is verified after it, flushed or not. The daemon's thread spins always, now and
//! then, or never, in turn.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use base::Nanos;
use env::{RealConfig, Runtime};
use serde_json::Value;

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
umount /run/m; e2fsck -fn /dev/v
echo "write through" >/sys/block/vda/cache_type
dd if=/dev/urandom of=/dev/v bs=4k count=64 oflag=direct status=none
echo "write back" >/sys/block/vda/cache_type
dd if=/dev/urandom of=/dev/v bs=4k count=32 oflag=direct status=none
echo "the guest is well"
"#;

/// A guest at work on the disk of a daemon, whose test ends it.
struct Machine {
    /// Until it is waited for.
    child: Option<Child>,
    root: PathBuf,
}

impl Machine {
    /// Boots one; `rounds` deaths of its daemon lie before it.
    fn boot(vm: &Path, root: &Path, socket: &Path, rounds: u64) -> Machine {
        let disk = format!("v=vhost:{},reconnect=1", socket.display());
        let out = root.join("out");
        fs::create_dir_all(&out).expect("the directory is ours");
        let seconds = (600 + 20 * rounds).to_string();
        let child = Command::new(vm)
            .args(["-t", &seconds, "-m", "1024", "-d", &disk, "-o"])
            .arg(&out)
            .arg(COMMAND)
            .current_dir(root)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the lab starts");
        Machine {
            child: Some(child),
            root: root.to_owned(),
        }
    }

    /// Fails if it has ended.
    fn must_live(&mut self) {
        let child = self.child.as_mut().expect("it was not waited for");
        let Some(ended) = child.try_wait().expect("it is our child") else {
            return;
        };
        let mut said = String::new();
        let pipes: [Option<Box<dyn Read>>; 2] = [
            child.stdout.take().map(|it| Box::new(it) as _),
            child.stderr.take().map(|it| Box::new(it) as _),
        ];
        for mut pipe in pipes.into_iter().flatten() {
            pipe.read_to_string(&mut said).expect("text");
        }
        panic!("the guest has ended: {ended:?}\n{said}");
    }

    /// Waits until it says that it is under way.
    async fn goes(&mut self) {
        while !self.root.join("out/going").exists() {
            self.must_live();
            env::sleep(Nanos::millis(100)).await;
        }
    }

    /// Waits until `daemon` has answered writes of it; how long that took.
    async fn works(&mut self, daemon: &Daemon) -> Nanos {
        let began = env::now();
        while requests(daemon, "writes") < 50 {
            self.must_live();
            let waited = env::now().since(began);
            assert!(waited < Nanos::secs(60), "nothing is written any more");
            env::sleep(Nanos::millis(50)).await;
        }
        env::now().since(began)
    }

    /// Lets it end by itself.
    fn end(mut self) -> Output {
        fs::write(self.root.join("out/end"), "").expect("the directory is ours");
        let child = self.child.take().expect("it was not waited for");
        child.wait_with_output().expect("it is our child")
    }
}

/// Ends it, and with it QEMU.
impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let pid = rustix::process::Pid::from_child(child);
            // It may have ended already.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = child.wait();
        }
    }
}

/// What `daemon` was asked by virtual machines since it began.
fn requests(daemon: &Daemon, kind: &str) -> u64 {
    let status = daemon.command(&["status", "--json"]);
    let status: Value = serde_json::from_str(&status).expect("output is JSON");
    let found = status["exports"][0]["vhost_user_requests"][kind].as_u64();
    found.unwrap_or_else(|| panic!("there is no {kind} in {status}"))
}

/// A daemon's configuration, and the socket for virtual machines in it.
fn configured(root: &Path) -> (String, PathBuf) {
    let socket = root.join("vm.sock");
    let with = format!("vhost-user = \"{}\"", socket.display());
    (
        config("back").replace("nbd = \"unix:vol0.sock\"", &with),
        socket,
    )
}

#[test]
fn a_virtual_machine_lives_through_the_death_of_its_daemon() {
    let Some(vm) = lab(&["fio"]) else { return };
    let rounds = number_from("TANADA_ROUNDS", 4);
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().to_owned();
    let (config, socket) = configured(&root);
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    runtime.block_on(async move {
        let mut daemon = Daemon::start(&root, &config);
        let mut machine = Machine::boot(&vm, &root, &socket, rounds);
        machine.goes().await;
        let status = daemon.command(&["status"]);
        assert!(status.contains("vhost-user unix:"), "{status}");
        let (mut longest, mut writes, mut flushes) = (Nanos(0), 0, 0);
        for round in 0..rounds {
            machine.works(&daemon).await;
            env::sleep(Nanos::millis(round * 370 % 900)).await;
            writes += requests(&daemon, "writes");
            flushes += requests(&daemon, "flushes");
            assert_eq!(requests(&daemon, "errors"), 0);
            daemon.kill();
            // With a thread that looks at the rings always, by the rule, and never.
            let poll = ["always", "adaptive", "off"][(round % 3) as usize];
            let config = format!("poll = \"{poll}\"\n{config}");
            daemon = Daemon::start(&root, &config);
            longest = longest.max(machine.works(&daemon).await);
        }
        // A stop with the guest at work is the same to it.
        daemon.stop();
        let daemon = Daemon::start(&root, &config);
        machine.works(&daemon).await;
        let before = ["forced", "errors"].map(|kind| requests(&daemon, kind));
        let ended = machine.end();
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        let more = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success(), "{}\n{said}\n{more}", ended.status);
        assert!(
            said.contains("the guest is well") && said.contains("vol0"),
            "{said}"
        );
        // Those without a write cache, and no other.
        assert_eq!(before, [0, 0]);
        assert_eq!(requests(&daemon, "forced"), 64);
        println!(
            "{rounds} kills, at least {writes} writes and {flushes} flushes before them; served again within {longest}"
        );
        daemon.stop();
    });
}

/// The restart log of the daemon in `root`.
fn restart_log(root: &Path) -> PathBuf {
    let root = root.to_str().expect("text").as_bytes();
    let mut logs = Vec::new();
    for folder in ["/run", "/dev/shm"].map(fs::read_dir).into_iter().flatten() {
        let folders = folder.flatten().map(|entry| entry.path());
        let ours = |path: &PathBuf| path.to_string_lossy().contains("tanada-restart");
        for folder in folders.filter(ours) {
            let files = fs::read_dir(folder).into_iter().flatten().flatten();
            logs.extend(files.map(|entry| entry.path()));
        }
    }
    let is_of = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        let head = &bytes[..bytes.len().min(4096)];
        head.windows(root.len()).any(|part| part == root)
    };
    logs.into_iter().find(is_of).expect("the daemon has one")
}

/// Without the restart log answered writes are gone. The guest is not served then, and waits.
#[test]
fn a_virtual_machine_whose_restart_log_is_lost_is_not_served() {
    let Some(vm) = lab(&["fio"]) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().canonicalize().expect("it is there");
    let (config, socket) = configured(&root);
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    runtime.block_on(async move {
        let daemon = Daemon::start(&root, &config);
        let mut machine = Machine::boot(&vm, &root, &socket, 1);
        machine.goes().await;
        machine.works(&daemon).await;
        let log = restart_log(&root);
        daemon.kill();
        fs::remove_file(log).expect("it is there");
        let daemon = Daemon::start(&root, &config);
        env::sleep(Nanos::secs(5)).await;
        machine.must_live();
        let answered = ["writes", "reads", "flushes"].map(|kind| requests(&daemon, kind));
        assert_eq!(answered, [0; 3], "nothing is answered");
        drop(machine);
        daemon.stop();
    });
}
