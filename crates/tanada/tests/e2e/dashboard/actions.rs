//! What is done on the page, and what came of it, as the command line sees it.

use std::path::Path;

use serde_json::Value;
use testkit::browser::{Opened, browser};

use super::clients::{Busy, VM1, VOL0, Work, fill};
use super::{DESK, PAGES, act, everything, page, shows, sign_in};
use crate::common::{Daemon, json, text};

/// A scrub of the second store takes long enough to be looked at.
fn slowly_scrubbed() -> String {
    let slow = "listen = \"unix:s1.sock\"\nceiling = \"1MB/s\"\nfloor = \"500kB/s\"";
    everything().replace("listen = \"unix:s1.sock\"", slow)
}

fn jobs(dir: &Path, kind: &str) -> Vec<Value> {
    let all = json(dir, &["job", "list", "--json"]);
    let all = all.as_array().expect("a list").iter();
    all.filter(|it| it["kind"] == kind).cloned().collect()
}

fn until(opened: &mut Opened<'_>, wanted: &str) {
    assert!(
        opened.until(wanted),
        "{wanted}: {}",
        opened.text("document.body.innerText")
    );
}

/// Long work begun on the page is in the overview with the time left, and is cancelled there.
fn cancel_a_scrub(opened: &mut Opened<'_>, dir: &Path) {
    opened.value("location.hash = '#/stores'");
    until(opened, "card('s1')");
    let scrub =
        "[...card('s1').querySelectorAll('button')].find(it => it.innerText === 'Scrub').click()";
    opened.value(scrub);
    opened.click("dialog button.go");
    until(opened, "!document.querySelector('dialog')");
    until(
        opened,
        "/^running [\\d.]+ \\w+ of /.test(pair('Scrub', 's1'))",
    );
    assert_eq!(jobs(dir, "scrub")[0]["state"], "running");
    opened.value("location.hash = '#/'");
    let job = "rows('Jobs').find(it => it.What === 'scrub of s1')";
    until(
        opened,
        &format!("{job} && /\\d s$/.test({job}['Time left'])"),
    );
    until(opened, &format!("/ of .*iB$/.test({job}[3])"));
    let id = jobs(dir, "scrub")[0]["id"].to_string();
    let command = act(opened, "Cancel", None);
    assert_eq!(command, format!("tanada job cancel {id}"));
    // It ends at its next step. Each look takes some milliseconds.
    let is_cancelled = || jobs(dir, "scrub")[0]["state"] == "cancelled";
    assert!(
        (0..3000).any(|_| is_cancelled()),
        "{:?}",
        jobs(dir, "scrub")
    );
    until(
        opened,
        "!card('Jobs') || !rows('Jobs').some(it => it.What === 'scrub of s1')",
    );
}

fn calibrate(opened: &mut Opened<'_>, dir: &Path) {
    opened.value("location.hash = '#/stores'");
    // What cannot be done now is refused in the dialog, with what stands in the way.
    let button = |store: &str| {
        format!(
            "[...card('{store}').querySelectorAll('button')].find(it => it.innerText === 'Calibrate')"
        )
    };
    until(opened, &button("s0"));
    opened.value(&format!("{}.click()", button("s0")));
    opened.click("dialog button.go");
    let refusal = "document.querySelector('dialog .refusal').innerText";
    until(opened, &format!("{refusal}.includes('reservation 1 has')"));
    opened.press("Escape");
    until(opened, "!document.querySelector('dialog')");
    assert_eq!(jobs(dir, "calibrate"), Vec::<Value>::new());

    opened.value(&format!("{}.click()", button("s1")));
    let command = "document.querySelector('dialog pre').innerText";
    assert_eq!(opened.text(command), "tanada store calibrate s1 --no-wait");
    opened.click("dialog input[name=full]");
    let full = "tanada store calibrate s1 --full --no-wait";
    assert_eq!(opened.text(command), full);
    opened.click("dialog input[name=full]");
    opened.click("dialog button.go");
    until(opened, "!document.querySelector('dialog')");
    until(
        opened,
        "/^running .*, [\\d.]+ %$/.test(pair('Calibration', 's1'))",
    );
    let job = &jobs(dir, "calibrate")[0];
    assert_eq!(
        (&job["name"], &job["state"]),
        (&"s1".into(), &"running".into())
    );
}

/// Each client's connection is ended by the button of its row, and no other.
fn disconnect(opened: &mut Opened<'_>, dir: &Path, path: &str, work: Work) {
    let idle = Work { idle: true, ..work };
    let clients = [Busy::start(dir, idle), Busy::start(dir, idle)];
    opened.value(&format!("location.hash = '#/{path}'"));
    until(opened, "rows('Clients').length === 2");
    let first = opened.text("rows('Clients')[0].Client");
    let other = opened.text("rows('Clients')[1].Client");
    assert!(
        first.contains(work.socket) && first.contains('#'),
        "{first}"
    );
    let command = act(opened, "Disconnect", None);
    assert_eq!(command, format!("tanada client delete '{first}'"));
    until(opened, "rows('Clients').length === 1");
    assert_eq!(opened.text("rows('Clients')[0].Client"), other);
    for client in clients {
        client.end();
    }
}

fn watch(opened: &mut Opened<'_>, dir: &Path) {
    text(dir, &["volume", "set", "vol0", "advise=off"]);
    opened.value("location.hash = '#/advice'");
    let command = act(opened, "Watch it", None);
    assert_eq!(command, "tanada volume set vol0 advise=on");
    let volume = json(dir, &["volume", "show", "vol0", "--json"]);
    assert_eq!(volume["advise"], true);
    until(opened, "fact('Watched', 'vol0')");
}

#[test]
fn work_is_begun_and_cancelled_clients_are_sent_away_and_a_shadow_is_set() {
    let Some(mut browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &slowly_scrubbed());
    text(dir, &["volume", "create", "vm1", "--size", "64MiB"]);
    let reserve = ["reserve", "add", "--store", "s0", "--read", "20MB/s"];
    text(
        dir,
        &[&reserve[..], &["--for", "2h", "--scope", "r/"]].concat(),
    );
    fill(dir, VM1, 48 << 20);
    let mut opened = page(&mut browser, &daemon, PAGES[0], DESK);
    opened.value(shows::LOOK);
    // None of it can be done without a token.
    for path in ["stores", "volumes/hybrid/vol0", "advice"] {
        opened.value(&format!("location.hash = '#/{path}'"));
        until(&mut opened, "document.querySelector('main .card')");
        let buttons = opened.number("document.querySelectorAll('main button').length");
        assert_eq!(buttons, 0.0, "{path}");
    }
    sign_in(&mut opened, dir);
    cancel_a_scrub(&mut opened, dir);
    disconnect(&mut opened, dir, "volumes/hybrid/vol0", VOL0);
    disconnect(&mut opened, dir, "volumes/virtual/vm1", VM1);
    watch(&mut opened, dir);
    calibrate(&mut opened, dir);
    // Nothing but what was refused.
    let complaints = opened.complaints();
    let others = complaints.iter().filter(|it| !it.contains("status of 409"));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(daemon.stop().0, Some(0));
}
