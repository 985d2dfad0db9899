//! restic: backups, also one in the middle of which the daemon is killed.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::{Served, bytes, fill, has, said, stderr, sums, write};
use crate::common::{Daemon, json};
use crate::s3::GATEWAY;

/// restic, with a repository in the gateway.
fn restic(served: &Served) -> Command {
    let mut restic = served.client("restic");
    restic.env("RESTIC_REPOSITORY", format!("s3:{}/backups", served.url));
    restic.env("RESTIC_PASSWORD", "secret");
    restic
}

/// Reads all that is in the repository.
fn check(served: &Served) {
    let said = said(restic(served).args(["check", "--read-data"]));
    assert!(said.contains("no errors were found"), "{said}");
}

#[test]
fn restic_backs_up_restores_and_forgets() {
    if !has("restic") {
        return;
    }
    let served = Served::start();
    let work = served.work();
    let restic = |arguments: &[&str]| said(restic(&served).args(arguments));
    let data = work.join("data");
    fill(&data);
    restic(&["init"]);
    restic(&["backup", "data"]);
    let before = sums(&data);
    write(&data, "small", b"changed");
    write(&data, "new/one", &bytes(20, 3_000_000));
    fs::remove_file(data.join("big")).unwrap();
    restic(&["backup", "data"]);
    let listed: Value = serde_json::from_str(&restic(&["snapshots", "--json"])).unwrap();
    let first = listed[0]["short_id"].as_str().unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
    restic(&["restore", first, "--target", "first"]);
    restic(&["restore", "latest", "--target", "latest"]);
    let under = |folder: &str| work.join(folder).join("data");
    assert_eq!(sums(&under("first")), before);
    assert_eq!(sums(&under("latest")), sums(&data));
    restic(&["forget", "--prune", "--keep-last", "1"]);
    check(&served);
    served.stop();
}

/// Begins a backup of what it reads from a pipe. When this returns, its first pack is under way, of 16 MiB, and it waits for
/// more.
fn begin(served: &Served, first: &[u8]) -> Child {
    let used = || {
        let stores = json(served.dir.path(), &["store", "list", "--json"]);
        let used = |it: &Value| it["node"]["space"]["used_bytes"].as_u64().unwrap();
        stores.as_array().unwrap().iter().map(used).sum::<u64>()
    };
    let before = used();
    let mut backup = restic(served)
        .args(["backup", "--stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let into = backup.stdin.as_mut().unwrap();
    into.write_all(first).unwrap();
    // Each look starts a program: some seconds in all.
    let is_begun = (0..1000).any(|_| used() > before + (1 << 20));
    assert!(is_begun, "{before} before, {} now", used());
    backup
}

/// Kills the daemon, and starts one in its place.
fn kill(served: &mut Served) {
    served.daemon.signal("KILL");
    served.daemon.ended();
    let same = format!("listen = \"{}\"", served.host());
    let config = GATEWAY.replace("listen = \"127.0.0.1:0\"", &same);
    served.daemon = Daemon::start(served.dir.path(), &config);
}

#[test]
fn restic_finds_its_repository_whole_after_kills_amid_backups() {
    if !has("restic") {
        return;
    }
    let mut served = Served::start();
    let (first, rest) = (bytes(30, 24 << 20), bytes(31, 8 << 20));
    said(restic(&served).arg("init"));
    let mut backup = begin(&served, &first);
    kill(&mut served);
    // restic tries again by itself, and goes on once the gateway is back.
    let mut into = backup.stdin.take().unwrap();
    into.write_all(&rest).unwrap();
    drop(into);
    let output = backup.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    check(&served);
    // Where restic ends as well, its lock stays behind.
    let mut backup = begin(&served, &bytes(32, 24 << 20));
    backup.kill().unwrap();
    backup.wait().unwrap();
    kill(&mut served);
    said(restic(&served).arg("unlock"));
    write(&served.work(), "data", &rest);
    said(restic(&served).args(["backup", "data"]));
    check(&served);
    let mut dump = restic(&served);
    dump.args(["dump", "--path", "/stdin", "latest", "stdin"]);
    assert!(dump.output().unwrap().stdout == [first, rest].concat());
    served.stop();
}
