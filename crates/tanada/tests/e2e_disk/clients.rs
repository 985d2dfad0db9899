//! The tools people use, through a running daemon over files: what goes in comes out, and after a detach
//! the slow file alone has it.
//!
//! A tool that is not installed is skipped and says so; with `TANADA_REQUIRE_TOOLS=1` that is a failure.

use std::path::Path;
use std::process::Command;

use env::Rng;

use crate::daemon::{Daemon, SIZE, config};

/// Is the tool there? If not, the test ends here.
pub fn have(tool: &str) -> bool {
    if Command::new(tool).arg("--version").output().is_ok() {
        return true;
    }
    let required = std::env::var("TANADA_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
    assert!(!required, "{tool} is required and not installed");
    println!("skipped: no {tool}");
    false
}

/// Is fio there, with its NBD engine? If not, the test ends here.
pub fn has_fio_with_nbd() -> bool {
    if !have("fio") {
        return false;
    }
    if tool(Path::new("/"), "fio", &["--enghelp"]).contains("nbd") {
        return true;
    }
    let required = std::env::var("TANADA_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
    assert!(!required, "fio's nbd engine is required and not installed");
    println!("skipped: fio has no nbd engine");
    false
}

/// Runs the tool in `dir`; it must succeed. What it printed.
pub fn tool(dir: &Path, name: &str, arguments: &[&str]) -> String {
    let output = Command::new(name).current_dir(dir).args(arguments).output();
    let output = output.expect("the tool starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{name} {arguments:?}: {}\n{said}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// A file of the volume's size: random data, and holes.
pub fn random_image(path: &Path, seed: u64) {
    let mut bytes = vec![0; SIZE as usize];
    let mut rng = Rng::from_seed(seed);
    for piece in bytes.chunks_mut(64 << 10) {
        if rng.chance(0.7) {
            rng.fill(piece);
        }
    }
    std::fs::write(path, &bytes).expect("the directory is ours");
}

pub fn same(one: &Path, other: &Path) {
    let (one_bytes, other_bytes) = (std::fs::read(one), std::fs::read(other));
    let (one_bytes, other_bytes) = (one_bytes.expect("read"), other_bytes.expect("read"));
    assert_eq!(one_bytes.len(), other_bytes.len());
    let differ = one_bytes.iter().zip(&other_bytes).position(|(a, b)| a != b);
    assert_eq!(
        differ,
        None,
        "{} and {} differ from this byte on",
        one.display(),
        other.display()
    );
}

#[test]
fn nbdcopy_reads_back_what_it_wrote_also_after_a_restart() {
    if !have("nbdcopy") {
        return;
    }
    for mode in ["back", "through", "around", "only-writes", "pass"] {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        random_image(&dir.join("in.img"), 1);
        let daemon = Daemon::start(dir, &config(mode));
        tool(dir, "nbdcopy", &["--flush", "in.img", &daemon.uri()]);
        tool(dir, "nbdcopy", &[&daemon.uri(), "out.img"]);
        same(&dir.join("in.img"), &dir.join("out.img"));
        daemon.kill();
        let daemon = Daemon::start(dir, &config(mode));
        tool(dir, "nbdcopy", &[&daemon.uri(), "again.img"]);
        same(&dir.join("in.img"), &dir.join("again.img"));
        daemon.stop();
    }
}

#[test]
fn qemu_img_finds_one_image_on_the_volume_and_after_a_detach_on_slow() {
    if !have("qemu-img") {
        return;
    }
    for mode in ["back", "through", "around"] {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        random_image(&dir.join("in.img"), 2);
        let daemon = Daemon::start(dir, &config(mode));
        let uri = daemon.uri();
        let raw = ["convert", "-n", "-f", "raw", "-O", "raw"];
        tool(dir, "qemu-img", &[&raw[..], &["in.img", &uri]].concat());
        let compare = ["compare", "-f", "raw", "-F", "raw"];
        let said = tool(dir, "qemu-img", &[&compare[..], &["in.img", &uri]].concat());
        assert!(said.contains("Images are identical"), "{said}");
        let out = ["convert", "-f", "raw", "-O", "qcow2", &uri, "out.qcow2"];
        tool(dir, "qemu-img", &out);
        tool(dir, "qemu-img", &["check", "out.qcow2"]);
        let qcow = ["compare", "-f", "raw", "-F", "qcow2", "in.img", "out.qcow2"];
        tool(dir, "qemu-img", &qcow);

        if mode == "back" {
            assert!(daemon.cache("dirty_bytes") + daemon.cache("bytes_cleaned") > 0);
        }
        daemon.command(&["volume", "detach", "vol0"]);
        daemon.stop();
        let bare = [&compare[..], &["in.img", "slow.img"]].concat();
        let said = tool(dir, "qemu-img", &bare);
        assert!(said.contains("Images are identical"), "{mode}: {said}");
    }
}

#[test]
fn fio_finds_every_block_it_wrote_with_flushes_between() {
    if !has_fio_with_nbd() {
        return;
    }
    for mode in ["back", "through", "around", "only-writes"] {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        let daemon = Daemon::start(dir, &config(mode));
        let uri = format!("--uri={}", daemon.uri());
        for (sizes, depth, mix) in [
            ("--bsrange=4k-4k", "--iodepth=32", "--rw=randwrite"),
            ("--bsrange=512-256k", "--iodepth=8", "--rw=randwrite"),
            ("--bsrange=4k-64k", "--iodepth=16", "--rw=randrw"),
        ] {
            let said = tool(
                dir,
                "fio",
                &[
                    "--name=verify",
                    "--ioengine=nbd",
                    &uri,
                    mix,
                    sizes,
                    depth,
                    // Spread over more than the cache holds.
                    "--size=60M",
                    "--io_size=24M",
                    "--verify=crc32c",
                    "--verify_fatal=1",
                    "--verify_state_save=0",
                    "--verify_backlog=512",
                    "--fsync=32",
                    "--randseed=7",
                    "--allrandrepeat=1",
                ],
            );
            assert!(said.contains("err= 0"), "{mode} {sizes}: {said}");
        }
        assert_eq!(daemon.cache("bad_checksums"), 0);
        daemon.stop();
    }
}

/// Writes with and without FUA, flushes, zeroes and discards between, all in one go.
#[test]
fn qemu_io_reads_its_fua_writes_after_a_kill() {
    if !have("qemu-io") {
        return;
    }
    for mode in ["back", "through", "around", "only-writes", "pass"] {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        let daemon = Daemon::start(dir, &config(mode));
        let io = |daemon: &Daemon, commands: &[&str]| {
            let mut arguments = vec!["-f", "raw"];
            for command in commands {
                arguments.extend(["-c", command]);
            }
            let uri = daemon.uri();
            arguments.push(&uri);
            let said = tool(dir, "qemu-io", &arguments);
            assert!(!said.contains("failed"), "{mode}: {said}");
        };
        io(
            &daemon,
            &[
                "write -P 0x11 0 1M",
                "write -f -P 0x22 256k 64k",
                "write -f -P 0x33 260k 1k",
                "write -z -f 512k 64k",
                "write -f -P 0x44 5M 4k",
                "flush",
                "write -P 0x55 6M 4k",
                "write -f -P 0x66 7M 128k",
            ],
        );
        daemon.kill();
        let daemon = Daemon::start(dir, &config(mode));
        io(
            &daemon,
            &[
                "read -P 0x11 0 256k",
                "read -P 0x22 256k 4k",
                "read -P 0x33 260k 1k",
                "read -P 0x22 261k 59k",
                "read -P 0x11 320k 192k",
                "read -P 0 512k 64k",
                "read -P 0x11 576k 448k",
                "read -P 0x44 5M 4k",
                "read -P 0x66 7M 128k",
            ],
        );
        daemon.stop();
    }
}
