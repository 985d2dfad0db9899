//! Each thing that docs/dashboard.md names is on its page, with what the daemon says of it.
//!
//! ```text
//! a node with all of it, a store elsewhere that ends -> page by page: what is looked for, as an expression of `look.js`
//!                                                    -> the same expressions on an empty page: none of them is true
//! ```

use std::fs;

use serde_json::Value;
use testkit::browser::{Browser, Opened, browser};

use super::clients::{Busy, VM1, VOL0, Work, fill};
use super::{DESK, check, everything, page};
use crate::common::{Daemon, SMALL, run, text};

/// Words to look at a page with.
pub const LOOK: &str = concat!(include_str!("look.js"), "; 1");

/// What is looked for on a page, and how it is found there.
struct Thing(&'static str, String);

/// Things that are found as they are written.
fn things<const N: usize>(all: [(&'static str, &str); N]) -> Vec<Thing> {
    all.map(|(what, found)| Thing(what, found.to_owned()))
        .into()
}

/// As text in JavaScript.
fn quoted(text: &Value) -> String {
    assert!(text.as_str().is_some_and(|it| !it.is_empty()), "{text}");
    text.to_string()
}

/// Beside all else a hybrid whose disk sleeps when it is idle, and a store that is scrubbed slowly.
fn config() -> String {
    let slow = "listen = \"unix:s1.sock\"\nceiling = \"1MB/s\"\nfloor = \"500kB/s\"";
    let all = everything().replace("listen = \"unix:s1.sock\"", slow);
    let sleeps = r#"
[[device]]
name = "hdd1"
model = "hdd-7200-sata"
size = "64MiB"
memory = true
standby_after = "1s"
[[device]]
name = "ssd1"
model = "ssd-sata-mlc"
size = "16MiB"
memory = true
[[hybrid]]
name = "vol1"
slow = "hdd1"
fast = "ssd1"
energy = true
[[export]]
device = "vol1"
nbd = "unix:vol1.sock"
"#;
    [&all, sleeps].concat()
}

/// A node that has what can be shown, and a store of another node.
struct Bed {
    node: Daemon,
    /// It ends when virtual disks have data there.
    elsewhere: Option<Daemon>,
    dir: tempfile::TempDir,
}

impl Bed {
    fn start() -> Bed {
        let root = tempfile::tempdir().expect("a directory");
        let (dir, other) = (root.path().join("n1"), root.path().join("n2"));
        fs::create_dir(&dir).expect("the directory is ours");
        fs::create_dir(&other).expect("the directory is ours");
        let node = Daemon::start(&dir, &config());
        let key = dir.join("tanada-data/keys/cluster.node");
        let store = format!(
            "[[device]]\nname = \"d2\"\npath = \"d2.img\"\nsize = \"256MiB\"\n[[store]]\nname = \"s2\"\ndevice = \"d2\"\n\
             listen = \"unix:s2.sock\"\ncreate = true\nnode_key_file = {key:?}\n[admin]\nlisten = \"unix:admin.sock\"\n"
        );
        let elsewhere = Some(Daemon::start(&other, &store));
        let at = format!("unix:{}", other.join("s2.sock").display());
        let create = ["node", "create", "n2", "--store", "s2", "--domain", "n2"];
        text(&dir, &[&create[..], &["--address", &at]].concat());
        let create = ["volume", "create", "vm1", "--size", "64MiB"];
        text(&dir, &[&create[..], &["--holder", "ann"]].concat());
        text(&dir, &["volume", "set", "vol0", "advise=on"]);
        let reserve = ["reserve", "add", "--store", "s0", "--read", "2MB/s"];
        let rest = ["--for", "2h", "--scope", "results/", "--holder", "ann"];
        text(&dir, &[&reserve[..], &rest].concat());
        fill(&dir, VM1, 60 << 20);
        text(&dir, &["snapshot", "create", "vm1@monday"]);
        Bed {
            node,
            elsewhere,
            dir: root,
        }
    }

    fn dir(&self) -> std::path::PathBuf {
        self.dir.path().join("n1")
    }

    /// What a command prints as JSON, whatever the verdict that its exit status tells.
    fn says(&self, command: &[&str]) -> Value {
        let output = run(&self.dir(), &[command, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

fn overview(bed: &Bed) -> Vec<Thing> {
    let health = &bed.says(&["status"])["health"];
    let reason = &health["checks"][0];
    assert_eq!(reason["code"], "VOLUME_DEGRADED", "{health}");
    let verdict = format!(
        "(text => text.startsWith({}) && [{}, {}, {}].every(it => text.includes(it)))(document.querySelector('.verdict').innerText)",
        quoted(&health["status"]),
        quoted(&reason["code"]),
        quoted(&reason["message"]),
        quoted(&reason["what_to_do"]),
    );
    let mut all = things([
        (
            "jobs",
            "rows('Jobs').some(it => it.What === 'scrub of s1' && / of [\\d.]+ MiB$/.test(it[3]))",
        ),
        (
            "their time left",
            "/^\\d.* s$/.test(rows('Jobs').find(it => it.What === 'scrub of s1')['Time left'])",
        ),
        (
            "reads",
            "some(fact('Read')) && /[1-9].*\\/s$/.test(fact('Read'))",
        ),
        (
            "writes",
            "some(fact('Write')) && /[1-9].*\\/s$/.test(fact('Write'))",
        ),
        (
            "p99",
            "/^[\\d.]+ (µs|ms|s) p50 [\\d.]+ (µs|ms|s)$/.test(fact('Latency p99'))",
        ),
        (
            "hits",
            "some(fact('Hits')) && / % of bytes read from hybrids$/.test(fact('Hits'))",
        ),
        ("clients", "fact('Clients') === '2 NBD'"),
        (
            "rates of minutes",
            "isDrawn('Throughput', 2) && isDrawn('Requests', 2)",
        ),
        ("p99 of minutes", "isDrawn('Latency', 1)"),
        ("hits of minutes", "isDrawn('Hits', 1)"),
        (
            "a hybrid",
            "(it => it.Kind === 'hybrid' && it.Health === 'healthy' && some(it['Writes/s']) && some(it.p99) && some(it.Hits))(row('Volumes', 'vol0'))",
        ),
        (
            "a virtual disk",
            "(it => it.Kind === 'virtual' && it.Health === 'degraded' && some(it['Writes/s']) && some(it.p99))(row('Volumes', 'vm1'))",
        ),
        (
            "its sign",
            "sign('Volumes', 'vol0') === 'good' && sign('Volumes', 'vm1') === 'warn'",
        ),
        (
            "stores",
            "['s0', 's1'].every(it => some(row('Stores', it).Free) && some(row('Stores', it).Written))",
        ),
        (
            "what is promised",
            "some(row('Stores', 's0').Promised) && row('Stores', 's1').Promised === '0 %'",
        ),
    ]);
    all.push(Thing("the verdict", verdict.clone()));
    let pill = format!(
        "document.querySelector('#verdict').innerText.trim() === {} && {verdict}",
        quoted(&health["status"])
    );
    all.push(Thing("it in the head", pill));
    all
}

/// What the page says of each setting.
const SETTINGS: [(&str, &str); 24] = [
    ("write", "back"),
    ("admission", "second-access"),
    ("dirty_low", "10"),
    ("dirty_high", "60"),
    ("energy", "false"),
    ("age_limit", "–"),
    ("sequential_bypass", "1MiB"),
    ("flash_writes_per_day", "off"),
    ("max_read", "off"),
    ("max_write", "off"),
    ("max_read_iops", "off"),
    ("max_write_iops", "off"),
    ("mode", "both"),
    ("policy", "s3-fifo"),
    ("block", "4.00 KiB"),
    ("fast_size", "all"),
    ("tier.policy", "on-the-fly"),
    ("tier.period", "1 s"),
    ("tier.region", "1.00 MiB"),
    ("tier.extent", "1.00 MiB"),
    ("tier.pinned", "–"),
    ("tier.barred", "–"),
    ("tier.windows", "always"),
    ("tier.auto", "false"),
];

fn hybrid() -> Vec<Thing> {
    let mut all = things([
        (
            "hybrids",
            "(it => it.Kind === 'hybrid' && it.Health === 'healthy' && it.Size === '64.0 MiB')(row('All volumes', 'vol0'))",
        ),
        (
            "virtual disks",
            "(it => it.Kind === 'virtual' && it.Health === 'degraded' && it.What.startsWith('2 copies, 1 snapshot'))(row('All volumes', 'vm1'))",
        ),
        (
            "its rates",
            "some(fact('Read')) && some(fact('Write')) && some(fact('Latency p99')) && some(fact('Hits'))",
        ),
        (
            "its heat map",
            "document.querySelector('.heat canvas').width >= 3 && colours() >= 3",
        ),
        (
            "what of it was fast",
            "/M\\d+ \\d+v1/.test(document.querySelector('.heat .outline').getAttribute('d'))",
        ),
        (
            "moves",
            "rows('Moves').some(it => it.To.includes('fast') && it.End === 'done' && some(it.Copied) && it.Why !== '')",
        ),
        (
            "what lives on the fast device",
            "(it => /tier [1-9].*, block cache .*, free /.test(it.says) && it.widths[0] > 0 && it.widths.reduce((a, b) => a + b) > 990)(bar('Room on the fast device'))",
        ),
        (
            "its regions",
            "some(fact('Regions', 'On the fast device')) && / of 64 of 1.00 MiB each$/.test(fact('Regions', 'On the fast device'))",
        ),
        (
            "its dirty data",
            "/^[\\d.]+ .?i?B /.test(fact('Dirty', 'On the fast device'))",
        ),
        (
            "clients",
            "rows('Clients').length === 1 && rows('Clients')[0].Export === 'vol0' && /vol0.sock#\\d+$/.test(rows('Clients')[0].Client)",
        ),
    ]);
    for (key, value) in SETTINGS {
        let found = format!("pair('{key}', 'Settings') === '{value}'");
        all.push(Thing("settings", found));
    }
    let none = format!(
        "card('Settings').querySelectorAll('.pairs dt').length === {}",
        SETTINGS.len()
    );
    all.push(Thing("no other setting", none));
    all
}

fn virtual_disk() -> Vec<Thing> {
    things([
        (
            "copies",
            "fact('Copies') === '2 a write reaches at least 1'",
        ),
        (
            "in-sync copies",
            "fact('Fewest in sync') === '1 of 2 copies of any extent'",
        ),
        ("where it is open", "fact('Open on') === 'n1 1 client here'"),
        (
            "stores without them",
            "some(row('Stores that miss writes', 's2')['Since generation'])",
        ),
        (
            "snapshots",
            "row('Snapshots', 'monday').Size === '64.0 MiB'",
        ),
        (
            "clients",
            "rows('Clients').length === 1 && /disks.sock#\\d+$/.test(rows('Clients')[0].Client)",
        ),
    ])
}

fn replication(bed: &Bed) -> Vec<Thing> {
    let disk = bed.says(&["volume", "show", "vm1"]);
    let since = disk["out"][0]["since_generation"]
        .as_u64()
        .expect("s2 is out");
    let mut all = things([
        ("in sync", "row('Volume by store', 'vm1').s0 === 'in sync'"),
        (
            "in sync, and drained",
            "row('Volume by store', 'vm1').s1 === 'in sync, leaving'",
        ),
        (
            "fewest",
            "row('Volume by store', 'vm1')['Fewest in sync'] === '1 of 2'",
        ),
        (
            "left to resync",
            "/^[1-9][\\d.]* MiB$/.test(row('Volume by store', 'vm1')['Left to resync'])",
        ),
        (
            "leases",
            "(it => it.Lease === 'up' && it.Stores === 's0, s1')(row('Nodes', 'n1 (this)'))",
        ),
        (
            "no lease",
            "(it => it.Lease === 'keeps none' && it.Stores === 's2' && it['Fails together with'] === 'n2')(row('Nodes', 'n2'))",
        ),
        (
            "stores",
            "row('Stores', 's0').State === 'active' && row('Stores', 's1').State === 'draining' && /s2.sock$/.test(row('Stores', 's2').Address)",
        ),
        (
            "drains",
            "(it => it['Volumes left'] === 'vm1' && some(it['Extents left here']) && it.Node === 'n1')(row('Drains', 's1')) && rows('Drains').length === 1",
        ),
    ]);
    let out = format!("row('Volume by store', 'vm1').s2 === 'out since {since}'");
    all.push(Thing("out, and since when", out));
    all
}

fn reservations() -> Vec<Thing> {
    things([
        (
            "a bar for each",
            "card('s0').querySelectorAll('.gantt-row').length === 1 && Number(card('s0').querySelector('.gantt-row .part').getAttribute('width')) > 50",
        ),
        (
            "what it is",
            "card('s0').querySelector('.gantt-row').innerText.includes('read 2.00 MB/s')",
        ),
        (
            "promised now",
            "some(fact('Promised now', 's0')) && fact('Promised now', 's0').includes('2.00 MB/s read')",
        ),
        (
            "nothing promised",
            "fact('Promised now', 's1').startsWith('0 %')",
        ),
        (
            "headroom now",
            "some(fact('Headroom now', 's0')) && fact('Headroom now', 's0').endsWith('must stay free for it')",
        ),
        (
            "promised and headroom by time",
            "isDrawn('Promised and headroom', 2, 's0')",
        ),
        (
            "windows kept",
            "some(row('Sessions at s0', 's0/1')['Windows kept'])",
        ),
        (
            "windows missed",
            "/^\\d+$/.test(row('Sessions at s0', 's0/1')['Missed: scheduler']) && /^\\d+$/.test(row('Sessions at s0', 's0/1')['Missed: device'])",
        ),
        (
            "missed of all",
            "/^\\d+ of sessions lately$/.test(fact('Windows missed', 's0'))",
        ),
    ])
}

fn stores() -> Vec<Thing> {
    things([
        (
            "room",
            "(it => /^Room of s0: used [1-9].* MiB, reserved .*, free [1-9].* MiB$/.test(it.says) && it.widths[0] > 0 && it.widths[2] > 0)(bar('Room of s0'))",
        ),
        (
            "room in figures",
            "/^252 MiB \\d+ objects on d0$/.test(fact('Room', 's0'))",
        ),
        (
            "queue",
            "/^\\d+ of [1-9]\\d* at the device; scheduler tags$/.test(fact('Queue', 's0'))",
        ),
        (
            "scrub",
            "/^(running .* of|ended) /.test(pair('Scrub', 's1')) && pair('Scrub', 's0') === 'not since the start'",
        ),
        (
            "what it is trusted with",
            "/trusted with 96.3 MB\\/s$/.test(fact('Read', 's0')) && /trusted with 96.3 MB\\/s$/.test(fact('Write', 's0'))",
        ),
        (
            "what it does",
            "some(fact('Read', 's0')) && some(fact('Write', 's0'))",
        ),
        ("calibration", "pair('Speeds are', 's0') === 'configured'"),
    ])
}

fn energy(bed: &Bed) -> Vec<Thing> {
    let status = bed.says(&["status"]);
    let devices = status["devices"].as_array().expect("a list").iter();
    let spin_ups: u64 = devices
        .filter_map(|it| it["power"]["spin_ups"].as_u64())
        .sum();
    assert!(spin_ups > 0, "vol1 was read: {status}");
    let mut all = things([
        (
            "power",
            "some(fact('Power now')) && fact('Power now').includes(' W ')",
        ),
        ("power of minutes", "isDrawn('Power', 4)"),
        (
            "joules",
            "some(fact('Energy')) && / k?J since the start$/.test(fact('Energy'))",
        ),
        ("standby", "/^[01] of 4 devices$/.test(fact('In standby'))"),
        (
            "by device",
            "['hdd0', 'ssd0', 'hdd1', 'ssd1'].every(it => some(row('Devices', it).Energy) && some(row('Devices', it).Mean))",
        ),
        (
            "models",
            "row('Devices', 'hdd0').Model === 'hdd-7200-sata' && row('Devices', 'hdd0').State === 'on'",
        ),
        (
            "spin-ups of a device",
            "row('Devices', 'hdd1')['Spin-ups'] !== '0' && row('Devices', 'hdd0')['Spin-ups'] === '0'",
        ),
        (
            "spindles",
            "row('Slow devices of hybrids', 'vol0').Spindle === 'spinning'",
        ),
        (
            "energy mode",
            "row('Slow devices of hybrids', 'vol1')['Energy mode'] === 'on' && row('Slow devices of hybrids', 'vol0')['Energy mode'].startsWith('off')",
        ),
        (
            "sleeps after",
            "row('Slow devices of hybrids', 'vol1')['Sleeps after'] === '1 s'",
        ),
    ]);
    let of_all = format!("fact('Spin-ups') === '{spin_ups} since the start'");
    all.push(Thing("spin-ups", of_all));
    all
}

fn asleep() -> Vec<Thing> {
    things([
        ("standby", "fact('In standby') === '1 of 4 devices'"),
        (
            "of a device",
            "row('Devices', 'hdd1').State === 'standby' && sign('Devices', 'hdd1') === 'idle'",
        ),
        (
            "of a spindle",
            "row('Slow devices of hybrids', 'vol1').Spindle === 'standby'",
        ),
    ])
}

fn advice() -> Vec<Thing> {
    things([
        ("hits by size", "isDrawn('Hits by size', 2, 'vol0')"),
        (
            "flash writes by size",
            "isDrawn('Flash writes by size', 1, 'vol0')",
        ),
        (
            "sizes",
            "rows('Sizes of vol0').length === 5 && rows('Sizes of vol0').some(it => it.Size.endsWith('(present)'))",
        ),
        (
            "their figures",
            "rows('Sizes of vol0').some(it => some(it.Hits) && some(it['Flash writes a day']))",
        ),
        (
            "what was watched",
            "some(fact('Footprint', 'vol0')) && /[1-9].* requests$/.test(fact('Watched', 'vol0'))",
        ),
        (
            "reasons",
            "card('vol0').querySelector('.reasons li').innerText.length > 10",
        ),
        (
            "where none watches",
            "card('vol1').innerText.includes('tanada volume set vol1 advise=on')",
        ),
    ])
}

/// The answers of the stores with a line in the log of the first, as one that broke a promise has.
const PLANTED: &str = "const real = fetch; window.fetch = async (path, more) => { const answer = await real(path, more); \
    if (path !== '/v1/stores') return answer; const all = await answer.json(); \
    all[0].node.log = [{at: 1, kind: 'violated', what: 'reservation 1 got less'}]; return Response.json(all); }; 1";

fn log_of_a_store() -> Vec<Thing> {
    things([
        (
            "how many lines",
            "words(card('s0').querySelector('details summary')) === 'Its log: 1 line'",
        ),
        (
            "a line of the log",
            "(card('s0').querySelector('details').open = true) && \
             (it => it.Kind === 'violated' && it.What === 'reservation 1 got less' && it.When.includes('19'))(rows('Log of s0')[0])",
        ),
    ])
}

/// Finds all of it on a page that the daemon draws.
fn find(opened: &mut Opened<'_>, bed: &Bed, path: &str, all: &[Thing]) {
    opened.value(LOOK);
    for Thing(what, found) in all {
        assert!(
            opened.until(found),
            "{path}, {what}: {found}\n{}",
            opened.text("document.querySelector('main').innerText")
        );
    }
    check(opened, &bed.node, path);
}

/// None of it is found where nothing is drawn.
fn miss(opened: &mut Opened<'_>, path: &str, all: &[Thing]) {
    opened.value("document.querySelector('main').remove(); document.body.append(document.createElement('main')); 1");
    for Thing(what, found) in all {
        let tried =
            format!("(() => {{ try {{ return !!({found}); }} catch {{ return false; }} }})()");
        assert_eq!(opened.value(&tried), false, "{path}, {what}: {found}");
    }
}

fn look(browser: &mut Browser, bed: &Bed, path: &str, all: &[Thing]) {
    let mut opened = page(browser, &bed.node, path, DESK);
    find(&mut opened, bed, path, all);
    miss(&mut opened, path, all);
}

#[test]
fn each_thing_that_the_document_names_is_on_its_page_and_on_no_empty_one() {
    let Some(mut browser) = browser() else { return };
    let mut bed = Bed::start();
    let dir = bed.dir();
    look(&mut browser, &bed, "energy", &asleep());
    // It wakes the disk.
    fill(&dir, VOL1, 1 << 20);
    drop(bed.elsewhere.take());
    let clients = [Busy::start(&dir, VOL0), Busy::start(&dir, VM1)];
    until_out(&bed);
    text(&dir, &["node", "drain", "s1"]);
    text(&dir, &["store", "scrub", "s1", "--no-wait"]);
    look(&mut browser, &bed, "", &overview(&bed));
    look(&mut browser, &bed, "volumes/hybrid/vol0", &hybrid());
    look(&mut browser, &bed, "volumes/virtual/vm1", &virtual_disk());
    look(&mut browser, &bed, "replication", &replication(&bed));
    look(&mut browser, &bed, "reservations", &reservations());
    look(&mut browser, &bed, "stores", &stores());
    let mut opened = page(&mut browser, &bed.node, "stores", DESK);
    opened.value(PLANTED);
    find(&mut opened, &bed, "stores", &log_of_a_store());
    miss(&mut opened, "stores", &log_of_a_store());
    look(&mut browser, &bed, "energy", &energy(&bed));
    look(&mut browser, &bed, "advice", &advice());
    for client in clients {
        assert!(client.end() > 0);
    }
    // Not stopped: without a store that a volume misses that took over a minute.
    drop(bed);
}

const VOL1: Work = Work {
    socket: "vol1.sock",
    export: "vol1",
    ..VOL0
};

/// Until writes have missed the store that ended, and the verdict says so.
fn until_out(bed: &Bed) {
    // Each look takes some milliseconds.
    for _ in 0..3000 {
        let disk = bed.says(&["volume", "show", "vm1"]);
        let status = bed.says(&["status"]);
        if disk["out"][0]["name"] == "s2" && status["health"]["checks"][0].is_object() {
            return;
        }
    }
    panic!("{}", bed.says(&["volume", "show", "vm1"]));
}

/// What a volume may be, and the sign that says so beside the word.
const SIGNS: [(&str, &str); 11] = [
    ("healthy", "good"),
    ("resyncing", "warn"),
    ("degraded", "warn"),
    ("pass-through", "warn"),
    ("evacuating", "warn"),
    ("full", "bad"),
    ("read-only", "bad"),
    ("offline", "bad"),
    ("failed", "bad"),
    ("cache-lost", "bad"),
    ("closed", "bad"),
];

#[test]
fn a_volume_that_answers_nothing_has_the_sign_of_an_error() {
    let Some(mut browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    // Far from each other: writes in a stream pass the cache by.
    let stride = 1 << 20;
    let client = Busy::start(dir, Work { stride, ..VOL0 });
    let dirty = || {
        let shown = run(dir, &["volume", "show", "vol0", "--json"]);
        let volume: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
        volume["cache"]["dirty_bytes"].as_u64().expect("a number")
    };
    assert!((0..3000).any(|_| dirty() > 0), "each look takes a while");
    client.end();
    assert_eq!(daemon.stop().0, Some(0));
    fs::remove_file(dir.join("fast.img")).expect("it was there");
    let daemon = Daemon::start(dir, SMALL);
    for (path, table) in [("", "Volumes"), ("volumes", "All volumes")] {
        let mut opened = page(&mut browser, &daemon, path, DESK);
        opened.value(LOOK);
        let found = format!(
            "row('{table}', 'vol0').Health === 'cache-lost' && sign('{table}', 'vol0') === 'bad'"
        );
        assert!(
            opened.until(&found),
            "{}",
            opened.text("document.querySelector('main').innerText")
        );
        let reason = "document.querySelector('.verdict .check.bad')?.innerText ?? ''";
        let is_said = opened.text(reason).contains("CACHE_LOST");
        assert_eq!(is_said, path.is_empty());
        for (word, sign) in SIGNS {
            let kind = format!("import('/web/parts.js').then(parts => parts.kindOf('{word}'))");
            assert_eq!(opened.awaited(&kind), sign, "{word}");
        }
        check(&mut opened, &daemon, path);
    }
    assert_eq!(daemon.stop().0, Some(0));
}
