//! What `volume set` changed lasts: over `kill -9`, until it is taken back, and never in silence where it cannot.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{Daemon, SMALL, json, run, stderr, tanada, text};
use crate::spellings::with_cluster;

fn settings(dir: &Path) -> Value {
    json(dir, &["volume", "show", "vol0", "--json"])["settings"].clone()
}

/// So often is the daemon killed; `TANADA_ROUNDS=100` is the acceptance.
fn rounds() -> usize {
    let rounds = std::env::var("TANADA_ROUNDS");
    rounds.map_or(3, |rounds| {
        rounds.parse().expect("TANADA_ROUNDS is a number")
    })
}

/// [`SMALL`] with a slow device that can sleep.
fn sleepy() -> String {
    SMALL.replace(
        "path = \"slow.img\"",
        "model = \"hdd-5400-mobile\"\nfile = \"slow.img\"",
    )
}

#[test]
fn what_was_set_is_in_force_after_kill_9_until_it_is_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let set = |more: &[&str]| text(dir, &[&["volume", "set", "vol0"], more].concat());
    let mut daemon = Daemon::start(dir, SMALL);
    for turn in 0..rounds() {
        let write = ["through", "around", "back"][turn % 3];
        let dirty_high = 60 + turn % 30;
        let said = set(&[
            "mode=cache",
            &format!("write={write}"),
            &format!("dirty_high={dirty_high}"),
        ]);
        assert!(said.contains(write), "{said}");
        drop(daemon);
        daemon = Daemon::start(dir, SMALL);
        let now = settings(dir);
        assert_eq!(
            (now["write"].as_str(), now["dirty_high"].as_u64()),
            (Some(write), Some(dirty_high as u64)),
            "turn {turn}"
        );
    }
    set(&["write=back", "dirty_high=62"]);
    drop(daemon);
    let daemon = Daemon::start(dir, SMALL);
    set(&["mode=both", "period=20s", "max_read=20MB/s"]);
    set(&["--until-restart", "policy=lru", "dirty_high=90"]);
    let now = settings(dir);
    assert_eq!(
        (now["policy"].as_str(), now["dirty_high"].as_u64()),
        (Some("lru"), Some(90))
    );
    let listed = text(dir, &["config", "diff"]);
    for line in ["dirty_high", "policy", "tier.period", "max_read"] {
        assert!(listed.contains(line), "{listed}");
    }
    let all = json(dir, &["config", "diff", "--json"]);
    let of = |key: &str| {
        all.as_array()
            .unwrap()
            .iter()
            .find(|it| it["key"] == key)
            .unwrap()
    };
    assert_eq!(
        (
            &of("dirty_high")["kept"]["value"],
            &of("dirty_high")["until_restart"]
        ),
        (&Value::from(62), &Value::from(90))
    );
    assert!(
        of("write")["kept"]["who"]
            .as_str()
            .unwrap()
            .starts_with("user ")
    );
    drop(daemon);

    let daemon = Daemon::start(dir, SMALL);
    let now = settings(dir);
    assert_eq!(
        now["dirty_high"], 62,
        "what was kept, not what held until then"
    );
    assert_ne!(now["policy"], "lru");
    assert_eq!(now["tier"]["period_seconds"], 20.0);
    let refused = run(dir, &["config", "reset", "vol0", "policy"]);
    assert!(
        stderr(&refused).contains("as the configuration says"),
        "{refused:?}"
    );
    text(
        dir,
        &["config", "reset", "vol0", "dirty_high", "tier.period"],
    );
    let now = settings(dir);
    assert_ne!(now["dirty_high"], 62);
    assert_ne!(now["tier"]["period_seconds"], 20.0);
    drop(daemon);
    let daemon = Daemon::start(dir, SMALL);
    assert_eq!(settings(dir)["dirty_high"], now["dirty_high"]);
    text(dir, &["config", "reset", "vol0"]);
    assert!(text(dir, &["config", "diff"]).starts_with("All settings"));
    let (status, log) = daemon.stop();
    assert_eq!(status, Some(0), "{log}");
    // Where the file names it, that counts again.
    let named = SMALL.replace(
        "fast = \"fast\"\n",
        "fast = \"fast\"\nwrite = \"through\"\n",
    );
    let daemon = Daemon::start(dir, &named);
    assert_eq!(settings(dir)["write"], "through");
    set(&["write=around"]);
    text(dir, &["config", "reset", "vol0", "write"]);
    assert_eq!(settings(dir)["write"], "through");
    drop(daemon);
}

#[test]
fn settings_that_cannot_be_kept_or_understood_are_not_dropped_in_silence() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &sleepy());
    // What makes no sense is not kept.
    assert!(
        !run(dir, &["volume", "set", "vol0", "dirty_low=80"])
            .status
            .success()
    );
    let file = dir.join("tanada-data/settings.toml");
    assert!(!file.exists());
    let beside = dir.join("tanada-data/settings.toml.new");
    fs::create_dir(&beside).unwrap();
    let refused = run(dir, &["volume", "set", "vol0", "policy=lru"]);
    let said = stderr(&refused);
    assert!(
        !refused.status.success() && said.contains("only until the daemon ends"),
        "{said}"
    );
    // It is in force, and told to be so only until then.
    let all = json(dir, &["config", "diff", "--json"]);
    assert_eq!(
        (&all[0]["until_restart"], &all[0]["kept"]),
        (&Value::from("lru"), &Value::Null)
    );
    fs::remove_dir(&beside).unwrap();
    // What cannot be taken back out of the file is taken back once it can be.
    text(dir, &["volume", "set", "vol0", "policy=lru"]);
    fs::create_dir(&beside).unwrap();
    let reset = ["config", "reset", "vol0", "policy"];
    assert!(!run(dir, &reset).status.success());
    assert!(text(dir, &["config", "diff"]).contains("policy"));
    fs::remove_dir(&beside).unwrap();
    text(dir, &reset);
    assert!(text(dir, &["config", "diff"]).starts_with("All settings"));
    text(
        dir,
        &[
            "volume",
            "set",
            "vol0",
            "energy=on",
            "age_limit=5m",
            "mode=cache",
        ],
    );
    drop(daemon);

    // It is kept, and the configuration no longer goes with it.
    let kept = fs::read_to_string(&file).unwrap();
    fs::write(&file, kept.replace("energy", "warp")).unwrap();
    let start = || tanada(dir).args(["serve", "tanada.toml"]).output().unwrap();
    let refused = start();
    let said = stderr(&refused);
    assert!(
        !refused.status.success() && said.contains("warp") && said.contains("settings.toml"),
        "{said}"
    );
    let said = stderr(&run(dir, &["config", "check", "tanada.toml"]));
    assert!(said.contains("warp"), "{said}");
    fs::write(&file, "version = 1\n[volume").unwrap();
    let said = stderr(&start());
    assert!(said.contains("move it away"), "{said}");
    fs::write(&file, kept).unwrap();
    let daemon = Daemon::start(dir, &sleepy());
    assert_eq!(settings(dir)["age_limit_seconds"], 300.0);
    drop(daemon);
}

#[test]
fn a_write_mode_that_suits_the_mode_a_volume_has_is_in_force_after_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let cache = sleepy().replace("fast = \"fast\"\n", "fast = \"fast\"\nmode = \"cache\"\n");
    drop(Daemon::start(dir, &cache));
    // The volume itself says that it is a cache, no longer its configuration.
    let daemon = Daemon::start(dir, &sleepy());
    text(dir, &["volume", "set", "vol0", "write=through"]);
    // Only with the energy mode it has until the restart would this make sense.
    text(
        dir,
        &["volume", "set", "vol0", "--until-restart", "energy=on"],
    );
    let refused = run(dir, &["volume", "set", "vol0", "age_limit=5m"]);
    assert!(stderr(&refused).contains("age_limit"), "{refused:?}");
    drop(daemon);
    let daemon = Daemon::start(dir, &sleepy());
    let now = settings(dir);
    assert_eq!(
        (&now["mode"], &now["write"]),
        (&Value::from("cache"), &Value::from("through"))
    );
    assert!(!run(dir, &["config", "reset", "vol0", ""]).status.success());
    assert_eq!(settings(dir)["write"], "through");
    drop(daemon);
}

#[test]
fn a_span_is_shown_as_it_is_typed_and_a_reset_names_what_goes_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &sleepy());
    let set = ["volume", "set", "vol0", "energy=on", "age_limit=90m"];
    let said = text(dir, &set);
    assert!(said.contains("age_limit 1h 30m"), "{said}");
    let refused = run(dir, &["config", "reset", "vol0", "energy"]);
    assert_eq!(refused.status.code(), Some(5));
    let said = stderr(&refused);
    assert!(said.contains("reset age_limit, too"), "{said}");
    text(dir, &["config", "reset", "vol0", "energy", "age_limit"]);
    daemon.stop();
}

#[test]
fn energy_mode_is_refused_where_the_slow_device_cannot_sleep() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    let refused = run(dir, &["volume", "set", "vol0", "energy=on"]);
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(5));
    let why = "cannot set energy of vol0: cannot send slow to sleep:";
    assert!(said.contains(why), "{said}");
    let what = "is a regular file, and a disk sleeps as a whole; name a SATA or SAS disk";
    assert!(said.contains(what), "{said}");
    assert_eq!(settings(dir)["energy"], false);
    drop(daemon);
    let energy = "fast = \"fast\"\nenergy = true\n";
    let named = SMALL.replace("fast = \"fast\"\n", energy);
    fs::write(dir.join("tanada.toml"), named).unwrap();
    let refused = tanada(dir).args(["serve", "tanada.toml"]).output().unwrap();
    let said = stderr(&refused);
    assert!(!refused.status.success() && said.contains(what), "{said}");
    assert!(
        said.contains("or take energy out of the configuration"),
        "{said}"
    );
    // A model of a disk sleeps, and says so.
    let daemon = Daemon::start(dir, &sleepy().replace("fast = \"fast\"\n", energy));
    let devices = json(dir, &["device", "list", "--json"]);
    let spindle = &devices
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["name"] == "slow")
        .unwrap()["spindle"];
    assert_eq!(spindle["asleep"], false);
    assert!(text(dir, &["status"]).contains("\nslow: awake since "));
    text(dir, &["config", "diff"]);
    text(dir, &["volume", "set", "vol0", "energy=off"]);
    assert!(!text(dir, &["status"]).contains("slow: awake"));
    drop(daemon);
}

#[test]
fn each_change_is_a_line_of_the_log_with_who_what_before_and_after() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &with_cluster());
    for words in [
        "volume create vm1 --size 32MiB",
        "volume set vm1 size=64MiB priority=low holder=ann",
        "snapshot create vm1@monday",
        "snapshot delete vm1@monday --yes",
        "volume set vm1 name=vm2",
        "volume delete vm2 --yes",
        "account create ann",
        "health mute DIRTY_OLD --for 1h",
        "config reset vol0",
    ] {
        text(dir, &words.split(' ').collect::<Vec<_>>());
    }
    let token = text(dir, &["token", "create", "ann"]);
    let (status, log) = daemon.stop();
    assert_eq!(status, Some(0), "{log}");
    let lines: Vec<&str> = log.lines().filter(|it| it.contains("who=")).collect();
    for (what, more) in [
        ("POST /v1/cluster/volumes\"", "vm1"),
        (
            "PATCH /v1/cluster/volumes/vm1",
            "size_bytes: 33554432 -> 67108864",
        ),
        ("PATCH /v1/cluster/volumes/vm1", r#"holder: null -> "ann""#),
        ("PATCH /v1/cluster/volumes/vm1", r#"name: "vm1" -> "vm2""#),
        ("POST /v1/cluster/volumes/vm1/snapshots", "monday"),
        ("DELETE /v1/cluster/volumes/vm1/snapshots/monday", "changed"),
        ("DELETE /v1/cluster/volumes/vm2", r#""size_bytes":67108864"#),
        ("POST /v1/accounts", "ann"),
        ("POST /v1/tokens", "ann"),
        ("PUT /v1/health/mutes/DIRTY_OLD", "3600"),
    ] {
        let is_it = |line: &&&str| line.contains(what) && line.contains(more);
        assert!(
            lines.iter().any(|line| is_it(&line)),
            "{what}, {more}:\n{log}"
        );
    }
    assert!(
        !log.contains(token.trim()),
        "a token is no matter of the log"
    );
    assert!(!log.contains("as configured again, :"), "{log}");
}
