//! How commands are spelt, how they end, and what they ask before data are lost.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::common::{Daemon, SMALL, json, run, stderr, tanada, text};

/// [`SMALL`] with a store, and a cluster of this node that keeps virtual disks in it.
pub fn with_cluster() -> String {
    SMALL.to_owned()
        + "[[device]]\nname = \"d1\"\npath = \"d1.img\"\nsize = \"256MiB\"\n\
           [[store]]\nname = \"s1\"\ndevice = \"d1\"\nlisten = \"unix:s1.sock\"\ncreate = true\n\
           read_speed = \"100MB/s\"\nwrite_speed = \"100MB/s\"\n\
           [cluster]\nnode = \"n1\"\nnbd = \"unix:disks.sock\"\n"
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

/// Runs it without a terminal; it must be refused with nothing changed.
fn refused(dir: &Path, arguments: &[&str]) -> String {
    let output = run(dir, arguments);
    assert_eq!(code(&output), Some(5), "{arguments:?}: {}", stderr(&output));
    stderr(&output)
}

#[test]
fn each_way_a_command_ends_has_its_exit_status() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let status = |arguments: &[&str]| code(&run(dir, arguments));
    assert_eq!(status(&["volume", "list"]), Some(6), "no daemon");
    assert_eq!(status(&["object", "list", "--store", "unix:none"]), Some(6));
    assert_eq!(status(&["store", "check", "none.img"]), Some(1), "failed");
    assert_eq!(status(&["config", "check", "none.toml"]), Some(2));
    assert_eq!(status(&["serve", "none.toml"]), Some(2));
    fs::write(dir.join("bad.toml"), "[[device]]\n").unwrap();
    assert_eq!(status(&["device", "claim", "bad.toml"]), Some(5), "no disk");
    assert_eq!(status(&["device", "release", "nosuch"]), Some(5));
    assert_eq!(status(&["config", "check", "bad.toml"]), Some(2));
    assert_eq!(status(&["volume", "set", "vol0", "wirte=back"]), Some(2));

    let daemon = Daemon::start(dir, SMALL);
    assert_eq!(status(&["volume", "list"]), Some(0));
    assert_eq!(status(&["volume", "show", "none"]), Some(5), "refused");
    assert_eq!(status(&["volume", "set", "vol0", "policy=none"]), Some(5));
    assert_eq!(status(&["object", "delete", "a"]), Some(5), "no consent");
    assert_eq!(status(&["token", "delete", "0000"]), Some(5), "no such");
    let shown = |token: &str| {
        let mut command = tanada(dir);
        command.env("TANADA_TOKEN", token).args(["volume", "list"]);
        code(&command.output().unwrap())
    };
    assert_eq!(shown("none"), Some(2), "it is no token");
    let unknown = format!("tanada_{:016x}_{}", 7, "A".repeat(43));
    assert_eq!(shown(&unknown), Some(7), "not allowed");
    daemon.stop();
}

#[test]
fn old_and_new_spelling_do_the_same_and_the_old_one_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &with_cluster());
    let both = |old: &[&str], new: &[&str], note: &str| {
        let (was, is) = (run(dir, old), run(dir, new));
        assert_eq!(code(&was), code(&is), "{old:?}: {}", stderr(&was));
        assert_eq!(was.stdout, is.stdout, "{old:?}");
        let note = format!("note: {note}; the old spelling goes in 0.3\n");
        assert_eq!(stderr(&was), note + &stderr(&is), "{old:?}");
    };
    both(
        &["store", "status"],
        &["store", "list"],
        "'tanada store status' is now 'tanada store list'",
    );
    both(
        &["reserve", "list"],
        &["reservation", "list", "--parts"],
        "'tanada reserve list' is now 'tanada reservation list --parts'",
    );
    both(
        &["serve", "--check", "tanada.toml"],
        &["config", "check", "tanada.toml"],
        "'tanada serve --check' is now 'tanada config check'",
    );
    both(
        &["serve", "--print-config"],
        &["config", "example"],
        "'tanada serve --print-config' is now 'tanada config example'",
    );
    both(
        &["store", "serve", "--print-config", "--admin", "unix:a"],
        &["config", "example", "--store", "--admin", "unix:a"],
        "'tanada store serve --print-config' is now 'tanada config example --store'",
    );
    both(
        &["trace", "stat", "none.csv"],
        &["trace", "show", "none.csv"],
        "'tanada trace stat' is now 'tanada trace show'",
    );
    both(
        &["device", "bench", "scm", "--json"],
        &["bench", "model", "scm", "--json"],
        "'tanada device bench MODEL' is now 'tanada bench model MODEL'",
    );

    // What changes something is done once in each spelling.
    text(dir, &["volume", "create", "vm1", "--size", "32MiB"]);
    text(dir, &["volume", "snapshot", "vm1", "old"]);
    text(dir, &["snapshot", "create", "vm1@new"]);
    both(
        &["volume", "snapshots", "vm1"],
        &["snapshot", "list", "vm1"],
        "'tanada volume snapshots' is now 'tanada snapshot list'",
    );
    let all = json(dir, &["snapshot", "list", "--json"]);
    assert_eq!(
        (&all[0]["volume"], &all[0]["name"]),
        (&"vm1".into(), &"old".into())
    );
    text(dir, &["volume", "clone", "vm1@old", "vm2"]);
    text(dir, &["volume", "rename", "vm2", "vm3"]);
    text(dir, &["volume", "resize", "vm3", "64MiB"]);
    text(dir, &["volume", "set", "vm3", "--priority", "low"]);
    let disk = json(dir, &["volume", "show", "vm3", "--json"]);
    assert_eq!(
        (&disk["size_bytes"], &disk["priority"]),
        (&(64 << 20).into(), &"low".into())
    );
    text(
        dir,
        &[
            "volume",
            "set",
            "vm3",
            "name=vm2",
            "size=128M",
            "priority=high",
        ],
    );
    let disk = json(dir, &["volume", "info", "vm2", "--json"]);
    assert_eq!(
        (&disk["size_bytes"], &disk["priority"]),
        (&(128 << 20).into(), &"high".into())
    );
    text(dir, &["volume", "rm", "vm2", "--yes"]);
    text(dir, &["volume", "rm", "vm1@old", "--yes"]);
    text(dir, &["snap", "rm", "vm1@new", "--yes"]);
    assert_eq!(text(dir, &["snap", "ls"]), "there are no snapshots\n");
    daemon.stop();
}

#[test]
fn volumes_of_both_kinds_are_one_list() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &with_cluster());
    // The name of a hybrid is a virtual disk's only where its kind is said.
    fs::write(dir.join("x.raw"), vec![0x5a; 4096]).unwrap();
    for command in [
        &["volume", "create", "vol0", "--size", "32MiB"][..],
        &["volume", "import", "x.raw", "vol0"],
    ] {
        let said = refused(dir, command);
        assert!(said.contains("a hybrid called vol0"), "{said}");
    }
    for name in ["vm1", "virtual:vol0"] {
        text(dir, &["volume", "create", name, "--size", "32MiB"]);
    }
    let page = text(dir, &["volume", "list"]);
    let head: Vec<&str> = page.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["NAME", "KIND", "SIZE", "HEALTH", "DETAIL"]);
    // The head, three volumes, and where the hybrid's tier stands.
    assert_eq!(page.lines().count(), 5, "{page}");
    let all = json(dir, &["volume", "list", "--json"]);
    let kinds: Vec<(&Value, &Value)> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (&it["name"], &it["kind"]))
        .collect();
    let is = |name: &'static str, kind: &'static str| (Value::from(name), Value::from(kind));
    let expected = [
        is("vol0", "hybrid"),
        is("vm1", "virtual"),
        is("vol0", "virtual"),
    ];
    assert!(
        kinds.into_iter().eq(expected.iter().map(|(a, b)| (a, b))),
        "{all}"
    );

    let shown = |name| json(dir, &["volume", "show", name, "--json"])["kind"].clone();
    assert_eq!(shown("vm1"), "virtual");
    assert_eq!(shown("hybrid:vol0"), "hybrid");
    assert_eq!(shown("virtual:vol0"), "virtual");
    let two = run(dir, &["volume", "show", "vol0"]);
    assert_eq!(code(&two), Some(2));
    let said = stderr(&two);
    assert!(
        said.contains("hybrid:vol0") && said.contains("virtual:vol0"),
        "{said}"
    );

    // A key of both kinds asks which volume is meant; one of a kind says it.
    text(dir, &["volume", "set", "vm1", "max_read=1MB/s"]);
    assert_eq!(
        json(dir, &["volume", "show", "vm1", "--json"])["caps"]["max_read"],
        1_000_000
    );
    let two = run(dir, &["volume", "set", "vol0", "max_read=1MB/s"]);
    assert_eq!(code(&two), Some(2), "{}", stderr(&two));
    text(dir, &["volume", "set", "vol0", "dirty_high=40"]);
    text(dir, &["volume", "set", "vol0", "priority=low"]);
    assert_eq!(
        json(dir, &["volume", "show", "virtual:vol0", "--json"])["priority"],
        "low"
    );
    // Each command finds the kind it is of, and says of the other that it is none.
    text(dir, &["snapshot", "create", "virtual:vol0@x"]);
    let listed = text(dir, &["snapshot", "list", "virtual:vol0"]);
    assert!(
        listed.lines().nth(1).is_some_and(|it| it.contains("x")),
        "{listed}"
    );
    text(dir, &["volume", "import", "x.raw", "virtual:zz"]);
    text(dir, &["volume", "repair", "virtual:zz"]);
    for verb in ["detach", "attach", "heat", "moves"] {
        let said = refused(dir, &["volume", verb, "vm1"]);
        assert!(said.contains("vm1 is virtual"), "{verb}: {said}");
        let said = refused(dir, &["volume", verb, "none"]);
        assert!(said.contains("there are vm1, vol0, zz"), "{verb}: {said}");
    }
    let none = refused(dir, &["volume", "show", "none"]);
    assert!(none.contains("there are vm1, vol0, zz"), "{none}");
    text(dir, &["volume", "delete", "virtual:vol0", "--yes"]);
    let hybrid = refused(dir, &["volume", "delete", "vol0", "--yes"]);
    assert!(hybrid.contains("vol0 is hybrid"), "{hybrid}");
    // What is not there, or in use, is refused.
    let key = ["--node-key", "tanada-data/keys/cluster.node"];
    for command in [
        &["node", "check-stop", "n9"][..],
        &["store", "check", "d1.img"],
        &[
            &["object", "delete", "o9", "--yes", "--store", "s1"][..],
            &key,
        ]
        .concat(),
    ] {
        refused(dir, command);
    }
    // A store is found by its name from any folder, and one that is not there is said once.
    let elsewhere = tempfile::tempdir().unwrap();
    let admin = format!("unix:{}/admin.sock", dir.display());
    let key = dir.join("tanada-data/keys/cluster.node");
    let list = ["object", "list", "--store", "s1", "--admin", &admin];
    let key = ["--node-key", key.to_str().unwrap()];
    text(elsewhere.path(), &[&list[..], &key].concat());
    let none = refused(dir, &["store", "show", "none"]);
    assert_eq!(none.matches("s1").count(), 1, "{none}");
    daemon.stop();
}

#[test]
fn what_loses_data_wants_a_yes_and_a_dry_run_only_says_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &with_cluster());
    text(dir, &["volume", "create", "vm1", "--size", "64MiB"]);
    text(dir, &["snapshot", "create", "vm1@monday"]);
    let before = || json(dir, &["volume", "show", "vm1", "--json"]);
    let was = before();
    let key = "tanada-data/keys/cluster.node";
    fs::write(dir.join("a"), b"data").unwrap();
    let at = ["--store", "unix:s1.sock", "--node-key", key];
    text(dir, &[&["object", "put", "a", "a"][..], &at].concat());

    let shrink = ["volume", "set", "vm1", "size=32MiB", "--shrink"];
    let object = [&["object", "delete", "a"][..], &at].concat();
    let losing: [(&[&str], &str); 7] = [
        (&["volume", "export", "vm1", "a"], "a is there, with 4"),
        (
            &["volume", "delete", "vm1"],
            "vm1, of 64.0 MiB with its snapshot, would be in the trash until 20",
        ),
        (
            &["volume", "delete", "vm1", "--now"],
            "vm1, of 64.0 MiB, would be deleted for good",
        ),
        (
            &["snapshot", "delete", "vm1@monday"],
            "vm1@monday would be deleted",
        ),
        (
            &["snapshot", "rollback", "vm1@monday"],
            "since vm1@monday would be lost",
        ),
        (&shrink, "vm1 has 64.0 MiB and would have 32.0 MiB"),
        (&object, "a would be deleted"),
    ];
    for (command, lost) in losing {
        let said = refused(dir, command);
        assert!(said.contains(lost) && said.contains("Add --yes"), "{said}");
        let dry = text(dir, &[command, &["--dry-run"]].concat());
        assert!(
            dry.contains(lost) && dry.contains("nothing was changed"),
            "{dry}"
        );
        let dry = json(dir, &[command, &["--dry-run", "--json"]].concat());
        assert_eq!(dry["dry_run"], true);
    }
    let now = before();
    assert_eq!(
        (&was["size_bytes"], &was["snapshots"]),
        (&now["size_bytes"], &now["snapshots"])
    );
    let lost = refused(dir, &["node", "delete", "s1", "--lost"]);
    assert!(lost.contains("s1 would be forgotten"), "{lost}");
    for command in [
        &object[..],
        &shrink,
        &["snapshot", "rollback", "vm1@monday"],
        &["snapshot", "delete", "vm1@monday"],
        &["volume", "delete", "vm1", "--now"],
    ] {
        text(dir, &[command, &["--yes"]].concat());
    }
    assert_eq!(
        json(dir, &["volume", "list", "--json"])
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(text(dir, &["trash", "list"]), "the trash is empty\n");
    daemon.stop();
}

#[test]
fn a_deleted_disk_is_listed_restored_and_deleted_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &with_cluster());
    for _ in 0..2 {
        text(dir, &["volume", "create", "vm1", "--size", "32MiB"]);
        text(dir, &["snapshot", "create", "vm1@monday"]);
        let said = text(dir, &["volume", "delete", "vm1", "--yes"]);
        assert!(said.contains("vm1 is in the trash until 20"), "{said}");
        let none = refused(dir, &["volume", "show", "vm1"]);
        assert!(none.contains("vm1"), "{none}");
    }
    let all = json(dir, &["trash", "list", "--json"]);
    let ids: Vec<&str> = [0, 1].map(|nth| all[nth]["id"].as_str().unwrap()).into();
    assert_eq!(
        (&all[0]["name"], &all[0]["snapshots"]),
        (&"vm1".into(), &1.into())
    );
    let kept = all[0]["ends_unix_seconds"].as_u64().unwrap();
    assert_eq!(
        kept - all[0]["deleted_unix_seconds"].as_u64().unwrap(),
        7 * 24 * 3600
    );
    let page = text(dir, &["trash", "ls"]);
    assert!(page.contains(ids[0]) && page.contains(ids[1]), "{page}");

    let two = refused(dir, &["trash", "restore", "vm1"]);
    assert!(
        two.contains(ids[0]) && two.contains("say which of these"),
        "{two}"
    );
    let hidden = refused(dir, &["volume", "show", ids[0]]);
    assert!(hidden.contains(ids[0]), "{hidden}");
    let said = text(dir, &["trash", "restore", ids[0]]);
    assert!(
        said.starts_with("vm1 is there again; clients find it at"),
        "{said}"
    );
    let taken = refused(dir, &["trash", "restore", ids[1]]);
    assert!(taken.contains("there is a volume vm1 already"), "{taken}");
    text(dir, &["trash", "restore", ids[1], "--as", "vm2"]);
    assert!(text(dir, &["snapshot", "list"]).contains("vm2@monday"));
    text(dir, &["volume", "delete", "vm2", "--yes"]);

    let asked = refused(dir, &["trash", "delete", "vm2"]);
    assert!(
        asked.contains("of 32.0 MiB with its snapshot, would be deleted for good"),
        "{asked}"
    );
    let dry = text(dir, &["trash", "delete", "vm2", "--dry-run"]);
    assert!(dry.contains("nothing was changed"), "{dry}");
    text(dir, &["trash", "delete", "vm2", "--yes"]);
    let gone = refused(dir, &["trash", "delete", "vm2", "--yes"]);
    assert!(gone.contains("there is no vm2 in the trash"), "{gone}");
    assert_eq!(text(dir, &["trash", "list"]), "the trash is empty\n");
    daemon.stop();
}
