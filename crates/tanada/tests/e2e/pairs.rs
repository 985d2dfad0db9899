//! A fast device that is lost, replaced, or comes back too late: what the daemon refuses, and the commands that lead on.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::access::as_another;
use crate::common::*;

/// Starts a daemon that must refuse; what it said.
fn refused(dir: &Path) -> String {
    let mut child = tanada(dir)
        .args(["serve", "tanada.toml"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // A daemon that is up prints how it is used, one that refuses nothing at all.
    let mut first = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().expect("piped"));
    std::io::BufRead::read_line(&mut stdout, &mut first).expect("its output is text");
    if !first.is_empty() {
        child.kill().expect("it is our child");
        child.wait().expect("it is our child");
        panic!("it should have been refused");
    }
    let output = child.wait_with_output().expect("it is our child");
    assert_eq!(output.status.code(), Some(1));
    stderr(&output)
}

/// Starts a daemon whose vol0 misses its cache; what it says of that.
fn missed(dir: &Path) -> (Daemon, String) {
    let daemon = Daemon::start(dir, SMALL);
    let health = run(dir, &["status"]);
    assert_eq!(health.status.code(), Some(4), "HEALTH_ERR");
    let page = String::from_utf8(health.stdout).unwrap();
    assert!(page.contains("CACHE_LOST"), "{page}");
    (daemon, page)
}

/// What the export of vol0 says of itself, by which clients of before know whether they may go on.
fn described(dir: &Path) -> Option<String> {
    let mut command = Command::new("nbdinfo");
    let uri = "nbd+unix:///vol0?socket=vol0.sock";
    let Ok(output) = command
        .current_dir(dir)
        .args(["--json", "--no-content", uri])
        .output()
    else {
        without("nbdinfo");
        return None;
    };
    let shown: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    Some(shown["exports"][0]["description"].as_str()?.to_owned())
}

/// What a client of vol0 is told that is turned away; `None` without the client.
fn turned_away(dir: &Path) -> Option<String> {
    let mut command = Command::new("qemu-img");
    let uri = "nbd+unix:///vol0?socket=vol0.sock";
    let Ok(output) = command.current_dir(dir).args(["info", uri]).output() else {
        without("qemu-img");
        return None;
    };
    assert!(!output.status.success());
    Some(stderr(&output))
}

/// The identity in the command that a refusal names.
fn named(said: &str) -> String {
    let (_, rest) = said.split_once("--cache ").expect("it names a command");
    rest.chars().take(32).collect()
}

fn record(dir: &Path) -> serde_json::Value {
    let text = fs::read_to_string(dir.join("tanada-data/pairs/vol0.json"));
    serde_json::from_str(&text.expect("there is a record")).expect("it is JSON")
}

#[test]
fn a_lost_fast_device_is_missed_until_it_is_given_up_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    ask(dir, &["write -P 0x61 1M 64k", "flush"]);
    // kill -9, and another SSD in its place.
    drop(daemon);
    assert_eq!(record(dir)["dirty"], true);
    let lost = fs::read(dir.join("fast.img")).unwrap();
    fs::remove_file(dir.join("fast.img")).unwrap();
    let (daemon, said) = missed(dir);
    assert!(
        said.contains("fast is blank, but vol0 has a cache that may hold what slow has not"),
        "{said}"
    );
    drop(daemon);

    // The lost one turns up: all is there.
    fs::write(dir.join("fast.img"), &lost).unwrap();
    let daemon = Daemon::start(dir, SMALL);
    ask(dir, &["read -P 0x61 1M 64k"]);
    // Nothing is given up beneath a daemon.
    let cache = named(&said);
    let give_up = [
        "volume",
        "give-up",
        "vol0",
        "tanada.toml",
        "--cache",
        &cache,
    ];
    let busy = run(dir, &give_up);
    assert!(
        stderr(&busy).contains("slow.img is in use"),
        "{}",
        stderr(&busy)
    );
    drop(daemon);

    fs::remove_file(dir.join("fast.img")).unwrap();
    let (daemon, said) = missed(dir);
    assert_eq!(named(&said), cache);
    drop(daemon);
    let wrong = run(
        dir,
        &["volume", "give-up", "vol0", "tanada.toml", "--cache", "12"],
    );
    assert_eq!(wrong.status.code(), Some(2), "{}", stderr(&wrong));
    // It loses data, so it is to be meant.
    let before = record(dir);
    for more in [&[][..], &["--dry-run"]] {
        let asked = run(dir, &[&give_up[..], more].concat());
        let said = stderr(&asked) + std::str::from_utf8(&asked.stdout).unwrap();
        let status = if more.is_empty() { 5 } else { 0 };
        assert_eq!(asked.status.code(), Some(status), "{said}");
        assert!(
            said.contains("and only its cache has, not slow, would be lost"),
            "{said}"
        );
        assert_eq!(record(dir), before);
    }
    let said = text(dir, &[&give_up[..], &["--yes"]].concat());
    assert!(
        said.contains("What only it had is lost: vol0 is what slow holds."),
        "{said}"
    );
    let daemon = Daemon::start(dir, SMALL);
    assert_ne!(record(dir)["cache"], serde_json::Value::from(cache.clone()));
    assert_eq!(daemon.stop().0, Some(0));

    // And it does not count when it is there again after all: an empty cache is made on it.
    fs::write(dir.join("fast.img"), &lost).unwrap();
    // The cleaner may have written what was dirty to the slow disk; what stands there from now on was never in that cache.
    let slow = fs::OpenOptions::new()
        .write(true)
        .open(dir.join("slow.img"));
    let written = slow.unwrap().write_all_at(&[0x62; 64 << 10], 1 << 20);
    written.unwrap();
    let _daemon = Daemon::start(dir, SMALL);
    ask(dir, &["read -P 0x62 1M 64k"]);
}

#[test]
fn a_volume_without_its_cache_lets_others_go_on_until_a_new_cache_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    ask(dir, &["write -P 0x61 1M 64k", "flush"]);
    let before = described(dir);
    // Closed cleanly, so nothing but the cache is missed.
    assert_eq!(daemon.stop().0, Some(0));
    assert_eq!(record(dir)["dirty"], true);
    let slow = fs::read(dir.join("slow.img")).unwrap();
    fs::remove_file(dir.join("fast.img")).unwrap();
    let (daemon, _) = missed(dir);
    // Another export of the same daemon is served.
    let status: Value = serde_json::from_slice(&run(dir, &["status", "--json"]).stdout).unwrap();
    let exports = status["exports"].as_array().unwrap();
    let why = |name: &str| exports.iter().find(|it| it["name"] == name).unwrap()["why"].clone();
    assert!(why("plain").is_null(), "{exports:?}");
    assert!(why("vol0").as_str().unwrap().contains("fast is blank"));
    if let Some(said) = turned_away(dir) {
        assert!(
            said.contains("fast is blank, but vol0 has a cache"),
            "{said}"
        );
    }
    let volume = json(dir, &["volume", "show", "vol0", "--json"]);
    assert_eq!(volume["health"], "cache-lost");
    assert_eq!(volume["fast"], Value::Null);

    // Nothing is lost but by these very words.
    let attach = ["volume", "attach", "vol0"];
    for (more, says) in [
        (&[][..], "or add --new-cache"),
        (&["--new-cache"], "add --lose-dirty to give that up"),
        (
            &["--new-cache", "--lose-dirty"],
            "Add --yes if that is meant",
        ),
    ] {
        let refused = run(dir, &[&attach, more].concat());
        assert_eq!(refused.status.code(), Some(5), "{}", stderr(&refused));
        assert!(stderr(&refused).contains(says), "{}", stderr(&refused));
    }
    let dry = text(
        dir,
        &[&attach[..], &["--new-cache", "--lose-dirty", "--dry-run"]].concat(),
    );
    assert!(
        dry.contains("only its missing cache has would be lost"),
        "{dry}"
    );
    assert_eq!(record(dir)["dirty"], true);
    assert_eq!(fs::read(dir.join("slow.img")).unwrap(), slow);

    text(
        dir,
        &[&attach[..], &["--new-cache", "--lose-dirty", "--yes"]].concat(),
    );
    let volume = json(dir, &["volume", "show", "vol0", "--json"]);
    assert_eq!(
        (&volume["health"], &volume["fast"]),
        (&"healthy".into(), &"fast".into())
    );
    // What the slow device has, and what is written from now on.
    ask(
        dir,
        &["write -P 0x63 2M 64k", "flush", "read -P 0x63 2M 64k"],
    );
    // No client of before goes on, though every daemon but this one was closed.
    let after = described(dir);
    assert!(after.is_none() || after != before, "{after:?}");
    assert_eq!(daemon.stop().0, Some(0));
    let daemon = Daemon::start(dir, SMALL);
    ask(dir, &["read -P 0x63 2M 64k"]);
    assert_eq!(described(dir), after);
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn an_older_copy_of_a_fast_device_needs_a_word() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert_eq!(Daemon::start(dir, SMALL).stop().0, Some(0));
    let both = ["slow.img", "fast.img"].map(|name| fs::read(dir.join(name)).unwrap());
    assert_eq!(Daemon::start(dir, SMALL).stop().0, Some(0));
    let later = fs::read(dir.join("fast.img")).unwrap();
    // Both are set back together; only the data directory was not.
    for (name, image) in ["slow.img", "fast.img"].into_iter().zip(&both) {
        fs::write(dir.join(name), image).unwrap();
    }
    let said = refused(dir);
    assert!(
        said.contains("an old state of the cache of vol0 (attachment 1 of 2)"),
        "{said}"
    );
    let cache = named(&said);
    let accept = ["volume", "accept", "vol0", "tanada.toml", "--cache", &cache];
    let unasked = run(dir, &accept);
    assert_eq!(unasked.status.code(), Some(5), "{}", stderr(&unasked));
    assert!(stderr(&unasked).contains("an earlier state of its cache"));
    let accept = [&accept[..], &["--yes", "--json"]].concat();
    assert_eq!(json(dir, &accept)["failed_before"], false);
    assert_eq!(Daemon::start(dir, SMALL).stop().0, Some(0));

    // The count went on, so what was accepted once is not accepted for ever, and the later state does not come back.
    assert_eq!(record(dir)["generation"], 3);
    fs::write(dir.join("fast.img"), &later).unwrap();
    let said = refused(dir);
    assert!(said.contains("(attachment 2 of 3)"), "{said}");

    // That the cache failed before is not forgotten by accepting it.
    let path = dir.join("tanada-data/pairs/vol0.json");
    let failing = fs::read_to_string(&path).unwrap();
    let failing = failing.replace("\"failing\": false", "\"failing\": true");
    fs::write(&path, failing).unwrap();
    assert_eq!(json(dir, &accept)["failed_before"], true);
    assert_eq!(record(dir)["failing"], true);
}

/// What `serve --check` and `doctor` say, and how they end.
fn looked(dir: &Path) -> [(Option<i32>, String); 2] {
    [
        &["config", "check", "tanada.toml"][..],
        &["doctor", "tanada.toml"],
    ]
    .map(|command| {
        let done = run(dir, command);
        let said = String::from_utf8_lossy(&done.stdout).into_owned() + &stderr(&done);
        (done.status.code(), said)
    })
}

fn refused_before_the_start(dir: &Path, what: &str) {
    let [(checked, check), (examined, doctor)] = looked(dir);
    assert_eq!((checked, examined), (Some(2), Some(4)), "{check}\n{doctor}");
    for said in [check, doctor] {
        assert!(said.contains("is refused as fast of vol0"), "{said}");
        assert!(said.contains(what), "{what} is not in\n{said}");
    }
}

#[test]
fn what_the_record_of_pairs_refuses_is_reported_before_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    drop(Daemon::start(dir, SMALL));
    let fast = dir.join("fast.img");
    let first = fs::read(&fast).unwrap();
    let [(checked, said), _] = looked(dir);
    assert_eq!(checked, Some(0), "{said}");
    assert!(said.contains("the cache of vol0"), "{said}");

    fs::remove_file(&fast).unwrap();
    refused_before_the_start(dir, "fast is blank, but vol0 has a cache that may hold");
    fs::write(&fast, vec![0; 16 << 20]).unwrap();
    refused_before_the_start(dir, "fast is blank, but vol0 has a cache that may hold");
    fs::write(&fast, vec![7; 16 << 20]).unwrap();
    refused_before_the_start(
        dir,
        "fast holds data that are not a cache of ours, but vol0 has",
    );
    fs::write(&fast, &first[..8 << 20]).unwrap();
    refused_before_the_start(dir, "let it have at least");

    fs::write(&fast, &first).unwrap();
    assert_eq!(Daemon::start(dir, SMALL).stop().0, Some(0));
    let second = fs::read(&fast).unwrap();
    fs::write(&fast, &first).unwrap();
    refused_before_the_start(dir, "an old state of the cache of vol0 (attachment 1 of 2)");
    fs::write(&fast, &second).unwrap();
    assert_eq!(looked(dir)[0].0, Some(0));

    fs::write(dir.join("tanada-data/pairs/vol0.json"), "{").unwrap();
    refused_before_the_start(dir, "vol0.json is damaged");
}

/// Both copies of a label, changed.
fn relabelled(image: &[u8], change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut image = image.to_vec();
    image.chunks_mut(4096).take(2).for_each(change);
    image
}

#[test]
fn a_check_and_a_start_say_the_same_of_a_fast_device_with_force_and_without() {
    let other = tempfile::tempdir().unwrap();
    let another = SMALL.replace("vol0", "vol1");
    assert_eq!(Daemon::start(other.path(), &another).stop().0, Some(0));
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert_eq!(Daemon::start(dir, SMALL).stop().0, Some(0));
    let kept = record(dir).to_string();
    let [slow, own] = ["slow.img", "fast.img"].map(|name| fs::read(dir.join(name)).unwrap());
    let forced = SMALL.replace("fast = \"fast\"\n", "fast = \"fast\"\nforce = true\n");
    let swap = |config: &str| {
        let config = config
            .replace("slow.img", "x.img")
            .replace("fast.img", "slow.img");
        config.replace("x.img", "fast.img")
    };
    let later = relabelled(&own, |label| {
        label[8] = 9;
        label[12..16].fill(0);
        let crc = base::crc::crc32c(label).to_le_bytes();
        label[12..16].copy_from_slice(&crc);
    });
    #[rustfmt::skip]
    let states = [
        ("blank",   vec![0; 16 << 20],  false, ["blank: vol0 begins", "blank: vol0 begins"]),
        ("foreign", vec![7; 16 << 20],  false, ["are not a cache of ours", "what it holds is lost"]),
        ("swapped", own.clone(),        true,  ["look swapped", "what it holds is lost"]),
        ("damaged", relabelled(&own, |label| label[200] ^= 1), false, ["neither copy of its label is whole", "what it holds is lost"]),
        ("later",   later,              false, ["has format version 9", "what it holds is lost"]),
        ("another", fs::read(other.path().join("fast.img")).unwrap(), false, ["is a cache of 'vol1'", "is a cache of 'vol1'"]),
    ];
    for (state, fast, swapped, says) in states {
        for (config, says) in [SMALL, &*forced].into_iter().zip(says) {
            fs::write(dir.join("slow.img"), &slow).unwrap();
            fs::write(dir.join("fast.img"), &fast).unwrap();
            fs::write(dir.join("tanada-data/pairs/vol0.json"), &kept).unwrap();
            let config = match swapped {
                true => swap(config),
                false => config.to_owned(),
            };
            fs::write(dir.join("tanada.toml"), &config).unwrap();
            let [(status, check), (_, doctor)] = looked(dir);
            let mut lines = check.lines().filter(|line| line.contains("fast ("));
            let line = lines.next_back().unwrap_or_default();
            // What is said of the device itself, and the mode behind it where a start would make one.
            let (_, said) = line
                .split_once(".img) ")
                .or(line.split_once(".img): "))
                .unwrap();
            let said = said.trim_start_matches("is refused as fast of vol0: ");
            let said = said.strip_suffix(", mode both").unwrap_or(said);
            assert!(said.contains(says), "{state}: {check}");
            assert!(doctor.contains(said), "{state}: {said}\n{doctor}");
            let started = match status {
                Some(0) => Daemon::start(dir, &config).stop().1,
                _ => refused(dir),
            };
            assert!(started.contains(said), "{state}: {said}\n{started}");
        }
    }
}

#[test]
fn a_fast_device_in_memory_is_looked_at_like_one_that_is_not_made_yet() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let memory = SMALL.replace("path = \"fast.img\"", "memory = true");
    fs::write(dir.join("tanada.toml"), &memory).unwrap();
    let [(status, said), _] = looked(dir);
    assert_eq!(status, Some(0), "{said}");
    let words = "device fast (in memory): blank: vol0 begins with an empty cache on it, mode both";
    assert!(said.contains(words), "{said}");
    // A cache that may have the only copy is missed.
    drop(Daemon::start(dir, SMALL));
    fs::write(dir.join("tanada.toml"), &memory).unwrap();
    refused_before_the_start(dir, "fast is blank, but vol0 has a cache that may hold");
    let daemon = Daemon::start(dir, &memory);
    assert_eq!(run(dir, &["status"]).status.code(), Some(4));
    drop(daemon);
}

#[test]
fn what_this_user_may_not_read_is_a_matter_of_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert_eq!(Daemon::start(dir, SMALL).stop().0, Some(0));
    for name in ["slow.img", "fast.img"] {
        let readable = fs::Permissions::from_mode(0o644);
        fs::set_permissions(dir.join(name), readable).unwrap();
    }
    let private = fs::Permissions::from_mode(0o700);
    fs::set_permissions(dir.join("tanada-data"), private).unwrap();
    let check = ["config", "check", "tanada.toml"];
    let Some(done) = as_another(dir, &check, None) else {
        return;
    };
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &stderr(&done);
    assert_eq!(done.status.code(), Some(0), "{said}");
    let words = "not known to this user, who may not read ";
    assert!(said.contains(words), "{said}");
    assert!(said.contains("run the same command with sudo"), "{said}");
    let done = as_another(dir, &["doctor", "tanada.toml"], None).unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(said.contains("warn     data    data directory"), "{said}");
    assert!(said.contains("run `tanada doctor` with sudo"), "{said}");
    assert!(!said.contains("choose another one"), "{said}");
}

#[test]
fn a_volume_shows_which_cache_it_has_and_the_number_of_its_attachment() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let shown = || json(dir, &["volume", "show", "vol0", "--json"])["attachment"].clone();
    for start in 1..=2 {
        let daemon = Daemon::start(dir, SMALL);
        let attachment = shown();
        assert_eq!(attachment["generation"], start);
        assert_eq!(attachment["cache"], record(dir)["cache"]);
        let status = json(dir, &["status", "--json"]);
        assert_eq!(status["volumes"][0]["attachment"], attachment);
        let page = text(dir, &["volume", "show", "vol0"]);
        let cache = attachment["cache"].as_str().unwrap();
        assert!(
            page.contains(&format!("{cache}, attachment {start}")),
            "{page}"
        );
        if start == 2 {
            text(dir, &["volume", "detach", "vol0"]);
            assert!(shown().is_null());
        }
        assert_eq!(daemon.stop().0, Some(0));
    }
}

/// Spoils the first batch of the map's log of `fast.img`.
fn spoil_map(dir: &Path) {
    let mut options = fs::OpenOptions::new();
    let image = options.read(true).write(true).open(dir.join("fast.img"));
    let image = image.unwrap();
    let mut start = [0; 8];
    image.read_exact_at(&mut start, 64).unwrap();
    // Behind the two superblocks.
    let log = u64::from_le_bytes(start) + 8192;
    image.write_all_at(&[0xdb; 4096], log).unwrap();
}

/// A hybrid that was stopped while only its fast device had what was written. On a busy machine the cleaner is sometimes through
/// before the stop: then another one is made.
fn stopped_while_dirty() -> tempfile::TempDir {
    for _ in 0..50 {
        let dir = tempfile::tempdir().unwrap();
        let daemon = Daemon::start(dir.path(), SMALL);
        ask(dir.path(), &["write -P 0x61 1M 64k", "flush"]);
        ask(dir.path(), &["write -P 0x62 2M 64k", "flush"]);
        assert_eq!(daemon.stop().0, Some(0));
        if record(dir.path())["dirty"] == true {
            return dir;
        }
    }
    panic!("the cleaner was through before each of 50 stops");
}

#[test]
fn a_volume_whose_map_lost_a_part_is_rescued_with_a_list() {
    let dir = stopped_while_dirty();
    let dir = dir.path();
    spoil_map(dir);
    let said = refused(dir);
    assert!(
        said.contains("a part of the map of vol0 on fast is lost"),
        "{said}"
    );
    assert!(said.contains("tanada volume rescue vol0 --cache"), "{said}");
    let cache = named(&said);
    let rescue = ["volume", "rescue", "vol0", "tanada.toml", "--cache", &cache];
    let before = fs::read(dir.join("fast.img")).unwrap();
    let look = text(dir, &[&rescue[..], &["--dry-run"]].concat());
    assert!(look.contains("Nothing was written."), "{look}");
    let unasked = run(dir, &rescue);
    assert_eq!(unasked.status.code(), Some(5), "{}", stderr(&unasked));
    assert!(
        stderr(&unasked).contains("may be lost or old"),
        "{}",
        stderr(&unasked)
    );
    assert!(fs::read(dir.join("fast.img")).unwrap() == before);

    let json = text(dir, &[&rescue[..], &["--yes", "--json"]].concat());
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["lost_batches"][0]["first_batch"], 1, "{json}");
    let inside = |range: &serde_json::Value, byte: u64| {
        let start = range["start"].as_u64().unwrap();
        (start..start + range["bytes"].as_u64().unwrap()).contains(&byte)
    };
    let listed = |byte: u64| {
        let kinds = ["older", "lost", "unknown"].iter();
        let ranges = kinds.flat_map(|kind| report[*kind].as_array().unwrap());
        ranges.into_iter().any(|range| inside(range, byte))
    };
    // What was written last is recorded behind the lost part; most of the disk is not.
    assert!(!listed(2 << 20) && listed(20 << 20), "{json}");
    let daemon = Daemon::start(dir, SMALL);
    ask(dir, &["read -P 0x62 2M 64k"]);
    assert_eq!(daemon.stop().0, Some(0));
    let again = run(dir, &rescue);
    assert!(
        stderr(&again).contains("all of its map can be read"),
        "{}",
        stderr(&again)
    );
}
