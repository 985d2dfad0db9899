//! Which mode a hybrid has whose configuration names none, over starts, changes and lost devices.

use std::fs;
use std::path::Path;

use base::crc::crc32c;
use serde_json::Value;

use crate::common::{Daemon, SMALL, ask, json, text};

/// [`SMALL`] with more lines for its hybrid.
fn with(lines: &str) -> String {
    SMALL.replace("fast = \"fast\"\n", &format!("fast = \"fast\"\n{lines}\n"))
}

/// Starts with `config` and ends: the mode in force, and what the log says of modes.
fn start(dir: &Path, config: &str) -> (String, Vec<String>) {
    let daemon = Daemon::start(dir, config);
    let volume = json(dir, &["volume", "show", "vol0", "--json"]);
    let (status, log) = daemon.stop();
    assert_eq!(status, Some(0), "{log}");
    let mode = volume["settings"]["mode"].as_str().unwrap().to_owned();
    let said = log.lines().filter(|line| line.contains("mode"));
    (mode, said.map(str::to_owned).collect())
}

/// The record of pairs, changed.
fn change_record(dir: &Path, change: impl Fn(&mut Value)) {
    let path = dir.join("tanada-data/pairs/vol0.json");
    let mut record = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut record);
    fs::write(path, record.to_string()).unwrap();
}

/// Label and record as a version without the default wrote them.
fn forget_mode(dir: &Path) {
    let path = dir.join("fast.img");
    let mut image = fs::read(&path).unwrap();
    for label in image.chunks_mut(4096).take(2) {
        label[164..168].fill(0);
        label[12..16].fill(0);
        let crc = crc32c(label).to_le_bytes();
        label[12..16].copy_from_slice(&crc);
    }
    fs::write(path, image).unwrap();
    change_record(dir, |record| {
        record.as_object_mut().unwrap().remove("mode");
    });
}

#[test]
fn a_new_hybrid_without_a_mode_has_both_and_a_mode_that_was_named_stays() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (mode, said) = start(dir, SMALL);
    assert_eq!(mode, "both");
    assert!(said[0].contains("vol0 is new and its"), "{said:?}");
    assert_eq!(start(dir, SMALL), ("both".to_owned(), Vec::new()));
    // A key always counts, and what it said stays in force without it.
    for mode in ["cache", "tier", "both", "cache"] {
        let named = with(&format!("mode = \"{mode}\""));
        assert_eq!(start(dir, &named).0, mode);
        assert_eq!(start(dir, SMALL), (mode.to_owned(), Vec::new()));
    }
}

#[test]
fn a_hybrid_of_an_earlier_version_stays_a_cache_and_that_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    start(dir, &with("mode = \"cache\""));
    forget_mode(dir);
    let (mode, said) = start(dir, SMALL);
    assert_eq!(mode, "cache");
    assert!(
        said.len() == 1 && said[0].contains("write mode = \"both\" under [[hybrid]]"),
        "{said:?}"
    );
    assert_eq!(start(dir, SMALL), ("cache".to_owned(), Vec::new()));
    assert_eq!(start(dir, &with("mode = \"both\"")).0, "both");
    assert_eq!(start(dir, SMALL).0, "both");
}

#[test]
fn a_check_tells_the_mode_that_a_start_would_choose() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let checked = |config: &str| {
        fs::write(dir.join("tanada.toml"), config).unwrap();
        let said = text(dir, &["config", "check", "tanada.toml"]);
        let fast = said.lines().find(|line| line.contains("fast.img"));
        fast.unwrap_or_default().to_owned()
    };
    fs::write(dir.join("fast.img"), vec![0; 16 << 20]).unwrap();
    assert!(checked(SMALL).ends_with("begins with an empty cache on it, mode both"));
    assert!(checked(&with("write = \"around\"")).ends_with("on it, mode cache"));
    start(dir, SMALL);
    assert!(checked(SMALL).ends_with("the cache of vol0, mode both"));
    assert!(checked(&with("mode = \"tier\"")).ends_with("the cache of vol0, mode tier"));
    forget_mode(dir);
    assert!(checked(SMALL).ends_with("the cache of vol0, mode cache"));
}

#[test]
fn a_mode_survives_the_loss_of_the_fast_device() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // Detached, and another device in its place: the record of pairs keeps the mode.
    for (config, mode) in [(with("mode = \"cache\""), "cache"), (SMALL.into(), "both")] {
        fs::remove_dir_all(dir.join("tanada-data")).unwrap_or_default();
        for name in ["slow.img", "fast.img"] {
            fs::remove_file(dir.join(name)).unwrap_or_default();
        }
        let daemon = Daemon::start(dir, &config);
        text(dir, &["volume", "detach", "vol0"]);
        assert_eq!(daemon.stop().0, Some(0));
        fs::remove_file(dir.join("fast.img")).unwrap();
        assert_eq!(start(dir, SMALL), (mode.to_owned(), Vec::new()));
    }
    // A record of an earlier version, and no fast device: it was a cache.
    let daemon = Daemon::start(dir, SMALL);
    text(dir, &["volume", "detach", "vol0"]);
    assert_eq!(daemon.stop().0, Some(0));
    fs::remove_file(dir.join("fast.img")).unwrap();
    change_record(dir, |record| {
        record.as_object_mut().unwrap().remove("mode");
    });
    let (mode, said) = start(dir, SMALL);
    assert_eq!(mode, "cache");
    assert!(said[0].contains("This is said once"), "{said:?}");
}

#[test]
fn a_write_mode_without_a_tier_makes_a_cache_of_it_for_as_long() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert_eq!(start(dir, SMALL).0, "both");
    for _ in 0..2 {
        let (mode, said) = start(dir, &with("write = \"through\""));
        assert_eq!(mode, "cache");
        assert!(
            said[0].contains("with write = \"through\" it is a block cache"),
            "{said:?}"
        );
    }
    assert_eq!(start(dir, SMALL).0, "both");
}

#[test]
fn a_mode_that_was_set_lasts_or_holds_until_the_restart() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    let set = ["volume", "set", "vol0", "mode=cache", "write=through"];
    text(dir, &[&set[..], &["--until-restart"]].concat());
    // A cache that is made meanwhile keeps what the start chose.
    text(dir, &["volume", "detach", "vol0"]);
    text(dir, &["volume", "attach", "vol0"]);
    ask(dir, &["write -P 0x61 1M 64k", "flush"]);
    let volume = json(dir, &["volume", "show", "vol0", "--json"]);
    assert_eq!(volume["settings"]["mode"], "cache");
    assert_eq!(daemon.stop().0, Some(0));
    let daemon = Daemon::start(dir, SMALL);
    let volume = json(dir, &["volume", "show", "vol0", "--json"]);
    assert_eq!(volume["settings"]["mode"], "both");
    text(dir, &set);
    assert_eq!(daemon.stop().0, Some(0));
    for _ in 0..2 {
        assert_eq!(start(dir, SMALL), ("cache".to_owned(), Vec::new()));
    }
    // It stands before what the configuration names.
    assert_eq!(start(dir, &with("mode = \"both\"")).0, "cache");
}
