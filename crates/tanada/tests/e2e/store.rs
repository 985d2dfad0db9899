//! Object stores from outside: made, served, used, reserved, killed and checked.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::common::{Daemon, bearer, http, json, run, signal, stderr, tanada, text};

/// Two stores on files, one open to every client that reaches it.
pub const STORES: &str = r#"
[[device]]
name = "d0"
path = "d0.img"
size = "256MiB"
[[device]]
name = "d1"
path = "d1.img"
size = "64MiB"
[[store]]
name = "s0"
device = "d0"
listen = ["127.0.0.1:0", "unix:s0.sock"]
create = true
unauthenticated = true
read_speed = "100MB/s"
write_speed = "100MB/s"
[[store]]
name = "s1"
device = "d1"
listen = "unix:s1.sock"
clock_skew = "0s"
create = true
read_speed = "100MB/s"
write_speed = "50MB/s"
[admin]
listen = ["unix:admin.sock", "127.0.0.1:0"]
"#;

/// Bytes that name their place.
fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..length.div_ceil(8))
        .flat_map(|_| next().to_le_bytes())
        .take(length)
        .collect()
}

/// Runs the program with an input, which must succeed; its output.
fn feed(dir: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = tanada(dir)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        stderr(&output)
    );
    output.stdout
}

/// The only token that `reservation create` printed.
fn reserve(dir: &Path, arguments: &[&str]) -> String {
    let mut all = vec!["reservation", "create"];
    all.extend(arguments);
    if !arguments.contains(&"--scope") {
        all.extend(["--scope", "s"]);
    }
    text(dir, &all).trim_end().to_owned()
}

fn clean(dir: &Path, file: &str) -> Value {
    let checked = json(dir, &["store", "check", file, "--data", "--json"]);
    assert_eq!(checked["clean"], true, "{checked}");
    checked
}

#[test]
fn a_store_is_made_once_and_found_clean() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let missing = run(dir, &["store", "create", "s.img"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        stderr(&missing).contains("give a size to create it"),
        "{}",
        stderr(&missing)
    );

    let made = text(
        dir,
        &[
            "store", "create", "s.img", "--size", "64MiB", "--unit", "64KiB",
        ],
    );
    assert!(made.contains("made the store s on s.img"), "{made}");
    assert!(made.contains("tanada serve --store s.img"), "{made}");
    let checked = clean(dir, "s.img");
    assert_eq!(
        (&checked["objects"], &checked["unit_bytes"]),
        (&0.into(), &65536.into())
    );

    let again = run(dir, &["store", "create", "s.img"]);
    assert_eq!(again.status.code(), Some(5));
    assert!(
        stderr(&again).contains("it holds the store \"s\""),
        "{}",
        stderr(&again)
    );
    let force = ["store", "create", "s.img", "--force", "--name", "other"];
    let asked = run(dir, &force);
    assert_eq!(asked.status.code(), Some(5));
    let said = stderr(&asked);
    assert!(
        said.contains("s.img holds the store \"s\"") && said.contains("Add --yes"),
        "{said}"
    );
    let dry = text(dir, &[&force[..], &["--dry-run"]].concat());
    assert!(dry.contains("nothing was changed"), "{dry}");
    clean(dir, "s.img");
    text(dir, &[&force[..], &["--yes"]].concat());

    let tiny = run(dir, &["store", "create", "t.img", "--size", "64KiB"]);
    assert_eq!(tiny.status.code(), Some(1));
    assert!(
        !dir.join("t.img").exists(),
        "nothing is left of what was not made"
    );
    let none = run(dir, &["store", "check", "nothing.img"]);
    assert_eq!(none.status.code(), Some(1));
}

#[test]
fn a_damaged_store_has_findings_and_exit_status_one() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    text(dir, &["store", "create", "s.img", "--size", "64MiB"]);
    let mut daemon = Command::serve(dir, &["s.img", "--unauthenticated"]);
    feed(dir, &["object", "put", "-", "a"], &bytes(1 << 20, 3));
    daemon.stop();
    // Somewhere in the one megabyte of data, which lies in the first units.
    let image = fs::read(dir.join("s.img")).unwrap();
    let wanted = &bytes(1 << 20, 3)[4096..8192];
    let at = image.windows(4096).position(|found| found == wanted);
    let at = at.expect("the data lie on the device as they are");
    let mut image = image;
    image[at + 100] ^= 1;
    fs::write(dir.join("s.img"), image).unwrap();

    clean_tables(dir);
    let found = run(dir, &["store", "check", "s.img", "--data"]);
    assert_eq!(found.status.code(), Some(1));
    let said = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(said.contains("at byte 4096 of \"a\""), "{said}");
    assert!(said.contains("1 finding"), "{said}");

    let mut daemon = Command::serve(dir, &["s.img", "--unauthenticated"]);
    let scrubbed = run(dir, &["store", "scrub", "s"]);
    assert_eq!(scrubbed.status.code(), Some(1), "{}", stderr(&scrubbed));
    assert!(
        stderr(&scrubbed).contains("of \"a\""),
        "{}",
        stderr(&scrubbed)
    );
    let read = run(dir, &["object", "get", "a", "out"]);
    assert_eq!(read.status.code(), Some(1));
    assert!(stderr(&read).contains("are damaged"), "{}", stderr(&read));
    assert!(!dir.join("out").exists(), "half an object is no file");
    daemon.stop();
}

/// Without the data nothing is wrong.
fn clean_tables(dir: &Path) {
    let checked = text(dir, &["store", "check", "s.img"]);
    assert!(checked.contains("clean: tables"), "{checked}");
}

/// A daemon of `tanada serve --store`.
struct Command(std::process::Child);

impl Command {
    fn serve(dir: &Path, arguments: &[&str]) -> Command {
        use std::io::{BufRead, BufReader};
        let mut child = tanada(dir)
            .args(["serve", "--listen", "unix:store.sock", "--store"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let up = lines.any(|line| line.unwrap().contains("Stop it with"));
        assert!(up, "it ended before it was up");
        Command(child)
    }

    fn stop(&mut self) {
        signal(&self.0, "TERM");
        assert!(self.0.wait().unwrap().success(), "it closed cleanly");
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn objects_come_back_as_they_were_put() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, STORES);
    assert!(
        daemon.welcome.contains("Use the store s0"),
        "{}",
        daemon.welcome
    );
    let large = bytes(64 << 20, 1);
    fs::write(dir.join("large"), &large).unwrap();
    let put = json(
        dir,
        &[
            "object", "put", "large", "a/large", "--store", "s0", "--json",
        ],
    );
    assert_eq!(put["bytes"], 64 << 20);
    text(dir, &["object", "get", "a/large", "back", "--store", "s0"]);
    assert!(
        fs::read(dir.join("back")).unwrap() == large,
        "64 MiB come back"
    );

    let odd = bytes(1_234_567, 2);
    feed(
        dir,
        &[
            "object", "put", "-", "a/odd", "--store", "s0", "--piece", "64KiB",
        ],
        &odd,
    );
    let got = feed(dir, &["object", "get", "a/odd", "-", "--store", "s0"], b"");
    assert!(got == odd, "odd lengths, too, through pipes");
    // A put replaces, unless it is to be new.
    feed(
        dir,
        &["object", "put", "-", "a/odd", "--store", "s0"],
        b"short",
    );
    assert_eq!(
        feed(dir, &["object", "get", "a/odd", "-", "--store", "s0"], b""),
        b"short"
    );
    fs::write(dir.join("empty"), b"").unwrap();
    let taken = run(
        dir,
        &["object", "put", "empty", "a/odd", "--new", "--store", "s0"],
    );
    assert_eq!(taken.status.code(), Some(5));
    text(dir, &["object", "put", "empty", "--store", "s0"]);

    let names = text(dir, &["object", "list", "--store", "s0"]);
    assert_eq!(names, "a/large\na/odd\nempty\n", "no parts are left");
    let long = json(
        dir,
        &["object", "list", "a/", "-l", "--json", "--store", "s0"],
    );
    assert_eq!(long[0]["size_bytes"], 64 << 20);
    assert_eq!(long.as_array().unwrap().len(), 2);
    let stat = json(dir, &["object", "show", "empty", "--store", "s0", "--json"]);
    assert_eq!(stat["size_bytes"], 0);

    text(
        dir,
        &[
            "object", "delete", "--yes", "a/large", "empty", "--store", "s0",
        ],
    );
    let gone = run(
        dir,
        &["object", "delete", "--yes", "empty", "--store", "s0"],
    );
    assert_eq!(gone.status.code(), Some(5));
    text(
        dir,
        &["object", "delete", "--yes", "-f", "empty", "--store", "s0"],
    );
    let gone = run(dir, &["object", "get", "empty", "--store", "s0"]);
    assert!(
        stderr(&gone).contains("no object \"empty\""),
        "{}",
        stderr(&gone)
    );
    assert_eq!(
        text(dir, &["object", "list", "--store", "unix:s0.sock"]),
        "a/odd\n"
    );

    // Two stores: which one must be said, and one that is not there is named.
    assert_eq!(run(dir, &["object", "list"]).status.code(), Some(2));
    let unknown = run(dir, &["object", "list", "--store", "s2"]);
    assert!(
        stderr(&unknown).contains("there is no store 's2'"),
        "{}",
        stderr(&unknown)
    );
    let (status, log) = daemon.stop();
    assert_eq!(status, Some(0), "{log}");
    assert!(clean(dir, "d0.img")["objects"].as_u64().unwrap() > 0);
}

/// A store under the method as published, with short rounds, and one under the usual tags.
const ROUNDS: &str = r#"
[[device]]
name = "d0"
path = "d0.img"
size = "128MiB"
[[device]]
name = "d1"
path = "d1.img"
size = "64MiB"
[[store]]
name = "published"
device = "d0"
listen = "unix:s0.sock"
create = true
unauthenticated = true
unit = "64KiB"
scheduler = "rounds"
round = 8
depth = 2
[[store]]
name = "usual"
device = "d1"
listen = "unix:s1.sock"
create = true
unauthenticated = true
quantum = "128KiB"
[admin]
listen = "unix:admin.sock"
"#;

#[test]
fn the_published_rounds_run_where_they_are_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, ROUNDS);
    let data = bytes(8 << 20, 9);
    for store in ["published", "usual"] {
        feed(dir, &["object", "put", "-", "a", "--store", store], &data);
        let got = feed(dir, &["object", "get", "a", "-", "--store", store], b"");
        assert!(got == data, "{store}");
    }
    let node = &json(dir, &["store", "show", "published", "--json"])["node"];
    assert_eq!(node["scheduler"], "rounds");
    assert_eq!(
        (&node["depth"], &node["depth_auto"]),
        (&2.into(), &false.into())
    );
    let round = &node["round"];
    assert_eq!(
        (&round["ios"], &round["unit_bytes"]),
        (&8.into(), &65536.into())
    );
    // 8 MiB written and read in rounds of half a MiB, but for requests longer than a round.
    let ended = round["ended"].as_u64().unwrap();
    assert!((4..=64).contains(&ended), "{ended} rounds");
    assert!(round["last_bytes_per_second"].as_u64().unwrap() > 0);
    let page = text(dir, &["store", "show", "published"]);
    assert!(page.contains("rounds, rounds of 8 x 64.0 KiB, "), "{page}");
    assert!(page.contains("; up to 2 at the device"), "{page}");

    let node = &json(dir, &["store", "show", "usual", "--json"])["node"];
    assert_eq!(
        (&node["scheduler"], &node["round"]),
        (&"tags".into(), &Value::Null)
    );
    assert_eq!(node["quantum_bytes"], 128 << 10);
    assert_eq!(node["depth_auto"], true);
    let page = text(dir, &["store", "show", "usual"]);
    assert!(page.contains("tags, pieces of 128.0 KiB; up to "), "{page}");
    let (status, log) = daemon.stop();
    assert_eq!(status, Some(0), "{log}");
}

#[test]
fn what_was_put_survives_a_killed_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, STORES);
    let kept = bytes(3 << 20, 5);
    feed(dir, &["object", "put", "-", "kept", "--store", "s0"], &kept);
    // One that is under way, its input never ending, when the daemon dies.
    let mut under_way = tanada(dir)
        .args(["object", "put", "-", "half", "--store", "s0"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = under_way.stdin.take().unwrap();
    input.write_all(&bytes(24 << 20, 6)).unwrap();
    daemon.signal("KILL");
    drop(daemon);
    drop(input);
    let cut = under_way.wait_with_output().unwrap();
    assert_eq!(cut.status.code(), Some(1), "{}", stderr(&cut));

    clean(dir, "d0.img");
    let daemon = Daemon::start(dir, STORES);
    assert_eq!(
        feed(dir, &["object", "get", "kept", "-", "--store", "s0"], b""),
        kept
    );
    let names = text(dir, &["object", "list", "--store", "s0"]);
    let half = names.lines().any(|name| name == "half");
    assert!(!half, "what was not whole has not its name: {names}");
    assert_eq!(daemon.stop().0, Some(0));
    clean(dir, "d0.img");
}

#[test]
fn a_reservation_is_a_token_and_a_refusal_says_what_would_fit() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, STORES);
    let ask = [
        "--store", "s0", "--read", "50MB/s", "--from", "now", "--for", "1h", "--holder", "ann",
        "--scope", "ann/",
    ];
    let token = reserve(dir, &ask);
    assert!(
        token.starts_with("tanada1.") && !token.contains('\n'),
        "{token}"
    );

    // 100 MB/s, of which a fifth stays free and a twentieth is for background work: another 50 MB/s do not fit.
    let mut again = vec!["reserve", "add"];
    again.extend(ask);
    let refused = run(dir, &again);
    assert_eq!(refused.status.code(), Some(5));
    assert!(refused.stdout.is_empty(), "no token");
    let said = stderr(&refused);
    for expected in [
        "cannot reserve 50 MB/s of reads on s0",
        "promised to 1 other",
        "at this rate it would fit:  from 2",
        "in this slot would fit:     at most 2",
    ] {
        assert!(said.contains(expected), "{expected} is not in\n{said}");
    }
    again[1] = "offer";
    again.push("--json");
    let offer = run(dir, &again);
    assert_eq!(offer.status.code(), Some(5));
    let offer: Value = serde_json::from_slice(&offer.stdout).unwrap();
    assert_eq!(offer["fits"], false);
    let largest = offer["largest_bytes_per_second"].as_u64().unwrap();
    assert!((20_000_000..50_000_000).contains(&largest), "{offer}");
    // What is offered is granted.
    let rate = format!("{largest}B/s");
    let smaller = [
        "--store", "s0", "--read", &rate, "--from", "now", "--for", "30m",
    ];
    reserve(dir, &smaller);

    let list = text(dir, &["reservation", "list", "--parts"]);
    assert!(list.contains("s0/1") && list.contains("ann"), "{list}");
    let one = json(dir, &["reservation", "capability", "s0/1", "--json"]);
    assert_eq!(
        one["capability"],
        Value::String(token.clone()),
        "the same token again"
    );
    let calendar = text(dir, &["reservation", "calendar"]);
    for expected in [
        "s0, times at ",
        "s1, times at ",
        "1:ann r 50 MB/s",
        "[##########",
        "free",
    ] {
        assert!(
            calendar.contains(expected),
            "{expected} is not in\n{calendar}"
        );
    }
    assert!(text(dir, &["reservation", "delete", "s0/1"]).contains("cancelled s0/1"));
    let gone = run(dir, &["reservation", "show", "s0/1"]);
    assert!(
        stderr(&gone).contains("no reservation s0/1"),
        "{}",
        stderr(&gone)
    );
    for odd in [
        &["reserve", "add", "--store", "s0", "--for", "1h"][..],
        // Without a scope it would be for everything.
        &[
            "reserve", "add", "--store", "s0", "--read", "1MB/s", "--for", "1h",
        ],
        &[
            "reserve", "add", "--store", "s0", "--read", "1MB/s", "--for", "1h", "--from", "soon",
            "--scope", "s",
        ],
        &[
            "reserve", "add", "--store", "s0", "--read", "fast", "--for", "1h", "--scope", "s",
        ],
        &["reservation", "delete", "7"],
    ] {
        assert_eq!(run(dir, odd).status.code(), Some(2), "{odd:?}");
    }
    let everything = run(
        dir,
        &[
            "reserve", "add", "--store", "s0", "--read", "1MB/s", "--for", "1h", "--scope", "",
        ],
    );
    assert!(
        stderr(&everything).contains("--scope is not empty"),
        "{}",
        stderr(&everything)
    );
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn who_comes_in_shows_a_good_token_or_the_node_key() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, STORES);
    let at =
        |rest: &[&'static str]| -> Vec<&'static str> { [rest, &["--store", "s1"][..]].concat() };
    let refused = |arguments: &[&str], said: &str| {
        let output = run(dir, arguments);
        assert_eq!(output.status.code(), Some(7), "{arguments:?}");
        assert!(
            stderr(&output).contains(said),
            "{said}: {}",
            stderr(&output)
        );
    };
    refused(
        &at(&["object", "list"]),
        "lets in no client without a capability",
    );

    let write = reserve(
        dir,
        &[
            "--store", "s1", "--write", "10MB/s", "--for", "1h", "--scope", "job7/", "--space",
            "8MiB",
        ],
    );
    fs::write(dir.join("token"), &write).unwrap();
    let put = at(&["object", "put", "-", "job7/out", "--capability", "@token"]);
    feed(dir, &put, &bytes(2 << 20, 7));
    fs::write(dir.join("f"), b"x").unwrap();
    refused(
        &at(&["object", "put", "f", "other", "--capability", "@token"]),
        "is for names that begin with \"job7/\"",
    );
    refused(
        &at(&["object", "get", "job7/out", "f", "--capability", "@token"]),
        "is for writes only",
    );
    let status = json(dir, &["store", "show", "s1", "--json"]);
    let left = status["node"]["space"]["reserved_bytes"].as_u64().unwrap();
    assert!(
        (5 << 20..7 << 20).contains(&left),
        "what is written is taken from its room: {left}"
    );

    // Another store, a forged one, one that is over, one that was cancelled.
    let other = reserve(dir, &["--store", "s0", "--read", "1MB/s", "--for", "1h"]);
    refused(
        &[
            &at(&["object", "list", "--capability"])[..3],
            &[&other, "--store", "s1"],
        ]
        .concat(),
        "key",
    );
    let forged = write.replace("tanada1.ey", "tanada1.fy");
    refused(
        &["object", "list", "--store", "s1", "--capability", &forged],
        "capability",
    );
    let early = reserve(
        dir,
        &[
            "--store", "s1", "--read", "1MB/s", "--from", "+2h", "--for", "1h",
        ],
    );
    refused(
        &["object", "list", "--store", "s1", "--capability", &early],
        "begins in",
    );
    let short = reserve(dir, &["--store", "s1", "--read", "1MB/s", "--for", "3s"]);
    let over = loop {
        let listed = run(
            dir,
            &["object", "list", "--store", "s1", "--capability", &short],
        );
        if !listed.status.success() {
            break stderr(&listed);
        }
    };
    // The second is for who came in before the end and asked after it.
    assert!(
        over.contains(" ended ") || over.contains("is over, and its capability with it"),
        "{over}"
    );
    text(dir, &["reservation", "delete", "s1/1"]);
    refused(
        &at(&["object", "put", "f", "job7/f", "--capability", "@token"]),
        "it was released",
    );

    let key = "tanada-data/keys/s1.node";
    let names = text(dir, &["object", "list", "--store", "s1", "--node-key", key]);
    assert_eq!(names, "job7/out\n");
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(dir.join(key)).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    refused(
        &[
            "object",
            "list",
            "--store",
            "s1",
            "--node-key",
            "tanada-data/keys/s0.node",
        ],
        "key",
    );
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn a_capability_outlives_a_new_key_that_keeps_the_old_one_and_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, STORES);
    let old = reserve(dir, &["--store", "s1", "--read", "5MB/s", "--for", "1h"]);
    let said = text(dir, &["store", "rotate-key", "s1", "--keep-old"]);
    assert!(said.contains("signs with a new key"), "{said}");
    let new = json(dir, &["reservation", "capability", "s1/1", "--json"])["capability"].clone();
    let new = new.as_str().unwrap().to_owned();
    assert_ne!(old, new, "it is signed anew");
    for token in [&old, &new] {
        text(
            dir,
            &["object", "list", "--store", "s1", "--capability", token],
        );
    }
    assert_eq!(daemon.stop().0, Some(0));
    let daemon = Daemon::start(dir, STORES);
    for token in [&old, &new] {
        text(
            dir,
            &["object", "list", "--store", "s1", "--capability", token],
        );
    }
    assert!(text(dir, &["reservation", "list", "--parts"]).contains("s1/1"));
    text(dir, &["store", "rotate-key", "s1"]);
    let latest = json(dir, &["reservation", "capability", "s1/1", "--json"])["capability"].clone();
    for (token, is_good) in [
        (&*old, false),
        (&*new, false),
        (latest.as_str().unwrap(), true),
    ] {
        let shown = ["object", "list", "--store", "s1", "--capability", token];
        assert_eq!(run(dir, &shown).status.success(), is_good);
    }
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn a_reservation_over_two_stores_is_made_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, STORES);
    let both = |rate: &str| {
        run(
            dir,
            &[
                "reserve", "add", "--store", "s0", "--store", "s1", "--write", rate, "--for", "1h",
                "--scope", "s",
            ],
        )
    };
    let made = both("20MB/s");
    assert!(made.status.success(), "{}", stderr(&made));
    assert_eq!(
        String::from_utf8_lossy(&made.stdout).lines().count(),
        2,
        "a token for each"
    );
    // s0 has room for this, s1 has not.
    let refused = both("40MB/s");
    assert_eq!(refused.status.code(), Some(5));
    assert!(
        stderr(&refused).contains("of writes on s1"),
        "{}",
        stderr(&refused)
    );
    let all = json(dir, &["reservation", "list", "--parts", "--json"]);
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), 2, "nothing is held of what was refused: {all:?}");
    assert_eq!(all[0]["group"], all[1]["group"]);
    assert_eq!(daemon.stop().0, Some(0));

    // It stands after a restart, and is given up whole.
    let daemon = Daemon::start(dir, STORES);
    let again = json(dir, &["reservation", "list", "--parts", "--json"]);
    assert_eq!(again.as_array().unwrap().len(), 2);
    let gone = text(
        dir,
        &["reservation", "delete", all[0]["id"].as_str().unwrap()],
    );
    assert!(gone.contains(" and "), "{gone}");
    assert_eq!(
        text(dir, &["reservation", "list", "--parts"]),
        "nothing is reserved\n"
    );
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn sessions_and_stores_are_seen_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, STORES);
    let token = reserve(
        dir,
        &[
            "--store", "s0", "--write", "20MB/s", "--for", "1h", "--holder", "ann",
        ],
    );
    feed(
        dir,
        &[
            "object",
            "put",
            "-",
            "seen",
            "--store",
            "s0",
            "--capability",
            &token,
        ],
        &bytes(4 << 20, 9),
    );
    let status = text(dir, &["status"]);
    assert!(
        status.contains("STORE") && status.contains("s1"),
        "{status}"
    );
    let page = text(dir, &["store", "show", "s0"]);
    for expected in [
        "s0/1",
        "ann",
        "closed",
        "4.0 MiB",
        "trusted with",
        "MB/s of reads",
    ] {
        assert!(page.contains(expected), "{expected} is not in\n{page}");
    }
    let sessions = json(dir, &["store", "show", "s0", "--json"])["sessions"].clone();
    assert_eq!(sessions[0]["delivered_bytes"], 4 << 20, "{sessions}");

    // While one is connected it has a line in top and in the metrics.
    let mut held = tanada(dir)
        .args([
            "object",
            "put",
            "-",
            "still",
            "--store",
            "s0",
            "--capability",
            &token,
        ])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = held.stdin.take().unwrap();
    input.write_all(&bytes(2 << 20, 10)).unwrap();
    let frame = loop {
        let frame = json(dir, &["top", "--once", "--json", "--interval", "100ms"]);
        if frame["sessions"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
        {
            break frame;
        }
    };
    assert_eq!(frame["sessions"][0]["reservation"], "s0/1", "{frame}");
    assert_eq!(
        frame["sessions"][0]["promised_bytes_per_second"],
        20_000_000
    );
    let get = |headers: &str| {
        let head = "Host: localhost\r\nConnection: close\r\n";
        let request = format!("GET /metrics HTTP/1.1\r\n{head}{headers}\r\n");
        let (code, metrics) = http(&daemon.admin_tcp(), &request);
        assert_eq!(code, 200, "{metrics}");
        metrics
    };
    let stranger = get("");
    let nameless =
        "tanada_reservation_promised_bytes_per_second{store=\"s0\",reservation=\"s0/1\"}";
    assert!(stranger.contains(nameless), "{stranger}");
    assert!(
        !stranger.contains("\"ann\""),
        "names take a token: {stranger}"
    );
    let metrics = get(&bearer(dir));
    for expected in [
        "tanada_store_size_bytes{store=\"s0\"}",
        "tanada_reservation_promised_bytes_per_second{store=\"s0\",reservation=\"s0/1\",holder=\"ann\"}",
        "tanada_store_shed{store=\"s0\",level=\"nothing\"} 1",
        "tanada_reservation_windows_total{store=\"s0\",reservation=\"s0/1\",holder=\"ann\",end=\"scheduler\"}",
    ] {
        assert!(
            metrics.contains(expected),
            "{expected} is not in\n{metrics}"
        );
    }
    drop(input);
    assert!(held.wait().unwrap().success());
    assert!(text(dir, &["store", "scrub", "s0"]).contains("0 bad"));
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn a_log_that_is_not_read_delays_no_request() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // Its standard error is a pipe of 64 KiB that is not read before the end. Each of these clients is worth a line of over
    // 100 bytes, and all of them find room in the socket's backlog.
    let daemon = Daemon::start(dir, STORES);
    for _ in 0..1000 {
        drop(UnixStream::connect(dir.join("s1.sock")).unwrap());
    }
    let key = "tanada-data/keys/s1.node";
    let names = text(dir, &["object", "list", "--store", "s1", "--node-key", key]);
    assert_eq!(names, "");
    let (status, log) = daemon.stop();
    assert_eq!(status, Some(0));
    assert!(log.len() > 64 << 10, "{} bytes of log", log.len());
}

#[test]
fn a_calibration_is_refused_where_something_is_reserved() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, STORES);
    reserve(
        dir,
        &[
            "--store", "s0", "--read", "10MB/s", "--from", "+5m", "--for", "1m",
        ],
    );
    let post = || {
        http(
            &daemon.admin_tcp(),
            &format!(
                "POST /v1/stores/s0/calibrate HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{}\
                 Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}",
                daemon.admin_tcp(),
                bearer(dir)
            ),
        )
    };
    let (code, refusal) = post();
    assert_eq!(code, 409, "{refusal}");
    let refusal: Value = serde_json::from_str(&refusal).unwrap();
    let (error, todo) = (
        refusal["error"].to_string(),
        refusal["what_to_do"].to_string(),
    );
    assert!(
        error.contains("cannot calibrate s0 now") && error.contains("reservation 1 has"),
        "{error}"
    );
    assert!(todo.contains("or release it"), "{todo}");
    let said = stderr(&run(dir, &["store", "calibrate", "s0"]));
    assert!(
        said.contains("reservation 1 has") && said.contains("or release it"),
        "{said}"
    );
    let status = json(dir, &["store", "show", "s0", "--json"]);
    assert_eq!(status["calibrating"]["running"], false, "{status}");

    // With nothing reserved it begins, and a second one waits for its end.
    text(dir, &["reservation", "delete", "s0/1"]);
    assert_eq!(post().0, 200);
    let (code, refusal) = post();
    assert_eq!(code, 409, "{refusal}");
    assert!(refusal.contains("is being calibrated already"), "{refusal}");
    let said = stderr(&run(
        dir,
        &[
            "reserve", "add", "--store", "s0", "--read", "1MB/s", "--for", "1m", "--scope", "s",
        ],
    ));
    assert!(said.contains("calibration"), "{said}");
    assert_eq!(daemon.stop().0, Some(0));
}
