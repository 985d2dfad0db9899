//! The volume as a file: the NBD export behind a FUSE program of others, on this machine.
//!
//! ```text
//! daemon -> NBD -> nbdfuse | qemu-storage-daemon -> a file -> write, fsync, mkfs.ext4, fsck -> read back, flushes counted
//! ```
//!
//! Mounting wants root and /dev/fuse: without them the tests skip themselves, and say so. docs/fuse.md shows the commands.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base::Nanos;
use env::{RealConfig, Rng, Runtime};

use crate::clients::{have, tool};
use crate::daemon::{Daemon, SIZE, config};

/// A program that shows the volume as a file; its end unmounts.
struct Mounted {
    file: PathBuf,
    child: Child,
}

impl Mounted {
    /// Waits until `program` shows a file of the volume's size.
    fn start(file: PathBuf, mut program: Command) -> Mounted {
        std::fs::write(&file, "").expect("the directory is ours");
        let child = program.stdin(Stdio::null()).spawn();
        let mut child = child.expect("the program starts");
        let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
        runtime.block_on(async move {
            let shown = || std::fs::metadata(&file).is_ok_and(|found| found.len() == SIZE);
            while !shown() {
                let ended = child.try_wait().expect("it is our child");
                assert!(ended.is_none(), "{program:?} ended: {ended:?}");
                env::sleep(Nanos::millis(20)).await;
            }
            Mounted { file, child }
        })
    }

    fn end(mut self) {
        tool(
            Path::new("/"),
            "umount",
            &[&self.file.display().to_string()],
        );
        // Some end with their mount, others by a signal.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        self.child.wait().expect("it is our child");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Nothing is left when a test fails.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(&self.file)
            .stderr(Stdio::null())
            .status();
        let _ = self.child.kill();
    }
}

/// May this user mount, and does the kernel have FUSE?
fn can_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    let fuse = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_ok();
    if !root || !fuse {
        println!("skipped: mounting wants root and /dev/fuse");
    }
    root && fuse
}

/// Flushes that reached the volume.
fn flushes(daemon: &Daemon) -> u64 {
    let text = daemon.command(&["volume", "show", "vol0", "--json"]);
    let volume: serde_json::Value = serde_json::from_str(&text).expect("output is JSON");
    let operations = volume["figures"]["operations"].as_array().expect("a list");
    let flush = operations.iter().find(|of| of["op"] == "flush");
    flush.map_or(0, |of| of["requests"].as_u64().expect("a number"))
}

/// What is done with the file; the daemon is stopped in the end, and the next one shows the same.
fn use_file(dir: &Path, daemon: Daemon, start: impl Fn() -> Mounted) {
    let mounted = start();
    let mut bytes = vec![0; 4 << 20];
    Rng::from_seed(7).fill(&mut bytes);
    std::fs::write(dir.join("some"), &bytes).expect("the directory is ours");
    let before = flushes(&daemon);
    tool(
        dir,
        "dd",
        &[
            "if=some",
            "of=disk",
            "bs=64k",
            "seek=512",
            "conv=notrunc,fsync",
            "status=none",
        ],
    );
    assert!(
        flushes(&daemon) > before,
        "an fsync of the file is a flush of the volume"
    );
    tool(dir, "mkfs.ext4", &["-q", "disk", "24M"]);
    tool(dir, "e2fsck", &["-fn", "disk"]);
    mounted.end();
    daemon.stop();
    let daemon = Daemon::start(dir, &config("back"));
    let mounted = start();
    tool(dir, "e2fsck", &["-fn", "disk"]);
    tool(
        dir,
        "cmp",
        &["-n", "4194304", "-i", "33554432:0", "disk", "some"],
    );
    mounted.end();
    daemon.stop();
}

#[test]
fn nbdfuse_shows_the_volume_as_a_file() {
    if !have("nbdfuse") || !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let daemon = Daemon::start(dir.path(), &config("back"));
    let uri = daemon.uri();
    use_file(dir.path(), daemon, || {
        let mut program = Command::new("nbdfuse");
        program.arg(dir.path().join("disk")).arg(&uri);
        Mounted::start(dir.path().join("disk"), program)
    });
}

#[test]
fn qemu_storage_daemon_shows_the_volume_as_a_file() {
    if !have("qemu-storage-daemon") || !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let daemon = Daemon::start(dir.path(), &config("back"));
    let socket = daemon.socket();
    use_file(dir.path(), daemon, || {
        let file = dir.path().join("disk");
        let disk = format!(
            "driver=nbd,node-name=vol0,server.type=unix,server.path={},export=vol0",
            socket.display()
        );
        let export = format!(
            "type=fuse,id=f,node-name=vol0,writable=on,mountpoint={}",
            file.display()
        );
        let mut program = Command::new("qemu-storage-daemon");
        program.args(["--blockdev", &disk, "--export", &export]);
        Mounted::start(file, program)
    });
}
