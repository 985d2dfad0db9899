//! Reservations beside a command that runs: renewed, made anew, and their capabilities.

use std::path::Path;
use std::process::{Child, Output, Stdio};

use serde_json::Value;

use crate::command_line::{OF_STORES, await_line, running, with};
use crate::common::{run, stderr, text};
use crate::daemon::Daemon;
use crate::service::{Event, Service};

fn count(events: &[Event], is: fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| is(event)).count()
}

fn is_renewed(event: &Event) -> bool {
    matches!(event, Event::Renewed(_))
}

fn is_booked(event: &Event) -> bool {
    matches!(event, Event::Booked(_))
}

/// A command under a reservation of `options`, for a second each, until its input ends.
fn started(dir: &Path, options: &[&str]) -> Child {
    let options = with(&["--for", "1s", "--name", "short"], options);
    let mut child = running(dir, &options, "echo runs; read line; exit 5")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let out = await_line(&mut child);
    child.stdout = Some(out.into_inner());
    child
}

fn ended(mut child: Child) -> Output {
    drop(child.stdin.take());
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(5), "{}", stderr(&done));
    done
}

#[test]
fn a_renewal_that_fails_is_tried_again_before_the_slot_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let service = Service::start(dir);
    service.refuse_some_changes(1);
    let child = started(dir, &["--volume", "vm1"]);
    let events = service.await_events(|events| count(events, is_renewed) >= 1);
    // Half a slot, a refusal, a tenth of a slot: one booking, not one more.
    assert_eq!(count(&events, is_booked), 1, "{events:?}");
    let done = ended(child);
    let said = stderr(&done);
    assert_eq!(
        said.matches("cannot renew short: the store is full")
            .count(),
        1,
        "{said}"
    );
    assert!(!said.contains("anew"), "{said}");
    assert_eq!(service.running(), [] as [Value; 0]);
}

#[test]
fn what_is_over_is_reserved_anew_and_ended_with_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let service = Service::start(dir);
    let child = started(dir, &OF_STORES);
    service.let_all_end();
    service.await_events(|events| count(events, is_booked) == 2 && count(events, is_renewed) >= 1);
    // The one of now is renewed, not the one of before.
    let done = ended(child);
    let said = stderr(&done);
    assert_eq!(
        said.matches("its slot was over; reserved anew short")
            .count(),
        1,
        "{said}"
    );
    assert!(said.contains("TANADA_CAPABILITY is over"), "{said}");
    assert_eq!(service.running(), [] as [Value; 0]);
    assert_eq!(
        service.events().last(),
        Some(&Event::Ended("short".to_owned()))
    );
}

#[test]
fn what_was_cancelled_is_not_reserved_anew() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let service = Service::start(dir);
    let mut child = started(dir, &["--volume", "vm1"]);
    text(dir, &["reservation", "delete", "short"]);
    let mut said = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("was ended by another command") {
        line.clear();
        assert!(
            std::io::BufRead::read_line(&mut said, &mut line).unwrap() > 0,
            "it says so"
        );
    }
    drop(ended(child));
    assert_eq!(count(&service.events(), is_booked), 1);
    assert_eq!(
        count(&service.events(), |it| matches!(it, Event::Ended(_))),
        1
    );
}

#[test]
fn a_capability_that_is_missing_is_asked_for_once_more_and_then_said() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let service = Service::start(dir);
    let create = |name| {
        let words = [
            "reservation",
            "create",
            name,
            "--read",
            "1MB/s",
            "--for",
            "1h",
        ];
        run(dir, &with(&words, &OF_STORES))
    };
    service.lose_capabilities(1);
    let made = create("one");
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    assert!(made.stdout.starts_with(b"tanadaset1."));
    service.lose_capabilities(2);
    let made = create("two");
    assert_eq!((made.status.code(), &made.stdout[..]), (Some(1), &b""[..]));
    let said = stderr(&made);
    for part in [
        "two is reserved, and stands, but its capability cannot be had",
        "store s1 does not answer",
        "`tanada reservation capability two`",
    ] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
    let had = text(dir, &["reservation", "capability", "two"]);
    assert!(
        had.starts_with("tanadaset1.") && had.lines().count() == 1,
        "{had}"
    );
    service.lose_capabilities(2);
    let set = run(dir, &["reservation", "set", "two", "--for", "2h"]);
    assert_eq!((set.status.code(), &set.stdout[..]), (Some(1), &b""[..]));
    assert!(
        stderr(&set).contains("two is changed, and stands"),
        "{}",
        stderr(&set)
    );

    // A command that could open nothing is not started, and nothing stays reserved for it.
    service.lose_capabilities(2);
    let options = with(&["--name", "mine"], &OF_STORES);
    let done = running(dir, &options, "echo started").output().unwrap();
    assert_eq!(
        (done.status.code(), &done.stdout[..]),
        (Some(1), &b""[..]),
        "{}",
        stderr(&done)
    );
    assert!(
        stderr(&done).contains("cannot have the capability of mine"),
        "{}",
        stderr(&done)
    );
    assert_eq!(service.running().len(), 2);

    let of_volume = [
        "reservation",
        "create",
        "vm",
        "--volume",
        "vm1",
        "--read",
        "1MB/s",
        "--for",
        "1h",
    ];
    text(dir, &of_volume);
    let none = run(dir, &["reservation", "capability", "vm"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(
        stderr(&none).contains("clients need no capability"),
        "{}",
        stderr(&none)
    );
    let absent = run(dir, &["reservation", "capability", "gone"]);
    assert!(
        stderr(&absent).contains("there is no reservation gone"),
        "{}",
        stderr(&absent)
    );
}

#[test]
fn a_command_is_run_with_the_only_thing_there_is_or_what_the_environment_says() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let service = Service::start(dir);
    let of = |target: Option<&str>, options: &[&str]| {
        let mut command = running(dir, options, "exit 0");
        match target {
            Some(target) => command.env("TANADA_TARGET", target),
            None => command.env_remove("TANADA_TARGET"),
        };
        let done = command.output().unwrap();
        (done.status.code(), stderr(&done))
    };
    for (target, options, said) in [
        (None, &[][..], "of volume vm1"),
        (Some("volume:vm2"), &[], "of volume vm2"),
        (
            Some("store:s0,s1"),
            &["--scope", "a/", "--stripe"],
            "of s0 and s1 together, objects a/*",
        ),
        (Some("export:h"), &[], "of export h"),
        // What is said counts before it.
        (Some("export:h"), &["--volume", "vm1"], "of volume vm1"),
    ] {
        let (code, text) = of(target, options);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains(said), "{said} is not in\n{text}");
    }
    service.have(&["vm1", "vm2"], &["s0", "s1"]);
    for (target, options, said) in [
        (
            None,
            &[][..],
            "of volumes there are vm1, vm2, of stores s0, s1; say --volume NAME",
        ),
        (
            Some("vm1"),
            &[],
            "TANADA_TARGET: 'vm1' is no target; write such as volume:vm1",
        ),
        (Some("store:s0"), &[], "--store needs --scope"),
        (
            Some("volume:vm1"),
            &["--scope", "a/"],
            "--stripe and --scope are of stores",
        ),
        (
            Some("store:s0"),
            &["--scope", "a/", "--plan", "any"],
            "--tolerate and --plan are of a volume",
        ),
    ] {
        let (code, text) = of(target, options);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(said), "{said} is not in\n{text}");
    }
    assert_eq!(service.running(), [] as [Value; 0]);
}

#[test]
fn a_link_that_is_not_booked_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let service = Service::start(dir);
    let create = [
        "reservation",
        "create",
        "--volume",
        "vm1",
        "--read",
        "1MB/s",
        "--for",
        "1h",
    ];
    let quiet = run(dir, &create);
    assert!(!stderr(&quiet).contains("link"), "{}", stderr(&quiet));
    service.have_links_not_booked(&["n1"]);
    for made in [
        run(dir, &create),
        running(dir, &["--volume", "vm1"], "exit 0")
            .output()
            .unwrap(),
    ] {
        let said = stderr(&made);
        let line = "the link of n1 is not booked, only the stores behind; set `[network] speed` there to book it";
        assert_eq!(said.matches(line).count(), 1, "{said}");
    }
}

#[test]
fn a_capability_of_a_real_store_outlives_a_renewal_and_dies_with_its_reservation() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let Some(_daemon) = Daemon::start(dir) else {
        return;
    };
    let of = [
        "--store", "s0", "--scope", "a/", "--write", "10MB/s", "--for", "1h",
    ];
    let made = text(dir, &with(&["reservation", "create", "job"], &of));
    let capability = made.trim();
    std::fs::write(dir.join("answer"), "42").unwrap();
    let put = || {
        run(
            dir,
            &[
                "object",
                "put",
                "answer",
                "a/answer",
                "--capability",
                capability,
            ],
        )
    };
    assert!(put().status.success(), "{}", stderr(&put()));
    for rate in ["20MB/s", "5MB/s"] {
        let set = run(
            dir,
            &["reservation", "set", "job", "--write", rate, "--for", "2h"],
        );
        assert!(set.status.success(), "{}", stderr(&set));
        // A new one comes with the answer; that of the beginning is good all the same.
        let now = String::from_utf8(set.stdout).unwrap();
        assert!(
            now.starts_with("tanadaset1.") && now.trim() != capability,
            "{now}"
        );
        assert!(put().status.success(), "{}", stderr(&put()));
    }
    text(dir, &["reservation", "delete", "job"]);
    let refused = put();
    assert_eq!(refused.status.code(), Some(7));
    assert!(
        stderr(&refused).contains("it was released"),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn a_real_daemon_says_which_links_it_does_not_book() {
    for (store, more, is_said) in [
        ("127.0.0.1:0", "", true),
        ("127.0.0.1:0", "[network]\nspeed = \"1Gbit/s\"\n", false),
        // Behind no link.
        ("unix:s0.sock", "", false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let Some(_daemon) = Daemon::start_with(dir, store, more) else {
            return;
        };
        let of = [
            "--store", "s0", "--scope", "a/", "--write", "1MB/s", "--for", "1h",
        ];
        let whole = run(dir, &with(&["reservation", "create", "job"], &of));
        let part = run(dir, &with(&["reserve", "add"], &of));
        for (done, link) in [
            (whole, "the link of n1 is not booked"),
            (part, "the link of s0's node is not booked"),
        ] {
            assert!(done.status.success(), "{}", stderr(&done));
            assert_eq!(
                stderr(&done).matches("link").count(),
                usize::from(is_said),
                "{store}: {}",
                stderr(&done)
            );
            assert_eq!(
                stderr(&done).contains(link),
                is_said,
                "{store}: {}",
                stderr(&done)
            );
        }
    }
}
