//! The dashboard of a real daemon in a real browser: what it shows, asks for, and lets its reader do.
//!
//! `TANADA_SCREENSHOTS=DIR` keeps pictures there, for people to look at.

mod actions;
mod axe;
mod clients;
mod shows;
mod still;
mod totals;

use std::fs;
use std::path::Path;

use testkit::browser::{Browser, DESK, Opened, PHONE, Screen, browser};

use clients::{Busy, VOL0};

use crate::common::{Daemon, SMALL, TWO_STORES, json, text};

/// A hybrid with a tier on modelled devices, two stores and a cluster of one node.
const HYBRID: &str = r#"
[[device]]
name = "hdd0"
model = "hdd-7200-sata"
size = "64MiB"
file = "hdd0.img"
[[device]]
name = "ssd0"
model = "ssd-sata-mlc"
size = "16MiB"
file = "ssd0.img"
[[hybrid]]
name = "vol0"
slow = "hdd0"
fast = "ssd0"
mode = "both"
[hybrid.tier]
region = "1MiB"
period = "1s"
[[export]]
device = "vol0"
nbd = ["unix:vol0.sock"]
"#;

/// That hybrid, two stores, and a cluster of them.
fn everything() -> String {
    let admin = "[admin]\nlisten = [\"unix:admin.sock\", \"127.0.0.1:0\"]\n";
    [HYBRID, TWO_STORES, admin].concat()
}

const PAGES: [&str; 9] = [
    "",
    "volumes",
    "volumes/hybrid/vol0",
    "volumes/virtual/vm1",
    "replication",
    "reservations",
    "stores",
    "energy",
    "advice",
];

const SCREENS: [(&str, Screen); 4] = [
    ("desk", DESK),
    ("desk-dark", Screen { dark: true, ..DESK }),
    ("phone", PHONE),
    (
        "phone-dark",
        Screen {
            dark: true,
            still: true,
            ..PHONE
        },
    ),
];

/// The page is drawn, and the daemon has answered what it asked for.
const DRAWN: &str = "document.querySelector('main h1') && document.querySelector('#live').innerText.includes('live') && \
                     document.querySelector('main').ariaBusy === 'false' && \
                     !document.querySelector('main').innerText.includes('Asking the daemon') && \
                     !document.querySelector('main').innerText.includes('Waiting for')";

fn start(dir: &Path) -> Daemon {
    let daemon = Daemon::start(dir, &everything());
    text(dir, &["volume", "create", "vm1", "--size", "64MiB"]);
    text(dir, &["volume", "set", "vol0", "advise=on"]);
    let add = ["reserve", "add", "--store", "s0", "--read", "20MB/s"];
    let rest = ["--for", "2h", "--scope", "results/", "--holder", "ann"];
    text(dir, &[&add[..], &rest].concat());
    daemon
}

/// Reads and writes at `vol0` for as long as `look` takes.
fn while_busy(dir: &Path, look: impl FnOnce()) {
    let client = Busy::start(dir, VOL0);
    look();
    assert!(client.end() > 0);
}

/// Opens a page, and waits until it is drawn.
fn page<'a>(browser: &'a mut Browser, daemon: &Daemon, path: &str, screen: Screen) -> Opened<'a> {
    let address = format!("http://{}/#/{path}", daemon.admin_tcp());
    let mut opened = browser.visit(&address, screen);
    let is_drawn = opened.until(DRAWN);
    assert!(
        is_drawn,
        "{path}: {}",
        opened.text("document.body.innerText")
    );
    opened
}

/// What every page must keep on every screen.
fn check(opened: &mut Opened<'_>, daemon: &Daemon, what: &str) {
    let complaints = opened.complaints();
    assert!(complaints.is_empty(), "{what} {complaints:#?}");
    let foreign = opened.reached_beyond(&format!("http://{}/", daemon.admin_tcp()));
    assert!(foreign.is_empty(), "{what} {foreign:#?}");
    let (page, screen) = opened.widths();
    assert!(
        page <= screen,
        "{what} is {page} wide on a screen of {screen}"
    );
}

fn keep(name: &str, opened: &mut Opened<'_>) {
    if let Some(directory) = std::env::var_os("TANADA_SCREENSHOTS") {
        let file = Path::new(&directory).join(format!("{name}.png"));
        fs::write(file, opened.screenshot()).expect("it can be written");
    }
}

#[test]
fn every_page_is_drawn_on_a_desk_and_a_phone_by_day_and_by_night() {
    let Some(mut browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let daemon = start(dir.path());
    while_busy(dir.path(), || {
        // Long enough for a heat map of some intervals.
        let mut opened = page(&mut browser, &daemon, "volumes", DESK);
        let heat = "document.querySelector('.heat canvas').width >= 3";
        assert!(
            opened.until(heat),
            "{}",
            opened.text("document.body.innerText")
        );
        for (name, screen) in SCREENS {
            for path in PAGES {
                let mut opened = page(&mut browser, &daemon, path, screen);
                check(&mut opened, &daemon, &format!("{name} {path}"));
                let paper = opened.text("getComputedStyle(document.body).backgroundColor");
                assert_eq!(paper == "rgb(255, 255, 255)", !screen.dark, "{paper}");
                keep(&format!("{name}-{}", path.replace('/', "-")), &mut opened);
            }
        }
    });
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn figures_change_each_second_and_are_called_stale_when_the_daemon_is_gone() {
    let Some(mut browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let daemon = start(dir.path());
    let mut opened = page(&mut browser, &daemon, "", DESK);
    let fact = |name: &str| {
        format!(
            "[...document.querySelectorAll('.facts div')].find(it => it.innerText.startsWith('{name}')).innerText"
        )
    };
    let (up, written) = (opened.text(&fact("Up")), fact("Write"));
    assert!(opened.until(&format!("{} !== {up:?}", fact("Up"))), "{up}");
    while_busy(dir.path(), || {
        let busy = format!("parseFloat({written}.split('\\n')[1]) > 0");
        assert!(opened.until(&busy), "{}", opened.text(&written));
        let drawn = "document.querySelector('.chart .line').getAttribute('d').includes('L')";
        assert!(opened.until(drawn), "a curve of several seconds");
        let cell = "[...document.querySelectorAll('main tbody tr')].find(it => it.innerText.startsWith('vol0')).innerText";
        let row = opened.text(cell);
        assert!(row.contains("hybrid") && row.contains("healthy"), "{row}");
    });
    // Behind each drawing is its table.
    opened.click("details.data summary");
    let rows = "document.querySelectorAll('details.data[open] tbody tr').length >= 2";
    assert!(
        opened.until(rows),
        "{}",
        opened.text("document.body.innerText")
    );
    // A hidden page asks nothing; a page without a daemon says so, and since when.
    check(&mut opened, &daemon, "overview");
    assert_eq!(daemon.stop().0, Some(0), "an open stream keeps no daemon");
    let stale = "document.querySelector('#live').innerText.startsWith('stale') && document.body.classList.contains('is-stale')";
    assert!(
        opened.until(stale),
        "{}",
        opened.text("document.querySelector('#live').innerText")
    );
}

#[test]
fn axe_finds_nothing_on_any_page() {
    let (Some(mut browser), Some(axe)) = (browser(), axe::script()) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let daemon = start(dir.path());
    let run = "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map(it => \
               it.id + ': ' + it.nodes.map(node => node.html + ' ' + node.failureSummary).join('; ')))";
    for screen in [DESK, SCREENS[3].1] {
        for path in PAGES {
            let mut opened = page(&mut browser, &daemon, path, screen);
            opened.value(&format!("{axe}; 1"));
            let found = opened.awaited(run);
            assert_eq!(found, serde_json::json!([]), "{path} {screen:?}");
        }
    }
    // It finds what there is to find.
    let mut opened = page(&mut browser, &daemon, "", DESK);
    opened.value("document.querySelector('#dialogs').append(document.createElement('button'))");
    opened.value(&format!("{axe}; 1"));
    let found = opened.awaited(run).to_string();
    assert!(found.contains("button-name"), "{found}");
    // A dialog, too.
    opened.click("#who button");
    let found = opened.awaited(&run.replace(
        "axe.run(document",
        "axe.run(document.querySelector('dialog')",
    ));
    assert_eq!(found, serde_json::json!([]));
    assert_eq!(daemon.stop().0, Some(0));
}

/// What can be reached by the keyboard, as a page has it; where nothing shows the focus is listed as `unseen`.
const WALK: &str = "window.walked = new Set(); window.unseen = []; document.addEventListener('focusin', event => { \
    walked.add(event.target); const style = getComputedStyle(event.target); \
    if (event.target !== document.querySelector('main') && (style.outlineStyle === 'none' || parseFloat(style.outlineWidth) < 1)) \
    unseen.push(event.target.outerHTML); }); 1";
const CONTROLS: &str = "[...document.querySelectorAll('a[href], button, input, select, summary, [tabindex=\"0\"]')].filter(it => \
    it.checkVisibility())";

#[test]
fn a_keyboard_reaches_every_control_and_sees_where_it_is() {
    let Some(mut browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let daemon = start(dir.path());
    for path in PAGES {
        let mut opened = page(&mut browser, &daemon, path, DESK);
        opened.value(WALK);
        let controls = opened.number(&format!("{CONTROLS}.length"));
        for _ in 0..controls as usize + 5 {
            opened.press("Tab");
        }
        let missed = opened.value(&format!(
            "{CONTROLS}.filter(it => !walked.has(it)).map(it => it.outerHTML.slice(0, 200))"
        ));
        assert_eq!(missed, serde_json::json!([]), "{path}");
        assert_eq!(opened.value("unseen"), serde_json::json!([]), "{path}");
    }
    // The first stop leads past the head.
    let mut opened = page(&mut browser, &daemon, "", DESK);
    opened.press("Tab");
    assert_eq!(opened.text("document.activeElement.id"), "skip");
    opened.press("Enter");
    assert_eq!(opened.text("document.activeElement.id"), "main");
    // A dialog keeps the focus, and gives it back.
    opened.value("document.querySelector('#who button').focus()");
    opened.press("Enter");
    assert!(opened.until("document.querySelector('dialog[open]')"));
    for _ in 0..8 {
        opened.press("Tab");
        let within = "document.activeElement === document.body || !!document.activeElement.closest('dialog')";
        assert_eq!(opened.value(within), true);
    }
    opened.press("Escape");
    assert!(opened.until("!document.querySelector('dialog')"));
    assert_eq!(
        opened.text("document.activeElement.closest('#who').id"),
        "who"
    );
    assert_eq!(daemon.stop().0, Some(0));
}

/// Gives the page the daemon's own token.
fn sign_in(opened: &mut Opened<'_>, dir: &Path) {
    let token = fs::read_to_string(dir.join("tanada-data/admin.token")).expect("made at the start");
    opened.click("#who button");
    opened.insert(token.trim_end());
    opened.press("Enter");
    assert!(
        opened.until("document.querySelector('#who .role')"),
        "{}",
        opened.text("document.body.innerText")
    );
}

/// Presses the button of this name, and what its dialog says is done; the command it showed.
fn act(opened: &mut Opened<'_>, button: &str, typed: Option<&str>) -> String {
    let found = format!(
        "[...document.querySelectorAll('main button')].find(it => it.innerText === '{button}')"
    );
    assert!(
        opened.until(&found),
        "{button}: {}",
        opened.text("document.querySelector('main').innerText")
    );
    opened.value(&format!("{found}.click()"));
    if let Some(typed) = typed {
        opened.value("document.activeElement.select?.()");
        opened.insert(typed);
    }
    let command = opened.text("document.querySelector('dialog pre').innerText");
    opened.click("dialog button.go");
    assert!(
        opened.until("!document.querySelector('dialog')"),
        "{button}: {}",
        opened.text("document.querySelector('dialog').innerText")
    );
    command
}

#[test]
fn a_token_brings_names_and_actions_and_none_of_them_destroys() {
    let Some(mut browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = start(dir);
    let mut opened = page(&mut browser, &daemon, "reservations", DESK);
    let names = "document.querySelector('main').innerText.includes('ann')";
    let bars = "document.querySelector('.gantt-row')";
    assert!(
        opened.until(bars),
        "{}",
        opened.text("document.body.innerText")
    );
    assert_eq!(opened.value(names), false, "a reader without names");
    assert_eq!(
        opened.number("document.querySelectorAll('main button').length"),
        0.0
    );

    // One that is none is refused in its words, and forgotten.
    opened.click("#who button");
    opened.insert("0123");
    opened.press("Enter");
    let refusal = "document.querySelector('dialog .refusal').innerText";
    assert!(
        opened.until(&format!("{refusal}.includes('another token')")),
        "{}",
        opened.text(refusal)
    );
    opened.press("Escape");
    assert_eq!(opened.value("sessionStorage.length"), 0);
    sign_in(&mut opened, dir);
    assert!(
        opened.until(names),
        "{}",
        opened.text("document.querySelector('main').innerText")
    );
    // The token is in this tab alone.
    assert_eq!(
        opened.value(
            "[localStorage.length, document.cookie.length, location.href.includes('token')]"
        ),
        serde_json::json!([0, 0, false])
    );

    opened.value("location.hash = '#/volumes/hybrid/vol0'");
    let command = act(&mut opened, "Set dirty_high", Some("41"));
    assert_eq!(command, "tanada volume set vol0 dirty_high=41");
    let volume = json(dir, &["volume", "show", "vol0", "--json"]);
    assert_eq!(volume["settings"]["dirty_high"], 41);
    // A setting that makes no sense is refused in the dialog.
    let found = "[...document.querySelectorAll('main button')].find(it => it.innerText === 'Set dirty_low')";
    opened.value(&format!("{found}.click()"));
    opened.value("document.activeElement.select()");
    opened.insert("99");
    opened.press("Enter");
    assert!(
        opened.until(&format!("{refusal}.includes('dirty')")),
        "{}",
        opened.text(refusal)
    );
    opened.press("Escape");

    opened.value("location.hash = '#/volumes/virtual/vm1'");
    act(&mut opened, "Take a snapshot", Some("monday"));
    let disk = json(dir, &["volume", "show", "vm1", "--json"]);
    assert_eq!(disk["snapshots"][0]["name"], "monday", "{disk}");

    opened.value("location.hash = '#/stores'");
    assert_eq!(
        act(&mut opened, "Scrub", None),
        "tanada store scrub s0 --no-wait"
    );
    let ended = "document.querySelector('main').innerText.match(/ended \\d\\d:|running/)";
    assert!(
        opened.until(ended),
        "{}",
        opened.text("document.querySelector('main').innerText")
    );

    for path in PAGES {
        opened.value(&format!("location.hash = '#/{path}'"));
        assert!(opened.until(DRAWN));
        let buttons = opened
            .text("[...document.querySelectorAll('main button')].map(it => it.innerText).join()");
        for word in ["elete", "emove", "oll back", "etach", "Rename", "Lose"] {
            assert!(!buttons.contains(word), "{path}: {buttons}");
        }
        let (page, screen) = opened.widths();
        assert!(
            page <= screen,
            "{path} is {page} wide on a screen of {screen}"
        );
    }
    // Nothing but what was refused.
    let complaints = opened.complaints();
    let refused = |it: &&String| !it.contains("status of 401") && !it.contains("status of 422");
    let others: Vec<&String> = complaints.iter().filter(refused).collect();
    assert!(others.is_empty(), "{others:#?}");
    // What listens there next may be another program.
    assert_eq!(daemon.stop().0, Some(0));
    assert!(opened.until("sessionStorage.length === 0 && document.querySelector('#who button').innerText === 'Use token'"));
}

#[test]
fn a_page_without_data_says_so_and_how_to_get_them() {
    let Some(mut browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path(), SMALL);
    for (path, says) in [
        ("replication", ["in no cluster", "[cluster]"]),
        ("reservations", ["no store", "tanada serve --store"]),
        ("stores", ["no store", "tanada serve --store"]),
        ("energy", ["only modelled ones", "tanada model list"]),
        (
            "advice",
            ["No shadow watches", "tanada volume set vol0 advise=on"],
        ),
        ("volumes/hybrid/other", ["no such volume", "vol0"]),
    ] {
        let mut opened = page(&mut browser, &daemon, path, PHONE);
        check(&mut opened, &daemon, path);
        let text = opened.text("document.querySelector('main').innerText");
        assert!(says.iter().all(|it| text.contains(it)), "{path}: {text}");
    }
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn the_policy_blocks_what_is_inline_or_foreign_and_the_check_sees_it() {
    let Some(mut browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path(), SMALL);
    for planted in [
        "document.head.append(Object.assign(document.createElement('style'), {textContent: 'p {color: red}'}))",
        "document.body.setAttribute('style', 'color: red')",
        "document.head.append(Object.assign(document.createElement('script'), {textContent: '1'}))",
        "fetch('http://127.0.0.1:9/').catch(() => 0)",
        "Object.assign(new Image(), {src: 'http://127.0.0.1:9/a.png'})",
        "console.error('wrong')",
    ] {
        let mut opened = page(&mut browser, &daemon, "", DESK);
        check(&mut opened, &daemon, "before");
        opened.value(&format!("{planted}; 1"));
        let is_seen = (0..50).any(|_| {
            opened.awaited("new Promise(done => setTimeout(done, 20))");
            !opened.complaints().is_empty()
        });
        assert!(is_seen, "{planted}");
    }
    assert_eq!(daemon.stop().0, Some(0));
}
