//! Reservations over a cluster through the whole program: made, used, kept over a kill, changed, refused, ended.

use std::fs;

use crate::cluster::{ONE, json};
use crate::daemon::Daemon;

#[test]
fn a_reservation_over_the_cluster_is_made_kept_over_a_kill_changed_and_ended() {
    let dir = tempfile::tempdir().expect("a directory");
    let daemon = Daemon::start(dir.path(), ONE);
    daemon.command(&["volume", "create", "vm1", "--size", "64MiB"]);
    daemon.command(&[
        "reservation",
        "create",
        "nightly",
        "--volume",
        "vm1",
        "--read",
        "20MB/s",
        "--for",
        "1h",
    ]);
    let shown = json(&daemon, &["reservation", "show", "nightly", "--json"]);
    assert_eq!(shown["state"], "committed", "{shown}");
    assert_eq!(shown["parts"].as_array().map(Vec::len), Some(2), "{shown}");
    // Of a store: the set is printed, and an object command takes it, store and all.
    let set = daemon.command(&[
        "reservation",
        "create",
        "job",
        "--store",
        "s1",
        "--write",
        "10MB/s",
        "--scope",
        "job/",
        "--for",
        "1h",
    ]);
    fs::write(dir.path().join("set"), &set).expect("written");
    fs::write(dir.path().join("data"), vec![7; 100_000]).expect("written");
    daemon.command(&["object", "put", "data", "job/data", "--capability", "@set"]);
    let beyond = daemon.refused(&["object", "put", "data", "other", "--capability", "@set"]);
    assert!(beyond.contains("names that begin with"), "{beyond}");
    // Its parts end with the whole alone.
    let part = daemon.refused(&["reservation", "delete", "s1/2"]);
    assert!(part.contains("is a part of the reservation r-"), "{part}");
    daemon.kill();

    let daemon = Daemon::start(dir.path(), ONE);
    for name in ["nightly", "job"] {
        let shown = json(&daemon, &["reservation", "show", name, "--json"]);
        assert_eq!(shown["state"], "committed", "{shown}");
    }
    daemon.command(&["object", "put", "data", "job/more", "--capability", "@set"]);
    daemon.command(&["reservation", "set", "nightly", "--read", "30MB/s"]);
    let shown = json(&daemon, &["reservation", "show", "nightly", "--json"]);
    assert_eq!(shown["read_bytes_per_second"], 30_000_000, "{shown}");
    let much = daemon.refused(&[
        "reservation",
        "create",
        "much",
        "--store",
        "s0",
        "--read",
        "900MB/s",
        "--scope",
        "a/",
        "--for",
        "1h",
    ]);
    assert!(
        much.contains("900 MB/s") && much.contains("at most"),
        "{much}"
    );
    daemon.command(&["reservation", "delete", "nightly"]);
    let gone = daemon.refused(&["reservation", "show", "nightly"]);
    assert!(gone.contains("there is no reservation nightly"), "{gone}");
    daemon.command(&["reservation", "delete", "job"]);
    let over = daemon.refused(&["object", "put", "data", "job/last", "--capability", "@set"]);
    assert!(over.contains("released"), "{over}");
    daemon.stop();
}
