//! `tanada reservation`: what it asks of the daemon, what it says, and how `run` ends.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::{run, stderr, tanada, text};
use crate::service::{Event, Service};

pub const OF_STORES: [&str; 7] = [
    "--store", "s0", "--store", "s1", "--stripe", "--scope", "run7/",
];

pub fn with<'a>(words: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [words, more].concat()
}

#[test]
fn a_reservation_is_made_once_shown_changed_and_ended() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let service = Service::start(dir);
    let create = with(
        &[
            "reservation",
            "create",
            "nightly",
            "--read",
            "200MB/s",
            "--for",
            "2h",
        ],
        &OF_STORES,
    );
    let made = run(dir, &create);
    assert!(made.status.success(), "{}", stderr(&made));
    let token = String::from_utf8(made.stdout.clone()).unwrap();
    assert!(
        token.starts_with("tanadaset1.") && token.lines().count() == 1,
        "{token}"
    );
    let said = stderr(&made);
    assert!(
        said.contains("reserved nightly (r-")
            && said.contains("200 MB/s of reads of s0 and s1 together"),
        "{said}"
    );
    // Asking twice reserves once; the alias is the same command.
    let again = run(dir, &with(&["reserve"], &create[1..]));
    assert_eq!(again.stdout, made.stdout);
    assert!(
        stderr(&again).contains("was reserved already"),
        "{}",
        stderr(&again)
    );

    let list = text(dir, &["reservation", "list"]);
    assert!(
        list.contains("nightly") && !list.contains("tanadaset1"),
        "{list}"
    );
    let page = text(dir, &["reservation", "show", "nightly"]);
    assert!(
        page.contains("state: committed") && page.contains("s0/1"),
        "{page}"
    );
    let words = ["reservation", "set", "nightly", "--read", "300MB/s"];
    let set = run(dir, &with(&words, &["--write", "1MB/s"]));
    // The capability set alone on stdout, as of `create`.
    assert_eq!((set.status.code(), &set.stdout), (Some(0), &made.stdout));
    assert!(
        stderr(&set).contains("300 MB/s of reads and 1 MB/s of writes"),
        "{}",
        stderr(&set)
    );
    assert_eq!(
        text(dir, &["reservation", "capability", "nightly"]).as_bytes(),
        made.stdout
    );

    text(dir, &["reservation", "delete", "nightly"]);
    let absent = run(dir, &["reservation", "delete", "nightly"]);
    assert_eq!(absent.status.code(), Some(5));
    assert!(
        stderr(&absent).contains("there is no reservation nightly"),
        "{}",
        stderr(&absent)
    );
    text(dir, &["reservation", "delete", "nightly", "--if-exists"]);
    let name = || "nightly".to_owned();
    let events = [
        Event::Booked(name()),
        Event::Renewed(name()),
        Event::Ended(name()),
    ];
    assert_eq!(service.events(), events);
}

#[test]
fn what_does_not_fit_is_refused_with_what_would() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let service = Service::start(dir);
    let asked = ["--volume", "vm1", "--read", "20GB/s", "--for", "2h"];
    let refused = run(dir, &with(&["reservation", "create", "big"], &asked));
    assert_eq!(refused.status.code(), Some(5));
    let said = stderr(&refused);
    for part in [
        "cannot reserve",
        "as asked it would fit:     from",
        "(50.0 % of it)",
        "for 50m",
    ] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
    let dry = run(
        dir,
        &with(
            &["reservation", "create", "big", "--dry-run", "--json"],
            &asked,
        ),
    );
    assert_eq!(dry.status.code(), Some(5));
    let offer: Value = serde_json::from_slice(&dry.stdout).unwrap();
    assert_eq!(offer["fits"], false);
    let fits = [
        "--volume",
        "vm1",
        "--read",
        "1GB/s",
        "--for",
        "2h",
        "--dry-run",
    ];
    assert_eq!(
        text(dir, &with(&["reservation", "create"], &fits)),
        "it fits\n"
    );
    assert_eq!(service.events(), []);
}

#[test]
fn what_makes_no_sense_is_refused_before_the_daemon_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for (words, part) in [
        (&["--for", "1h", "--volume", "v"][..], "--read"),
        (&["--for", "1h", "--read", "1MB/s"], "--volume"),
        (
            &[
                "--for", "1h", "--read", "1MB/s", "--volume", "v", "--export", "e",
            ],
            "cannot be used with",
        ),
        (
            &["--for", "1h", "--read", "1MB/s", "--store", "s0"],
            "--scope",
        ),
        (
            &[
                "--for", "1h", "--read", "1MB/s", "--store", "s0", "--scope", "",
            ],
            "--scope is not empty",
        ),
        (
            &["--for", "1ms", "--read", "1MB/s", "--volume", "v"],
            "at least a second",
        ),
        (
            &["--for", "1h", "--read", "1MB", "--volume", "v"],
            "is no rate",
        ),
        (
            &[
                "--for",
                "1h",
                "--read",
                "1MB/s",
                "--volume",
                "v",
                "--account",
                "a&b",
            ],
            "is not a name",
        ),
    ] {
        let refused = run(dir, &with(&["reservation", "create"], words));
        assert_eq!(
            refused.status.code(),
            Some(2),
            "{words:?}: {}",
            stderr(&refused)
        );
        assert!(
            stderr(&refused).contains(part),
            "{words:?}: {}",
            stderr(&refused)
        );
    }
}

/// `tanada reservation run` of a shell script.
pub fn running(dir: &Path, options: &[&str], script: &str) -> Command {
    let mut command = tanada(dir);
    command
        .args(["reservation", "run", "--read", "1MB/s"])
        .args(options);
    command
        .args(["--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Reads the line by which a script says that it runs.
pub fn await_line(child: &mut Child) -> BufReader<std::process::ChildStdout> {
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "runs\n");
    out
}

fn signal(name: &str, of: &Child) {
    let sent = Command::new("kill")
        .args([name, &of.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

#[test]
fn a_command_has_its_reservation_for_as_long_as_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let service = Service::start(dir);
    let script = "echo $TANADA_RESERVATION $TANADA_CAPABILITY; exit 7";
    let done = running(dir, &with(&["--name", "mine"], &OF_STORES), script)
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(7), "{}", stderr(&done));
    let out = String::from_utf8_lossy(&done.stdout);
    assert!(out.starts_with("mine tanadaset1."), "{out}");
    assert!(!stderr(&done).contains("tanadaset1"), "{}", stderr(&done));
    let name = || "mine".to_owned();
    assert_eq!(
        service.events(),
        [Event::Booked(name()), Event::Ended(name())]
    );

    // A capability of something else is not handed to a command whose reservation has none.
    let mut of_volume = running(dir, &["--volume", "vm1"], "echo \"[$TANADA_CAPABILITY]\"");
    let done = of_volume.env("TANADA_CAPABILITY", "old").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout), "[]\n");
}

#[test]
fn a_command_that_cannot_start_or_is_killed_leaves_no_reservation() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let service = Service::start(dir);
    let start = [
        "reservation",
        "run",
        "--read",
        "1MB/s",
        "--volume",
        "vm1",
        "--",
    ];
    let absent = run(dir, &with(&start, &["./no-such-program"]));
    assert_eq!(absent.status.code(), Some(127), "{}", stderr(&absent));
    fs::write(dir.join("plain"), "text").unwrap();
    let plain = run(dir, &with(&start, &["./plain"]));
    assert_eq!(plain.status.code(), Some(126), "{}", stderr(&plain));
    let killed = run(dir, &with(&start, &["sh", "-c", "kill -KILL $$"]));
    assert_eq!(killed.status.code(), Some(137), "{}", stderr(&killed));
    assert_eq!(service.running(), [] as [Value; 0]);
    assert_eq!(service.events().len(), 6, "{:?}", service.events());
}

/// Does this process ignore a signal, and every command that it starts with it?
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = u64::from_str_radix(mask.expect("a line").trim(), 16).expect("a mask");
    mask >> (signal - 1) & 1 == 1
}

#[test]
fn signals_reach_the_command_and_its_answer_is_the_exit_status() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let service = Service::start(dir);
    for (name, code) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("USR1", 10)] {
        if is_ignored(code) {
            eprintln!(
                "SIG{name} is ignored where this test runs, as under nohup: no shell can trap it"
            );
            continue;
        }
        let script =
            format!("trap 'echo got; exit {code}' {name}; echo runs; while :; do sleep 0.05; done");
        let mut child = running(dir, &["--volume", "vm1"], &script)
            .process_group(0)
            .spawn()
            .unwrap();
        let mut out = await_line(&mut child);
        signal(&format!("-{name}"), &child);
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert_eq!(
            (rest.as_str(), child.wait().unwrap().code()),
            ("got\n", Some(code)),
            "{name}"
        );
    }
    // Without a trap: 128 and the signal.
    let script = "echo runs; exec sleep 1000";
    let mut child = running(dir, &["--volume", "vm1"], script)
        .process_group(0)
        .spawn()
        .unwrap();
    let _out = await_line(&mut child);
    signal("-TERM", &child);
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert_eq!(service.running(), [] as [Value; 0]);
}

#[test]
fn a_reservation_is_renewed_at_half_time_and_a_failure_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let service = Service::start(dir);
    let script = "echo runs; read line; exit 0";
    let options = ["--volume", "vm1", "--for", "1s", "--name", "short"];
    let mut child = running(dir, &options, script)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let _out = await_line(&mut child);
    let renewals = |events: &[Event]| {
        events
            .iter()
            .filter(|it| matches!(it, Event::Renewed(_)))
            .count()
    };
    service.await_events(|events| renewals(events) >= 3);
    drop(child.stdin.take());
    let done = child.wait_with_output().unwrap();
    // `read` of an input that ended, then the command's own end.
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert!(!stderr(&done).contains("cannot renew"), "{}", stderr(&done));

    service.refuse_changes();
    let mut child = running(dir, &options, "sleep 2; exit 3").spawn().unwrap();
    let code = child.wait().unwrap().code();
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(code, Some(3), "{said}");
    assert_eq!(
        said.matches("cannot renew short: the store is full")
            .count(),
        1,
        "{said}"
    );
    assert_eq!(service.running(), [] as [Value; 0]);
}

#[test]
fn a_name_that_is_taken_is_neither_used_nor_released() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let service = Service::start(dir);
    let taken = running(dir, &["--volume", "vm1", "--name", "one"], "true")
        .output()
        .unwrap();
    assert_eq!(taken.status.code(), Some(0));
    // A name that is taken is none of ours: it is neither used nor released.
    text(
        dir,
        &[
            "reservation",
            "create",
            "other",
            "--volume",
            "vm1",
            "--read",
            "1MB/s",
            "--for",
            "1h",
        ],
    );
    let refused = running(dir, &["--volume", "vm1", "--name", "other"], "true")
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(5), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("there is a reservation other already"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(service.running().len(), 1);
}
