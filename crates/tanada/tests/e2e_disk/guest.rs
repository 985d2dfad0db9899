//! A real kernel on a cluster volume: ext4 in a guest, while one of the stores' daemons is killed.
//!
//! ```text
//! three nodes, etcd -> a volume of three copies -> NBD -> a guest's disk -> mkfs, mount, write, check, fsck
//! ```
//!
//! The guest is run by `vm` in the directory that `TANADA_LAB` names (or `lab` beside the public traces, `TANADA_SHARED`): a
//! program that boots a kernel with such disks and runs a command there. Without it, or without QEMU, the test is skipped, and says so.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use env::{RealConfig, Runtime};

use crate::cluster::{Etcd, free_port, has_all_stores, start_again, start_node};

/// What the guest does. Files of 1 MiB each, with their sums, over and over, until it learns that a daemon was killed; then
/// a look at all of them, from the disk, and at the file system.
const COMMAND: &str = r#"
set -e
modprobe ext4
mkfs.ext4 -q -E nodiscard /dev/v
mkdir -p /run/m
mount /dev/v /run/m
n=0
write() {
    dd if=/dev/urandom of=/run/m/f$1 bs=64k count=16 conv=fsync status=none
    sha256sum /run/m/f$1 >>/run/sums
}
while [ $n -lt 24 ] || [ ! -e /lab/killed ]; do
    [ $n -lt 200 ]
    write $n
    n=$((n + 1))
    [ $n != 6 ] || touch /lab/going
done
rm /run/m/f3; sed -i '/\/f3$/d' /run/sums
umount /run/m
e2fsck -fn /dev/v
mount /dev/v /run/m
echo 3 >/proc/sys/vm/drop_caches
sha256sum --quiet -c /run/sums
umount /run/m
echo files: $n
"#;

/// The program that runs guests, where it and the programs that it and its test need are there. Set-up does not install
/// them, so only the lab itself can be required.
pub fn lab(programs: &[&str]) -> Option<PathBuf> {
    let shared = || {
        let shared = std::env::var_os("TANADA_SHARED").map(PathBuf::from);
        shared.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").into())
    };
    let named = std::env::var_os("TANADA_LAB").map(PathBuf::from);
    let vm = named.unwrap_or_else(|| shared().join("lab")).join("vm");
    let required = std::env::var("TANADA_REQUIRE_SHARED").is_ok_and(|value| value == "1");
    assert!(vm.is_file() || !required, "{} is required", vm.display());
    if !vm.is_file() {
        println!("skipped: no {}", vm.display());
        return None;
    }
    let is_there = |program: &&&str| Command::new(program).arg("--version").output().is_ok();
    let all = ["qemu-system-x86_64", "busybox"].iter().chain(programs);
    let lacking: Vec<_> = all.filter(|it| !is_there(it)).collect();
    if !lacking.is_empty() {
        println!("skipped: {} needs {lacking:?}", vm.display());
        return None;
    }
    Some(vm)
}

#[test]
fn ext4_of_a_guest_stays_whole_while_a_node_is_killed_and_comes_back() {
    let Some(vm) = lab(&["etcd"]) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().to_owned();
    let port = free_port();
    let _etcd = Etcd::start(&root, port);
    let [n1, n2, n3] = ["n1", "n2", "n3"].map(|name| start_node(&root, name, port));
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    runtime.block_on(async move {
        has_all_stores(&n1, 3).await;
        let create = [
            "volume", "create", "vm1", "--size", "96MiB", "--copies", "3",
        ];
        n1.command(&[&create[..], &["--min-copies", "2"]].concat());
        let out = root.join("out");
        std::fs::create_dir(&out).expect("the directory is ours");
        let disk = format!(
            "v=nbd+unix:///vm1?socket={}",
            root.join("n1/disks.sock").display()
        );
        let mut guest = Command::new(&vm)
            .args(["-t", "600", "-m", "1024", "-d", &disk, "-o"])
            .arg(&out)
            .arg(COMMAND)
            .current_dir(&root)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the lab starts");
        while !out.join("going").exists() {
            let ended = guest.try_wait().expect("it is our child");
            assert!(
                ended.is_none(),
                "the guest ended before it wrote: {ended:?}"
            );
            env::sleep(base::Nanos::millis(100)).await;
        }
        n2.kill();
        std::fs::write(out.join("killed"), "").expect("the directory is ours");
        let n2 = start_again(&root.join("n1"), "n2");
        let ended = guest.wait_with_output().expect("it is our child");
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        let more = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success(), "{}\n{said}\n{more}", ended.status);
        assert!(said.contains("files: "), "{said}");
        let repaired = n1.command(&["volume", "repair", "vm1"]);
        assert!(repaired.contains("vm1: healthy"), "{repaired}");
        for node in [n2, n3, n1] {
            node.stop();
        }
    });
}
